"""Measures dspn against hmmlearn, pomegranate, dynamax and the limits of the machine."""

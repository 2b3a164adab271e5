"""Measures dspn against hmmlearn, pomegranate and dynamax, and against the limits of the machine."""

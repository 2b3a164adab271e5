"""Processes to sample from whose exact likelihood is known."""

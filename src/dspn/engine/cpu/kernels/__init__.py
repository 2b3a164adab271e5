"""Compiled kernels: one set serves every template, because structure is data."""

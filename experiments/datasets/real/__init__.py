"""Readers of recorded data sets, from the files as their authors published them."""

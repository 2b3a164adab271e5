"""One competitor in each file; each is imported in the environment of its own only."""

"""The release, in the one place that everything else reads it from."""

__version__ = "0.1.0"

"""What people use: a DSPN with its queries as methods."""

from dspn.models.model import Model, load

__all__ = ["Model", "load"]

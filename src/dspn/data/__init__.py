"""Ragged batches of sequences of slices, and the schema that says what their variables are."""

from dspn.data.layout import TableKeys
from dspn.data.schema import Category, Kind, Schema, Variable
from dspn.data.sequences import Sequences

__all__ = ["Category", "Kind", "Schema", "Sequences", "TableKeys", "Variable"]

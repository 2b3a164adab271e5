"""Ragged batches of sequences of slices, and the schema that says what their variables are."""

from dspn.data.batch import Sequences
from dspn.data.keys import TableKeys
from dspn.data.schema import Category, Kind, Schema, Variable

__all__ = ["Category", "Kind", "Schema", "Sequences", "TableKeys", "Variable"]

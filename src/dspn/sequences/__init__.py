"""Ragged batches of sequences of slices, and the schema that says what their variables are."""

from dspn.sequences.batch import Sequences
from dspn.sequences.keys import TableKeys
from dspn.sequences.schema import Category, Kind, Schema, Variable

__all__ = ["Category", "Kind", "Schema", "Sequences", "TableKeys", "Variable"]

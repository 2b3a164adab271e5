"""Long tables of pandas, polars and Arrow, one row for each slice."""

from dspn.data.tables.choice import library_named, library_of
from dspn.data.tables.long import LongTable, long_table, read_long_table

__all__ = ["LongTable", "library_named", "library_of", "long_table", "read_long_table"]

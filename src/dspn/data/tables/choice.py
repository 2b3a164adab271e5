"""Which library a table belongs to."""

from __future__ import annotations

from typing import Any

from dspn.data.tables.base import TableLibrary
from dspn.data.tables.pandas import PandasLibrary
from dspn.data.tables.polars import PolarsLibrary
from dspn.data.tables.pyarrow import PyarrowLibrary
from dspn.errors import DataError

_LIBRARIES: dict[str, type[PandasLibrary | PolarsLibrary | PyarrowLibrary]] = {
    "pandas": PandasLibrary,
    "polars": PolarsLibrary,
    "pyarrow": PyarrowLibrary,
}
_TABLES = frozenset({"DataFrame", "LazyFrame", "Table", "RecordBatch"})


def library_of(table: Any) -> TableLibrary:
    """Library whose table this is, told from the module of its type; nothing else is imported."""
    for base in type(table).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _LIBRARIES and base.__name__ in _TABLES:
            return library_named(package)
    raise DataError(
        "`table` must be a data frame of pandas or polars, or an Arrow table, found "
        f"{type(table).__module__}.{type(table).__name__}."
    )


def library_named(name: str) -> TableLibrary:
    """Library of this name, imported now."""
    if name not in _LIBRARIES:
        raise DataError(f"`library` must be one of {', '.join(_LIBRARIES)}, found {name!r}.")
    try:
        return _LIBRARIES[name]()
    except ModuleNotFoundError:
        raise DataError(
            f"`library` {name!r} is not installed; install it (pip install {name}) or choose "
            "another."
        ) from None

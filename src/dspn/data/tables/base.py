"""What reading and writing a table asks of the library that made it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dspn.data.schema import Category


@final
@dataclass(frozen=True)
class RawColumn:
    """Numbers with NaN where missing, or Python objects, as a table holds them.

    `declared` are the categories that the column's type lists, in their order.
    """

    items: NDArray[np.float64] | list[Any]
    boolean: bool = False
    declared: tuple[Category, ...] | None = None


@final
@dataclass(frozen=True)
class OrderColumn:
    """Values of an order column, and their ranks where the values do not sort by themselves."""

    values: NDArray[Any]
    ranks: NDArray[Any] | None = None


@final
@dataclass(frozen=True)
class NewColumn:
    """A column to be made: an array or a list of objects (None is missing), and a mask.

    `text` says that objects are strings even when all of them are missing.
    """

    name: str
    values: NDArray[Any] | list[Any]
    missing: NDArray[np.bool_] | None = None
    text: bool = False


class TableLibrary(ABC):
    """Access to the columns of one library's tables."""

    @abstractmethod
    def opened(self, table: Any) -> Any:
        """The table itself, or the one it stands for (a lazy frame, a record batch)."""

    @abstractmethod
    def column_names(self, table: Any) -> list[Hashable]:
        """Names of the columns in their order."""

    @abstractmethod
    def column(self, table: Any, name: Hashable) -> Any:
        """A column in the library's own form; raises where its buffers are damaged."""

    @abstractmethod
    def missing(self, column: Any) -> NDArray[np.bool_]:
        """Where a column has no value."""

    @abstractmethod
    def items(self, column: Any) -> list[Any]:
        """Values of a column as Python objects."""

    @abstractmethod
    def raw(self, column: Any) -> RawColumn:
        """Values of a variable's column."""

    @abstractmethod
    def order(self, column: Any) -> OrderColumn:
        """Values of an order column in which nothing is missing."""

    @abstractmethod
    def table(self, columns: list[NewColumn]) -> Any:
        """A table of the columns."""


def object_array(items: list[Any]) -> NDArray[Any]:
    """One-dimensional array of objects, whatever they are."""
    return np.fromiter(items, dtype=object, count=len(items))

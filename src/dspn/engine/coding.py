"""Integer codes of the entries whose values are few enough to be tabulated."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Floats
from dspn.sequences import Kind, Sequences

_MOST_COUNTS: Final = (
    4096  # more distinct counts than this are evaluated slice by slice, not tabulated
)


@final
@dataclass(frozen=True, eq=False)
class Coding:
    """Codes (slices, factors) of the tabulated variables, and what each code stands for.

    `factor_of[v]` is the column of variable v, -1 where it is not tabulated. `values[f]` lists the values of
    factor f by code; the last one is NaN, the code of a missing entry.
    """

    codes: NDArray[np.int32]
    factor_of: tuple[int, ...]
    values: tuple[Floats, ...]

    @property
    def num_factors(self) -> int:
        """Number of tabulated variables."""
        return len(self.values)


def _category_codes(column: Floats, num_categories: int) -> tuple[NDArray[np.int32], Floats]:
    missing = np.isnan(column)
    codes = np.where(missing, float(num_categories), column).astype(np.int32)
    return codes, np.append(np.arange(num_categories, dtype=np.float64), np.nan)


def _count_codes(column: Floats) -> tuple[NDArray[np.int32], Floats] | None:
    missing = np.isnan(column)
    distinct, inverse = np.unique(column[~missing], return_inverse=True)
    if distinct.size > _MOST_COUNTS:
        return None
    codes = np.full(column.size, distinct.size, dtype=np.int32)
    codes[~missing] = inverse
    return codes, np.append(distinct, np.nan)


def code(data: Sequences, *, counts: bool = True) -> Coding:
    """Codes of all categorical variables, and (unless told not to) of counts with few distinct values."""
    columns: list[NDArray[np.int32]] = []
    values: list[Floats] = []
    factor_of: list[int] = []
    for number, variable in enumerate(data.schema):
        column = data.values[:, number]
        coded = None
        if variable.kind == Kind.CATEGORICAL:
            coded = _category_codes(column, variable.num_categories)
        elif variable.kind == Kind.COUNT and counts:
            coded = _count_codes(column)
        factor_of.append(-1 if coded is None else len(columns))
        if coded is not None:
            columns.append(coded[0])
            values.append(coded[1])
    shape = (data.values.shape[0], len(columns))
    codes = np.stack(columns, axis=1) if columns else np.empty(shape, dtype=np.int32)
    return Coding(np.ascontiguousarray(codes), tuple(factor_of), tuple(values))

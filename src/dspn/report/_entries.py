"""Distributions of single entries as short rows of numbers: moments and bands, or categories."""

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Floats, Ints
from dspn.inference import Marginals, VariableMarginals
from dspn.report._packing import shares, singles

LEVELS: Final = (0.1, 0.5, 0.9)
"""Ends and middle of the bands, which hold 80 % as those of the plots do."""
MOST_CATEGORIES: Final = 6
"""Most categories of one entry whose probabilities are kept."""


@final
@dataclass(frozen=True, eq=False)
class EntryTable:
    """What is known of a variable's entries, and where those of each sequence begin.

    A number has (mean, 10 %, 50 %, 90 %); a category has the codes of the most probable ones, by
    code, and their probabilities.
    """

    arrays: tuple[NDArray[Any], ...]
    bounds: Ints

    def of(self, sequence: int) -> list[NDArray[Any]]:
        """The rows of one sequence."""
        rows = slice(self.bounds[sequence], self.bounds[sequence + 1])
        return [array[rows] for array in self.arrays]


def entry_tables(marginals: Marginals, offsets: Ints) -> list[EntryTable]:
    """One table for each variable; `offsets` are those of the data the marginals were asked of."""
    return [
        EntryTable(_arrays(own), np.searchsorted(own.slices, offsets))
        for own in marginals.variables
    ]


def _arrays(own: VariableMarginals) -> tuple[NDArray[Any], ...]:
    if own.probabilities is None:
        return (singles(np.column_stack([own.mean, own.quantiles])),)
    codes = _most_probable(own.probabilities)
    kept = np.take_along_axis(own.probabilities, codes, axis=1)
    return codes.astype("<u2"), shares(kept)


def _most_probable(probabilities: Floats) -> Ints:
    """The most probable categories of each entry, in the order of their codes."""
    count = min(probabilities.shape[1], MOST_CATEGORIES)
    first = np.argsort(-probabilities, axis=1, kind="stable")[:, :count]
    return np.sort(first, axis=1)

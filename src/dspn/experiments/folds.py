"""Cross validation whose folds are the same for every model."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Ints
from dspn._checks import checked_rng, whole_number
from dspn.errors import DataError


@final
@dataclass(frozen=True, eq=False)
class Fold:
    """Sequences by number: to learn from, to choose by, and to test on; no two sets overlap."""

    train: Ints
    validation: Ints
    test: Ints


def folds_of(
    num_sequences: int,
    *,
    num_folds: int = 10,
    validation_share: float = 0.1,
    rng: np.random.Generator,
) -> tuple[Fold, ...]:
    """Folds whose test sets share out the sequences; of the rest a share, drawn, is validation."""
    count = whole_number(num_sequences, "num_sequences", DataError)
    wanted = whole_number(num_folds, "num_folds", DataError, least=2)
    checked_rng(rng, DataError)
    if not 0 < validation_share < 1:
        raise DataError(
            f"`validation_share` must be between 0 and 1, both left out, but is {validation_share}."
        )
    least = max(wanted, 3)
    if count < least:
        raise DataError(
            f"`num_sequences` must be at least {least} for {wanted} folds with something to learn "
            f"from, to choose by and to test on, but is {count}."
        )
    found = []
    for test in np.array_split(rng.permutation(count), wanted):
        rest = rng.permutation(np.setdiff1d(np.arange(count), test))
        size = min(max(1, round(validation_share * rest.size)), rest.size - 1)
        found.append(Fold(np.sort(rest[size:]), np.sort(rest[:size]), np.sort(test)))
    return tuple(found)

"""Cross validation whose folds are the same for every model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from dspn._arguments import Ints, checked_rng, whole_number
from dspn.errors import DataError
from dspn.io import write_atomically


@final
@dataclass(frozen=True, eq=False)
class Fold:
    """Sequences by number: to learn from, to choose by, and to test on; no two sets overlap."""

    train: Ints
    validation: Ints
    test: Ints


def keep_folds(folds: Sequence[Fold], seed: int, path: Path) -> None:
    """Writes which sequences each fold has, or raises where others were written before."""
    parts = ("train", "validation", "test")
    content = {
        "seed": seed,
        "num_sequences": sum(fold.test.size for fold in folds),
        "folds": [{part: getattr(fold, part).tolist() for part in parts} for fold in folds],
    }
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8")) != content:
            raise DataError(
                f"the folds in {str(path)!r} must be those of the data, but are others; results "
                "beside them do not compare, so choose another directory."
            )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(str(path), json.dumps(content).encode())


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

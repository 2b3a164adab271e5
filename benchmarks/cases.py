"""Data and a hidden Markov model for one measurement, in files that every competitor can read.

Only numpy is imported: this module runs in the environment of each peer.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

_FILE = "case.npz"
_TRUE_STATES = 12


@final
@dataclass(frozen=True, eq=False)
class Case:
    """Sequences laid end to end, and the HMM with independent emissions that reads them.

    `values[offsets[i] + t]` is slice t of sequence i, as category codes; `emissions[v, s, c]` is
    P(variable v = c | state s).
    """

    values: NDArray[np.int64]
    offsets: NDArray[np.int64]
    start: NDArray[np.float64]
    transition: NDArray[np.float64]
    emissions: NDArray[np.float64]

    @property
    def num_states(self) -> int:
        return self.start.size

    @property
    def num_variables(self) -> int:
        return self.emissions.shape[0]

    @property
    def num_categories(self) -> int:
        return self.emissions.shape[2]

    @property
    def is_binary(self) -> bool:
        return self.num_categories == 2

    @property
    def num_sequences(self) -> int:
        return self.offsets.size - 1

    @property
    def total_slices(self) -> int:
        return len(self.values)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @cached_property
    def arrays(self) -> list[NDArray[np.generic]]:
        """One (T_i, n) array for each sequence: floats for binary variables, whole numbers else."""
        values = self.values.astype(np.float64) if self.is_binary else self.values
        return [part.copy() for part in np.split(values, self.offsets[1:-1])]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(
            folder / _FILE,
            values=self.values,
            offsets=self.offsets,
            start=self.start,
            transition=self.transition,
            emissions=self.emissions,
        )

    @classmethod
    def load(cls, folder: Path) -> "Case":
        with np.load(folder / _FILE) as stored:
            return cls(**{name: stored[name] for name in stored.files})


@final
@dataclass(frozen=True, eq=False)
class Bucket:
    """The sequences of one length: `members` of the batch, `rows[m, t]` of its slices."""

    members: NDArray[np.int64]
    rows: NDArray[np.int64]


def buckets(offsets: NDArray[np.int64]) -> list[Bucket]:
    """Sequences grouped by equal length, shortest first."""
    lengths = np.diff(offsets)
    found = []
    for length in np.unique(lengths):
        members = np.flatnonzero(lengths == length)
        found.append(Bucket(members, offsets[members][:, None] + np.arange(length)))
    return found


def stacked_by_length(arrays: list[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    """The arrays of equal length as one (N, T, n) array each, as a one-shot caller must."""
    by_length: dict[int, list[NDArray[np.generic]]] = {}
    for array in arrays:
        by_length.setdefault(len(array), []).append(array)
    return [np.stack(group) for _, group in sorted(by_length.items())]


def _drawn(probabilities: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """One category for each row of probabilities."""
    levels = probabilities.cumsum(axis=-1)
    below = rng.uniform(size=levels.shape[:-1])[..., None] * levels[..., -1:] >= levels
    return below.sum(axis=-1)


def _emissions(
    shape: tuple[int, int, int], rng: np.random.Generator, sharpness: float
) -> NDArray[np.float64]:
    """Category probabilities for (variables, states, categories), none of them near zero."""
    drawn = rng.dirichlet(np.full(shape[2], sharpness), size=shape[:2])
    return 0.9 * drawn + 0.1 / shape[2]


def _samples(
    num_variables: int, num_categories: int, lengths: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Sequences of an HMM of its own, laid end to end."""
    emissions = _emissions((num_variables, _TRUE_STATES, num_categories), rng, 0.7)
    transition = rng.dirichlet(np.full(_TRUE_STATES, 0.3), size=_TRUE_STATES)
    longest = int(lengths.max())
    states = np.empty((longest, lengths.size), dtype=np.int64)
    states[0] = rng.integers(0, _TRUE_STATES, size=lengths.size)
    for t in range(1, longest):
        states[t] = _drawn(transition[states[t - 1]], rng)
    path = np.concatenate([states[:length, i] for i, length in enumerate(lengths)])
    return np.stack([_drawn(table[path], rng) for table in emissions], axis=1)


def hmm_case(
    num_variables: int,
    num_categories: int,
    lengths: NDArray[np.int64],
    num_states: int,
    *,
    rng: np.random.Generator,
) -> Case:
    """Sequences of a hidden truth, and a random HMM of `num_states` states to read them with."""
    values = _samples(num_variables, num_categories, lengths, rng)
    return Case(
        values,
        np.concatenate([[0], lengths.cumsum()]),
        rng.dirichlet(np.ones(num_states)),
        rng.dirichlet(np.ones(num_states), size=num_states),
        _emissions((num_variables, num_states, num_categories), rng, 1.0),
    )


def path_log_probs(case: Case, states: NDArray[np.int64]) -> NDArray[np.float64]:
    """log P(states, values) of each sequence for a path of hidden states."""
    steps = np.log(case.transition)[np.roll(states, 1), states]
    steps[case.offsets[:-1]] = np.log(case.start)[states[case.offsets[:-1]]]
    for variable, table in enumerate(case.emissions):
        steps += np.log(table)[states, case.values[:, variable]]
    return np.add.reduceat(steps, case.offsets[:-1])

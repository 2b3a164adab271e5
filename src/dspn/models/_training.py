"""What a fit works on: sequences to learn from, sequences that choose, weights and a seed."""

from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from dspn._arrays import Bools, Floats
from dspn.errors import ConvergenceWarning, DataError, warn
from dspn.learning.clock import Clock
from dspn.sequences import Schema, Sequences, Variable
from dspn.sequences.fingerprint import data_fingerprint
from dspn.sequences.joining import drawn_places, joined

_MOST_NAMED = 5


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """The training set, the validation set where there is one, and the seed of all randomness.

    `weights` says how often each training sequence counts, None where all count once. A validation
    set that was held out of the training data is learned from in the end, as `held_weights` say;
    one that was given is not. `clock` counts from the beginning of the fit.
    """

    train: Sequences
    validation: Sequences | None
    weights: Floats | None
    seed: int
    is_held_out: bool = False
    held_weights: Floats | None = None
    clock: Clock = field(default_factory=Clock)

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.train.schema

    def whole(self) -> tuple[Sequences, Floats | None]:
        """All sequences to learn from in the end, and their weights."""
        if self.validation is None or not self.is_held_out:
            return self.train, self.weights
        data = joined([self.train, self.validation])
        if self.weights is None or self.held_weights is None:
            return data, None
        return data, np.concatenate([self.weights, self.held_weights])

    def sampled(self, num_slices: int, clock: Clock) -> "TrainingData":
        """Some of the sequences of either set, of about as many slices, and another clock."""
        own = drawn_places(self.train, num_slices, self.rng(3))
        held = self.validation
        return replace(
            self,
            train=self.train[own],
            weights=None if self.weights is None else self.weights[own],
            validation=None if held is None else held[drawn_places(held, num_slices, self.rng(4))],
            clock=clock,
        )

    def rng(self, *part: int) -> np.random.Generator:
        """The randomness of one part of the work, whatever the others draw."""
        return np.random.default_rng([self.seed, *part])

    def fingerprints(self) -> dict[str, str | None]:
        """What tells these data from others, in hexadecimal digits."""
        held = self.validation
        return {
            "train": data_fingerprint(self.train).hex(),
            "validation": None if held is None else data_fingerprint(held).hex(),
        }


def checked_fraction(fraction: Any) -> float:
    """The share of the sequences that is held out; raises unless it is in [0, 1)."""
    is_number = isinstance(fraction, int | float | np.number) and not isinstance(fraction, bool)
    if not (is_number and 0 <= fraction < 1):
        raise DataError(
            f"`validation_fraction` must be a number from 0, for no validation set, to below 1, "
            f"but is {fraction!r}; 0.1 is usual."
        )
    return float(fraction)


def training_data(
    data: Sequences,
    weights: Floats | None,
    validation: Sequences | None,
    fraction: float,
    seed: int,
) -> TrainingData:
    """The sequences that count, and those that choose: as given, or held out at random.

    Held out is a share `fraction`, but at least one sequence and never all. A single sequence is
    its own validation set.
    """
    if weights is not None and not weights.all():
        counted = np.flatnonzero(weights)
        data, weights = data[counted], weights[counted]
    if weights is not None and np.ptp(weights) == 0 and weights[0] == 1:
        weights = None
    if validation is not None or fraction == 0:
        return TrainingData(data, validation, weights, seed)
    size = len(data)
    if size == 1:
        return TrainingData(data, data, weights, seed)
    order = np.random.default_rng([seed, 0]).permutation(size)
    held = min(max(1, round(fraction * size)), size - 1)
    chosen, kept = np.sort(order[:held]), np.sort(order[held:])
    own, others = (None, None) if weights is None else (weights[kept], weights[chosen])
    return TrainingData(data[kept], data[chosen], own, seed, True, others)


def warn_of_single_sequence() -> None:
    """Says that nothing was held out."""
    warn(
        "there is a single sequence, so that none can be held out: it is its own validation set, "
        "and nothing keeps the model from fitting it too closely. Cut it into several sequences "
        "(`Sequences.from_table` reads a table that has more than one), give `validation`, or set "
        "`validation_fraction=0`.",
        ConvergenceWarning,
    )


def warn_of_idle_variables(data: Sequences) -> None:
    """Names the variables that say nothing: never observed, or the same in every slice."""
    missing = np.isnan(data.values)
    # fmin and fmax leave NaN where there is nothing but NaN.
    low, high = (np.asarray(f.reduce(data.values)) for f in (np.fmin, np.fmax))
    absent: Bools = np.asarray(missing.all(axis=0))
    constant: Bools = np.asarray(~absent & (low == high))
    for mask, said in (
        (absent, "have no observed value, so that nothing is learned of them"),
        (constant, "have the same value wherever they are observed and are learned as constant"),
    ):
        if mask.any():
            names = [name for name, marked in zip(data.schema.names, mask, strict=True) if marked]
            warn(f"variables {_listed(names)} {said}.", UserWarning)


def warn_of_unseen_categories(train: Sequences, validation: Sequences) -> None:
    """Names the categories that occur in the validation set but never in training."""
    found = []
    for column, variable in enumerate(train.schema):
        if variable.num_categories:
            seen = _seen(train, column, variable)
            unseen = np.flatnonzero(_seen(validation, column, variable) & ~seen)
            if unseen.size:
                codes = unseen.tolist()
                found.append(f"{variable.name!r}: {[variable.categories[code] for code in codes]}")
    if found:
        warn(
            f"`validation` has categories that never occur in training ({_listed(found)}); only "
            "the priors speak for them.",
            UserWarning,
        )


def _seen(data: Sequences, column: int, variable: Variable) -> Bools:
    values = data.values[:, column]
    codes = values[~np.isnan(values)].astype(np.int64)
    seen: Bools = np.bincount(codes, minlength=variable.num_categories) > 0
    return seen


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more

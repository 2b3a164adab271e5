"""What the tour is about: a true model, sequences to learn from, new ones to be asked about."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from dspn._arrays import Bools, Floats
from dspn.datasets import water_model
from dspn.models import Model
from dspn.sequences import Sequences

_CONCENTRATION: Final = 0.3
# Of the seeds 0 to 119 the one whose sensors tell the most about each other.
_TABLES_SEED: Final = 103
_DATA_SEED: Final = 1
_NEW_SEED: Final = 2
# A stream whose fault is plain to see; the tour says how often that is so.
_STREAM_SEED: Final = 74

_NUM_TRAINING, _NUM_VALIDATION, _NUM_NEW = 160, 40, 500
_SHORTEST, _LONGEST = 20, 120
HIDDEN_SHARE: Final = 0.3
STREAM_SLICES: Final = 60
NUM_STREAMS: Final = 200
FAULT: Final = 42
"""The slice of a stream at which every sensor is wrong."""


@final
@dataclass(frozen=True, eq=False)
class Hidden:
    """Sequences, and the same sequences with some of their entries missing."""

    truth: Sequences
    seen: Sequences

    @property
    def hidden(self) -> Bools:
        """Which entries are missing from `seen`."""
        return np.isnan(self.seen.values)


@final
@dataclass(frozen=True, eq=False)
class Example:
    """The true model, partly hidden sequences drawn from it, and others drawn later."""

    true_model: Model
    given: Hidden
    new: Hidden

    @cached_property
    def training(self) -> Sequences:
        """The sequences that parameters are learned from."""
        return self.given.seen[np.arange(_NUM_TRAINING)]

    @cached_property
    def validation(self) -> Sequences:
        """The sequences that choose among models."""
        return self.given.seen[np.arange(_NUM_TRAINING, len(self.given.seen))]

    @cached_property
    def shares(self) -> Floats:
        """How often each sensor is 1 among the entries seen for learning."""
        share: Floats = np.nanmean(self.given.seen.values, axis=0)
        return share


def _with_hidden(data: Sequences, rng: np.random.Generator) -> Sequences:
    hidden = rng.uniform(size=data.values.shape) < HIDDEN_SHARE
    return data.with_values(np.where(hidden, np.nan, data.values))


def _drawn(model: Model, count: int, seed: int) -> Hidden:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(_SHORTEST, _LONGEST + 1, size=count)
    truth = model.sample(count, lengths.tolist(), rng=rng)
    return Hidden(truth, _with_hidden(truth, rng))


def water_example() -> Example:
    """Sequences of four sensors, drawn from the Water network with sharp random tables."""
    model = water_model(np.random.default_rng(_TABLES_SEED), _CONCENTRATION)
    given = _drawn(model, _NUM_TRAINING + _NUM_VALIDATION, _DATA_SEED)
    return Example(model, given, _drawn(model, _NUM_NEW, _NEW_SEED))


def _faulty(model: Model, count: int, seed: int) -> Sequences:
    """New sequences, partly hidden, in each of which every sensor is wrong at one slice."""
    rng = np.random.default_rng(seed)
    drawn = model.sample(count, STREAM_SLICES, rng=rng)
    values = _with_hidden(drawn, rng).values.copy()
    at = drawn.offsets[:-1] + FAULT
    values[at] = 1 - drawn.values[at]
    return drawn.with_values(values)


def faulty_stream(model: Model) -> Sequences:
    """The stream that is shown slice by slice."""
    return _faulty(model, 1, _STREAM_SEED)


def faulty_streams(model: Model) -> Sequences:
    """The streams that detections are counted over."""
    return _faulty(model, NUM_STREAMS, _DATA_SEED)

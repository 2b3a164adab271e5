"""What the demo is about: a house with ten sensors, and recordings of it with gaps and a fault."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.data import Kind, Schema, Sequences, Variable
from dspn.models import Model

SCHEMA: Final = Schema(
    (
        Variable.categorical("sky", ["clear", "clouds", "rain"]),
        Variable.continuous("celsius"),
        Variable.continuous("wind"),
        Variable.categorical("lights", ["off", "on"]),
        Variable.count("motion"),
        Variable.continuous("humidity"),
        Variable.count("cars"),
        Variable.continuous("noise"),
        Variable.categorical("pump", ["off", "on"]),
        Variable.continuous("flow"),
    )
)
NUM_RECORDINGS: Final = 40
NUM_NEW: Final = 60
NEW_HOURS: Final = 60
AHEAD: Final = 12
"""Hours at the end of every new recording that are held back."""
WARM: Final = 24.0
"""What the faulty thermometer shows in a storm."""
AROUND: Final = 3
"""Hours that are shown before and after the fault."""
_DATA_SEED: Final = 1
_NEW_SEED: Final = 2

# Four chains of three states that know nothing of each other: P(next state | state).
_WEATHER: Final = [[0.93, 0.06, 0.01], [0.08, 0.84, 0.08], [0.02, 0.10, 0.88]]
_PEOPLE: Final = [[0.88, 0.12, 0.00], [0.08, 0.82, 0.10], [0.04, 0.06, 0.90]]
_STREET: Final = [[0.92, 0.08, 0.00], [0.07, 0.85, 0.08], [0.00, 0.12, 0.88]]
_HEATING: Final = [[0.90, 0.10, 0.00], [0.10, 0.80, 0.10], [0.00, 0.20, 0.80]]
_CHAINS: Final = (_WEATHER, _PEOPLE, _STREET, _HEATING)
# Which chain a sensor looks at, and its leaf in each state of that chain: probabilities of the
# categories, mean and standard deviation, or rate.
_LEAVES: Final = {
    "sky": (0, [[0.84, 0.14, 0.02], [0.20, 0.68, 0.12], [0.03, 0.19, 0.78]]),
    "celsius": (0, [[21.0, 3.0], [16.0, 3.0], [12.0, 2.5]]),
    "wind": (0, [[10.0, 3.0], [16.0, 4.5], [28.0, 7.0]]),
    "lights": (1, [[0.95, 0.05], [0.20, 0.80], [0.93, 0.07]]),
    "motion": (1, [[0.5], [7.0], [1.5]]),
    "humidity": (1, [[42.0, 3.0], [54.0, 6.0], [62.0, 6.0]]),
    "cars": (2, [[25.0], [45.0], [65.0]]),
    "noise": (2, [[48.0, 5.0], [56.0, 5.0], [64.0, 5.0]]),
    "pump": (3, [[0.90, 0.10], [0.30, 0.70], [0.05, 0.95]]),
    "flow": (3, [[26.0, 4.0], [35.0, 6.0], [49.0, 7.0]]),
}


@final
@dataclass(frozen=True, eq=False)
class Recordings:
    """Recordings, and the same recordings with what was lost of them."""

    truth: Sequences
    seen: Sequences

    @property
    def lost(self) -> Bools:
        """Which entries are missing from `seen`."""
        return np.isnan(self.seen.values)


@final
@dataclass(frozen=True, eq=False)
class House:
    """The true model, recordings to learn from, and others to ask about."""

    model: Model
    training: Sequences
    new: Recordings


def _stationary(transition: Floats) -> Floats:
    """The start that leaves a chain as it is."""
    values, vectors = np.linalg.eig(transition.T)
    found = np.real(vectors[:, np.argmax(np.real(values))])
    start: Floats = found / found.sum()
    return start


def house_model() -> Model:
    """The four chains as one hidden Markov model, a state for each choice of their states."""
    start: Floats = np.ones(1)
    transition: Floats = np.ones((1, 1))
    for chain in _CHAINS:
        start = np.kron(start, _stationary(np.array(chain))).astype(np.float64)
        transition = np.kron(transition, np.array(chain)).astype(np.float64)
    states = np.indices([len(chain) for chain in _CHAINS]).reshape(len(_CHAINS), -1)
    emissions = {}
    for name, (chain_number, rows) in _LEAVES.items():
        leaves = np.array(rows)
        if SCHEMA[SCHEMA.index(name)].kind is Kind.CONTINUOUS:
            leaves = leaves ** [1, 2]  # mean and variance
        emissions[name] = leaves[states[chain_number]]
    return Model.from_hmm(start, transition, emissions, schema=SCHEMA)


def _with_gaps(data: Sequences, rng: np.random.Generator) -> Sequences:
    """Each sensor drops out about once a day, for two to twelve hours."""
    values = data.values.copy()
    for start, hours in zip(data.offsets[:-1], data.lengths, strict=True):
        for sensor in range(data.num_variables):
            for _ in range(rng.poisson(hours / 24)):
                first = int(rng.integers(hours))
                last = min(int(hours), first + int(rng.integers(2, 13)))
                values[start + first : start + last, sensor] = np.nan
    return data.with_values(values)


def _drawn(model: Model, lengths: Ints, rng: np.random.Generator) -> Recordings:
    """Recordings as sensors write them, to a tenth."""
    drawn = model.sample(len(lengths), lengths, rng=rng)
    names = [f"r{number:03}" for number in range(len(lengths))]
    truth = drawn.with_values(drawn.values.round(1)).with_ids(names)
    return Recordings(truth, _with_gaps(truth, rng))


def house() -> House:
    """Recordings of 36 to 72 hours to learn from, and new ones of equal length."""
    model = house_model()
    rng = np.random.default_rng(_DATA_SEED)
    given = _drawn(model, rng.integers(36, 73, size=NUM_RECORDINGS), rng)
    new = _drawn(model, np.full(NUM_NEW, NEW_HOURS), np.random.default_rng(_NEW_SEED))
    return House(model, given.seen, new)


def _stormy(truth: Floats) -> Ints:
    """Hours of rain, cold and wind."""
    sky, celsius, wind = truth[:, 0], truth[:, 1], truth[:, 2]
    hours: Ints = np.flatnonzero((sky == 2) & (celsius < 14.0) & (wind > 24.0))
    return hours


@final
@dataclass(frozen=True, eq=False)
class Fault:
    """Recordings in each of which the thermometer is warm for one hour of a storm."""

    recordings: Sequences
    hours: Ints

    @property
    def plain(self) -> tuple[Sequences, int]:
        """The recording that shows its fault best, and the hour of it."""
        best = self.best_first[0]
        return self.recordings[best : best + 1], int(self.hours[best])

    @cached_property
    def best_first(self) -> list[int]:
        """Numbers of the recordings, that which shows its fault best first.

        That is in the middle third if possible, with sky, thermometer and wind seen in the hours
        around it, and most of them rainy.
        """

        def shows(number: int) -> tuple[bool, float, int]:
            at = int(self.hours[number])
            around = self.recordings[number][max(at - AROUND, 0) : at + AROUND + 1, :3]
            in_middle = NEW_HOURS < 3 * at < 2 * NEW_HOURS
            return in_middle, float(np.isfinite(around).mean()), int((around[:, 0] == 2).sum())

        return sorted(range(len(self.hours)), key=shows, reverse=True)


def with_faults(new: Recordings) -> Fault:
    """All new recordings that have such an hour, with the fault in the middle one of them."""
    stormy = [_stormy(values) for values in new.truth]
    numbers = np.array([number for number, hours in enumerate(stormy) if hours.size])
    at = np.array([int(stormy[number][len(stormy[number]) // 2]) for number in numbers])
    chosen = new.seen[numbers]
    values = chosen.values.copy()
    rows = chosen.offsets[:-1] + at
    values[rows, :3] = new.truth[numbers].values[rows, :3]
    values[rows, SCHEMA.index("celsius")] = WARM
    return Fault(chosen.with_values(values), at)

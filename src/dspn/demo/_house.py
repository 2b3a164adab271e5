"""The subject of the demo: a house with ten sensors, and recordings of it with gaps and a fault."""

from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.schema import Kind, Schema, Variable
from dspn.data.sequences import Sequences
from dspn.models.model import Model

AHEAD: Final = 12
"""Hours at the end of every new recording that are held back."""
WARM: Final = 24.0
"""What the faulty thermometer shows in a storm."""
AROUND: Final = 3
"""Hours that are shown before and after the fault."""
NEW_HOURS: Final = 60

# Four independent chains of three states, of weather, people, street and heating:
# P(next state | state).
_CHAINS: Final = (
    [[0.93, 0.06, 0.01], [0.08, 0.84, 0.08], [0.02, 0.10, 0.88]],
    [[0.88, 0.12, 0.00], [0.08, 0.82, 0.10], [0.04, 0.06, 0.90]],
    [[0.92, 0.08, 0.00], [0.07, 0.85, 0.08], [0.00, 0.12, 0.88]],
    [[0.90, 0.10, 0.00], [0.10, 0.80, 0.10], [0.00, 0.20, 0.80]],
)
# The chain that each sensor depends on, and its leaf in each state of that chain: probabilities of
# the categories, mean and standard deviation, or rate.
_SKY: Final = Variable.categorical("sky", ["clear", "clouds", "rain"])
_SENSORS: Final[dict[Variable, tuple[int, list[list[float]]]]] = {
    _SKY: (0, [[0.84, 0.14, 0.02], [0.20, 0.68, 0.12], [0.03, 0.19, 0.78]]),
    Variable.continuous("celsius"): (0, [[21.0, 3.0], [16.0, 3.0], [12.0, 2.5]]),
    Variable.continuous("wind"): (0, [[10.0, 3.0], [16.0, 4.5], [28.0, 7.0]]),
    Variable.categorical("lights", ["off", "on"]): (1, [[0.95, 0.05], [0.2, 0.8], [0.93, 0.07]]),
    Variable.count("motion"): (1, [[0.5], [7.0], [1.5]]),
    Variable.continuous("humidity"): (1, [[42.0, 3.0], [54.0, 6.0], [62.0, 6.0]]),
    Variable.count("cars"): (2, [[25.0], [45.0], [65.0]]),
    Variable.continuous("noise"): (2, [[48.0, 5.0], [56.0, 5.0], [64.0, 5.0]]),
    Variable.categorical("pump", ["off", "on"]): (3, [[0.9, 0.1], [0.3, 0.7], [0.05, 0.95]]),
    Variable.continuous("flow"): (3, [[26.0, 4.0], [35.0, 6.0], [49.0, 7.0]]),
}
SCHEMA: Final = Schema(tuple(_SENSORS))


@final
class House(NamedTuple):
    """The true model, recordings to learn from, and new ones, complete and with their gaps."""

    model: Model
    training: Sequences
    truth: Sequences
    new: Sequences


@final
class Fault(NamedTuple):
    """Recordings in each of which the thermometer is warm for one hour of a storm.

    `best_first` has their numbers by how well they show the fault: in the middle third if possible,
    with sky, thermometer and wind observed in the hours around it, and most of these rainy.
    """

    recordings: Sequences
    hours: Ints
    best_first: list[int]

    @property
    def clearest(self) -> tuple[Sequences, int]:
        """The recording that shows its fault best, and the hour of the fault."""
        best = self.best_first[0]
        return self.recordings[best : best + 1], int(self.hours[best])


def house_model() -> Model:
    """The four chains as one hidden Markov model, a state for each choice of their states."""
    start: Floats = np.ones(1)
    transition: Floats = np.ones((1, 1))
    for chain in map(np.array, _CHAINS):
        values, vectors = np.linalg.eig(chain.T)
        stationary = np.real(vectors[:, np.argmax(np.real(values))])
        start = np.kron(start, stationary / stationary.sum()).astype(np.float64)
        transition = np.kron(transition, chain).astype(np.float64)
    states = np.indices([len(chain) for chain in _CHAINS]).reshape(len(_CHAINS), -1)
    emissions = {}
    for variable, (number, rows) in _SENSORS.items():
        leaves = np.array(rows)
        if variable.kind is Kind.CONTINUOUS:
            leaves = leaves ** [1, 2]  # mean and variance
        emissions[variable.name] = leaves[states[number]]
    return Model.from_hmm(start, transition, emissions, schema=SCHEMA)


def _recorded(model: Model, lengths: Ints, rng: np.random.Generator) -> tuple[Sequences, Sequences]:
    """Recordings as sensors write them, to a tenth; complete, and with gaps.

    Each sensor drops out about once a day, for two to twelve hours.
    """
    drawn = model.sample(len(lengths), lengths, rng=rng)
    names = [f"r{number:03}" for number in range(len(lengths))]
    truth = drawn.with_values(drawn.values.round(1)).with_ids(names)
    values = truth.values.copy()
    for start, hours in zip(truth.offsets[:-1], truth.lengths, strict=True):
        for sensor in range(len(SCHEMA)):
            for _ in range(rng.poisson(hours / 24)):
                first = int(rng.integers(hours))
                last = min(int(hours), first + int(rng.integers(2, 13)))
                values[start + first : start + last, sensor] = np.nan
    return truth, truth.with_values(values)


def house() -> House:
    """40 recordings of 36 to 72 hours to learn from, and 60 new ones of equal length."""
    model = house_model()
    rng = np.random.default_rng(1)
    _, training = _recorded(model, rng.integers(36, 73, size=40), rng)
    lengths = np.full(60, NEW_HOURS)
    return House(model, training, *_recorded(model, lengths, np.random.default_rng(2)))


def with_faults(house: House) -> Fault:
    """All new recordings with hours of rain, cold and wind; the fault is in the middle of these."""
    sky, celsius, wind = house.truth.values[:, :3].T.reshape(3, -1, NEW_HOURS)
    stormy = [np.flatnonzero(row) for row in (sky == 2) & (celsius < 14.0) & (wind > 24.0)]
    numbers = np.array([number for number, hours in enumerate(stormy) if hours.size])
    hours = np.array([stormy[number][len(stormy[number]) // 2] for number in numbers])
    chosen = house.new[numbers]
    values = chosen.values.copy()
    rows = chosen.offsets[:-1] + hours
    values[rows, :3] = house.truth[numbers].values[rows, :3]
    values[rows, SCHEMA.index("celsius")] = WARM
    recordings = chosen.with_values(values)

    def clarity(number: int) -> tuple[bool, float, int]:
        hour = int(hours[number])
        around = recordings[number][max(hour - AROUND, 0) : hour + AROUND + 1, :3]
        in_middle = NEW_HOURS < 3 * hour < 2 * NEW_HOURS
        return in_middle, float(np.isfinite(around).mean()), int((around[:, 0] == 2).sum())

    return Fault(recordings, hours, sorted(range(len(hours)), key=clarity, reverse=True))

"""Small models of every kind with partly missing sequences."""

import numpy as np

from dspn.data import Schema, Sequences, Variable
from dspn.models import Model
from dspn.structure import DynamicNetwork, Mixture, grouped_network, initial_network

MIXED = Schema(
    (
        Variable.categorical("sky", ["clear", "rain", "snow"]),
        Variable.continuous("celsius"),
        Variable.count("visitors"),
        Variable.binary("open"),
    )
)


def with_gaps(data: Sequences, rng: np.random.Generator, share: float = 0.3) -> Sequences:
    hidden = rng.random(data.values.shape) < share
    return data.with_values(np.where(hidden, np.nan, data.values))


def mixed_networks(seed: int = 0) -> list[DynamicNetwork]:
    rng = np.random.default_rng(seed)
    return [
        initial_network(MIXED, 3, rng=rng),
        grouped_network(MIXED, [[0, 1], [2, 3]], [2, 2], num_products=2, rng=rng),
    ]


def mixed_model(seed: int = 0) -> Model:
    return Model(Mixture(tuple(mixed_networks(seed)), np.array([0.6, 0.4])))


def mixed_data(model: Model, count: int = 8, seed: int = 1) -> Sequences:
    """Lengths from 1 on; the last sequence has nothing observed."""
    rng = np.random.default_rng(seed)
    lengths = [1, *rng.integers(2, 12, count - 1).tolist()]
    data = with_gaps(model.sample(count, lengths, rng=rng), rng)
    values = data.values.copy()
    values[data.offsets[-2] :] = np.nan
    return data.with_values(values).with_ids([f"day {number}" for number in range(count)])


def never_back() -> tuple[Model, Sequences]:
    """Two states that never meet, and a sequence that would need both."""
    schema = Schema((Variable.binary("x"), Variable.continuous("y")))
    model = Model.from_hmm(
        [0.5, 0.5],
        [[1.0, 0.0], [0.0, 1.0]],
        {"x": [[1.0, 0.0], [0.0, 1.0]], "y": [[0.0, 1.0], [0.0, 1.0]]},
        schema=schema,
    )
    arrays = [[[0, 0.5], [1, None], [0, 0.0]], [[1, 0.1], [None, None]]]
    return model, Sequences.from_arrays(arrays, schema=schema)

import numpy as np
import pytest

from dspn import Mixture, Model, Schema, Variable

SKY = Variable.categorical("sky", ["clear", "rain", "fog"])
CELSIUS = Variable.continuous("celsius")
VISITORS = Variable.count("visitors")


def hmm(schema: Schema, num_states: int, seed: int) -> Model:
    rng = np.random.default_rng(seed)
    tables = {
        "categorical": lambda v: rng.dirichlet(np.ones(v.num_categories), num_states),
        "continuous": lambda v: np.column_stack(
            [rng.normal(15.0, 6.0, num_states), rng.uniform(1.0, 6.0, num_states)]
        ),
        "count": lambda v: rng.uniform(1.0, 12.0, (num_states, 1)),
    }
    return Model.from_hmm(
        rng.dirichlet(np.ones(num_states)),
        rng.dirichlet(np.ones(num_states), num_states),
        {v.name: tables[v.kind.value](v) for v in schema},
        schema=schema,
    )


def _mixture() -> Model:
    schema = Schema((SKY, CELSIUS, VISITORS))
    parts = tuple(hmm(schema, size, size).network for size in (2, 3, 2))
    return Model(Mixture(parts, np.array([0.3, 0.6, 0.1])))


MODELS = {
    "hmm": hmm(Schema((SKY, CELSIUS, VISITORS)), 3, 0),
    "mixture": _mixture(),
    "categorical": hmm(Schema((SKY, Variable.binary("wet"))), 2, 1),
    "continuous": hmm(Schema((CELSIUS,)), 2, 2),
    "count": hmm(Schema((VISITORS,)), 1, 3),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    found: Model = MODELS[request.param]
    return found


@pytest.fixture
def mixed() -> Model:
    """An HMM over a category, a number and a count."""
    return MODELS["hmm"]


@pytest.fixture
def mixture() -> Model:
    """Three components of weights 0.3, 0.6 and 0.1."""
    return MODELS["mixture"]

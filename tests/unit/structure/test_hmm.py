"""`from_hmm` against the sum over all state paths."""

import math
from itertools import pairwise, product

import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.leaves import family_for
from dspn.structure import from_hmm
from oracles import best_completion, density, interface_posteriors, likelihood
from strategies import schema_of

SCHEMA = schema_of(("ternary", "continuous", "count"))


def random_hmm(seed: int, k: int = 3):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    start, transition = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), size=k)
    emissions = {
        "x0": rng.dirichlet(np.ones(3), size=k),
        "x1": np.stack([rng.normal(size=k), rng.uniform(0.5, 2.0, k)], axis=1),
        "x2": rng.uniform(0.2, 4.0, (k, 1)),
    }
    return start, transition, emissions


def path_probability(path, hmm, values) -> float:  # type: ignore[no-untyped-def]
    start, transition, emissions = hmm
    total = start[path[0]] * math.prod(transition[a, b] for a, b in pairwise(path))
    for t, state in enumerate(path):
        for v, name in enumerate(SCHEMA.names):
            total *= density(
                family_for(SCHEMA[v]), emissions[name][state].tolist(), float(values[t, v])
            )
    return float(total)


@pytest.mark.parametrize("num_slices", [1, 2, 4])
def test_hmm_has_the_likelihood_posteriors_and_best_path_of_its_states(num_slices: int) -> None:
    hmm = random_hmm(num_slices)
    network = from_hmm(*hmm, schema=SCHEMA)
    values = np.array([[0, 0.3, 2], [2, -1.0, 0], [np.nan, 0.2, 1], [1, np.nan, np.nan]])[
        :num_slices
    ]
    paths = {
        path: path_probability(path, hmm, values) for path in product(range(3), repeat=num_slices)
    }
    total = math.fsum(paths.values())
    np.testing.assert_allclose(likelihood(network, values), total, rtol=1e-12)
    expected = [
        [math.fsum(p for path, p in paths.items() if path[t] == i) / total for i in range(3)]
        for t in range(num_slices)
    ]
    np.testing.assert_allclose(interface_posteriors(network, values), expected, rtol=1e-12)
    if num_slices < 3:
        np.testing.assert_allclose(
            best_completion(network, values), max(paths.values()), rtol=1e-12
        )


def test_stationary_hmm_is_the_same_model_with_either_root() -> None:
    _, transition, emissions = random_hmm(8)
    values, vectors = np.linalg.eig(transition.T)
    start = np.real(vectors[:, np.argmax(np.real(values))])
    start /= start.sum()
    first = from_hmm(start, transition, emissions, schema=SCHEMA, root="first")
    last = from_hmm(start, transition, emissions, schema=SCHEMA, root="last")
    x = np.array([[0, 0.3, 2], [2, -1.0, 0], [np.nan, 0.2, 1], [1, np.nan, np.nan]])
    np.testing.assert_allclose(likelihood(last, x), likelihood(first, x), rtol=1e-12)
    np.testing.assert_allclose(
        interface_posteriors(last, x), interface_posteriors(first, x), rtol=1e-9
    )


def test_hmm_that_is_not_stationary_is_refused_at_the_last_root() -> None:
    with pytest.raises(StructureError, match=r"`root='last'`.*stationary.*`root='first'`"):
        from_hmm(*random_hmm(1), schema=SCHEMA, root="last")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, a, e: (s[None], a, e), "`start` must be a vector"),
        (lambda s, a, e: (np.zeros(0), a, e), "`start` must be a vector"),
        (lambda s, a, e: (s, a[:2], e), r"`transition` must be 3 x 3"),
        (lambda s, a, e: (s, a, {"x0": e["x0"]}), "`emissions` must have exactly the variables"),
        (
            lambda s, a, e: (s, a, {**e, "x9": e["x0"]}),
            "`emissions` must have exactly the variables",
        ),
        (lambda s, a, e: (s, a, {**e, "x0": e["x0"][:2]}), r"`emissions\['x0'\]`.*3 states"),
        (lambda s, a, e: (s, a, {**e, "x0": e["x0"][:, :2]}), "'x0' needs 3 parameters"),
        (lambda s, a, e: (s, a * 1.1, e), r"`transition`.*row 0 sums to 1\.1; divide"),
        (lambda s, a, e: (s * 0.9, a, e), r"`start`.* it sums to 0\.9; divide"),
        (lambda s, a, e: (s, a, {**e, "x0": e["x0"] * 2}), "'x0'.*not allowed"),
        (lambda s, a, e: (s, a, {**e, "x1": -(e["x1"] ** 2)}), "'x1'.*not allowed"),
    ],
)
def test_hmm_with_wrong_numbers_is_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(StructureError, match=message):
        from_hmm(*change(*random_hmm(2)), schema=SCHEMA)

"""Told families: the contract without context, and regressions against their closed forms."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import gammaln, log_softmax

from dspn.data.schema import Schema, Variable
from dspn.errors import DataError, StructureError
from dspn.leaves import Linear, LogLinear, Softmax, Source, Table, Told, ToldPrior, with_context
from dspn.leaves.contract import (
    CLAUSES,
    Case,
    families_are_values,
    parameters_are_checked_and_made,
)

NUMBER, CATEGORY = Source("value", 0, 1, 0), Source("value", 0, 1, 3)
PRIORS = (ToldPrior(0.0), ToldPrior(2.0))
RNG = np.random.default_rng(3)
CASES = {
    "linear": Case(
        Told(Linear(), (NUMBER,)),
        np.array([[0.0, 1.0, 0.0, 0.5, 1.0], [2.0, 0.5, 0.1, 0.2, 0.3]]),
        np.linspace(-12, 14, 20_001),
        priors=PRIORS,
    ),
    "table": Case(
        Told(Table(3), (CATEGORY,)),
        RNG.dirichlet(np.ones(3), size=(2, 4)).reshape(2, -1),
        np.arange(3.0),
        (np.inf, -np.inf, 3.0, 0.5),
        priors=PRIORS,
    ),
    "softmax": Case(
        Told(Softmax(3), (NUMBER,)),
        RNG.normal(size=(2, 9)),
        np.arange(3.0),
        (np.inf, 3.0, 0.5),
        priors=(ToldPrior(2.0),),
    ),
    "log-linear": Case(
        Told(LogLinear(), (NUMBER,)),
        np.array([[0.1, 0.2, 0.3], [1.0, 0.2, -0.3]]),
        np.arange(80.0),
        (np.inf, -1.0, 0.5),
        priors=(ToldPrior(2.0),),
    ),
}
# Any finite coefficient is allowed, and scales of features change the last digit of densities;
# below both are checked in other words.
OTHERS = tuple(
    clause
    for clause in CLAUSES
    if clause not in (parameters_are_checked_and_made, families_are_values)
)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("clause", OTHERS, ids=lambda clause: clause.__name__)
def test_told_families_keep_the_contract(clause: Callable[[Case], None], case: Case) -> None:
    clause(case)


def told_data(
    family: Told, seed: int, number: int = 80, *, gaps: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Values with contexts, some of them missing, and counts of three leaves."""
    rng = np.random.default_rng(seed)
    context = np.stack(
        [
            rng.integers(own.categories, size=number).astype(float)
            if own.categories > 0
            else rng.normal(5.0, 3.0, size=number)
            for own in family.sources
        ],
        axis=1,
    )
    if gaps:
        context[rng.random(number) < 0.2, -1] = np.nan
    y = family.plain.random(1, rng)
    values = family.plain.sample(np.repeat(y, number, axis=0), rng)
    values[::7] = np.nan
    return np.column_stack([values, context]), rng.gamma(0.5, size=(3, number))


MIXED = (Source("input", 0, 0, 3), Source("input", 1, 0, 0), Source("value", 0, 1, 0))
FAMILIES = {
    "linear": Told(Linear(), MIXED),
    "log-linear": Told(LogLinear(), MIXED),
    "softmax": Told(Softmax(3), MIXED),
    "table": Told(Table(3), (Source("input", 0, 0, 2), CATEGORY)),
    "linear of inputs": Told(Linear(), MIXED[:2]),
    "student t": Told(Linear(df=4.0), MIXED),
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_statistics_in_context_give_gradients_and_climb(family: Told) -> None:
    values, counts = told_data(family, 5, gaps=family.is_told_values)
    scaled = family.scaled_to(values)
    rows = scaled.random(3, np.random.default_rng(1), values)
    assert scaled.violations(rows) == []
    assert_allclose(family.log_prob(rows, values), scaled.log_prob(rows, values), rtol=1e-11)
    assert type(scaled)(**{k: v for k, v in scaled.to_json().items() if k != "name"}) == scaled
    observed = ~np.isnan(values[:, 0])

    def expected(free: np.ndarray) -> float:
        logs = scaled.log_prob(scaled.from_free(free), values)
        return float((counts.T * logs)[observed].sum())

    free = scaled.free(rows)
    assert_allclose(scaled.from_free(free), rows, rtol=1e-10, atol=1e-12)
    statistics = scaled.expected_statistics(rows, values, counts)
    slope = scaled.free_gradient(rows, statistics)
    for place in map(tuple, np.argwhere(np.isfinite(free))):
        step = np.zeros_like(free)
        step[place] = 1e-5
        difference = (expected(free + step) - expected(free - step)) / 2e-5
        assert_allclose(slope[place], difference, rtol=1e-5, atol=1e-6)
    # Without a prior, logistic regression of separable categories has no maximum.
    priors = (None, ToldPrior(3.0)) if family.is_stepped else (None, *PRIORS)
    for prior in priors:
        best = rows
        top = -np.inf
        for _ in range(1500):
            own = scaled.expected_statistics(best, values, counts)
            old, best = best, scaled.maximise(own, prior)
            before, top = top, expected(scaled.free(best)) + scaled.log_prior(best, prior)
            assert top >= before - 1e-10 * (1 + abs(top))
            if np.allclose(old, best, rtol=1e-13, atol=1e-15):
                break
        own = scaled.expected_statistics(best, values, counts)
        total = scaled.free_gradient(best, own) + scaled.free_log_prior(best, prior)[1]
        assert_allclose(total, 0.0, atol=1e-5)


def test_linear_leaves_are_least_squares_in_any_unit() -> None:
    rng = np.random.default_rng(0)
    context = np.column_stack([rng.normal(1e3, 5.0, 200), rng.normal(0, 1e-3, 200)])
    y = 7e4 + 3.0 * context[:, 0] - 2e3 * context[:, 1] + rng.normal(0, 2.0, 200)
    family = Told(Linear(), (Source("input", 0, 0, 0), Source("input", 1, 0, 0)))
    values = np.column_stack([y, context])
    scaled = family.scaled_to(values)
    weights = rng.gamma(1.0, size=(2, 200))
    found = scaled.maximise(
        scaled.expected_statistics(np.zeros((2, 4)), values, weights), PRIORS[0]
    )
    design = np.column_stack([np.ones(200), context])
    for row, own in zip(found, weights, strict=True):
        root = np.sqrt(own)
        solution = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)[0]
        assert_allclose(row[:3], solution, rtol=1e-6)
        left = y - design @ solution
        assert_allclose(row[3], (own * left * left).sum() / own.sum(), rtol=1e-8)


def test_collinear_inputs_share_what_they_explain() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=300)
    values = np.column_stack([2.0 * u + 0.1 * rng.normal(size=300), u, u, np.ones(300)])
    family = Told(Linear(), tuple(Source("input", i, 0, 0) for i in range(3))).scaled_to(values)
    for prior in (None, PRIORS[0]):
        statistics = family.expected_statistics(np.zeros((1, 5)), values, np.ones((1, 300)))
        row = family.maximise(statistics, prior)[0]
        assert_allclose(row[1:3], 1.0, rtol=0.02)
        assert np.isfinite(row).all() and 0.005 < row[4] < 0.02


@pytest.mark.parametrize("kind", ["log-linear", "softmax"])
def test_steps_end_at_the_maximum_that_another_method_finds(kind: str) -> None:
    rng = np.random.default_rng(2)
    u = rng.normal(size=120)
    design = np.column_stack([np.ones(120), u])
    if kind == "softmax":
        family = Told(Softmax(3), (Source("input", 0, 0, 0),))
        y = rng.integers(3, size=120).astype(float)
        y[u > 0.5] = 2.0
    else:
        family = Told(LogLinear(), (Source("input", 0, 0, 0),))
        y = rng.poisson(np.exp(0.5 + 0.8 * u)).astype(float)
    values = np.column_stack([y, u])
    family = family.scaled_to(values)
    rows = family.random(1, rng, values)
    for _ in range(1500):
        statistics = family.expected_statistics(rows, values, np.ones((1, 120)))
        rows = family.maximise(statistics, PRIORS[0])

    def loss(b: np.ndarray) -> float:
        if kind == "softmax":
            logs = log_softmax(design @ b.reshape(2, 3), axis=1)
            return -float(logs[np.arange(120), y.astype(int)].sum())
        eta = design @ b
        return -float((y * eta - np.exp(eta) - gammaln(y + 1)).sum())

    size = 6 if kind == "softmax" else 2
    best = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-9})
    assert_allclose(family.log_prob(rows, values).sum(), -best.fun, rtol=1e-9)


def test_rare_contexts_shrink_to_the_pooled_table() -> None:
    family = Told(Table(2), (Source("input", 0, 0, 3),))
    values = np.array([[0, 0]] * 60 + [[1, 0]] * 20 + [[1, 1]], dtype=float)
    family = family.scaled_to(values)
    row = family.maximise(family.statistics(values).sum(axis=0, keepdims=True))[0]
    tables = row.reshape(3, 2)
    assert_allclose(tables[0], [0.75, 0.25], atol=0.01)
    assert 0.5 < tables[1, 1] < 0.8  # one observation moves it
    assert_allclose(tables[2], (0.1 + np.array([60.5, 21.5]) / 82) / 1.2, rtol=1e-12)


def test_wrong_families_are_refused() -> None:
    with pytest.raises(StructureError, match="a table is told categories only"):
        Told(Table(2), (NUMBER,))
    with pytest.raises(StructureError, match="inputs first"):
        Told(Linear(), (NUMBER, Source("input", 0, 0, 0)))
    schema = Schema((Variable.continuous("a"),))
    for wrong in ({"lags": -1}, {"lags": 1.5}, {"lags": 1, "lags_of": "b"}, {"leaf_inputs": True}):
        with pytest.raises(DataError):
            with_context(schema, **wrong)  # type: ignore[arg-type]
    broken = np.full((2, 5), np.nan)
    broken[1] = [0, 1, 0, 0, -1]
    found = Told(Linear(), (NUMBER,)).violations(broken)
    assert [text.split(":")[0] for text in found] == ["row 0", "row 1"]
    assert_array_equal(with_context(schema), schema)

"""The independence test: its level, its power, and columns that say nothing."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, chi2_contingency

from dspn.errors import DataError
from dspn.learning.dependence import Column, components, independent_subsets, p_values

Floats = NDArray[np.float64]


def drawn(kind: str, num_rows: int, rng: np.random.Generator) -> Column:
    if kind == "binary":
        return Column.of_codes(rng.integers(2, size=num_rows) * 1.0, 2)
    if kind == "skewed":
        shares = 0.5 ** np.arange(6)
        return Column.of_codes(rng.choice(6, num_rows, p=shares / shares.sum()) * 1.0, 6)
    if kind == "missing":
        codes = rng.integers(3, size=num_rows) * 1.0
        codes[rng.random(num_rows) < 0.4] = np.nan
        return Column.of_codes(codes, 3)
    if kind == "continuous":
        return Column.of_numbers(rng.normal(size=num_rows))
    if kind == "count":
        return Column.of_numbers(rng.poisson(0.7, size=num_rows) * 1.0)
    assert kind == "soft"
    return Column.of_posterior(rng.dirichlet(np.full(6, 0.3), num_rows))


def flow_weights(kind: str, num_rows: int, rng: np.random.Generator) -> Floats | None:
    return {
        "equal": None,
        "uneven": rng.random(num_rows),
        "peaked": rng.beta(0.2, 1.0, num_rows),
    }[kind]


@pytest.mark.parametrize("weights", ["equal", "peaked"])
@pytest.mark.parametrize("kind", ["binary", "missing", "continuous", "count", "soft"])
def test_independent_pairs_are_called_dependent_at_the_level_asked_for(
    kind: str, weights: str
) -> None:
    rng = np.random.default_rng([1, len(kind), len(weights)])
    found = []
    for _ in range(100):
        columns = [drawn(kind, 600, rng) for _ in range(12)]
        values = p_values(columns, flow_weights(weights, 600, rng))
        found.append(values[np.triu_indices(12, 1)])
    pairs = np.concatenate(found)  # 6,600 of them
    # Three standard errors of a share of 0.01 are 0.0037.
    assert 0.003 < np.mean(pairs < 0.01) < 0.014
    assert 0.030 < np.mean(pairs < 0.05) < 0.060


@pytest.mark.parametrize("weights", ["equal", "peaked"])
def test_sparse_tables_do_not_raise_the_error_rate(weights: str) -> None:
    rng = np.random.default_rng([2, len(weights)])
    rates = []
    for _ in range(400):
        wide = Column.of_codes(rng.integers(64, size=200) * 1.0, 64)
        columns = [wide, drawn("skewed", 200, rng), drawn("binary", 200, rng)]
        values = p_values(columns, flow_weights(weights, 200, rng))
        rates.append(values[np.triu_indices(3, 1)] < 0.01)
    assert np.mean(rates) < 0.016


def planted(rng: np.random.Generator, num_rows: int = 1500) -> list[Column]:
    """Columns in the independent subsets {0, 2, 4}, {1, 3} and {5}, of all kinds."""

    def noisy(codes: NDArray[np.int64], share: float) -> NDArray[np.int64]:
        return np.where(rng.random(num_rows) < share, rng.integers(2, size=num_rows), codes)

    a, b = rng.integers(2, size=num_rows), rng.integers(2, size=num_rows)
    gaps = np.where(rng.random(num_rows) < 0.2, np.nan, noisy(a, 0.5))
    posterior = np.stack([0.2 + 0.6 * b, 0.8 - 0.6 * b], axis=1)
    return [
        Column.of_codes(a * 1.0, 2),
        Column.of_posterior(posterior),
        Column.of_codes(gaps, 2),
        Column.of_numbers(rng.normal(size=num_rows) + noisy(b, 0.2)),
        Column.of_numbers(rng.poisson(1.0 + noisy(a, 0.3)) * 1.0),
        Column.of_codes(rng.integers(3, size=num_rows) * 1.0, 3),
    ]


@pytest.mark.parametrize("weights", ["equal", "uneven"])
def test_planted_subsets_are_found_but_for_the_stated_errors(weights: str) -> None:
    rng = np.random.default_rng([3, len(weights)])
    alpha, trials = 0.005, 200
    hits = 0
    for _ in range(trials):
        columns = planted(rng)
        found = independent_subsets(columns, flow_weights(weights, 1500, rng), alpha)
        hits += found == [[0, 2, 4], [1, 3], [5]]
    # 11 pairs cross from one subset to another: about 1 - 0.995^11 = 5 % of trials err.
    assert hits >= 0.9 * trials


def test_hard_columns_have_the_g_test_with_williams_factor() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(3, size=300), rng.integers(4, size=300)
    b = np.where(rng.random(300) < 0.1, a, b)
    counts = np.zeros((3, 4))
    np.add.at(counts, (a, b), 1)
    test = chi2_contingency(counts, correction=False, lambda_="log-likelihood")
    rows, cols = (300 / counts.sum(axis=axis) for axis in (1, 0))
    williams = 1 + (rows.sum() - 1) * (cols.sum() - 1) / (6 * 300 * test.dof)
    expected = chi2.sf(test.statistic / williams, test.dof)
    found = p_values([Column.of_codes(a * 1.0, 3), Column.of_codes(b * 1.0, 4)])
    np.testing.assert_allclose(found, [[1, expected], [expected, 1]], rtol=1e-9)


def test_only_proportions_of_weights_matter_and_rows_without_weight_are_no_rows() -> None:
    rng = np.random.default_rng(5)
    codes = rng.integers(2, size=(3, 200)) * 1.0
    weights = rng.random(200) * (rng.random(200) < 0.5)

    def columns(rows: NDArray[np.bool_]) -> list[Column]:
        return [Column.of_codes(own[rows], 2) for own in codes]

    every, weighted = np.ones(200, dtype=np.bool_), weights > 0
    expected = p_values(columns(every), weights)
    np.testing.assert_allclose(p_values(columns(every), 1e200 * weights), expected, rtol=1e-9)
    np.testing.assert_allclose(p_values(columns(every), 1e-200 * weights), expected, rtol=1e-9)
    np.testing.assert_allclose(p_values(columns(weighted), weights[weighted]), expected, rtol=1e-9)
    tiny = np.where(weighted, weights, 1e-250)
    np.testing.assert_allclose(p_values(columns(every), tiny), expected, rtol=1e-9)


def test_dependence_through_a_vague_posterior_is_found() -> None:
    rng = np.random.default_rng(6)
    hidden = rng.integers(3, size=800)
    posterior = np.full((800, 3), 0.3)
    posterior[np.arange(800), hidden] = 0.4
    other = np.where(rng.random(800) < 0.3, rng.integers(3, size=800), hidden)
    soft = Column.of_posterior(posterior)
    assert p_values([soft, Column.of_codes(other * 1.0, 3)])[0, 1] < 1e-6
    assert p_values([soft, drawn("binary", 800, rng)])[0, 1] > 0.01


def degenerate(num_rows: int) -> list[Column]:
    rng = np.random.default_rng(7)
    nothing = np.full(num_rows, np.nan)
    posterior = np.full((num_rows, 4), np.nan)
    return [
        Column.of_codes(np.zeros(num_rows), 1),
        Column.of_codes(np.ones(num_rows), 3),
        Column.of_codes(nothing, 2),
        Column.of_numbers(nothing),
        Column.of_numbers(np.full(num_rows, 3.5)),
        Column.of_posterior(np.full((num_rows, 4), 0.25)),
        Column.of_posterior(posterior),
        Column.of_posterior(np.zeros((num_rows, 2))),
        Column.of_codes(rng.integers(2, size=num_rows) * 1.0, 2),
    ]


@pytest.mark.parametrize("num_rows", [0, 1, 2, 500])
@pytest.mark.parametrize("weights", ["equal", "uneven", "none"])
def test_columns_that_say_nothing_are_independent_of_everything(
    num_rows: int, weights: str
) -> None:
    columns = degenerate(num_rows)
    rng = np.random.default_rng(8)
    own = np.zeros(num_rows) if weights == "none" else flow_weights(weights, num_rows, rng)
    np.testing.assert_array_equal(p_values(columns, own), np.ones((9, 9)))
    assert independent_subsets(columns, own) == [[i] for i in range(9)]


def test_columns_never_observed_together_are_independent() -> None:
    codes = np.tile([0.0, 1.0], 100)
    early, late = codes.copy(), codes.copy()
    early[100:], late[:100] = np.nan, np.nan
    assert p_values([Column.of_codes(early, 2), Column.of_codes(late, 2)])[0, 1] == 1.0


def test_equal_columns_are_dependent_and_one_column_is_a_subset() -> None:
    column = drawn("binary", 100, np.random.default_rng(9))
    assert independent_subsets([column, column]) == [[0, 1]]
    assert independent_subsets([column]) == [[0]]
    assert independent_subsets([]) == []
    assert components(np.zeros((0, 0), dtype=np.bool_)) == []


def test_numbers_are_cut_at_weighted_quantiles() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, np.nan])
    assert Column.of_numbers(values).membership.tolist() == np.eye(5, 6).tolist()
    weights = np.array([0.0, 1.0, 1.0, 0.0, 0.0, 9.0])
    # Half of the observed weight is reached at 2: what is at most 2 is below the only cut.
    cut = Column.of_numbers(values, weights, num_bins=2).membership
    assert cut.tolist() == [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Column.of_codes(np.array([0.0, 2.0]), 2), "`codes` must lie between 0 and 1"),
        (lambda: Column.of_codes(np.zeros((2, 2)), 2), "`codes` must be a vector"),
        (lambda: Column.of_posterior(np.zeros(3)), "`posterior` must be a table"),
        (lambda: Column.of_posterior(np.array([[-1.0, 2.0]])), "`posterior` must be finite"),
        (lambda: p_values(degenerate(3), np.ones(2)), "each of the 3 rows, but has 2"),
        (lambda: p_values(degenerate(2), np.array([1.0, -1.0])), "not negative"),
        (lambda: p_values(degenerate(2), np.array([1.0, np.nan])), "finite"),
        (lambda: p_values([*degenerate(2), *degenerate(3)]), "column 9 has 3"),
        (lambda: independent_subsets(degenerate(2), alpha=1.0), "`alpha`"),
        (lambda: independent_subsets(degenerate(2), alpha="0.1"), "`alpha`"),  # type: ignore[arg-type]
        (lambda: Column.of_numbers(np.ones(3), num_bins=0), "`num_bins`"),
    ],
)
def test_bad_arguments_are_refused_by_name(call: object, match: str) -> None:
    with pytest.raises(DataError, match=match):
        call()  # type: ignore[operator]

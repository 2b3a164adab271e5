"""Scores: the likelihood, and that of class variables given all others."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from dspn import Model, Schema, Variable
from dspn.engine import compile_program
from dspn.errors import DataError
from dspn.learning import LIKELIHOOD, ConditionalLikelihood, Likelihood
from dspn.learning.scores import Score
from oracles import completions, likelihood, log_likelihood
from strategies import as_sequences, random_case, schema_of


@pytest.mark.parametrize("seed", range(10))
def test_likelihood_is_the_log_likelihood_of_each_sequence(seed: int) -> None:
    network, arrays, data = random_case(seed)
    program = compile_program(network)
    expected = [log_likelihood(network, values) for values in arrays]
    np.testing.assert_allclose(
        Likelihood().sequence_scores(program, data), expected, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        LIKELIHOOD.mean(program, data), np.mean(expected), rtol=1e-9, atol=1e-12
    )
    weights = np.arange(1.0, len(data) + 1)
    np.testing.assert_allclose(
        LIKELIHOOD.mean(program, data, weights),
        np.average(expected, weights=weights),
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("seed", range(30))
def test_conditional_likelihood_is_the_share_of_all_classes(seed: int) -> None:
    kinds = ("binary", "ternary", "continuous")
    network, arrays, _ = random_case(seed, kinds=kinds)
    arrays = [values[:2] for values in arrays]
    data = as_sequences(network.schema, arrays)
    score = ConditionalLikelihood(("x1",))
    expected = []
    for values in arrays:
        hidden = values.copy()
        hidden[:, 1] = np.nan
        every = [likelihood(network, filled) for filled in completions(network, hidden)]
        expected.append(math.log(likelihood(network, values) / math.fsum(every)))
    found = score.sequence_scores(compile_program(network), data)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (found <= 1e-12).all()


def test_conditional_likelihood_without_observed_classes_is_zero() -> None:
    network, arrays, _ = random_case(1, kinds=("binary", "ternary"))
    hidden = [np.where([True, False], values, np.nan) for values in arrays]
    data = as_sequences(network.schema, hidden)
    found = ConditionalLikelihood(("x1",)).sequence_scores(compile_program(network), data)
    np.testing.assert_allclose(found, 0.0, atol=1e-12)


def test_impossible_sequence_scores_minus_infinity_whatever_makes_it_so() -> None:
    schema = Schema((Variable.binary("class"), Variable.binary("x")))
    model = Model.from_hmm(
        [1.0], [[1.0]], {"class": [[1.0, 0.0]], "x": [[0.5, 0.5]]}, schema=schema
    )
    never = Model.from_hmm(
        [1.0], [[1.0]], {"class": [[0.5, 0.5]], "x": [[1.0, 0.0]]}, schema=schema
    )
    data = as_sequences(schema, [np.array([[1.0, 1.0]]), np.array([[0.0, 0.0]])])
    score = ConditionalLikelihood(("class",))
    expected = [-np.inf, 0.0]
    np.testing.assert_allclose(score.sequence_scores(model.program, data), expected, atol=1e-12)
    expected = [-np.inf, math.log(0.5)]
    np.testing.assert_allclose(score.sequence_scores(never.program, data), expected, rtol=1e-12)
    assert score.mean(model.program, data) == -np.inf


def test_evidence_is_made_once_for_the_same_data() -> None:
    _, _, data = random_case(1, kinds=("binary", "ternary"))
    score = ConditionalLikelihood(("x1",))
    evidence = score.evidence(data)
    assert np.isnan(evidence.values[:, 1]).all()
    np.testing.assert_array_equal(evidence.values[:, 0], data.values[:, 0])
    assert ConditionalLikelihood(("x1",)).evidence(data) is evidence
    assert ConditionalLikelihood(("x0",)).evidence(data) is not evidence


def test_class_variables_are_checked() -> None:
    schema = schema_of(("binary", "continuous", "count"))
    ConditionalLikelihood(("x0",)).check(schema)
    Likelihood().check(schema)
    for name, kind in (("x1", "continuous"), ("x2", "count")):
        with pytest.raises(DataError, match=f"must be categorical, but '{name}' is {kind}"):
            ConditionalLikelihood((name,)).check(schema)
    with pytest.raises(DataError, match=r"variables of the data \(x0, x1, x2\), but 'y' is none"):
        ConditionalLikelihood(("y",)).check(schema)
    with pytest.raises(DataError, match="must leave at least one variable to condition on"):
        ConditionalLikelihood(("x0",)).check(schema_of(("binary",)))


@pytest.mark.parametrize("bad", ["x0", (), ("x0", "x0"), 3])
def test_class_variables_that_are_no_list_of_names_are_refused(bad: object) -> None:
    with pytest.raises(DataError, match="`class_variables` must"):
        ConditionalLikelihood(bad)  # type: ignore[arg-type]


def test_scores_are_values() -> None:
    assert ConditionalLikelihood(["x0"]) == ConditionalLikelihood(("x0",))  # type: ignore[arg-type]
    assert len({Likelihood(), LIKELIHOOD, ConditionalLikelihood(("x0",))}) == 2


class Given(Score):
    """Scores that are given in place of a program."""

    def check(self, schema: Schema) -> None:
        pass

    def sequence_scores(self, program: object, data: object) -> np.ndarray:
        return np.array(program, dtype=np.float64)


def better(new: object, old: object, caution: float = 0.0) -> bool:
    return Given().is_better(new, old, new, caution=caution)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_better_by_caution_is_a_paired_t_statistic_above_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    old = rng.normal(size=12)
    new = old + rng.normal(0.6, 1.0, size=12)
    statistic = float(ttest_rel(new, old).statistic)
    assert better(new, old, statistic - 1e-6)
    assert not better(new, old, statistic + 1e-6)
    assert better(new, old) is (statistic > 0)


@pytest.mark.parametrize("caution", [0.0, 1.0])
@pytest.mark.parametrize("scores", [[-3.0], [-1.0, -2.0], [-1.0, -math.inf]])
def test_what_scores_the_same_is_not_better(scores: list[float], caution: float) -> None:
    assert not better(scores, scores, caution)


def test_the_means_decide_where_there_is_no_standard_error() -> None:
    assert better([-1.0], [-2.0], 5.0) and not better([-2.0], [-1.0])
    assert better([-1.0, -9.0], [-1.0, -math.inf], 5.0)
    assert not better([-1.0, -math.inf], [-1.0, -9.0])

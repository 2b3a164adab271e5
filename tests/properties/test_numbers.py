"""Never a wrong finite number: every pass against the log-space reference, to 1e-9 relative."""

import math
from functools import lru_cache

import numpy as np
import pytest

from dspn import Model, Sequences
from dspn.errors import ImpossibleEvidenceWarning
from dspn.structure import Root, from_hmm
from properties.extreme_cases import APART, CASES, LIKES, reversal
from properties.log_space import LogSpace, hmm_reference
from strategies import as_sequences, draw_sequence, random_network, schema_of

every_case = pytest.mark.parametrize("root", ["first", "last"])
RTOL = 1e-9


@lru_cache(maxsize=64)
def prepared(name: str, root: str) -> tuple[Model, Sequences, LogSpace]:
    network, values = CASES[name](root)
    return Model(network), as_sequences(network.schema, [values]), LogSpace(network, values)


@every_case
@pytest.mark.parametrize("name", CASES)
def test_log_likelihood_equals_the_log_space_reference(name: str, root: str) -> None:
    model, data, reference = prepared(name, root)
    np.testing.assert_allclose(model.log_likelihood(data), [reference.log_likelihood], rtol=RTOL)


@every_case
@pytest.mark.parametrize("name", CASES)
def test_interface_posteriors_equal_the_log_space_reference(name: str, root: str) -> None:
    model, data, reference = prepared(name, root)
    expected = reference.posteriors[0]
    np.testing.assert_allclose(model.interface_posteriors(data), expected, rtol=RTOL, atol=1e-10)


@every_case
@pytest.mark.parametrize("name", CASES)
def test_marginals_equal_the_log_space_reference(name: str, root: str) -> None:
    model, data, reference = prepared(name, root)
    leaves = reference.posteriors[1]
    marginals = model.marginals(data)
    np.testing.assert_allclose(marginals.log_likelihood, [reference.log_likelihood], rtol=RTOL)
    for v, variable in enumerate(model.schema):
        own = marginals[variable.name]
        missing = np.flatnonzero(np.isnan(data.values[:, v]))
        np.testing.assert_array_equal(own.slices, missing)
        mixed = [reference.mixture(t, v, leaves) for t in missing.tolist()]
        if variable.num_categories:
            shape = (len(missing), variable.num_categories)
            expected = np.array([weights @ rows for weights, rows in mixed]).reshape(shape)
            np.testing.assert_allclose(own.probabilities, expected, rtol=RTOL, atol=1e-10)
        else:
            means = np.array([weights @ rows[:, 0] for weights, rows in mixed])
            np.testing.assert_allclose(own.mean, means, rtol=RTOL, atol=1e-9)


@every_case
@pytest.mark.parametrize("name", CASES)
def test_completion_equals_the_log_space_reference(name: str, root: str) -> None:
    model, data, reference = prepared(name, root)
    completion = model.complete(data)
    np.testing.assert_allclose(completion.log_prob, [reference.best_completion], rtol=RTOL)
    seen = ~np.isnan(data.values)
    np.testing.assert_array_equal(completion.sequences.values[seen], data.values[seen])
    chosen = np.zeros((data.total_slices, model.network.num_interfaces), dtype=bool)
    np.put_along_axis(chosen, completion.interfaces, True, axis=1)
    attained = LogSpace(model.network, completion.sequences.values).upward(
        maximise=True, chosen=chosen
    )
    np.testing.assert_allclose(attained.log_value, reference.best_completion, rtol=RTOL)


@every_case
@pytest.mark.parametrize("name", CASES)
def test_leave_one_out_surprise_equals_the_log_space_reference(name: str, root: str) -> None:
    model, data, reference = prepared(name, root)
    found = model.surprise(data).variables
    np.testing.assert_array_equal(np.isnan(found), np.isnan(data.values))
    rows = [data.total_slices // 2, 0 if root == "first" else data.total_slices - 1]
    for t in rows:
        v = t % len(model.schema)
        if not np.isnan(data.values[t, v]):
            others = data.values.copy()
            others[t, v] = np.nan
            expected = LogSpace(model.network, others).log_likelihood - reference.log_likelihood
            tolerance = 1e-13 * abs(reference.log_likelihood)
            np.testing.assert_allclose(found[t, v], expected, rtol=RTOL, atol=1e-9 + tolerance)


@pytest.mark.parametrize("name", CASES)
def test_filter_and_slice_surprises_equal_the_log_space_reference(name: str) -> None:
    model, data, reference = prepared(name, "first")
    stream = model.filter()
    steps = [stream.update(row) for row in data.to_arrays(decode=True)[0]]
    np.testing.assert_allclose(steps[-1].log_likelihood, reference.log_likelihood, rtol=RTOL)
    for t in (len(steps) // 3, 2 * len(steps) // 3):
        expected = LogSpace(model.network, data.values[: t + 1]).log_likelihood
        np.testing.assert_allclose(steps[t].log_likelihood, expected, rtol=RTOL)
    slices = model.surprise(data).slices
    np.testing.assert_allclose(slices, [step.surprise for step in steps], rtol=RTOL, atol=1e-9)
    np.testing.assert_allclose(-math.fsum(slices), reference.log_likelihood, rtol=RTOL)


@every_case
@pytest.mark.parametrize("name", CASES)
def test_conditional_sample_is_possible_and_shares_the_evidence(name: str, root: str) -> None:
    model, data, _ = prepared(name, root)
    drawn = model.sample_given(data, rng=np.random.default_rng(0))
    assert not np.isnan(drawn.values).any()
    filled = LogSpace(model.network, drawn.values).log_likelihood
    assert math.isfinite(filled)
    np.testing.assert_allclose(model.log_likelihood(drawn), [filled], rtol=RTOL)


def test_evidence_that_reverses_is_right_amid_benign_sequences() -> None:
    network, values = reversal("first")
    model = Model(network)
    rng = np.random.default_rng(0)
    benign = [
        rng.integers(2, size=(int(length), 1)).astype(float) for length in rng.integers(1, 50, 70)
    ]
    arrays = [*benign[:40], values, *benign[40:]]
    data = as_sequences(network.schema, arrays)
    references = [LogSpace(network, own) for own in arrays]
    expected = [reference.log_likelihood for reference in references]
    np.testing.assert_allclose(model.log_likelihood(data), expected, rtol=RTOL)
    chosen = np.concatenate([reference.posteriors[0] for reference in references])
    np.testing.assert_allclose(model.interface_posteriors(data), chosen, rtol=RTOL, atol=1e-10)


def long_hmm(seed: int):  # type: ignore[no-untyped-def]
    """32 states, 30 variables of every kind, 5,000 slices with gaps."""
    rng = np.random.default_rng(seed)
    k, num_slices = 32, 5000
    kinds = ("binary", "ternary", "continuous", "binary", "count", "binary") * 5
    schema = schema_of(kinds)
    start, transition = rng.dirichlet(np.ones(k)), rng.dirichlet(np.full(k, 0.3), size=k)
    emissions, columns, logs = {}, [], np.zeros((num_slices, k))
    for variable in schema:
        if variable.num_categories:
            rows = rng.dirichlet(np.ones(variable.num_categories), size=k)
            column = rng.integers(variable.num_categories, size=num_slices).astype(float)
        elif variable.kind == "continuous":
            rows = np.stack([rng.normal(size=k), rng.uniform(0.5, 2.0, k)], axis=1)
            column = rng.normal(size=num_slices)
        else:
            rows = rng.uniform(0.5, 5.0, size=(k, 1))
            column = rng.poisson(2.0, size=num_slices).astype(float)
        column[rng.random(num_slices) < 0.1] = np.nan
        emissions[variable.name] = rows
        columns.append(column)
        logs += _log_emissions(variable, rows, column)
    network = from_hmm(start, transition, emissions, schema=schema)
    return network, np.stack(columns, axis=1), hmm_reference(start, transition, logs), emissions


def _log_emissions(variable, rows: np.ndarray, column: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    from dspn.leaves import family_for
    from properties.log_space import log_density

    family = family_for(variable)
    return np.stack([log_density(family, row, column, modes=False) for row in rows], axis=1)


def test_5000_slices_of_30_variables_with_32_states_agree_with_log_space() -> None:
    network, values, expected, emissions = long_hmm(0)
    model = Model(network)
    data = as_sequences(network.schema, [values])
    assert math.isfinite(expected.log_likelihood)
    np.testing.assert_allclose(model.log_likelihood(data), [expected.log_likelihood], rtol=RTOL)
    np.testing.assert_allclose(
        model.interface_posteriors(data), expected.posteriors, rtol=RTOL, atol=1e-12
    )
    marginals = model.marginals(data)
    for v, variable in enumerate(network.schema):
        missing = np.flatnonzero(np.isnan(values[:, v]))
        mixed = expected.posteriors[missing] @ emissions[variable.name]
        own = marginals[variable.name]
        found = own.probabilities if variable.num_categories else own.mean[:, None]
        np.testing.assert_allclose(found, mixed[:, : found.shape[1]], rtol=RTOL, atol=1e-12)


def test_best_path_of_5000_slices_agrees_with_log_space() -> None:
    network, values, _, _ = long_hmm(1)
    values = np.where(np.isnan(values), 0.0, values)
    logs = sum(
        _log_emissions(network.schema[v], np.array(rows), values[:, v])
        for v, rows in enumerate(network.parameters.template.leaves)
    )
    start = network.parameters.top.weights
    transition = network.parameters.template.weights.reshape(32, 32)
    expected = hmm_reference(start, transition, np.asarray(logs))
    completion = Model(network).complete(as_sequences(network.schema, [values]))
    np.testing.assert_allclose(completion.log_prob, [expected.viterbi], rtol=RTOL)
    path = completion.interfaces[:, 0]
    with np.errstate(divide="ignore"):
        attained = math.fsum(
            [
                float(np.log(start[path[0]])),
                *np.log(transition[path[:-1], path[1:]]).tolist(),
                *np.asarray(logs)[np.arange(len(path)), path].tolist(),
            ]
        )
    np.testing.assert_allclose(attained, expected.viterbi, rtol=RTOL)


@pytest.mark.parametrize("seed", range(24))
def test_long_sequence_of_a_random_template_agrees_with_log_space(seed: int) -> None:
    network = random_network(seed)
    values = draw_sequence(network, 300, np.random.default_rng(seed))
    values[np.random.default_rng(seed + 1).random(values.shape) < 0.2] = np.nan
    reference = LogSpace(network, values)
    model, data = Model(network), as_sequences(network.schema, [values])
    np.testing.assert_allclose(
        model.log_likelihood(data), [reference.log_likelihood], rtol=RTOL, atol=1e-12
    )
    np.testing.assert_allclose(
        model.interface_posteriors(data), reference.posteriors[0], rtol=RTOL, atol=1e-12
    )
    completion = model.complete(data)
    np.testing.assert_allclose(
        completion.log_prob, [reference.best_completion], rtol=RTOL, atol=1e-12
    )


def chains(root: str = "first") -> Model:
    start = np.full(4, 0.25)
    return Model.from_hmm(start, APART, {"x0": LIKES}, schema=schema_of(("ternary",)), root=root)


def never_two() -> Model:
    """Two states; neither can emit the third category."""
    emissions = np.array([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0]])
    return Model.from_hmm(
        [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], {"x0": emissions}, schema=schema_of(("ternary",))
    )


@pytest.mark.parametrize("at", [0, 1, 37, 99])
def test_impossible_observation_is_minus_infinity_and_its_slice_is_named(at: int) -> None:
    model = never_two()
    rng = np.random.default_rng(0)
    arrays = [rng.integers(2, size=(100, 1)).astype(float) for _ in range(5)]
    arrays[3][at] = 2.0
    with pytest.warns(ImpossibleEvidenceWarning, match=rf"sequence 3\b.*slice {at}\b"):
        found = model.log_likelihood(as_sequences(model.schema, arrays))
    assert np.isneginf(found).tolist() == [False, False, False, True, False]
    assert not np.isnan(found).any()


@pytest.mark.parametrize("root", ["first", "last"])
def test_late_contradiction_of_both_chains_is_minus_infinity(root: str) -> None:
    # The first chain is struck out by category 2 at slice 1,000; the second one, made unable to say
    # category 0, by slice 0. Nothing is left, however large the loser's and winner's numbers are.
    likes = LIKES.copy()
    likes[2:] = [0.0, 0.9, 0.1]
    start = np.full(4, 0.25)
    model = Model.from_hmm(start, APART, {"x0": likes}, schema=schema_of(("ternary",)), root=root)
    values = np.zeros((2000, 1))
    values[1000] = 2.0
    with pytest.warns(ImpossibleEvidenceWarning, match="slice"):
        found = model.log_likelihood(as_sequences(model.schema, [values, values[:900]]))
    assert found[0] == -math.inf
    assert math.isfinite(found[1])


def test_impossible_sequence_does_not_disturb_its_neighbours() -> None:
    model = chains()
    values = np.zeros((300, 1))
    contradiction = np.array([[0.0], [2.0]])
    reference = LogSpace(model.network, values).log_likelihood
    assert model.root == Root.FIRST
    found = model.log_likelihood(as_sequences(model.schema, [values, values]))
    np.testing.assert_allclose(found, [reference, reference], rtol=RTOL)
    likes = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    strict = Model.from_hmm(np.full(4, 0.25), APART, {"x0": likes}, schema=model.schema)
    with pytest.warns(ImpossibleEvidenceWarning, match=r"sequence 1\b.*slice [01]\b"):
        found = strict.log_likelihood(as_sequences(model.schema, [values, contradiction, values]))
    np.testing.assert_allclose(found, [math.log(0.5), -math.inf, math.log(0.5)], rtol=RTOL)

"""Every query of a mixture against enumeration."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import chi2

import oracles
from dspn import FilterState, Model
from dspn.errors import EvidenceError, ImpossibleEvidenceWarning
from dspn.structure import Mixture
from properties import mixture_cases as cases
from properties.exact_mixtures import assert_marginals, assert_quantile, mixtures
from properties.mixture_cases import Case, impossible_for_some, random_mixture_case
from strategies import as_sequences, random_case, schema_of

LEVELS = (0.05, 0.5, 0.9)
SEEDS = range(40)
few = settings(max_examples=25)


def every_case() -> list[Case]:
    return [*map(random_mixture_case, SEEDS), *map(impossible_for_some, range(15))]


ALL_CASES = [case for case in every_case() if case.arrays]


def test_there_is_evidence_that_some_components_hold_impossible() -> None:
    dead = sum(
        not all(oracles.likelihood(network, values) > 0 for network in case.mixture)
        for case in ALL_CASES
        for values in case.arrays
    )
    assert dead > 30
    zero = [case for case in ALL_CASES if (case.mixture.weights == 0).any()]
    assert len(zero) > 3


@given(cases.mixture_cases())
@few
def test_log_likelihood_is_that_of_the_weighted_sum(case: Case) -> None:
    found = Model(case.mixture).log_likelihood(case.data)
    expected = [cases.log(cases.likelihood(case.mixture, values)) for values in case.arrays]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", ALL_CASES)
def test_component_posteriors_agree_with_enumeration(case: Case) -> None:
    found = Model(case.mixture).component_posteriors(case.data)
    expected = [cases.posteriors(case.mixture, values) for values in case.arrays]
    assert found.shape == (len(case.arrays), len(case.mixture))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)


@given(cases.mixture_cases())
@few
def test_log_prob_is_the_ratio_of_two_enumerations(case: Case) -> None:
    rng = np.random.default_rng(len(case.arrays[0]))
    evidence = [np.where(rng.random(x.shape) < 0.5, np.nan, x) for x in case.arrays]
    expected = [
        math.log(cases.likelihood(case.mixture, x) / cases.likelihood(case.mixture, given))
        for x, given in zip(case.arrays, evidence, strict=True)
    ]
    found = Model(case.mixture).log_prob(case.data, as_sequences(case.mixture.schema, evidence))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@given(cases.mixture_cases())
@few
def test_marginals_are_those_of_the_leaves_of_all_components(case: Case) -> None:
    found = Model(case.mixture).marginals(case.data, quantiles=LEVELS)
    expected = [cases.log(cases.likelihood(case.mixture, values)) for values in case.arrays]
    np.testing.assert_allclose(found.log_likelihood, expected, rtol=1e-9, atol=1e-12)
    assert_marginals(case.mixture, case.data, found, conditional=cases.conditional)


@pytest.mark.parametrize("case", ALL_CASES)
def test_marginals_leave_out_components_that_hold_the_evidence_impossible(case: Case) -> None:
    found = Model(case.mixture).marginals(case.data, quantiles=LEVELS)
    assert_marginals(case.mixture, case.data, found, conditional=cases.conditional)


@pytest.mark.parametrize("seed", range(15))
def test_imputed_entry_is_mode_median_or_mean_of_the_mixture(seed: int) -> None:
    case = random_mixture_case(seed)
    imputed = Model(case.mixture).impute(case.data)
    assert not np.isnan(imputed.values).any()
    for v, variable in enumerate(case.mixture.schema):
        for row, entry in mixtures(case.mixture, case.data, v, cases.conditional).items():
            value = float(imputed.values[row, v])
            if variable.num_categories:
                assert entry.probabilities()[int(value)] >= max(entry.probabilities()) - 1e-12
            elif variable.kind == "continuous":
                np.testing.assert_allclose(value, entry.mean(), rtol=1e-9, atol=1e-12)
            else:
                assert_quantile(entry, value, 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_forecast_is_the_conditional_distribution_of_the_appended_slices(seed: int) -> None:
    mixture = cases.random_mixture(seed)
    rng = np.random.default_rng([43, seed])
    steps = 1 + seed % 2
    # The beginning of a longer sequence: possible in the network of that length.
    arrays = [cases.random_sequence(mixture, t + steps, rng)[:t] for t in (1, 3)]
    data = as_sequences(mixture.schema, arrays)
    found = Model(mixture).forecast(data, steps, quantiles=LEVELS)
    longer = data.extended(steps)
    rows = {int(row) for end in longer.offsets[1:] for row in range(end - steps, end)}
    assert_marginals(mixture, longer, found.marginals, rows, cases.conditional)


@pytest.mark.parametrize("case", ALL_CASES)
def test_interface_posteriors_agree_with_enumeration(case: Case) -> None:
    found = Model(case.mixture).interface_posteriors(case.data)
    expected = [cases.interface_posteriors(case.mixture, values) for values in case.arrays]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("case", ALL_CASES)
def test_completion_is_the_best_over_components_latent_and_missing_choices(case: Case) -> None:
    mixture, data = case.mixture, case.data
    found = Model(mixture).complete(data)
    assert not np.isnan(found.sequences.values).any()
    seen = ~np.isnan(data.values)
    np.testing.assert_array_equal(found.sequences.values[seen], data.values[seen])
    offsets = np.cumsum([0] + [network.num_interfaces for network in mixture])
    for number, values in enumerate(case.arrays):
        best = cases.best_completions(mixture, values)
        np.testing.assert_allclose(found.log_prob[number], math.log(max(best)), rtol=1e-9)
        c = int(found.component[number])
        np.testing.assert_allclose(best[c], max(best), rtol=1e-9)
        network = mixture.components[c]
        rows = slice(int(data.offsets[number]), int(data.offsets[number + 1]))
        chosen = found.interfaces[rows]
        assert (chosen[:, len(network.groups) :] == -1).all()
        own = np.where(chosen >= 0, chosen - offsets[c], -1)
        value = oracles.slice_by_slice(
            network,
            np.array(found.sequences[number]),
            add=max,
            interfaces=lambda t, position, own=own: position in own[t],
        )
        np.testing.assert_allclose(
            mixture.weights[c] * value, math.exp(found.log_prob[number]), rtol=1e-9
        )


@pytest.mark.parametrize("case", ALL_CASES)
def test_surprise_of_each_slice_agrees_with_enumeration(case: Case) -> None:
    found = Model(case.mixture).surprise(case.data).slices
    expected = cases.per_slice(case, cases.surprise_of_slice)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", ALL_CASES)
def test_surprise_of_each_entry_given_all_others_agrees_with_enumeration(case: Case) -> None:
    found = Model(case.mixture).surprise(case.data)
    for array, of in ((found.variables, cases.surprise_of_entry), (found.tails, cases.tail)):
        expected = [
            [of(case.mixture, values, t, v) for v in range(values.shape[1])]
            for values in case.arrays
            for t in range(len(values))
        ]
        np.testing.assert_allclose(array, expected, rtol=1e-9, atol=1e-11)


# Streams.


@pytest.mark.parametrize("case", ALL_CASES)
def test_filter_gives_the_surprises_of_the_batch(case: Case) -> None:
    model = Model(case.mixture)
    batch = model.surprise(case.data)
    for number, rows in enumerate(case.data.to_arrays(decode=True)):
        start = int(case.data.offsets[number])
        expected = batch.slices[start : start + len(rows)]
        if not np.isfinite(expected).all():
            continue
        stream, tails = model.filter(), np.empty(0)
        steps = []
        for row in rows:
            tails = stream.tails(row)
            steps.append(stream.update(row))
        found = [step.surprise for step in steps]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
        values, last = case.arrays[number], len(rows) - 1
        of_last = [cases.tail(case.mixture, values, last, v) for v in range(values.shape[1])]
        np.testing.assert_allclose(tails, of_last, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(steps[-1].log_likelihood, -expected.sum(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", range(20))
def test_filter_predicts_the_next_slice(seed: int) -> None:
    mixture = cases.random_mixture(seed)
    values = cases.random_sequence(mixture, 4, np.random.default_rng([47, seed]))
    stream = Model(mixture).filter()
    data = as_sequences(mixture.schema, [values])
    for t, row in enumerate(data.to_arrays(decode=True)[0]):
        unseen = values[: t + 1].copy()
        unseen[t] = np.nan
        if cases.likelihood(mixture, unseen) == 0:
            with pytest.raises(EvidenceError, match="slices before slice"):
                stream.predict()
            return
        expected = Model(mixture).marginals(
            as_sequences(mixture.schema, [unseen]), quantiles=LEVELS
        )
        found = stream.predict(quantiles=LEVELS)
        for own, other in zip(found.variables, expected.variables, strict=True):
            last = other.slices == t
            if own.probabilities is not None and other.probabilities is not None:
                np.testing.assert_allclose(
                    own.probabilities, other.probabilities[last], rtol=1e-9, atol=1e-13
                )
            np.testing.assert_allclose(own.mean, other.mean[last], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(own.variance, other.variance[last], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(own.quantiles, other.quantiles[last], rtol=1e-7, atol=1e-9)
        if not np.isfinite(stream.update(row).surprise):
            return


@pytest.mark.parametrize("seed", range(20))
def test_filter_continues_from_a_saved_state(seed: int) -> None:
    mixture = cases.random_mixture(seed, num_components=1 + seed % 3, zeros=0.0)
    model = Model(mixture)
    values = cases.random_sequence(mixture, 6, np.random.default_rng([53, seed]))
    rows = as_sequences(mixture.schema, [values]).to_arrays(decode=True)[0]
    whole, begun = model.filter(), model.filter()
    for row in rows[:3]:
        whole.update(row)
        begun.update(row)
    resumed = model.filter(FilterState.from_arrays(begun.state().to_arrays()))
    for row in rows[3:]:
        assert resumed.update(row) == whole.update(row)


# Draws.


def counts_of(values: np.ndarray, num_cells: int) -> np.ndarray:
    codes = values.reshape(len(values), -1)
    base = 2 ** np.arange(codes.shape[1])
    return np.bincount((codes @ base).astype(np.int64), minlength=num_cells)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("given_evidence", [False, True])
def test_sample_frequencies_agree_with_enumeration(seed: int, given_evidence: bool) -> None:
    mixture = cases.random_mixture(seed, 3, kinds=("binary", "binary"), zeros=0.4)
    width = len(mixture.schema)
    rng = np.random.default_rng([59, seed])
    evidence = np.full((2, width), np.nan)
    if given_evidence:
        evidence[1] = cases.random_sequence(mixture, 2, rng)[1]
    model = Model(mixture)
    if given_evidence:
        data = as_sequences(mixture.schema, [evidence] * 3000)
        drawn = model.sample_given(data, rng=rng)
        assert (drawn.values[1::2] == evidence[1]).all()
    else:
        drawn = model.sample(3000, 2, rng=rng)
    counts = counts_of(drawn.values.reshape(3000, -1), 2 ** (2 * width))
    total = cases.likelihood(mixture, evidence)
    expected = np.zeros(counts.size)
    for filled in oracles.completions(mixture.components[0], evidence):
        cell = int(filled.reshape(-1) @ 2 ** np.arange(2 * width))
        expected[cell] = 3000 * cases.likelihood(mixture, filled) / total
    assert (counts[expected < 1e-12] == 0).all()
    large = expected >= 5
    statistic = float(((counts - expected) ** 2)[large] @ (1 / expected[large]))
    assert chi2.sf(statistic, max(1, int(large.sum()) - 1)) > 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_draws_are_the_same_for_the_same_seed(seed: int) -> None:
    case = random_mixture_case(seed, num_components=3)
    model = Model(case.mixture)
    for draw in (
        lambda rng: model.sample(7, [1, 2, 3, 4, 5, 6, 7], rng=rng),
        lambda rng: model.sample_given(case.data, rng=rng),
        lambda rng: model.sample_futures(
            as_sequences(case.mixture.schema, [case.arrays[-1]]), 2, rng=rng
        ),
    ):
        one, two = (draw(np.random.default_rng(5)).values for _ in range(2))
        np.testing.assert_array_equal(one, two)
        assert not np.isnan(one).any()


# Mixtures that are no more than their parts.


@pytest.mark.parametrize("seed", range(25))
def test_two_copies_answer_as_one(seed: int) -> None:
    network, _, data = random_case(seed)
    one, two = Model(network), Model(Mixture((network, network), [0.3, 0.7]))
    k = network.num_interfaces
    close = {"rtol": 1e-9, "atol": 1e-11}
    np.testing.assert_allclose(two.log_likelihood(data), one.log_likelihood(data), **close)
    np.testing.assert_allclose(two.component_posteriors(data), [[0.3, 0.7]] * len(data), **close)
    found = two.interface_posteriors(data)
    np.testing.assert_allclose(found[:, :k] + found[:, k:], one.interface_posteriors(data), **close)
    for own, other in zip(
        two.marginals(data, quantiles=LEVELS).variables,
        one.marginals(data, quantiles=LEVELS).variables,
        strict=True,
    ):
        np.testing.assert_allclose(own.mean, other.mean, **close)
        np.testing.assert_allclose(own.quantiles, other.quantiles, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(two.impute(data).values, one.impute(data).values, **close)
    whole, half = one.complete(data), two.complete(data)
    np.testing.assert_allclose(half.log_prob, whole.log_prob + math.log(0.7), **close)
    np.testing.assert_array_equal(half.sequences.values, whole.sequences.values)
    np.testing.assert_array_equal(half.component, 1)
    np.testing.assert_array_equal(half.interfaces, whole.interfaces + k)
    np.testing.assert_allclose(two.surprise(data).slices, one.surprise(data).slices, **close)
    np.testing.assert_allclose(two.surprise(data).variables, one.surprise(data).variables, **close)


def two_opinions() -> Model:
    """One component has seen nothing but "no", the other nothing but "yes"."""
    schema = schema_of(("binary", "binary"))
    parts = [
        Model.from_hmm([1.0], [[1.0]], {"x0": [row], "x1": [row]}, schema=schema).network
        for row in ([1.0, 0.0], [0.0, 1.0])
    ]
    return Model(Mixture(tuple(parts), [0.25, 0.75]))


def test_evidence_is_impossible_only_where_all_components_say_so() -> None:
    model = two_opinions()
    low, high = np.zeros((3, 2)), np.ones((3, 2))
    data = as_sequences(model.schema, [low, high])
    np.testing.assert_allclose(model.log_likelihood(data), np.log([0.25, 0.75]), rtol=1e-12)
    assert model.component_posteriors(data).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    both = np.concatenate([low[:2], high[:1]])
    with pytest.warns(ImpossibleEvidenceWarning, match="sequence 1 at slice 2"):
        found = model.log_likelihood(as_sequences(model.schema, [low, both]))
    assert found[1] == -np.inf
    spoiled = as_sequences(model.schema, [both])
    for query in (model.marginals, model.component_posteriors, model.complete, model.impute):
        with pytest.raises(EvidenceError, match="sequence 0 at slice 2"):
            query(spoiled)
    with pytest.raises(EvidenceError, match="sequence 0 at slice 2"):
        model.sample_given(spoiled, rng=np.random.default_rng(0))


def test_surprises_of_evidence_that_all_components_hold_impossible() -> None:
    model = two_opinions()
    both = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    found = model.surprise(as_sequences(model.schema, [both]))
    np.testing.assert_allclose(found.slices[:2], [-math.log(0.25), 0.0], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.slices[2:], [np.inf, np.nan])
    assert np.isnan(found.variables).all()
    stream = model.filter()
    stream.update(["no", "no"])
    stream.update(["no", None])
    step = stream.update([None, "yes"])
    assert (step.surprise, step.log_likelihood) == (np.inf, -np.inf)
    with pytest.raises(EvidenceError, match="slice 2 of this stream was impossible"):
        stream.update(["no", "no"])


def test_chains_that_never_meet_are_a_mixture_however_long_the_sequence() -> None:
    schema = schema_of(("binary", "continuous"))
    rows = {"x0": [[0.9, 0.1], [0.1, 0.9]], "x1": [[0.0, 1.0], [0.1, 1.2]]}
    one = Model.from_hmm([0.5, 0.5], np.eye(2), rows, schema=schema)
    parts = [
        Model.from_hmm(
            [1.0], [[1.0]], {name: [row[c]] for name, row in rows.items()}, schema=schema
        )
        for c in range(2)
    ]
    two = Model(Mixture(tuple(part.network for part in parts), [0.5, 0.5]))
    rng = np.random.default_rng(0)
    values = np.stack([np.repeat([0.0, 1.0], [500, 1500]), rng.normal(size=2000)], axis=1)
    values[::7] = np.nan
    data = as_sequences(schema, [values, values[:700], values[600:]])
    close = {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(two.log_likelihood(data), one.log_likelihood(data), **close)
    np.testing.assert_allclose(
        two.interface_posteriors(data), one.interface_posteriors(data), **close
    )
    found, expected = two.surprise(data), one.surprise(data)
    np.testing.assert_allclose(found.slices, expected.slices, **close)
    np.testing.assert_allclose(found.variables, expected.variables, **close)
    found, expected = (model.marginals(data)["x1"] for model in (two, one))
    np.testing.assert_allclose(found.mean, expected.mean, **close)
    streams = one.filter(), two.filter()
    labels = as_sequences(schema, [values]).to_arrays(decode=True)[0]
    for row in labels[:900]:
        steps = [stream.update(row) for stream in streams]
        np.testing.assert_allclose(steps[1].surprise, steps[0].surprise, **close)


@pytest.mark.parametrize("seed", range(5))
def test_completion_is_that_of_the_first_of_equally_good_components(seed: int) -> None:
    network, _, data = random_case(seed)
    found = Model(Mixture((network, network, network), [0.25, 0.5, 0.25])).complete(data)
    np.testing.assert_array_equal(found.component, 1)
    found = Model(Mixture((network, network), [0.5, 0.5])).complete(data)
    alone = Model(network).complete(data)
    np.testing.assert_array_equal(found.component, 0)
    np.testing.assert_array_equal(found.interfaces, alone.interfaces)
    np.testing.assert_array_equal(found.sequences.values, alone.sequences.values)

"""Evidence that is impossible, contradictory, extreme or absent: an error or the right number."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dspn import DynamicNetwork, Model, Root, Schema, Sequences, Variable
from dspn.errors import DspnError, EvidenceError, ImpossibleEvidenceWarning
from dspn.structure import (
    NetworkBuilder,
    NetworkParameters,
    Parameters,
    assemble,
    from_hmm,
    initial_network,
)

Floats = NDArray[np.float64]
NAN = float("nan")
BITS = Schema((Variable.binary("bit"),))
LEVELS = Schema((Variable.continuous("level"),))
COUNTS = Schema((Variable.count("calls"),))
MIXED = Schema(
    (
        Variable.categorical("colour", ("red", "blue")),
        Variable.continuous("level"),
        Variable.count("calls"),
        Variable.categorical("only", ("one",)),
    )
)
CERTAIN = Model.from_hmm([1.0, 0.0], np.eye(2), {"bit": np.eye(2)}, schema=BITS)
MODEL = Model.from_hmm(
    [0.6, 0.4],
    [[0.7, 0.3], [0.2, 0.8]],
    {
        "colour": np.array([[0.9, 0.1], [0.2, 0.8]]),
        "level": np.array([[0.0, 1.0], [3.0, 1.0]]),
        "calls": np.array([[1.0], [5.0]]),
        "only": np.ones((2, 1)),
    },
    schema=MIXED,
)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


CONDITIONAL: dict[str, Callable[[Any], object]] = {
    "log_prob": lambda data: CERTAIN.log_prob(data, data),
    "marginals": CERTAIN.marginals,
    "interface_posteriors": CERTAIN.interface_posteriors,
    "impute": CERTAIN.impute,
    "complete": CERTAIN.complete,
    "sample_given": lambda data: CERTAIN.sample_given(data, rng=generator()),
    "sample_futures": lambda data: CERTAIN.sample_futures(data, 2, rng=generator()),
    "forecast": lambda data: CERTAIN.forecast(data, 2),
}


def one_impossible_of_many() -> Sequences:
    arrays = [np.zeros((1 + number % 4, 1)) for number in range(100)]
    arrays[57] = np.array([[0.0], [1.0], [0.0]])
    return Sequences.from_arrays(arrays, schema=BITS, ids=[f"s{number}" for number in range(100)])


@pytest.mark.parametrize("query", CONDITIONAL)
def test_one_impossible_sequence_of_many_is_named_with_its_id_and_slice(query: str) -> None:
    with pytest.raises(EvidenceError, match=r"sequence 57 \(id 's57'\).*slice 1"):
        CONDITIONAL[query](one_impossible_of_many())


def test_the_other_sequences_keep_their_likelihoods() -> None:
    with pytest.warns(ImpossibleEvidenceWarning, match=r"sequence 57 \(id 's57'\).*slice 1"):
        found = CERTAIN.log_likelihood(one_impossible_of_many())
    assert found[57] == -np.inf
    np.testing.assert_array_equal(np.delete(found, 57), 0.0)


def test_surprises_of_an_impossible_sequence_say_where_it_becomes_so() -> None:
    data = one_impossible_of_many()
    found = CERTAIN.surprise(data)
    start = int(data.offsets[57])
    np.testing.assert_array_equal(found.slices[start : start + 3], [0.0, np.inf, NAN])
    assert np.isnan(found.variables[start : start + 3]).all()
    np.testing.assert_allclose(np.delete(found.slices, range(start, start + 3)), 0.0, atol=1e-15)


def test_the_slice_blamed_for_impossible_evidence_holds_an_observation() -> None:
    with pytest.warns(ImpossibleEvidenceWarning, match="slice 1"):
        CERTAIN.log_likelihood([[[NAN], [1.0], [NAN]]])


def test_an_impossible_query_has_probability_zero() -> None:
    found = CERTAIN.log_prob([[[0.0], [1.0]]], [[[0.0], [NAN]]])
    np.testing.assert_array_equal(found, [-np.inf])


def test_query_and_evidence_that_contradict_are_quoted_as_they_were_given() -> None:
    query = [[["red", 0.0, 1, None]], [["red", None, None, None]]]
    evidence = [[["red", 0.0, 1, None]], [["blue", None, None, None]]]
    with pytest.raises(EvidenceError, match=r"sequence 1, slice 0, variable 'colour'") as caught:
        MODEL.log_prob(query, evidence)
    assert "'red'" in str(caught.value) and "'blue'" in str(caught.value)


def test_query_and_evidence_of_different_lengths_are_refused() -> None:
    row = ["red", 0.0, 1, None]
    with pytest.raises(EvidenceError, match=r"\[1, 1\] and \[1, 2\]"):
        MODEL.log_prob([[row], [row]], [[row], [row, row]])


# Hardly any evidence.


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("length", [1, 3])
def test_sequences_without_an_observation_answer_every_query(root: str, length: int) -> None:
    model = Model(initial_network(MIXED, 3, rng=generator(), root=root))
    data = Sequences.from_codes(np.full((length, 4), NAN), [0, length], MIXED)
    np.testing.assert_allclose(model.log_likelihood(data), 0.0, atol=1e-12)
    np.testing.assert_allclose(model.log_prob(data, data), 0.0, atol=1e-12)
    np.testing.assert_allclose(model.surprise(data).slices, 0.0, atol=1e-12)
    assert np.isnan(model.surprise(data).variables).all()
    found = model.marginals(data, quantiles=(0.5,))
    assert [own.slices.size for own in found.variables] == [length] * 4
    np.testing.assert_allclose(found["only"].probabilities, 1.0)
    np.testing.assert_allclose(model.interface_posteriors(data).sum(axis=1), 1.0)
    for filled in (
        model.impute(data),
        model.complete(data).sequences,
        model.sample_given(data, rng=generator()),
    ):
        assert not np.isnan(filled.values).any()
    future = model.forecast(data, 1).marginals
    assert future["level"].mean.shape == (1,)
    assert np.isfinite(model.filter().update([NAN] * 4).log_likelihood)


def test_many_sequences_of_very_different_lengths_do_not_touch_each_other() -> None:
    rng = generator()
    arrays = [MODEL.sample(1, int(n), rng=rng)[0] for n in rng.integers(1, 9, size=150)]
    arrays[40] = MODEL.sample(1, 700, rng=rng)[0]
    offsets = np.cumsum([0, *map(len, arrays)])
    values = np.concatenate(arrays)
    values[rng.random(values.shape) < 0.3] = NAN
    data = Sequences.from_codes(values, offsets, MIXED)
    together = MODEL.log_likelihood(data)
    posteriors = MODEL.interface_posteriors(data)
    for number in [0, 40, 63, 64, 65, 149]:
        alone = data[[number]]
        np.testing.assert_allclose(together[number], MODEL.log_likelihood(alone)[0], rtol=1e-12)
        own = posteriors[data.offsets[number] : data.offsets[number + 1]]
        np.testing.assert_allclose(own, MODEL.interface_posteriors(alone), rtol=1e-9, atol=1e-12)


def test_repeated_slices_of_a_model_with_one_interface_node_are_told_apart() -> None:
    model = Model.from_hmm([1.0], [[1.0]], {"bit": np.array([[0.9, 0.1]])}, schema=BITS)
    arrays = [generator().integers(2, size=(5, 6))[:, [n]].astype(np.float64) for n in range(6)]
    expected = [float(np.log(np.where(array == 0, 0.9, 0.1)).sum()) for array in arrays]
    np.testing.assert_allclose(model.log_likelihood(arrays), expected, rtol=1e-12)
    assert np.isnan(model.surprise(arrays).slices).sum() == 0


def test_the_most_probable_state_of_a_single_slice_is_found() -> None:
    start, emission = np.array([0.5, 0.5]), np.array([[0.5, 0.5], [0.45, 0.55]])
    model = Model.from_hmm(start, [[0.5, 0.5], [0.1, 0.9]], {"bit": emission}, schema=BITS)
    found = model.complete([[0.0]])
    assert found.interfaces.tolist() == [[0]]
    np.testing.assert_allclose(found.log_prob, np.log(0.25), rtol=1e-12)


# Extreme evidence.


@pytest.mark.parametrize("zeros", [450, 500, 550])
def test_evidence_that_reverses_is_weighed_in_full(zeros: int) -> None:
    emission = np.array([[0.9, 0.1], [0.1, 0.9]])
    model = Model.from_hmm([0.5, 0.5], np.eye(2), {"bit": emission}, schema=BITS)
    ones = 1000 - zeros  # 9**450 is beyond any float
    values = np.concatenate([np.zeros((zeros, 1)), np.ones((ones, 1))])
    weights = zeros * np.log(emission[:, 0]) + ones * np.log(emission[:, 1]) + np.log(0.5)
    expected = np.logaddexp(*weights)
    np.testing.assert_allclose(model.log_likelihood([values]), expected, rtol=1e-9)
    np.testing.assert_allclose(-model.surprise([values]).slices.sum(), expected, rtol=1e-9)
    stream = model.filter()
    steps = [stream.update(row) for row in values]
    np.testing.assert_allclose(steps[-1].log_likelihood, expected, rtol=1e-9)
    posterior = np.exp(weights - expected)
    found = model.interface_posteriors([values])
    np.testing.assert_allclose(found[[0, -1]], [posterior] * 2, rtol=1e-6, atol=1e-12)
    open_end = [np.concatenate([values, [[NAN]]])] * 200
    drawn = model.sample_given(open_end, rng=generator()).values[1000::1001]
    assert abs(drawn.mean() - posterior @ emission[:, 1]) < 0.12


@pytest.mark.parametrize("repeats", [1, 4])
def test_slices_of_many_variables_that_contradict_each_other_are_possible(repeats: int) -> None:
    number, small = 40, 1e-10
    schema = Schema(tuple(Variable.binary(f"x{v}") for v in range(number)))
    rows = np.array([[1 - small, small], [small, 1 - small]])
    emissions = dict.fromkeys(schema.names, rows)
    model = Model.from_hmm([0.5, 0.5], np.eye(2), emissions, schema=schema)
    values = np.repeat([[0.0], [1.0]], repeats, axis=0) * np.ones((1, number))
    expected = repeats * number * (np.log(small) + np.log1p(-small))
    np.testing.assert_allclose(model.log_likelihood([values]), expected, rtol=1e-9)
    values[0, 0] = NAN
    found = model.marginals([values])["x0"].probabilities
    weight = np.log([small, 1 - small])
    posterior = np.exp(weight - np.logaddexp(*weight))
    np.testing.assert_allclose(found, [posterior @ rows], rtol=1e-6)


def test_products_of_tiny_emissions_are_not_lost_beside_other_tiny_ones() -> None:
    small = 1e-130
    favours = np.array([[1 - small, small], [0.5, 0.5]])
    schema = Schema(tuple(Variable.binary(f"x{v}") for v in range(5)))
    rows = [favours, favours, favours[::-1], favours[::-1], favours[::-1]]
    emissions = dict(zip(schema.names, rows, strict=True))
    model = Model.from_hmm([0.5, 0.5], np.eye(2), emissions, schema=schema)
    values = np.full((8, 5), NAN)
    values[0] = 1.0
    values[1, 0] = 1.0
    # Both states have three of the six entries at `small` and three at one half.
    expected = 3 * np.log(small) + 3 * np.log(0.5)
    np.testing.assert_allclose(model.log_likelihood([values] * 4), expected, rtol=1e-9)


def test_marginals_that_need_logarithms_are_right_and_do_not_warn() -> None:
    number, small = 56, 1e-12
    bits = tuple(Variable.binary(f"x{v}") for v in range(number))
    schema = Schema((*bits, Variable.continuous("level")))
    rows = np.array([[1 - small, small], [small, 1 - small]])
    emissions = {**dict.fromkeys(schema.names[:-1], rows), "level": [[-2.0, 1.0], [4.0, 1.0]]}
    model = Model.from_hmm([0.5, 0.5], np.eye(2), emissions, schema=schema)
    values = np.full((2, number + 1), NAN)
    values[0, :28], values[0, 28:50], values[1, :6] = 0.0, 1.0, 1.0
    # 28 entries speak for each of the two states.
    found = model.marginals([values], quantiles=(0.5,))
    np.testing.assert_allclose(found["x55"].probabilities, 0.5, rtol=1e-9)
    np.testing.assert_allclose(found["level"].mean, 1.0, rtol=1e-9)
    np.testing.assert_allclose(found["level"].quantiles, 1.0, rtol=1e-9)


def narrow_at_the_bottom(root: str) -> Model:
    """Wide leaves in the template, narrow ones in a bottom network of its own."""
    network = from_hmm(
        [1.0, 0.0], np.eye(2), {"level": np.array([[0.0, 100.0], [10.0, 100.0]])}, schema=LEVELS
    )
    own = network.parameters
    bottom = NetworkParameters(own.template.weights, (np.array([[0.0, 1e-4], [10.0, 1e-4]]),))
    return Model(
        DynamicNetwork(
            network.template, network.top, Parameters(own.template, own.top, bottom), Root(root)
        )
    )


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("values", [[[10.0]], [[10.0], [0.0], [NAN]]])
def test_values_far_from_a_bottom_leaf_are_surprising_and_not_impossible(
    root: str, values: list[list[float]]
) -> None:
    model = narrow_at_the_bottom(root)
    array = np.array(values)
    seen = [array[: t + 1] for t in range(len(array))]
    unseen = [np.concatenate([array[:t], [[NAN]]]) for t in range(len(array))]
    expected = model.log_likelihood(unseen) - model.log_likelihood(seen)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(model.surprise([array]).slices, expected, rtol=1e-9, atol=1e-9)
    stream = model.filter()
    steps = [stream.update(row).surprise for row in array]
    np.testing.assert_allclose(steps, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("value", [1e150, -1e300])
def test_values_beyond_any_density_are_impossible_and_say_so(value: float) -> None:
    data = [np.array([[0.0, value, 1.0, 0.0]])]
    sequences = Sequences.from_codes(np.concatenate(data), [0, 1], MIXED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImpossibleEvidenceWarning)
        assert MODEL.log_likelihood(sequences)[0] < -1e290


def test_leaves_far_apart_have_marginals_without_a_warning() -> None:
    rows = np.array([[1e200, 1.0], [-1e200, 1.0]])
    model = Model.from_hmm([0.5, 0.5], np.full((2, 2), 0.5), {"level": rows}, schema=LEVELS)
    found = model.marginals([[NAN]], quantiles=(0.25, 0.75))["level"]
    np.testing.assert_allclose(found.quantiles, [[-1e200, 1e200]], rtol=1e-9)


@pytest.mark.parametrize("rate", [1e17, 1e19])
def test_rates_beyond_what_a_count_can_be_are_refused_by_name(rate: float) -> None:
    with pytest.raises(DspnError, match=r"rate|'calls'"):
        model = Model.from_hmm([1.0], [[1.0]], {"calls": np.array([[rate]])}, schema=COUNTS)
        model.sample(1, 1, rng=generator())


# Streams.


def test_nothing_can_be_predicted_after_an_impossible_slice() -> None:
    stream = CERTAIN.filter()
    stream.update([0])
    assert stream.update([1]).surprise == np.inf
    for call in (lambda: stream.update([0]), stream.predict):
        with pytest.raises(EvidenceError, match="slice 1 of this stream was impossible"):
            call()


def two_certain_groups() -> Model:
    """Two groups that never change, tied to each other by the top network alone."""
    schema = Schema((Variable.binary("a"), Variable.binary("b")))
    builder = NetworkBuilder(schema)
    inputs = {name: builder.inputs(2) for name in schema.names}
    outputs = [
        builder.product([builder.indicator(name, state), own[state]])
        for name, own in inputs.items()
        for state in (0, 1)
    ]
    top = NetworkBuilder(schema)
    first, second = top.inputs(2), top.inputs(2)
    pairs = [top.product([first[state], second[state]]) for state in (0, 1)]
    return Model(assemble(builder.template(outputs), top.top(top.sum(pairs, [0.5, 0.5]))))


def test_a_term_that_the_evidence_rules_out_does_not_spoil_the_prediction() -> None:
    model = two_certain_groups()
    stream = model.filter()
    stream.update([0, NAN])
    for name in ("a", "b"):
        np.testing.assert_allclose(stream.predict()[name].probabilities, [[1.0, 0.0]])


def vanishing_model(root: str) -> Model:
    """x_1 = 1 is possible as the only slice, and impossible once another one follows it."""
    network = from_hmm([1.0], [[1.0]], {"bit": np.array([[1.0, 0.0]])}, schema=BITS)
    own = network.parameters
    bottom = NetworkParameters(own.template.weights, (np.array([[0.5, 0.5]]),))
    parameters = Parameters(own.template, own.top, bottom)
    return Model(DynamicNetwork(network.template, network.top, parameters, Root(root)))


def test_a_past_that_a_longer_network_rules_out_is_an_error_and_not_a_number() -> None:
    stream = vanishing_model("first").filter()
    np.testing.assert_allclose(stream.update([1]).surprise, np.log(2.0))
    with pytest.raises(EvidenceError, match="slice"):
        stream.update([0])

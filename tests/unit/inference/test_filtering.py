"""Streams: what they take, where they end, and what a saved state may do."""

from collections.abc import Callable

import numpy as np
import pytest

from dspn import DynamicNetwork, FilterState, Model, Root, Schema, Variable
from dspn.errors import EvidenceError
from dspn.structure import NetworkBuilder, NetworkParameters, Parameters, assemble, from_hmm

NAN = float("nan")
BITS = Schema((Variable.binary("bit"),))
LABELS = Schema(
    (
        Variable.categorical("colour", ("red", "blue")),
        Variable.categorical("size", (4, 2)),
        Variable.categorical("on", (False, True)),
        Variable.continuous("level"),
    )
)


def labelled_model() -> Model:
    rng = np.random.default_rng(0)
    rows = {name: rng.dirichlet(np.ones(2), size=2) for name in LABELS.names[:3]}
    rows["level"] = np.array([[0.0, 1.0], [3.0, 2.0]])
    return Model.from_hmm([0.6, 0.4], [[0.7, 0.3], [0.2, 0.8]], rows, schema=LABELS)


def test_update_takes_what_every_other_query_takes() -> None:
    model = labelled_model()
    slices = [["red", 2, True, 0.5], [None, 4, False, NAN], ["blue", NAN, None, 2.5]]
    stream = model.filter()
    found = [stream.update(row).surprise for row in slices]
    np.testing.assert_allclose(found, model.surprise([slices]).slices, rtol=1e-12)


def test_update_leaves_the_array_it_is_given_alone() -> None:
    model = Model.from_hmm([1.0], [[1.0]], {"bit": [[0.5, 0.5]]}, schema=BITS)
    row = np.array([1.0])
    model.filter().update(row)
    row[0] = 0.0


# Pasts that a longer network rules out.


def with_bottom(network: DynamicNetwork, *leaves: list[list[float]], root: str) -> Model:
    own = network.parameters
    bottom = NetworkParameters(own.template.weights, tuple(map(np.array, leaves)))
    parameters = Parameters(own.template, own.top, bottom)
    return Model(DynamicNetwork(network.template, network.top, parameters, Root(root)))


def vanishing_first() -> Model:
    """A slice of 1 is possible at the end only."""
    network = from_hmm([1.0], [[1.0]], {"bit": [[1.0, 0.0]]}, schema=BITS)
    return with_bottom(network, [[0.5, 0.5]], root="first")


def vanishing_last() -> Model:
    """A slice of 1 is possible at the top only, as no output reads the state that gives it."""
    builder = NetworkBuilder(BITS)
    inputs = builder.inputs(2)
    outputs = [
        builder.product([builder.indicator("bit", state), builder.sum(inputs, [1.0, 0.0])])
        for state in (0, 1)
    ]
    top = NetworkBuilder(BITS)
    root = top.sum(top.inputs(2), [0.5, 0.5])
    return Model(assemble(builder.template(outputs), top.top(root), root="last"))


def vanishing_history() -> Model:
    """As `vanishing_first`, but outputs multiply two groups, so that a filter keeps the slices."""
    schema = Schema((Variable.binary("bit"), Variable.binary("other")))
    builder = NetworkBuilder(schema)
    first, second = builder.input(), builder.input()
    outputs = [
        builder.product([builder.leaf("bit", [1.0, 0.0]), first, second]),
        builder.leaf("other", [0.5, 0.5]),
    ]
    top = NetworkBuilder(schema)
    network = assemble(builder.template(outputs), top.top(top.product(top.inputs(2))))
    return with_bottom(network, [[0.5, 0.5]], [[0.5, 0.5]], root="first")


@pytest.mark.parametrize("make", [vanishing_first, vanishing_last, vanishing_history])
def test_a_ruled_out_past_is_an_error_that_leaves_the_stream_alone(
    make: Callable[[], Model],
) -> None:
    model = make()
    width = len(model.schema)
    stream = model.filter()
    np.testing.assert_allclose(stream.update([1] + [NAN] * (width - 1)).surprise, np.log(2.0))
    before = stream.state().to_arrays()
    with pytest.raises(EvidenceError, match=r"before slice 1 .* network of 2 slices"):
        stream.update([0] + [NAN] * (width - 1))
    with pytest.raises(EvidenceError, match="slice"):
        stream.predict()
    after = stream.state().to_arrays()
    for key, array in before.items():
        np.testing.assert_array_equal(after[key], array)


def test_a_state_that_no_slice_can_follow_is_not_restored() -> None:
    model = vanishing_first()
    stream = model.filter()
    stream.update([1])
    with pytest.raises(EvidenceError, match="no slice can follow"):
        model.filter(stream.state())


def test_a_restored_impossible_stream_stays_impossible() -> None:
    model = Model.from_hmm([1.0], [[1.0]], {"bit": [[1.0, 0.0]]}, schema=BITS)
    stream = model.filter()
    stream.update([1])
    restored = model.filter(FilterState.from_arrays(stream.state().to_arrays()))
    for call in (lambda: restored.update([0]), restored.predict):
        with pytest.raises(EvidenceError, match="slice 0 of this stream was impossible"):
            call()


def test_a_history_of_codes_outside_the_schema_is_refused() -> None:
    model = vanishing_history()
    stream = model.filter()
    stream.update([0, 1])
    arrays = stream.state().to_arrays()
    arrays["history"][0, 1] = 7.0
    with pytest.raises(EvidenceError, match=r"history of `state`.*'other'.*7"):
        model.filter(FilterState.from_arrays(arrays))


def test_the_state_of_a_filter_is_shown_in_one_line() -> None:
    stream = labelled_model().filter()
    stream.update(["red", 2, True, 0.5])
    assert repr(stream.state()).startswith("FilterState(num_slices=1, log_likelihood=-")

"""Streams of mixtures: what their saved states may do, and where components end."""

import numpy as np
import pytest

from dspn import DynamicNetwork, FilterState, Model, Schema, Variable
from dspn.errors import EvidenceError
from dspn.structure import Mixture, NetworkBuilder, assemble, from_hmm

BITS = Schema((Variable.binary("bit"), Variable.binary("other")))


def coin(p: float, q: float = 0.5, root: str = "first") -> DynamicNetwork:
    rows = {"bit": [[1 - p, p]], "other": [[1 - q, q]]}
    return from_hmm([1.0], [[1.0]], rows, schema=BITS, root=root)


def multiplying(p: float) -> DynamicNetwork:
    """Outputs that multiply two groups, so that a filter keeps the slices."""
    builder = NetworkBuilder(BITS)
    first, second = builder.input(), builder.input()
    outputs = [
        builder.product([builder.leaf("bit", [1 - p, p]), first, second]),
        builder.leaf("other", [0.5, 0.5]),
    ]
    top = NetworkBuilder(BITS)
    return assemble(builder.template(outputs), top.top(top.product(top.inputs(2))))


def mixed(*networks: DynamicNetwork, weights: list[float] | None = None) -> Model:
    return Model(Mixture(networks, weights or np.full(len(networks), 1 / len(networks))))


def test_a_component_that_has_died_stays_so_and_the_others_go_on() -> None:
    model = mixed(coin(0.0), multiplying(0.0), coin(0.25))
    stream = model.filter()
    surprises = [stream.update([bit, None]).surprise for bit in (0, 1, 0, 1)]
    now = [(2 + 0.75) / 3, 0.25 * 0.75 / 2.75, 0.75, 0.25]
    np.testing.assert_allclose(np.exp(-np.array(surprises)), now, rtol=1e-12)
    np.testing.assert_allclose(stream.predict()["bit"].probabilities, [[0.75, 0.25]], rtol=1e-12)
    again = model.filter(FilterState.from_arrays(stream.state().to_arrays()))
    assert again.update([1, 0]) == stream.update([1, 0])


def test_a_component_without_weight_has_no_track() -> None:
    model = mixed(coin(0.5), coin(0.25), weights=[0.0, 1.0])
    stream, alone = model.filter(), Model(coin(0.25)).filter()
    for bit in (0, 1, 1):
        assert stream.update([bit, None]).surprise == alone.update([bit, None]).surprise
    assert len(stream.state().components) == 1
    resumed = model.filter(FilterState.from_arrays(stream.state().to_arrays()))
    assert resumed.update([0, 1]) == stream.update([0, 1])


def test_a_refused_slice_leaves_the_stream_as_it_was() -> None:
    model = mixed(coin(0.5), multiplying(0.25))
    stream = model.filter()
    stream.update([0, 1])
    before = stream.state().to_arrays()
    with pytest.raises(ValueError):
        stream.update([0, 7])
    after = stream.state().to_arrays()
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


@pytest.mark.parametrize("root", ["first", "last"])
def test_a_saved_state_is_taken_up_by_the_same_mixture_only(root: str) -> None:
    parts = coin(0.5, root=root), coin(0.25, root=root)
    stream = mixed(*parts).filter()
    stream.update([1, 0])
    state = stream.state()
    for other in (
        mixed(*parts, weights=[0.25, 0.75]),
        mixed(*parts[::-1]),
        Model(parts[0]),
    ):
        with pytest.raises(EvidenceError, match="belongs to another model"):
            other.filter(state)
    single = Model(parts[0]).filter().state()
    with pytest.raises(EvidenceError, match="belongs to another model"):
        mixed(*parts).filter(single)


def test_arrays_of_a_mixture_are_named_by_component() -> None:
    stream = mixed(coin(0.5), coin(0.25)).filter()
    arrays = stream.state().to_arrays()
    names = {"scalars", "vectors", "exponents", "history", "fingerprint"}
    names |= {"scale", "low", "total"}
    assert set(arrays) == names | {f"{c}.{name}" for c in (0, 1) for name in names}
    assert set(Model(coin(0.5)).filter().state().to_arrays()) == names


def test_damaged_states_are_refused() -> None:
    model = mixed(coin(0.5), multiplying(0.25))
    stream = model.filter()
    stream.update([1, 0])
    good = stream.state().to_arrays()

    def without(*names: str) -> dict[str, np.ndarray]:
        return {name: array for name, array in good.items() if name not in names}

    lost = [name for name in good if name.startswith("1.")]
    for arrays, said in (
        (without(*lost), "states of 2 components"),
        (without("1.vectors"), "1.vectors"),
        ({**good, "0.vectors": np.ones((5, 1))}, "vectors of `state` must have shape"),
        ({**good, "0.vectors": np.full_like(good["0.vectors"], np.nan)}, "damaged"),
        ({**good, "1.history": np.array([[0.0, 9.0]])}, "history of `state`"),
        ({**good, "1.history": np.zeros((2, 2))}, "history of `state` must have shape"),
        ({**good, "1.scalars": np.array([3.0, 0.0, 0.0])}, "after other numbers of slices"),
        ({**good, "0.scalars": np.array([1.0, np.nan, 0.0])}, "log-likelihood must be a number"),
    ):
        with pytest.raises(EvidenceError, match=said):
            model.filter(FilterState.from_arrays(arrays))


def test_a_past_that_all_longer_networks_rule_out_is_an_error() -> None:
    builder = NetworkBuilder(BITS)
    inputs = builder.inputs(2)
    outputs = [
        builder.product(
            [
                builder.indicator("bit", state),
                builder.leaf("other", [0.5, 0.5]),
                builder.sum(inputs, [1.0, 0.0]),
            ]
        )
        for state in (0, 1)
    ]
    top = NetworkBuilder(BITS)
    root = top.sum(top.inputs(2), [0.5, 0.5])
    network = assemble(builder.template(outputs), top.top(root), root="last")
    model = mixed(network, network)
    stream = model.filter()
    np.testing.assert_allclose(stream.update([1, None]).surprise, np.log(2.0), rtol=1e-12)
    with pytest.raises(EvidenceError, match=r"before slice 1 .* network of 2 slices"):
        stream.update([0, None])
    with pytest.raises(EvidenceError, match="before slice 1"):
        stream.predict()

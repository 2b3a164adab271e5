"""A model of several components, and what every model says of its own."""

from pathlib import Path

import numpy as np
import pytest

from dspn import HMM, Model, Schema, Variable, load
from dspn.errors import DataError, StructureError
from dspn.structure import Mixture, grouped_network, initial_network
from networks import has_gpu

SCHEMA = Schema((Variable.binary("x"), Variable.binary("y")))


def mixture() -> Mixture:
    rng = np.random.default_rng(0)
    one = initial_network(SCHEMA, 3, rng=rng)
    two = grouped_network(SCHEMA, [[0], [1]], num_interfaces=2, num_products=2, rng=rng)
    return Mixture((one, two), [0.3, 0.7])


def test_a_model_of_one_network_is_a_mixture_of_one() -> None:
    network = mixture().components[0]
    model = Model(network)
    assert model.network is network
    assert model.components == (network,)
    assert model.weights.tolist() == [1.0]
    assert model.mixture.fingerprint == network.fingerprint
    assert Model(Mixture.of(network)).network is network
    assert model.program is model.compiled
    found = model.component_posteriors([np.zeros((2, 2)), np.full((1, 2), np.nan)])
    assert found.tolist() == [[1.0], [1.0]]


def test_a_model_of_several_has_components_and_no_single_network() -> None:
    own = mixture()
    model = Model(own)
    assert model.mixture is own
    assert model.components is own.components
    assert model.weights is own.weights
    assert model.schema == SCHEMA
    assert model.root == "first"
    with pytest.raises(StructureError, match=r"take model.components\[i\]"):
        _ = model.network
    with pytest.raises(StructureError, match="has no single program"):
        _ = model.program


def test_a_mixture_is_shown_component_by_component() -> None:
    assert repr(Model(mixture())) == (
        "Model(2 variables, 2 components, root='first')\n"
        "  0.3: 3 interface nodes in 1 group, 15 nodes, 18 edges\n"
        "  0.7: 4 interface nodes in 2 groups, 16 nodes, 16 edges"
    )


def test_anything_but_networks_and_mixtures_is_refused() -> None:
    with pytest.raises(StructureError, match="`network` must be a DynamicNetwork, found list"):
        Model([mixture().components[0]])  # type: ignore[arg-type]


def test_lists_of_arrays_are_read_for_every_query() -> None:
    model = Model(mixture())
    data = [np.array([[0, 1], [None, 1]], dtype=object), np.array([[1, 1]])]
    assert model.component_posteriors(data).shape == (2, 2)
    assert model.interface_posteriors(data).shape == (3, 7)
    # The first component has one group, the second two: each group adds up to its component.
    shares = np.repeat(model.component_posteriors(data), [2, 1], axis=0)
    sums = np.add.reduceat(model.interface_posteriors(data), [0, 3, 5], axis=1)
    np.testing.assert_allclose(sums, shares[:, [0, 1, 1]], rtol=1e-12)


def test_a_fitted_estimator_has_its_mixture() -> None:
    estimator = HMM(1, random_state=3).fit([[["clear"], ["rain"]], [["rain"], ["rain"]]])
    assert estimator.mixture_.only is estimator.network_
    assert estimator.component_posteriors([[["rain"], ["clear"]]]).tolist() == [[1.0]]


def test_some_variables_are_a_model_of_their_own(tmp_path: Path) -> None:
    model = Model(mixture(), provenance={"by": "hand"})
    left = model.over(["y"])
    assert left.schema.names == ("y",)
    assert left.weights.tolist() == [0.3, 0.7]
    assert left.provenance == model.provenance
    values = np.array([[0.0], [1.0], [np.nan], [1.0]])
    whole = np.concatenate([np.full_like(values, np.nan), values], axis=1)
    np.testing.assert_allclose(left.log_likelihood([values]), model.log_likelihood([whole]))
    left.save(tmp_path / "y.dspn")
    again = load(tmp_path / "y.dspn")
    np.testing.assert_array_equal(again.log_likelihood([values]), left.log_likelihood([values]))


def test_variables_are_named_by_a_list_of_known_names() -> None:
    model = Model(mixture())
    assert model.over(["y", "x"]).schema == SCHEMA
    with pytest.raises(DataError, match=r"must be a list of names; write \['x'\]"):
        model.over("x")
    with pytest.raises(DataError, match="found 'z'"):
        model.over(["z"])
    with pytest.raises(DataError, match="at least one"):
        model.over([])


def test_a_model_is_answered_by_the_engine_that_is_asked_for() -> None:
    network = initial_network(SCHEMA, 3, rng=np.random.default_rng(2))
    model = Model(network)
    data = model.sample(5, 4, rng=np.random.default_rng(3))
    other = model.to("reference")
    assert type(other.compiled.components[0]) is not type(model.compiled.components[0])
    np.testing.assert_allclose(other.log_likelihood(data), model.log_likelihood(data), rtol=1e-12)
    with pytest.raises(StructureError, match="`engine` must be 'cpu', 'gpu' or 'reference'"):
        model.to("tpu")


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_a_machine_without_a_gpu_says_so_in_one_sentence() -> None:
    model = Model(initial_network(SCHEMA, 3, rng=np.random.default_rng(2)))
    data = model.sample(2, 3, rng=np.random.default_rng(3))
    with pytest.raises(StructureError, match=r"`engine='gpu'` needs .*engine='cpu'"):
        model.to("gpu").log_likelihood(data)

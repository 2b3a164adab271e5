"""Mixtures of whole networks: what may stand under one root sum."""

import dataclasses

import numpy as np
import pytest

from dspn import Schema, Variable
from dspn.errors import StructureError
from dspn.structure import DynamicNetwork, Mixture, grouped_network, initial_network

SCHEMA = Schema((Variable.binary("x"), Variable.continuous("y")))
OTHER = Schema((Variable.binary("x"), Variable.count("y")))


def network(seed: int = 0, schema: Schema = SCHEMA, root: str = "first") -> DynamicNetwork:
    return initial_network(schema, 3, root=root, rng=np.random.default_rng(seed))


def grouped(seed: int = 0) -> DynamicNetwork:
    rng = np.random.default_rng(seed)
    return grouped_network(SCHEMA, [[0], [1]], num_interfaces=2, num_products=2, rng=rng)


def test_components_of_different_groups_stand_side_by_side() -> None:
    mixture = Mixture((network(), grouped()), [0.25, 0.75])
    assert (len(mixture), mixture.num_interfaces, mixture.interface_offsets) == (2, 7, (0, 3))
    assert mixture.schema is mixture.components[0].schema
    assert mixture.root == "first"
    assert list(mixture) == list(mixture.components)
    assert mixture.weights.tolist() == [0.25, 0.75]
    assert not mixture.weights.flags.writeable
    assert repr(mixture) == (
        "Mixture(0.25 x 3 interface nodes, 0.75 x 4 interface nodes; 2 variables, root='first')"
    )


def test_a_mixture_cannot_be_changed() -> None:
    weights = np.array([0.5, 0.5])
    mixture = Mixture([network(), network(1)], weights)  # type: ignore[arg-type]
    weights[0] = 7.0
    assert mixture.weights.tolist() == [0.5, 0.5]
    assert isinstance(mixture.components, tuple)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mixture.weights = weights  # type: ignore[misc]


def test_a_mixture_of_one_is_the_network() -> None:
    own = network()
    mixture = Mixture.of(own)
    assert mixture.only is own
    assert mixture.weights.tolist() == [1.0]
    assert mixture.fingerprint == own.fingerprint


def test_a_mixture_of_several_has_no_only_component() -> None:
    mixture = Mixture((network(), network(1), grouped()), [0.5, 0.5, 0.0])
    with pytest.raises(StructureError, match=r"mixture of 3 components.*model.components\[i\]"):
        _ = mixture.only


def test_fingerprints_tell_components_their_order_and_their_weights() -> None:
    parts = (network(), network(1))
    same = [Mixture(parts, [0.5, 0.5]).fingerprint for _ in range(2)]
    others = [
        Mixture(parts, [np.nextafter(0.5, 1), 0.5]).fingerprint,
        Mixture(parts[::-1], [0.5, 0.5]).fingerprint,
        Mixture((parts[0], grouped()), [0.5, 0.5]).fingerprint,
        Mixture((*parts, grouped()), [0.5, 0.5, 0.0]).fingerprint,
        parts[0].fingerprint,
    ]
    assert same[0] == same[1]
    assert len({same[0], *others}) == 6
    assert all(len(fingerprint) == 32 for fingerprint in others)


WRONG = {
    "no components": ((), [], "at least one DynamicNetwork"),
    "one network": (network(), [1.0], "must be a list, found DynamicNetwork"),
    "a number": (3, [1.0], "must be a list, found int; give a list of DynamicNetwork"),
    "a number among them": ((network(), 3), [0.5, 0.5], r"components\[1\]` must be a Dynamic"),
    "another schema": ((network(), network(schema=OTHER)), [0.5, 0.5], "share one schema"),
    "another root": (
        (network(), network(root="last")),
        [0.5, 0.5],
        r"\[1\] has root 'last'",
    ),
    "a weight too few": ((network(), network(1)), [1.0], "each of the 2 components"),
    "weights as a matrix": ((network(),), [[1.0]], "each of the 1 components"),
    "negative weight": ((network(), network(1)), [1.5, -0.5], "not negative.*-0.5"),
    "NaN": ((network(), network(1)), [np.nan, 1.0], "finite"),
    "weights of 0.9": ((network(), network(1)), [0.5, 0.4], "sums to 0.9; divide it by its sum"),
    "weights of zero": ((network(), network(1)), [0.0, 0.0], "sums to 0"),
    "text": ((network(),), ["much"], "`weights` must be numbers"),
}


@pytest.mark.parametrize("which", WRONG)
def test_what_cannot_stand_under_one_root_is_refused(which: str) -> None:
    components, weights, said = WRONG[which]
    with pytest.raises(StructureError, match=said):
        Mixture(components, weights)  # type: ignore[arg-type]


def test_weights_add_up_within_the_tolerance_of_sums() -> None:
    Mixture((network(), network(1)), [0.5, 0.5 + 1e-10])
    with pytest.raises(StructureError, match="sums to"):
        Mixture((network(), network(1)), [0.5, 0.5 + 1e-8])


def test_only_a_network_can_be_alone() -> None:
    with pytest.raises(StructureError, match="`network` must be a DynamicNetwork"):
        Mixture.of(Mixture.of(network()))  # type: ignore[arg-type]

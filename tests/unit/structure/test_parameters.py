"""Weights are distributions and leaves are allowed, in template, bottom and top alike."""

import numpy as np
import pytest

from dspn.errors import DspnError, StructureError
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters
from strategies import random_network, random_recipe

RECIPE = random_recipe(
    0, kinds=("binary", "continuous", "count"), num_groups=1, sizes=(3,), tied=False, zeros=0.0
)
NETWORK = random_network(RECIPE)


def rebuilt(
    part: str, *, weights: np.ndarray | None = None, leaves: tuple[np.ndarray, ...] | None = None
) -> None:
    """The network with one part's numbers exchanged."""
    parameters = NETWORK.parameters
    parts = {"template": parameters.template, "top": parameters.top, "bottom": parameters.bottom}
    old = parts[part]
    assert old is not None
    parts[part] = NetworkParameters(
        old.weights if weights is None else weights, old.leaves if leaves is None else leaves
    )
    NETWORK.with_parameters(Parameters(parts["template"], parts["top"], parts["bottom"]))  # type: ignore[arg-type]


def weights_of(part: str) -> np.ndarray:
    return np.array(getattr(NETWORK.parameters, part).weights)


PARTS = ["template", "top", "bottom"]


@pytest.mark.parametrize("part", PARTS)
def test_negative_weight_is_refused_though_the_sum_is_one(part: str) -> None:
    weights = weights_of(part)
    offsets = NETWORK.top.edge_offsets if part == "top" else NETWORK.template.edge_offsets
    nodes = NETWORK.top.nodes if part == "top" else NETWORK.template.nodes
    index, start = next((i, s) for i, s in offsets.items() if len(nodes[i].children) > 1)  # type: ignore[union-attr]
    weights[start], weights[start + 1] = weights[start] + weights[start + 1] + 0.25, -0.25
    with pytest.raises(StructureError, match=rf"sum {index} of the {part} network.*not negative"):
        rebuilt(part, weights=weights)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("factor", [0.5, 1.001, 1 + 1e-6])
def test_unnormalised_weights_are_refused(part: str, factor: float) -> None:
    with pytest.raises(
        StructureError, match=rf"of the {part} network has weights that sum to {factor:.4g}"
    ):
        rebuilt(part, weights=weights_of(part) * factor)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weight_that_is_not_finite_is_refused(part: str, bad: float) -> None:
    weights = weights_of(part)
    weights[0] = bad
    with pytest.raises(StructureError, match=f"of the {part} network has weights.*finite"):
        rebuilt(part, weights=weights)


@pytest.mark.parametrize("part", PARTS)
def test_weights_of_wrong_shape_are_refused(part: str) -> None:
    weights = weights_of(part)
    for wrong in (weights[:-1], np.append(weights, 1.0), weights[None, :]):
        with pytest.raises(StructureError, match=f"the {part} network needs a weight for each"):
            rebuilt(part, weights=wrong)


@pytest.mark.parametrize("part", ["template", "bottom"])
def test_leaf_parameters_outside_their_family_are_refused(part: str) -> None:
    leaves = getattr(NETWORK.parameters, part).leaves
    planted = {0: (0, 1.5), 1: (1, -1.0), 2: (0, -0.5)}
    for bank, (column, value) in planted.items():
        rows = np.array(leaves[bank])
        rows[-1, column] = value
        wrong = tuple(rows if number == bank else own for number, own in enumerate(leaves))
        with pytest.raises(
            StructureError, match=f"variable 'x{bank}' in the {part} network.*not allowed"
        ):
            rebuilt(part, leaves=wrong)


@pytest.mark.parametrize("part", ["template", "bottom"])
def test_leaf_parameters_of_wrong_shape_are_refused(part: str) -> None:
    leaves = getattr(NETWORK.parameters, part).leaves
    with pytest.raises(StructureError, match=f"the {part} network needs 3 arrays"):
        rebuilt(part, leaves=leaves[:-1])
    with pytest.raises(StructureError, match=f"variable 'x0' in the {part} network need.*shape"):
        rebuilt(part, leaves=(leaves[0][:-1], *leaves[1:]))


def test_unknown_root_is_refused() -> None:
    with pytest.raises(StructureError, match="`root` must be 'first' or 'last', not 'middle'"):
        DynamicNetwork(NETWORK.template, NETWORK.top, NETWORK.parameters, "middle")  # type: ignore[arg-type]


def test_structure_error_is_a_value_error_of_the_library() -> None:
    assert issubclass(StructureError, ValueError)
    assert issubclass(StructureError, DspnError)


def test_parameters_cannot_be_written_to_and_do_not_follow_the_callers_array() -> None:
    own = np.array(NETWORK.parameters.top.weights)
    kept = NetworkParameters(own)
    own[:] = 7.0
    np.testing.assert_array_equal(kept.weights, NETWORK.parameters.top.weights)
    with pytest.raises(ValueError, match="read-only"):
        kept.weights[0] = 0.5

"""What went wrong while learning: nodes that nothing flows through, parameters that left range."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, final

import numpy as np

from dspn._arrays import Floats
from dspn.engine import ExpectedFlows, NetworkFlows
from dspn.errors import NumericalError
from dspn.structure import DynamicNetwork, Node, Parameters, Product, Sum, Template, Top
from dspn.structure.nodes import children_of
from dspn.structure.parameters import NetworkParameters, sum_starts
from dspn.structure.validity import bottom_nodes

Part = Literal["template", "bottom", "top"]


@final
@dataclass(frozen=True)
class DeadNode:
    """A node through which (almost) nothing flows, so that the data say nothing about it.

    `what` says what it is: a sum, a leaf of a variable, or an interface by its position. An
    interface is named by its output node in the template.
    """

    network: Part
    node: int
    what: str

    @property
    def is_interface(self) -> bool:
        """Whether it is an interface node, below which everything of its own is dead, too."""
        return self.what.startswith("interface ")

    def __str__(self) -> str:
        return f"{self.what} (node {self.node} of the {self.network} network)"


def dead_nodes(
    network: DynamicNetwork, flows: ExpectedFlows, least: float = 1e-8
) -> tuple[DeadNode, ...]:
    """Sums, leaves and interfaces whose expected number of uses is below `least`.

    A leaf is used by an observed value: one whose variable is always missing where it is reached
    counts as dead. An interface is dead where no path of edges with flow leads from the root to it;
    a product of inputs at the bottom slice, which are read there by nobody, counts as such a path.
    """
    template, top = network.template, network.top
    found = [
        *_dead_interfaces(template, top, flows, least),
        *_dead_sums(template, flows.template.weights, "template", least),
        *_dead_leaves(template, flows.template, "template", least),
        *_dead_sums(top, flows.top.weights, "top", least),
    ]
    if flows.bottom is not None:
        # Sums over inputs alone are no part of the bottom network.
        kept = bottom_nodes(template)
        sums = _dead_sums(template, flows.bottom.weights, "bottom", least)
        found.extend(dead for dead in sums if isinstance(kept[dead.node], Sum))
        found.extend(_dead_leaves(template, flows.bottom, "bottom", least))
    return tuple(found)


def _dead_sums(
    part: Template | Top, flows: Floats, network: Part, least: float
) -> Iterator[DeadNode]:
    if not flows.size:
        return
    totals = np.add.reduceat(flows, sum_starts(part))
    sums = list(part.edge_offsets)
    for number in np.flatnonzero(totals < least).tolist():
        yield DeadNode(network, sums[number], "sum")


def _dead_leaves(
    template: Template, flows: NetworkFlows, network: Part, least: float
) -> Iterator[DeadNode]:
    for bank, statistics in zip(template.banks, flows.leaves, strict=True):
        what = f"leaf of variable {template.schema[bank.variable].name!r}"
        for row in np.flatnonzero(statistics[:, 0] < least).tolist():
            yield DeadNode(network, bank.nodes[row], what)


def _dead_interfaces(
    template: Template, top: Top, flows: ExpectedFlows, least: float
) -> Iterator[DeadNode]:
    from_root = _through_products(top.nodes, {top.root, *_fed(top, flows.top.weights, least)})
    used = {position for position, node in enumerate(top.inputs) if node in from_root}
    fed = _fed(template, flows.template.weights, least)
    reached: set[int] = set()
    waiting = fed | {template.outputs[position] for position in used}
    while waiting:
        reached |= _through_products(template.nodes, waiting)
        more = {position for position, node in enumerate(template.inputs) if node in reached}
        used |= more
        waiting = {template.outputs[position] for position in more} - reached
    for position in sorted(set(range(template.num_interfaces)) - used):
        yield DeadNode("template", template.outputs[position], f"interface {position}")


def _fed(part: Template | Top, flows: Floats, least: float) -> set[int]:
    """The nodes that a sum edge with flow leads to."""
    below = chain.from_iterable(children_of(part.nodes[index]) for index in part.edge_offsets)
    children = np.fromiter(below, dtype=np.int64, count=part.num_weights)
    return set(np.unique(children[flows >= least]).tolist())


def _through_products(nodes: Sequence[Node], roots: set[int]) -> set[int]:
    """The roots, and what products among them are products of."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        index = waiting.pop()
        node = nodes[index]
        if index not in seen and isinstance(node, Product):
            waiting.extend(node.children)
        seen.add(index)
    return seen


def check_finite(network: DynamicNetwork, parameters: Parameters | None = None) -> None:
    """Raises unless all parameters, those of the network or others for it, are finite numbers."""
    own = network.parameters if parameters is None else parameters
    template = network.template
    _check_weights(template, own.template.weights, "template")
    _check_leaves(template, own.template, "template")
    _check_weights(network.top, own.top.weights, "top")
    if own.bottom is not None:
        _check_weights(template, own.bottom.weights, "bottom")
        _check_leaves(template, own.bottom, "bottom")


_REMEDY: Final = (
    "The data or the sample weights are too large or too small for the arithmetic; rescale them, "
    "or use stronger priors."
)


def _check_weights(part: Template | Top, weights: Floats, network: Part) -> None:
    finite = np.isfinite(weights)
    if finite.all():
        return
    number = int(np.searchsorted(sum_starts(part), int(np.argmin(finite)), side="right")) - 1
    node = list(part.edge_offsets)[number]
    raise NumericalError(
        f"sum {node} of the {network} network has weights that are not finite, such as "
        f"{weights[np.argmin(finite)]}. {_REMEDY}"
    )


def _check_leaves(template: Template, own: NetworkParameters, network: Part) -> None:
    for bank, rows in zip(template.banks, own.leaves, strict=True):
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise NumericalError(
                f"leaf {bank.nodes[row]} of variable {template.schema[bank.variable].name!r} in "
                f"the {network} network has parameters {rows[row].tolist()}, which are not finite. "
                f"{_REMEDY}"
            )

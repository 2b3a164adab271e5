"""The structure of a split network: which nodes are copied, and where every weight comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.structure.graph import reachable
from dspn.structure.nodes import Input, Node, Product, Sum, children_of
from dspn.structure.template import Template, Top


@final
@dataclass(frozen=True, eq=False)
class Edges:
    """Where the weights of a split network come from, in the order of its flat weight vector.

    Weight e begins as weight `source[e]` of the network before, or as 1 where that is -1. An edge
    to an old input and the edge to its twin beside it share a weight: `pair` numbers the pairs
    (-1: not shared) and `twin` marks the second of each. `copied` marks the edges of copied sums;
    `first` has where each sum begins.
    """

    source: Ints
    pair: Ints
    twin: Bools
    copied: Bools
    first: Ints


@final
@dataclass(frozen=True, eq=False)
class Doubled:
    """Nodes after a split: old ones keep their numbers, new ones stand behind them.

    `original` has the old node of each copied node, in their order.
    """

    nodes: tuple[Node, ...]
    edges: Edges
    original: tuple[int, ...]


@final
class _Draft:
    """The nodes of a split network while they are being laid down."""

    def __init__(self, network: Template | Top, twins: Mapping[int, int]) -> None:
        self.old = network.nodes
        self.offsets = network.edge_offsets
        self.twins = twins
        self.nodes: list[Node] = list(network.nodes)
        self.origin: list[int] = list(range(len(network.nodes)))

    def add(self, node: Node, origin: int = -1) -> int:
        """Puts a node behind the others; `origin` is the old node that it copies."""
        self.nodes.append(node)
        self.origin.append(origin)
        return len(self.nodes) - 1

    def copy(self, root: int) -> int:
        """Copies the sub-network of a root down to the inputs, which are shared."""
        below = sorted(i for i in reachable(self.old, [root]) if not isinstance(self.old[i], Input))
        number = {node: len(self.nodes) + place for place, node in enumerate(below)}
        for node in below:
            own = self.old[node]
            if isinstance(own, Sum | Product):
                own = type(own)(tuple(number.get(child, child) for child in own.children))
            self.add(own, node)
        return number[root]

    def either(self, node: int) -> int:
        """A new sum over an input and its twin; any other node stands for itself."""
        return self.add(Sum((node, self.twins[node]))) if node in self.twins else node

    def pair_up(self) -> None:
        """Puts twins beside the inputs: as children of sums, and by a sum of two in products."""
        for number, node in enumerate(list(self.nodes)):
            twinned = [child for child in children_of(node) if child in self.twins]
            if not twinned:
                continue
            if isinstance(node, Product):
                self.nodes[number] = Product(tuple(map(self.either, node.children)))
            elif isinstance(node, Sum) and self.origin[number] >= 0:
                beside = tuple(self.twins[child] for child in twinned)
                self.nodes[number] = Sum(node.children + beside)

    def finished(self) -> Doubled:
        """The nodes, and where the weights of their sums come from."""
        source: list[Ints] = []
        place: list[Ints] = []
        widths: list[int] = []
        copied: list[bool] = []
        for number, node in enumerate(self.nodes):
            if isinstance(node, Sum):
                origin = self.origin[number]
                own, shared = self._sources(node, origin)
                source.append(own)
                place.append(shared)
                widths.append(len(node.children))
                copied.append(number >= len(self.old) and origin >= 0)
        return Doubled(
            tuple(self.nodes),
            _edges(source, place, np.array(widths, dtype=np.int64), copied),
            tuple(o for o in self.origin[len(self.old) :] if o >= 0),
        )

    def _sources(self, node: Sum, origin: int) -> tuple[Ints, Ints]:
        """Old weights of a sum's edges, and which of its children are shared with a twin."""
        if origin < 0:
            return np.array([-1, -1]), np.array([0])
        old = children_of(self.old[origin])
        shared = np.array([i for i, child in enumerate(old) if child in self.twins], dtype=np.int64)
        start = self.offsets[origin]
        return np.concatenate([np.arange(start, start + len(old)), start + shared]), shared


def _edges(
    source: Sequence[Ints], place: Sequence[Ints], widths: Ints, copied: Sequence[bool]
) -> Edges:
    total = int(widths.sum())
    first = np.cumsum(widths) - widths
    pair = np.full(total, -1, dtype=np.int64)
    twin = np.zeros(total, dtype=np.bool_)
    count = 0
    for start, width, shared in zip(first.tolist(), widths.tolist(), place, strict=True):
        numbers = np.arange(count, count + shared.size)
        last = start + width
        pair[start + shared] = numbers
        pair[last - shared.size : last] = numbers
        twin[last - shared.size : last] = True
        count += shared.size
    flat = np.concatenate(source) if source else np.zeros(0, dtype=np.int64)
    return Edges(flat, pair, twin, np.repeat(np.array(copied, dtype=np.bool_), widths), first)


def doubled_template(template: Template, positions: Sequence[int]) -> tuple[Template, Doubled]:
    """The template with a copy of each output at `positions`, and an input for each copy."""
    k = template.num_interfaces
    count = len(template.nodes)
    twins = {template.inputs[position]: count + i for i, position in enumerate(positions)}
    draft = _Draft(template, twins)
    for number in range(len(positions)):
        draft.add(Input(k + number))
    copies = [draft.copy(template.outputs[position]) for position in positions]
    draft.pair_up()
    doubled = draft.finished()
    return Template(template.schema, doubled.nodes, (*template.outputs, *copies)), doubled


def doubled_top(top: Top, positions: Sequence[int]) -> tuple[Top, Doubled]:
    """The top network with a twin beside each input at `positions`."""
    count = len(top.nodes)
    twins = {top.inputs[position]: count + i for i, position in enumerate(positions)}
    draft = _Draft(top, twins)
    for number in range(len(positions)):
        draft.add(Input(top.num_inputs + number))
    draft.pair_up()
    root = draft.either(top.root)
    doubled = draft.finished()
    return Top(top.num_inputs + len(positions), doubled.nodes, root), doubled


def doubled_weights(old: Floats, edges: Edges, rng: np.random.Generator, noise: float) -> Floats:
    """Old weights shared out between twins, and those of copies times exp(noise N(0, 1))."""
    weights = np.where(edges.source >= 0, np.append(old, 1.0)[edges.source], 1.0)
    shares = 1.0 / (1.0 + np.exp(noise * rng.standard_normal(edges.pair.max(initial=-1) + 1)))
    own = np.append(shares, 1.0)[edges.pair]
    weights *= np.where(edges.twin, 1.0 - own, own)
    factors = np.exp(noise * rng.standard_normal(int(edges.copied.sum())))
    weights[edges.copied] *= factors
    if not edges.first.size:
        return weights
    # Other sums add up to 1 as they did; dividing them would change their last bits.
    totals = np.where(edges.copied[edges.first], np.add.reduceat(weights, edges.first), 1.0)
    widths = np.diff(np.append(edges.first, weights.size))
    normalised: Floats = weights / np.repeat(totals, widths)
    return normalised

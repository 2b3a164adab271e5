"""Regrowing: transitions that are not there, but that the data would use, are put back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import require_type, whole_number
from dspn.data import Sequences
from dspn.engine import Program, compile_program
from dspn.errors import DataError, StructureError
from dspn.inference import interface_posteriors
from dspn.learning.moves._shapes import sums_of
from dspn.structure import (
    DynamicNetwork,
    Leaf,
    NetworkParameters,
    Node,
    Parameters,
    Product,
    Root,
    Sum,
    Template,
)
from dspn.structure.nodes import children_of
from dspn.structure.parameters import sum_starts
from dspn.structure.validity import network_scopes

# New edges have at most this share of a sum's weight: what was learned stays nearly as it is.
_MOST_WEIGHT: Final = 0.05
# Posteriors of this many slices times interface nodes are held at a time.
_NUMBERS_AT_ONCE: Final = 1 << 24


@final
@dataclass(frozen=True, eq=False)
class _Additions:
    """New edges from `parent` sums to the inputs `child`, in the order of the sums.

    `share[e]` is the weight of edge e.
    """

    parent: Ints
    child: Ints
    share: Floats


def transitions(template: Template) -> dict[int, int]:
    """The sum of inputs that each plain output multiplies, by the output's position.

    An output is plain where it is a product of one sum of inputs and of nodes without inputs below.
    """
    sums = sums_of(template, template.inputs)
    nodes = tuple(Product(()) if isinstance(node, Leaf) else node for node in template.nodes)
    reads = network_scopes(nodes, template.order, [1] * template.num_interfaces)
    found: dict[int, int] = {}
    for position, output in enumerate(template.outputs):
        if isinstance(template.nodes[output], Product):
            factors = [child for child in children_of(template.nodes[output]) if reads[child]]
            if len(factors) == 1 and factors[0] in sums:
                found[position] = factors[0]
    return found


def _runs(data: Sequences, num_interfaces: int) -> Iterator[Sequences]:
    """The sequences in order, in runs whose posteriors fit in memory."""
    most = max(_NUMBERS_AT_ONCE // num_interfaces, 1)
    run = (np.cumsum(data.lengths) - data.lengths) // most
    for members in np.split(np.arange(len(data)), np.flatnonzero(np.diff(run)) + 1):
        yield data[members]


def _neighbouring_use(program: Program, data: Sequences) -> Floats:
    """Sum over neighbouring slices of P(i at the upper) P(j at the lower), (k, k)."""
    found = np.zeros((program.num_interfaces, program.num_interfaces))
    for part in _runs(data, program.num_interfaces):
        posteriors = interface_posteriors(program, part)
        later = np.ones(part.total_slices, dtype=np.bool_)
        later[part.offsets[:-1]] = False
        after = np.flatnonzero(later)
        upper, lower = after - 1, after
        if program.network.root == Root.LAST:
            upper, lower = lower, upper
        found += posteriors[upper].T @ posteriors[lower]
    return found


def _use_of_sums(network: DynamicNetwork, use: Floats) -> tuple[list[int], Floats, Floats]:
    """Sums of inputs, their use of each input, and the same with zeros where there is an edge.

    Inputs count that are of the group which the sum reads. A sum of several outputs has the use of
    all of them.
    """
    template = network.template
    group_of = {position: group for group in network.groups for position in group}
    position_of = {node: position for position, node in enumerate(template.inputs)}
    above: dict[int, list[int]] = {}
    for position, parent in transitions(template).items():
        above.setdefault(parent, []).append(position)
    parents = sorted(above)
    table = np.zeros((len(parents), network.num_interfaces))
    absent = np.zeros_like(table)
    for row, parent in enumerate(parents):
        present = [position_of[child] for child in children_of(template.nodes[parent])]
        own = list(group_of[present[0]])
        table[row, own] = use[np.ix_(above[parent], own)].sum(axis=0)
        absent[row] = table[row]
        absent[row, present] = 0.0
    return parents, table, absent


def _additions(network: DynamicNetwork, use: Floats, count: int) -> _Additions:
    """The `count` edges that are not there and have the largest use."""
    parents, table, absent = _use_of_sums(network, use)
    best = np.argsort(-absent, axis=None, kind="stable")[:count]
    chosen = np.sort(best[absent.ravel()[best] > 0])
    rows, positions = np.divmod(chosen, network.num_interfaces)
    share = table.ravel()[chosen] / table.sum(axis=1)[rows]
    total = np.bincount(rows, share, minlength=len(parents))
    share *= np.minimum(1.0, _MOST_WEIGHT / np.maximum(total, _MOST_WEIGHT))[rows]
    inputs = np.array(network.template.inputs)
    return _Additions(np.array(parents, dtype=np.int64)[rows], inputs[positions], share)


def _extended(template: Template, new: _Additions) -> Template:
    """The template with the new edges behind the old ones of their sums."""
    more: dict[int, list[int]] = {}
    for parent, child in zip(new.parent.tolist(), new.child.tolist(), strict=True):
        more.setdefault(parent, []).append(child)
    nodes: list[Node] = list(template.nodes)
    for parent, children in more.items():
        nodes[parent] = Sum((*children_of(nodes[parent]), *children))
    return Template(template.schema, tuple(nodes), template.outputs)


def _weights(template: Template, old: Floats, new: _Additions) -> Floats:
    """Weights with those of the new edges, for which the old ones of their sums make room."""
    starts = sum_starts(template)
    widths = np.diff(np.append(starts, old.size))
    number = {node: place for place, node in enumerate(template.edge_offsets)}
    sums = np.array([number[parent] for parent in new.parent.tolist()], dtype=np.int64)
    room = 1.0 - np.bincount(sums, new.share, minlength=starts.size)
    return np.insert(old * np.repeat(room, widths), (starts + widths)[sums], new.share)


def regrown(network: DynamicNetwork, data: Sequences, count: int) -> DynamicNetwork:
    """The network with up to `count` more transitions: those that the data would use most.

    The use of an edge from output i to input j that is not there is estimated as the sum over
    neighbouring slices of P(i at the upper | evidence) P(j at the lower | evidence). A new edge
    has its share of the use of all inputs as its weight, and the new edges of a sum at most a
    twentieth together; the old ones make room for them. One step of EM then shows what each is
    worth. Edges without use are not added, and outputs other than products of one sum of inputs
    and the slice's own nodes stay as they are.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    require_type(data, Sequences, "data", DataError)
    wanted = whole_number(count, "count", StructureError, least=0)
    template, old = network.template, network.parameters
    if not wanted:
        return network
    new = _additions(network, _neighbouring_use(compile_program(network), data), wanted)
    if not new.parent.size:
        return network

    def carried(own: NetworkParameters) -> NetworkParameters:
        return NetworkParameters(_weights(template, own.weights, new), own.leaves)

    bottom = None if old.bottom is None else carried(old.bottom)
    parameters = Parameters(carried(old.template), old.top, bottom)
    return DynamicNetwork(_extended(template, new), network.top, parameters, network.root)

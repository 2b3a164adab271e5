"""Structure as data: a network's nodes as rows of a value matrix and the operations that fill them.

A template is laid out in two parts. The *slice part* holds every node with no input below it; it
depends on the slice's values only, so it runs for all slices (or all distinct slices) at once. What
it hands over are *coefficients*: for each product that joins slice nodes with the interface, the
product of its slice children, and outputs that begin afresh. The *mix part* holds the rest, and is
the only one that runs slice after slice. Sums over most of a group's inputs are gathered into dense
matrices; with one group per output a slice is then v_out = C(x) W v_in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.engine.cpu.records import PRODUCT, SUM, Operations
from dspn.structure.chain import is_chain, reads_inputs, transition_sums
from dspn.structure.graph import reachable
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Node, Product, Sum, children_of
from dspn.structure.template import Template, Top
from dspn.structure.validity import group_sources, interface_groups, network_scopes

# A sum over at least this share of a group's inputs is a row of a matrix product.
_DENSE_SHARE = 0.5


@final
@dataclass(frozen=True)
class Paths:
    """Ways of computing, which all give the same results.

    Args:
        chains: Whether templates that are chains run as matrix products (`kernels.chain`).
        sparse_share: A chain's matrix of fewer edges than this share of its entries is sparse.
            Measured, both ways take the same time at 0.3 for 32 nodes and at 0.45 for 256.
        fewest_sparse: Smaller groups than this have dense matrices.
        fewest_single: Smaller groups than this are no faster in single precision.
        distinct_slices: Whether coefficients are computed once for every distinct slice where
            slices repeat.
        lanes: Sequences to a block; None chooses.
        segment_bytes: Room for what passes keep of a segment.
        cached_bytes: Room for what is computed for a segment and read right after.
        doubt: Whether every result of linear arithmetic is computed again in log space.
        threads: Number of threads; None takes DSPN_NUM_THREADS, else the processors.
        worth_leaving_out: Edges times slices that a likelihood must save before the groups without
            evidence are left out.
    """

    chains: bool = True
    sparse_share: float = 0.3
    fewest_sparse: int = 32
    fewest_single: int = 16
    distinct_slices: bool = True
    lanes: int | None = None
    segment_bytes: int = 8 << 20
    cached_bytes: int = 1 << 20
    doubt: bool = False
    threads: int | None = None
    worth_leaving_out: int = 2**27


@final
@dataclass(frozen=True, eq=False)
class WeightMap:
    """Where each weight goes, in the order of `op_child` and in the dense matrices.

    The weight of edge `op_edge[i]` stands at `op_position[i]`, and likewise for the matrices.
    """

    num_op_weights: int
    op_position: Ints
    op_edge: Ints
    num_mix_weights: int
    mix_position: Ints
    mix_edge: Ints

    def scatter(self, weights: Floats) -> tuple[Floats, Floats]:
        """Weights of the operations' children (1 for products) and of the matrices (0: no edge)."""
        op_weight = np.ones(self.num_op_weights)
        op_weight[self.op_position] = weights[self.op_edge]
        mix_weight = np.zeros(self.num_mix_weights)
        mix_weight[self.mix_position] = weights[self.mix_edge]
        return op_weight, mix_weight


@final
@dataclass(frozen=True, eq=False)
class Part:
    """Operations and the places of their weights."""

    operations: Operations
    weights: WeightMap


@final
@dataclass(frozen=True, eq=False)
class Transitions:
    """The edges of a chain's sums, by output and then by input, which are numbered by input row.

    Edge e leads from input `source[e]` to output `target[e]`; its weight is number `place[e]` of
    the weights of the operations and, after them, of the matrices. `loads[i]` is the coefficient of
    output i. Edges `group_start[g] : group_start[g + 1]` belong to group g, whose matrix is sparse
    where `is_sparse[g]`: there a slice costs as much as its edges.
    """

    loads: Ints
    target: Ints
    source: Ints
    place: Ints
    group_start: Ints
    is_sparse: Bools

    @cached_property
    def sparse_edges(self) -> Ints:
        """The edges of sparse matrices by output."""
        return np.flatnonzero(np.repeat(self.is_sparse, np.diff(self.group_start)))

    @cached_property
    def sparse_edges_by_input(self) -> Ints:
        """The edges of sparse matrices by input, and then by output."""
        own = self.sparse_edges
        found: Ints = own[np.argsort(self.source[own], kind="stable")]
        return found


@final
@dataclass(frozen=True, eq=False)
class TemplateLayout:
    """The two parts of a template.

    `input_order[r]` is the interface position of input row r. Load i of the slice part is leaf
    `load_member[i]` of bank `load_bank[i]`; its outputs are the coefficients, which are the loads
    of the mix part. `scalable[g]` says that all coefficients of group g have one scope, so that
    they may be divided by a common number. `factors[c, v]` is the load of variable v that
    coefficient c is a product of (-1: none), where all coefficients are products of leaves.
    `transitions` are there where the template is a chain.
    """

    slice_part: Part
    mix_part: Part
    input_order: Ints
    groups: tuple[tuple[int, ...], ...]
    load_bank: Ints
    load_member: Ints
    scalable: Ints
    factors: Ints | None
    transitions: Transitions | None


@final
@dataclass(frozen=True, eq=False)
class TopLayout:
    """The top network in the template's order of inputs."""

    part: Part
    root_row: int


def _ints(values: Sequence[int] | Ints) -> Ints:
    return np.array(values, dtype=np.int64)


@final
class _Assembly:
    """Rows and operations while they are being laid out; keys of rows are node numbers."""

    def __init__(self) -> None:
        self.row: dict[int, int] = {}
        self.kind: list[int] = []
        self.filled: list[int] = []
        self.filled_keys: list[int] = []
        self.start: list[int] = [0]
        self.child: list[int] = []
        self.op_position: list[int] = []
        self.op_edge: list[int] = []
        self.mixes: list[tuple[int, int, int, int]] = []
        self.mix_position: list[int] = []
        self.mix_edge: list[int] = []
        self.num_mix_weights = 0
        self.next_row = 0

    def place(self, node: int) -> None:
        self.row[node] = self.next_row
        self.next_row += 1

    def add_mix(self, group: int, rows: range, members: Sequence[int], template: Template) -> None:
        """Adds a dense matrix over the input rows `rows` of a group, with a row for each sum."""
        self.mixes.append((self.next_row, len(members), group, self.num_mix_weights))
        for node in members:
            own = template.nodes[node]
            assert isinstance(own, Sum)
            start = self.num_mix_weights - rows.start
            self.mix_position.extend(start + self.row[child] for child in own.children)
            first = template.edge_offsets[node]
            self.mix_edge.extend(range(first, first + len(own.children)))
            self.num_mix_weights += len(rows)
            self.place(node)

    def add_product(self, key: int, rows: Sequence[int]) -> None:
        self.kind.append(PRODUCT)
        self._finish(key, rows)

    def add_sum(self, key: int, rows: Sequence[int], first_edge: int) -> None:
        self.kind.append(SUM)
        self.op_position.extend(range(len(self.child), len(self.child) + len(rows)))
        self.op_edge.extend(range(first_edge, first_edge + len(rows)))
        self._finish(key, rows)

    def _finish(self, key: int, rows: Sequence[int]) -> None:
        self.child.extend(rows)
        self.start.append(len(self.child))
        self.place(key)
        self.filled.append(self.row[key])
        self.filled_keys.append(key)

    def part(
        self,
        num_inputs: int,
        load_group: Sequence[int],
        outputs: Sequence[int],
        group_sizes: Sequence[int],
        sources: Sequence[Sequence[int]],
        bare: frozenset[int] = frozenset(),
    ) -> Part:
        row_op = np.full(self.next_row, -1, dtype=np.int64)
        row_op[self.filled] = np.arange(len(self.filled))
        for number, (first, size, _, _) in enumerate(self.mixes):
            row_op[first : first + size] = -2 - number
        mixes = np.array(self.mixes, dtype=np.int64).reshape(-1, 4)
        operations = Operations(
            num_inputs=num_inputs,
            num_loads=len(load_group),
            num_rows=self.next_row,
            diagonal=0,
            op_kind=_ints(self.kind),
            op_row=_ints(self.filled),
            op_start=_ints(self.start),
            op_child=_ints(self.child),
            mix_row=np.ascontiguousarray(mixes[:, 0]),
            mix_size=np.ascontiguousarray(mixes[:, 1]),
            mix_group=np.ascontiguousarray(mixes[:, 2]),
            mix_start=np.ascontiguousarray(mixes[:, 3]),
            op_bare=_ints([int(key in bare) for key in self.filled_keys]),
            row_op=row_op,
            load_group=_ints(load_group),
            output_row=_ints(outputs),
            group_start=_ints(np.cumsum([0, *group_sizes])),
            source_start=_ints(np.cumsum([0, *map(len, sources)])),
            source_group=_ints([group for own in sources for group in own]),
        )
        weights = WeightMap(
            len(self.child),
            _ints(self.op_position),
            _ints(self.op_edge),
            self.num_mix_weights,
            _ints(self.mix_position),
            _ints(self.mix_edge),
        )
        return Part(operations, weights)


@final
class _Split:
    """The used nodes of a template in slice part and mix part, and the coefficients between them.

    A coefficient is a slice node, or a product of slice nodes with a key beyond the template's
    nodes.
    """

    def __init__(self, template: Template, groups: Sequence[Sequence[int]]) -> None:
        self.template = template
        used = reachable(template.nodes, template.outputs)
        reads = reads_inputs(template)
        self.slice_nodes = [node for node in template.order if node in used and not reads[node]]
        self.mix_nodes = [
            node
            for node in template.order
            if node in used and reads[node] and not isinstance(template.nodes[node], Input)
        ]
        self.is_slice = set(self.slice_nodes)
        self.coefficients: dict[int, None] = {}
        self.joint: dict[tuple[int, ...], int] = {}
        self.factors: dict[int, tuple[int, ...]] = {}
        for positions in groups:
            for position in positions:
                if template.outputs[position] in self.is_slice:
                    self.coefficients[template.outputs[position]] = None
                elif isinstance(template.nodes[template.outputs[position]], Product):
                    self._split_product(template.outputs[position])
        for node in self.mix_nodes:
            if isinstance(template.nodes[node], Product):
                self._split_product(node)

    def _split_product(self, node: int) -> None:
        if node in self.factors:
            return
        own = self.template.nodes[node]
        assert isinstance(own, Product)
        inside = tuple(child for child in own.children if child in self.is_slice)
        outside = tuple(child for child in own.children if child not in self.is_slice)
        if len(inside) > 1:
            key = self.joint.setdefault(inside, len(self.template.nodes) + len(self.joint))
            inside = (key,)
        for key in inside:
            self.coefficients[key] = None
        self.factors[node] = inside + outside


def _group_of_coefficients(split: _Split, groups: Sequence[Sequence[int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    joint_children = {key: children for children, key in split.joint.items()}
    for number, positions in enumerate(groups):
        below = reachable(split.template.nodes, [split.template.outputs[p] for p in positions])
        for key in split.coefficients:
            first = joint_children[key][0] if key in joint_children else key
            if first in below:
                found[key] = number
    return found


def _scalable(split: _Split, group_of: dict[int, int], num_groups: int) -> Ints:
    scopes = network_scopes(
        split.template.nodes, split.template.order, [0] * split.template.num_interfaces
    )
    joint_children = {key: children for children, key in split.joint.items()}
    seen: dict[int, set[int]] = {}
    for key, group in group_of.items():
        scope = 0
        for node in joint_children.get(key, (key,)):
            scope |= scopes[node]
        seen.setdefault(group, set()).add(scope)
    return _ints([int(len(seen.get(group, {0})) == 1) for group in range(num_groups)])


def _slice_part(split: _Split) -> tuple[Part, list[int], list[int]]:
    template, assembly = split.template, _Assembly()
    banks: list[int] = []
    members: list[int] = []
    for number, bank in enumerate(template.banks):
        for member, node in enumerate(bank.nodes):
            if node in split.is_slice:
                assembly.place(node)
                banks.append(number)
                members.append(member)
    for index in split.slice_nodes:
        inner = template.nodes[index]
        if isinstance(inner, Sum | Product):
            rows = [assembly.row[child] for child in inner.children]
            if isinstance(inner, Sum):
                assembly.add_sum(index, rows, template.edge_offsets[index])
            else:
                assembly.add_product(index, rows)
    for children, key in split.joint.items():
        assembly.add_product(key, [assembly.row[child] for child in children])
    outputs = [assembly.row[key] for key in split.coefficients]
    return assembly.part(0, [0] * len(banks), outputs, [], []), banks, members


def _leaf_factors(part: Part, banks: Sequence[int], num_variables: int) -> Ints | None:
    """The leaves that each coefficient is a product of; None if one is anything else.

    See `TemplateLayout.factors`.
    """
    ops = part.operations
    found = np.full((ops.output_row.size, num_variables), -1, dtype=np.int64)
    for coefficient, row in enumerate(ops.output_row.tolist()):
        children = [row]
        if row >= ops.num_loads:
            op = int(ops.row_op[row])
            children = ops.op_child[ops.op_start[op] : ops.op_start[op + 1]].tolist()
            if ops.op_kind[op] == SUM or max(children) >= ops.num_loads:
                return None
        for load in children:
            found[coefficient, banks[load]] = load
    return found


def _dense_sums(
    split: _Split, group_of_input: dict[int, int], sizes: Sequence[int], outputs: Sequence[int]
) -> dict[int, list[int]]:
    """For each group, the sums whose children are most of the group's inputs and nothing else.

    They are in the order of the outputs that use them, so that the matrix of a plain template is in
    the order of its states.
    """
    found: dict[int, list[int]] = {}
    used_by_outputs = [
        child for output in outputs for child in split.factors.get(output, (output,))
    ]
    for index in dict.fromkeys([*used_by_outputs, *split.mix_nodes]):
        if index >= len(split.template.nodes):
            continue
        node = split.template.nodes[index]
        if isinstance(node, Sum) and all(child in group_of_input for child in node.children):
            group = group_of_input[node.children[0]]
            if len(node.children) >= _DENSE_SHARE * sizes[group]:
                found.setdefault(group, []).append(index)
    return dict(sorted(found.items()))


def _mix_part(split: _Split, groups: Sequence[Sequence[int]], group_of: dict[int, int]) -> Part:
    template, assembly = split.template, _Assembly()
    order = [position for group in groups for position in group]
    for position in order:
        assembly.place(template.inputs[position])
    for key in split.coefficients:
        assembly.place(key)
    sizes = [len(group) for group in groups]
    group_of_input = {
        template.inputs[position]: number
        for number, positions in enumerate(groups)
        for position in positions
    }
    outputs = [template.outputs[position] for position in order]
    starts = np.cumsum([0, *sizes]).tolist()
    for group, members in _dense_sums(split, group_of_input, sizes, outputs).items():
        assembly.add_mix(group, range(starts[group], starts[group + 1]), members, template)
    for index in dict.fromkeys(_outputs_last(split, outputs)):
        if index in assembly.row:
            continue
        node = template.nodes[index]
        if isinstance(node, Product):
            assembly.add_product(index, [assembly.row[key] for key in split.factors[index]])
        elif isinstance(node, Sum):
            rows = [assembly.row[child] for child in node.children]
            assembly.add_sum(index, rows, template.edge_offsets[index])
    load_group = [group_of.get(key, 0) for key in split.coefficients]
    rows = [assembly.row[output] for output in outputs]
    scopes = network_scopes(template.nodes, template.order, [0] * template.num_interfaces)
    bare = frozenset(index for index in split.mix_nodes if not scopes[index])
    return assembly.part(len(order), load_group, rows, sizes, group_sources(template), bare)


def _outputs_last(split: _Split, outputs: Sequence[int]) -> list[int]:
    """Mix nodes, children first; last the outputs that nothing else uses, in interface order."""
    parents = {
        child
        for node in split.mix_nodes
        for child in getattr(split.template.nodes[node], "children", ())
    }
    free = [output for output in outputs if output not in parents and output not in split.is_slice]
    last = set(free)
    return [node for node in split.mix_nodes if node not in last] + free


def _transitions(split: _Split, order: Ints, part: Part, paths: Paths) -> Transitions:
    """The transitions of a template that is a chain."""
    template, ops, weights = split.template, part.operations, part.weights
    sums = transition_sums(template)
    row_of_input = {template.inputs[position]: row for row, position in enumerate(order.tolist())}
    place_of = np.empty(template.num_weights, dtype=np.int64)
    place_of[weights.op_edge] = weights.op_position
    place_of[weights.mix_edge] = weights.num_op_weights + weights.mix_position
    load_of = {key: load for load, key in enumerate(split.coefficients)}
    loads, sources, places = [], [], []
    for position in order.tolist():
        node = sums[position]
        inputs = np.array([row_of_input[child] for child in children_of(template.nodes[node])])
        by_row = np.argsort(inputs)
        loads.append(load_of[split.factors[template.outputs[position]][0]])
        sources.append(inputs[by_row])
        places.append(place_of[template.edge_offsets[node] + by_row])
    counts = np.array([own.size for own in sources])
    group_start = np.concatenate([[0], np.cumsum(counts)])[ops.group_start]
    sizes = np.diff(ops.group_start)
    few = np.diff(group_start) < paths.sparse_share * sizes**2
    return Transitions(
        _ints(loads),
        np.repeat(np.arange(counts.size), counts),
        np.concatenate(sources),
        np.concatenate(places),
        group_start,
        few & (sizes >= paths.fewest_sparse),
    )


def _is_diagonal(ops: Operations) -> bool:
    """Whether the operations of a chain are its outputs, and output i uses row i of one matrix."""
    k = ops.num_inputs
    return (
        ops.op_row.size == k
        and ops.mix_row.size == ops.group_start.size - 1
        and np.array_equal(ops.output_row, ops.op_row)
        and np.array_equal(ops.op_child[1::2], k + ops.num_loads + np.arange(k))
    )


def lay_out_template(template: Template, paths: Paths) -> TemplateLayout:
    """The slice part and the mix part of a template."""
    groups = interface_groups(template)
    split = _Split(template, groups)
    group_of = _group_of_coefficients(split, groups)
    slice_part, banks, members = _slice_part(split)
    mix_part = _mix_part(split, groups, group_of)
    order = _ints([position for group in groups for position in group])
    transitions = None
    if is_chain(template):
        diagonal = int(_is_diagonal(mix_part.operations))
        mix_part = Part(mix_part.operations._replace(diagonal=diagonal), mix_part.weights)
        if paths.chains:
            transitions = _transitions(split, order, mix_part, paths)
    return TemplateLayout(
        slice_part,
        mix_part,
        order,
        groups,
        _ints(banks),
        _ints(members),
        _scalable(split, group_of, len(groups)),
        _leaf_factors(slice_part, banks, len(template.schema)),
        transitions,
    )


def lay_out_top(top: Top, groups: Sequence[Sequence[int]]) -> TopLayout:
    """Rows and operations of the top network's nodes that lie under the root."""
    assembly = _Assembly()
    for group in groups:
        for position in group:
            assembly.place(top.inputs[position])
    used = reachable(top.nodes, [top.root])
    for index in top.order:
        node: Node = top.nodes[index]
        if index in used and isinstance(node, Sum | Product):
            rows = [assembly.row[child] for child in node.children]
            if isinstance(node, Sum):
                assembly.add_sum(index, rows, top.edge_offsets[index])
            else:
                assembly.add_product(index, rows)
    sizes = [len(group) for group in groups]
    part = assembly.part(sum(sizes), [], [], sizes, [() for _ in groups])
    return TopLayout(part, assembly.row[top.root])


def lay_out(network: DynamicNetwork, paths: Paths) -> tuple[TemplateLayout, TopLayout]:
    """The layouts of a DSPN's template and top network."""
    template = lay_out_template(network.template, paths)
    return template, lay_out_top(network.top, template.groups)

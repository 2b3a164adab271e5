"""Structure as data: a network's nodes as rows of a value matrix and the operations that fill them.

A template is laid out in two parts. The *slice part* holds every node with no input below it; it
depends on the slice's values only, so it runs for all slices (or all distinct slices) at once. What
it hands over are *coefficients*: for each product that joins slice nodes with the interface, the
product of its slice children, and outputs that begin afresh. The *mix part* holds the rest, and is
the only one that runs slice after slice. Sums over most of a group's inputs are gathered into dense
matrices; with one group per output a slice is then v_out = C(x) W v_in.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any, NamedTuple, final
from weakref import ref

import numpy as np

from dspn._arguments import Bools, Floats, Ints
from dspn.engine.cpu.records import PRODUCT, SUM, Operations
from dspn.structure.chain import is_chain, reads_inputs, transition_sums
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Product, Sum, children_of, reachable
from dspn.structure.template import Template, Top
from dspn.structure.validity import group_sources, network_scopes

# A sum over at least this share of a group's inputs is a row of a matrix product.
_DENSE_SHARE = 0.5
_MOST_KNOWN = 4


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


class WeightMap(NamedTuple):
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


class Part(NamedTuple):
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
    where `is_sparse[g]`: there a slice costs as much as its edges. Where weights depend on input
    `by`, `tables[u, e]` is the place of the weight of edge e in table u; else it has one row.
    """

    loads: Ints
    target: Ints
    source: Ints
    place: Ints
    group_start: Ints
    is_sparse: Bools
    tables: Ints
    by: int

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


class TemplateLayout(NamedTuple):
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


class TopLayout(NamedTuple):
    """The top network in the template's order of inputs."""

    part: Part
    root_row: int


def _ints(values: Any) -> Ints:
    return np.array(values, dtype=np.int64)


def _starts(sizes: Any) -> Ints:
    """Where each of some ranges begins, one after the other; then the end."""
    return np.concatenate([[0], np.cumsum(_ints(sizes))])


@final
class _Assembly:
    """Rows and operations of a network while they are being laid out; rows are found by node."""

    def __init__(self, network: Template | Top, first_rows: Iterable[int]) -> None:
        self.network = network
        self.row: dict[int, int] = {}
        self.operations: list[tuple[int, int, list[int]]] = []
        self.more_edges: dict[int, range] = {}
        self.op_edge: list[int] = []
        self.op_position: list[int] = []
        self.mixes: list[tuple[int, int, int, int]] = []
        self.mix_edge: list[int] = []
        self.mix_position: list[int] = []
        self.num_children = self.num_mix_weights = 0
        for node in first_rows:
            self._place(node)

    def _place(self, node: int) -> None:
        self.row[node] = len(self.row)

    def _edges(self, node: int) -> range:
        first = self.network.edge_offsets[node]
        return range(first, first + len(children_of(self.network.nodes[node])))

    def add_mix(self, group: int, rows: range, members: Sequence[int]) -> None:
        """Adds a dense matrix over the input rows `rows` of a group, with a row for each sum."""
        self.mixes.append((len(self.row), len(members), group, self.num_mix_weights))
        for node in members:
            start, children = (
                self.num_mix_weights - rows.start,
                children_of(self.network.nodes[node]),
            )
            self.mix_position.extend(start + self.row[child] for child in children)
            self.mix_edge.extend(self._edges(node))
            self.num_mix_weights += len(rows)
            self._place(node)

    def add(self, key: int, children: Sequence[int]) -> None:
        """Adds a sum of the network, or a product of some nodes, which need not be one of it."""
        own = self.network.nodes[key] if key < len(self.network.nodes) else None
        if isinstance(own, Sum):
            self.op_position.extend(range(self.num_children, self.num_children + len(children)))
            self.op_edge.extend(self._edges(key))
            own_edges = self.network.edge_offsets[key] + len(children)
            more = len(children) * (self.network.num_tables(own) - 1)
            self.more_edges[len(self.operations)] = range(own_edges, own_edges + more)
        rows = [self.row[child] for child in children]
        self.operations.append((key, SUM if isinstance(own, Sum) else PRODUCT, rows))
        self.num_children += len(rows)
        self._place(key)

    def part(
        self,
        num_inputs: int,
        load_group: Sequence[int],
        outputs: Sequence[int],
        group_sizes: Sequence[int] = (),
        sources: Sequence[Sequence[int]] = (),
        bare: frozenset[int] = frozenset(),
        by_inputs: Sequence[int] = (),
    ) -> Part:
        """All that was added, as arrays; outputs are nodes."""
        filled = [self.row[key] for key, _, _ in self.operations]
        row_op = np.full(len(self.row), -1, dtype=np.int64)
        row_op[filled] = np.arange(len(filled))
        for number, (first, size, _, _) in enumerate(self.mixes):
            row_op[first : first + size] = -2 - number
        mix_row, mix_size, mix_group, mix_start = _ints(self.mixes).reshape(-1, 4).T.copy()
        op_by, op_more = self._tables(by_inputs)
        operations = Operations(
            num_inputs=num_inputs,
            num_loads=len(load_group),
            num_rows=len(self.row),
            op_kind=_ints([kind for _, kind, _ in self.operations]),
            op_row=_ints(filled),
            op_start=_starts([len(rows) for _, _, rows in self.operations]),
            op_child=_ints([row for _, _, rows in self.operations for row in rows]),
            mix_row=mix_row,
            mix_size=mix_size,
            mix_group=mix_group,
            mix_start=mix_start,
            op_bare=_ints([int(key in bare) for key, _, _ in self.operations]),
            op_by=op_by,
            op_more=op_more,
            row_op=row_op,
            load_group=_ints(load_group),
            output_row=_ints([self.row[output] for output in outputs]),
            group_start=_starts(group_sizes),
            source_start=_starts([len(own) for own in sources]),
            source_group=_ints([group for own in sources for group in own]),
        )
        more = [edge for own in self.more_edges.values() for edge in own]
        size = self.num_children + len(more)
        position = _ints([*self.op_position, *range(self.num_children, size)])
        op_places = size, position, _ints([*self.op_edge, *more])
        mix_places = self.num_mix_weights, _ints(self.mix_position), _ints(self.mix_edge)
        return Part(operations, WeightMap(*op_places, *mix_places))

    def _tables(self, by_inputs: Sequence[int]) -> tuple[Ints, Ints]:
        """For each operation the number of its input among those used, and its further tables."""
        op_by, op_more, place = [], [], self.num_children
        for number, (key, _, _) in enumerate(self.operations):
            node = self.network.nodes[key] if key < len(self.network.nodes) else None
            by = node.by if isinstance(node, Sum) else None
            op_by.append(-1 if by is None else by_inputs.index(by))
            op_more.append(place)
            place += len(self.more_edges.get(number, ()))
        return _ints(op_by), _ints(op_more)


@final
class _Split:
    """The used nodes of a template in slice part and mix part, and the coefficients between them.

    A coefficient is a slice node, or a product of slice nodes (`joint`) with a key beyond the
    template's nodes. `factors` are the coefficient and the other children of each product.
    """

    def __init__(self, template: Template, groups: Sequence[Sequence[int]]) -> None:
        self.template = template
        self.groups = groups
        self.order = [position for group in groups for position in group]
        self.outputs = [template.outputs[position] for position in self.order]
        used, reads = reachable(template.nodes, template.outputs), reads_inputs(template)
        self.slice_nodes = [node for node in template.order if node in used and not reads[node]]
        self.mix_nodes = [
            node
            for node in template.order
            if node in used and reads[node] and not isinstance(template.nodes[node], Input)
        ]
        self.is_slice = set(self.slice_nodes)
        self.coefficients: dict[int, tuple[int, ...]] = {}
        self.joint: dict[tuple[int, ...], int] = {}
        self.factors: dict[int, tuple[int, ...]] = {}
        for node in dict.fromkeys([*self.outputs, *self.mix_nodes]):
            if node in self.is_slice:
                self.coefficients[node] = (node,)
            elif isinstance(template.nodes[node], Product):
                self._split_product(node)

    def _split_product(self, node: int) -> None:
        children = children_of(self.template.nodes[node])
        inside = tuple(child for child in children if child in self.is_slice)
        outside = tuple(child for child in children if child not in self.is_slice)
        if len(inside) > 1:
            key = self.joint.setdefault(inside, len(self.template.nodes) + len(self.joint))
            self.coefficients[key], inside = inside, (key,)
        elif inside:
            self.coefficients[inside[0]] = inside
        self.factors[node] = inside + outside

    def groups_of_coefficients(self) -> tuple[list[int], Ints]:
        """The group of each coefficient, and which groups have coefficients of one scope."""
        template, found = self.template, dict.fromkeys(self.coefficients, 0)
        scopes = network_scopes(template.nodes, template.order, [0] * template.num_interfaces)
        seen: list[set[int]] = [set() for _ in self.groups]
        for number, positions in enumerate(self.groups):
            below = reachable(template.nodes, [template.outputs[p] for p in positions])
            for key, nodes in self.coefficients.items():
                if nodes[0] in below:
                    found[key] = number
        for key, number in found.items():
            seen[number].add(reduce(or_, (scopes[node] for node in self.coefficients[key])))
        return list(found.values()), _ints([int(len(own) <= 1) for own in seen])

    def slice_part(self) -> tuple[Part, list[int], list[int]]:
        """The slice part, and the bank and place in it of every load."""
        template = self.template
        leaves = [
            (number, member, node)
            for number, bank in enumerate(template.banks)
            for member, node in enumerate(bank.nodes)
            if node in self.is_slice
        ]
        assembly = _Assembly(template, [node for _, _, node in leaves])
        for index in self.slice_nodes:
            if not isinstance(template.nodes[index], Leaf):
                assembly.add(index, children_of(template.nodes[index]))
        for children, key in self.joint.items():
            assembly.add(key, children)
        outputs = list(self.coefficients)
        part = assembly.part(0, [0] * len(leaves), outputs, by_inputs=inputs_of_tables(template))
        return part, [number for number, _, _ in leaves], [member for _, member, _ in leaves]

    def _dense_sums(self) -> dict[int, list[int]]:
        """For each group, the sums whose children are most of the group's inputs and nothing else.

        They are in the order of the outputs that use them, so that the matrix of a plain template
        is in the order of its states.
        """
        template = self.template
        group_of = {template.inputs[p]: g for g, group in enumerate(self.groups) for p in group}
        used = [child for own in self.outputs for child in self.factors.get(own, (own,))]
        found: dict[int, list[int]] = {}
        for index in dict.fromkeys([*used, *self.mix_nodes]):
            node = template.nodes[index] if index < len(template.nodes) else Input(-1)
            is_plain = isinstance(node, Sum) and node.by is None
            if is_plain and all(child in group_of for child in children_of(node)):
                group = group_of[children_of(node)[0]]
                if len(children_of(node)) >= _DENSE_SHARE * len(self.groups[group]):
                    found.setdefault(group, []).append(index)
        return dict(sorted(found.items()))

    def mix_part(self, load_group: list[int]) -> Part:
        """The mix part; last are the outputs that nothing else uses, in interface order."""
        template, sizes = self.template, [len(group) for group in self.groups]
        inputs = [template.inputs[position] for position in self.order]
        assembly = _Assembly(template, [*inputs, *self.coefficients])
        starts = _starts(sizes).tolist()
        for group, members in self._dense_sums().items():
            assembly.add_mix(group, range(starts[group], starts[group + 1]), members)
        below = {child for node in self.mix_nodes for child in children_of(template.nodes[node])}
        last = [own for own in self.outputs if own not in below and own not in self.is_slice]
        for index in [node for node in self.mix_nodes if node not in set(last)] + last:
            if index not in assembly.row:
                assembly.add(index, self.factors.get(index, children_of(template.nodes[index])))
        scopes = network_scopes(template.nodes, template.order, [0] * template.num_interfaces)
        bare = frozenset(index for index in self.mix_nodes if not scopes[index])
        sources = group_sources(template)
        by_inputs = inputs_of_tables(template)
        own = (len(inputs), load_group, self.outputs, sizes, sources, bare, by_inputs)
        return assembly.part(*own)


def inputs_of_tables(template: Template) -> list[int]:
    """The inputs of the schema that weights depend on."""
    return sorted({n.by for n in template.nodes if isinstance(n, Sum) and n.by is not None})


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


def _transitions(split: _Split, part: Part, paths: Paths) -> Transitions | None:
    """The transitions of a template that is a chain.

    None where the weights of some but not of others depend on an input, or of sparse ones.
    """
    template, ops, weights = split.template, part.operations, part.weights
    sums = transition_sums(template)
    inputs_read = {getattr(template.nodes[node], "by", None) for node in sums.values()}
    if len(inputs_read) > 1:
        return None
    by = inputs_read.pop()
    count_tables = 1 if by is None else template.schema.inputs[by].num_categories
    row_of_input = {template.inputs[position]: row for row, position in enumerate(split.order)}
    place_of = np.empty(template.num_weights, dtype=np.int64)
    place_of[weights.op_edge] = weights.op_position
    place_of[weights.mix_edge] = weights.num_op_weights + weights.mix_position
    load_of = {key: load for load, key in enumerate(split.coefficients)}
    loads, sources, places = [], [], []
    for position in split.order:
        node = sums[position]
        inputs = np.array([row_of_input[child] for child in children_of(template.nodes[node])])
        by_row = np.argsort(inputs)
        loads.append(load_of[split.factors[template.outputs[position]][0]])
        sources.append(inputs[by_row])
        tables = np.arange(count_tables)[:, None] * inputs.size
        places.append(place_of[template.edge_offsets[node] + tables + by_row])
    counts = np.array([own.size for own in sources])
    group_start = _starts(counts)[ops.group_start]
    sizes = np.diff(ops.group_start)
    few = np.diff(group_start) < paths.sparse_share * sizes**2
    is_sparse = few & (sizes >= paths.fewest_sparse)
    if by is not None and is_sparse.any():
        return None
    every = np.concatenate(places, axis=1)
    return Transitions(
        _ints(loads),
        np.repeat(np.arange(counts.size), counts),
        np.concatenate(sources),
        every[0],
        group_start,
        is_sparse,
        every,
        -1 if by is None else inputs_of_tables(template).index(by),
    )


_LATEST: deque[tuple[ref[Template], ref[Top], Paths, tuple[TemplateLayout, TopLayout]]] = deque(
    maxlen=_MOST_KNOWN
)


def lay_out(network: DynamicNetwork, paths: Paths) -> tuple[TemplateLayout, TopLayout]:
    """The layouts of a DSPN's template and top network.

    The latest ones are remembered: learning compiles the same structure again and again.
    """
    for template, top, known, layouts in list(_LATEST):
        if template() is network.template and top() is network.top and known == paths:
            return layouts
    layouts = _lay_out(network, paths)
    _LATEST.append((ref(network.template), ref(network.top), paths, layouts))
    return layouts


def _lay_out(network: DynamicNetwork, paths: Paths) -> tuple[TemplateLayout, TopLayout]:
    template, groups = network.template, network.groups
    split = _Split(template, groups)
    load_group, scalable = split.groups_of_coefficients()
    slice_part, banks, members = split.slice_part()
    mix_part, transitions = split.mix_part(load_group), None
    if paths.chains and is_chain(template):
        transitions = _transitions(split, mix_part, paths)
    factors = _leaf_factors(slice_part, banks, len(template.schema))
    own = (_ints(split.order), groups, _ints(banks), _ints(members), scalable, factors, transitions)
    return TemplateLayout(slice_part, mix_part, *own), _lay_out_top(network.top, groups)


def _lay_out_top(top: Top, groups: Sequence[Sequence[int]]) -> TopLayout:
    """Rows and operations of the top network's nodes that lie under the root."""
    assembly = _Assembly(top, [top.inputs[position] for group in groups for position in group])
    used = reachable(top.nodes, [top.root])
    for index in top.order:
        if index in used and not isinstance(top.nodes[index], Input):
            assembly.add(index, children_of(top.nodes[index]))
    sizes = [len(group) for group in groups]
    part = assembly.part(sum(sizes), [], [], sizes, [() for _ in groups])
    return TopLayout(part, assembly.row[top.root])

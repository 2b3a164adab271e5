"""Structure as data: a network's nodes as rows of a value matrix and the operations that fill them.

Rows 0..K-1 are the inputs, sorted by group so that a group is a range of rows. Then come the loaded rows
(leaves, read from tables), then the computed rows in the order of their operations. Dense sums over a whole
group are gathered into `mixes`, executed as small matrix products; every other node is one operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Ints
from dspn.structure.graph import reachable
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Node, Product, Sum
from dspn.structure.template import Template, Top
from dspn.structure.validity import group_sources, interface_groups

PRODUCT: Final = 0
SUM: Final = 1

_DENSE_SHARE = (
    0.5  # a sum over at least this share of a group's inputs runs as a row of a matrix product
)


class Operations(NamedTuple):
    """What the kernels read. Every array is int64 and C-contiguous.

    Operation o fills row `op_row[o]` from `op_child[op_start[o]:op_start[o + 1]]`. Mix m fills rows
    `mix_row[m] : mix_row[m] + mix_size[m]` from all inputs of group `mix_group[m]` with a dense matrix that
    begins at `mix_start[m]`. `row_op[r]` is the operation that fills row r, -1 for inputs and loads, and
    -2 - m for rows of mix m. `row_group[r]` is the group whose outputs row r lies under, -1 for none.
    """

    num_inputs: int
    num_loads: int
    num_rows: int
    op_kind: Ints
    op_row: Ints
    op_start: Ints
    op_child: Ints
    mix_row: Ints
    mix_size: Ints
    mix_group: Ints
    mix_start: Ints
    row_op: Ints
    row_group: Ints
    output_row: Ints
    group_start: Ints
    source_start: Ints
    source_group: Ints


@final
@dataclass(frozen=True, eq=False)
class WeightMap:
    """Where each weight of the network goes: positions in `op_child`'s order and in the dense matrices."""

    num_op_weights: int
    op_position: Ints
    op_edge: Ints
    num_mix_weights: int
    mix_position: Ints
    mix_edge: Ints

    def scatter(
        self, weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights of the operations' children (1 for products) and of the dense matrices (0 for no edge)."""
        op_weight = np.ones(self.num_op_weights)
        op_weight[self.op_position] = weights[self.op_edge]
        mix_weight = np.zeros(self.num_mix_weights)
        mix_weight[self.mix_position] = weights[self.mix_edge]
        return op_weight, mix_weight


@final
@dataclass(frozen=True, eq=False)
class TemplateLayout:
    """Rows and operations of a template; `input_order[r]` is the interface position of input row r.

    `load_bank` and `load_member` say which leaf each loaded row is.
    """

    operations: Operations
    weights: WeightMap
    input_order: Ints
    groups: tuple[tuple[int, ...], ...]
    load_bank: Ints
    load_member: Ints


@final
@dataclass(frozen=True, eq=False)
class TopLayout:
    """Rows and operations of a top network, in the template's order of inputs."""

    operations: Operations
    weights: WeightMap
    root_row: int


@final
class _Assembly:
    """Rows and operations while they are being laid out."""

    def __init__(self, group_ranges: Sequence[tuple[int, int]]) -> None:
        self.group_ranges = group_ranges
        self.row: dict[int, int] = {}
        self.kind: list[int] = []
        self.filled: list[int] = []
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

    def add_mixes(
        self, sums: dict[int, list[int]], nodes: Sequence[Node], offsets: dict[int, int]
    ) -> None:
        """One dense matrix for each group that has sums over most of its inputs."""
        for group, members in sums.items():
            first, last = self.group_ranges[group]
            width = last - first
            self.mixes.append((self.next_row, len(members), group, self.num_mix_weights))
            for node in members:
                own = nodes[node]
                assert isinstance(own, Sum)
                for edge, child in enumerate(own.children):
                    self.mix_position.append(self.num_mix_weights + self.row[child] - first)
                    self.mix_edge.append(offsets[node] + edge)
                self.num_mix_weights += width
                self.place(node)

    def add_operation(self, index: int, node: Sum | Product, offsets: dict[int, int]) -> None:
        if isinstance(node, Sum):
            self.op_position.extend(range(len(self.child), len(self.child) + len(node.children)))
            self.op_edge.extend(range(offsets[index], offsets[index] + len(node.children)))
        self.kind.append(SUM if isinstance(node, Sum) else PRODUCT)
        self.child.extend(self.row[child] for child in node.children)
        self.start.append(len(self.child))
        self.place(index)
        self.filled.append(self.row[index])

    def weight_map(self) -> WeightMap:
        return WeightMap(
            len(self.child),
            _ints(self.op_position),
            _ints(self.op_edge),
            self.num_mix_weights,
            _ints(self.mix_position),
            _ints(self.mix_edge),
        )

    def operations(
        self,
        num_inputs: int,
        num_loads: int,
        outputs: Sequence[int],
        sources: Sequence[Sequence[int]],
        row_group: Sequence[int],
    ) -> Operations:
        row_op = np.full(self.next_row, -1, dtype=np.int64)
        row_op[self.filled] = np.arange(len(self.filled))
        for number, (first, size, _, _) in enumerate(self.mixes):
            row_op[first : first + size] = -2 - number
        mixes = np.array(self.mixes, dtype=np.int64).reshape(-1, 4)
        starts = [first for first, _ in self.group_ranges] + [num_inputs]
        return Operations(
            num_inputs,
            num_loads,
            self.next_row,
            _ints(self.kind),
            _ints(self.filled),
            _ints(self.start),
            _ints(self.child),
            *(np.ascontiguousarray(mixes[:, column]) for column in range(4)),
            row_op,
            _ints(row_group),
            _ints(outputs),
            _ints(starts),
            _ints(np.cumsum([0, *map(len, sources)])),
            _ints([group for own in sources for group in own]),
        )


def _ints(values: Sequence[int] | Ints) -> Ints:
    return np.array(values, dtype=np.int64)


def _ranges(groups: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(group) for group in groups]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _dense_sums(
    template: Template, group_of: dict[int, int], sizes: Sequence[int]
) -> dict[int, list[int]]:
    """For each group, the sums whose children are most of the group's inputs and nothing else."""
    found: dict[int, list[int]] = {}
    for index in template.order:
        node = template.nodes[index]
        if isinstance(node, Sum) and all(child in group_of for child in node.children):
            group = group_of[node.children[0]]
            if len(node.children) >= _DENSE_SHARE * sizes[group]:
                found.setdefault(group, []).append(index)
    return dict(sorted(found.items()))


def _row_groups(
    template: Template, assembly: _Assembly, groups: Sequence[Sequence[int]]
) -> list[int]:
    row_group = [-1] * assembly.next_row
    for number, positions in enumerate(groups):
        for node in reachable(template.nodes, [template.outputs[p] for p in positions]):
            if node in assembly.row:
                row_group[assembly.row[node]] = number
    return row_group


def lay_out_template(template: Template) -> TemplateLayout:
    """Rows and operations of a template's nodes that lie under an output."""
    groups = interface_groups(template)
    input_order = [position for group in groups for position in group]
    group_of = {
        template.inputs[position]: number
        for number, positions in enumerate(groups)
        for position in positions
    }
    assembly = _Assembly(_ranges(groups))
    for position in input_order:
        assembly.place(template.inputs[position])
    used = reachable(template.nodes, template.outputs)
    banks: list[int] = []
    members: list[int] = []
    for number, bank in enumerate(template.banks):
        for member, node in enumerate(bank.nodes):
            if node in used:
                assembly.place(node)
                banks.append(number)
                members.append(member)
    dense = _dense_sums(template, group_of, [len(group) for group in groups])
    assembly.add_mixes(dense, template.nodes, template.edge_offsets)
    for index in template.order:
        node = template.nodes[index]
        if index in used and index not in assembly.row and isinstance(node, Sum | Product):
            assembly.add_operation(index, node, template.edge_offsets)
    outputs = [assembly.row[template.outputs[position]] for position in input_order]
    operations = assembly.operations(
        len(input_order),
        len(banks),
        outputs,
        group_sources(template),
        _row_groups(template, assembly, groups),
    )
    return TemplateLayout(
        operations, assembly.weight_map(), _ints(input_order), groups, _ints(banks), _ints(members)
    )


def lay_out_top(top: Top, groups: Sequence[Sequence[int]]) -> TopLayout:
    """Rows and operations of the top network's nodes that lie under the root."""
    assembly = _Assembly(_ranges(groups))
    for group in groups:
        for position in group:
            assembly.place(top.inputs[position])
    used = reachable(top.nodes, [top.root])
    for index in top.order:
        node = top.nodes[index]
        if index in used and isinstance(node, Sum | Product):
            assembly.add_operation(index, node, top.edge_offsets)
    num_inputs = sum(len(group) for group in groups)
    operations = assembly.operations(
        num_inputs, 0, [], [() for _ in groups], [0] * assembly.next_row
    )
    return TopLayout(operations, assembly.weight_map(), assembly.row[top.root])


def lay_out(network: DynamicNetwork) -> tuple[TemplateLayout, TopLayout]:
    """The layouts of a DSPN's template and top network."""
    template = lay_out_template(network.template)
    return template, lay_out_top(network.top, template.groups)

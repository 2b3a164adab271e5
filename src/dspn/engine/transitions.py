"""Transitions of a chain: which inputs each output sums over, and where their weights are.

A template is a chain when every output is one coefficient times one sum over inputs of its own
group. The sums of a group make a square matrix. Where few of its entries are edges, as in unions of
chains or after pruning, the matrix is sparse, and a slice costs as much as its edges.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from dspn._arrays import Bools, Ints
from dspn.engine.records import PRODUCT, SUM, Operations

# A matrix of fewer edges than this share of its entries is sparse, unless it is small. Measured,
# the two ways take the same time at a share of 0.3 for 32 nodes and of 0.45 for 256.
_SPARSE_SHARE = 0.3
_FEWEST_SPARSE = 32


@final
@dataclass(frozen=True, eq=False)
class Transitions:
    """The edges of a chain's sums, by output and then by input, which are numbered by input row.

    Edge e leads from input `source[e]` to output `target[e]`; its weight is number `place[e]` of
    the weights of the operations and, after them, of the matrices. `loads[i]` is the coefficient of
    output i. Edges `group_start[g] : group_start[g + 1]` belong to group g, whose matrix is sparse
    where `is_sparse[g]`.
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


def _sum_edges(ops: Operations, row: int, used: Ints) -> tuple[Ints, Ints] | None:
    """The inputs and the places of the weights of a row that is a sum over inputs; else None.

    `used` are the places of edges in the matrices, in order.
    """
    filled = int(ops.row_op[row])
    if filled >= 0:
        first, last = int(ops.op_start[filled]), int(ops.op_start[filled + 1])
        inputs = ops.op_child[first:last]
        if ops.op_kind[filled] != SUM or inputs.max(initial=0) >= ops.num_inputs:
            return None
        return inputs, np.arange(first, last)
    if filled == -1:
        return None
    mix = -2 - filled
    first_input, after = ops.group_start[ops.mix_group[mix] : ops.mix_group[mix] + 2].tolist()
    start = int(ops.mix_start[mix]) + (row - int(ops.mix_row[mix])) * (after - first_input)
    found = used[slice(*np.searchsorted(used, [start, start + after - first_input]).tolist())]
    return found - start + first_input, found + ops.op_child.size


def transitions_of(ops: Operations, matrix_edges: Ints) -> Transitions | None:
    """The transitions of a mix part that is a chain, else None.

    `matrix_edges` are the places of edges in the dense matrices of the layout.
    """
    if ops.num_inputs == 0:
        return None
    used = np.sort(matrix_edges)
    loads, sources, places = [], [], []
    group_of = np.repeat(np.arange(ops.group_start.size - 1), np.diff(ops.group_start))
    for output, row in enumerate(ops.output_row.tolist()):
        filled = int(ops.row_op[row])
        if filled < 0 or ops.op_kind[filled] != PRODUCT:
            return None
        children = ops.op_child[ops.op_start[filled] : ops.op_start[filled + 1]].tolist()
        if len(children) != 2 or not 0 <= children[0] - ops.num_inputs < ops.num_loads:
            return None
        edges = _sum_edges(ops, children[1], used)
        if edges is None or not edges[0].size or np.any(group_of[edges[0]] != group_of[output]):
            return None
        order = np.argsort(edges[0])
        loads.append(children[0] - ops.num_inputs)
        sources.append(edges[0][order])
        places.append(edges[1][order])
    return _gathered(ops, loads, sources, places)


def _gathered(
    ops: Operations, loads: list[int], sources: list[Ints], places: list[Ints]
) -> Transitions:
    counts = np.array([own.size for own in sources])
    before = np.concatenate([[0], np.cumsum(counts)])
    group_start = before[ops.group_start]
    sizes = np.diff(ops.group_start)
    few = np.diff(group_start) < _SPARSE_SHARE * sizes**2
    return Transitions(
        np.array(loads, dtype=np.int64),
        np.repeat(np.arange(counts.size), counts),
        np.concatenate(sources),
        np.concatenate(places),
        group_start,
        few & (sizes >= _FEWEST_SPARSE),
    )

"""Matrices of a chain in the order of its kernels: dense squares, and sparse ones by edges."""

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.kernels.sparse_tile import EDGES
from dspn.engine.program import Weights
from dspn.engine.records import ChainMatrix, ChainShape
from dspn.engine.transitions import Transitions


def _dense_places(
    shape: ChainShape, transitions: Transitions, columns: Ints, *, transposed: bool
) -> tuple[Ints, Ints]:
    """The edges of dense matrices and their places; rows are inputs or, transposed, outputs."""
    group = np.repeat(np.arange(transitions.is_sparse.size), np.diff(transitions.group_start))
    edges = np.flatnonzero(~transitions.is_sparse[group])
    group = group[edges]
    row, column = transitions.source[edges], transitions.target[edges]
    if transposed:
        row, column = column, row
    first, size = shape.column[group], np.diff(shape.column)[group]
    places: Ints = shape.start[group] + (columns[row] - first) * size + columns[column] - first
    return edges, places


def _sparse_places(
    shape: ChainShape, transitions: Transitions, columns: Ints, *, transposed: bool
) -> tuple[Ints, Ints, Ints]:
    """Where the row of each column begins and ends, and the place of each edge.

    Rows are padded to full tiles; edges are in the order of `Transitions`.
    """
    rows = transitions.source if transposed else transitions.target
    own = transitions.sparse_edges_by_input if transposed else transitions.sparse_edges
    row = columns[rows[own]]
    counts = np.bincount(row, minlength=shape.width)
    start = np.concatenate([[0], np.cumsum(-(-counts // EDGES) * EDGES)])
    # Edges lie row by row, whichever order the columns have.
    first = np.flatnonzero(np.diff(row, prepend=-1))
    within = np.arange(row.size) - np.repeat(first, np.diff(np.append(first, row.size)))
    return start, start[:-1] + counts, start[row] + within


def chain_matrix(
    shape: ChainShape,
    transitions: Transitions,
    columns: Ints,
    weights: Weights,
    *,
    transposed: bool,
    padding: float,
    dtype: type[np.float64],
) -> ChainMatrix:
    """The weights of a chain's edges, padded; `columns[i]` is the column of input i and output i.

    A product with it leads from inputs to outputs or, transposed, from outputs to inputs.
    """
    by_edge = np.concatenate([weights.op, weights.mix])[transitions.place]
    edges, places = _dense_places(shape, transitions, columns, transposed=transposed)
    dense = np.full(int(shape.start[-1]), padding, dtype)
    dense[places] = by_edge[edges]
    own = transitions.sparse_edges_by_input if transposed else transitions.sparse_edges
    read = (transitions.target if transposed else transitions.source)[own]
    start, end, places = _sparse_places(shape, transitions, columns, transposed=transposed)
    size = int(start[-1])
    source, weight = np.zeros(size, dtype=np.int32), np.zeros(size, dtype)
    group = np.searchsorted(shape.column, columns[read], side="right") - 1
    source[places] = columns[read] - shape.column[group]
    weight[places] = by_edge[own]
    return ChainMatrix(dense, start, end, source, weight)


def use_by_place(
    shape: ChainShape, transitions: Transitions, columns: Ints, dense: Floats, edge: Floats
) -> tuple[Ints, Floats]:
    """Places of weights and the use of their edges, from the sums of a downward pass.

    `dense` is in the order of the transposed matrix's squares and `edge` in that of its edges.
    """
    edges, places = _dense_places(shape, transitions, columns, transposed=True)
    own = transitions.sparse_edges_by_input
    sparse = _sparse_places(shape, transitions, columns, transposed=True)[2]
    found = np.concatenate([dense[places].astype(np.float64), edge[sparse]])
    return transitions.place[np.concatenate([edges, own])], found

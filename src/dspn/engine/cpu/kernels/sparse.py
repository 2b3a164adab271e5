"""Products of a chain's vectors with a sparse matrix in compressed rows, and the use of its edges.

Lanes are taken in four, two or one vectors at a time and turned, so that lanes are neighbours; the
two pieces of working space hold as many lanes of every entry of the group.
"""

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.cpu.kernels._options import OPTIONS
from dspn.engine.cpu.kernels.products import numbers_in_vector
from dspn.engine.cpu.kernels.sparse_tile import (
    EDGES,
    best_row_of_four,
    best_row_of_one,
    best_row_of_two,
    row_and_use_of_four,
    row_and_use_of_one,
    row_and_use_of_two,
    row_of_four,
    row_of_one,
    row_of_two,
    turn_in,
    turn_out,
    turn_out_best,
    use_of_four,
    use_of_one,
    use_of_two,
)
from dspn.engine.cpu.records import ChainMatrix, ChainShape


@njit(**OPTIONS)
def working_space(shape: ChainShape, like: Floats) -> Floats:
    """Room for four vectors of lanes of the largest sparse group, three times, as in `like`."""
    largest = 0
    for group in range(shape.column.size - 1):
        if shape.is_sparse[group]:
            largest = max(largest, shape.column[group + 1] - shape.column[group])
    return np.empty((3, 4 * largest * numbers_in_vector(like)), like.dtype)


@njit(**OPTIONS)
def _vectors_at_once(left: int, step: int) -> int:
    """How many vectors of lanes to take where so many lanes are left."""
    if left > 3 * step:
        return 4
    return 2 if left > step else 1


@njit(**OPTIONS)
def _turn(
    v: Floats, lane: int, first: int, size: int, width: int, vectors: int, out: Floats
) -> None:
    """out[i, l] = v[lane + l, first + i] for the lanes of some vectors."""
    step = numbers_in_vector(v)
    lanes = vectors * step
    for part in range(0, lanes, step):
        start = (lane + part) * width + first
        for i in range(0, size, step):
            turn_in(v, start + i, width, out, i * lanes + part, lanes)


@njit(**OPTIONS)
def _turn_back(
    shape: ChainShape,
    group: int,
    sums: Floats,
    coefficients: Floats,
    numbers: Ints,
    lane: int,
    vectors: int,
    out: Floats,
    floor: float,
) -> None:
    """out[lane + l, first + i] = floor + c_l sums[i, l] for the lanes of some vectors."""
    width, first = shape.width, shape.column[group]
    step = numbers_in_vector(out)
    lanes = vectors * step
    for begin in range(lane, lane + lanes, step):
        for i in range(0, shape.column[group + 1] - first, step):
            turn_out(
                sums,
                i * lanes + begin - lane,
                lanes,
                coefficients,
                numbers,
                begin,
                first + i,
                out,
                begin * width + first + i,
                width,
                floor,
            )


@njit(**OPTIONS)
def advance_sparse(
    shape: ChainShape,
    group: int,
    matrix: ChainMatrix,
    v: Floats,
    out: Floats,
    coefficients: Floats,
    numbers: Ints,
    n: int,
    floor: float,
    space: Floats,
) -> None:
    """out[l] = floor + c_l (floor + matrix v[l]) for one group.

    c_l are the coefficients of lane l's slice.
    """
    width, first = shape.width, shape.column[group]
    size, step = shape.column[group + 1] - first, numbers_in_vector(v)
    own, sums = space[0], space[1]
    lane = 0
    while lane < n:
        vectors = _vectors_at_once(n - lane, step)
        lanes = vectors * step
        _turn(v, lane, first, size, width, vectors, own)
        for i in range(size):
            edge, to = matrix.row_start[first + i], i * lanes
            count = matrix.row_end[first + i] - edge
            if vectors == 4:
                row_of_four(own, matrix.source, matrix.weight, edge, count, sums, to, floor)
            elif vectors == 2:
                row_of_two(own, matrix.source, matrix.weight, edge, count, sums, to, floor)
            else:
                row_of_one(own, matrix.source, matrix.weight, edge, count, sums, to, floor)
        _turn_back(shape, group, sums, coefficients, numbers, lane, vectors, out, floor)
        lane += lanes


@njit(**OPTIONS)
def advance_best_sparse(
    shape: ChainShape,
    group: int,
    matrix: ChainMatrix,
    v: Floats,
    out: Floats,
    coefficients: Floats,
    numbers: Ints,
    n: int,
    space: Floats,
) -> None:
    """out[l, i] = log coefficient + max over edges of (log weight + v[l, source]) for one group."""
    width, first = shape.width, shape.column[group]
    size, step = shape.column[group + 1] - first, numbers_in_vector(v)
    own, sums = space[0], space[1]
    lane = 0
    while lane < n:
        vectors = _vectors_at_once(n - lane, step)
        lanes = vectors * step
        _turn(v, lane, first, size, width, vectors, own)
        for i in range(size):
            edge, to = matrix.row_start[first + i], i * lanes
            count = matrix.row_end[first + i] - edge
            if vectors == 4:
                best_row_of_four(own, matrix.source, matrix.weight, edge, count, sums, to, -np.inf)
            elif vectors == 2:
                best_row_of_two(own, matrix.source, matrix.weight, edge, count, sums, to, -np.inf)
            else:
                best_row_of_one(own, matrix.source, matrix.weight, edge, count, sums, to, -np.inf)
        for part in range(0, lanes, step):
            begin = lane + part
            for i in range(0, size, step):
                turn_out_best(
                    sums,
                    i * lanes + part,
                    lanes,
                    coefficients,
                    numbers,
                    begin,
                    first + i,
                    out,
                    begin * width + first + i,
                    width,
                    0.0,
                )
        lane += lanes


@njit(**OPTIONS)
def best_source(matrix: ChainMatrix, column: int, v: Floats, first: int) -> int:
    """The input of greatest log weight + v of those that an entry reads; of equal ones the first.

    `first` is where the group begins in v.
    """
    best, found = -np.inf, matrix.source[matrix.row_start[column]]
    for edge in range(matrix.row_start[column], matrix.row_end[column]):
        value = matrix.weight[edge] + v[first + matrix.source[edge]]
        if value > best:
            best, found = value, matrix.source[edge]
    return int(found)


@njit(**OPTIONS)
def add_use(
    shape: ChainShape,
    group: int,
    matrix: ChainMatrix,
    rows: Floats,
    sources: Floats,
    n: int,
    out: Floats,
    space: Floats,
) -> None:
    """out[edge] += sum_l rows[l, i] sources[l, j] for each edge of a group that adds entry j to i.

    That is the expected use of every edge, still to be multiplied by its weight. Lanes from n up to
    the next full vector must have zeros in `sources`.
    """
    width, first = shape.width, shape.column[group]
    size, step = shape.column[group + 1] - first, numbers_in_vector(rows)
    own, read = space[0], space[1]
    lane = 0
    while lane < n:
        vectors = _vectors_at_once(n - lane, step)
        lanes = vectors * step
        _turn(rows, lane, first, size, width, vectors, own)
        _turn(sources, lane, first, size, width, vectors, read)
        for i in range(size):
            at = i * lanes
            for edge in range(matrix.row_start[first + i], matrix.row_end[first + i], EDGES):
                if vectors == 4:
                    use_of_four(own, at, read, matrix.source, edge, out)
                elif vectors == 2:
                    use_of_two(own, at, read, matrix.source, edge, out)
                else:
                    use_of_one(own, at, read, matrix.source, edge, out)
        lane += lanes


@njit(**OPTIONS)
def advance_and_add_use(
    shape: ChainShape,
    group: int,
    matrix: ChainMatrix,
    rows: Floats,
    sources: Floats,
    out: Floats,
    ones: Floats,
    zeros: Ints,
    n: int,
    use: Floats,
    space: Floats,
) -> None:
    """Both out[l] = matrix sources[l] and `add_use`, which read the same numbers, for one group."""
    width, first = shape.width, shape.column[group]
    size, step = shape.column[group + 1] - first, numbers_in_vector(rows)
    own, read, sums = space[0], space[1], space[2]
    lane = 0
    while lane < n:
        vectors = _vectors_at_once(n - lane, step)
        lanes = vectors * step
        _turn(rows, lane, first, size, width, vectors, own)
        _turn(sources, lane, first, size, width, vectors, read)
        for i in range(size):
            begin, end, at = matrix.row_start[first + i], matrix.row_end[first + i], i * lanes
            if begin == end:
                sums[at : at + lanes] = 0.0
            for edge in range(begin, end, EDGES):
                fresh = edge == begin
                if vectors == 4:
                    row_and_use_of_four(
                        own, at, read, matrix.source, matrix.weight, edge, use, sums, fresh
                    )
                elif vectors == 2:
                    row_and_use_of_two(
                        own, at, read, matrix.source, matrix.weight, edge, use, sums, fresh
                    )
                else:
                    row_and_use_of_one(
                        own, at, read, matrix.source, matrix.weight, edge, use, sums, fresh
                    )
        _turn_back(shape, group, sums, ones, zeros, lane, vectors, out, 0.0)
        lane += lanes

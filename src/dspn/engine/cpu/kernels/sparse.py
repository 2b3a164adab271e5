"""Products of a chain's vectors with a sparse matrix in compressed rows, and the use of its edges.

Lanes are taken in four, two or one vectors at a time and turned, so that lanes are neighbours and
an edge costs one read of its weight for all of them. `turn_in` and `turn_out` lead from lanes whose
vectors are contiguous, as all else of a chain has them, to this order and back; the pieces of
working space hold as many lanes of every entry of the group.
"""

from typing import Any, Final

import numpy as np
from llvmlite import ir

from dspn._arguments import Floats
from dspn.engine.cpu.kernels import kernel
from dspn.engine.cpu.kernels.rows import numbers_in_vector
from dspn.engine.cpu.kernels.tiles import (
    INDEX,
    Combine,
    Packs,
    Values,
    add_coefficient,
    add_maximise,
    make_tile,
    multiply_add,
    repeat,
    whole,
)
from dspn.engine.cpu.records import ChainMatrix, ChainShape, Factors

EDGES: Final = 8  # edges to a tile where their use is added up


def _turn_in(of: Packs, arrays: Values, places: Values, _: Any) -> None:
    builder, (v, out), (start, row, to, step) = of.builder, arrays, places
    lanes = range(of.width)
    packs = [of.load(v, builder.add(start, builder.mul(row, whole(lane)))) for lane in lanes]
    for i, pack in enumerate(of.turned(packs)):
        of.store(out, builder.add(to, builder.mul(step, whole(i))), pack)


def _turn_out(finish: Combine) -> Any:
    def generate(of: Packs, arrays: Values, places: Values, number: Any) -> None:
        builder, (sums, coefficients, numbers, out) = of.builder, arrays
        place, step, number_start, column, start, width = places
        floor = of.spread(of.narrowed(number))
        entries = range(of.width)
        packs = [of.load(sums, builder.add(place, builder.mul(step, whole(i)))) for i in entries]
        for lane, pack in enumerate(of.turned(packs)):
            own = builder.load(builder.gep(numbers, [builder.add(number_start, whole(lane))]))
            factor = of.load(coefficients, builder.add(builder.mul(own, width), column))
            to = builder.add(start, builder.mul(width, whole(lane)))
            of.store(out, to, finish(builder, factor, pack, floor))

    return make_tile(4, generate)


def _column(builder: ir.IRBuilder, sources: ir.Value, edge: ir.Value, step: int) -> ir.Value:
    """Where the lanes of the entry begin that an edge reads."""
    own = builder.load(builder.gep(sources, [edge]))
    return builder.mul(builder.sext(own, INDEX), whole(step))


def _row_tile(vectors: int, combine: Combine) -> Any:
    def generate(of: Packs, arrays: Values, places: Values, floor: Any) -> None:
        builder, (v, sources, weights, out) = of.builder, arrays
        first, count, to = places
        parts = [whole(part * of.width) for part in range(vectors)]

        def body(j: ir.Value, totals: Values) -> Values:
            edge = builder.add(first, j)
            start = _column(builder, sources, edge, vectors * of.width)
            weight = of.spread(builder.load(builder.gep(weights, [edge])))
            return [
                combine(builder, of.load(v, builder.add(start, part)), weight, total)
                for part, total in zip(parts, totals, strict=True)
            ]

        initial = of.spread(of.narrowed(floor))
        totals = repeat(builder, count, [initial] * vectors, body)
        for part, total in zip(parts, totals, strict=True):
            of.store(out, builder.add(to, part), total)

    return make_tile(4, generate)


def _folded(of: Packs, packs: list[ir.Value]) -> ir.Value:
    """The sum of each of some vectors, next to each other: halves are added in every stage."""
    piece, width = of.width, of.width
    while len(packs) > 1 or piece > 1:
        piece //= 2
        both = len(packs) > 1
        count = width * 2 if both else width
        low = [i for i in range(count) if not i & piece]
        high = [i + piece for i in low]
        pairs = zip(packs[::2], packs[1::2], strict=True) if both else [(packs[0], packs[0])]
        packs = [of.builder.fadd(of.shuffled(a, b, low), of.shuffled(a, b, high)) for a, b in pairs]
        width = len(low)
    return packs[0]


def _starts(builder: ir.IRBuilder, sources: ir.Value, first: ir.Value, step: int) -> list[ir.Value]:
    """Where the lanes begin that each edge of a tile reads."""
    edges = [builder.add(first, whole(i)) for i in range(EDGES)]
    return [_column(builder, sources, edge, step) for edge in edges]


def _add_sums(of: Packs, totals: list[ir.Value], out: ir.Value, place: ir.Value) -> None:
    """Adds the sum of each of the vectors of a tile to float64 numbers."""
    builder, kind = of.builder, ir.VectorType(ir.DoubleType(), EDGES)
    found = _folded(of, totals)
    if of.is_single:
        found = builder.fpext(found, kind)
    pointer = builder.bitcast(builder.gep(out, [place]), kind.as_pointer())
    before = builder.load(pointer)
    before.align = 8
    builder.store(builder.fadd(before, found), pointer).align = 8


def _use_tile(vectors: int) -> Any:
    def generate(of: Packs, arrays: Values, places: Values, _: Any) -> None:
        builder, (own, v, sources, out), (start, first) = of.builder, arrays, places
        starts = _starts(builder, sources, first, vectors * of.width)
        totals = [of.constant(0.0)] * EDGES
        for part in range(vectors):
            offset = whole(part * of.width)
            factor = of.load(own, builder.add(start, offset))
            totals = [
                multiply_add(builder, of.load(v, builder.add(at, offset)), factor, total)
                for at, total in zip(starts, totals, strict=True)
            ]
        _add_sums(of, totals, out, first)

    return make_tile(4, generate)


def _row_and_use_tile(vectors: int) -> Any:
    def generate(of: Packs, arrays: Values, places: Values, fresh: Any) -> None:
        builder, (own, v, sources, weights, out, sums) = of.builder, arrays
        start, first = places
        starts = _starts(builder, sources, first, vectors * of.width)
        edges = [builder.add(first, whole(i)) for i in range(EDGES)]
        scalars = [of.spread(builder.load(builder.gep(weights, [i]))) for i in edges]
        totals = [of.constant(0.0)] * EDGES
        for part in range(vectors):
            offset = whole(part * of.width)
            place = builder.add(start, offset)
            factor = of.load(own, place)
            row = builder.select(fresh, of.constant(0.0), of.load(sums, place))
            for i, at in enumerate(starts):
                pack = of.load(v, builder.add(at, offset))
                totals[i] = multiply_add(builder, pack, factor, totals[i])
                row = multiply_add(builder, pack, scalars[i], row)
            of.store(sums, place, row)
        _add_sums(of, totals, out, first)

    return make_tile(6, generate)


# (v, out, (start, row, to, step), 0.0): a square of lanes and entries, turned:
#     out[to + i * step + l] = v[start + l * row + i]
turn_in = make_tile(2, _turn_in)

# (sums, coefficients, numbers, out, (place, step, number_start, column, start, width), floor):
# back again, times the coefficients of each lane's slice:
#     out[start + l * width + i] = floor + sums[place + i * step + l]
#         * coefficients[numbers[number_start + l] * width + column + i]
# `turn_out_best` adds the coefficients.
turn_out = _turn_out(multiply_add)
turn_out_best = _turn_out(add_coefficient)

# (v, sources, weights, out, (first, count, to), floor): one entry from `count` edges, for lanes l
# of one, two or four vectors (`lanes` in all):
#     out[to + l] = floor + sum_e weights[e] * v[sources[e] * lanes + l]
# `best_*` works in logarithms: the largest of weights + v, and of the floor.
row_of_one, row_of_two, row_of_four = (_row_tile(vectors, multiply_add) for vectors in (1, 2, 4))
best_of_one, best_of_two, best_of_four = (_row_tile(vectors, add_maximise) for vectors in (1, 2, 4))

# (own, v, sources, out, (start, first), 0.0): the use of the edges of one tile, all of one entry:
#     out[first + i] += sum_l own[start + l] * v[sources[first + i] * lanes + l]
# `out` is of float64.
use_of_one, use_of_two, use_of_four = map(_use_tile, (1, 2, 4))

# (own, v, sources, weights, out, sums, (start, first), fresh): the same, and the product with the
# matrix from the same numbers; with `fresh` it begins at 0:
#     sums[start + l] += sum_i weights[first + i] * v[sources[first + i] * lanes + l]
row_and_use_of_one, row_and_use_of_two, row_and_use_of_four = map(_row_and_use_tile, (1, 2, 4))


@kernel
def working_space(shape: ChainShape, like: Floats) -> Floats:
    """Room for four vectors of lanes of the largest sparse group, three times, as in `like`."""
    largest = 0
    for group in range(shape.column.size - 1):
        if shape.is_sparse[group]:
            largest = max(largest, shape.column[group + 1] - shape.column[group])
    return np.empty((3, 4 * largest * numbers_in_vector(like)), like.dtype)


@kernel
def _vectors_at_once(left: int, step: int) -> int:
    """How many vectors of lanes to take where so many lanes are left."""
    if left > 3 * step:
        return 4
    return 2 if left > step else 1


@kernel
def _turn(shape: ChainShape, group: int, v: Floats, lane: int, vectors: int, out: Floats) -> None:
    """out[i, l] = v[lane + l, first + i] of a group for the lanes of some vectors."""
    step, first, width = numbers_in_vector(v), shape.column[group], shape.width
    lanes = vectors * step
    for part in range(0, lanes, step):
        start = (lane + part) * width + first
        for i in range(0, shape.column[group + 1] - first, step):
            turn_in(v, out, (start + i, width, i * lanes + part, lanes), 0.0)


@kernel
def _turn_back(
    shape: ChainShape,
    group: int,
    sums: Floats,
    given: Factors,
    lane: int,
    vectors: int,
    out: Floats,
    best: bool,
) -> None:
    """out[lane + l, first + i] = floor + c_l sums[i, l] for the lanes of some vectors.

    With `best` both are logarithms, which add up.
    """
    width, first, step = shape.width, shape.column[group], numbers_in_vector(out)
    values, numbers, lanes = given.coefficients, given.numbers, vectors * step
    for begin in range(lane, lane + lanes, step):
        for i in range(0, shape.column[group + 1] - first, step):
            place, to = i * lanes + begin - lane, begin * width + first + i
            places = (place, lanes, begin, first + i, to, width)
            if best:
                turn_out_best(sums, values, numbers, out, places, 0.0)
            else:
                turn_out(sums, values, numbers, out, places, given.floor)


@kernel
def advance_sparse(
    group: int,
    matrix: ChainMatrix,
    v: Floats,
    out: Floats,
    given: Factors,
    n: int,
    space: Floats,
    best: bool,
) -> None:
    """out[l] = floor + c_l (floor + matrix v[l]) for one group.

    With `best` it is log c_l plus the largest of log weight + v[l], over the edges.
    """
    shape = matrix.shape
    first, floor = shape.column[group], given.floor
    size, step = shape.column[group + 1] - first, numbers_in_vector(v)
    own, sums = space[0], space[1]
    source, weight = matrix.source, matrix.weight
    lane = 0
    while lane < n:
        vectors = _vectors_at_once(n - lane, step)
        _turn(shape, group, v, lane, vectors, own)
        for i in range(size):
            edge = matrix.row_start[first + i]
            places = (edge, matrix.row_end[first + i] - edge, i * vectors * step)
            if best and vectors == 4:
                best_of_four(own, source, weight, sums, places, -np.inf)
            elif best and vectors == 2:
                best_of_two(own, source, weight, sums, places, -np.inf)
            elif best:
                best_of_one(own, source, weight, sums, places, -np.inf)
            elif vectors == 4:
                row_of_four(own, source, weight, sums, places, floor)
            elif vectors == 2:
                row_of_two(own, source, weight, sums, places, floor)
            else:
                row_of_one(own, source, weight, sums, places, floor)
        _turn_back(shape, group, sums, given, lane, vectors, out, best)
        lane += vectors * step


@kernel
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


@kernel
def add_use(
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
    shape = matrix.shape
    first, step = shape.column[group], numbers_in_vector(rows)
    own, read = space[0], space[1]
    lane = 0
    while lane < n:
        vectors = _vectors_at_once(n - lane, step)
        _turn(shape, group, rows, lane, vectors, own)
        _turn(shape, group, sources, lane, vectors, read)
        for i in range(shape.column[group + 1] - first):
            for edge in range(matrix.row_start[first + i], matrix.row_end[first + i], EDGES):
                places = (i * vectors * step, edge)
                if vectors == 4:
                    use_of_four(own, read, matrix.source, out, places, 0.0)
                elif vectors == 2:
                    use_of_two(own, read, matrix.source, out, places, 0.0)
                else:
                    use_of_one(own, read, matrix.source, out, places, 0.0)
        lane += vectors * step


@kernel
def advance_and_add_use(
    group: int,
    matrix: ChainMatrix,
    rows: Floats,
    sources: Floats,
    out: Floats,
    ones: Factors,
    n: int,
    use: Floats,
    space: Floats,
) -> None:
    """Both out[l] = matrix sources[l] and `add_use`, which read the same numbers, for one group."""
    shape = matrix.shape
    first, step = shape.column[group], numbers_in_vector(rows)
    own, read, sums = space[0], space[1], space[2]
    source, weight = matrix.source, matrix.weight
    lane = 0
    while lane < n:
        vectors = _vectors_at_once(n - lane, step)
        lanes = vectors * step
        _turn(shape, group, rows, lane, vectors, own)
        _turn(shape, group, sources, lane, vectors, read)
        for i in range(shape.column[group + 1] - first):
            begin, end, at = matrix.row_start[first + i], matrix.row_end[first + i], i * lanes
            if begin == end:
                sums[at : at + lanes] = 0.0
            for edge in range(begin, end, EDGES):
                places, fresh = (at, edge), edge == begin
                if vectors == 4:
                    row_and_use_of_four(own, read, source, weight, use, sums, places, fresh)
                elif vectors == 2:
                    row_and_use_of_two(own, read, source, weight, use, sums, places, fresh)
                else:
                    row_and_use_of_one(own, read, source, weight, use, sums, places, fresh)
        _turn_back(shape, group, sums, ones, lane, vectors, out, False)
        lane += lanes

"""Tiles of products with a sparse matrix: one weight times the same entry of many lanes.

Here lanes lie next to each other, in one, two or four vectors for each entry, so that an edge costs
one read of its weight for all of them. `turn_in` and `turn_out` lead from lanes whose vectors are
contiguous, as all else of a chain has them, to this order and back.
"""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dspn.engine.cpu.kernels.vectors import (
    INDEX,
    Combine,
    Packs,
    add_maximise,
    data_of,
    multiply_add,
    repeat,
    whole,
)

EDGES: Final = 8  # edges to a tile where their use is added up


def _turn_in() -> Any:
    @intrinsic
    def tile(
        typing_context: Any, v: Any, start: Any, row: Any, out: Any, place: Any, step: Any
    ) -> Any:
        n = types.int64
        signature = types.void(v, n, n, out, n, n)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            v, out = (data_of(context, builder, signature.args[i], args[i]) for i in (0, 3))
            of = Packs(builder, signature.args[0])
            packs = [
                of.load(v, builder.add(args[1], builder.mul(args[2], whole(lane))))
                for lane in range(of.width)
            ]
            for i, pack in enumerate(of.turned(packs)):
                of.store(out, builder.add(args[4], builder.mul(args[5], whole(i))), pack)
            return context.get_dummy_value()

        return signature, generate

    return tile


def _turn_out(finish: Combine) -> Any:
    @intrinsic
    def tile(
        typing_context: Any,
        sums: Any,
        place: Any,
        step: Any,
        coefficients: Any,
        numbers: Any,
        number_start: Any,
        column: Any,
        out: Any,
        start: Any,
        width: Any,
        floor: Any,
    ) -> Any:
        n = types.int64
        signature = types.void(sums, n, n, coefficients, numbers, n, n, out, n, n, types.float64)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            sums, coefficients, numbers, out = (
                data_of(context, builder, signature.args[i], args[i]) for i in (0, 3, 4, 7)
            )
            of = Packs(builder, signature.args[0])
            floor = of.spread(of.narrowed(args[10]))
            packs = [
                of.load(sums, builder.add(args[1], builder.mul(args[2], whole(i))))
                for i in range(of.width)
            ]
            for lane, pack in enumerate(of.turned(packs)):
                own = builder.load(builder.gep(numbers, [builder.add(args[5], whole(lane))]))
                factor = of.load(coefficients, builder.add(builder.mul(own, args[9]), args[6]))
                to = builder.add(args[8], builder.mul(args[9], whole(lane)))
                of.store(out, to, finish(builder, factor, pack, floor))
            return context.get_dummy_value()

        return signature, generate

    return tile


def _add_coefficient(
    builder: ir.IRBuilder, pack: ir.Value, total: ir.Value, floor: ir.Value
) -> ir.Value:
    return builder.fadd(pack, total)


def _column(builder: ir.IRBuilder, sources: ir.Value, edge: ir.Value, step: int) -> ir.Value:
    """Where the lanes of the entry begin that an edge reads."""
    own = builder.load(builder.gep(sources, [edge]))
    return builder.mul(builder.sext(own, INDEX), whole(step))


def _row_tile(vectors: int, combine: Combine) -> Any:
    @intrinsic
    def tile(
        typing_context: Any,
        v: Any,
        sources: Any,
        weights: Any,
        first: Any,
        count: Any,
        out: Any,
        place: Any,
        floor: Any,
    ) -> Any:
        n = types.int64
        signature = types.void(v, sources, weights, n, n, out, n, types.float64)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            v, sources, weights, out = (
                data_of(context, builder, signature.args[i], args[i]) for i in (0, 1, 2, 5)
            )
            of = Packs(builder, signature.args[0])
            parts = [whole(part * of.width) for part in range(vectors)]

            def body(j: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
                edge = builder.add(args[3], j)
                start = _column(builder, sources, edge, vectors * of.width)
                weight = of.spread(builder.load(builder.gep(weights, [edge])))
                return [
                    combine(builder, of.load(v, builder.add(start, part)), weight, total)
                    for part, total in zip(parts, totals, strict=True)
                ]

            initial = of.spread(of.narrowed(args[7]))
            totals = repeat(builder, args[4], [initial] * vectors, body)
            for part, total in zip(parts, totals, strict=True):
                of.store(out, builder.add(args[6], part), total)
            return context.get_dummy_value()

        return signature, generate

    return tile


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
    @intrinsic
    def tile(
        typing_context: Any,
        own: Any,
        start: Any,
        v: Any,
        sources: Any,
        first: Any,
        out: Any,
    ) -> Any:
        n = types.int64
        signature = types.void(own, n, v, sources, n, out)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            own, v, sources, out = (
                data_of(context, builder, signature.args[i], args[i]) for i in (0, 2, 3, 5)
            )
            of = Packs(builder, signature.args[0])
            starts = _starts(builder, sources, args[4], vectors * of.width)
            totals = [of.constant(0.0)] * EDGES
            for part in range(vectors):
                offset = whole(part * of.width)
                factor = of.load(own, builder.add(args[1], offset))
                totals = [
                    multiply_add(builder, of.load(v, builder.add(start, offset)), factor, total)
                    for start, total in zip(starts, totals, strict=True)
                ]
            _add_sums(of, totals, out, args[4])
            return context.get_dummy_value()

        return signature, generate

    return tile


def _row_and_use_tile(vectors: int) -> Any:
    @intrinsic
    def tile(
        typing_context: Any,
        own: Any,
        start: Any,
        v: Any,
        sources: Any,
        weights: Any,
        first: Any,
        out: Any,
        sums: Any,
        fresh: Any,
    ) -> Any:
        n = types.int64
        signature = types.void(own, n, v, sources, weights, n, out, sums, types.boolean)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            own, v, sources, weights, out, sums = (
                data_of(context, builder, signature.args[i], args[i]) for i in (0, 2, 3, 4, 6, 7)
            )
            of = Packs(builder, signature.args[0])
            starts = _starts(builder, sources, args[5], vectors * of.width)
            places = [builder.add(args[5], whole(i)) for i in range(EDGES)]
            scalars = [of.spread(builder.load(builder.gep(weights, [i]))) for i in places]
            totals = [of.constant(0.0)] * EDGES
            for part in range(vectors):
                offset = whole(part * of.width)
                place = builder.add(args[1], offset)
                factor = of.load(own, place)
                row = builder.select(args[8], of.constant(0.0), of.load(sums, place))
                for i, start in enumerate(starts):
                    pack = of.load(v, builder.add(start, offset))
                    totals[i] = multiply_add(builder, pack, factor, totals[i])
                    row = multiply_add(builder, pack, scalars[i], row)
                of.store(sums, place, row)
            _add_sums(of, totals, out, args[5])
            return context.get_dummy_value()

        return signature, generate

    return tile


# (v, start, row, out, place, step): a square of lanes and entries, turned:
#     out[place + i * step + l] = v[start + l * row + i]
turn_in = _turn_in()

# (sums, place, step, coefficients, numbers, number_start, column, out, start, width, floor): back
# again, times the coefficients of each lane's slice:
#     out[start + l * width + i] = floor + sums[place + i * step + l]
#         * coefficients[numbers[number_start + l] * width + column + i]
# `turn_out_best` adds the coefficients.
turn_out = _turn_out(multiply_add)
turn_out_best = _turn_out(_add_coefficient)

# (v, sources, weights, first, count, out, place, floor): one entry from `count` edges, for lanes l
# of one, two or four vectors (`lanes` in all):
#     out[place + l] = floor + sum_e weights[e] * v[sources[e] * lanes + l]
# `best_*` works in logarithms: the largest of weights + v, and of the floor.
row_of_one = _row_tile(1, multiply_add)
row_of_two = _row_tile(2, multiply_add)
row_of_four = _row_tile(4, multiply_add)
best_row_of_one = _row_tile(1, add_maximise)
best_row_of_two = _row_tile(2, add_maximise)
best_row_of_four = _row_tile(4, add_maximise)

# (own, start, v, sources, first, out): the use of the edges of one tile, all of one entry:
#     out[first + i] += sum_l own[start + l] * v[sources[first + i] * lanes + l]
# `out` is of float64.
use_of_one = _use_tile(1)
use_of_two = _use_tile(2)
use_of_four = _use_tile(4)

# (own, start, v, sources, weights, first, out, sums, fresh): the same, and the product with the
# matrix from the same numbers; with `fresh` it begins at 0:
#     sums[start + l] += sum_i weights[first + i] * v[sources[first + i] * lanes + l]
row_and_use_of_one = _row_and_use_tile(1)
row_and_use_of_two = _row_and_use_tile(2)
row_and_use_of_four = _row_and_use_tile(4)

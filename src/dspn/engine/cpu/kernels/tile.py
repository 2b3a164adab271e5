"""Register tiles of small matrix products, written in vector instructions.

LLVM's loop vectoriser keeps the accumulators of a small matrix product in memory. These intrinsics
build the loop with vectors of 64 bytes, so that a tile of eight rows stays in registers and runs
near the processor's peak, for matrices as small as 8 x 8.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dspn.engine.cpu.kernels.vectors import (
    INDEX,
    LANE,
    VECTOR,
    Combine,
    Packs,
    add_maximise,
    data_of,
    multiply_add,
    repeat,
    whole,
)


def _sum_rows(
    packs_of: Packs,
    combine: Combine,
    start: list[ir.Value],
    packs: tuple[ir.Value, ...],
    scalars: tuple[ir.Value, ...],
    count: ir.Value,
) -> list[ir.Value]:
    """The accumulators after `count` steps of combine(pack_j, scalar_{r, j}, accumulator_r).

    `packs` is (data, start, step); `scalars` is (data, start, row, step).
    """
    builder = packs_of.builder
    pack_data, pack_start, pack_step = packs
    scalar_data, scalar_start, scalar_row, scalar_step = scalars

    def body(j: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
        pack = packs_of.load(pack_data, builder.add(pack_start, builder.mul(j, pack_step)))
        base = builder.add(scalar_start, builder.mul(j, scalar_step))
        after = []
        for row, total in enumerate(totals):
            place = builder.add(base, builder.mul(scalar_row, whole(row)))
            scalar = packs_of.spread(builder.load(builder.gep(scalar_data, [place])))
            after.append(combine(builder, pack, scalar, total))
        return after

    return repeat(builder, count, start, body)


def _outer_tile(rows: int) -> Any:
    @intrinsic
    def tile(
        typing_context: Any,
        packs: Any,
        pack_start: Any,
        pack_step: Any,
        scalars: Any,
        scalar_start: Any,
        scalar_row: Any,
        scalar_step: Any,
        count: Any,
        out: Any,
        out_start: Any,
        out_row: Any,
    ) -> Any:
        n = types.int64
        signature = types.void(packs, n, n, scalars, n, n, n, n, out, n, n)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            packs, scalars, out = (
                data_of(context, builder, signature.args[i], args[i]) for i in (0, 3, 8)
            )
            places = [
                builder.add(args[9], builder.mul(args[10], whole(row))) for row in range(rows)
            ]
            of = Packs(builder, signature.args[0])
            start = [of.load(out, place) for place in places]
            totals = _sum_rows(
                of, multiply_add, start, (packs, *args[1:3]), (scalars, *args[4:7]), args[7]
            )
            for place, total in zip(places, totals, strict=True):
                of.store(out, place, total)
            return context.get_dummy_value()

        return signature, generate

    return tile


def _slice_tile(rows: int, combine: Combine, finish: Combine) -> Any:
    @intrinsic
    def tile(
        typing_context: Any,
        matrix: Any,
        matrix_start: Any,
        size: Any,
        v: Any,
        v_start: Any,
        width: Any,
        out: Any,
        out_start: Any,
        coefficients: Any,
        numbers: Any,
        number_start: Any,
        column: Any,
        first: Any,
    ) -> Any:
        n = types.int64
        signature = types.void(
            matrix, n, n, v, n, n, out, n, coefficients, numbers, n, n, types.float64
        )

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            matrix, v, out, coefficients, numbers = (
                data_of(context, builder, signature.args[i], args[i]) for i in (0, 3, 6, 8, 9)
            )
            of = Packs(builder, signature.args[0])
            size, width, initial = args[2], args[5], of.spread(of.narrowed(args[12]))
            totals = _sum_rows(
                of,
                combine,
                [initial] * rows,
                (matrix, args[1], size),
                (v, args[4], width, whole(1)),
                size,
            )
            for row, total in enumerate(totals):
                number = builder.load(builder.gep(numbers, [builder.add(args[10], whole(row))]))
                place = builder.add(builder.mul(number, width), args[11])
                pack = of.load(coefficients, place)
                index = builder.add(args[7], builder.mul(width, whole(row)))
                of.store(out, index, finish(builder, pack, total, initial))
            return context.get_dummy_value()

        return signature, generate

    return tile


def _add_coefficient(
    builder: ir.IRBuilder, pack: ir.Value, total: ir.Value, initial: ir.Value
) -> ir.Value:
    return builder.fadd(pack, total)


def _product_tile(join: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]) -> Any:
    @intrinsic
    def tile(
        typing_context: Any,
        tables: Any,
        a: Any,
        b: Any,
        c: Any,
        d: Any,
        out: Any,
        place: Any,
        count: Any,
        floor: Any,
    ) -> Any:
        n = types.int64
        signature = types.void(tables, n, n, n, n, out, n, n, types.float64)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            tables, out = (data_of(context, builder, signature.args[i], args[i]) for i in (0, 5))
            of = Packs(builder, signature.args[0])
            floor = of.spread(of.narrowed(args[8]))

            def body(j: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
                offset = builder.mul(j, whole(of.width))
                first, second, third, fourth = (
                    of.load(tables, builder.add(args[i], offset)) for i in range(1, 5)
                )
                both = join(builder, join(builder, first, second), join(builder, third, fourth))
                of.store(out, builder.add(args[6], offset), builder.fadd(both, floor))
                return totals

            repeat(builder, args[7], [], body)
            return context.get_dummy_value()

        return signature, generate

    return tile


def _better(
    builder: ir.IRBuilder, one: tuple[ir.Value, ...], other: tuple[ir.Value, ...]
) -> tuple[ir.Value, ...]:
    """The (value, place) of the greater value; of equal ones that with the earlier place."""
    same = builder.fcmp_ordered("==", other[0], one[0])
    earlier = builder.and_(same, builder.icmp_signed("<", other[1], one[1]))
    wins = builder.or_(builder.fcmp_ordered(">", other[0], one[0]), earlier)
    return tuple(builder.select(wins, b, a) for a, b in zip(one, other, strict=True))


def _best_tile() -> Any:
    @intrinsic
    def tile(typing_context: Any, a: Any, a_start: Any, b: Any, b_start: Any, count: Any) -> Any:
        n = types.int64
        signature = n(a, n, b, n, n)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            a, b = (data_of(context, builder, signature.args[i], args[i]) for i in (0, 2))
            of = Packs(builder, signature.args[0])
            places = ir.VectorType(INDEX, VECTOR)
            steps = ir.Constant(places, [VECTOR] * VECTOR)

            def body(j: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
                best, place, here = totals
                offset = builder.mul(j, whole(VECTOR))
                term = builder.fadd(
                    of.load(a, builder.add(args[1], offset)),
                    of.load(b, builder.add(args[3], offset)),
                )
                better = builder.fcmp_ordered(">", term, best)
                return [
                    builder.select(better, term, best),
                    builder.select(better, here, place),
                    builder.add(here, steps),
                ]

            lowest = of.constant(float("-inf"))
            first = ir.Constant(places, list(range(VECTOR)))
            best, place, _ = repeat(builder, args[4], [lowest, first, first], body)
            pairs = [
                tuple(builder.extract_element(pack, ir.Constant(LANE, i)) for pack in (best, place))
                for i in range(VECTOR)
            ]
            while len(pairs) > 1:  # halves against each other, which keeps the chain short
                half = len(pairs) // 2
                pairs = [_better(builder, pairs[i], pairs[i + half]) for i in range(half)]
            return pairs[0][1]

        return signature, generate

    return tile


def _weigh_tile() -> Any:
    @intrinsic
    def tile(
        typing_context: Any,
        above: Any,
        above_start: Any,
        d: Any,
        d_start: Any,
        coefficients: Any,
        coefficient_start: Any,
        sums: Any,
        e: Any,
        count: Any,
        weight: Any,
        least: Any,
    ) -> Any:
        n, real = types.int64, types.float64
        signature = real(above, n, d, n, coefficients, n, sums, e, n, real, real)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            above, d, coefficients, sums, e = (
                data_of(context, builder, signature.args[i], args[i]) for i in (0, 2, 4, 6, 7)
            )

            of = Packs(builder, signature.args[0])

            def at(start: ir.Value, j: ir.Value) -> ir.Value:
                return builder.add(start, builder.mul(j, whole(of.width)))

            def add_mass(j: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
                v = of.load(above, at(args[1], j))
                own = of.load(d, at(args[3], j))
                return [multiply_add(builder, v, own, totals[0])]

            total = repeat(builder, args[8], [of.constant(0.0)], add_mass)[0]
            mass = of.widened(of.sum(total))
            enough = builder.fcmp_ordered(">", mass, args[10])
            safe = builder.select(enough, mass, ir.Constant(ir.DoubleType(), 1.0))
            given = builder.select(enough, args[9], ir.Constant(ir.DoubleType(), 0.0))
            factor = of.spread(of.narrowed(builder.fdiv(given, safe)))

            def spread_mass(j: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
                here, there = at(args[3], j), at(args[5], j)
                part = builder.fmul(of.load(d, here), factor)
                total = of.load(sums, there)
                v = of.load(above, at(args[1], j))
                c = of.load(coefficients, there)
                of.store(sums, there, multiply_add(builder, v, part, total))
                of.store(e, here, builder.fmul(part, c))
                return totals

            repeat(builder, args[8], [], spread_mass)
            return mass

        return signature, generate

    return tile


# (packs, pack_start, pack_step, scalars, scalar_start, scalar_row, scalar_step, count, out,
# out_start, out_row):
#     out[out_start + r * out_row + 0..7] += sum_j packs[pack_start + j * pack_step + 0..7]
#         * scalars[scalar_start + r * scalar_row + j * scalar_step]
add_eight_rows = _outer_tile(8)

# (matrix, matrix_start, size, v, v_start, width, out, out_start, coefficients, numbers,
# number_start, column, first): eight entries of one slice for r = 0 .. rows - 1 neighbouring lanes,
# whose vectors are `width` apart:
#     out[out_start + r * width + 0..7] = first
#         + coefficients[numbers[number_start + r] * width + column + 0..7]
#         * (first + sum_j matrix[matrix_start + j * size + 0..7] * v[v_start + r * width + j])
# `best_*` works in logarithms: the coefficient plus the largest of matrix + v.
eight_lanes = _slice_tile(8, multiply_add, multiply_add)
one_lane = _slice_tile(1, multiply_add, multiply_add)
best_eight_lanes = _slice_tile(8, add_maximise, _add_coefficient)
best_one_lane = _slice_tile(1, add_maximise, _add_coefficient)

# (tables, a, b, c, d, out, place, count, floor): the product of four rows of tables, for i in
# `count` packs:
#     out[place + i] = tables[a + i] * tables[b + i] * (tables[c + i] * tables[d + i]) + floor
# `sum_of_four` adds the four rows instead.
product_of_four = _product_tile(lambda builder, x, y: builder.fmul(x, y))
sum_of_four = _product_tile(lambda builder, x, y: builder.fadd(x, y))

# (above, above_start, d, d_start, coefficients, coefficient_start, sums, e, count, weight, least):
# the mass sum_i v_i d_i of `count` packs. Adds v d weight / mass to `sums`, which begins where the
# coefficients do, and writes c d weight / mass to `e`, which begins where the derivatives do. A
# mass of at most `least` adds nothing.
weigh_row = _weigh_tile()

# (a, a_start, b, b_start, count): the first i below 8 * count with the largest
#     a[a_start + i] + b[b_start + i]
best_entry = _best_tile()

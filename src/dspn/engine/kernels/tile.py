"""A register tile of a matrix product, written in vector instructions.

LLVM's loop vectoriser keeps the accumulators of a small matrix product in memory. These intrinsics build the loop
with vectors of eight float64, so that a tile of eight rows stays in registers and runs near the processor's peak, for
matrices as small as 8 x 8. A processor with shorter vectors gets several instructions for each.
"""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

VECTOR: Final = 8

_FLOAT = ir.DoubleType()
_INDEX = ir.IntType(64)
_PACK = ir.VectorType(_FLOAT, VECTOR)
_LANE = ir.IntType(32)


def _number(value: int) -> ir.Constant:
    return ir.Constant(_INDEX, value)


def _pack_pointer(builder: ir.IRBuilder, data: ir.Value, index: ir.Value) -> ir.Value:
    return builder.bitcast(builder.gep(data, [index]), _PACK.as_pointer())


def _load_pack(builder: ir.IRBuilder, data: ir.Value, index: ir.Value) -> ir.Value:
    loaded = builder.load(_pack_pointer(builder, data, index))
    loaded.align = 8
    return loaded


def _spread(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    none = ir.Constant(_PACK, ir.Undefined)
    first = builder.insert_element(none, scalar, ir.Constant(_LANE, 0))
    return builder.shuffle_vector(first, none, ir.Constant(ir.VectorType(_LANE, VECTOR), [0] * VECTOR))


def _multiply_add(builder: ir.IRBuilder, pack: ir.Value, scalar: ir.Value, total: ir.Value) -> ir.Value:
    product = builder.fmul(pack, scalar, flags=("contract",))
    return builder.fadd(product, total, flags=("contract",))


def _add_maximise(builder: ir.IRBuilder, pack: ir.Value, scalar: ir.Value, total: ir.Value) -> ir.Value:
    term = builder.fadd(pack, scalar)
    return builder.select(builder.fcmp_ordered(">", term, total), term, total)


_Combine = Callable[[ir.IRBuilder, ir.Value, ir.Value, ir.Value], ir.Value]


def _loop(
    builder: ir.IRBuilder, count: ir.Value, start: list[ir.Value], body: Callable[[ir.Value, list[ir.Value]], list[ir.Value]]
) -> list[ir.Value]:
    """Runs body(j, accumulators) for j = 0 .. count - 1 and returns the last accumulators."""
    entry = builder.block
    loop = builder.append_basic_block("tile.loop")
    done = builder.append_basic_block("tile.done")
    builder.cbranch(builder.icmp_signed(">", count, _number(0)), loop, done)
    builder.position_at_end(loop)
    j = builder.phi(_INDEX)
    totals = [builder.phi(_PACK) for _ in start]
    j.add_incoming(_number(0), entry)
    for total, value in zip(totals, start, strict=True):
        total.add_incoming(value, entry)
    after = body(j, totals)
    following = builder.add(j, _number(1))
    j.add_incoming(following, loop)
    for total, value in zip(totals, after, strict=True):
        total.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    builder.position_at_end(done)
    result = [builder.phi(_PACK) for _ in start]
    for total, before, last in zip(result, start, after, strict=True):
        total.add_incoming(before, entry)
        total.add_incoming(last, loop)
    return result


def _tile(rows: int, combine: _Combine, *, accumulate: bool) -> Any:
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
        first: Any,
    ) -> Any:
        number = types.int64
        signature = types.void(
            packs,
            number,
            number,
            scalars,
            number,
            number,
            number,
            number,
            out,
            number,
            number,
            types.float64,
        )

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            def data(position: int) -> ir.Value:
                kind = signature.args[position]
                return context.make_array(kind)(context, builder, args[position]).data

            pack_data, scalar_data, out_data = data(0), data(3), data(8)
            places = [
                builder.add(args[9], builder.mul(args[10], _number(row))) for row in range(rows)
            ]
            if accumulate:
                start = [_load_pack(builder, out_data, place) for place in places]
            else:
                start = [_spread(builder, args[11])] * rows

            def body(j: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
                pack = _load_pack(builder, pack_data, builder.add(args[1], builder.mul(j, args[2])))
                base = builder.add(args[4], builder.mul(j, args[6]))
                after = []
                for row, total in enumerate(totals):
                    place = builder.add(base, builder.mul(args[5], _number(row)))
                    scalar = _spread(builder, builder.load(builder.gep(scalar_data, [place])))
                    after.append(combine(builder, pack, scalar, total))
                return after

            for place, total in zip(places, _loop(builder, args[7], start, body), strict=True):
                stored = builder.store(total, _pack_pointer(builder, out_data, place))
                stored.align = 8
            return context.get_dummy_value()

        return signature, generate

    return tile


# Each takes (packs, pack_start, pack_step, scalars, scalar_start, scalar_row, scalar_step, count, out, out_start,
# out_row, first), all arrays flat, and computes for r = 0 .. rows - 1 the eight numbers at out_start + r * out_row:
#     first + sum_j packs[pack_start + j * pack_step + 0..7] * scalars[scalar_start + r * scalar_row + j * scalar_step]
# (`max_*`: the largest of the sums instead of the sum of the products; `add_*`: added to what stands in `out`).
eight_rows = _tile(8, _multiply_add, accumulate=False)
one_row = _tile(1, _multiply_add, accumulate=False)
max_eight_rows = _tile(8, _add_maximise, accumulate=False)
max_one_row = _tile(1, _add_maximise, accumulate=False)
add_eight_rows = _tile(8, _multiply_add, accumulate=True)

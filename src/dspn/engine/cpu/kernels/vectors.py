"""Vectors of 64 bytes, from which tiles are built (`tile`, `sparse_tile`).

A processor with shorter vectors gets several instructions for each. The arrays of a tile are all of
float64, eight to a vector, or all of float32, sixteen to a vector; scalars are float64.
"""

from collections.abc import Callable
from typing import Any, Final, final

from llvmlite import ir
from numba import types

VECTOR: Final = 8
VECTOR_SINGLE: Final = 16

INDEX = ir.IntType(64)
LANE = ir.IntType(32)


def whole(value: int) -> ir.Constant:
    """A known number of places."""
    return ir.Constant(INDEX, value)


@final
class Packs:
    """Vectors of the numbers of an array."""

    def __init__(self, builder: ir.IRBuilder, array: Any) -> None:
        self.builder = builder
        self.is_single = array.dtype == types.float32
        self.element = ir.FloatType() if self.is_single else ir.DoubleType()
        self.width = VECTOR_SINGLE if self.is_single else VECTOR
        self.type = ir.VectorType(self.element, self.width)

    def _pointer(self, data: ir.Value, index: ir.Value) -> ir.Value:
        return self.builder.bitcast(self.builder.gep(data, [index]), self.type.as_pointer())

    def load(self, data: ir.Value, index: ir.Value) -> ir.Value:
        """Neighbours from an index on."""
        loaded = self.builder.load(self._pointer(data, index))
        loaded.align = 4 if self.is_single else 8
        return loaded

    def store(self, data: ir.Value, index: ir.Value, pack: ir.Value) -> None:
        """Writes neighbours from an index on."""
        stored = self.builder.store(pack, self._pointer(data, index))
        stored.align = 4 if self.is_single else 8

    def spread(self, scalar: ir.Value) -> ir.Value:
        """Copies of a number of the element type."""
        none = ir.Constant(self.type, ir.Undefined)
        first = self.builder.insert_element(none, scalar, ir.Constant(LANE, 0))
        return self.builder.shuffle_vector(
            first, none, ir.Constant(ir.VectorType(LANE, self.width), [0] * self.width)
        )

    def narrowed(self, scalar: ir.Value) -> ir.Value:
        """A float64 as the element type."""
        return self.builder.fptrunc(scalar, self.element) if self.is_single else scalar

    def widened(self, scalar: ir.Value) -> ir.Value:
        """A number of the element type as a float64."""
        return self.builder.fpext(scalar, ir.DoubleType()) if self.is_single else scalar

    def constant(self, value: float) -> ir.Value:
        """Copies of a known number."""
        return ir.Constant(self.type, [value] * self.width)

    def turned(self, packs: list[ir.Value]) -> list[ir.Value]:
        """The columns of a square of as many vectors as each holds numbers.

        Each stage exchanges halves of squares half as large.
        """
        packs, half = list(packs), self.width // 2
        while half:
            low = [i if not i & half else i - half + self.width for i in range(self.width)]
            high = [i + half if not i & half else i + self.width for i in range(self.width)]
            for first in range(self.width):
                if not first & half:
                    one, other = packs[first], packs[first + half]
                    packs[first] = self.shuffled(one, other, low)
                    packs[first + half] = self.shuffled(one, other, high)
            half //= 2
        return packs

    def shuffled(self, one: ir.Value, other: ir.Value, places: list[int]) -> ir.Value:
        """The numbers at some places of two vectors, of which the second counts on."""
        chosen = ir.Constant(ir.VectorType(LANE, len(places)), places)
        return self.builder.shuffle_vector(one, other, chosen)

    def sum(self, pack: ir.Value) -> ir.Value:
        """The numbers of a vector added up, halves first."""
        builder = self.builder
        parts = [builder.extract_element(pack, ir.Constant(LANE, i)) for i in range(self.width)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [builder.fadd(parts[i], parts[i + half]) for i in range(half)]
        return parts[0]


def multiply_add(
    builder: ir.IRBuilder, pack: ir.Value, scalar: ir.Value, total: ir.Value
) -> ir.Value:
    """Total + pack scalar, rounded once where the processor can."""
    product = builder.fmul(pack, scalar, flags=("contract",))
    return builder.fadd(product, total, flags=("contract",))


def add_maximise(
    builder: ir.IRBuilder, pack: ir.Value, scalar: ir.Value, total: ir.Value
) -> ir.Value:
    """max(total, pack + scalar)."""
    term = builder.fadd(pack, scalar)
    return builder.select(builder.fcmp_ordered(">", term, total), term, total)


Combine = Callable[[ir.IRBuilder, ir.Value, ir.Value, ir.Value], ir.Value]


def repeat(
    builder: ir.IRBuilder,
    count: ir.Value,
    start: list[ir.Value],
    body: Callable[[ir.Value, list[ir.Value]], list[ir.Value]],
) -> list[ir.Value]:
    """Runs body(j, accumulators) for j = 0 .. count - 1 and returns the last accumulators."""
    entry = builder.block
    inside = builder.append_basic_block("tile.loop")
    done = builder.append_basic_block("tile.done")
    builder.cbranch(builder.icmp_signed(">", count, whole(0)), inside, done)
    builder.position_at_end(inside)
    j = builder.phi(INDEX)
    totals = [builder.phi(value.type) for value in start]
    j.add_incoming(whole(0), entry)
    for total, value in zip(totals, start, strict=True):
        total.add_incoming(value, entry)
    after = body(j, totals)
    following = builder.add(j, whole(1))
    j.add_incoming(following, inside)
    for total, value in zip(totals, after, strict=True):
        total.add_incoming(value, inside)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, done)
    builder.position_at_end(done)
    result = [builder.phi(value.type) for value in start]
    for total, before, last in zip(result, start, after, strict=True):
        total.add_incoming(before, entry)
        total.add_incoming(last, inside)
    return result


def data_of(context: Any, builder: ir.IRBuilder, kind: Any, array: ir.Value) -> ir.Value:
    """Where an array's numbers begin."""
    return context.make_array(kind)(context, builder, array).data

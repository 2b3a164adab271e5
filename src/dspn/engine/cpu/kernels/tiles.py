"""Register tiles of small matrix products, written in vector instructions.

LLVM's loop vectoriser keeps the accumulators of a small matrix product in memory. These intrinsics
build the loop with vectors of 64 bytes, so that a tile of eight rows stays in registers and runs
near the processor's peak, for matrices as small as 8 x 8. A processor with shorter vectors gets
several instructions for each. The arrays of a tile are all of float64, eight to a vector, or all of
float32, sixteen to a vector; other numbers are float64.
"""

from collections.abc import Callable
from typing import Any, Final, final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

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


def add_coefficient(
    builder: ir.IRBuilder, pack: ir.Value, total: ir.Value, floor: ir.Value
) -> ir.Value:
    """A coefficient in logarithms, which has no floor."""
    return builder.fadd(pack, total)


Values = list[ir.Value]
Generate = Callable[[Packs, Values, Values, Any], ir.Value | None]

# Intrinsics of so many arrays, a tuple of places and a number; Numba wants each argument by name.
_WITH_ARRAYS: Final[dict[int, Callable[[Any], Any]]] = {
    2: lambda typed: intrinsic(lambda _, a, b, p, x: typed(a, b, p, x)),
    3: lambda typed: intrinsic(lambda _, a, b, c, p, x: typed(a, b, c, p, x)),
    4: lambda typed: intrinsic(lambda _, a, b, c, d, p, x: typed(a, b, c, d, p, x)),
    5: lambda typed: intrinsic(lambda _, a, b, c, d, e, p, x: typed(a, b, c, d, e, p, x)),
    6: lambda typed: intrinsic(lambda _, a, b, c, d, e, f, p, x: typed(a, b, c, d, e, f, p, x)),
}


def make_tile(num_arrays: int, generate: Generate, result: Any = types.void) -> Any:
    """An intrinsic tile(array, ..., (place, ...), number).

    Args:
        num_arrays: How many arrays it takes.
        generate: Writes its instructions, given where the arrays begin, the places and the number,
            and returns its result, if it has one.
        result: The type of the result.
    """

    def typed(*kinds: Any) -> Any:
        def lower(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            pairs = zip(signature.args[:num_arrays], args, strict=False)
            arrays = [context.make_array(kind)(context, builder, own).data for kind, own in pairs]
            count = len(signature.args[num_arrays])
            places = [builder.extract_value(args[num_arrays], i) for i in range(count)]
            of = Packs(builder, signature.args[0])
            found = generate(of, arrays, places, args[-1])
            return context.get_dummy_value() if found is None else found

        return result(*kinds), lower

    return _WITH_ARRAYS[num_arrays](typed)


def _sum_rows(
    of: Packs, combine: Combine, start: Values, packs: Values, scalars: Values, count: ir.Value
) -> Values:
    """The accumulators after `count` steps of combine(pack_j, scalar_{r, j}, accumulator_r).

    `packs` is (data, start, step); `scalars` is (data, start, row, step).
    """
    builder = of.builder

    def body(j: ir.Value, totals: Values) -> Values:
        pack = of.load(packs[0], builder.add(packs[1], builder.mul(j, packs[2])))
        base = builder.add(scalars[1], builder.mul(j, scalars[3]))
        after = []
        for row, total in enumerate(totals):
            place = builder.add(base, builder.mul(scalars[2], whole(row)))
            scalar = of.spread(builder.load(builder.gep(scalars[0], [place])))
            after.append(combine(builder, pack, scalar, total))
        return after

    return repeat(builder, count, start, body)


def _outer_tile(rows: int) -> Any:
    def generate(of: Packs, arrays: Values, places: Values, _: Any) -> None:
        builder, (packs, scalars, out) = of.builder, arrays
        start, step, first, scalar_step, count, to, out_row = places
        rows_at = [builder.add(to, builder.mul(out_row, whole(row))) for row in range(rows)]
        before = [of.load(out, place) for place in rows_at]
        given = [scalars, first, whole(1), scalar_step]
        totals = _sum_rows(of, multiply_add, before, [packs, start, step], given, count)
        for place, total in zip(rows_at, totals, strict=True):
            of.store(out, place, total)

    return make_tile(3, generate)


def _slice_tile(rows: int, combine: Combine, finish: Combine) -> Any:
    def generate(of: Packs, arrays: Values, places: Values, floor: Any) -> None:
        builder, (matrix, v, out, coefficients, numbers) = of.builder, arrays
        start, size, v_start, width, to, number_start, column = places
        initial = of.spread(of.narrowed(floor))
        given = [v, v_start, width, whole(1)]
        totals = _sum_rows(of, combine, [initial] * rows, [matrix, start, size], given, size)
        for row, total in enumerate(totals):
            number = builder.load(builder.gep(numbers, [builder.add(number_start, whole(row))]))
            pack = of.load(coefficients, builder.add(builder.mul(number, width), column))
            index = builder.add(to, builder.mul(width, whole(row)))
            of.store(out, index, finish(builder, pack, total, initial))

    return make_tile(5, generate)


def _product_tile(join: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]) -> Any:
    def generate(of: Packs, arrays: Values, places: Values, number: Any) -> None:
        builder, (tables, out) = of.builder, arrays
        *factors, to, count = places
        floor = of.spread(of.narrowed(number))

        def body(j: ir.Value, totals: Values) -> Values:
            offset = builder.mul(j, whole(of.width))
            a, b, c, d = (of.load(tables, builder.add(factor, offset)) for factor in factors)
            both = join(builder, join(builder, a, b), join(builder, c, d))
            of.store(out, builder.add(to, offset), builder.fadd(both, floor))
            return totals

        repeat(builder, count, [], body)

    return make_tile(2, generate)


def _better(
    builder: ir.IRBuilder, one: tuple[ir.Value, ...], other: tuple[ir.Value, ...]
) -> tuple[ir.Value, ...]:
    """The (value, place) of the greater value; of equal ones that with the earlier place."""
    same = builder.fcmp_ordered("==", other[0], one[0])
    earlier = builder.and_(same, builder.icmp_signed("<", other[1], one[1]))
    wins = builder.or_(builder.fcmp_ordered(">", other[0], one[0]), earlier)
    return tuple(builder.select(wins, b, a) for a, b in zip(one, other, strict=True))


def _best_entry(of: Packs, arrays: Values, places: Values, _: Any) -> ir.Value:
    builder, (a, b), (a_start, b_start, count) = of.builder, arrays, places
    kind = ir.VectorType(INDEX, VECTOR)
    steps = ir.Constant(kind, [VECTOR] * VECTOR)

    def body(j: ir.Value, totals: Values) -> Values:
        best, place, here = totals
        offset = builder.mul(j, whole(VECTOR))
        one, other = (
            of.load(data, builder.add(start, offset))
            for data, start in ((a, a_start), (b, b_start))
        )
        term = builder.fadd(one, other)
        better = builder.fcmp_ordered(">", term, best)
        chosen = builder.select(better, term, best), builder.select(better, here, place)
        return [*chosen, builder.add(here, steps)]

    lowest, first = of.constant(float("-inf")), ir.Constant(kind, list(range(VECTOR)))
    best, place, _ = repeat(builder, count, [lowest, first, first], body)
    pairs = [
        tuple(builder.extract_element(pack, ir.Constant(LANE, i)) for pack in (best, place))
        for i in range(VECTOR)
    ]
    while len(pairs) > 1:  # halves against each other, which keeps the chain short
        half = len(pairs) // 2
        pairs = [_better(builder, pairs[i], pairs[i + half]) for i in range(half)]
    return pairs[0][1]


def _weigh_row(of: Packs, arrays: Values, places: Values, numbers: Any) -> ir.Value:
    builder, (above, d, coefficients, sums, e) = of.builder, arrays
    start, at_slice, count = places
    weight, least = (builder.extract_value(numbers, i) for i in (0, 1))

    def at(first: ir.Value, j: ir.Value) -> ir.Value:
        return builder.add(first, builder.mul(j, whole(of.width)))

    def add_mass(j: ir.Value, totals: Values) -> Values:
        v, own = of.load(above, at(start, j)), of.load(d, at(start, j))
        return [multiply_add(builder, v, own, totals[0])]

    total = repeat(builder, count, [of.constant(0.0)], add_mass)[0]
    mass = of.widened(of.sum(total))
    enough = builder.fcmp_ordered(">", mass, least)
    safe = builder.select(enough, mass, ir.Constant(ir.DoubleType(), 1.0))
    given = builder.select(enough, weight, ir.Constant(ir.DoubleType(), 0.0))
    factor = of.spread(of.narrowed(builder.fdiv(given, safe)))

    def spread_mass(j: ir.Value, totals: Values) -> Values:
        here, there = at(start, j), at(at_slice, j)
        part = builder.fmul(of.load(d, here), factor)
        v, c = of.load(above, here), of.load(coefficients, there)
        of.store(sums, there, multiply_add(builder, v, part, of.load(sums, there)))
        of.store(e, here, builder.fmul(part, c))
        return totals

    repeat(builder, count, [], spread_mass)
    return mass


# (packs, scalars, out, (start, step, scalar_start, scalar_step, count, to, out_row), 0.0):
#     out[to + r * out_row + 0..7] += sum_j packs[start + j * step + 0..7]
#         * scalars[scalar_start + r + j * scalar_step]
add_eight_rows = _outer_tile(8)

# (matrix, v, out, coefficients, numbers, (start, size, v_start, width, to, number_start, column),
# floor): eight entries of one slice for r = 0 .. rows - 1 neighbouring lanes, whose vectors are
# `width` apart:
#     out[to + r * width + 0..7] = floor
#         + coefficients[numbers[number_start + r] * width + column + 0..7]
#         * (floor + sum_j matrix[start + j * size + 0..7] * v[v_start + r * width + j])
# `best_*` works in logarithms: the coefficient plus the largest of matrix + v.
eight_lanes = _slice_tile(8, multiply_add, multiply_add)
one_lane = _slice_tile(1, multiply_add, multiply_add)
best_eight_lanes = _slice_tile(8, add_maximise, add_coefficient)
best_one_lane = _slice_tile(1, add_maximise, add_coefficient)

# (tables, out, (a, b, c, d, to, count), floor): the product of four rows of tables, for i in
# `count` packs:
#     out[to + i] = tables[a + i] * tables[b + i] * (tables[c + i] * tables[d + i]) + floor
# `sum_of_four` adds the four rows instead.
product_of_four = _product_tile(lambda builder, x, y: builder.fmul(x, y))
sum_of_four = _product_tile(lambda builder, x, y: builder.fadd(x, y))

# (above, d, coefficients, sums, e, (start, at_slice, count), (weight, least)): the mass
# sum_i v_i d_i of `count` packs from `start` on. Adds v d weight / mass to `sums`, from `at_slice`
# on as the coefficients are, and writes c d weight / mass to `e`. A mass of at most `least` adds
# nothing.
weigh_row = make_tile(5, _weigh_row, types.float64)

# (a, b, (a_start, b_start, count), 0.0): the first i below 8 * count with the largest
#     a[a_start + i] + b[b_start + i]
best_entry = make_tile(2, _best_entry, types.int64)

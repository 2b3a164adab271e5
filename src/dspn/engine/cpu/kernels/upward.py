"""The upward pass over a block of sequences, slice after slice, in linear space.

A block holds B sequences (lanes) sorted by falling length. Position 0 is the bottom slice; lane l
takes part at positions 0 .. lengths[l] - 1, so the lanes that take part form a prefix. Interface
vectors are kept with the largest entry of each group in [0.5, 1) and their power-of-two exponents
apart, which is exact.
"""

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._kernel_cache import njit
from dspn.engine.cpu.kernels._options import OPTIONS
from dspn.engine.cpu.kernels.linear import compute, mix
from dspn.engine.cpu.records import (
    LARGE_SCALE,
    LONG_SEQUENCE,
    Batch,
    Coefficients,
    Operations,
    State,
)


@njit(**OPTIONS)
def active_lanes(lengths: Ints, position: int) -> int:
    """Number of lanes whose sequence reaches a position; lengths fall."""
    low, high = 0, lengths.size
    while low < high:
        middle = (low + high) // 2
        if lengths[middle] > position:
            low = middle + 1
        else:
            high = middle
    return low


@njit(**OPTIONS)
def number_slices(batch: Batch, position: int, p0: int, numbers: Ints, n: int) -> None:
    """The number of each lane's slice at a position: of the distinct slice, or its place."""
    if batch.numbers.size:
        for lane in range(n):
            numbers[lane] = batch.numbers[batch.base[lane] + batch.stride * position]
    else:
        first = (position - p0) * batch.lengths.size
        for lane in range(n):
            numbers[lane] = first + lane


@njit(**OPTIONS)
def load_coefficients(
    ops: Operations, given: Coefficients, numbers: Ints, V: Floats, n: int
) -> None:
    """Fills the loaded rows of the mix part with the coefficients of the slices `numbers`."""
    for load in range(ops.num_loads):
        row = ops.num_inputs + load
        start = load * given.row_step
        if given.by_place:
            start += numbers[0]
            for lane in range(n):
                V[row, lane] = given.values[start + lane]
        else:
            for lane in range(n):
                V[row, lane] = given.values[start + numbers[lane] * given.slice_step]


@njit(**OPTIONS)
def rounded_off(a: float, b: float) -> float:
    """What the float a + b lacks; 0 where it is infinite."""
    total = a + b
    other = total - a
    rest = (a - (total - other)) + (b - other)
    return rest if np.isfinite(total) else 0.0


@njit(**OPTIONS)
def split_scale(scale: Floats, u: int, high: float, low: float) -> None:
    """scale[:, u] = high + low, of which the first number is cut so that sums of many are exact.

    Unless it is huge, it is a multiple of 2^-20.
    """
    first = high
    if abs(high) < LARGE_SCALE:
        first = np.rint(high * 1048576.0) / 1048576.0
    scale[0, u] = first
    scale[1, u] = (high - first) + low


@njit(**OPTIONS)
def needs_care(scale: Floats, large: int) -> bool:
    """Whether sums may round something off, as terms to come or what a lane has are large."""
    for lane in range(scale.shape[1]):
        if abs(scale[0, lane]) >= LARGE_SCALE * LONG_SEQUENCE:
            return True
    return large > 0


@njit(**OPTIONS)
def add_scale(scale: Floats, terms: Floats, careful: bool, numbers: Ints, n: int) -> None:
    """Adds the log divisors of the slices `numbers` to the totals of the lanes; see `totals`.

    Where nothing `needs_care`, the sums of their first numbers round nothing off; the careful way
    gives the same bits then.
    """
    whole, rest, fine = scale[0], scale[1], scale[2]
    if not careful:
        for lane in range(n):
            whole[lane] += terms[0, numbers[lane]]
            fine[lane] += terms[1, numbers[lane]]
        return
    for lane in range(n):
        term = terms[0, numbers[lane]]
        off = rounded_off(whole[lane], term)
        whole[lane] += term
        left = rounded_off(rest[lane], off)
        rest[lane] += off
        fine[lane] += terms[1, numbers[lane]] + left


@njit(**OPTIONS)
def store_state(state: State, store: Floats, at: int, n: int) -> None:
    """Keeps the vectors of the lanes; where there are rows for them, exponents and scale too."""
    inputs = state.v.shape[0]
    for i in range(inputs):
        for lane in range(n):
            store[at, i, lane] = state.v[i, lane]
    if store.shape[1] > inputs:
        exponents = state.exponents.shape[0]
        for i in range(exponents):
            for lane in range(n):
                store[at, inputs + i, lane] = state.exponents[i, lane]
        for i in range(state.scale.shape[0]):
            for lane in range(n):
                store[at, inputs + exponents + i, lane] = state.scale[i, lane]


@njit(**OPTIONS)
def to_powers(peak: Floats, shift: Ints, n: int) -> None:
    """The shift e with 2^(e-1) <= peak < 2^e, by the bits of the exponent; peak becomes 2^-e."""
    bits = peak.view(np.int64)
    for lane in range(n):
        shift[lane] = (bits[lane] >> 52) - 1022
    for lane in range(n):
        bits[lane] = (1023 - shift[lane]) << 52


@njit(**OPTIONS)
def _largest(V: Floats, rows: Ints, first: int, last: int, peak: Floats, n: int) -> None:
    for lane in range(n):
        peak[lane] = 0.0
    for i in range(first, last):
        row = rows[i]
        for lane in range(n):
            peak[lane] = max(peak[lane], V[row, lane])


@njit(**OPTIONS)
def _hand_up(
    ops: Operations,
    V: Floats,
    rows: Ints,
    given: Coefficients,
    numbers: Ints,
    state: State,
    peak: Floats,
    shift: Ints,
    n: int,
) -> None:
    """state.v = outputs, scaled by a power of two for each group.

    The exponent of a group is its own plus that of its coefficients and those of the groups it
    reads.
    """
    num_groups = ops.group_start.size - 1
    for group in range(num_groups):
        first, last = ops.group_start[group], ops.group_start[group + 1]
        _largest(V, rows, first, last, peak, n)
        to_powers(peak, shift, n)
        for i in range(first, last):
            row = rows[i]
            for lane in range(n):
                state.v[i, lane] = V[row, lane] * peak[lane]
        for lane in range(n):
            state.exponents[group, lane] = shift[lane] + given.shift[group, numbers[lane]]
        for place in range(ops.source_start[group], ops.source_start[group + 1]):
            source = num_groups + ops.source_group[place]
            for lane in range(n):
                state.exponents[group, lane] += state.exponents[source, lane]
    for group in range(num_groups):
        for lane in range(n):
            state.exponents[num_groups + group, lane] = state.exponents[group, lane]


@njit(**OPTIONS)
def _scale_mixed(
    ops: Operations, given: Coefficients, numbers: Ints, V: Floats, n: int, floor: float
) -> None:
    """Multiplies each mix row of a diagonal mix part by its coefficient, read where it lies."""
    first = ops.num_inputs + ops.num_loads
    for i in range(ops.num_inputs):
        row = first + i
        start = (ops.op_child[2 * i] - ops.num_inputs) * given.row_step
        if given.by_place:
            start += numbers[0]
            for lane in range(n):
                V[row, lane] = V[row, lane] * given.values[start + lane] + floor
        else:
            for lane in range(n):
                at = start + numbers[lane] * given.slice_step
                V[row, lane] = V[row, lane] * given.values[at] + floor


@njit(**OPTIONS)
def fill(
    ops: Operations,
    op_weight: Floats,
    mix_weight: Floats,
    given: Coefficients,
    numbers: Ints,
    V: Floats,
    n: int,
    floor: float,
) -> None:
    """All rows of the mix part from its inputs and the coefficients of the slices `numbers`."""
    load_coefficients(ops, given, numbers, V, n)
    mix(ops, mix_weight, V, n, floor)
    compute(ops, op_weight, V, n, floor)


@njit(**OPTIONS)
def upward(
    ops: Operations,
    op_weight: Floats,
    mix_weight: Floats,
    given: Coefficients,
    batch: Batch,
    p0: int,
    p1: int,
    state: State,
    store: Floats,
    floor: float,
) -> None:
    """Moves the interface vectors up through positions p0 .. p1 - 1.

    A non-empty store receives every input vector (`store_state`).
    """
    width = batch.lengths.size
    V = np.empty((ops.num_rows, width))
    numbers = np.empty(width, dtype=np.int64)
    peak = np.empty(width)
    shift = np.empty(width, dtype=np.int64)
    # In a diagonal mix part the products are taken in place, in the rows of the dense matrices.
    first = ops.num_inputs + ops.num_loads
    rows = np.arange(first, first + ops.num_inputs) if ops.diagonal else ops.output_row
    careful = needs_care(state.scale, given.large)
    for position in range(p0, p1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            break
        for i in range(ops.num_inputs):
            for lane in range(n):
                V[i, lane] = state.v[i, lane]
        if store.size:
            store_state(state, store, position - p0, n)
        number_slices(batch, position, p0, numbers, n)
        if ops.diagonal:
            mix(ops, mix_weight, V, n, floor)
            _scale_mixed(ops, given, numbers, V, n, floor)
        else:
            fill(ops, op_weight, mix_weight, given, numbers, V, n, floor)
        add_scale(state.scale, given.scale, careful, numbers, n)
        _hand_up(ops, V, rows, given, numbers, state, peak, shift, n)


@njit(**OPTIONS)
def top_upward(
    ops: Operations,
    op_weight: Floats,
    v: Floats,
    V: Floats,
    root_row: int,
    floor: float,
    value: Floats,
) -> None:
    """Root value of the top network for every lane, from the interface vectors v."""
    n = v.shape[1]
    for i in range(ops.num_inputs):
        for lane in range(n):
            V[i, lane] = v[i, lane]
    compute(ops, op_weight, V, n, floor)
    for lane in range(n):
        value[lane] = V[root_row, lane]

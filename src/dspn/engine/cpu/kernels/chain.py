"""Passes over chains: every output is one coefficient times one sum over its group's inputs.

This is the initial template, an HMM, and any number of such groups side by side. Here a lane's
interface vector is contiguous (each group padded to full vectors), a slice is one matrix product
and one row of coefficients, and neither needs a transpose. With `best` values are logarithms, and
sums take their largest term: the max pass.
"""

from typing import Final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.cpu.kernels import kernel, reducing
from dspn.engine.cpu.kernels.rows import (
    active_lanes,
    add_scale,
    largest_entry,
    needs_care,
    number_slices,
    numbers_in_vector,
    rescale,
)
from dspn.engine.cpu.kernels.sparse import (
    add_use,
    advance_and_add_use,
    advance_sparse,
    best_source,
    working_space,
)
from dspn.engine.cpu.kernels.tiles import (
    add_eight_rows,
    best_eight_lanes,
    best_entry,
    best_one_lane,
    eight_lanes,
    one_lane,
    weigh_row,
)
from dspn.engine.cpu.records import (
    Batch,
    ChainFlows,
    ChainGiven,
    ChainMatrix,
    ChainShape,
    ChainTurn,
    Factors,
    Segment,
    State,
)

LEAST_MASS: Final = 1e-250  # below this a mass may lack what underflowed; see `passes`
FEW: Final = 4  # a rest of fewer lanes than this is run lane by lane, a larger one as a full tile


@kernel
def new_turn(matrix: ChainMatrix, v: Floats) -> ChainTurn:
    """Room for the lanes of vectors like v; tiles may reach eight lanes beyond them."""
    lanes, tables = 0, 0
    if matrix.by >= 0:
        lanes, tables = v.shape[0] + 16, matrix.dense.size // matrix.shape.start[-1]
    rows = np.zeros((lanes, v.shape[1]), v.dtype)
    whole = np.zeros((3, lanes), dtype=np.int64)
    counts = np.zeros(tables + 1, dtype=np.int64)
    return ChainTurn(
        whole[0], whole[1], counts, whole[2], rows, np.zeros_like(rows), np.zeros_like(rows)
    )


@kernel
def read_turn(matrix: ChainMatrix, batch: Batch, position: int, turn: ChainTurn, n: int) -> None:
    """The tables that the lanes read at a position, and their order; -1 first where all agree."""
    if matrix.by < 0:
        return
    alike = True
    for lane in range(n):
        row = batch.base[lane] + batch.stride * position
        turn.values[lane] = batch.inputs[row, matrix.by]
        alike = alike and turn.values[lane] == turn.values[0]
    if alike:
        turn.order[0] = -1
        return
    turn.counts[:] = 0
    for lane in range(n):
        turn.counts[turn.values[lane] + 1] += 1
    for table in range(1, turn.counts.size):
        turn.counts[table] += turn.counts[table - 1]
    for lane in range(n):
        table = turn.values[lane]
        turn.order[turn.counts[table]] = lane
        turn.counts[table] += 1


@kernel
def _sort_rows(turn: ChainTurn, source: Floats, target: Floats, n: int) -> None:
    for place in range(n):
        lane = turn.order[place]
        for i in range(source.shape[1]):
            target[place, i] = source[lane, i]


@kernel
def _put_back(turn: ChainTurn, out: Floats, n: int) -> None:
    for place in range(n):
        lane = turn.order[place]
        for i in range(out.shape[1]):
            out[lane, i] = turn.out[place, i]


@kernel
def _end_of_run(turn: ChainTurn, begin: int, n: int) -> int:
    """The end of the lanes in order that read the same table as the one at `begin`."""
    table = turn.values[turn.order[begin]]
    end = begin + 1
    while end < n and turn.values[turn.order[end]] == table:
        end += 1
    return end


@kernel
def advance_dense(
    group: int,
    matrix: ChainMatrix,
    v: Floats,
    out: Floats,
    given: Factors,
    begin: int,
    n: int,
    table: int,
    best: bool,
) -> None:
    """See `advance`; for lanes begin .. n - 1 of a group with a dense matrix.

    What is written to the lanes after them is to be written again.
    """
    shape = matrix.shape
    width, step = shape.width, numbers_in_vector(v)
    first, start = shape.column[group], shape.start[group] + table * shape.start[-1]
    size = shape.column[group + 1] - first
    values, numbers, floor = given.coefficients, given.numbers, given.floor
    lane = begin
    while lane < n:
        many = n - lane >= FEW
        at = lane * width + first
        for i in range(0, size, step):
            places = (start + i, size, at, width, at + i, lane, first + i)
            if best and many:
                best_eight_lanes(matrix.dense, v, out, values, numbers, places, -np.inf)
            elif best:
                best_one_lane(matrix.dense, v, out, values, numbers, places, -np.inf)
            elif many:
                eight_lanes(matrix.dense, v, out, values, numbers, places, floor)
            else:
                one_lane(matrix.dense, v, out, values, numbers, places, floor)
        lane += 8 if many else 1


@kernel
def _advance_by_tables(
    matrix: ChainMatrix,
    v: Floats,
    out: Floats,
    given: Factors,
    n: int,
    best: bool,
    turn: ChainTurn,
) -> None:
    """See `advance`; lanes that read the same table run together."""
    num_groups = matrix.shape.column.size - 1
    if turn.order[0] < 0:
        for group in range(num_groups):
            advance_dense(group, matrix, v, out, given, 0, n, turn.values[0], best)
        return
    _sort_rows(turn, v, turn.v, n)
    for place in range(n):
        turn.numbers[place] = given.numbers[turn.order[place]]
    own = Factors(given.coefficients, turn.numbers, given.floor)
    begin = 0
    while begin < n:
        end, table = _end_of_run(turn, begin, n), turn.values[turn.order[begin]]
        for group in range(num_groups):
            advance_dense(group, matrix, turn.v, turn.out, own, begin, end, table, best)
        begin = end
    _put_back(turn, out, n)


@kernel
def advance(
    matrix: ChainMatrix,
    v: Floats,
    out: Floats,
    given: Factors,
    n: int,
    space: Floats,
    best: bool,
    turn: ChainTurn,
) -> None:
    """out[l] = floor + c_l (floor + v[l] matrix), group by group.

    c_l are the coefficients of lane l's slice. With `best`, out[l, i] = log c_l,i plus the largest
    of matrix[j, i] + v[l, j].
    """
    if matrix.by >= 0:
        _advance_by_tables(matrix, v, out, given, n, best, turn)
        return
    shape = matrix.shape
    for group in range(shape.column.size - 1):
        if shape.is_sparse[group]:
            advance_sparse(group, matrix, v, out, given, n, space, best)
        else:
            advance_dense(group, matrix, v, out, given, 0, n, 0, best)


@kernel
def copy_lanes(source: Floats, target: Floats, first: int, last: int) -> None:
    """Writes the vectors of lanes first .. last - 1 to the same lanes of the target."""
    for lane in range(first, last):
        for i in range(source.shape[1]):
            target[lane, i] = source[lane, i]


@kernel
def _clear(v: Floats, first: int, last: int) -> None:
    for lane in range(first, last):
        for i in range(v.shape[1]):
            v[lane, i] = 0.0


@kernel
def _divide(shape: ChainShape, v: Floats, exponents: Floats, n: int) -> None:
    """Subtracts the largest entry of each lane and group and adds it to the group's exponent.

    A second row for each group, after those of all groups, receives the least that it was.
    """
    num_groups = shape.column.size - 1
    for lane in range(n):
        for group in range(num_groups):
            row = v[lane, shape.column[group] : shape.column[group + 1]]
            peak = largest_entry(row)
            if peak > -np.inf:
                for i in range(row.size):
                    row[i] -= peak
                exponents[group, lane] += peak
                exponents[num_groups + group, lane] = min(exponents[num_groups + group, lane], peak)


@kernel
def chain_upward(
    matrix: ChainMatrix,
    given: ChainGiven,
    batch: Batch,
    segment: Segment,
    state: State,
    store: Floats,
    floor: float,
    rescale_every: int,
    best: bool,
) -> None:
    """Moves the vectors up through the positions of a segment.

    Vectors are rescaled after every `rescale_every` positions; with `best` they are divided by the
    largest entry of each group after every position. With a non-empty store, the vectors below
    position s of the segment are kept in its part s, and those above the last position in the part
    after; a lane that ends keeps its last vector there.
    """
    shape = matrix.shape
    padded, p0, p1 = state.v.shape[0], segment.p0, segment.p1
    keep = store.size > 0
    v = store[0] if keep else state.v.copy()
    out = store[1] if keep else np.zeros_like(state.v)
    numbers = np.zeros(padded, dtype=np.int64)
    factors = Factors(given.values, numbers, floor)
    space, turn = working_space(shape, v), new_turn(matrix, v)
    careful = needs_care(state.scale, given.large)
    n = active_lanes(batch.lengths, p0)
    if keep:
        copy_lanes(state.v, v, 0, n)
    _clear(v, n, padded)
    for position in range(p0, p1):
        now = active_lanes(batch.lengths, position)
        # Lanes that have ended keep their last vector; the tiles see zeros in their place.
        if now < n:
            copy_lanes(v, state.v, now, n)
            if not keep:
                _clear(v, now, n)
            n = now
        if n == 0:
            break
        number_slices(batch, position, p0, numbers, n)
        if best and position == 0:  # the bottom network has no inputs to choose from
            for lane in range(n):
                for i in range(shape.width):
                    out[lane, i] = given.values[numbers[lane], i]
        else:
            read_turn(matrix, batch, position, turn, n)
            advance(matrix, v, out, factors, n, space, best, turn)
        _clear(out, n, min(padded, n + numbers_in_vector(v) - 1))
        add_scale(state.scale, given.scale, careful, numbers, n)
        for group in range(given.shift.shape[0]):
            for lane in range(n):
                state.exponents[group, lane] += given.shift[group, numbers[lane]]
        if best:
            _divide(shape, out, state.exponents, n)
        elif position % rescale_every == rescale_every - 1:
            rescale(shape, out, state.exponents, n)
        if keep:
            v = out
            if position + 1 < p1:
                out = store[position - p0 + 2]
        else:
            v, out = out, v
    copy_lanes(v, state.v, 0, n)


@kernel
def chain_best_descend(
    matrix: ChainMatrix,
    transposed: Floats,
    batch: Batch,
    segment: Segment,
    store: Floats,
    chosen: Ints,
    interfaces: Ints,
) -> None:
    """Writes the best path of every lane through positions p1 - 1 .. p0 to `interfaces`.

    `chosen[g, lane]` is the column of group g's output at position p1 - 1, and afterwards that at
    position p0 - 1. No back-pointers were kept: the best input is found again at each step of the
    path. Lanes run in eights, so that the vectors read and the slices written are neighbours.
    `transposed` holds the dense matrices with a row for each output.
    """
    shape = matrix.shape
    width, padded, p0, p1 = shape.width, store.shape[1], segment.p0, segment.p1
    for first_lane in range(0, batch.lengths.size, 8):
        last_lane = min(first_lane + 8, batch.lengths.size)
        for position in range(min(p1, batch.lengths[first_lane]) - 1, p0 - 1, -1):
            for lane in range(first_lane, last_lane):
                if batch.lengths[lane] <= position:
                    break
                row = batch.base[lane] + batch.stride * position
                v = ((position - p0) * padded + lane) * width
                for group in range(shape.column.size - 1):
                    first = shape.column[group]
                    size = shape.column[group + 1] - first
                    i = chosen[group, lane]
                    interfaces[row, group] = i
                    if position > 0 and shape.is_sparse[group]:
                        own = store[position - p0, lane]
                        chosen[group, lane] = first + best_source(matrix, i, own, first)
                    elif position > 0:
                        weights = shape.start[group] + (i - first) * size
                        if matrix.by >= 0:
                            weights += batch.inputs[row, matrix.by] * shape.start[-1]
                        places = (weights, v + first, size // 8)
                        place = best_entry(transposed, store, places, 0.0)
                        chosen[group, lane] = first + place


@reducing
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@kernel
def _outer(
    e: Floats,
    v: Floats,
    column: int,
    size: int,
    width: int,
    begin: int,
    n: int,
    out: Floats,
    start: int,
) -> None:
    """out[i, j] += sum_l e[l, i] v[l, j] over lanes begin .. n - 1 for one group.

    That is the expected use of every edge, still to be multiplied by its weight.
    """
    for i in range(0, size, 8):
        for j in range(0, size, numbers_in_vector(v)):
            at = begin * width + column
            places = (at + j, width, at + i, width, n - begin, start + i * size + j, size)
            add_eight_rows(v, e, out, places, 0.0)


@kernel
def _add_use_by_tables(
    transposed: ChainMatrix,
    e: Floats,
    v: Floats,
    below: Floats,
    ones: Factors,
    n: int,
    flows: ChainFlows,
    is_moving: bool,
    turn: ChainTurn,
) -> None:
    """See `_add_use`; lanes that read the same table run together."""
    shape, alike = transposed.shape, turn.order[0] < 0
    own, rows, out = e, v, below
    if not alike:
        _sort_rows(turn, e, turn.v, n)
        _sort_rows(turn, v, turn.w, n)
        own, rows, out = turn.v, turn.w, turn.out
    begin = 0
    while begin < n:
        end, table = n, turn.values[0]
        if not alike:
            end, table = _end_of_run(turn, begin, n), turn.values[turn.order[begin]]
        for group in range(shape.column.size - 1):
            column = shape.column[group]
            size = shape.column[group + 1] - column
            start = shape.start[group] + table * shape.start[-1]
            if is_moving:
                advance_dense(group, transposed, own, out, ones, begin, end, table, False)
            _outer(own, rows, column, size, shape.width, begin, end, flows.dense, start)
        begin = end
    if is_moving and not alike:
        _put_back(turn, below, n)


@kernel
def _add_use(
    transposed: ChainMatrix,
    e: Floats,
    v: Floats,
    below: Floats,
    ones: Factors,
    n: int,
    flows: ChainFlows,
    space: Floats,
    is_moving: bool,
    turn: ChainTurn,
) -> None:
    """Adds the expected use of every edge at one position, group by group.

    If it `is_moving`, the derivatives below are computed from the same numbers.
    """
    if transposed.by >= 0:
        _add_use_by_tables(transposed, e, v, below, ones, n, flows, is_moving, turn)
        return
    shape = transposed.shape
    for group in range(shape.column.size - 1):
        column = shape.column[group]
        size = shape.column[group + 1] - column
        if not shape.is_sparse[group]:
            if is_moving:
                advance_dense(group, transposed, e, below, ones, 0, n, 0, False)
            _outer(e, v, column, size, shape.width, 0, n, flows.dense, shape.start[group])
        elif is_moving:
            advance_and_add_use(group, transposed, v, e, below, ones, n, flows.edge, space)
        else:
            add_use(group, transposed, v, e, n, flows.edge, space)


@kernel
def _weigh(
    shape: ChainShape,
    above: Floats,
    d: Floats,
    coefficients: Floats,
    numbers: Ints,
    weight: Floats,
    sums: Floats,
    e: Floats,
    mass: Floats,
    n: int,
    least: float,
) -> None:
    """Adds weight v_i d_i / mass, the posterior of output i, to the sums of its slice.

    The mass of a group is sum_i v_i d_i over its outputs: the root's value up to a scale. `e`
    receives weight c_i d_i / mass, the derivatives at the mixes relative to the mass.
    """
    width = shape.width
    for group in range(shape.column.size - 1):
        first = shape.column[group]
        packs = (shape.column[group + 1] - first) // numbers_in_vector(d)
        for lane in range(n):
            places = (lane * width + first, numbers[lane] * width + first, packs)
            mass[group, lane] = weigh_row(
                above, d, coefficients, sums, e, places, (weight[lane], least)
            )


@kernel
def _hand_down(
    shape: ChainShape, below: Floats, mass: Floats, weight: Floats, d: Floats, n: int
) -> None:
    """D = below mass / weight: the derivatives at the inputs, no longer relative to the mass."""
    ratio = np.empty_like(d[0, :1])  # in the precision of the vectors
    for group in range(shape.column.size - 1):
        first, last = shape.column[group], shape.column[group + 1]
        for lane in range(n):
            ratio[0] = mass[group, lane] / weight[lane]
            factor = ratio[0]
            to, own = d[lane, first:last], below[lane, first:last]
            for i in range(to.size):
                to[i] = own[i] * factor


@kernel
def _undo_rescaling(
    shape: ChainShape, v: Floats, below: Floats, weight: Floats, e: Floats, least: Floats, n: int
) -> None:
    """E *= weight / sum_j v_j below_j, so that flows are relative to the mass over the inputs.

    Where the vectors above were rescaled, so was the mass that e was divided by; the same sum over
    the inputs tells by how much, or how much of it was owed to a floor. A non-empty `least`
    receives the smallest such part.
    """
    ratio = np.empty_like(e[0, :1])  # in the precision of the vectors
    for group in range(shape.column.size - 1):
        first, last = shape.column[group], shape.column[group + 1]
        for lane in range(n):
            mass = _dot(v[lane, first:last], below[lane, first:last])
            if least.size:
                least[lane] = min(least[lane], mass / weight[lane])
            ratio[0] = weight[lane] / mass if mass > 0.0 else 0.0
            factor = ratio[0]
            row = e[lane, first:last]
            for i in range(row.size):
                row[i] *= factor


@kernel
def chain_downward(
    transposed: ChainMatrix,
    coefficients: Floats,
    batch: Batch,
    segment: Segment,
    state: State,
    store: Floats,
    weight: Floats,
    flows: ChainFlows,
    rescale_every: int,
    least: float,
    has_floor: bool,
) -> None:
    """Adds every lane's expected flows at positions p1 - 1 .. p0, times its weight, to `flows`.

    `state.v` holds the derivatives at the outputs of position p1 - 1 (for a lane that ends below,
    those at its own top), and afterwards those at the inputs of position p0. `flows.least` receives
    the smallest mass that a lane's sums were divided by; with `has_floor`, as the upward pass had
    it, also the smallest part of a mass that was not owed to the floor.
    """
    shape = transposed.shape
    padded, p0, p1 = state.v.shape[0], segment.p0, segment.p1
    d = state.v
    e = np.zeros_like(d)
    below = np.zeros_like(d)
    mass = np.empty((shape.column.size - 1, padded))
    # The coefficients are in e already: row 0 of ones stands for all of them.
    ones = Factors(np.ones_like(d[:1]), np.zeros(padded + 16, dtype=np.int64), 0.0)
    numbers = np.zeros(padded, dtype=np.int64)
    space, turn = working_space(shape, d), new_turn(transposed, d)
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        v, above = store[position - p0], store[position - p0 + 1]
        number_slices(batch, position, p0, numbers, n)
        _weigh(shape, above, d, coefficients, numbers, weight, flows.coefficient, e, mass, n, least)
        for group in range(mass.shape[0]):
            for lane in range(n):
                flows.least[lane] = min(flows.least[lane], mass[group, lane])
        read_turn(transposed, batch, position, turn, n)
        rescaled = position % rescale_every == rescale_every - 1
        if position > 0 and not rescaled:
            _add_use(transposed, e, v, below, ones, n, flows, space, True, turn)
        else:
            advance(transposed, e, below, ones, n, space, False, turn)
        if position > 0 and rescaled:
            doubted = flows.least if has_floor else flows.least[:0]
            _undo_rescaling(shape, v, below, weight, e, doubted, n)
            _add_use(transposed, e, v, below, ones, n, flows, space, False, turn)
        _hand_down(shape, below, mass, weight, d, n)
        if position % rescale_every == 0:
            rescale(shape, d, state.exponents, n)


@kernel
def chain_posteriors(
    transposed: ChainMatrix,
    coefficients: Floats,
    batch: Batch,
    segment: Segment,
    state: State,
    store: Floats,
    posterior: Floats,
    least: Floats,
    rescale_every: int,
) -> None:
    """Writes the posteriors of the outputs, (positions, lanes, columns), at positions p1 - 1 .. p0.

    `state.v` is as in `chain_downward`. `least` receives the smallest mass of each lane.
    """
    shape = transposed.shape
    d, p0, p1 = state.v, segment.p0, segment.p1
    e = np.zeros_like(d)
    below = np.zeros_like(d)
    ones = Factors(np.ones_like(d[:1]), np.zeros(d.shape[0] + 16, dtype=np.int64), 0.0)
    numbers = np.zeros(d.shape[0], dtype=np.int64)
    mass = np.empty((shape.column.size - 1, d.shape[0]))
    weight = np.ones(d.shape[0])
    space, turn = working_space(shape, d), new_turn(transposed, d)
    for position in range(p1 - 1, p0 - 1, -1):
        n = active_lanes(batch.lengths, position)
        if n == 0:
            continue
        above = store[position - p0 + 1]
        number_slices(batch, position, p0, numbers, n)
        for group in range(mass.shape[0]):
            first, last = shape.column[group], shape.column[group + 1]
            for lane in range(n):
                own = _dot(above[lane, first:last], d[lane, first:last])
                mass[group, lane] = own
                least[lane] = min(least[lane], own)
                factor = 1.0 / own if own > 0.0 else 0.0
                for i in range(first, last):
                    posterior[position - p0, lane, i] = above[lane, i] * d[lane, i] * factor
                    e[lane, i] = coefficients[numbers[lane], i] * d[lane, i] * factor
        read_turn(transposed, batch, position, turn, n)
        advance(transposed, e, below, ones, n, space, False, turn)
        _hand_down(shape, below, mass, weight, d, n)
        if position % rescale_every == 0:
            rescale(shape, d, state.exponents, n)

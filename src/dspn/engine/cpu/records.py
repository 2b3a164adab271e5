"""The named tuples of arrays that kernels read and write."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints

Codes = NDArray[np.int32]

# Kinds of operations.
PRODUCT: Final = 0
SUM: Final = 1


# Log divisors of a slice below this, and sequences of fewer slices, have sums that are exact.
LARGE_SCALE: Final = 4096.0
LONG_SEQUENCE: Final = 1 << 20


class Operations(NamedTuple):
    """One part of a network as data; every array is int64.

    Rows 0 .. num_inputs - 1 of the value matrix are inputs, sorted by group, so that group g is the
    range `group_start[g] : group_start[g + 1]`; then come `num_loads` loaded rows, then computed
    rows. Operation o fills row `op_row[o]` from `op_child[op_start[o] : op_start[o + 1]]`. Mix m
    fills rows `mix_row[m] : mix_row[m] + mix_size[m]` from all inputs of group `mix_group[m]` with
    a dense matrix that begins at `mix_start[m]`. `row_op[r]` is the operation that fills row r, -1
    for inputs and loads, -2 - m for rows of mix m. `load_group` is the group whose outputs a loaded
    row lies under. Outputs of group g read the inputs of the groups `source_group[source_start[g] :
    source_start[g + 1]]`. `op_bare[o]` is 1 when there is no leaf below, so that the bottom network
    does not have the operation. `op_by[o]` is -1, or the input that the weights of a sum depend on
    (a row of `Weighted.tables`); its first table stands in the places of its children, and the
    others one after the other from `op_more[o]` on.
    """

    num_inputs: int
    num_loads: int
    num_rows: int
    op_kind: Ints
    op_row: Ints
    op_start: Ints
    op_child: Ints
    mix_row: Ints
    mix_size: Ints
    mix_group: Ints
    mix_start: Ints
    op_bare: Ints
    op_by: Ints
    op_more: Ints
    row_op: Ints
    load_group: Ints
    output_row: Ints
    group_start: Ints
    source_start: Ints
    source_group: Ints


class Weighted(NamedTuple):
    """A part with the weights of its operations, in the order of `op_child`, and of its matrices.

    In log space weights are logarithms. `tables[b, lane]` is the value of input b at the slice that
    a lane is at; kernels have a copy of their own (`with_tables`).
    """

    ops: Operations
    op: Floats
    mix: Floats
    tables: Ints


class LeafTables(NamedTuple):
    """Leaf densities: load i at a slice is `values[start[i] + code]`, or `dense[start[i] + place]`.

    `factor[i]` is the column of codes that load i reads, -1 for a dense one; `variable[i]` its
    variable. Each density was divided by the largest of its variable's leaves; the logarithms of
    the divisors are in `divisors[divisor_start[f] + code]` and, summed over the dense variables, in
    `dense_divisor[0, place]`; `dense_divisor[1, place]` is what the sum has rounded off.
    """

    start: Ints
    factor: Ints
    variable: Ints
    values: Floats
    dense: Floats
    divisor_start: Ints
    divisors: Floats
    dense_divisor: Floats


class LogLeaves(NamedTuple):
    """Log densities of leaves by column, for coefficients that are products of leaves.

    Column c has a leaf of log density peak[g, c] - ((x - mean[g, c]) factor[g, c])^2 of the
    Gaussian variable `variables[g]`, whose values are a column of `values` (slices, all variables).
    Those of the other variables are in `table` (rows, columns), which slices read by row. Moments
    of Gaussian variables are those of (x - origin) / unit, up to LARGEST_SCALE.
    """

    values: Floats
    variables: Ints
    mean: Floats
    factor: Floats
    peak: Floats
    table: Floats
    origin: Floats
    unit: Floats


class Slices(NamedTuple):
    """Some slices, rows `rows` of the data, with their leaf densities.

    `codes[row, factor]` are those of all slices, and `inputs[row, b]` their inputs that weights
    depend on; a slice's place in the dense tables is its place in `rows`.
    """

    tables: LeafTables
    codes: Codes
    rows: Ints
    inputs: Codes


class Chunks(NamedTuple):
    """Products of the leaves of a chunk for each of its joint codes, and some slices' codes.

    `tables[first[q] + numbers[row, q]]` has those of chunk q at a row of the data; `divisors[0]` in
    the same places is the sum of the leaves' log divisors, and `divisors[1]` what that has rounded
    off. `rows` are the slices meant.
    """

    tables: Floats
    first: Ints
    divisors: Floats
    numbers: Codes
    rows: Ints


class Coefficients(NamedTuple):
    """What the slice part hands to the mix part.

    Coefficient c of slice s is `values[c * row_step + s * slice_step]`; in log space `low`, in the
    same places, is to be added to it. In linear space it was divided by 2^shift[g, s] for its group
    g. `scale[0, s] + scale[1, s]` is the logarithm by which the densities of the slice's leaves
    were divided; `large` is 1 where sums of the first numbers may round something off.
    `by_place` is 1 when slices are numbered by their place in a segment, so that neighbouring lanes
    are neighbours here.
    """

    values: Floats
    low: Floats
    row_step: int
    slice_step: int
    by_place: int
    scale: Floats
    large: int
    shift: Ints


class Segment(NamedTuple):
    """Positions p0 .. p1 - 1, with the bottom network's own parameters or the template's."""

    p0: int
    p1: int
    bottom: bool


class Batch(NamedTuple):
    """A block of sequences, one lane each, by falling `lengths`.

    Lane l's slice at a position is row `base[l] + stride * position` of the data. `numbers` gives
    the number of the distinct slice at a row; when it is empty, slices are numbered by their place
    in the segment, (position - p0) * lanes + lane. `inputs` (rows, inputs) are those that weights
    depend on.
    """

    numbers: NDArray[np.int32]
    base: Ints
    stride: int
    lengths: Ints
    inputs: Codes


class Span(NamedTuple):
    """Coefficients of the slices of a segment of a block."""

    given: Coefficients
    batch: Batch
    segment: Segment


class State(NamedTuple):
    """What a pass carries from position to position, one column for each lane.

    `v` is the interface vector (upward: values, downward: derivatives), whose largest entry in each
    group is near 1; in log space each entry has a second number, to be added to it, in a further
    row. What the vector was divided by is told by `exponents`, which have a row for each group
    and as many again. In linear space they are powers of two, and the further rows their copy;
    in log space they are logarithms, and the further rows what the first ones have rounded off.
    `scale` (three terms, see `engine.base`) sums the logarithms by which the densities of leaves
    were divided at all slices so far.

    A chain's `v` has a row of padded columns for each lane instead, and rows for full vectors of
    lanes; in its max pass the further rows of `exponents` have the least logarithm that a group was
    divided by.
    """

    v: Floats
    exponents: Ints | Floats
    scale: Floats

    def copy(self) -> "State":
        """The same values in arrays of their own."""
        return State(self.v.copy(), self.exponents.copy(), self.scale.copy())


class Flows(NamedTuple):
    """What the downward pass writes for the positions of one segment; empty arrays are not written.

    `mass[p, g, l]`: root value through group g up to a scale. `interface[p, i, l]`: posterior of
    output i. `derivative[p, i, l]`: derivative at output i, to be multiplied by what `exponents[p]`
    and `scale[p]` tell as in `State`. `seed[p, c, l]`: derivative at coefficient c, divided by the
    root's value; in log space the coefficient's logarithm is added to it, unless that is -inf.
    """

    mass: Floats
    interface: Floats
    derivative: Floats
    exponents: Ints | Floats
    scale: Floats
    seed: Floats


class EdgeFlows(NamedTuple):
    """Expected flows, summed over slices and sequences; empty arrays are not written.

    `op`, in the order of `op_child`, and `mix`, in that of the dense matrices, hold the sum of
    D_parent v_child / root, still to be multiplied by the edge's weight; `coefficient` holds the
    summed seeds of every distinct slice.
    """

    op: Floats
    mix: Floats
    coefficient: Floats


class LeafFlows(NamedTuple):
    """Posteriors of the leaves, and the evidence left without each entry, of some slices.

    `posterior[i, s]` is that of load i at slice s; `leave_out[v, s]` = P(all entries but that of
    variable v) / P(all entries), and with it the posteriors are those given all other entries.
    `counts`, in the places of `LeafTables.values`, sums the posteriors of tabulated leaves by code.
    Empty arrays are not written.
    """

    posterior: Floats
    leave_out: Floats
    counts: Floats


class Chosen(NamedTuple):
    """For every slice, the chosen interface node of each group and leaf of each variable.

    Nodes are named by input row and leaves by load; -1 where none was chosen.
    """

    interfaces: Ints
    loads: Ints


class ChainShape(NamedTuple):
    """Groups of a chain side by side in a row of `width` numbers, each padded to full vectors.

    Group g has columns `column[g] : column[g + 1]`. Its matrix is sparse (`is_sparse[g]` is 1) or
    a square from `start[g]` on; the last of `start` is the end of all squares.
    """

    width: int
    column: Ints
    start: Ints
    is_sparse: Ints


class ChainMatrix(NamedTuple):
    """The matrices of a chain's groups, whose columns `shape` tells.

    `dense` holds those that are not sparse, one after the other. Of the sparse ones, the entry of
    column c of the product is a sum over edges `row_start[c] : row_end[c]`; edge e has the weight
    `weight[e]` and reads number `source[e]` of the same group. Rows are padded to full tiles by
    edges of weight 0 (also in logarithms) that read number 0.

    Where `by` is not -1, it is the column of `Batch.inputs` that the weights depend on: all
    matrices are dense, and `dense` holds them once for each value, one table after the other.
    """

    shape: ChainShape
    dense: Floats
    row_start: Ints
    row_end: Ints
    source: NDArray[np.int32]
    weight: Floats
    by: int


class ChainTurn(NamedTuple):
    """The lanes of a chain by the table that they read, and room for their vectors in that order.

    `values[l]` is the table of lane l, `order` the lanes by table, and `counts` has room for the
    number of lanes of each. Empty arrays where weights do not depend on an input.
    """

    values: Ints
    order: Ints
    counts: Ints
    numbers: Ints
    v: Floats
    w: Floats
    out: Floats


class ChainGiven(NamedTuple):
    """Coefficients of a chain in padded columns; `scale`, `large` and `shift` as in `Coefficients`.

    `shift` may be empty. `lossy` says whether a coefficient was lost to the range of numbers.
    """

    values: Floats
    scale: Floats
    large: int
    shift: Ints
    lossy: bool


class Factors(NamedTuple):
    """What a chain's products are multiplied by: lane l has row `numbers[l]` of `coefficients`.

    `floor` is added to every value.
    """

    coefficients: Floats
    numbers: Ints
    floor: float


class ChainFlows(NamedTuple):
    """Expected flows of a chain, summed over slices and lanes.

    `coefficient` holds the posteriors of the outputs by number of the slice; `dense` and `edge` the
    use of every edge of the dense and of the sparse matrices, still to be multiplied by its weight;
    `least[l]` the smallest mass of lane l.
    """

    coefficient: Floats
    dense: Floats
    edge: Floats
    least: Floats

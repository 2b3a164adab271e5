"""Coefficients c(x) of the outputs of a chain, one row for each combination of values.

A row holds what some variables have together (a *chunk* of variables), divided by its largest
entry. Where there are several chunks their rows are multiplied and divided by a power of two.
"""

from functools import cached_property
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.gpu.device import Array, Batch, Device, real_option
from dspn.engine.gpu.general import General, distinct_values
from dspn.engine.gpu.transition import ChainLayout
from dspn.structure.parameters import NetworkParameters
from dspn.structure.template import Bank

# Entries of the table of one chunk: with all variables in one, and of each of several.
_CELLS_OF_ONE: Final = 2**25
_CELLS_OF_SEVERAL: Final = 2**16
_MOST_ROWS: Final = 2**14
# Rows that one block adds up.
_PIECE: Final = 128
_LOG_TWO: Final = float(np.log(2.0))
# Rows of several chunks are divided by powers of two down to this; beyond it they stay small. What
# a table in double precision lost, 2^-1022 at most, stays below what the type of passes loses.
_MOST_LIFTED: Final = {np.dtype(np.float32): 880, np.dtype(np.float64): 30}


def vector_of(dtype: Any, width: int) -> int:
    """Numbers that a thread loads at once from rows of this width: 16 bytes, or one number."""
    vector = 16 // int(np.dtype(dtype).itemsize)
    return 1 if width % vector else vector


def exponents_of(values: Floats) -> Ints:
    """Floor(log2) of positive numbers, 0 for 0."""
    return np.where(values > 0, np.frexp(values)[1] - 1, 0).astype(np.int32)


@final
class Groups:
    """Rows by group, cut into pieces that one block of threads adds up."""

    def __init__(self, device: Device, rows: Ints, codes: Ints, size: int) -> None:
        order = np.argsort(codes, kind="stable")
        self.bounds = np.searchsorted(codes[order], np.arange(size + 1))
        counts = -(-np.diff(self.bounds) // _PIECE)
        owner = np.repeat(np.arange(size), counts)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.append(self.bounds[owner] + _PIECE * rank, len(order))
        self.device, self.size, self.num_pieces = device, size, len(owner)
        self.order, self.starts = device.there(rows[order]), device.there(starts)
        self.pieces: tuple[Array, Array] | None = None
        if not np.array_equal(owner, np.arange(size)):
            own = np.searchsorted(owner, np.arange(size + 1))
            self.pieces = device.there(np.arange(len(owner))), device.there(own)

    def add(self, values: Array) -> Array:
        """Sums of the rows of each group (groups, columns), in float64 and in a fixed order."""
        xp, width = self.device.xp, values.shape[1]
        if not self.num_pieces:
            return xp.zeros((self.size, width))
        if not self.device.is_gpu:
            out = np.zeros((self.size, width))
            owner = np.repeat(np.arange(self.size), np.diff(self.bounds))
            np.add.at(out, owner, values[self.order])
            return out
        found = self._launch(values, self.order, self.starts, self.num_pieces)
        return found if self.pieces is None else self._launch(found, *self.pieces, self.size)

    def _launch(self, values: Array, order: Array, starts: Array, count: int) -> Array:
        width, vector = values.shape[1], vector_of(values.dtype, values.shape[1])
        packs = width // vector
        across = min(128, 1 << (packs - 1).bit_length())
        out = self.device.xp.empty((count, width))
        options = (real_option(values.dtype), f"-DVECTOR={vector}")
        kernel = self.device.kernel("rows", "add_rows", options)
        given = (values, order, starts, np.int32(width), np.int32(across), out)
        kernel((count, -(-packs // across)), (128,), given)
        return out


@final
class Chunks:
    """The entries of a batch in chunks of variables, and the order of slices by their rows.

    `codes[row, chunk]` is the row of the chunk's table; tables of chunks lie one below the other.
    """

    def __init__(self, batch: Batch, width: int) -> None:
        device = batch.device
        xp = device.xp
        radix = [
            len(distinct) - (not missing and bool(np.isnan(distinct[-1])))
            for distinct, missing in zip(batch.distinct, batch.has_missing, strict=True)
        ]
        everything = float(np.prod(np.array(radix, dtype=np.float64)))
        one = everything * width <= _CELLS_OF_ONE and everything <= max(
            _MOST_ROWS, batch.total_slices
        )
        limit = _CELLS_OF_ONE if one else max(2 * width, _CELLS_OF_SEVERAL)
        self.chunks: list[list[int]] = []
        rows = 0
        for v, count in enumerate(radix):
            if self.chunks and rows * count * width <= limit:
                self.chunks[-1].append(v)
                rows *= count
            else:
                self.chunks.append([v])
                rows = count
        self.radix = radix
        self.sizes = [int(np.prod([radix[v] for v in chunk])) for chunk in self.chunks]
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.codes = xp.empty((batch.total_slices, len(self.chunks)), dtype=np.int32)
        for c, chunk in enumerate(self.chunks):
            found = xp.zeros(batch.total_slices, dtype=np.int32)
            for v in chunk:
                found = found * radix[v] + batch.codes[v]
            self.codes[:, c] = found + int(self.starts[c])
        self.batch = batch
        # The row of each slice, where tables of several chunks are joined for every slice.
        self.slot = xp.arange(batch.total_slices, dtype=np.int32)
        if self.is_one:
            self.slot = xp.ascontiguousarray(self.codes[:, 0])

    @property
    def is_one(self) -> bool:
        """Whether a single row of the table has all coefficients of a slice."""
        return len(self.chunks) == 1

    @cached_property
    def digits(self) -> Array:
        """For each row of the table the rows of its variables in `logs`, then -1."""
        starts = np.concatenate([[0], np.cumsum(self.radix)])
        found = np.full((int(self.starts[-1]), max(map(len, self.chunks))), -1, dtype=np.int32)
        for c, chunk in enumerate(self.chunks):
            rest = np.arange(self.sizes[c])
            own = found[int(self.starts[c]) : int(self.starts[c + 1])]
            for place in reversed(range(len(chunk))):
                v = chunk[place]
                rest, digit = np.divmod(rest, self.radix[v])
                own[:, place] = starts[v] + digit
        return self.batch.device.there(found)

    @cached_property
    def by_value(self) -> list[Groups]:
        """For each chunk its rows by the values that they have."""
        digits, found = self.batch.device.here(self.digits), []
        for c, chunk in enumerate(self.chunks):
            own = digits[int(self.starts[c]) : int(self.starts[c + 1]), : len(chunk)]
            first, size = (sum(self.radix[v] for v in some) for some in (range(chunk[0]), chunk))
            rows = np.repeat(np.arange(len(own)), len(chunk))
            found.append(Groups(self.batch.device, rows, own.ravel() - first, size))
        return found

    def values(self, variable: int) -> Floats:
        """The distinct values of a variable that occur, with their contexts if it has any."""
        return self.batch.distinct[variable][: self.radix[variable]]

    def groups(self, rows: Ints | None = None) -> list[Groups]:
        """Some slices, or all, by the row of each chunk that they have."""
        device = self.batch.device
        own = np.arange(self.batch.total_slices) if rows is None else rows
        codes = device.here(self.codes)[own] - self.starts[:-1]
        return [Groups(device, own, codes[:, c], size) for c, size in enumerate(self.sizes)]


@final
class Tables:
    """Coefficients of one network's parameters, and the logarithms of what they were divided by."""

    def __init__(self, chunks: Chunks, logs: list[Array], width: int, dtype: Any) -> None:
        self.chunks, self.device = chunks, chunks.batch.device
        self.width, self.dtype = width, np.dtype(dtype)
        found = [self._of(own) for own in logs]  # of a bottom with its own parameters last
        self.rows, self.divisors, self.scales = found[0]
        self.bottom_rows, self.bottom_divisors, self.bottom_scales = found[-1]

    def _of(self, logs: Array) -> tuple[Array, Array, Any]:
        """Coefficients, log divisors of the rows of all chunks, and powers of two of slices."""
        # Rows of several chunks are multiplied, and in double precision until then.
        dtype = self.dtype if self.chunks.is_one else np.dtype(np.float64)
        table, divisors = self._tabulate(logs, dtype)
        if self.chunks.is_one:
            return table, divisors, None
        joined, scales = self._join(table)
        return joined, divisors, scales

    def _tabulate(self, logs: Array, dtype: Any) -> tuple[Array, Array]:
        """Rows (all chunks, width) divided by their largest entries, whose logarithms follow.

        `logs` are the log densities of outputs, (values of all variables, outputs).
        """
        xp, chunks, k = self.device.xp, self.chunks, logs.shape[1]
        rows, digits = int(chunks.starts[-1]), chunks.digits
        if self.device.is_gpu:
            table, divisors = xp.empty((rows, self.width), dtype=dtype), xp.empty(rows)
            sizes = (np.int32(digits.shape[1]), np.int32(k), np.int32(self.width))
            self._kernel("tabulate", dtype)(
                (rows,), (min(256, -(-self.width // 32) * 32),),
                (logs, digits, *sizes, table, divisors),
            )  # fmt: skip
            return table, divisors
        found = np.concatenate([logs, np.zeros((1, k))])[digits].sum(axis=1)
        largest = found.max(axis=1)
        largest = np.where(largest > -np.inf, largest, 0.0)
        return np.exp(found - largest[:, None]).astype(dtype), largest

    def _join(self, table: Array) -> tuple[Array, Array]:
        """Coefficients of every slice from several chunks, and the powers of two that they lack."""
        xp, codes = self.device.xp, self.chunks.codes
        if not self.device.is_gpu:
            found = table[codes].prod(axis=1)
            scales = np.maximum(exponents_of(found.max(axis=1)), -_MOST_LIFTED[self.dtype])
            return np.ldexp(found, -scales[:, None]).astype(self.dtype), scales
        rows, chunks = codes.shape
        out, scales = xp.empty((rows, self.width), dtype=self.dtype), xp.empty(rows, np.int32)
        across = min(32, 1 << (self.width - 1).bit_length())
        sizes = (np.int64(rows), np.int32(chunks), np.int32(self.width), np.int32(across))
        given = (table, codes, *sizes, out, scales)
        self._kernel("join", self.dtype)((-(-rows // (128 // across)),), (128,), given)
        return out, scales

    def _kernel(self, name: str, dtype: Any) -> Any:
        return self.device.kernel("arrays", name, (real_option(dtype),))

    def divisor_sums(self, lanes: tuple[Array, Array, Any]) -> Array:
        """The log divisors of each lane, added up, and the least of a slice, in two rows.

        `lanes` are the first slices, lengths and direction of the lanes.
        """
        (first, lengths, direction), chunks = lanes, self.chunks
        count = len(first)
        results = self.device.xp.zeros((2, count))
        if self.device.is_gpu:
            scales = (0, 0) if chunks.is_one else (self.scales, self.bottom_scales)
            threads = min(256, max(32, 1 << (chunks.batch.longest // 32).bit_length()))
            self._kernel("add_divisors", self.dtype)(
                (count,), (threads,),
                (self.divisors, self.bottom_divisors, *scales, chunks.codes,
                 np.int32(len(chunks.chunks)), first, lengths, direction, np.int32(count), results),
            )  # fmt: skip
            return results
        for height in range(int(lengths.max(initial=0))):
            own = lengths > height
            rows = first[own] + direction * height
            divisors, scales = (
                (self.divisors, self.scales)
                if height
                else (self.bottom_divisors, self.bottom_scales)
            )
            found = divisors[chunks.codes[rows]].sum(axis=1)
            if scales is not None:
                found = found + _LOG_TWO * scales[rows]
            results[0, own] += found
            results[1, own] = np.minimum(results[1, own], found)
        return results


def leaf_logs(
    own: General, layout: ChainLayout, chunks: Chunks, parameters: NetworkParameters,
    peaks: bool = False,
) -> Floats:  # fmt: skip
    """Log densities of the outputs at the values of all variables, (values, outputs).

    A missing entry has 0, or with `peaks` the mode of its leaf.
    """
    found: list[Floats] = [np.empty(0)] * len(layout.member)
    for members in _alike(chunks, own.network.template.banks):
        family = own.network.template.banks[members[0]].family
        distinct = chunks.values(members[0])
        rows = [parameters.leaves[v] for v in members]
        joined = rows[0] if len(rows) == 1 else np.concatenate(rows)
        logs = family.log_prob(joined, distinct)
        if peaks:
            modes = family.log_peak(joined, distinct)
            logs = np.where(family.is_missing(distinct)[:, None], modes, logs)
        start = 0
        for v, leaves in zip(members, rows, strict=True):
            found[v] = layout.of_outputs(v, logs[:, start : start + len(leaves)])
            start += len(leaves)
    return np.concatenate(found)


def _alike(chunks: Chunks, banks: tuple[Bank, ...]) -> list[list[int]]:
    """Variables by family and values: the densities of such leaves are found together."""

    def make() -> tuple[Any, list[list[int]]]:
        found: list[list[int]] = []
        for v, bank in enumerate(banks):
            distinct_values(chunks.batch, bank)  # raises where the data lack what leaves are told
            for members in found:
                if bank.family == banks[members[0]].family and np.array_equal(
                    chunks.values(v), chunks.values(members[0]), equal_nan=True
                ):
                    members.append(v)
                    break
            else:
                found.append([v])
        return banks, found  # the banks stay alive with their number

    alike: list[list[int]] = chunks.batch.keep(("alike", id(banks)), make)[1]
    return alike

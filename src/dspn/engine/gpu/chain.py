"""Chains of one group, the templates of hidden Markov models, in linear arithmetic.

A slice is v' = c(x) * (W v) with one coefficient for each output. Coefficients come from a table of
rows, one for each combination of values that some variables have together (a *chunk* of
variables), divided by their largest entry. Where there are several chunks their rows are multiplied
and divided by a power of two once more. Vectors are divided by powers of two, which is exact;
their exponents are added up as integers, and one logarithm is taken for each sequence.

What the range of the numbers does not hold is found out, and the sequences concerned go through
`general`, which computes in logarithms:

- likelihood: values below LOW may have lost something. Such sequences run again with a small number
  `under` added to every value, more than what can be lost. All weights are non-negative, so that is
  an upper bound; where it agrees with the first result nothing was lost that counts.
- flows: `under` is added always. Values are then too large and never too small, and the derivatives
  lose no more than the smallest number for each node and slice. So the sum over slices of `under`
  times the number of nodes, divided by the mass (values times derivatives) of the slice, bounds
  what is wrong of the result. The mass is the root's value in the units of a slice, whose power of
  two is known: it must be at least 2^-60 in float32, where `under` is 2^-112; see `Range`.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints
from dspn.engine import base
from dspn.engine.base import TERMS, ExpectedFlows, NetworkFlows
from dspn.engine.gpu import general
from dspn.engine.gpu.climb import Climb
from dspn.engine.gpu.device import Array, Batch, Device
from dspn.engine.gpu.general import General, Network, distinct_values, has_own_statistics
from dspn.engine.gpu.layout import part_of
from dspn.structure.chain import is_chain, transition_sums
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Leaf, Sum, children_of
from dspn.structure.parameters import NetworkParameters

# Entries of the table of one chunk: with all variables in one, and of each of several.
_CELLS_OF_ONE: Final = 2**25
_CELLS_OF_SEVERAL: Final = 2**16
_MOST_ROWS: Final = 2**14
# Slices whose uses one product of matrices adds up in float32.
_ROWS_AT_ONCE: Final = 2**16
# Rows of posteriors that one block adds up.
_PIECE: Final = 128
_HERE: Final = Device("numpy")
_LOG_TWO: Final = float(np.log(2.0))
# Divisors of a slice below this are left to `general`, which adds logarithms as totals.
_LEAST_DIVISOR: Final = -1e5
# Rows of several chunks are divided by powers of two down to this; beyond it they stay small. What
# a table in double precision lost, 2^-1022 at most, stays below what the type of passes loses.
_MOST_LIFTED: Final = {np.dtype(np.float32): 880, np.dtype(np.float64): 30}
# CUBLAS_TF32_TENSOR_OP_MATH, which CuPy has no name for.
_TF32_TENSOR_OP_MATH: Final = 3
# Products of float32 matrices this large run on tensor cores, with ten fraction bits.
_FEWEST_NARROW: Final = 256
# Wider templates have few edges, of which a matrix would be mostly empty.
_WIDEST_CHAIN: Final = 8192
_WIDEST_SCAN: Final = {np.dtype(np.float32): 128, np.dtype(np.float64): 64}


class Range(NamedTuple):
    """What a type of number holds: see the module."""

    low: float
    under: float
    lack: int
    agreement: float


# CuPy compiles kernels so that float32 numbers below 2^-126 count as 0.
_RANGES: Final = {
    np.dtype(np.float32): Range(2.0**-99, 2.0**-112, 60, 1e-6),
    np.dtype(np.float64): Range(2.0**-900, 2.0**-990, 800, 1e-12),
}
# Fewer sequences than this for each multiprocessor are faster one to a block.
_FEWEST_TOGETHER: Final = 8


@final
@dataclass(frozen=True, eq=False)
class ChainLayout:
    """The structure of a chain of one group whose outputs are leaves times one sum over inputs.

    `edge[j, i]` is the place of the weight of input i in the sum of output j, -1 where there is
    none. Output j has leaf `member[v][j]` of variable v, and its sum is node `sums[j]`.
    """

    edge: Ints
    member: tuple[Ints, ...]
    sums: Ints

    @property
    def num_nodes(self) -> int:
        """The number of interface nodes."""
        return len(self.edge)

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """Places of the weights and, as one index, of their entries in the matrix."""
        flat = self.edge.ravel()
        entries = np.flatnonzero(flat >= 0)
        return flat[entries], entries

    @cached_property
    def is_plain(self) -> bool:
        """Whether the weights are the matrix as it stands."""
        return bool(np.array_equal(self.edge.ravel(), np.arange(self.edge.size)))

    def by_leaf(self, variable: int, by_output: Floats, leaves: int) -> Floats:
        """Rows of outputs added up by the leaf of a variable that they have."""
        member = self.member[variable]
        if self._in_order[variable] and leaves == len(member):
            return by_output
        found = np.zeros((leaves, by_output.shape[1]))
        np.add.at(found, member, by_output)
        return found

    @cached_property
    def _in_order(self) -> list[bool]:
        return [np.array_equal(own, np.arange(len(own))) for own in self.member]

    @classmethod
    def of(cls, network: DynamicNetwork) -> "ChainLayout | None":
        """The layout, where the network is such a chain."""
        template = network.template
        if len(network.groups) != 1 or template.num_interfaces > _WIDEST_CHAIN:
            return None
        if template.has_tables or not is_chain(template):
            return None
        nodes, k = template.nodes, template.num_interfaces
        place = {node: i for bank in template.banks for i, node in enumerate(bank.nodes)}
        sums, position = transition_sums(template), np.full(len(nodes), -1, dtype=np.int64)
        position[list(template.inputs)] = np.arange(k)
        edge = np.full((k, k), -1, dtype=np.int64)
        member = np.full((len(template.banks), k), -1, dtype=np.int64)
        last: tuple[int, ...] = ()
        for j, output in enumerate(template.outputs):
            for child in children_of(nodes[output]):
                node = nodes[child]
                if isinstance(node, Leaf):
                    member[node.variable, j] = place[child]
                elif child != sums[j]:
                    return None
            children = children_of(nodes[sums[j]])
            if children != last:
                own, last = position[list(children)], children
            edge[j, own] = template.edge_offsets[sums[j]] + np.arange(len(children))
        if (member < 0).any():
            return None
        return cls(edge, tuple(member), np.array([sums[j] for j in range(k)]))


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
        self.slot = xp.ascontiguousarray(self.codes[:, 0])
        self.every_slice = xp.arange(batch.total_slices, dtype=np.int32)

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
    def indicators(self) -> list[Array]:
        """For each chunk of several variables, which rows have each value, (values, rows)."""
        found = []
        for c, chunk in enumerate(self.chunks):
            own = self.batch.device.here(self.digits)[int(self.starts[c]) : int(self.starts[c + 1])]
            first = int(np.sum(self.radix[: chunk[0]]))
            table = np.zeros((sum(self.radix[v] for v in chunk), len(own)))
            if len(chunk) > 1:
                for place in range(len(chunk)):
                    table[own[:, place] - first, np.arange(len(own))] = 1.0
            found.append(self.batch.device.there(table) if len(chunk) > 1 else None)
        return found

    def tables(self, logs: Array, width: int, dtype: Any, kernel: Any) -> tuple[Array, Array]:
        """Rows (all chunks, width) divided by their largest entries, whose logarithms follow.

        `logs` are the log densities of outputs, (values of all variables, outputs).
        """
        xp, rows, k = self.batch.device.xp, int(self.starts[-1]), logs.shape[1]
        if kernel is not None:
            table, divisors = xp.empty((rows, width), dtype=dtype), xp.empty(rows)
            places = self.digits.shape[1]
            threads = min(256, -(-width // 32) * 32)
            arguments = (logs, self.digits, np.int32(places), np.int32(k), np.int32(width))
            kernel((rows,), (threads,), (*arguments, table, divisors))
            return table, divisors
        found = np.concatenate([logs, np.zeros((1, k))])[self.digits].sum(axis=1)
        largest = found.max(axis=1)
        largest = np.where(largest > -np.inf, largest, 0.0)
        return np.exp(found - largest[:, None]).astype(dtype), largest

    def order(self, rows: Ints | None) -> list[tuple[Array, Array, Ints]]:
        """For each chunk some slices by code, where their pieces begin, and the codes of pieces."""
        found = []
        device = self.batch.device
        for c in range(len(self.chunks)):
            codes = device.here(self.codes[:, c]) - int(self.starts[c])
            own = np.arange(len(codes)) if rows is None else rows
            order = own[np.argsort(codes[own], kind="stable")]
            sorted_codes = codes[order]
            bounds = np.searchsorted(sorted_codes, np.arange(self.sizes[c] + 1))
            counts = -(-np.diff(bounds) // _PIECE)
            codes_of = np.repeat(np.arange(self.sizes[c]), counts)
            rank = np.arange(len(codes_of)) - np.repeat(np.cumsum(counts) - counts, counts)
            pieces = np.append(bounds[codes_of] + _PIECE * rank, len(order))
            found.append((device.there(order), device.there(pieces), codes_of))
        return found


class Upward(NamedTuple):
    """Results of an upward pass by lane (5, lanes).

    They are the root's value, the power of two that it lacks, the least value met, the sum of the
    log divisors and the least of a slice. `vectors` and `exponents` are those of every slice, where
    they were kept.
    """

    results: Array
    vectors: Any = None
    exponents: Any = None

    @property
    def root(self) -> Array:
        """The root's values."""
        return self.results[0]


@final
class ChainRun:
    """Passes of one network over one batch, in float32 or float64."""

    def __init__(
        self, own: General, layout: ChainLayout, batch: Batch, dtype: Any, *, tensor_cores: bool
    ) -> None:
        self.general, self.layout, self.batch = own, layout, batch
        self.device = device = own.device
        self.dtype = np.dtype(dtype)
        xp, k = device.xp, layout.num_nodes
        scan = device.is_gpu and k <= _WIDEST_SCAN[self.dtype]
        self.is_scan = scan
        self.width = next(w for w in (8, 16, 32, 64, 128) if w >= k) if scan else k
        self.narrow = tensor_cores and k >= _FEWEST_NARROW and self.dtype == np.float32
        many = len(batch) >= _FEWEST_TOGETHER * device.processors
        self.together = scan and many and self.width >= 64 and self.dtype == np.float32
        self.range = _RANGES[self.dtype]
        self.chunks: Chunks = self._derived(
            ("chunks", self.width), lambda: Chunks(batch, self.width)
        )
        parameters = own.network.parameters
        self.matrix = self._matrix(parameters.template.weights)
        if self.narrow:
            self.matrix = _narrowed(xp, self.matrix)
        self.table, self.divisors = self._table(parameters.template)
        self.bottom_table, self.bottom_divisors = self.table, self.divisors
        if parameters.bottom is not None:
            self.bottom_table, self.bottom_divisors = self._table(parameters.bottom)
        self.form = top_form(own.network)
        self.top = device.there(np.pad(self.form, (0, self.width - k)).astype(self.dtype))
        forward = own.network.root == Root.LAST
        self.direction = 1 if forward else -1
        starts = batch.offsets if forward else batch.offsets + batch.lengths - 1
        self.first, self.lengths = self._derived(
            ("lanes", forward),
            lambda: (device.there(starts), device.there(batch.lengths, np.int32)),
        )

    def _derived(self, key: Any, make: Any) -> Any:
        """What follows from the batch alone, kept with it."""
        found = self.batch.derived
        if key not in found:
            found[key] = make()
        return found[key]

    def _matrix(self, weights: Floats) -> Array:
        """The transition (output, input), with nodes that are not there."""
        k, (places, entries) = self.layout.num_nodes, self.layout.places
        if not self.layout.is_plain:
            dense = np.zeros(k * k)
            dense[entries] = weights[places]
            weights = dense
        found = self.device.there(weights.reshape(k, k).astype(self.dtype))
        if k == self.width:
            return found
        out = self.device.xp.zeros((self.width, self.width), dtype=self.dtype)
        out[:k, :k] = found
        return out

    def _table(self, parameters: NetworkParameters) -> tuple[Array, Array]:
        logs = []
        for bank, rows, member in zip(
            self.general.network.template.banks, parameters.leaves, self.layout.member, strict=True
        ):
            distinct = distinct_values(self.batch, bank)[: self.chunks.radix[bank.variable]]
            logs.append(bank.family.log_prob(rows, distinct)[:, member])
        # Rows of several chunks are multiplied, and in double precision until then.
        dtype = self.dtype if self.chunks.is_one else np.dtype(np.float64)
        kernel = self._kernel("arrays", "tabulate", dtype) if self.device.is_gpu else None
        found = self.device.there(np.ascontiguousarray(np.concatenate(logs)))
        return self.chunks.tables(found, self.width, dtype, kernel)

    @cached_property
    def _products(self) -> "_TensorProducts | None":
        """Matrix products on tensor cores, where operands are rounded for them."""
        return _TensorProducts(self.device) if self.narrow and self.device.is_gpu else None

    def _kernel(self, source: str, name: str, dtype: Any = None) -> Any:
        real = "float" if (dtype or self.dtype) == np.float32 else "double"
        options = [f"-DREAL={real}"]
        if source == "scan":
            options += [f"-DK={self.width}", f"-DTHREADS={self._block}"]
        if source == "tensor":
            options = [f"-DK={self.width}"]
        if source == "arrays":
            options.append(f"-DMOST={self._most}")
        return self.device.kernel(source, name, tuple(options))

    @property
    def _block(self) -> int:
        """Threads of a block of the scan kernels; few sequences are spread over the card."""
        if self.width > 32:
            return self.width
        return 128 if len(self.batch) * self.width >= 128 * self.device.processors else 32

    @property
    def _threads(self) -> int:
        """Threads of a block that takes a slice of a large chain."""
        return int(min(1024, max(128, -(-self.width // 8 // 32) * 32)))

    @property
    def _most(self) -> int:
        return 1 << int(max(0, -(-self.width // self._threads) - 1)).bit_length()

    def _scalar(self, value: float) -> Any:
        return self.dtype.type(value)

    @cached_property
    def coefficients(self) -> tuple[Array, Array, Array]:
        """Tables of the template and of the bottom, and the row of each slice in them."""
        if self.chunks.is_one:
            return self.table, self.bottom_table, self.chunks.slot
        (template, _), (bottom, _) = self._joined
        return template, bottom, self.chunks.every_slice

    @cached_property
    def _joined(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Coefficients of every slice from several chunks, and the powers of two that they lack."""
        template = self._join(self.table)
        return template, template if self.bottom_table is self.table else self._join(
            self.bottom_table
        )

    def _join(self, table: Array) -> tuple[Array, Array]:
        xp, codes = self.device.xp, self.chunks.codes
        if not self.device.is_gpu:
            found = table[codes].prod(axis=1)
            scales = np.maximum(_exponents(found.max(axis=1)), -_MOST_LIFTED[self.dtype])
            return np.ldexp(found, -scales[:, None]).astype(self.dtype), scales
        rows, chunks = codes.shape
        out, scales = xp.empty((rows, self.width), dtype=self.dtype), xp.empty(rows, np.int32)
        threads = min(128, -(-self.width // 32) * 32)
        given = (table, codes, np.int32(chunks), np.int32(self.width), out, scales)
        self._kernel("arrays", "join")((rows,), (threads,), given)
        return out, scales

    @cached_property
    def turned(self) -> Array:
        """The transition (input, output)."""
        return self.device.xp.ascontiguousarray(self.matrix.T)

    @cached_property
    def _divisor_sums(self) -> Array:
        """The log divisors of each lane, added up, and the least of a slice, in two rows."""
        count = len(self.batch)
        results = self.device.xp.zeros((2, count))
        if not self.device.is_gpu:
            for height in range(self.batch.longest):
                rows, own = self._rows(height), slice(self._active(height))
                table = self.divisors if height else self.bottom_divisors
                found = table[self.chunks.codes[rows]].sum(axis=1)
                if not self.chunks.is_one:
                    found = found + _LOG_TWO * self._joined[0 if height else 1][1][rows]
                results[0, own] += found
                results[1, own] = np.minimum(results[1, own], found)
            return results
        scales = (0, 0) if self.chunks.is_one else tuple(own for _, own in self._joined)
        self._kernel("arrays", "add_divisors")(
            (-(-count // 4),),
            (128,),
            (self.divisors, self.bottom_divisors, *scales, self.chunks.codes,
             np.int32(len(self.chunks.chunks)), self.first, self.lengths,
             np.int32(self.direction), np.int32(count), results),
        )  # fmt: skip
        return results

    def upward(self, under: float, *, keep: bool) -> Upward:
        """An upward pass over all lanes."""
        xp, count = self.device.xp, len(self.batch)
        results = xp.empty((5, count))
        results[3:] = self._divisor_sums
        if not self.is_scan:
            with self._products or nullcontext():
                return self._rise(results, under, keep=keep)
        table, bottom, slot = self.coefficients
        vectors = exponents = None
        if keep:
            vectors = xp.empty((self.batch.total_slices, self.width), dtype=self.dtype)
            exponents = xp.empty(self.batch.total_slices, dtype=np.int32)
        matrix = self.matrix if self.together else self.turned
        self._launch(
            "forward",
            (matrix, table, bottom, self.top, slot, self.first, self.lengths,
             np.int32(self.direction), np.int32(count), np.int32(self.layout.num_nodes),
             self._scalar(under), 0 if vectors is None else vectors,
             0 if exponents is None else exponents, results),
        )  # fmt: skip
        return Upward(results, vectors, exponents)

    def _launch(self, name: str, arguments: tuple[Any, ...]) -> None:
        count = len(self.batch)
        if self.together:
            kernel = self._kernel("tensor", name)
            kernel((-(-count // 16),), (2 * self.width,), arguments)
            return
        per = self._block // self.width
        self._kernel("scan", name)((-(-count // per),), (self._block,), arguments)

    def _rows(self, height: int) -> Array:
        count = self._active(height)
        return self.first[:count] + self.direction * height

    def _active(self, height: int) -> int:
        counts: Ints = self._derived(
            "active", lambda: np.cumsum(np.bincount(self.batch.lengths)[::-1])[::-1]
        )
        return int(counts[height + 1])

    def _rise(self, results: Array, under: float, *, keep: bool) -> Upward:
        """Slice after slice, each a matrix product for all lanes that have it."""
        xp, count, batch = self.device.xp, len(self.batch), self.batch
        table, bottom, slot = self.coefficients
        vectors = exponents = None
        if keep:
            vectors = xp.empty((batch.total_slices, self.width), dtype=self.dtype)
            exponents = xp.empty(batch.total_slices, dtype=np.int32)
        powers = xp.zeros(count, dtype=np.int64)
        least = xp.ones(count, dtype=self.dtype)
        now = xp.empty((count, self.width), dtype=self.dtype)
        mixed = xp.empty_like(now)
        kernel = self._kernel("arrays", "rise") if self.device.is_gpu else None
        kept = (0, 0) if vectors is None else (vectors, exponents)
        last = (np.int32(self.width), np.int32(self.layout.num_nodes), self._scalar(under),
                np.int32(self.narrow), now, *kept, powers, least)  # fmt: skip
        for height in range(batch.longest):
            base.check_time()
            active = self._active(height)
            if height:
                self._multiply(now[:active], mixed[:active], turned=True)
            own = table if height else bottom
            if kernel is not None:
                along = np.int32(self.direction * height)
                given = (mixed if height else 0, own, slot, self.first, along)
                kernel((active,), (self._threads,), (*given, *last))
                continue
            rows = self._rows(height)
            found = own[slot[rows]]
            if height:
                found = found * mixed[:active]
            found = found + self._scalar(under)
            least[:active] = xp.minimum(least[:active], found.min(axis=1))
            e = _exponents(found.max(axis=1))
            now[:active] = np.ldexp(found, -e[:, None])
            powers[:active] += e
            if keep:
                assert vectors is not None and exponents is not None
                vectors[rows], exponents[rows] = now[:active], e
        results[0] = now.astype(np.float64) @ self.top.astype(np.float64)
        results[1], results[2] = powers, least
        return Upward(results, vectors, exponents)

    def _multiply(self, left: Array, out: Array, *, turned: bool) -> None:
        """Out = left @ matrix, or its transpose; on tensor cores if operands are `narrowed`."""
        if not self.device.is_gpu:
            out[:] = left @ (self.matrix.T if turned else self.matrix)
        elif self.narrow:
            assert self._products is not None
            width = self.width
            self._products((turned, False), (width, len(left), width), self.matrix, left, out)
        else:
            self.device.xp.matmul(left, self.matrix.T if turned else self.matrix, out=out)

    def downward(self, up: Upward, share: Array) -> tuple[Array, Array, Array]:
        """Posteriors of outputs and uses of sums at every slice, and the exponents of `Range`.

        See `backward` of the kernels. `share` is the weight of each lane; 0 leaves it out.
        """
        if not self.is_scan:
            with self._products or nullcontext():
                return self._fall(up, share)
        xp, count = self.device.xp, len(self.batch)
        table, _, slot = self.coefficients
        posteriors, uses = xp.empty_like(up.vectors), xp.empty_like(up.vectors)
        highest = xp.empty(count, dtype=np.int32)
        matrix = self.turned if self.together else self.matrix
        self._launch(
            "backward",
            (matrix, table, self.top, slot, self.first, self.lengths,
             np.int32(self.direction), np.int32(count), up.vectors, up.exponents, up.root, share,
             posteriors, uses, highest),
        )  # fmt: skip
        return posteriors, uses, highest

    def _fall(self, up: Upward, share: Array) -> tuple[Array, Array, Array]:
        xp, count, batch = self.device.xp, len(self.batch), self.batch
        table, _, slot = self.coefficients
        posteriors, uses = xp.empty_like(up.vectors), xp.empty_like(up.vectors)
        lack, highest = xp.zeros(count, dtype=np.int32), xp.zeros(count, dtype=np.int32)
        derivatives = xp.empty((count, self.width), dtype=self.dtype)
        derivatives[:] = self.top
        handed = xp.empty_like(derivatives)
        factor = xp.where(share > 0, share / up.root, 0.0)
        kernel = self._kernel("arrays", "fall") if self.device.is_gpu else None
        last = (np.int32(self.narrow), up.vectors, up.exponents, up.root, share, lack, highest,
                posteriors, uses, handed)  # fmt: skip
        for height in reversed(range(batch.longest)):
            base.check_time()
            active = self._active(height)
            if kernel is not None:
                along = np.int32(self.direction * height)
                given = (derivatives, table, slot, self.first, along, np.int32(self.width))
                kernel((active,), (self._threads,), (*given, np.int32(height == 0), *last))
            else:
                rows = self._rows(height)
                above, exponents = derivatives[:active], up.exponents[rows]
                unit = np.ldexp(factor[:active], np.clip(lack[:active], -1000, 1000))[:, None]
                counts = share[:active, None] > 0
                posteriors[rows] = np.where(counts, up.vectors[rows] * above * unit, 0.0)
                found = table[slot[rows]] * above
                highest[:active] = np.maximum(highest[:active], lack[:active])
                uses[rows] = 0.0
                if height:
                    own = np.ldexp(unit, -exponents[:, None])
                    uses[rows] = np.where(counts, found * own, 0.0)
                    e = _exponents(found.max(axis=1))
                    handed[:active] = np.ldexp(found, -e[:, None])
                    lack[:active] += e - exponents
            if height:
                self._multiply(handed[:active], derivatives[:active], turned=False)
        return posteriors, uses, highest

    def used(self, uses: Array, vectors: Array) -> Array:
        """Sum over slices of uses[row, j] vectors[row below, i], in float64 (j, i).

        Rows are added in pieces of one size, and the pieces in their order.
        """
        xp, rows = self.device.xp, len(uses)
        if self.direction > 0:
            left, right = uses[1:], vectors[:-1]
        else:
            left, right = uses[:-1], vectors[1:]
        rows -= 1
        if self.device.is_gpu and self.width in (32, 64, 128) and self.dtype == np.float32 and rows:
            groups = 128 // self.width
            blocks = int(min(2 * self.device.processors, -(-rows // (16 * groups))))
            parts = xp.empty((blocks * groups, self.width, self.width), dtype=self.dtype)
            self._kernel("tensor", "outer")((blocks,), (256,), (left, right, np.int64(rows), parts))
            return parts.sum(axis=0, dtype=np.float64)
        total = xp.zeros((self.width, self.width))
        if self._products is not None:
            found = xp.empty((self.width, self.width), dtype=np.float32)
            with self._products as multiply:
                for start in range(0, rows, _ROWS_AT_ONCE):
                    one, other = (own[start : start + _ROWS_AT_ONCE] for own in (left, right))
                    shape = (self.width, self.width, len(one))
                    multiply((False, True), shape, other, one, found)
                    total += found
            return total
        pieces = int(min(256, max(1, self.device.cells // (self.width * self.width))))
        size = rows // pieces
        if size >= self.width:
            whole, shape = size * pieces, (pieces, size, self.width)
            found = xp.matmul(
                left[:whole].reshape(shape).transpose(0, 2, 1), right[:whole].reshape(shape)
            )
            total += found.sum(axis=0, dtype=np.float64)
            left, right = left[whole:], right[whole:]
        if len(left):
            total += xp.matmul(left.T, right)
        return total

    def counts(self, posteriors: Array, rows: str) -> list[Array]:
        """Posteriors summed by code for each chunk, over "all" slices, "bottom" or "others"."""
        xp, device, chunks = self.device.xp, self.device, self.chunks

        def chosen() -> Any:
            at_bottom = device.here(self.first)
            if rows == "all":
                return chunks.order(None)
            if rows == "bottom":
                return chunks.order(np.sort(at_bottom))
            mask = np.ones(self.batch.total_slices, dtype=bool)
            mask[at_bottom] = False
            return chunks.order(np.flatnonzero(mask))

        found = []
        key = ("order", self.width, rows, self.direction)
        for c, (order, starts, codes) in enumerate(self._derived(key, chosen)):
            out = xp.zeros((chunks.sizes[c], self.width))
            pieces = len(codes)
            if pieces:
                if device.is_gpu:
                    sums = xp.empty((pieces, self.width))
                    threads = min(128, -(-self.width // 32) * 32)
                    self._kernel("arrays", "add_rows")(
                        (pieces, -(-self.width // threads)),
                        (threads,),
                        (posteriors, order, starts, np.int32(self.width), sums),
                    )
                    out = self._add_pieces(sums, (*key, c), codes, chunks.sizes[c])
                else:
                    np.add.at(out, chunks.codes[order, c] - chunks.starts[c], posteriors[order])
            found.append(out)
        return found

    def _add_pieces(self, sums: Array, key: Any, codes: Ints, size: int) -> Array:
        """Sums of pieces by code, in the order of pieces."""
        xp, device = self.device.xp, self.device

        def places() -> Any:
            if len(codes) == size and np.array_equal(codes, np.arange(size)):
                return None
            starts = np.searchsorted(codes, np.arange(size + 1))
            return xp.arange(len(codes), dtype=np.int64), device.there(starts)

        found = self._derived(("pieces", *key), places)
        if found is None:
            return sums
        out = xp.empty((size, self.width))
        threads = min(128, -(-self.width // 32) * 32)
        device.kernel("arrays", "add_rows", ("-DREAL=double", "-DMOST=1"))(
            (size, -(-self.width // threads)),
            (threads,),
            (sums, *found, np.int32(self.width), out),
        )
        return out

    def statistics(self, counts: list[Array], parameters: NetworkParameters) -> tuple[Floats, ...]:
        """Expected statistics of the leaves of each bank from the counts of codes."""
        device, chunks, network = self.device, self.chunks, self.general.network
        banks = network.template.banks
        found: list[Floats] = [np.empty(0)] * len(banks)
        tables = self._derived(("statistics", self.width, id(banks)), self._statistics_tables)[1]
        for c, (chunk, own) in enumerate(zip(chunks.chunks, counts, strict=True)):
            own = own[:, : self.layout.num_nodes]
            on_card = len(chunk) == 1 and tables[chunk[0]] is not None
            if len(chunk) > 1:
                own = device.here(chunks.indicators[c] @ own)
            start = 0
            for v in chunk:
                by_value = own[start : start + chunks.radix[v]].T  # (outputs, values)
                start += chunks.radix[v]
                bank, table = banks[v], tables[v]
                if table is not None:
                    by_node = device.here(by_value @ table) if on_card else by_value @ table
                    found[v] = self.layout.by_leaf(v, by_node, len(bank.nodes))
                    continue
                by_node = device.here(by_value) if len(chunk) == 1 else by_value
                distinct = self.batch.distinct[v][: chunks.radix[v]]
                found[v] = bank.family.expected_statistics(
                    parameters.leaves[v],
                    distinct,
                    self.layout.by_leaf(v, by_node, len(bank.nodes)),
                )
        return tuple(found)

    def _statistics_tables(self) -> tuple[Any, list[Any]]:
        """The statistics of each variable's values; none where a family needs its parameters."""
        banks, chunks = self.general.network.template.banks, self.chunks
        found: list[Any] = [None] * len(banks)
        for chunk in chunks.chunks:
            for v in chunk:
                if not has_own_statistics(banks[v].family):
                    distinct = self.batch.distinct[v][: chunks.radix[v]]
                    found[v] = banks[v].family.statistics(distinct)
                    if len(chunk) == 1:
                        found[v] = self.device.there(found[v])
        return banks, found


def _exponents(values: Floats) -> Ints:
    """Floor(log2) of positive numbers, 0 for 0."""
    return np.where(values > 0, np.frexp(values)[1] - 1, 0).astype(np.int32)


def _narrowed(xp: Any, values: Array) -> Array:
    """Float32 numbers rounded to the nearest of ten fraction bits."""
    bits = values.view(xp.uint32) + xp.uint32(0x1000)
    return (bits & xp.uint32(0xFFFFE000)).view(xp.float32)


@final
class _TensorProducts:
    """Products of float32 matrices by columns, the order of BLAS, on TF32 tensor cores."""

    def __init__(self, device: Device) -> None:
        cuda = device.xp.cuda
        self.handle, self.cublas = cuda.device.get_cublas_handle(), cuda.cublas
        self.one, self.zero = np.ones(1, np.float32), np.zeros(1, np.float32)

    def __enter__(self) -> "_TensorProducts":
        self.before = self.cublas.getMathMode(self.handle)
        self.cublas.setMathMode(self.handle, _TF32_TENSOR_OP_MATH)
        return self

    def __exit__(self, *_: object) -> None:
        self.cublas.setMathMode(self.handle, self.before)

    def __call__(
        self,
        turned: tuple[bool, bool],
        shape: tuple[int, int, int],
        left: Array,
        right: Array,
        out: Array,
    ) -> None:
        """Out = left @ right, either transposed if `turned`.

        `shape` has the rows and columns of the result, and what is summed over.
        """
        rows, columns, summed = shape
        self.cublas.sgemm(
            *(self.handle, int(turned[0]), int(turned[1]), rows, columns, summed),
            *(self.one.ctypes.data, left.data.ptr, summed if turned[0] else rows),
            *(right.data.ptr, columns if turned[1] else summed),
            *(self.zero.ctypes.data, out.data.ptr, rows),
        )


def log_values(results: Floats) -> Floats:
    """Log-likelihoods of the lanes."""
    found: Floats = np.log(results[0]) + results[1] * _LOG_TWO + results[3]
    return found


def log_totals(run: ChainRun) -> tuple[Floats, Bools]:
    """Log-likelihoods of the lanes, and those that are in doubt."""
    device, own = run.device, run.range
    results = device.here(run.upward(0.0, keep=False).results)
    found, low = log_values(results), results[2] < own.low
    doubtful = (results[4] < _LEAST_DIVISOR) | ~np.isfinite(found)
    if (low & ~doubtful).any():
        upper = log_values(device.here(run.upward(own.under, keep=False).results))
        doubtful |= low & ~(np.abs(upper - found) <= own.agreement)
    return found, doubtful


def doubts(run: ChainRun, results: Floats, highest: Ints) -> Bools:
    """Lanes whose posteriors the range of numbers may not have held."""
    found = (results[4] < _LEAST_DIVISOR) | ~np.isfinite(log_values(results))
    return np.asarray(found | ~(highest - np.log2(results[0]) <= run.range.lack))


def expected_flows(run: ChainRun, weights: Floats) -> tuple[ExpectedFlows, Floats, Bools]:
    """Flows of the sequences that are not in doubt, log-likelihoods by lane, and those in doubt."""
    device, layout, network = run.device, run.layout, run.general.network
    xp, here, k = device.xp, device.here, layout.num_nodes
    up = run.upward(run.range.under, keep=True)
    of_lanes = weights[run.batch.order]
    share = device.there(of_lanes, run.dtype)
    posteriors, uses, highest = run.downward(up, share)
    results = here(up.results)
    logs = log_values(results)
    doubtful = doubts(run, results, here(highest))
    if doubtful.any():
        share = device.there(np.where(doubtful, 0.0, of_lanes), run.dtype)
        posteriors, uses, _ = run.downward(up, share)
    matrix = run.used(uses, up.vectors)
    if k < run.width:
        matrix = matrix[:k, :k]
    template, (places, entries) = here(matrix).reshape(-1), layout.places
    if not layout.is_plain:
        dense, template = template, np.zeros(network.template.num_weights)
        template[places] = dense[entries]
    template = template * network.parameters.template.weights
    # The top is linear in its inputs, so that their weighted sum stands for all lanes.
    last = run.first + run.direction * (run.lengths.astype(np.int64) - 1)
    ratio = xp.where(share > 0, share / up.root, 0.0)
    inputs = here(ratio @ up.vectors[last].astype(np.float64))
    top = top_flows(network, inputs[:k])
    parameters = network.parameters
    bottom = None
    if parameters.bottom is None:
        leaves = run.statistics(run.counts(posteriors, "all"), parameters.template)
    else:
        leaves = run.statistics(run.counts(posteriors, "others"), parameters.template)
        own = run.statistics(run.counts(posteriors, "bottom"), parameters.bottom)
        bottom = NetworkFlows(np.zeros(network.template.num_weights), own)
    flows = ExpectedFlows(NetworkFlows(template, leaves), NetworkFlows(top, ()), bottom)
    return flows, logs, doubtful


def _top(network: DynamicNetwork, inputs: Floats) -> tuple[Network, Floats, Floats]:
    """The top network with its values and derivatives for one lane, in NumPy."""
    own = Network(_HERE, part_of(network.top), network.parameters.top)
    values = np.zeros((len(network.top.nodes), 1))
    with np.errstate(all="ignore"):
        values[list(network.top.inputs), 0] = np.log(inputs)
        own.upward(values)
        derivatives = np.full(values.shape, -np.inf)
        derivatives[network.top.root] = 0.0
        own.downward(values, derivatives)
    return own, values, derivatives


def _is_one_sum(network: DynamicNetwork) -> bool:
    """Whether the top network is one sum over the inputs in their order."""
    root = network.top.nodes[network.top.root]
    return isinstance(root, Sum) and root.children == network.top.inputs


def top_form(network: DynamicNetwork) -> Floats:
    """The weight of each input in the root, which is linear in them."""
    if _is_one_sum(network) and network.top.num_weights == network.num_interfaces:
        return network.parameters.top.weights
    _, _, derivatives = _top(network, np.ones(network.num_interfaces))
    return np.exp(derivatives[list(network.top.inputs), 0])


def top_flows(network: DynamicNetwork, inputs: Floats) -> Floats:
    """Flows of the top network for one lane of these values, whose root is 1."""
    if _is_one_sum(network) and network.top.num_weights == network.num_interfaces:
        return network.parameters.top.weights * inputs
    own, values, derivatives = _top(network, inputs)
    flows = np.zeros(network.top.num_weights)
    with np.errstate(all="ignore"):
        own.add_flows(values, derivatives, np.zeros(1), flows)
    return flows


@final
class ChainProgram:
    """Queries of a chain over whole batches; what is in doubt goes through `general`."""

    def __init__(
        self, own: General, layout: ChainLayout, climb: Climb, dtype: Any, tensor_cores: bool
    ) -> None:
        self.general, self.layout, self.climb, self.dtype = own, layout, climb, dtype
        self.tensor_cores = tensor_cores
        self._last: tuple[Batch, ChainRun] | None = None

    def run(self, batch: Batch) -> ChainRun:
        """The program bound to a batch; the last one is kept."""
        if self._last is None or self._last[0] is not batch:
            self._last = None
            found = ChainRun(
                self.general, self.layout, batch, self.dtype, tensor_cores=self.tensor_cores
            )
            self._last = (batch, found)
        return self._last[1]

    def run_in_double(self, batch: Batch) -> ChainRun:
        """The program bound to a batch, in double precision."""
        if np.dtype(self.dtype) == np.float64:
            return self.run(batch)
        return ChainRun(self.general, self.layout, batch, np.float64, tensor_cores=False)

    def parts(self, batch: Batch, arrays: int) -> list[tuple[Batch, Ints]]:
        """The batch in parts for which so many arrays of vectors have room, and their sequences.

        To ask the card for its room takes longer than many a pass: a batch that it had room for is
        not asked about again.
        """
        each = arrays * self.layout.num_nodes * np.dtype(self.dtype).itemsize
        whole = [(batch, np.arange(len(batch)))]
        if batch.derived.get("held", 0) >= each:
            return whole
        most = max(1, self.general.device.room // each)
        if batch.total_slices <= most:
            batch.derived["held"] = each
            return whole
        return batch.cut(2 ** int(np.log2(most)))

    def log_totals(self, batch: Batch) -> Floats:
        """Log P(observed entries) of each sequence, as totals."""
        out = np.empty((TERMS, len(batch)))
        for part, members in self.parts(batch, 1):
            out[:, members] = self._log_totals(part)
        return out

    def _log_totals(self, batch: Batch) -> Floats:
        found, doubtful = log_totals(self.run(batch))
        out = np.zeros((TERMS, len(batch)))
        out[0, batch.order] = found
        if doubtful.any():
            lanes = np.flatnonzero(doubtful)
            if self.climb.applies:
                again = self.climb.log_totals(batch, lanes)
            else:
                again = general.log_totals(self.general, batch, lanes)
            own = batch.order[doubtful]
            out[:, own] = again[:, own]
        return out

    def expected_flows(self, batch: Batch, weights: Floats) -> tuple[ExpectedFlows, Floats]:
        """Flows summed over sequences, each with its weight, and the log-likelihoods."""
        flows, out = ExpectedFlows.nothing(self.general.network), np.empty(len(batch))
        for part, members in self.parts(batch, 4):
            own, out[members] = self._expected_flows(part, weights[members])
            flows = own if len(members) == len(batch) else flows + own
        return flows, out

    def _expected_flows(self, batch: Batch, weights: Floats) -> tuple[ExpectedFlows, Floats]:
        flows, found, doubtful = expected_flows(self.run(batch), weights)
        log_values = np.empty(len(batch))
        log_values[batch.order] = found
        if doubtful.any():
            rest, again = general.expected_flows(
                self.general, batch, weights, np.flatnonzero(doubtful)
            )
            own = batch.order[doubtful]
            log_values[own] = again[own]
            flows = flows + rest
        return flows, log_values

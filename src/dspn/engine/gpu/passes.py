"""Upward and downward passes over chains of one group, in linear arithmetic.

A slice is v' = c(x) * (W v) with one coefficient for each output, and W one of several matrices
where weights depend on inputs of the schema. Vectors are divided by powers of two, which is exact;
their exponents are added up as integers, and one logarithm is taken for each sequence. Derivatives
are divided by the same powers and begin with the share of the sequence, so that values times
derivatives are posteriors as they stand.

What the range of the numbers does not hold is found out, and the sequences concerned go through
`general`, which computes in logarithms:

- likelihood: values below LOW may have lost something. Such sequences run again with a small number
  `under` added to every value, more than what can be lost. All weights are non-negative, so that is
  an upper bound; where it agrees with the first result nothing was lost that counts.
- flows: `under` is added always. Values are then too large and never too small. So the sum over
  slices and nodes of `under` times the derivative, divided by the share of the sequence, bounds
  what is wrong of the result: no derivative may exceed the share times 2^60 in float32, where
  `under` is 2^-112; see `Range`. Derivatives that are lost are below 2^-126 of the largest share.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Final, NamedTuple, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints
from dspn.engine.gpu import hopper
from dspn.engine.gpu.coefficients import Chunks, Tables, leaf_logs
from dspn.engine.gpu.device import (
    HOPPER,
    Array,
    Batch,
    Device,
    Recording,
    TensorProducts,
    narrowed,
    real_option,
)
from dspn.engine.gpu.general import General, Network
from dspn.engine.gpu.large import LEAST_EXPONENT, fall, rise
from dspn.engine.gpu.layout import part_of
from dspn.engine.gpu.transition import WIDEST_TABLES, ChainLayout
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Sum

_HERE: Final = Device("numpy")
_LOG_TWO: Final = float(np.log(2.0))
# Divisors of a slice below this are left to `general`, which adds logarithms as totals.
_LEAST_DIVISOR: Final = -1e5
# Products of float32 matrices this large run on tensor cores, with ten fraction bits.
_FEWEST_NARROW: Final = 256
_WIDEST_SCAN: Final = {np.dtype(np.float32): 128, np.dtype(np.float64): 64}
# Fewer sequences times nodes for each multiprocessor are faster one to a group of threads.
_FEWEST_TOGETHER: Final = 1280
# Recordings of a batch, and arrays of vectors that one holds.
_MOST_RECORDINGS: Final = 4
_KEPT_ARRAYS: Final = 4
# Sets of 16 sequences in a block, which Hopper multiplies together for so many nodes.
_MOST_SETS: Final = 4
_GROUPED: Final = 128


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


def lanes_of(batch: Batch, root: Root) -> tuple[Array, Array, Any]:
    """First slices, lengths and direction of the lanes, as the kernels read them."""
    forward, device = root == Root.LAST, batch.device
    starts = batch.offsets if forward else batch.offsets + batch.lengths - 1
    key = ("lanes", forward)
    first, lengths = batch.keep(
        key, lambda: (device.there(starts), device.there(batch.lengths, np.int32))
    )
    return first, lengths, np.int32(1 if forward else -1)


def tables_of(batch: Batch, layout: ChainLayout) -> Any:
    """Which matrix the weights of each slice are; 0 where there is one."""
    if not layout.by:
        return 0

    def make() -> Array:
        found = batch.device.xp.zeros(batch.total_slices, dtype=np.int64)
        for column, size in layout.by:
            found = found * size + batch.told[:, column]
        return found.astype(np.int32)

    return batch.keep(("tables", layout.by), make)


@final
class ChainRun:
    """Passes of one network over one batch, in float32 or float64.

    Args:
        numbers: the numbers of the network on the device, if not those of `own`: see `given`.
    """

    def __init__(
        self, own: General, layout: ChainLayout, batch: Batch, dtype: Any, *, tensor_cores: bool,
        numbers: list[Array] | None = None,
    ) -> None:  # fmt: skip
        self.general, self.layout, self.batch = own, layout, batch
        self.device = device = own.device
        self.dtype = np.dtype(dtype)
        k = layout.num_nodes
        widest = _WIDEST_SCAN[self.dtype]
        widest = min(widest, WIDEST_TABLES) if layout.by else widest
        self.is_scan = device.is_gpu and k <= widest and not layout.layers
        self.width = next(w for w in (8, 16, 32, 64, 128) if w >= k) if self.is_scan else k
        self.tensor_cores = tensor_cores
        self.narrow = tensor_cores and k >= _FEWEST_NARROW and self.dtype == np.float32
        many = len(batch) * self.width >= _FEWEST_TOGETHER * device.processors and not layout.by
        self.together = self.is_scan and many and self.width >= 32 and self.dtype == np.float32
        self.range = _RANGES[self.dtype]
        chunks = batch.keep(("chunks", self.width), lambda: Chunks(batch, self.width))
        self.chunks: Chunks = chunks
        self.first, self.lengths, self.direction = lanes_of(batch, own.network.root)
        self.which = tables_of(batch, layout)
        self._numbers = numbers

    @cached_property
    def given(self) -> list[Floats]:
        """Weights, log densities of values, those of a bottom with its own, and the root's form."""
        own, parameters = self.general, self.general.network.parameters
        networks = (parameters.template, parameters.bottom)
        logs = [leaf_logs(own, self.layout, self.chunks, p) for p in networks if p is not None]
        return [parameters.template.weights, *logs, top_form(own.network)]

    @cached_property
    def numbers(self) -> list[Array]:
        """The same on the device."""
        return self._numbers or [self.device.there(own) for own in self.given]

    def repeated(
        self, name: str, make: "Callable[[ChainRun, list[Array]], list[Array]]", more: list[Floats]
    ) -> list[Array]:
        """What `make` finds with this run and with more numbers.

        Where the same is done again with other parameters it may be a recording that finds it:
        `make` has a name, and depends on nothing else that can change.
        """
        device, batch, layout = self.device, self.batch, self.layout
        size = _KEPT_ARRAYS * batch.total_slices * self.width * self.dtype.itemsize
        size += sum(own.nbytes for own in self.given)
        if not self.is_scan or layout.by or layout.is_shared or batch.rows is not None:
            return make(self, [device.there(own) for own in more])

        def once(arrays: list[Array]) -> list[Array]:
            own = (self.general, layout, batch, self.dtype)
            count = len(arrays) - len(more)
            run = ChainRun(*own, tensor_cores=self.tensor_cores, numbers=arrays[:count])
            return make(run, arrays[count:])

        recordings: dict[Any, Recording] = batch.keep("recordings", dict)
        network = self.general.network
        key = (name, id(layout), self.dtype, network.parameters.bottom is None, network.root)
        if key not in recordings:
            while len(recordings) >= _MOST_RECORDINGS:
                del recordings[next(iter(recordings))]
            recordings[key] = Recording(device, once, size)
        return recordings[key]([*self.given, *more])

    @cached_property
    def form(self) -> Array:
        """The weight of each input in the root, which is linear in them, in the type of passes."""
        found = self.device.xp.zeros(self.width, dtype=self.dtype)
        found[: self.layout.num_nodes] = self.numbers[-1]
        return found

    @cached_property
    def tables(self) -> Tables:
        """Coefficients of the slices."""
        return Tables(self.chunks, self.numbers[1:-1], self.width, self.dtype)

    @cached_property
    def weights(self) -> Array:
        """The transitions (tables, output, input), with nodes that are not there, or of layers."""
        k = self.layout.num_nodes
        found = self.layout.dense(self.device, self.numbers[0])
        if k == self.width:
            return found
        out = self.device.xp.zeros((len(found), self.width, self.width))
        out[:, :k, :k] = found
        return out

    @cached_property
    def matrix(self) -> Array:
        """The same in the type of passes."""
        found = self.weights.astype(self.dtype)
        return narrowed(self.device.xp, found) if self.narrow else found

    @cached_property
    def turned(self) -> Array:
        """The transitions (tables, input, output)."""
        return self.device.xp.ascontiguousarray(self.matrix.transpose(0, 2, 1))

    @cached_property
    def products(self) -> TensorProducts | None:
        """Matrix products on tensor cores, where operands are rounded for them."""
        return TensorProducts(self.device) if self.narrow and self.device.is_gpu else None

    @cached_property
    def fused(self) -> hopper.HopperPasses | None:
        """Passes in one kernel, where card and chain are of the kind."""
        return hopper.HopperPasses(self) if hopper.serves(self) else None

    @cached_property
    def _divisor_sums(self) -> Array:
        return self.tables.divisor_sums((self.first, self.lengths, self.direction))

    def upward(self, under: float, *, keep: bool) -> Upward:
        """An upward pass over all lanes."""
        xp, slices = self.device.xp, self.batch.total_slices
        results = xp.empty((5, len(self.batch)))
        results[3:] = self._divisor_sums
        vectors = xp.empty((slices, self.width), dtype=self.dtype) if keep else None
        exponents = xp.empty(slices, dtype=np.int32) if keep else None
        up = Upward(results, vectors, exponents)
        if self.is_scan:
            # Some kernels keep the last vectors at least, where they find the root's value.
            last = xp.empty((len(self.batch), self.width), dtype=self.dtype) if self.together else 0
            tables, kept = self.tables, (vectors, exponents) if keep else (last, 0)
            self._launch(
                "forward",
                (self.matrix if self.together else self.turned, self.which, tables.rows,
                 tables.bottom_rows, self.form, self.chunks.slot, *self._lanes,
                 np.int32(self.layout.num_nodes), self.dtype.type(under), *kept, results),
            )  # fmt: skip
            return up
        if self.fused is not None:
            self.fused.rise(up, under)
            return up
        with self.products or nullcontext():
            rise(self, up, under)
        return up

    def downward(self, up: Upward, share: Array) -> tuple[Array, Array, Array]:
        """Posteriors of outputs and uses of sums at every slice, and the exponents of `Range`.

        See `backward` of the kernels. `share` is the weight of each lane; 0 leaves it out.
        """
        xp, count = self.device.xp, len(self.batch)
        posteriors, uses = xp.empty_like(up.vectors), xp.empty_like(up.vectors)
        highest = xp.full(count, LEAST_EXPONENT, dtype=np.int32)
        if self.is_scan:
            self._launch(
                "backward",
                (self.turned if self.together else self.matrix, self.which, self.tables.rows,
                 self.form, self.chunks.slot, *self._lanes, up.vectors, up.exponents, up.root,
                 share, posteriors, uses, highest),
            )  # fmt: skip
        elif self.fused is not None:
            self.fused.fall(up, share, posteriors, uses, highest)
        else:
            with self.products or nullcontext():
                fall(self, up, share, posteriors, uses, highest)
        return posteriors, uses, highest

    @property
    def _lanes(self) -> tuple[Any, ...]:
        return self.first, self.lengths, self.direction, np.int32(len(self.batch))

    def _launch(self, name: str, arguments: tuple[Any, ...]) -> None:
        count, width = len(self.batch), self.width
        if self.together:
            sets, grouped = -(-count // 16), width == _GROUPED and self.device.is_hopper
            if grouped:  # coefficients, or vectors too, of two slices are on their way
                each = warps = _MOST_SETS
                more = 512 * width * (1 if name == "forward" else 2) + 1024
            else:
                most = 1 << (-(-sets // self.device.processors) - 1).bit_length()
                each, share = min(_MOST_SETS, most), max(1, width // 64)
                warps, more = share * each, 128 * (width + 2) * each if share > 1 else 0
            kernel = self.tensor_kernel(name, 32 * warps, grouped=grouped)
            shared = self.device.give_shared_memory(kernel, 4 * width**2 + more)
            kernel((-(-sets // each),), (32 * warps,), arguments, shared_mem=shared)
            return
        kernel, block = self.scan_kernel(name)
        kernel((-(-count // (block // width)),), (block,), arguments)

    def tensor_kernel(self, name: str, threads: int, *, grouped: bool = False) -> Any:
        """A kernel that takes 16 sequences together, or 64 on Hopper."""
        whole = int(self.width == self.layout.num_nodes)
        sizes = (f"-DK={self.width}", f"-DTHREADS={threads}", f"-DWHOLE={whole}")
        more = ("-DGROUP=1", HOPPER) if grouped else ()
        return self.device.kernel("tensor", name, ("-DREAL=float", *sizes, *more))

    def scan_kernel(self, name: str) -> tuple[Any, int]:
        """A kernel that takes a sequence in a group of threads, and the threads of its blocks."""
        block = self.width
        if block <= 32:  # few sequences are spread over the card
            block = 128 if len(self.batch) * block >= 128 * self.device.processors else 32
        sizes = (f"-DK={self.width}", f"-DTHREADS={block}")
        options = (real_option(self.dtype), *sizes, f"-DTABLES={int(bool(self.layout.by))}")
        return self.device.kernel("scan", name, options), block


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


def doubts(run: ChainRun, results: Floats, highest: Floats | Ints, share: Floats) -> Bools:
    """Lanes whose posteriors the range of numbers may not have held."""
    found = (results[4] < _LEAST_DIVISOR) | ~np.isfinite(log_values(results))
    # A share that is 0 in the type of passes counts nothing beside the others.
    least = np.maximum(share, 2.0**-126)
    return np.asarray(found | ~(highest - np.log2(least) <= run.range.lack))


def _is_one_sum(network: DynamicNetwork) -> bool:
    """Whether the top network is one sum over the inputs in their order."""
    root = network.top.nodes[network.top.root]
    whole = network.top.num_weights == network.num_interfaces
    return whole and isinstance(root, Sum) and root.children == network.top.inputs


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


def top_form(network: DynamicNetwork) -> Floats:
    """The weight of each input in the root, which is linear in them."""
    if _is_one_sum(network):
        return network.parameters.top.weights
    _, _, derivatives = _top(network, np.ones(network.num_interfaces))
    return np.exp(derivatives[list(network.top.inputs), 0])


def top_flows(network: DynamicNetwork, form: Floats, used: Floats) -> Floats:
    """Flows of the top network from how often each of its inputs is used.

    The top is linear in its inputs, so that their weighted sum stands for all lanes.
    """
    if _is_one_sum(network):
        return used
    inputs = np.divide(used, form, out=np.zeros(len(form)), where=form > 0)
    own, values, derivatives = _top(network, inputs)
    flows = np.zeros(network.top.num_weights)
    with np.errstate(all="ignore"):
        own.add_flows(values, derivatives, np.zeros(1), flows)
    return flows

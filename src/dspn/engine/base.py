"""What an engine offers: everything above the engines calls this and nothing else.

An engine compiles one network at a time (`Engine`, `NetworkProgram`). A `Program` is a whole model,
the root sum over its components: one component is the ordinary case. Results are arrays in the
order of the structure (positions of interface nodes, leaves by bank), whatever an engine's layout.

Logarithms that are subtracted from each other later are *totals*: sums of three floats, so that one
huge term does not swallow the others. An outlier can make a log-likelihood -1e20, of which one
float holds multiples of 16,384 only. A total is an array (TERMS, ...) whose terms add up to the
number; some hold what others have rounded off. Log 0 has -inf for its first term, else 0.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints
from dspn.data.layout import offsets_of
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences
from dspn.errors import DataError, EvidenceError
from dspn.leaves.block import GaussianBlock, carrier_of
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork, Root

TERMS: Final = 3
_NOTHING: Final = np.empty((0, 0))


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The float nearest to a + b, and what it lacks."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def total_of(log_values: Floats) -> Floats:
    """Plain logarithms as totals."""
    out = np.zeros((TERMS, *log_values.shape))
    out[0] = log_values
    return out


def plus(total: Floats, *logs: Floats | float) -> Floats:
    """A total with more logarithms added; to add another total, give its terms."""
    first, second, third = total
    with np.errstate(invalid="ignore"):
        for log in logs:
            first, rest = two_sum(first, np.asarray(log))
            second, rest = two_sum(second, rest)
            third = third + rest
    out = np.empty((TERMS, *first.shape))
    out[0], out[1], out[2] = first, second, third
    finite = np.isfinite(first)
    if not finite.all():
        out[1:, ~finite] = 0.0
    return out


def rounded(total: Floats) -> Floats:
    """A total as one float."""
    return np.asarray(total[0] + (total[1] + total[2]))


def difference(a: Floats, b: Floats) -> Floats:
    """A - b as one float: -inf where a is log 0, NaN where both are."""
    with np.errstate(invalid="ignore"):
        return np.asarray((a[0] - b[0]) + ((a[1] - b[1]) + (a[2] - b[2])))


def ordered_sum(values: Floats, axis: int) -> Floats:
    """The sum along an axis, in an order that does not depend on the other axes' sizes."""
    return np.asarray(np.ascontiguousarray(np.moveaxis(values, axis, -1)).sum(axis=-1))


def log_shares(totals: Floats, axis: int = -1) -> tuple[Floats, Floats]:
    """The log of exp(totals) / sum exp(totals) along an axis, and the log of the sum as a total.

    Shares of nothing but log 0 are all -inf. The axis is counted without that of the terms.
    """
    axis %= totals.ndim - 1
    if totals.shape[axis + 1] == 1:
        return np.where(totals[0] > -np.inf, 0.0, -np.inf), totals.squeeze(axis + 1)
    best = np.expand_dims(rounded(totals).argmax(axis=axis), axis)
    reference = np.take_along_axis(totals, best[None], axis=axis + 1)
    logs = difference(totals, np.where(reference > -np.inf, reference, 0.0))
    # Totals of one rounded value may still differ.
    peak = logs.max(axis=axis, keepdims=True)
    peak[peak == -np.inf] = 0.0
    logs = logs - peak
    with np.errstate(divide="ignore"):
        log_sum = np.log(np.expand_dims(ordered_sum(np.exp(logs), axis), axis))
    whole = plus(reference, peak, log_sum).squeeze(axis + 1)
    return logs - np.where(log_sum > -np.inf, log_sum, 0.0), whole


_this_thread = threading.local()


@final
class TimeUpError(Exception):
    """A pass was given up, see `until`."""


@contextmanager
def _set_for_this_thread(name: str, value: object) -> Iterator[None]:
    before = getattr(_this_thread, name, None)
    setattr(_this_thread, name, value)
    try:
        yield
    finally:
        setattr(_this_thread, name, before)


def one_thread_each() -> Any:
    """Passes that the calling thread begins in this context stay in it.

    For callers that share out the processors themselves. Results do not depend on it.
    """
    return _set_for_this_thread("alone", True)


def is_one_thread() -> bool:
    """Whether the calling thread is within `one_thread_each`."""
    return bool(getattr(_this_thread, "alone", False))


def until(is_due: Callable[[], bool] | None) -> Any:
    """Passes that the calling thread begins in this context end with `TimeUpError` when it is due.

    `is_due` is asked now and then; None sets no limit.
    """
    return _set_for_this_thread("is_due", is_due)


def time_limit() -> Callable[[], bool] | None:
    """What the innermost `until` of the calling thread was given."""
    found: Callable[[], bool] | None = getattr(_this_thread, "is_due", None)
    return found


def check_time() -> None:
    """Raises `TimeUpError` where the time of the calling thread is up."""
    is_due = time_limit()
    if is_due is not None and is_due():
        raise TimeUpError


@final
@dataclass(frozen=True, eq=False)
class NetworkFlows:
    """Expected counts of sum edges in the order of the weights, and expected statistics of leaves.

    `leaves` has a (leaves, statistics) array for each bank.
    """

    weights: Floats
    leaves: tuple[Floats, ...]

    def __add__(self, other: "NetworkFlows") -> "NetworkFlows":
        """Flows of two shards together."""
        leaves = tuple(a + b for a, b in zip(self.leaves, other.leaves, strict=True))
        return NetworkFlows(self.weights + other.weights, leaves)


@final
@dataclass(frozen=True, eq=False)
class ExpectedFlows:
    """Flows of the template, of the top, and of a bottom network with its own parameters."""

    template: NetworkFlows
    top: NetworkFlows
    bottom: NetworkFlows | None

    @classmethod
    def nothing(cls, network: DynamicNetwork) -> "ExpectedFlows":
        """The flows of no sequence."""

        def blank() -> NetworkFlows:
            shapes = [(len(b.nodes), b.family.num_statistics) for b in network.template.banks]
            return NetworkFlows(
                np.zeros(network.template.num_weights), tuple(np.zeros(shape) for shape in shapes)
            )

        top = NetworkFlows(np.zeros(network.top.num_weights), ())
        return cls(blank(), top, None if network.parameters.tied else blank())

    def __add__(self, other: "ExpectedFlows") -> "ExpectedFlows":
        """Flows of two shards together."""
        bottom = None
        if self.bottom is not None and other.bottom is not None:
            bottom = self.bottom + other.bottom
        return ExpectedFlows(self.template + other.template, self.top + other.top, bottom)


@final
@dataclass(frozen=True, eq=False)
class Expectation:
    """Expected flows of each component, and the log-likelihood of each sequence.

    `counts[c]` is the expected number of sequences that component c explains.
    """

    components: tuple[ExpectedFlows, ...]
    counts: Floats
    log_likelihood: Floats

    def __add__(self, other: "Expectation") -> "Expectation":
        """Flows of two shards together, and the log-likelihoods of one after those of the other."""
        pairs = zip(self.components, other.components, strict=True)
        values = np.concatenate([self.log_likelihood, other.log_likelihood])
        return Expectation(tuple(a + b for a, b in pairs), self.counts + other.counts, values)

    @property
    def flows(self) -> ExpectedFlows:
        """The flows of the only component."""
        (only,) = self.components
        return only


@final
@dataclass(frozen=True, eq=False)
class Want:
    """What `posteriors` computes: results take memory, so that only these are returned.

    `leaves` marks the entries (slices, variables) whose posteriors over leaves are wanted;
    `interfaces` asks for those of the interface nodes, `surprises` for -log P(entry | all others).
    With `surprises` the posteriors over leaves are given all others as well: that of an observed
    entry is then P(leaf | all other entries).
    """

    leaves: Bools | None = None
    interfaces: bool = False
    surprises: bool = False


class Posteriors(NamedTuple):
    """What both passes say of the latent choices; undefined for impossible sequences.

    `log_values` are totals (TERMS, sequences). `leaves[v]` is P(leaf | evidence), (wanted entries
    of variable v, leaves of its bank); a program has the leaves of all components side by side.
    `interfaces` is P(node | evidence), (slices, interface nodes), likewise. `surprises` are
    (slices, variables), undefined at missing entries. `shares` is P(component | evidence),
    (sequences, components). What was not asked for is empty.
    """

    log_values: Floats
    leaves: tuple[Floats, ...] = ()
    interfaces: Floats = _NOTHING
    surprises: Floats = _NOTHING
    shares: Floats = _NOTHING


class Choices(NamedTuple):
    """One induced tree for each sequence.

    `interfaces[t, g]` is the position of the node of group g at slice t, and `leaves[t, v]` the
    leaf of variable v in its bank; -1 where none is chosen. Leaves are named at missing entries;
    elsewhere they may be -1, and where nothing is missing `leaves` may have no rows. `log_values`
    is the log density of the best tree, or the log-likelihood where trees are drawn. In a mixture
    positions count through the components, and `component[i]` is that of sequence i.
    """

    interfaces: Ints
    leaves: Ints
    log_values: Floats
    component: Ints = np.empty(0, dtype=np.int64)


class Prefixes(NamedTuple):
    """Log P_t(x_1..x_t) and log P_t(x_1..x_{t-1}) for every slice t, as totals.

    P_t is the network of t slices.
    """

    log_seen: Floats
    log_unseen: Floats


class StreamArrays(NamedTuple):
    """What a stream remembers, as plain arrays; see `dspn.FilterState`."""

    in_logarithms: bool
    vectors: Floats
    exponents: Floats
    history: Floats
    scale: Floats = _NOTHING
    low: Floats = _NOTHING


class Advance(NamedTuple):
    """A stream after one more slice, log P_t(x_1..x_t) and log P_t(x_1..x_{t-1}), as totals."""

    stream: "Stream"
    log_seen: Floats
    log_unseen: Floats


class Stream(ABC):
    """What one network remembers of the slices so far: a value that `advance` replaces.

    Engines may take a batch of streams at a time: `data` then has one slice for each of them, and
    totals have an axis for the streams.
    """

    @abstractmethod
    def advance(self, data: Sequences, first: bool) -> Advance:
        """Takes in one more slice; `first` says that it is the first."""

    @abstractmethod
    def predict(self, first: bool, data: Sequences, *, given: bool = False) -> Posteriors:
        """Posteriors of the leaves of the next slice; undefined where the past is impossible.

        `data` is that slice, of which nothing but its inputs is known, and `log_values` is log
        P_t(x_1..x_{t-1}). Where its entries are `given`, posteriors are given its other entries
        too, `surprises` are there, and `log_values` is log P_t(x_1..x_t). Where the surprise of an
        observed entry is NaN its posterior is not known; ask without that entry.
        """

    @abstractmethod
    def arrays(self) -> StreamArrays:
        """A copy of what is remembered."""


class NetworkProgram(ABC):
    """One network, compiled by an engine."""

    network: DynamicNetwork

    @abstractmethod
    def rebind(self, network: DynamicNetwork) -> "NetworkProgram":
        """The same structure with other parameters, as learning makes them."""

    @abstractmethod
    def log_totals(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, as totals."""

    @abstractmethod
    def posteriors(self, data: Sequences, want: Want) -> Posteriors:
        """What is wanted, from one pass up and one down."""

    @abstractmethod
    def expected_flows(self, data: Sequences, weights: Floats) -> tuple[ExpectedFlows, Floats]:
        """Flows summed over sequences, each with its weight, and the log-likelihoods.

        Raises `EvidenceError` where a sequence is impossible.
        """

    @abstractmethod
    def best(self, data: Sequences) -> Choices:
        """The induced trees and missing values of greatest joint density."""

    @abstractmethod
    def draw(self, data: Sequences, seeds: NDArray[np.uint64]) -> Choices:
        """An induced tree for each sequence from the posterior; a sequence's follows its seed."""

    @abstractmethod
    def prefixes(self, data: Sequences) -> Prefixes:
        """The log probabilities of every prefix, with its last slice and without."""

    @abstractmethod
    def stream(
        self, saved: StreamArrays | None = None, num_slices: int = 0, log_likelihood: float = 0.0
    ) -> Stream:
        """A stream at its beginning, or after `num_slices` from what it remembered then."""


class Engine(Protocol):
    """Compiles networks."""

    def compile(self, network: DynamicNetwork, *, precision: str) -> NetworkProgram:
        """The network, compiled; `precision` is 'double' or 'single'."""
        ...


@final
class Program:
    """A compiled model: P = sum_c weights[c] P_c, with every query that the root sum allows."""

    def __init__(self, mixture: Mixture, components: tuple[NetworkProgram, ...]) -> None:
        self.mixture = mixture
        self.components = components
        self.schema = mixture.schema
        self.root = mixture.root

    @property
    def network(self) -> DynamicNetwork:
        """The only component's network; raises where there are several."""
        return self.mixture.only

    @property
    def num_interfaces(self) -> int:
        """Interface nodes of all components together."""
        return self.mixture.num_interfaces

    def rebind(self, model: Mixture | DynamicNetwork) -> "Program":
        """A model of the same structure with other parameters."""
        mixture = model if isinstance(model, Mixture) else Mixture.of(model)
        pairs = zip(self.components, mixture, strict=True)
        return Program(mixture, tuple(own.rebind(network) for own, network in pairs))

    def component(self, index: int) -> "Program":
        """One component by itself."""
        return Program(Mixture.of(self.mixture.components[index]), (self.components[index],))

    @cached_property
    def parts(self) -> tuple[tuple[int, float, NetworkProgram], ...]:
        """Number, log weight and program of each component that has a weight."""
        weights = self.mixture.weights.tolist()
        numbered = enumerate(zip(weights, self.components, strict=True))
        return tuple((c, float(np.log(w)), own) for c, (w, own) in numbered if w > 0)

    def log_joint(self, data: Sequences) -> Floats:
        """Log weights[c] P_c(observed entries) of each sequence, as totals (TERMS, N, C)."""
        return self._joint(len(data), {c: own.log_totals(data) for c, _, own in self.parts})

    def _joint(self, count: int, totals: dict[int, Floats]) -> Floats:
        if len(self.components) == 1:
            return totals[0][:, :, None]
        found = np.zeros((TERMS, count, len(self.components)))
        found[0] = -np.inf
        for c, log_weight, _ in self.parts:
            found[:, :, c] = plus(totals[c], log_weight)
        return found

    def log_totals(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, as totals."""
        return log_shares(self.log_joint(data))[1]

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence; -inf where it is impossible."""
        return rounded(self.log_totals(data))

    def posteriors(self, data: Sequences, want: Want) -> Posteriors:
        """What is wanted, from one pass up and one down for each component.

        A component counts as much as its posterior; what it says of sequences that it holds
        impossible counts nothing. With `surprises` that posterior is given all other entries, so
        that a component counts differently for each entry.
        """
        found = {c: posteriors_with_blocks(own, data, want) for c, _, own in self.parts}
        logs, total = log_shares(self._joint(len(data), {c: own[0] for c, own in found.items()}))
        shares = np.exp(logs)
        if len(self.components) == 1:
            return found[0]._replace(shares=shares)
        by_slice = np.repeat(shares, data.lengths, axis=0)
        leaves, interfaces, surprises = [], _NOTHING, _NOTHING
        by_entry: dict[int, Floats] = {}
        if want.surprises:
            by_entry, surprises = weigh_entries(found, np.repeat(logs, data.lengths, axis=0))

        def shared(values: Floats, share: Floats) -> Floats:
            out = np.zeros(values.shape)
            return np.multiply(values, share[:, None], out=out, where=share[:, None] > 0)

        if want.leaves is not None:
            for v, wanted in enumerate(want.leaves.T):
                banks = [network.template.banks[v] for network in self.mixture]
                parts = [np.zeros((np.count_nonzero(wanted), len(bank.nodes))) for bank in banks]
                for c, part in found.items():
                    share = by_entry[c][wanted, v] if by_entry else by_slice[wanted, c]
                    parts[c] = shared(part.leaves[v], share)
                leaves.append(np.hstack(parts))
        if want.interfaces:
            interfaces = np.zeros((data.total_slices, self.num_interfaces))
            for c, part in found.items():
                start = self.mixture.interface_offsets[c]
                width = part.interfaces.shape[1]
                interfaces[:, start : start + width] = shared(part.interfaces, by_slice[:, c])
        return Posteriors(total, tuple(leaves), interfaces, surprises, shares)

    def expected_flows(self, data: Sequences, weights: Floats | None = None) -> Expectation:
        """Expected counts of every edge and leaf under p(latent | evidence), summed over sequences.

        `weights` count each sequence that many times; all must be positive. Results add up over
        shards of the data.
        """
        count = len(data)
        own = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
        if own.shape != (count,) or not np.all(own > 0) or not np.all(np.isfinite(own)):
            raise EvidenceError(
                f"`weights` must hold a positive number for each of the {count} sequences."
            )
        if len(self.components) == 1:
            flows, log_values = self.components[0].expected_flows(data, own)
            return Expectation((flows,), np.array([own.sum()]), log_values)
        logs, total = log_shares(self.log_joint(data))
        shares = np.exp(logs) * own[:, None]
        found = [ExpectedFlows.nothing(network) for network in self.mixture]
        for c, _, program in self.parts:
            used = shares[:, c] > 0
            if used.any():
                part = data if used.all() else data[used]  # an engine may keep what it made of it
                found[c] = program.expected_flows(part, shares[used, c])[0]
        return Expectation(tuple(found), shares.sum(axis=0), rounded(total))

    def best(self, data: Sequences) -> Choices:
        """The best component, tree and missing values; the first of several that are as good."""
        if len(self.components) == 1:
            found = self.components[0].best(data)
            return found._replace(component=np.zeros(len(data), dtype=np.int64))
        widest = max(len(network.groups) for network in self.mixture)
        out = Choices(
            np.full((data.total_slices, widest), -1, dtype=np.int64),
            np.full(data.values.shape, -1, dtype=np.int64),
            np.full(len(data), -np.inf),
            np.zeros(len(data), dtype=np.int64),
        )
        for c, log_weight, own in self.parts:
            found = own.best(data)
            better = log_weight + found.log_values > out.log_values
            rows = np.flatnonzero(np.repeat(better, data.lengths))
            out.log_values[better] = log_weight + found.log_values[better]
            out.component[better] = c
            positions = found.interfaces[rows]
            out.interfaces[rows] = -1
            out.interfaces[rows, : positions.shape[1]] = np.where(
                positions < 0, -1, positions + self.mixture.interface_offsets[c]
            )
            if len(found.leaves):
                out.leaves[rows] = found.leaves[rows]
        return out


def posteriors_with_blocks(program: NetworkProgram, data: Sequences, want: Want) -> Posteriors:
    """The posteriors of one network, in which a block of variables has those of its leaves.

    See `divide_blocks`.
    """
    carriers = {carrier_of(program.network.schema, v) for v in range(len(data.schema))}
    if len(carriers) == len(data.schema) or (want.leaves is None and not want.surprises):
        return program.posteriors(data, want)
    asked = np.zeros(data.values.shape, np.bool_) if want.leaves is None else want.leaves
    wide = asked.copy()
    for v in range(len(data.schema)):
        needed = asked[:, v] | ~np.isnan(data.values[:, v]) if want.surprises else asked[:, v]
        wide[:, carrier_of(data.schema, v)] |= needed
    found = program.posteriors(data, Want(wide, want.interfaces, want.surprises))
    bottom = np.zeros(data.total_slices, dtype=np.bool_)
    if program.network.parameters.bottom is not None:
        bottom[bottom_rows(data, program.network.root)] = True
    own = (program.network, data, found, bottom, asked, wide)
    divided = divide_blocks(*own, given=want.surprises)
    return divided if want.leaves is not None else divided._replace(leaves=())


def divide_blocks(
    network: DynamicNetwork,
    data: Sequences,
    found: Posteriors,
    bottom: Bools,
    asked: Bools,
    wide: Bools,
    *,
    given: bool,
) -> Posteriors:
    """Posteriors of an engine with those of the leaves of a block for each of its variables.

    An engine knows the leaves of the first variable of a block, which have the density of all of
    it, and leaves the whole block out where it leaves out one entry of the first variable. From
    P(leaf | all outside of the block) follows what is given the other entries of the block.

    Args:
        network: The network of the posteriors.
        data: The slices they are of.
        found: What the engine says.
        bottom: Which slices have the parameters of the bottom network.
        asked: The entries whose posteriors are wanted.
        wide: The entries whose posteriors the engine was asked for.
        given: Whether posteriors are given all other entries, and surprises are there.
    """
    leaves, surprises = list(found.leaves), np.array(found.surprises)
    parameters = network.parameters
    for v, variable in enumerate(network.schema):
        block = variable.leaf
        if not isinstance(block, GaussianBlock):
            continue
        rows = np.flatnonzero(wide[:, block.carrier])
        chosen = np.searchsorted(rows, np.flatnonzero(asked[:, v]))
        weights = found.leaves[block.carrier]
        if not given:
            leaves[v] = weights[chosen]
            continue
        family = network.template.banks[block.carrier].family
        values = data.values[np.ix_(rows, np.array(block.columns))]
        values[:, block.member] = np.nan
        logs = family.log_prob(parameters.template.leaves[block.carrier], values)
        if parameters.bottom is not None:
            own = bottom[rows]
            logs[own] = family.log_prob(parameters.bottom.leaves[block.carrier], values[own])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            logs += np.log(weights) - np.log(weights.sum(axis=1, keepdims=True))
            sums = np.logaddexp.reduce(logs, axis=1)
            leaves[v] = np.exp(logs - sums[:, None])[chosen]
            surprises[rows, v] = found.surprises[rows, block.carrier] + sums
    return found._replace(leaves=tuple(leaves), surprises=surprises)


def weigh_entries(
    found: dict[int, Posteriors], log_shares_by_slice: Floats
) -> tuple[dict[int, Floats], Floats]:
    """P(component | all entries but one) for each entry, and the surprise of the entry.

    P(c | rest) = P(c | all) P_c(rest) / P_c(all) / sum of these over components; the logarithm of
    the sum is the surprise.
    """
    ratios = {}
    for c, part in found.items():
        share = log_shares_by_slice[:, c, None]
        usable = (share > -np.inf) & ~np.isnan(part.surprises)
        ratios[c] = np.where(usable, share + np.where(usable, part.surprises, 0.0), -np.inf)
    surprises = np.logaddexp.reduce(list(ratios.values()))
    known = surprises > -np.inf
    whole = np.where(known, surprises, 0.0)
    return {c: np.exp(own - whole) for c, own in ratios.items()}, surprises


@final
class HistoryStream(Stream):
    """A stream that keeps the slices themselves and evaluates every prefix afresh.

    A row of the history has the values of a slice and its inputs.
    """

    def __init__(self, program: NetworkProgram, history: Floats) -> None:
        self.program = program
        self.history = history

    def advance(self, data: Sequences, first: bool) -> Advance:
        """Both prefixes, evaluated as two sequences."""
        assert len(data) == 1
        longer = np.concatenate([self.history, _side_by_side(data)])
        blank = longer.copy()
        blank[-1, : data.num_variables] = np.nan
        lengths = np.full(2, len(blank))
        both = _apart(np.concatenate([longer, blank]), lengths, data.schema)
        return Advance(HistoryStream(self.program, longer), *self.program.log_totals(both).T)

    def predict(self, first: bool, data: Sequences, *, given: bool = False) -> Posteriors:
        """From the slices kept, and one more of which nothing is known, or only other entries."""
        rows = np.concatenate([self.history, _side_by_side(data)])
        longer = _apart(rows, np.array([len(rows)]), data.schema)
        wanted = np.zeros(longer.values.shape, dtype=np.bool_)
        wanted[-1] = True
        found = self.program.posteriors(longer, Want(leaves=wanted, surprises=given))
        return found._replace(log_values=found.log_values[:, 0], surprises=found.surprises[-1:])

    def arrays(self) -> StreamArrays:
        """The slices, and nothing else."""
        return StreamArrays(False, _NOTHING, _NOTHING, self.history.copy())


def without_values(data: Sequences) -> Sequences:
    """The same slices with every entry missing; their inputs stay."""
    values = np.full(data.values.shape, np.nan)
    return Sequences.trusted(values, data.offsets, data.schema, inputs=data.inputs)


def _side_by_side(data: Sequences) -> Floats:
    """Values and inputs of every slice in one row."""
    return np.concatenate([data.values, data.inputs], axis=1)


def _apart(rows: Floats, lengths: Ints, schema: Schema) -> Sequences:
    """Sequences of so many of the rows that `_side_by_side` makes, one after the other."""
    values, inputs = np.split(rows, [len(schema)], axis=1)
    return Sequences.from_codes(values, offsets_of(lengths), schema, inputs=inputs)


def history_stream(
    program: NetworkProgram, saved: StreamArrays | None, num_slices: int
) -> HistoryStream:
    """A stream that keeps its slices, at its beginning or after those that were saved."""
    schema = program.network.schema
    width = len(schema) + len(schema.inputs)
    if saved is None:
        return HistoryStream(program, np.empty((0, width)))
    check_shapes(saved, {"history": (num_slices, width), "vectors": (0, 0)})
    try:
        if len(saved.history):
            _apart(saved.history, np.array([len(saved.history)]), schema)
    except DataError as error:
        raise EvidenceError(f"the history of `state` is damaged: {error}") from None
    return HistoryStream(program, saved.history.copy())


def check_shapes(saved: StreamArrays, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raises unless the arrays of a stream have the shapes that the network gives them."""
    for name, shape in shapes.items():
        found = getattr(saved, name).shape
        if found != shape:
            raise EvidenceError(
                f"the {name} of `state` must have shape {shape}, but have shape {found}; the "
                "state is damaged, start a new filter."
            )


def prefixes_one_by_one(program: NetworkProgram, data: Sequences) -> Prefixes:
    """Every prefix as a sequence of its own, with its last slice and without.

    The cost is quadratic in length.
    """
    out = Prefixes(*(np.empty((TERMS, data.total_slices)) for _ in range(2)))
    for index in range(data.num_sequences):
        rows = _side_by_side(data[[index]])
        lengths = np.arange(1, len(rows) + 1)
        seen = rows[np.concatenate([np.arange(t) for t in lengths])]
        unseen = seen.copy()
        unseen[np.cumsum(lengths) - 1, : data.num_variables] = np.nan
        own = slice(data.offsets[index], data.offsets[index + 1])
        for target, known in ((out.log_seen, seen), (out.log_unseen, unseen)):
            target[:, own] = program.log_totals(_apart(known, lengths, data.schema))
    return out


def bottom_rows(data: Sequences, root: Root) -> Ints:
    """The slice of each sequence that the bottom network stands on."""
    return data.offsets[1:] - 1 if root == Root.FIRST else data.offsets[:-1]

"""A network compiled for the kernels: layouts of its structure, bound to its parameters."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from typing import Any, Final, NamedTuple, TypeVar, cast, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine import base
from dspn.engine.base import Choices, ExpectedFlows, Posteriors, Prefixes, StreamArrays, Want
from dspn.engine.cpu.layout import (
    Part,
    Paths,
    TemplateLayout,
    TopLayout,
    inputs_of_tables,
    lay_out,
)
from dspn.engine.cpu.records import Weighted
from dspn.leaves.told import has_lags, tells_entries
from dspn.structure.edit import marginal, speaking_groups
from dspn.structure.network import DynamicNetwork
from dspn.structure.parameters import NetworkParameters

Value = TypeVar("Value")

# Slices that are looked through at once for what is observed.
_SLICES: Final = 2**14


@final
class Memo:
    """Values by key. A second thread that asks for a value waits until the first has made it.

    A copy, as pickling makes it, begins empty.
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, object] = {}
        self._lock = RLock()

    def __call__(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """make(), called at most once for each key."""
        if key not in self._values:
            with self._lock:
                if key not in self._values:
                    self._values[key] = make()
        return cast(Value, self._values[key])

    def __reduce__(self) -> tuple[type["Memo"], tuple[Any, ...]]:
        return Memo, ()


class TemplateWeights(NamedTuple):
    """The slice part and the mix part with their weights."""

    slice_part: Weighted
    mix_part: Weighted


def _bind(part: Part, parameters: NetworkParameters, linear: bool) -> Weighted:
    op, mix = part.weights.scatter(parameters.weights)
    if not linear:
        with np.errstate(divide="ignore"):
            op, mix = np.log(op), np.log(mix)
    tables = np.empty((part.operations.op_by.max(initial=-1) + 1, 0), dtype=np.int64)
    return Weighted(part.operations, op, mix, tables)


@final
class CpuProgram(base.NetworkProgram):
    """What every query runs: a network and the layouts of its template and top.

    With `single` the passes over chains compute in single precision where its range suffices, and
    in double precision where it does not. The memos hold what follows from the network alone,
    and `places`, which programs of other parameters share, what follows from its structure. Where
    flows could not be found in single precision at all, programs of other parameters do not try.
    The modules that run a program know its class, so that its methods import them when they are
    called.
    """

    def __init__(
        self,
        network: DynamicNetwork,
        layouts: tuple[TemplateLayout, TopLayout],
        paths: Paths,
        single: bool,
    ) -> None:
        self.network = network
        self.layouts = layouts
        self.template, self.top = layouts
        self.paths = paths
        self.single = single
        self.is_too_narrow = False
        self.untied = network.parameters.bottom is not None
        self.bound = Memo()
        self.leaf_tables = Memo()
        self.chunk_tables = Memo()
        self.matrices = Memo()
        self.places = Memo()
        self.smaller = Memo()

    @classmethod
    def of(cls, network: DynamicNetwork, paths: Paths, *, single: bool) -> "CpuProgram":
        """Lays out the structure of a network and binds its parameters."""
        return cls(network, lay_out(network, paths), paths, single)

    def rebind(self, network: DynamicNetwork) -> "CpuProgram":
        """The same layouts with another network of the same structure, as learning makes them."""
        assert network.template is self.network.template
        assert network.top is self.network.top
        single = self.single and not self.is_too_narrow
        found = CpuProgram(network, self.layouts, self.paths, single)
        if single == self.single:
            found.places = self.places
        return found

    @cached_property
    def double(self) -> "CpuProgram":
        """The same program in double precision."""
        if not self.single:
            return self
        return CpuProgram(self.network, self.layouts, self.paths, False)

    @property
    def num_interfaces(self) -> int:
        """Number of interface nodes, over all groups."""
        return self.template.mix_part.operations.num_inputs

    @property
    def num_groups(self) -> int:
        """Number of interface groups."""
        return len(self.template.groups)

    @property
    def num_coefficients(self) -> int:
        """How many numbers the slice part hands to the mix part for each slice."""
        return self.template.mix_part.operations.num_loads

    def parameters(self, bottom: bool) -> NetworkParameters:
        """Parameters of the bottom network or of the template."""
        own = self.network.parameters
        return own.bottom if bottom and own.bottom is not None else own.template

    def weights(self, bottom: bool, linear: bool = True) -> TemplateWeights:
        """Weights of the bottom network or of the template, or their logarithms."""

        def bind() -> TemplateWeights:
            layout, own = self.template, self.parameters(bottom)
            parts = (layout.slice_part, layout.mix_part)
            return TemplateWeights(*(_bind(part, own, linear) for part in parts))

        return self.bound((bottom and self.untied, linear), bind)

    def top_weights(self, linear: bool = True) -> Weighted:
        """Weights of the top network, or their logarithms."""
        own = self.network.parameters.top
        return self.bound(linear, lambda: _bind(self.top.part, own, linear))

    @cached_property
    def by_inputs(self) -> list[int]:
        """The inputs of the schema that weights depend on."""
        return inputs_of_tables(self.network.template)

    @cached_property
    def leaves(self) -> list[tuple[Ints, Ints]]:
        """For each variable the loads of its leaves, and their places in its bank."""
        layout = self.template
        loads = [np.flatnonzero(layout.load_bank == v) for v in range(len(self.network.schema))]
        return [(own, layout.load_member[own]) for own in loads]

    @cached_property
    def input_group(self) -> Ints:
        """The group of each input row."""
        sizes = [len(group) for group in self.template.groups]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    @cached_property
    def top_groups(self) -> tuple[int, ...]:
        """The groups that the root reads."""
        read = {*self.top.part.operations.op_child.tolist(), self.top.root_row}
        own = {int(self.input_group[row]) for row in read if row < self.num_interfaces}
        return tuple(sorted(own))

    @cached_property
    def every_group_is_read(self) -> bool:
        """Whether the root reads each group at every slice, so that its mass is the likelihood."""
        everything = set(range(self.num_groups))
        sources = set(self.template.mix_part.operations.source_group.tolist())
        return set(self.top_groups) == everything and sources == everything

    @cached_property
    def widest(self) -> int:
        """The greatest number of children of an operation."""
        parts = (self.template.slice_part, self.template.mix_part, self.top.part)
        return int(max(np.diff(part.operations.op_start).max(initial=1) for part in parts))

    def log_totals(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence; groups without evidence are worth 1."""
        from dspn.engine.cpu import passes

        own = self
        most = own.network.template.num_edges * data.total_slices
        if own.num_groups > 1 and most >= own.paths.worth_leaving_out:
            observed = _are_observed(data)
            if observed.any() and not observed.all():
                own = self.speaking_part(np.flatnonzero(observed).tolist(), data.total_slices)
                data = data.select(own.network.schema.names)
        return passes.log_totals(own, data)

    def speaking_part(self, observed: list[int], num_slices: int) -> "CpuProgram":
        """The groups that the variables concern, where leaving out the others pays.

        The last one made is kept.
        """
        own, network = self, self.network
        if tells_entries(network.schema):  # by the numbers of variables
            return own
        groups = speaking_groups(network, observed)
        size = sum(len(network.groups[group]) for group in groups) / network.num_interfaces
        if (1 - size) * network.template.num_edges * num_slices < own.paths.worth_leaving_out:
            return own
        last: dict[tuple[int, ...], CpuProgram] = own.smaller(0, dict)
        found = last.get(groups)
        if found is None:
            variables = [v for group in groups for v in network.group_variables[group]]
            found = CpuProgram.of(marginal(network, variables), own.paths, single=own.single)
            last.clear()
            last[groups] = found
        return found

    def posteriors(self, data: Sequences, want: Want) -> Posteriors:
        """What is wanted, from one pass up and one down."""
        from dspn.engine.cpu import passes

        return passes.posteriors(self, data, want)

    def expected_flows(self, data: Sequences, weights: Floats) -> tuple[ExpectedFlows, Floats]:
        """Flows summed over sequences, each with its weight, and the log-likelihoods."""
        from dspn.engine.cpu import flows

        return flows.expected_flows(self, data, weights)

    def best(self, data: Sequences) -> Choices:
        """The induced trees and missing values of greatest joint density."""
        from dspn.engine.cpu import passes

        return passes.best(self, data)

    def draw(self, data: Sequences, seeds: NDArray[np.uint64]) -> Choices:
        """An induced tree for each sequence from the posterior."""
        from dspn.engine.cpu import passes

        return passes.draw(self, data, seeds)

    def prefixes(self, data: Sequences) -> Prefixes:
        """The log probabilities of every prefix, with its last slice and without."""
        from dspn.engine.cpu import stream

        if not stream.can_stream(self):
            return base.prefixes_one_by_one(self, data)
        return stream.prefixes(self, data)

    def stream(
        self, saved: StreamArrays | None = None, num_slices: int = 0, log_likelihood: float = 0.0
    ) -> base.Stream:
        """A stream, whose memory is a vector where that is enough."""
        from dspn.engine.cpu import stream

        if has_lags(self.network.schema) or not stream.can_stream(self):
            return base.history_stream(self, saved, num_slices)
        fresh = stream.VectorStream.fresh(self)
        return fresh if saved is None else fresh.restore(saved, log_likelihood)


def _are_observed(data: Sequences) -> Bools:
    """Whether a variable has an entry, for each; slices are read only as far as they have to be."""
    found = np.zeros(data.num_variables, dtype=np.bool_)
    for start in range(0, data.total_slices, _SLICES):
        # The largest number that is there; NaN where none is.
        found |= ~np.isnan(np.fmax.reduce(data.values[start : start + _SLICES], axis=0))
        if found.all():
            break
    return found


@final
@dataclass(frozen=True)
class CpuEngine:
    """Compiles networks for the kernels; all `paths` give the same results."""

    paths: Paths = field(default_factory=Paths)

    def compile(self, network: DynamicNetwork, *, precision: str) -> CpuProgram:
        """Lays out the structure of a network and binds its parameters."""
        return CpuProgram.of(network, self.paths, single=precision == "single")


ENGINE: Final[base.Engine] = CpuEngine()

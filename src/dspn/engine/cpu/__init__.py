"""The engine for processors: structure as arrays, evaluated by compiled kernels over blocks."""

from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Bools, Floats
from dspn.engine.base import (
    Choices,
    Engine,
    ExpectedFlows,
    HistoryStream,
    NetworkProgram,
    Posteriors,
    Prefixes,
    Stream,
    StreamArrays,
    Want,
    prefixes_one_by_one,
    restore_history,
)
from dspn.engine.cpu import flows, passes, stream
from dspn.engine.cpu.layout import Paths
from dspn.engine.cpu.program import Compiled
from dspn.sequences import Sequences
from dspn.structure.marginal import marginal, speaking_groups
from dspn.structure.network import DynamicNetwork

__all__ = ["CpuEngine", "CpuProgram", "Paths"]

# Slices that are looked through at once for what is observed.
_SLICES: Final = 2**14


@final
class CpuProgram(NetworkProgram):
    """A network compiled for the kernels."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled

    @property
    def network(self) -> DynamicNetwork:
        """The network with its parameters."""
        return self.compiled.network

    def rebind(self, network: DynamicNetwork) -> "CpuProgram":
        """The same layouts with other parameters."""
        return CpuProgram(self.compiled.rebind(network))

    def log_totals(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence; groups without evidence are worth 1."""
        own = self.compiled
        most = own.network.template.num_edges * data.total_slices
        if own.num_groups > 1 and most >= own.paths.worth_leaving_out:
            observed = _are_observed(data)
            if observed.any() and not observed.all():
                own = self.speaking_part(np.flatnonzero(observed).tolist(), data.total_slices)
                data = data.select(own.network.schema.names)
        return passes.log_totals(own, data)

    def speaking_part(self, observed: list[int], num_slices: int) -> Compiled:
        """The groups that the variables concern, where leaving out the others pays.

        The last one made is kept.
        """
        own, network = self.compiled, self.compiled.network
        groups = speaking_groups(network, observed)
        size = sum(len(network.groups[group]) for group in groups) / network.num_interfaces
        if (1 - size) * network.template.num_edges * num_slices < own.paths.worth_leaving_out:
            return own
        last: dict[tuple[int, ...], Compiled] = own.smaller(0, dict)
        found = last.get(groups)
        if found is None:
            variables = [v for group in groups for v in network.group_variables[group]]
            found = Compiled.of(marginal(network, variables), own.paths, single=own.single)
            last.clear()
            last[groups] = found
        return found

    def posteriors(self, data: Sequences, want: Want) -> Posteriors:
        """What is wanted, from one pass up and one down."""
        return passes.posteriors(self.compiled, data, want)

    def expected_flows(self, data: Sequences, weights: Floats) -> tuple[ExpectedFlows, Floats]:
        """Flows summed over sequences, each with its weight, and the log-likelihoods."""
        return flows.expected_flows(self.compiled, data, weights)

    def best(self, data: Sequences) -> Choices:
        """The induced trees and missing values of greatest joint density."""
        return passes.best(self.compiled, data)

    def draw(self, data: Sequences, seeds: NDArray[np.uint64]) -> Choices:
        """An induced tree for each sequence from the posterior."""
        return passes.draw(self.compiled, data, seeds)

    def prefixes(self, data: Sequences) -> Prefixes:
        """The log probabilities of every prefix, with its last slice and without."""
        if not stream.can_stream(self.compiled):
            return prefixes_one_by_one(self, data)
        return stream.prefixes(self.compiled, data)

    def stream(
        self, saved: StreamArrays | None = None, num_slices: int = 0, log_likelihood: float = 0.0
    ) -> Stream:
        """A stream, whose memory is a vector where that is enough."""
        if not stream.can_stream(self.compiled):
            if saved is None:
                return HistoryStream(self, np.empty((0, len(self.network.schema))))
            return restore_history(self, saved, num_slices)
        fresh = stream.VectorStream.fresh(self.compiled)
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
        return CpuProgram(Compiled.of(network, self.paths, single=precision == "single"))


ENGINE: Final[Engine] = CpuEngine()

"""A network compiled for a GPU: every query by the fastest way that applies."""

from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats
from dspn.data.sequences import Sequences
from dspn.engine import base
from dspn.engine.base import Choices, ExpectedFlows, Posteriors, Prefixes, StreamArrays, Want
from dspn.engine.gpu import paths, queries, stream
from dspn.engine.gpu.chain import ChainProgram
from dspn.engine.gpu.climb import Climb
from dspn.engine.gpu.device import Device
from dspn.engine.gpu.general import General, Structure
from dspn.engine.gpu.transition import ChainLayout
from dspn.leaves.told import has_lags
from dspn.structure.network import DynamicNetwork


@final
class GpuProgram(base.NetworkProgram):
    """A network, and its structure laid out once for all parameters."""

    def __init__(
        self,
        network: DynamicNetwork,
        layouts: tuple[Structure, ChainLayout | None],
        device: Device,
        single: bool,
    ) -> None:
        self.network = network
        self.layouts = layouts
        self.structure, self.chain_layout = layouts
        self.device = device
        self.single = single

    def rebind(self, network: DynamicNetwork) -> "GpuProgram":
        """The same structure with other parameters."""
        assert network.template is self.network.template
        assert network.top is self.network.top
        return GpuProgram(network, self.layouts, self.device, self.single)

    @cached_property
    def general(self) -> General:
        """Passes in logarithms."""
        return General(self.device, self.network, self.structure)

    @cached_property
    def chain(self) -> ChainProgram | None:
        """Passes over chains, where the network is one."""
        layout = self.chain_layout
        if layout is None:
            return None
        dtype = np.float32 if self.single else np.float64
        return ChainProgram(self.general, layout, self.climb, dtype, self.single)

    @cached_property
    def climb(self) -> Climb:
        """Upward passes by one kernel."""
        return Climb(self.general)

    def log_totals(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, as totals."""
        with self.device.running():
            batch = self.device.batch(data)
            # A small transition of several layers needs many launches for a slice, or one for all.
            is_small = self.climb.applies and self.chain_layout and self.chain_layout.layers
            if self.chain is not None and not is_small:
                return self.chain.log_totals(batch)
            if self.climb.applies:
                return self.climb.log_totals(batch)
            return queries.log_totals(self.general, batch)

    def posteriors(self, data: Sequences, want: Want) -> Posteriors:
        """What is wanted, from one pass up and one down."""
        with self.device.running():
            batch = self.device.batch(data)
            if self.chain is not None:
                return paths.posteriors(self.chain, batch, want)
            return queries.posteriors(self.general, batch, want)

    def expected_flows(self, data: Sequences, weights: Floats) -> tuple[ExpectedFlows, Floats]:
        """Flows summed over sequences, each with its weight, and the log-likelihoods."""
        with self.device.running():
            batch = self.device.batch(data)
            if self.chain is not None:
                return self.chain.expected_flows(batch, weights)
            return queries.expected_flows(self.general, batch, weights)

    def best(self, data: Sequences) -> Choices:
        """The induced trees and missing values of greatest joint density."""
        with self.device.running():
            batch = self.device.batch(data)
            if self.chain is not None and paths.applies(self.chain):
                return paths.best(self.chain, batch)
            return queries.choices(self.general, batch, None, data.num_variables)

    def draw(self, data: Sequences, seeds: NDArray[np.uint64]) -> Choices:
        """An induced tree for each sequence from the posterior."""
        with self.device.running():
            batch = self.device.batch(data)
            if self.chain is not None and paths.can_draw(self.chain):
                return paths.draw(self.chain, batch, seeds)
            return queries.choices(self.general, batch, seeds, data.num_variables)

    def prefixes(self, data: Sequences) -> Prefixes:
        """The log probabilities of every prefix, with its last slice and without."""
        if not stream.can_stream(self.general):
            return base.prefixes_one_by_one(self, data)
        with self.device.running():
            return stream.prefixes(self.general, self.device.batch(data))

    def stream(
        self, saved: StreamArrays | None = None, num_slices: int = 0, log_likelihood: float = 0.0
    ) -> base.Stream:
        """A stream whose memory is a vector where that is enough, or a batch of such streams."""
        if has_lags(self.network.schema) or not stream.can_stream(self.general):
            return base.history_stream(self, saved, num_slices)
        return stream.LaneStream.restored(self.general, saved)

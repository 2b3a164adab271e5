"""Chains of one group, the templates of hidden Markov models: whole batches by the fastest way."""

from typing import Any, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.base import TERMS, ExpectedFlows
from dspn.engine.gpu import queries
from dspn.engine.gpu.climb import Climb
from dspn.engine.gpu.device import Batch
from dspn.engine.gpu.flows import expected_flows as flows_of
from dspn.engine.gpu.general import General
from dspn.engine.gpu.passes import ChainRun, log_totals
from dspn.engine.gpu.transition import ChainLayout


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
                again = queries.log_totals(self.general, batch, lanes)
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
        flows, found, doubtful = flows_of(self.run(batch), weights)
        log_values = np.empty(len(batch))
        log_values[batch.order] = found
        if doubtful.any():
            rest, again = queries.expected_flows(
                self.general, batch, weights, np.flatnonzero(doubtful)
            )
            own = batch.order[doubtful]
            log_values[own] = again[own]
            flows = flows + rest
        return flows, log_values

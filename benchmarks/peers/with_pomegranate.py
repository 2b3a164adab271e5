"""pomegranate's DenseHMM in double precision: one batch for each length of sequence.

Its Bernoulli reads all variables of a slice with one matrix product, which is much faster than
IndependentComponents of single ones. `ends` of 1 switches its model of the sequence's end off.
"""

from collections.abc import Mapping
from importlib.metadata import version

import numpy as np
import torch
from numpy.typing import NDArray
from pomegranate.distributions import Bernoulli, Categorical
from pomegranate.hmm import DenseHMM

from benchmarks.cases import Case, buckets, stacked_by_length
from benchmarks.peers.base import Peer, Result, Task


class Pomegranate(Peer):
    version = version("pomegranate")

    def __init__(self, case: Case) -> None:
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        self.case = case
        self.buckets = buckets(case.offsets)
        values = case.values.astype(np.float64) if case.is_binary else case.values
        self.batches = [torch.from_numpy(values[bucket.rows]) for bucket in self.buckets]
        self.arrays = case.arrays
        self.model = self._new_model()

    def _new_model(self) -> DenseHMM:
        case = self.case
        if case.is_binary:
            rows = np.ascontiguousarray(case.emissions[:, :, 1].T)
            leaves = [Bernoulli(torch.from_numpy(row), check_data=False) for row in rows]
        else:
            leaves = [
                Categorical(torch.from_numpy(row[None].copy()), check_data=False)
                for row in case.emissions[0]
            ]
        return DenseHMM(
            leaves,
            edges=torch.from_numpy(case.transition.copy()),
            starts=torch.from_numpy(case.start.copy()),
            ends=torch.ones(case.num_states),
            check_data=False,
        )

    def _score(self, batches: list[torch.Tensor]) -> float:
        return sum(float(self.model.log_probability(batch).sum()) for batch in batches)

    def _one_shot(self, _: None) -> float:
        return self._score([torch.from_numpy(x) for x in stacked_by_length(self.arrays)])

    def _em(self, model: DenseHMM) -> DenseHMM:
        for batch in self.batches:
            model.summarize(batch)
        model.from_summaries()
        return model

    def _parameters(self, model: DenseHMM) -> Result:
        """Its transitions leave room for the end; without that share they are those of an HMM."""
        edges = np.exp(model.edges.numpy())
        if self.case.is_binary:
            ones = np.stack([leaf.probs.numpy() for leaf in model.distributions], axis=1)
            emissions = np.stack([1.0 - ones, ones], axis=2)
        else:
            emissions = np.stack([leaf.probs.numpy()[0] for leaf in model.distributions])[None]
        return {
            "start": np.exp(model.starts.numpy()),
            "transition": edges / edges.sum(axis=1, keepdims=True),
            "emissions": emissions,
        }

    def _states(self, paths: list[torch.Tensor]) -> Result:
        states: NDArray[np.int64] = np.empty(self.case.total_slices, dtype=np.int64)
        for bucket, path in zip(self.buckets, paths, strict=True):
            states[bucket.rows] = path.numpy()
        return {"states": states}

    def tasks(self) -> Mapping[str, Task]:
        return {
            "log_likelihood": Task(
                lambda _: self._score(self.batches),
                lambda total: {"log_likelihood": np.array(total)},
            ),
            "one_shot": Task(self._one_shot, lambda total: {"log_likelihood": np.array(total)}),
            "em": Task(self._em, self._parameters, self._new_model),
            "viterbi": Task(
                lambda _: [self.model.viterbi(batch) for batch in self.batches], self._states
            ),
        }


PEER = Pomegranate

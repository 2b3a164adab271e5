"""hmmlearn, with scaling: sequences laid end to end and their lengths."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from hmmlearn.base import BaseHMM
from hmmlearn.hmm import CategoricalHMM

from benchmarks.cases import Case
from benchmarks.peers.base import Peer, Result, Task


class BernoulliHMM(BaseHMM):
    """Independent binary emissions, which hmmlearn lacks: one matrix product for each sequence.

    `probs_[s, v]` is P(variable v = 1 | state s).
    """

    def _check(self) -> None:
        super()._check()
        self._log_odds = np.log(self.probs_) - np.log1p(-self.probs_)
        self._log_zeros = np.log1p(-self.probs_).sum(axis=1)

    def _get_n_fit_scalars_per_param(self) -> dict[str, int]:
        k, n = self.probs_.shape
        return {"s": k - 1, "t": k * (k - 1), "e": k * n}

    def _compute_log_likelihood(self, X: Any) -> Any:
        return X @ self._log_odds.T + self._log_zeros

    def _initialize_sufficient_statistics(self) -> dict[str, Any]:
        stats = super()._initialize_sufficient_statistics()
        stats["ones"] = np.zeros_like(self.probs_)
        stats["weight"] = np.zeros(self.n_components)
        return stats

    def _accumulate_sufficient_statistics(
        self, stats: Any, X: Any, lattice: Any, posteriors: Any, fwdlattice: Any, bwdlattice: Any
    ) -> None:
        super()._accumulate_sufficient_statistics(
            stats, X, lattice, posteriors, fwdlattice, bwdlattice
        )
        stats["ones"] += posteriors.T @ X
        stats["weight"] += posteriors.sum(axis=0)

    def _do_mstep(self, stats: Any) -> None:
        super()._do_mstep(stats)
        self.probs_ = stats["ones"] / stats["weight"][:, None]


class Hmmlearn(Peer):
    version = version("hmmlearn")

    def __init__(self, case: Case) -> None:
        self.case = case
        self.x = case.values.astype(np.float64) if case.is_binary else case.values
        self.lengths = case.lengths
        self.arrays = case.arrays
        self.model = self._new_model()

    def _new_model(self) -> BaseHMM:
        kind = BernoulliHMM if self.case.is_binary else CategoricalHMM
        model = kind(
            self.case.num_states, n_iter=1, init_params="", params="ste", implementation="scaling"
        )
        model.startprob_ = self.case.start.copy()
        model.transmat_ = self.case.transition.copy()
        if self.case.is_binary:
            model.probs_ = self.case.emissions[:, :, 1].T.copy()
        else:
            model.n_features = self.case.num_categories
            model.emissionprob_ = self.case.emissions[0].copy()
        return model

    def _one_shot(self, _: None) -> float:
        lengths = [len(array) for array in self.arrays]
        return self.model.score(np.concatenate(self.arrays), lengths)

    def _parameters(self, model: BaseHMM) -> Result:
        if self.case.is_binary:
            ones = model.probs_.T
            emissions = np.stack([1.0 - ones, ones], axis=2)
        else:
            emissions = model.emissionprob_[None]
        return {
            "start": model.startprob_,
            "transition": model.transmat_,
            "emissions": emissions,
        }

    def tasks(self) -> Mapping[str, Task]:
        x, lengths = self.x, self.lengths
        return {
            "log_likelihood": Task(
                lambda _: self.model.score(x, lengths),
                lambda total: {"log_likelihood": np.array(total)},
            ),
            "one_shot": Task(self._one_shot, lambda total: {"log_likelihood": np.array(total)}),
            "em": Task(lambda model: model.fit(x, lengths), self._parameters, self._new_model),
            "viterbi": Task(
                lambda _: self.model.decode(x, lengths), lambda found: {"states": found[1]}
            ),
        }


PEER = Hmmlearn

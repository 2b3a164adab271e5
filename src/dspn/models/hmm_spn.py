"""Hidden Markov models whose states emit slices by sum-product networks."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, final

import numpy as np

from dspn._checks import whole_number
from dspn.data import Schema
from dspn.engine import compile_program
from dspn.errors import StructureError
from dspn.inference import interface_posteriors
from dspn.learning.em import EmOptions, fit_em
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.slice_spn import DEFAULT_SLICE_SPN, SliceSpnOptions, spn_emissions
from dspn.models.estimator import Outcome, TrainingData
from dspn.models.hmm import DEFAULT_EM, Chain, start_probabilities, transition_matrix


@final
@dataclass(eq=False, repr=False)
class HMMSPN(Chain):
    """A hidden Markov model in which x_t given its state is a learned sum-product network.

    As in Peharz et al. (2014): an `HMM` is learned first, the slices are weighted by the posterior
    of each state under it, and a network is learned for each state from these; then all weights and
    leaves are learned together by expectation maximisation.

    Args:
        n_states: Number of states.
        n_starts: Number of starting points of the first HMM; see `HMM`.
        emission: How the networks of the states are learned.
        em: When expectation maximisation stops.
        priors: Pseudo-observations of weights and leaves.
        schema: The variables, where they should not be inferred from X.
        validation_fraction: Share of the sequences that is held out; 0 for none.
        refit: Whether what was held out is learned from in the end.
        random_state: Seed of everything random.
    """

    n_states: int = 8
    _: KW_ONLY
    n_starts: int = 1
    emission: SliceSpnOptions | None = None
    em: EmOptions | None = None
    priors: Priors | None = None
    schema: Schema | None = None
    validation_fraction: float = 0.1
    refit: bool = True
    random_state: Any = None

    def _check(self, schema: Schema, *, weighted: bool, validated: bool) -> None:
        whole_number(self.n_states, "n_states", StructureError)
        self._check_options(emission=SliceSpnOptions)

    def _learned(self, data: TrainingData) -> Outcome:
        priors = self.priors or DEFAULT_PRIORS
        plain = self._fit_plain(data, (self.n_states,))[0].network
        posteriors = interface_posteriors(compile_program(plain), data.train)
        if data.weights is not None:
            posteriors *= np.repeat(data.weights, data.train.lengths)[:, None]
        started = spn_emissions(
            data.train,
            [bank.family for bank in plain.template.banks],
            start_probabilities(plain),
            transition_matrix(plain),
            posteriors,
            options=self.emission or DEFAULT_SLICE_SPN,
            priors=priors,
            rng=data.rng(3),
        )
        fit = fit_em(
            started,
            data.train,
            validation=data.validation,
            options=self.em or DEFAULT_EM,
            priors=priors,
            sample_weights=data.weights,
            rng=data.rng(4),
        )
        return Outcome.of_em(fit, data, priors, refit=self.refit)

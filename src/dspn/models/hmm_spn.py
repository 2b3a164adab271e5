"""Hidden Markov models whose states emit slices by sum-product networks."""

from typing import Any, final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import require_type, whole_number
from dspn.data import Schema
from dspn.engine import compile_program
from dspn.errors import StructureError
from dspn.inference import interface_posteriors
from dspn.learning.em import EmOptions, fit_em
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.scores import LIKELIHOOD
from dspn.learning.slice_spn import DEFAULT_SLICE_SPN, SliceSpnOptions, spn_emissions
from dspn.models._estimator import Outcome, SequenceEstimator, outcome_of
from dspn.models._factored import DEFAULT_EM, FactoredOptions, fit_factored
from dspn.models._training import TrainingData
from dspn.models.hmm import start_probabilities, transition_matrix
from dspn.structure import Root


@final
class HMMSPN(SequenceEstimator):
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

    def __init__(
        self,
        n_states: int = 8,
        *,
        n_starts: int = 1,
        emission: SliceSpnOptions | None = None,
        em: EmOptions | None = None,
        priors: Priors | None = None,
        schema: Schema | None = None,
        validation_fraction: float = 0.1,
        refit: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_states = n_states
        self.n_starts = n_starts
        self.emission = emission
        self.em = em
        self.priors = priors
        self.schema = schema
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.random_state = random_state

    @property
    def start_probabilities_(self) -> Floats:
        """P(first state), (states,)."""
        return start_probabilities(self.network_)

    @property
    def transition_matrix_(self) -> Floats:
        """P(next state | state), a row for each state."""
        return transition_matrix(self.network_)

    def _check(self, schema: Schema, *, weighted: bool, validated: bool) -> None:
        whole_number(self.n_states, "n_states", StructureError)
        whole_number(self.n_starts, "n_starts", StructureError)
        for name, kind in (("emission", SliceSpnOptions), ("em", EmOptions), ("priors", Priors)):
            if getattr(self, name) is not None:
                require_type(getattr(self, name), kind, name, StructureError)

    def _learned(self, data: TrainingData) -> Outcome:
        em, priors = self.em or DEFAULT_EM, self.priors or DEFAULT_PRIORS
        options = FactoredOptions(self.n_starts, em, priors, LIKELIHOOD, Root.FIRST)
        plain = fit_factored(data, (self.n_states,), options)[0].network
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
            options=em,
            priors=priors,
            sample_weights=data.weights,
            rng=data.rng(4),
        )
        return outcome_of(fit, data, priors, refit=self.refit)

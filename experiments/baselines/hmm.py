"""Hidden Markov models as baselines, with independent emissions and with networks of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, require_type, whole_number
from dspn.data import Sequences
from dspn.data.sequences import joined, sequences_of
from dspn.engine import Program, compile_program
from dspn.errors import StructureError
from dspn.inference import interface_posteriors
from dspn.learning.em import EmFit, EmOptions, best_of, fit_em
from dspn.learning.learner import DEFAULT_PLAN
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.slice_spn import DEFAULT_SLICE_SPN, SliceSpnOptions, spn_emissions
from dspn.models.estimator import TrainingData
from dspn.models.hmm import DEFAULT_EM, fit_factored, start_probabilities, transition_matrix
from dspn.structure import DynamicNetwork
from experiments.baselines.base import Baseline, FittedBaseline, Task

_EMISSIONS: Final = 3
_SECOND_FIT: Final = 4


@final
@dataclass(frozen=True, eq=False)
class FittedNetwork(FittedBaseline):
    """A learned baseline that is a DSPN; `details` has its score on the validation set."""

    network: DynamicNetwork
    details: dict[str, float] = field(default_factory=dict)

    @cached_property
    def _program(self) -> Program:
        return compile_program(self.network)

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, (N,)."""
        return self._program.log_likelihood(sequences_of(data, self.network.schema, "data"))


def _checked_states(states: Any) -> tuple[int, ...]:
    given = states if isinstance(states, Iterable) else (states,)
    found = tuple(whole_number(number, "states", StructureError) for number in given)
    if not found:
        raise StructureError("`states` must hold at least one number, but is empty; give one.")
    return tuple(sorted(set(found)))


@final
@dataclass(frozen=True)
class HmmOptions:
    """Numbers of states to choose from, and how each model is learned.

    With `refit` the chosen model is trained once more, on the validation set too.
    """

    states: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    em: EmOptions = DEFAULT_EM
    priors: Priors = DEFAULT_PRIORS
    refit: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers out of range and parts of another type."""
        object.__setattr__(self, "states", _checked_states(self.states))
        require_type(self.em, EmOptions, "em", StructureError)
        require_type(self.priors, Priors, "priors", StructureError)
        require_type(self.refit, bool, "refit", StructureError)


@final
@dataclass(frozen=True)
class HmmSpnOptions:
    """The options of the hidden Markov models, and how the networks of their states are learned."""

    hmm: HmmOptions = field(default_factory=lambda: HmmOptions(states=(2, 4, 8, 16)))
    emission: SliceSpnOptions = DEFAULT_SLICE_SPN

    def __post_init__(self) -> None:
        """Refuse parts of another type."""
        require_type(self.hmm, HmmOptions, "hmm", StructureError)
        require_type(self.emission, SliceSpnOptions, "emission", StructureError)


def _plain(task: Task, options: HmmOptions, size: int) -> EmFit:
    """A hidden Markov model of one number of states by Baum and Welch's algorithm."""
    data = TrainingData(task.train, task.validation, None, task.seed)
    em, priors, is_due = options.em, options.priors, task.clock.is_due
    return fit_factored(data, (size,), em=em, priors=priors, is_due=is_due)[0]


def _with_networks(task: Task, options: HmmSpnOptions, size: int) -> EmFit:
    """One whose states emit slices by networks, started from a plain one; see `HMMSPN`."""
    own = options.hmm
    plain = _plain(task, own, size).network
    started = spn_emissions(
        task.train,
        [bank.family for bank in plain.template.banks],
        start_probabilities(plain),
        transition_matrix(plain),
        interface_posteriors(compile_program(plain), task.train),
        options=options.emission,
        priors=own.priors,
        rng=task.rng(_EMISSIONS, size),
    )
    return fit_em(
        started,
        task.train,
        validation=task.validation,
        options=own.em,
        priors=own.priors,
        rng=task.rng(_SECOND_FIT, size),
        deadline=task.clock.is_due,
    )


def _best(task: Task, options: HmmOptions, learn: Callable[[int], EmFit]) -> FittedNetwork:
    """The best model on the validation set of those learned before time is up; one at least."""
    fits: list[EmFit] = []
    for size in options.states:
        if fits and task.clock.is_due():
            break
        fits.append(learn(size))
    found = best_of(fits)
    network = found.network
    again = DEFAULT_PLAN.refit
    if options.refit and again is not None and found.score > -np.inf and not task.clock.is_due():
        whole = joined([task.train, task.validation])
        network = fit_em(
            network,
            whole,
            options=again,
            priors=options.priors,
            deadline=task.clock.is_due,
        ).network
    steps = sum(fit.history[-1].step for fit in fits)
    told = {"validation": found.score} if found.score > -np.inf else {}
    return FittedNetwork(task.clock.seconds, max(1, steps), task.ending, network, told)


@final
class HmmBaseline(Baseline[FittedNetwork]):
    """A hidden Markov model by Baum and Welch's algorithm; its states are chosen by validation."""

    def __init__(self, options: HmmOptions | None = None) -> None:
        self.options = HmmOptions() if options is None else options
        require_type(self.options, HmmOptions, "options", StructureError)

    @property
    def name(self) -> str:
        """What tables call it."""
        return "HMM"

    def _fitted(self, task: Task) -> FittedNetwork:
        """Learns one model for each number of states; an iteration is a step of EM."""
        return _best(task, self.options, lambda size: _plain(task, self.options, size))


@final
class HmmSpnBaseline(Baseline[FittedNetwork]):
    """A hidden Markov model whose states emit slices by sum-product networks."""

    def __init__(self, options: HmmSpnOptions | None = None) -> None:
        self.options = HmmSpnOptions() if options is None else options
        require_type(self.options, HmmSpnOptions, "options", StructureError)

    @property
    def name(self) -> str:
        """What tables call it."""
        return "HMM-SPN"

    def _fitted(self, task: Task) -> FittedNetwork:
        """Learns one model for each number of states.

        An iteration is a step of EM on a model with networks; those of the plain models that they
        start from are not counted.
        """
        return _best(task, self.options.hmm, lambda size: _with_networks(task, self.options, size))

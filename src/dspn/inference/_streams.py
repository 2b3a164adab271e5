"""How a filter goes from slice to slice, for either place of the root."""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arrays import Floats
from dspn.engine import Program
from dspn.engine.arithmetic import Arithmetic
from dspn.engine.job import Job
from dspn.engine.prefixes import (
    leaf_posteriors,
    paired,
    starting_forms,
    step_down,
    step_up,
    summed_terms,
    top_terms,
)
from dspn.engine.records import State

_ROW: Final = np.zeros(1, dtype=np.int64)


class Advance(NamedTuple):
    """A state after one more slice, and log P_t with that slice and without, as totals (TERMS,).

    `lossy` says whether a value may have been lost.
    """

    state: State
    log_seen: Floats
    log_unseen: Floats
    lossy: bool


class Prediction(NamedTuple):
    """P(leaf | x_1..x_{t-1}) of every load at the next slice, and log P_t of the slices before it.

    The latter is a total (TERMS,). The posterior is undefined where these are impossible.
    """

    posterior: Floats
    log_unseen: Floats
    lossy: bool


class Stream(ABC):
    """What is remembered of the slices so far, in one of two arithmetics."""

    @abstractmethod
    def fresh(self, arithmetic: Arithmetic) -> State:
        """The state before the first slice."""

    @abstractmethod
    def advance(self, job: Job, arithmetic: Arithmetic, state: State, first: bool) -> Advance:
        """The state after one more slice."""

    @abstractmethod
    def predict(self, arithmetic: Arithmetic, state: State, first: bool) -> Prediction:
        """The posterior over the leaves of the next slice."""


@final
class Upward(Stream):
    """Root at the last slice: the interface vector of the slices so far."""

    def __init__(self, program: Program, missing: Job) -> None:
        self.program = program
        self.missing = missing

    def fresh(self, arithmetic: Arithmetic) -> State:
        return arithmetic.start(self.program, 1)

    def advance(self, job: Job, arithmetic: Arithmetic, state: State, first: bool) -> Advance:
        seen = step_up(job, arithmetic, _ROW, state, bottom=first)
        unseen = step_up(self.missing, arithmetic, _ROW, state, bottom=first)
        now, before = (arithmetic.top(self.program, step.state) for step in (seen, unseen))
        lossy = any(found.lossy for found in (seen, unseen, now, before))
        return Advance(seen.state, now.total[:, 0], before.total[:, 0], lossy)

    def predict(self, arithmetic: Arithmetic, state: State, first: bool) -> Prediction:
        unseen = step_up(self.missing, arithmetic, _ROW, state, bottom=first)
        top = arithmetic.top(self.program, unseen.state)
        forms = arithmetic.top_derivatives(self.program, top.rows)
        flows, lost = step_down(
            self.missing, arithmetic, _ROW, forms, seed=True, below=state.v, bottom=first
        )
        found = leaf_posteriors(self.missing, arithmetic, _ROW, flows, bottom=first)
        lossy = lost or unseen.lossy or top.lossy
        return Prediction(found[:, 0], top.total[:, 0], lossy)


@final
class Downward(Stream):
    """Root at the first slice: the top network's linear forms, moved down through the slices."""

    def __init__(self, program: Program, missing: Job) -> None:
        self.program = program
        self.missing = missing
        self.terms = top_terms(program)
        self.rows = np.zeros(self.terms.coefficients.size, dtype=np.int64)

    def fresh(self, arithmetic: Arithmetic) -> State:
        return starting_forms(self.program, arithmetic, self.terms, 1)

    def advance(self, job: Job, arithmetic: Arithmetic, state: State, first: bool) -> Advance:
        program, terms = self.program, self.terms
        ones = arithmetic.start(program, self.rows.size)
        values = step_up(job, arithmetic, self.rows, ones, bottom=True)
        now, before = (
            summed_terms(terms, paired(program, arithmetic, state, v))[0][:, 0]
            for v in (values.state, None)
        )
        moved = state.copy()
        _, lossy = step_down(job, arithmetic, self.rows, moved)
        return Advance(moved, now, before, lossy or values.lossy)

    def predict(self, arithmetic: Arithmetic, state: State, first: bool) -> Prediction:
        logs = paired(self.program, arithmetic, state, None)
        log_unseen, log_shares = summed_terms(self.terms, logs)
        flows, lossy = step_down(
            self.missing, arithmetic, self.rows, state.copy(), seed=True, bottom=True
        )
        found = leaf_posteriors(self.missing, arithmetic, self.rows, flows, bottom=True)
        # A term that the evidence rules out has no posterior.
        share = np.exp(log_shares[:, 0])
        possible = share > 0
        posterior: Floats = found[:, possible] @ share[possible]
        return Prediction(posterior, log_unseen[:, 0], lossy)

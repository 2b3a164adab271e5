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
    """A state after one more slice, and the logarithms of P_t with that slice and without.

    The two lack the same constant. `lossy` says whether a value may have been lost.
    """

    state: State
    log_seen: float
    log_unseen: float
    lossy: bool


class Prediction(NamedTuple):
    """P(leaf | x_1..x_{t-1}) of every load at the next slice, and log P_t of the slices before it.

    The posterior is undefined where these are impossible.
    """

    posterior: Floats
    log_unseen: float
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
        seen = step_up(job, arithmetic, _ROW, state.v, bottom=first)
        unseen = step_up(self.missing, arithmetic, _ROW, state.v, bottom=first)
        now, before = (arithmetic.top(self.program, step.state) for step in (seen, unseen))
        lossy = any(found.lossy for found in (seen, unseen, now, before))
        return Advance(seen.state, float(now.log_value[0]), float(before.log_value[0]), lossy)

    def predict(self, arithmetic: Arithmetic, state: State, first: bool) -> Prediction:
        unseen = step_up(self.missing, arithmetic, _ROW, state.v, bottom=first)
        top = arithmetic.top(self.program, unseen.state)
        forms = arithmetic.top_derivatives(self.program, top.rows)
        flows, lost = step_down(
            self.missing, arithmetic, _ROW, forms, seed=True, below=state.v, bottom=first
        )
        found = leaf_posteriors(self.missing, arithmetic, _ROW, flows, bottom=first)
        lossy = lost or unseen.lossy or top.lossy
        return Prediction(found[:, 0], float(top.log_value[0]), lossy)


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
        ones = arithmetic.start(program, self.rows.size).v
        values = step_up(job, arithmetic, self.rows, ones, bottom=True)
        shifts = state.exponents
        now = summed_terms(terms, paired(program, arithmetic, state.v, shifts, values.state))
        before = summed_terms(terms, paired(program, arithmetic, state.v, shifts, None))
        moved = state.copy()
        _, lossy = step_down(job, arithmetic, self.rows, moved)
        # The table divisors of the slice and a common exponent cancel in every later ratio.
        moved.exponents[...] -= moved.exponents[:1].max()
        return Advance(moved, float(now[0]), float(before[0]), lossy or values.lossy)

    def predict(self, arithmetic: Arithmetic, state: State, first: bool) -> Prediction:
        logs = paired(self.program, arithmetic, state.v, state.exponents, None)
        log_unseen = float(summed_terms(self.terms, logs)[0])
        with np.errstate(invalid="ignore"):
            share = np.exp(logs + np.log(self.terms.coefficients) - log_unseen)
        flows, lossy = step_down(
            self.missing, arithmetic, self.rows, state.copy(), seed=True, bottom=True
        )
        found = leaf_posteriors(self.missing, arithmetic, self.rows, flows, bottom=True)
        # A term that the evidence rules out has no posterior.
        possible = share > 0
        posterior: Floats = found[:, possible] @ share[possible]
        return Prediction(posterior, log_unseen, lossy)

"""A stream of slices, one at a time: surprise of each, and the distribution of the next."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from dspn._arrays import Floats
from dspn.engine import Program, likelihood
from dspn.engine.arithmetic import Arithmetic, Linear, Logarithmic
from dspn.engine.job import Job
from dspn.engine.prefixes import (
    leaf_posteriors,
    missing_slice,
    paired,
    reads_one_group_each,
    starting_forms,
    step_down,
    step_up,
    summed_terms,
    top_terms,
)
from dspn.engine.records import State
from dspn.errors import EvidenceError
from dspn.inference.marginals import Marginals, Mixer, checked_levels, leaf_rows, marginals_at
from dspn.sequences import Sequences
from dspn.structure.network import Root

_ROW = np.zeros(1, dtype=np.int64)
_LOG_TWO = float(np.log(2.0))


@final
@dataclass(frozen=True)
class Step:
    """-log P_t(x_t | x_1..x_{t-1}) of the newest slice, and the sum of its negatives over the stream so far.

    With the root at the first slice and a tied bottom `log_likelihood` is log P(x_1..x_t).
    """

    surprise: float
    log_likelihood: float


@final
@dataclass(frozen=True, eq=False)
class FilterState:
    """Everything a filter remembers, as plain arrays: enough to go on elsewhere, later.

    `vectors` has a column for each term of the top network (root at the first slice) or one column; `history` holds
    the slices themselves for the templates that need them and is empty otherwise.
    """

    num_slices: int
    log_likelihood: float
    in_logarithms: bool
    vectors: Floats
    exponents: Floats
    history: Floats

    def to_arrays(self) -> dict[str, Floats]:
        """The state as named float64 arrays, ready for any file format."""
        scalars = [float(self.num_slices), self.log_likelihood, float(self.in_logarithms)]
        return {
            "scalars": np.array(scalars),
            "vectors": self.vectors.copy(),
            "exponents": self.exponents.copy(),
            "history": self.history.copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> "FilterState":
        """The state that `to_arrays` wrote."""
        try:
            count, total, logarithms = (float(number) for number in arrays["scalars"])
            rest = [
                np.array(arrays[name], dtype=np.float64)
                for name in ("vectors", "exponents", "history")
            ]
        except (KeyError, ValueError, TypeError) as error:
            raise EvidenceError(f"this is not the state of a filter: {error!r}.") from None
        return cls(int(count), total, bool(logarithms), *rest)


class _Advance(NamedTuple):
    """A state, the log of the ratio it was reached by, and whether a value may have been lost."""

    state: State
    log_ratio: float
    lossy: bool


class _Stream(ABC):
    """What is remembered of the slices so far, in one of two arithmetics."""

    @abstractmethod
    def fresh(self, arithmetic: Arithmetic) -> State:
        """The state before the first slice."""

    @abstractmethod
    def advance(
        self, job: Job, arithmetic: Arithmetic, state: State, first: bool
    ) -> tuple[State, float]:
        """The state after one more slice, and log P_t(x_t | x_1..x_{t-1})."""

    @abstractmethod
    def leaf_posteriors(self, arithmetic: Arithmetic, state: State, first: bool) -> Floats:
        """P(leaf | x_1..x_{t-1}) of every load at the next slice."""


@final
class _Upward(_Stream):
    """Root at the last slice: the interface vector of the slices so far."""

    def __init__(self, program: Program, missing: Job) -> None:
        self.program = program
        self.missing = missing

    def fresh(self, arithmetic: Arithmetic) -> State:
        return arithmetic.start(self.program, 1)

    def advance(
        self, job: Job, arithmetic: Arithmetic, state: State, first: bool
    ) -> tuple[State, float]:
        seen = step_up(job, arithmetic, _ROW, state.v, bottom=first)
        unseen = step_up(self.missing, arithmetic, _ROW, state.v, bottom=first)
        now, before = (arithmetic.top(self.program, step.state) for step in (seen, unseen))
        ratio = float(now.log_value[0] - before.log_value[0])
        return _Advance(seen.state, ratio, any(x.lossy for x in (seen, unseen, now, before)))

    def leaf_posteriors(self, arithmetic: Arithmetic, state: State, first: bool) -> Floats:
        unseen = step_up(self.missing, arithmetic, _ROW, state.v, bottom=first)
        values = arithmetic.top(self.program, unseen.state).rows
        forms = arithmetic.top_derivatives(self.program, values)
        flows, _ = step_down(
            self.missing, arithmetic, _ROW, forms, seed=True, below=state.v, bottom=first
        )
        return leaf_posteriors(self.missing, arithmetic, _ROW, flows, bottom=first)[:, 0]


@final
class _Downward(_Stream):
    """Root at the first slice: the top network's linear forms, moved down through the slices so far."""

    def __init__(self, program: Program, missing: Job) -> None:
        self.program = program
        self.missing = missing
        self.terms = top_terms(program)
        self.rows = np.zeros(self.terms.coefficients.size, dtype=np.int64)

    def fresh(self, arithmetic: Arithmetic) -> State:
        return starting_forms(self.program, arithmetic, self.terms, 1)

    def advance(
        self, job: Job, arithmetic: Arithmetic, state: State, first: bool
    ) -> tuple[State, float]:
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
        return _Advance(moved, float((now - before)[0]), lossy or values.lossy)

    def leaf_posteriors(self, arithmetic: Arithmetic, state: State, first: bool) -> Floats:
        logs = paired(self.program, arithmetic, state.v, state.exponents, None)
        log_share = logs + np.log(self.terms.coefficients)
        share = np.exp(log_share - log_share.max())
        flows, _ = step_down(
            self.missing, arithmetic, self.rows, state.copy(), seed=True, bottom=True
        )
        found = leaf_posteriors(self.missing, arithmetic, self.rows, flows, bottom=True)
        posterior: Floats = found @ (share / share.sum())
        return posterior


@final
class Filter:
    """One stream: `update` with each slice, `predict` the next, `state` to stop and go on later."""

    def __init__(self, program: Program, state: FilterState | None = None) -> None:
        self._program = program
        self._missing = Job(program, missing_slice(program), tabulate_counts=False)
        self._stream: _Stream | None = None
        if program.network.root == Root.LAST:
            self._stream = _Upward(program, self._missing)
        elif reads_one_group_each(program):
            self._stream = _Downward(program, self._missing)
        self._arithmetic: Arithmetic = Linear()
        self._count = 0
        self._log_likelihood = 0.0
        self._history = np.empty((0, len(program.network.schema)))
        self._state = None if self._stream is None else self._stream.fresh(self._arithmetic)
        if state is not None:
            self._restore(state)

    def _restore(self, saved: FilterState) -> None:
        self._arithmetic = Logarithmic() if saved.in_logarithms else Linear()
        if self._stream is not None:
            blank = self._stream.fresh(self._arithmetic)
            if (
                saved.vectors.shape != blank.v.shape
                or saved.exponents.shape != blank.exponents.shape
            ):
                raise EvidenceError(
                    f"the saved state has vectors of shape {saved.vectors.shape}, but this model's filter needs "
                    f"{blank.v.shape}; it belongs to another model."
                )
            self._state = blank._replace(
                v=saved.vectors.copy(), exponents=saved.exponents.astype(np.int64)
            )
        elif saved.history.shape[1:] != self._history.shape[1:]:
            raise EvidenceError("the saved state belongs to a model with other variables.")
        self._history = saved.history.copy()
        self._count = saved.num_slices
        self._log_likelihood = saved.log_likelihood

    def state(self) -> FilterState:
        """A copy of everything remembered."""
        empty = np.empty((0, 0))
        state = self._state
        return FilterState(
            self._count,
            self._log_likelihood,
            not self._arithmetic.is_linear,
            empty if state is None else state.v.copy(),
            empty if state is None else state.exponents.astype(np.float64),
            self._history.copy(),
        )

    def _slice(self, values: ArrayLike) -> Sequences:
        row = np.asarray(values, dtype=np.float64)
        if row.shape != (len(self._program.network.schema),):
            raise EvidenceError(
                f"`values` must have one entry for each of the {len(self._program.network.schema)} variables, "
                f"but has shape {row.shape}."
            )
        return Sequences.from_codes(row[None], [0, 1], self._program.network.schema)

    def update(self, values: ArrayLike) -> Step:
        """Takes in the next slice (category codes, NaN = missing) and returns its surprise.

        An impossible slice has infinite surprise; nothing can follow it, and a further update raises.
        """
        if self._log_likelihood == -np.inf:
            raise EvidenceError(
                f"slice {self._count - 1} of this stream was impossible, so no further slice can be conditioned on "
                "it. Start a new filter, or go back to a saved state."
            )
        data = self._slice(values)
        if self._stream is None:
            log_ratio = self._advance_by_history(data)
        else:
            log_ratio = self._advance(self._stream, data)
        self._count += 1
        self._log_likelihood += log_ratio
        return Step(-log_ratio, self._log_likelihood)

    def _advance(self, stream: _Stream, data: Sequences) -> float:
        job = self._missing.on(data)
        assert self._state is not None
        first = self._count == 0
        step = stream.advance(job, self._arithmetic, self._state, first)
        if self._arithmetic.is_linear and step.lossy:
            self._state = _to_logarithms(self._program, self._state)
            self._arithmetic = Logarithmic()
            step = stream.advance(job, self._arithmetic, self._state, first)
        self._state = step.state
        return step.log_ratio

    def _advance_by_history(self, data: Sequences) -> float:
        """Outputs that multiply groups: both prefixes are evaluated afresh."""
        schema = self._program.network.schema
        longer = np.concatenate([self._history, data.values])
        blank = np.concatenate([self._history, np.full_like(data.values, np.nan)])
        offsets = [0, len(longer), 2 * len(longer)]
        both = Sequences.from_codes(np.concatenate([longer, blank]), offsets, schema)
        now, before = likelihood(self._program, both).log_likelihood
        self._history = longer
        return float(now - before)

    def predict(self, *, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Marginals:
        """P(x_{t+1} | x_1..x_t), entry by entry: marginals of a single slice."""
        levels = checked_levels(quantiles)
        schema = self._program.network.schema
        if self._stream is None or self._state is None:
            values = np.concatenate([self._history, np.full((1, len(schema)), np.nan)])
            wanted = np.zeros(values.shape, dtype=np.bool_)
            wanted[-1] = True
            data = Sequences.from_codes(values, [0, len(values)], schema)
            return marginals_at(self._program, data, wanted, levels)
        first = self._count == 0
        posterior = self._stream.leaf_posteriors(self._arithmetic, self._state, first)
        at_bottom = first or self._program.network.root == Root.FIRST
        parameters = self._program.leaf_parameters(at_bottom)
        found = []
        for variable, bank in enumerate(self._program.network.template.banks):
            mixer = Mixer(schema[variable], bank.family, levels, 1)
            loads, members = leaf_rows(self._program, variable)
            mixer.put(_ROW, posterior[loads][None], parameters[variable][members])
            found.append(mixer.result(_ROW))
        return Marginals(schema, np.array([self._log_likelihood]), tuple(found))


def _to_logarithms(program: Program, state: State) -> State:
    """A linear state as logarithms, exponents included."""
    group = program.input_group
    with np.errstate(divide="ignore"):
        v = np.log(state.v) + state.exponents[group] * _LOG_TWO
    return state._replace(v=v, exponents=np.zeros_like(state.exponents))

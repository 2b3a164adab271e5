"""What a filter does for one component: remembers its slices, and weighs the next one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.data import Sequences
from dspn.engine import Program, SegmentFlows, likelihood_totals, posterior_flows
from dspn.engine.arithmetic import Arithmetic, Linear, Logarithmic
from dspn.engine.job import Job
from dspn.engine.prefixes import missing_slice, reads_one_group_each
from dspn.engine.records import State
from dspn.engine.totals import powers_of_two, rounded
from dspn.errors import DataError, EvidenceError
from dspn.inference._streams import Advance, Downward, Prediction, Stream, Upward
from dspn.inference.filter_state import FilterState
from dspn.structure.network import Root

_LOG_TWO: Final = float(np.log(2.0))
# Logarithms above the first, and scales below the second, have room in a linear state.
_LEAST_LOGARITHM: Final = -600.0
_LARGEST_SHIFT: Final = 2.0**40
_NOTHING: Final = np.empty((0, 0))

_Found = TypeVar("_Found", Advance, Prediction)


@final
@dataclass(frozen=True, eq=False)
class Memory:
    """What is remembered of the slices so far."""

    state: State | None
    arithmetic: Arithmetic
    history: Floats


class Advanced(NamedTuple):
    """The memory with one more slice, log P_t(x_1..x_t) and log P_t(x_1..x_{t-1}), as totals."""

    memory: Memory
    log_seen: Floats
    log_unseen: Floats


class Predicted(NamedTuple):
    """P(leaf | x_1..x_{t-1}) of every load at the next slice, and log P_t(x_1..x_{t-1})."""

    posterior: Floats
    log_unseen: Floats


def _stream(program: Program, missing: Job) -> Stream | None:
    """The steps of a stream; None where the slices themselves have to be kept."""
    if program.network.root == Root.LAST:
        return Upward(program, missing)
    return Downward(program, missing) if reads_one_group_each(program) else None


@final
class Track:
    """The steps of one component; its memory is kept by whoever steps."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.missing = Job.for_stream(program, missing_slice(program))
        self.stream = _stream(program, self.missing)

    @property
    def keeps_history(self) -> bool:
        """Whether the slices themselves are kept."""
        return self.stream is None

    def fresh(self) -> Memory:
        """Nothing seen."""
        linear = Linear()
        state = None if self.stream is None else self.stream.fresh(linear)
        return Memory(state, linear, np.empty((0, len(self.program.network.schema))))

    def advance(self, memory: Memory, data: Sequences, first: bool) -> Advanced:
        """Takes in one more slice."""
        if self.stream is None:
            return self._advance_by_history(memory, data)
        stream, job = self.stream, self.missing.on(data)
        found, arithmetic = self._exactly(
            memory, lambda arithmetic, state: stream.advance(job, arithmetic, state, first)
        )
        state = found.state
        if not arithmetic.is_linear and _is_linear_enough(state):
            state, arithmetic = _from_logarithms(self.program, state), Linear()
        return Advanced(Memory(state, arithmetic, memory.history), found.log_seen, found.log_unseen)

    def _longer(self, memory: Memory, data: Sequences) -> Memory:
        """The memory with the slice kept, where slices are."""
        if not self.keeps_history:
            return memory
        return replace(memory, history=np.concatenate([memory.history, data.values]))

    def _exactly(
        self, memory: Memory, run: Callable[[Arithmetic, State], _Found]
    ) -> tuple[_Found, Arithmetic]:
        """What `run` finds, in logarithms where linear arithmetic loses something."""
        assert memory.state is not None
        found, exact = run(memory.arithmetic, memory.state), Logarithmic()
        if not (memory.arithmetic.is_linear and found.lossy):
            return found, memory.arithmetic
        return run(exact, _to_logarithms(memory.state)), exact

    def _advance_by_history(self, memory: Memory, data: Sequences) -> Advanced:
        """Outputs that multiply groups: both prefixes are evaluated afresh."""
        longer = self._longer(memory, data)
        blank = np.concatenate([memory.history, np.full_like(data.values, np.nan)])
        offsets = [0, len(blank), 2 * len(blank)]
        both = Sequences.from_codes(np.concatenate([longer.history, blank]), offsets, data.schema)
        return Advanced(longer, *likelihood_totals(self.program, both).T)

    def predict(self, memory: Memory, first: bool) -> Predicted:
        """Posteriors of the leaves of the next slice; undefined where the past is impossible."""
        if self.stream is None:
            return self._predict_by_history(memory)
        stream = self.stream
        found, _ = self._exactly(
            memory, lambda arithmetic, state: stream.predict(arithmetic, state, first)
        )
        return Predicted(found.posterior, found.log_unseen)

    def _predict_by_history(self, memory: Memory) -> Predicted:
        data = with_missing_slice(self.program, memory.history)
        posterior = np.empty(self.program.template.load_bank.size)

        def collect(segment: SegmentFlows) -> None:
            at, lane = np.nonzero(segment.active & (segment.rows == data.total_slices - 1))
            if at.size:
                posterior[:] = segment.leaves(at, lane).posterior[:, 0]

        posterior_flows(self.program, data, collect)
        return Predicted(posterior, likelihood_totals(self.program, data)[:, 0])

    def fingerprint(self) -> Floats:
        """That of the network, byte by byte."""
        return bytewise(self.program.network.fingerprint)

    def saved(self, memory: Memory, num_slices: int, log_likelihood: float) -> FilterState:
        """A copy of the memory as plain arrays."""
        state, inputs = memory.state, self.program.num_interfaces
        return FilterState(
            num_slices,
            log_likelihood,
            not memory.arithmetic.is_linear,
            _NOTHING if state is None else state.v[:inputs].copy(),
            _NOTHING if state is None else state.exponents.astype(np.float64),
            memory.history.copy(),
            self.fingerprint(),
            _NOTHING if state is None else state.scale.copy(),
            _NOTHING if state is None else state.v[inputs:].copy(),
        )

    def restored(self, saved: FilterState) -> Memory:
        """The memory that `saved` has kept."""
        fresh = self.fresh()
        self._check_shapes(saved, fresh)
        arithmetic: Arithmetic = Logarithmic() if saved.in_logarithms else Linear()
        if fresh.state is None:
            return Memory(None, arithmetic, saved.history.copy())
        exponents: Floats | Ints = saved.exponents.copy()
        v = saved.vectors.copy()
        if saved.in_logarithms:
            v = np.concatenate([v, saved.low if saved.low.size else np.zeros_like(v)])
        else:
            exponents = exponents.astype(np.int64)
        state = State(v, exponents, fresh.state.scale)
        memory = Memory(state, arithmetic, saved.history.copy())
        if saved.scale.size:
            state.scale[...] = saved.scale
        elif self.program.network.root == Root.FIRST and not self.program.untied:
            # States of earlier releases keep the sum of the surprises instead of the divisors.
            lacking = saved.log_likelihood - rounded(self.predict(memory, False).log_unseen)
            state.scale[0] = lacking if np.isfinite(lacking) else 0.0
        return memory

    def _check_shapes(self, saved: FilterState, fresh: Memory) -> None:
        """Raises unless the arrays of a state have the shapes that this track gives them."""
        state, schema = fresh.state, self.program.network.schema
        shapes = {
            "vectors": _NOTHING.shape if state is None else state.v.shape,
            "exponents": _NOTHING.shape if state is None else state.exponents.shape,
            "history": (saved.num_slices if state is None else 0, len(schema)),
        }
        if state is not None:
            shapes |= {"scale": state.scale.shape} if saved.scale.size else {}
            shapes |= {"low": state.v.shape} if saved.low.size else {}
        for name, shape in shapes.items():
            found = getattr(saved, name).shape
            if found != shape:
                raise EvidenceError(
                    f"the {name} of `state` must have shape {shape}, but have shape {found}; the "
                    "state is damaged, start a new filter."
                )
        try:
            if len(saved.history):
                Sequences.from_codes(saved.history, [0, len(saved.history)], schema)
        except DataError as error:
            raise EvidenceError(f"the history of `state` is damaged: {error}") from None


def bytewise(fingerprint: bytes) -> Floats:
    """Bytes as numbers, for states that are arrays of numbers."""
    return np.frombuffer(fingerprint, dtype=np.uint8).astype(np.float64)


def with_missing_slice(program: Program, history: Floats) -> Sequences:
    """The slices kept, and one more of which nothing is known."""
    schema = program.network.schema
    values = np.concatenate([history, np.full((1, len(schema)), np.nan)])
    return Sequences.from_codes(values, [0, len(values)], schema)


def _to_logarithms(state: State) -> State:
    """A linear state as logarithms."""
    groups = len(state.exponents) // 2
    *exact, low = powers_of_two(state.exponents[:groups].astype(np.int64))
    with np.errstate(divide="ignore"):
        v = np.concatenate([np.log(state.v), np.zeros_like(state.v)])
    return state._replace(v=v, exponents=np.concatenate([np.sum(exact, axis=0), low]))


def _is_linear_enough(state: State) -> bool:
    """Whether a state in logarithms has nothing that a linear one would lose."""
    groups = len(state.exponents) // 2
    v = state.v[: len(state.v) // 2]
    small = (v > -np.inf) & (v < _LEAST_LOGARITHM)
    return not small.any() and bool((np.abs(state.exponents[:groups]) < _LARGEST_SHIFT).all())


def _from_logarithms(program: Program, state: State) -> State:
    """A state in logarithms as a linear one; what is no power of two goes into the vectors."""
    groups = len(state.exponents) // 2
    whole = state.exponents[:groups] + state.exponents[groups:]
    powers = np.round(whole / _LOG_TWO).astype(np.int64)
    *exact, low = powers_of_two(powers)
    rest = (state.exponents[:groups] - np.sum(exact, axis=0)) + (state.exponents[groups:] - low)
    inputs = program.num_interfaces
    v = np.exp(state.v[:inputs] + (state.v[inputs:] + rest[program.input_group]))
    return state._replace(v=v, exponents=np.concatenate([powers, powers]))

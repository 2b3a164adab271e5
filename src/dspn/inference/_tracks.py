"""What a filter does for one component: remembers its slices, and weighs the next one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar, final

import numpy as np

from dspn._arrays import Floats
from dspn.engine import Program, SegmentFlows, likelihood, posterior_flows
from dspn.engine.arithmetic import Arithmetic, Linear, Logarithmic
from dspn.engine.job import Job
from dspn.engine.prefixes import missing_slice, reads_one_group_each
from dspn.engine.records import State
from dspn.errors import DataError, EvidenceError
from dspn.inference._streams import Advance, Downward, Prediction, Stream, Upward
from dspn.inference.filter_state import FilterState
from dspn.sequences import Sequences
from dspn.structure.network import Root

_LOG_TWO: Final = float(np.log(2.0))
_NOTHING: Final = np.empty((0, 0))

_Found = TypeVar("_Found", Advance, Prediction)


@final
@dataclass(frozen=True, eq=False)
class Memory:
    """What is remembered of the slices so far, and log P_c of them where that can be compared."""

    state: State | None
    arithmetic: Arithmetic
    history: Floats
    log_past: float = 0.0


class Advanced(NamedTuple):
    """The memory with one more slice, log P_t(x_t | x_1..x_{t-1}) and log P_t(x_1..x_{t-1}).

    The last can be compared between the tracks of a mixture; of a single track it may lack a
    constant.
    """

    memory: Memory
    log_ratio: float
    log_unseen: float


class Predicted(NamedTuple):
    """P(leaf | x_1..x_{t-1}) of every load at the next slice, and log P_t(x_1..x_{t-1})."""

    posterior: Floats
    log_unseen: float


def _stream(program: Program, missing: Job) -> Stream | None:
    """The steps of a stream; None where the slices themselves have to be kept."""
    if program.network.root == Root.LAST:
        return Upward(program, missing)
    return Downward(program, missing) if reads_one_group_each(program) else None


@final
class Track:
    """The steps of one component; its memory is kept by whoever steps.

    In a mixture the components' log P_t(x_1..x_{t-1}) are compared. Where the networks of all
    lengths agree they are sums of what was seen; elsewhere logarithms are used throughout, which
    carry no scale of their own from slice to slice.
    """

    def __init__(self, program: Program, *, mixed: bool) -> None:
        self.program = program
        self.missing = Job.for_stream(program, missing_slice(program))
        self.stream = _stream(program, self.missing)
        self.agrees = program.network.root == Root.FIRST and not program.untied
        self._arithmetic = Logarithmic() if mixed and not self.agrees else Linear()

    @property
    def keeps_history(self) -> bool:
        """Whether the slices themselves are kept."""
        return self.stream is None

    def fresh(self) -> Memory:
        """Nothing seen."""
        state = None if self.stream is None else self.stream.fresh(self._arithmetic)
        return Memory(state, self._arithmetic, np.empty((0, len(self.program.network.schema))))

    def advance(self, memory: Memory, data: Sequences, first: bool) -> Advanced:
        """Takes in one more slice."""
        if memory.log_past == -np.inf and self.agrees:
            return Advanced(self._longer(memory, data), -np.inf, -np.inf)
        if self.stream is None:
            found = self._advance_by_history(memory, data)
        else:
            found = self._advance_by_state(self.stream, memory, data, first)
        log_unseen = found.log_unseen
        if self.agrees and log_unseen > -np.inf:
            log_unseen = memory.log_past
        log_past = -np.inf if log_unseen == -np.inf else log_unseen + found.log_ratio
        return Advanced(replace(found.memory, log_past=log_past), found.log_ratio, log_unseen)

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
        return run(exact, _to_logarithms(self.program, memory.state)), exact

    def _advance_by_state(
        self, stream: Stream, memory: Memory, data: Sequences, first: bool
    ) -> Advanced:
        job = self.missing.on(data)
        found, arithmetic = self._exactly(
            memory, lambda arithmetic, state: stream.advance(job, arithmetic, state, first)
        )
        log_ratio = _ratio(found.log_seen, found.log_unseen)
        return Advanced(
            Memory(found.state, arithmetic, memory.history), log_ratio, found.log_unseen
        )

    def _advance_by_history(self, memory: Memory, data: Sequences) -> Advanced:
        """Outputs that multiply groups: both prefixes are evaluated afresh."""
        longer = self._longer(memory, data)
        blank = np.concatenate([memory.history, np.full_like(data.values, np.nan)])
        offsets = [0, len(blank), 2 * len(blank)]
        both = Sequences.from_codes(np.concatenate([longer.history, blank]), offsets, data.schema)
        log_seen, log_unseen = likelihood(self.program, both).tolist()
        return Advanced(longer, _ratio(log_seen, log_unseen), log_unseen)

    def predict(self, memory: Memory, first: bool) -> Predicted:
        """Posteriors of the leaves of the next slice; undefined where the past is impossible."""
        if memory.log_past == -np.inf and self.agrees:
            return Predicted(np.empty(0), -np.inf)
        if self.stream is None:
            found = self._predict_by_history(memory)
        else:
            stream = self.stream
            own, _ = self._exactly(
                memory, lambda arithmetic, state: stream.predict(arithmetic, state, first)
            )
            found = Predicted(own.posterior, own.log_unseen)
        comparable = self.agrees and found.log_unseen > -np.inf
        return found._replace(log_unseen=memory.log_past) if comparable else found

    def _predict_by_history(self, memory: Memory) -> Predicted:
        data = with_missing_slice(self.program, memory.history)
        posterior = np.empty(self.program.template.load_bank.size)

        def collect(segment: SegmentFlows) -> None:
            at, lane = np.nonzero(segment.active & (segment.rows == data.total_slices - 1))
            if at.size:
                posterior[:] = segment.leaves(at, lane).posterior[:, 0]

        return Predicted(posterior, float(posterior_flows(self.program, data, collect)[0]))

    def fingerprint(self) -> Floats:
        """That of the network, byte by byte."""
        return bytewise(self.program.network.fingerprint)

    def saved(self, memory: Memory, num_slices: int, log_likelihood: float) -> FilterState:
        """A copy of the memory as plain arrays."""
        state = memory.state
        return FilterState(
            num_slices,
            log_likelihood,
            not memory.arithmetic.is_linear,
            _NOTHING if state is None else state.v.copy(),
            _NOTHING if state is None else state.exponents.astype(np.float64),
            memory.history.copy(),
            self.fingerprint(),
        )

    def restored(self, saved: FilterState) -> Memory:
        """The memory that `saved` has kept."""
        fresh = self.fresh()
        self._check_shapes(saved, fresh)
        state = fresh.state
        if state is not None:
            exponents = saved.exponents.astype(np.int64)
            state = state._replace(v=saved.vectors.copy(), exponents=exponents)
        arithmetic: Arithmetic = Logarithmic() if saved.in_logarithms else Linear()
        return Memory(state, arithmetic, saved.history.copy(), saved.log_likelihood)

    def _check_shapes(self, saved: FilterState, fresh: Memory) -> None:
        """Raises unless the arrays of a state have the shapes that this track gives them."""
        state, schema = fresh.state, self.program.network.schema
        shapes = {
            "vectors": _NOTHING.shape if state is None else state.v.shape,
            "exponents": _NOTHING.shape if state is None else state.exponents.shape,
            "history": (saved.num_slices if state is None else 0, len(schema)),
        }
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


def _ratio(log_seen: float, log_unseen: float) -> float:
    """The difference; -inf where there is no past to compare with."""
    return -np.inf if log_unseen == -np.inf else log_seen - log_unseen


def _to_logarithms(program: Program, state: State) -> State:
    """A linear state as logarithms, exponents included."""
    group = program.input_group
    with np.errstate(divide="ignore"):
        v = np.log(state.v) + state.exponents[group] * _LOG_TWO
    return state._replace(v=v, exponents=np.zeros_like(state.exponents))

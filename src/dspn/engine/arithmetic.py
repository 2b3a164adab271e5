"""The two number systems the passes run in, behind one interface: linear with exponents, and logarithms."""

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.blocks import Batch, Segment
from dspn.engine.kernels import linear, logarithmic
from dspn.engine.program import Program, Weights
from dspn.engine.tables import Tables

_LOG_TWO = float(np.log(2.0))


class State(NamedTuple):
    """What a pass carries from position to position, one column for each lane.

    `v` is the interface vector (upward: values, downward: derivatives); `exponents` has a row for each group and
    as many rows of working space; `scale` sums the logarithms of table divisors; `dead` is the position at which
    a lane's value became zero, -1 while it has not.
    """

    v: Floats
    exponents: Ints
    scale: Floats
    dead: Ints

    def copy(self) -> "State":
        """The same values in arrays of their own."""
        return State(*(array.copy() for array in self))


class Flows(NamedTuple):
    """What the downward pass writes for the positions of one segment; empty arrays are not written.

    `mass[p, g, l]`: root value through group g up to a scale. `interface[p, i, l]`: posterior of output row i.
    `derivative[p, i, l]`: derivative at output row i. `flow[p, i, l]`: posterior of load i.
    `leave_out[p, v, l]`: P(others) / P(all) for the entry of variable v.
    """

    mass: Floats
    exponents: Ints
    interface: Floats
    derivative: Floats
    flow: Floats
    leave_out: Floats


def new_flows(
    program: Program,
    num_positions: int,
    width: int,
    *,
    interface: bool = False,
    derivative: bool = False,
    leaves: bool = False,
) -> Flows:
    """Arrays for the flows of one segment."""
    operations = program.template.operations
    groups = (num_positions, program.num_groups, width)
    none = np.empty((0, 0, 0))
    return Flows(
        np.zeros(groups),
        np.zeros(groups, dtype=np.int64),
        np.zeros((num_positions, operations.num_inputs, width)) if interface else none,
        np.zeros((num_positions, operations.num_inputs, width)) if derivative else none,
        np.zeros((num_positions, operations.num_loads, width)) if leaves else none,
        np.zeros((num_positions, len(program.network.schema), width)) if leaves else none,
    )


class Arithmetic(ABC):
    """Upward and downward passes over the positions of a segment, and over the top network."""

    @property
    @abstractmethod
    def is_linear(self) -> bool:
        """Whether tables hold scaled densities rather than logarithms."""

    @abstractmethod
    def weights(self, program: Program, segment: Segment) -> Weights:
        """Weights of the segment's network."""

    @abstractmethod
    def start(self, program: Program, width: int) -> State:
        """The state below position 0: every input at 1."""

    @abstractmethod
    def upward(
        self,
        program: Program,
        tables: Tables,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
    ) -> None:
        """Moves the state up through a segment; a non-empty store receives every input vector."""

    @abstractmethod
    def top(self, program: Program, state: State) -> tuple[Floats, Floats]:
        """Log value of the root for each lane, and the values of the top network's rows."""

    @abstractmethod
    def top_derivatives(self, program: Program, values: Floats) -> State:
        """Derivatives of the root at the outputs of the topmost slice, as the state of a downward pass."""

    @abstractmethod
    def downward(
        self,
        program: Program,
        tables: Tables,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
        flows: Flows,
    ) -> None:
        """Moves derivatives down through a segment and writes its flows."""


def _rows(program: Program, width: int) -> Floats:
    return np.empty((program.template.operations.num_rows, width))


def _widest_product(program: Program) -> int:
    starts = program.template.operations.op_start
    tops = program.top.operations.op_start
    return int(max(np.diff(starts).max(initial=1), np.diff(tops).max(initial=1)))


def _new_state(program: Program, width: int, value: float) -> State:
    return State(
        np.full((program.num_interfaces, width), value),
        np.zeros((2 * program.num_groups, width), dtype=np.int64),
        np.zeros(width),
        np.full(width, -1, dtype=np.int64),
    )


@final
class Linear(Arithmetic):
    """Values times powers of two. `floor` is added to every value, for an upper bound on what was lost."""

    def __init__(self, floor: float = 0.0) -> None:
        self.floor = floor

    @property
    def is_linear(self) -> bool:
        """Tables hold scaled densities."""
        return True

    def weights(self, program: Program, segment: Segment) -> Weights:
        """Weights of the segment's network."""
        return program.bottom_weights if segment.bottom else program.template_weights

    def start(self, program: Program, width: int) -> State:
        """Every input at 1."""
        return _new_state(program, width, 1.0)

    def upward(
        self,
        program: Program,
        tables: Tables,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
    ) -> None:
        """See `linear.upward`."""
        weights = self.weights(program, segment)
        linear.upward(
            program.template.operations,
            weights.op,
            weights.mix,
            tables,
            batch,
            segment.p0,
            segment.p1,
            state,
            _rows(program, batch.lengths.size),
            store,
            self.floor,
        )

    def top(self, program: Program, state: State) -> tuple[Floats, Floats]:
        """Log root = log(top value) + exponents of the groups it reads + scale."""
        operations = program.top.operations
        rows = np.empty((operations.num_rows, state.v.shape[1]))
        value = np.empty(state.v.shape[1])
        weights = program.top_weights
        linear.top_upward(
            operations,
            weights.op,
            weights.mix,
            state.v,
            rows,
            program.top.root_row,
            self.floor,
            value,
        )
        exponents = state.exponents[list(program.top_groups)].sum(axis=0)
        with np.errstate(divide="ignore"):
            return np.log(value) + exponents * _LOG_TWO + state.scale, rows

    def top_derivatives(self, program: Program, values: Floats) -> State:
        """See `linear.top_downward`."""
        state = _new_state(program, values.shape[1], 0.0)
        derivatives = np.empty_like(values)
        before = np.empty((_widest_product(program) + 1, values.shape[1]))
        weights = program.top_weights
        linear.top_downward(
            program.top.operations,
            weights.op,
            weights.mix,
            values,
            program.top.root_row,
            derivatives,
            before,
            state.v,
        )
        return state

    def downward(
        self,
        program: Program,
        tables: Tables,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
        flows: Flows,
    ) -> None:
        """See `linear.downward`."""
        weights = self.weights(program, segment)
        width = batch.lengths.size
        linear.downward(
            program.template.operations,
            weights.op,
            weights.mix,
            tables,
            batch,
            segment.p0,
            segment.p1,
            state,
            store,
            _rows(program, width),
            _rows(program, width),
            np.empty((_widest_product(program) + 1, width)),
            flows,
        )


@final
class Logarithmic(Arithmetic):
    """Logarithms throughout; with `maximise` sums take their largest term."""

    def __init__(self, *, maximise: bool = False) -> None:
        self.maximise = maximise

    @property
    def is_linear(self) -> bool:
        """Tables hold logarithms."""
        return False

    def weights(self, program: Program, segment: Segment) -> Weights:
        """Log weights of the segment's network."""
        own = program.bottom_weights if segment.bottom else program.template_weights
        return own.logarithms

    def start(self, program: Program, width: int) -> State:
        """Every input at log 1."""
        return _new_state(program, width, 0.0)

    def upward(
        self,
        program: Program,
        tables: Tables,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
    ) -> None:
        """See `logarithmic.log_upward`."""
        weights = self.weights(program, segment)
        logarithmic.log_upward(
            program.template.operations,
            weights.op,
            weights.mix,
            tables,
            batch,
            segment.p0,
            segment.p1,
            state,
            _rows(program, batch.lengths.size),
            store,
            self.maximise,
        )

    def top(self, program: Program, state: State) -> tuple[Floats, Floats]:
        """See `logarithmic.log_top_upward`."""
        operations = program.top.operations
        rows = np.empty((operations.num_rows, state.v.shape[1]))
        value = np.empty(state.v.shape[1])
        weights = program.top_weights.logarithms
        logarithmic.log_top_upward(
            operations,
            weights.op,
            weights.mix,
            state.v,
            rows,
            program.top.root_row,
            value,
            self.maximise,
        )
        return value, rows

    def top_derivatives(self, program: Program, values: Floats) -> State:
        """See `logarithmic.log_top_downward`."""
        state = _new_state(program, values.shape[1], -np.inf)
        derivatives = np.empty_like(values)
        before = np.empty((_widest_product(program) + 1, values.shape[1]))
        weights = program.top_weights.logarithms
        logarithmic.log_top_downward(
            program.top.operations,
            weights.op,
            weights.mix,
            values,
            program.top.root_row,
            derivatives,
            before,
            state.v,
        )
        return state

    def downward(
        self,
        program: Program,
        tables: Tables,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
        flows: Flows,
    ) -> None:
        """See `logarithmic.log_downward`."""
        weights = self.weights(program, segment)
        width = batch.lengths.size
        logarithmic.log_downward(
            program.template.operations,
            weights.op,
            weights.mix,
            tables,
            batch,
            segment.p0,
            segment.p1,
            state,
            store,
            _rows(program, width),
            _rows(program, width),
            np.empty((_widest_product(program) + 1, width)),
            flows,
        )

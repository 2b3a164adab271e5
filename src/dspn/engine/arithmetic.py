"""The two number systems of the passes, linear with exponents and logarithmic, as one interface."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.blocks import Segment
from dspn.engine.coding import Codes
from dspn.engine.kernels import downward, logarithmic, slices, upward
from dspn.engine.program import Program, TemplateWeights
from dspn.engine.records import (
    Batch,
    Coefficients,
    EdgeFlows,
    Flows,
    LeafFlows,
    LeafTables,
    State,
)
from dspn.engine.totals import TERMS, plus, scaled_logs
from dspn.engine.underflow import underflows

_NONE = np.empty(0)
NO_EDGES = EdgeFlows(_NONE, _NONE, np.empty((0, 0)))


class TopValues(NamedTuple):
    """Values of the top network for each lane.

    The root is value * 2^powers * exp(scale), of which `scale` is a total. `rows`: all rows of the
    network, in log space as pairs (2, rows, lanes). `lossy`: whether a value underflowed.
    """

    value: Floats
    powers: Ints
    scale: Floats
    rows: Floats
    lossy: bool

    @property
    def total(self) -> Floats:
        """Log root, as a total."""
        return plus(self.scale, *scaled_logs(self.value, self.powers))


class Arithmetic(ABC):
    """Runs the slice part, the mix part slice after slice, and the top network, up and down.

    Methods that return a bool say whether a value may have been lost to the range of numbers.
    """

    @property
    @abstractmethod
    def is_linear(self) -> bool:
        """Whether values are scaled densities rather than logarithms."""

    def exponents(self, values: Floats) -> Ints | Floats:
        """Numbers as the exponents of a state: whole ones in linear space."""
        return values.astype(np.int64) if self.is_linear else values

    def num_rows(self, program: Program) -> int:
        """Rows of an interface vector as a state has it."""
        return program.num_interfaces * (1 if self.is_linear else 2)

    def new_state(self, program: Program, width: int, value: float) -> State:
        """A state with every entry of the interface vector at a value."""
        v = np.zeros((self.num_rows(program), width))
        v[: program.num_interfaces] = value
        exponents = self.exponents(np.zeros((2 * program.num_groups, width)))
        return State(v, exponents, np.zeros((TERMS, width)))

    def new_flows(
        self,
        program: Program,
        num_positions: int,
        width: int,
        *,
        interface: bool = False,
        derivative: bool = False,
        seed: bool = False,
    ) -> Flows:
        """Arrays for the flows of one segment; those that are not asked for are empty."""
        groups, inputs = program.num_groups, program.num_interfaces
        none = np.empty((0, 0, 0))

        def room(rows: int, asked: bool) -> Floats:
            return np.zeros((num_positions, rows, width)) if asked else none

        return Flows(
            room(groups, True),
            room(inputs, interface),
            room(self.num_rows(program), derivative),
            self.exponents(room(2 * groups, derivative)),
            room(TERMS, derivative),
            room(program.num_coefficients, seed),
        )

    @abstractmethod
    def weights(self, program: Program, bottom: bool) -> TemplateWeights:
        """Weights of the bottom network or of the template."""

    @abstractmethod
    def slice_values(
        self,
        program: Program,
        bottom: bool,
        tables: LeafTables,
        codes: Codes,
        rows: Ints,
        out: Coefficients,
    ) -> bool:
        """Coefficients of the slices `rows` of the data."""

    @abstractmethod
    def slice_flows(
        self,
        program: Program,
        bottom: bool,
        tables: LeafTables,
        codes: Codes,
        rows: Ints,
        shift: Ints,
        seeds: Floats,
        edges: EdgeFlows = NO_EDGES,
        weight: Floats | None = None,
    ) -> LeafFlows:
        """Posteriors of the leaves of the slices `rows`, from the seeds of their coefficients.

        Adds the flows of the slice part's sums to `edges`; logarithmic seeds count with the slice's
        `weight` there. `leave_out` comes back as a logarithm in either arithmetic.
        """

    @abstractmethod
    def start(self, program: Program, width: int) -> State:
        """The state below position 0: every input at 1."""

    @abstractmethod
    def upward(
        self,
        program: Program,
        given: Coefficients,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
    ) -> bool:
        """Moves the state up through a segment; a non-empty store receives every input vector."""

    @abstractmethod
    def top(self, program: Program, state: State) -> TopValues:
        """The root's value for each lane."""

    @abstractmethod
    def top_row_derivatives(self, program: Program, values: Floats) -> Floats:
        """Derivatives of the root at every row of the top network, given the rows' values."""

    @abstractmethod
    def top_derivatives(self, program: Program, values: Floats) -> State:
        """Derivatives of the root at the outputs of the topmost slice, to begin a downward pass."""

    @abstractmethod
    def downward(
        self,
        program: Program,
        given: Coefficients,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
        flows: Flows,
        weight: Floats | None = None,
        edges: EdgeFlows = NO_EDGES,
    ) -> bool:
        """Moves derivatives down through a segment; writes its flows, adds those of the edges."""


def _new_leaf_flows(program: Program, count: int) -> LeafFlows:
    loads = program.template.slice_part.operations.num_loads
    left_out = np.empty((len(program.network.schema), count))
    return LeafFlows(np.empty((loads, count)), left_out, _NONE)


@final
@dataclass(frozen=True)
class Linear(Arithmetic):
    """Values times powers of two.

    `floor` is added to every value: the results are then an upper bound, and tell what was lost.
    """

    floor: float = 0.0

    @property
    def is_linear(self) -> bool:
        """Values are scaled densities."""
        return True

    def weights(self, program: Program, bottom: bool) -> TemplateWeights:
        """Weights as they are."""
        return program.weights(bottom)

    def slice_values(
        self,
        program: Program,
        bottom: bool,
        tables: LeafTables,
        codes: Codes,
        rows: Ints,
        out: Coefficients,
    ) -> bool:
        """See `slices.slice_values`."""
        return underflows(
            slices.slice_values,
            program.template.slice_part.operations,
            self.weights(program, bottom).slice_part.op,
            tables,
            codes,
            rows,
            program.template.mix_part.operations.load_group,
            program.template.scalable,
            out,
            self.floor,
        )

    def slice_flows(
        self,
        program: Program,
        bottom: bool,
        tables: LeafTables,
        codes: Codes,
        rows: Ints,
        shift: Ints,
        seeds: Floats,
        edges: EdgeFlows = NO_EDGES,
        weight: Floats | None = None,
    ) -> LeafFlows:
        """See `slices.slice_flows`."""
        found = _new_leaf_flows(program, rows.size)
        self._slice_flows(program, bottom, tables, codes, rows, shift, seeds, edges, found)
        with np.errstate(divide="ignore", invalid="ignore"):
            return found._replace(leave_out=np.log(found.leave_out))

    def _slice_flows(
        self,
        program: Program,
        bottom: bool,
        tables: LeafTables,
        codes: Codes,
        rows: Ints,
        shift: Ints,
        seeds: Floats,
        edges: EdgeFlows,
        found: LeafFlows,
    ) -> None:
        slices.slice_flows(
            program.template.slice_part.operations,
            self.weights(program, bottom).slice_part.op,
            tables,
            codes,
            rows,
            program.template.mix_part.operations.load_group,
            shift,
            seeds,
            program.widest,
            found,
            edges,
        )

    def slice_counts(
        self,
        program: Program,
        bottom: bool,
        tables: LeafTables,
        codes: Codes,
        rows: Ints,
        shift: Ints,
        seeds: Floats,
        edges: EdgeFlows,
    ) -> Floats:
        """Posteriors of the leaves summed by code; only where every variable is tabulated."""
        none = np.empty((0, 0))
        found = LeafFlows(none, none, np.zeros(tables.values.size))
        self._slice_flows(program, bottom, tables, codes, rows, shift, seeds, edges, found)
        return found.counts

    def start(self, program: Program, width: int) -> State:
        """Every input at 1."""
        return self.new_state(program, width, 1.0)

    def upward(
        self,
        program: Program,
        given: Coefficients,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
    ) -> bool:
        """See `upward.upward`."""
        weights = self.weights(program, segment.bottom).mix_part
        return underflows(
            upward.upward,
            program.template.mix_part.operations,
            weights.op,
            weights.mix,
            given,
            batch,
            segment.p0,
            segment.p1,
            state,
            store,
            self.floor,
        )

    def top(self, program: Program, state: State) -> TopValues:
        """Log root = log(top value) + exponents of the groups it reads + scale."""
        operations = program.top.part.operations
        rows = np.empty((operations.num_rows, state.v.shape[1]))
        value = np.empty(state.v.shape[1])
        lossy = underflows(
            upward.top_upward,
            operations,
            program.top_weights.op,
            state.v,
            rows,
            program.top.root_row,
            self.floor,
            value,
        )
        powers = state.exponents[list(program.top_groups)].sum(axis=0).astype(np.int64)
        return TopValues(value, powers, state.scale, rows, lossy)

    def top_row_derivatives(self, program: Program, values: Floats) -> Floats:
        """See `downward.top_downward`."""
        derivatives = np.zeros(values.shape)
        downward.top_downward(
            program.top.part.operations,
            program.top_weights.op,
            values,
            program.top.root_row,
            program.widest,
            derivatives,
        )
        return derivatives

    def top_derivatives(self, program: Program, values: Floats) -> State:
        """The first rows are the interface."""
        state = self.new_state(program, values.shape[1], 0.0)
        state.v[...] = self.top_row_derivatives(program, values)[: program.num_interfaces]
        return state

    def downward(
        self,
        program: Program,
        given: Coefficients,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
        flows: Flows,
        weight: Floats | None = None,
        edges: EdgeFlows = NO_EDGES,
    ) -> bool:
        """See `downward.downward`."""
        weights = self.weights(program, segment.bottom).mix_part
        return underflows(
            downward.downward,
            program.template.mix_part.operations,
            weights.op,
            weights.mix,
            given,
            batch,
            segment.p0,
            segment.p1,
            state,
            store,
            program.widest,
            np.ones(batch.lengths.size) if weight is None else weight,
            flows,
            edges,
            self.floor,
        )


@final
@dataclass(frozen=True)
class Logarithmic(Arithmetic):
    """Logarithms throughout; with `maximise` sums take their largest term."""

    maximise: bool = False

    @property
    def is_linear(self) -> bool:
        """Values are logarithms."""
        return False

    def weights(self, program: Program, bottom: bool) -> TemplateWeights:
        """Log weights."""
        return program.weights(bottom).logarithms

    def slice_values(
        self,
        program: Program,
        bottom: bool,
        tables: LeafTables,
        codes: Codes,
        rows: Ints,
        out: Coefficients,
    ) -> bool:
        """See `logarithmic.log_slice_values`."""
        logarithmic.log_slice_values(
            program.template.slice_part.operations,
            self.weights(program, bottom).slice_part.op,
            tables,
            codes,
            rows,
            out,
            self.maximise,
        )
        return False

    def slice_flows(
        self,
        program: Program,
        bottom: bool,
        tables: LeafTables,
        codes: Codes,
        rows: Ints,
        shift: Ints,
        seeds: Floats,
        edges: EdgeFlows = NO_EDGES,
        weight: Floats | None = None,
    ) -> LeafFlows:
        """See `logarithmic.log_slice_flows`."""
        found = _new_leaf_flows(program, rows.size)
        logarithmic.log_slice_flows(
            program.template.slice_part.operations,
            self.weights(program, bottom).slice_part.op,
            tables,
            codes,
            rows,
            seeds,
            program.widest,
            np.ones(rows.size) if weight is None else weight,
            found,
            edges,
        )
        return found

    def start(self, program: Program, width: int) -> State:
        """Every input at log 1."""
        return self.new_state(program, width, 0.0)

    def upward(
        self,
        program: Program,
        given: Coefficients,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
    ) -> bool:
        """See `logarithmic.log_upward`."""
        weights = self.weights(program, segment.bottom).mix_part
        logarithmic.log_upward(
            program.template.mix_part.operations,
            weights.op,
            weights.mix,
            given,
            batch,
            segment.p0,
            segment.p1,
            state,
            store,
            self.maximise,
        )
        return False

    def top(self, program: Program, state: State) -> TopValues:
        """See `logarithmic.log_top_upward`."""
        operations = program.top.part.operations
        rows = np.empty((2, operations.num_rows, state.v.shape[1]))
        weights = program.top_weights.logarithms
        logarithmic.log_top_upward(operations, weights.op, state.v, rows, self.maximise)
        high, low = rows[:, program.top.root_row]
        groups = np.array(program.top_groups)
        terms = state.exponents[np.concatenate([groups, program.num_groups + groups])]
        ones, none = np.ones(high.size), np.zeros(high.size, dtype=np.int64)
        return TopValues(ones, none, plus(state.scale, *terms, low, high), rows, False)

    def top_row_derivatives(self, program: Program, values: Floats) -> Floats:
        """See `logarithmic.log_top_downward`."""
        derivatives = np.empty(values.shape)
        logarithmic.log_top_downward(
            program.top.part.operations,
            program.top_weights.logarithms.op,
            values,
            program.top.root_row,
            program.widest,
            derivatives,
        )
        return derivatives

    def top_derivatives(self, program: Program, values: Floats) -> State:
        """The first rows are the interface."""
        state = self.new_state(program, values.shape[2], -np.inf)
        found = self.top_row_derivatives(program, values)[:, : program.num_interfaces]
        state.v[...] = found.reshape(state.v.shape)
        return state

    def downward(
        self,
        program: Program,
        given: Coefficients,
        batch: Batch,
        segment: Segment,
        state: State,
        store: Floats,
        flows: Flows,
        weight: Floats | None = None,
        edges: EdgeFlows = NO_EDGES,
    ) -> bool:
        """See `logarithmic.log_downward`."""
        weights = self.weights(program, segment.bottom).mix_part
        logarithmic.log_downward(
            program.template.mix_part.operations,
            weights.op,
            weights.mix,
            given,
            batch,
            segment.p0,
            segment.p1,
            state,
            store,
            program.widest,
            np.ones(batch.lengths.size) if weight is None else weight,
            flows,
            edges,
        )
        return False

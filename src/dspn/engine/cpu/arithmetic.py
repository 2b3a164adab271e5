"""The number systems of the passes: linear with exponents, and logarithmic."""

import ctypes
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.base import TERMS, plus
from dspn.engine.cpu.kernels import general, logarithmic, slices
from dspn.engine.cpu.program import CpuProgram
from dspn.engine.cpu.records import Coefficients, EdgeFlows, Flows, LeafFlows, Slices, Span, State

_NONE: Final = np.empty(0)
_NO_ROWS: Final = np.empty((0, 0))
NO_EDGES: Final = EdgeFlows(_NONE, _NONE, _NO_ROWS)
# log 2 = _HIGH + _LOW. The first has 26 bits, so that its products with whole numbers are exact.
_HIGH: Final = 46516319 / 2**26
_LOW: Final = 1.2996506893889889e-08
_COARSE: Final = 2.0**26
_ROOT_OF_HALF: Final = 0.5**0.5

# The processor's underflow flag, raised by any operation whose tiny result was not exact.
_FLAG: Final = {"x86_64": 0x10, "amd64": 0x10, "aarch64": 0x08, "arm64": 0x08}.get(
    platform.machine().lower(), 0
)


def _flag_functions() -> tuple[Callable[[int], int], Callable[[int], int]] | None:
    if platform.system() not in ("Linux", "Darwin") or not _FLAG:
        return None
    try:
        library = ctypes.PyDLL(None)
        return library.feclearexcept, library.fetestexcept
    except (OSError, AttributeError):
        return None


_FLAG_FUNCTIONS: Final = _flag_functions()


def underflows(kernel: Callable[..., None], *arguments: Any) -> bool:
    """Runs a compiled kernel and says whether it may have underflowed.

    Where the flag cannot be read the answer is always yes. The flag belongs to the thread and
    NumPy's own operations clear it, so it is read as soon as the kernel returns.
    """
    if _FLAG_FUNCTIONS is None:
        kernel(*arguments)
        return True
    clear, test = _FLAG_FUNCTIONS
    clear(_FLAG)
    kernel(*arguments)
    return bool(test(_FLAG))


def scaled_logs(values: Floats, exponents: Ints) -> list[Floats]:
    """Terms that add up to log(values) + exponents * log 2; all are 0 where that is log 1."""
    mantissas, own = np.frexp(values)
    small = mantissas < _ROOT_OF_HALF
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(small, 2.0 * mantissas, mantissas))
    *exact, low = powers_of_two(exponents + own - small)
    return [*exact, low + logs]


def powers_of_two(exponents: Ints) -> list[Floats]:
    """Terms that add up to exponents * log 2; all but the last are exact below 2^53."""
    whole = exponents.astype(np.float64)
    coarse = np.trunc(whole / _COARSE) * _COARSE
    exact = [(whole - coarse) * _HIGH]
    if coarse.any():
        exact.insert(0, coarse * _HIGH)
    return [*exact, whole * _LOW]


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


@final
@dataclass(frozen=True)
class Arithmetic:
    """Runs the slice part, the mix part slice after slice, and the top network, up and down.

    Linear values are scaled densities times powers of two; a `floor` is added to every value, so
    that the results are an upper bound and tell what was lost. Otherwise values are logarithms, and
    with `maximise` sums take their largest term. Methods that return a bool say whether a value may
    have been lost to the range of numbers.
    """

    is_linear: bool = True
    floor: float = 0.0
    maximise: bool = False

    def exponents(self, values: Floats) -> Ints | Floats:
        """Numbers as the exponents of a state: whole ones in linear space."""
        return values.astype(np.int64) if self.is_linear else values

    def num_rows(self, program: CpuProgram) -> int:
        """Rows of an interface vector as a state has it."""
        return program.num_interfaces * (1 if self.is_linear else 2)

    def start(self, program: CpuProgram, width: int, value: float = 1.0) -> State:
        """A state with every entry of the interface vector at a value; 1 below position 0."""
        v = np.zeros((self.num_rows(program), width))
        with np.errstate(divide="ignore"):
            v[: program.num_interfaces] = value if self.is_linear else np.log(value)
        exponents = self.exponents(np.zeros((2 * program.num_groups, width)))
        return State(v, exponents, np.zeros((TERMS, width)))

    def new_flows(
        self,
        program: CpuProgram,
        span: Span,
        *,
        interface: bool = False,
        derivative: bool = False,
        seed: bool = False,
    ) -> Flows:
        """Arrays for the flows of one segment; those that are not asked for are empty."""
        groups, inputs, width = program.num_groups, program.num_interfaces, span.batch.lengths.size
        num_positions = span.segment.p1 - span.segment.p0

        def room(rows: int, asked: bool) -> Floats:
            return np.zeros((num_positions, rows, width) if asked else (0, 0, 0))

        return Flows(
            room(groups, True),
            room(inputs, interface),
            room(self.num_rows(program), derivative),
            self.exponents(room(2 * groups, derivative)),
            room(TERMS, derivative),
            room(program.num_coefficients, seed),
        )

    def slice_values(
        self, program: CpuProgram, bottom: bool, own: Slices, out: Coefficients
    ) -> bool:
        """Coefficients of some slices."""
        layout, part = program.template, program.weights(bottom, self.is_linear).slice_part
        if not self.is_linear:
            logarithmic.log_slice_values(part, own, out, self.maximise)
            return False
        groups = layout.mix_part.operations.load_group
        return underflows(slices.slice_values, part, own, groups, layout.scalable, out, self.floor)

    def slice_flows(
        self,
        program: CpuProgram,
        bottom: bool,
        own: Slices,
        shift: Ints,
        seeds: Floats,
        edges: EdgeFlows = NO_EDGES,
        weight: Floats | None = None,
        counted: bool = False,
        left_out: bool = False,
    ) -> LeafFlows:
        """Posteriors of the leaves of some slices, from the seeds of their coefficients.

        Adds the flows of the slice part's sums to `edges`; logarithmic seeds count with the slice's
        `weight` there. With `left_out` there is `leave_out`, as a logarithm in either arithmetic.
        With `counted` posteriors are summed by code instead; only where every variable is
        tabulated.
        """
        part, count = program.weights(bottom, self.is_linear).slice_part, own.rows.size
        found = LeafFlows(
            np.empty((0 if counted else part.ops.num_loads, count)),
            np.empty((len(program.network.schema) if left_out else 0, count)),
            np.zeros(own.tables.values.size if counted else 0),
        )
        if self.is_linear:
            groups = program.template.mix_part.operations.load_group
            rest = (groups, shift, seeds, program.widest, found, edges)
            slices.slice_flows(part, own, *rest)
            with np.errstate(divide="ignore", invalid="ignore"):
                return found._replace(leave_out=np.log(found.leave_out))
        lane_weights = np.ones(count) if weight is None else weight
        logarithmic.log_slice_flows(part, own, seeds, program.widest, lane_weights, found, edges)
        return found

    def upward(self, program: CpuProgram, span: Span, state: State, store: Floats) -> bool:
        """Moves the state up through a segment; a non-empty store receives every input vector."""
        part = program.weights(span.segment.bottom, self.is_linear).mix_part
        if self.is_linear:
            return underflows(general.upward, part, span, state, store, self.floor)
        logarithmic.log_upward(part, span, state, store, self.maximise)
        return False

    def downward(
        self,
        program: CpuProgram,
        span: Span,
        state: State,
        store: Floats,
        flows: Flows,
        weight: Floats | None = None,
        edges: EdgeFlows = NO_EDGES,
    ) -> bool:
        """Moves derivatives down through a segment; writes its flows, adds those of the edges."""
        part = program.weights(span.segment.bottom, self.is_linear).mix_part
        lane_weights = np.ones(span.batch.lengths.size) if weight is None else weight
        own = (part, span, state, store, program.widest, lane_weights, flows)
        if self.is_linear:
            return underflows(general.downward, *own, edges, self.floor)
        logarithmic.log_downward(*own, edges)
        return False

    def top(self, program: CpuProgram, state: State) -> TopValues:
        """The root's value for each lane.

        In linear space log root = log(top value) + exponents of the groups it reads + scale.
        """
        operations, width = program.top.part.operations, state.v.shape[1]
        root, groups = program.top.root_row, list(program.top_groups)
        if self.is_linear:
            rows, value = np.empty((operations.num_rows, width)), np.empty(width)
            own = (program.top_weights(), state.v, rows, root, self.floor, value)
            lossy = underflows(slices.top_upward, *own)
            powers = state.exponents[groups].sum(axis=0).astype(np.int64)
            return TopValues(value, powers, state.scale, rows, lossy)
        rows = np.empty((2, operations.num_rows, width))
        logarithmic.log_top_upward(program.top_weights(False), state.v, rows, self.maximise)
        terms = state.exponents[groups + [program.num_groups + group for group in groups]]
        scale = plus(state.scale, *terms, rows[1, root], rows[0, root])
        return TopValues(np.ones(width), np.zeros(width, dtype=np.int64), scale, rows, False)

    def top_row_derivatives(self, program: CpuProgram, values: Floats) -> Floats:
        """Derivatives of the root at every row of the top network, given the rows' values."""
        derivatives = np.zeros(values.shape)
        kernel = slices.top_downward if self.is_linear else logarithmic.log_top_downward
        own = (program.top_weights(self.is_linear), values, program.top.root_row, program.widest)
        kernel(*own, derivatives)
        return derivatives

    def top_derivatives(self, program: CpuProgram, values: Floats) -> State:
        """Derivatives of the root at the outputs of the topmost slice, to begin a downward pass."""
        state = self.start(program, values.shape[-1], 0.0)
        rows = self.top_row_derivatives(program, values)[..., : program.num_interfaces, :]
        state.v[...] = rows.reshape(state.v.shape)
        return state


LINEAR: Final = Arithmetic()
LOGARITHMIC: Final = Arithmetic(is_linear=False)
BEST: Final = Arithmetic(is_linear=False, maximise=True)
# Results with this floor under every value are an upper bound; see `passes`.
BOUND: Final = Arithmetic(floor=1e-300)

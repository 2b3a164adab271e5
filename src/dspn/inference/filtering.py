"""A stream of slices, one at a time: surprise of each, and the distribution of the next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from dspn._arrays import Floats
from dspn._checks import require_type
from dspn.engine import Program, likelihood
from dspn.engine.arithmetic import Arithmetic, Linear, Logarithmic
from dspn.engine.job import Job
from dspn.engine.prefixes import missing_slice, reads_one_group_each
from dspn.engine.records import State
from dspn.errors import DataError, EvidenceError
from dspn.inference._streams import Advance, Downward, Prediction, Stream, Upward
from dspn.inference.filter_state import FilterState
from dspn.inference.marginals import Marginals, Mixer, checked_levels, leaf_rows, marginals_at
from dspn.sequences import Sequences
from dspn.sequences.reading import SliceReader
from dspn.structure.network import Root

_ROW: Final = np.zeros(1, dtype=np.int64)
_LOG_TWO: Final = float(np.log(2.0))
_NOTHING: Final = np.empty((0, 0))

_Found = TypeVar("_Found", Advance, Prediction)


@final
@dataclass(frozen=True)
class Step:
    """-log P_t(x_t | x_1..x_{t-1}) of the newest slice, and minus the sum of these so far.

    With the root at the first slice and a tied bottom `log_likelihood` is log P(x_1..x_t).
    """

    surprise: float
    log_likelihood: float


def _stream(program: Program, missing: Job) -> Stream | None:
    """The steps of a stream; None where the slices themselves have to be kept."""
    if program.network.root == Root.LAST:
        return Upward(program, missing)
    return Downward(program, missing) if reads_one_group_each(program) else None


@final
class Filter:
    """One stream: `update` with each slice, `predict` the next, `state` to stop and go on later."""

    def __init__(self, program: Program, state: FilterState | None = None) -> None:
        self._program = program
        self._schema = program.network.schema
        self._read = SliceReader(self._schema)
        self._missing = Job.for_stream(program, missing_slice(program))
        self._stream = _stream(program, self._missing)
        self._arithmetic: Arithmetic = Linear()
        self._count = 0
        self._log_likelihood = 0.0
        self._history = np.empty((0, len(self._schema)))
        self._state = None if self._stream is None else self._stream.fresh(self._arithmetic)
        if state is not None:
            self._restore(state)

    def _restore(self, saved: FilterState) -> None:
        require_type(
            saved, FilterState, "state", EvidenceError, remedy="`Filter.state` gives the state"
        )
        if not np.array_equal(saved.fingerprint, self._fingerprint()):
            raise EvidenceError(
                "`state` belongs to another model: the variables, structure, parameters or root of "
                "its network differ. Use the model that the stream was begun with."
            )
        if saved.is_dead_end:
            raise EvidenceError(
                "`state` has nothing but zeros in its vectors: no slice can follow, or the state "
                "is damaged. Start a new filter, or go back to an earlier state."
            )
        self._check_shapes(saved)
        self._arithmetic = Logarithmic() if saved.in_logarithms else Linear()
        if self._state is not None:
            exponents = saved.exponents.astype(np.int64)
            self._state = self._state._replace(v=saved.vectors.copy(), exponents=exponents)
        self._history = saved.history.copy()
        self._count = saved.num_slices
        self._log_likelihood = saved.log_likelihood

    def _check_shapes(self, saved: FilterState) -> None:
        """Raises unless the arrays of a state have the shapes that this filter gives them."""
        state, width = self._state, len(self._schema)
        shapes = {
            "vectors": _NOTHING.shape if state is None else state.v.shape,
            "exponents": _NOTHING.shape if state is None else state.exponents.shape,
            "history": (saved.num_slices if state is None else 0, width),
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
                Sequences.from_codes(saved.history, [0, len(saved.history)], self._schema)
        except DataError as error:
            raise EvidenceError(f"the history of `state` is damaged: {error}") from None

    def _fingerprint(self) -> Floats:
        return np.frombuffer(self._program.network.fingerprint, dtype=np.uint8).astype(np.float64)

    def state(self) -> FilterState:
        """A copy of everything remembered."""
        state = self._state
        return FilterState(
            self._count,
            self._log_likelihood,
            not self._arithmetic.is_linear,
            _NOTHING if state is None else state.v.copy(),
            _NOTHING if state is None else state.exponents.astype(np.float64),
            self._history.copy(),
            self._fingerprint(),
        )

    def _require_possible(self) -> None:
        """Raises once a slice was impossible."""
        if self._log_likelihood == -np.inf:
            raise EvidenceError(
                f"slice {self._count - 1} of this stream was impossible, so that nothing can be "
                "said of what follows it. Start a new filter, or go back to a saved state."
            )

    def _require_past(self, log_unseen: float) -> None:
        """Raises where the network of one more slice has no room for the slices seen."""
        if log_unseen == -np.inf:
            raise EvidenceError(
                f"the slices before slice {self._count} of this stream are impossible in the "
                f"network of {self._count + 1} slices, so that nothing can be said of it. Networks "
                "of all lengths agree only with `root='first'` and a tied bottom."
            )

    def update(self, values: ArrayLike) -> Step:
        """Takes in the next slice and returns its surprise; NaN or None is missing.

        Categories are given as they are, not by their codes. An impossible slice has infinite
        surprise; nothing can follow it, and a further update raises. A slice that is refused leaves
        the stream as it was.
        """
        self._require_possible()
        data = self._read(values, f"slice {self._count} of this stream")
        if self._stream is None:
            log_ratio = self._advance_by_history(data)
        else:
            log_ratio = self._advance(self._stream, data)
        self._count += 1
        self._log_likelihood += log_ratio
        return Step(-log_ratio, self._log_likelihood)

    def _exactly(self, run: Callable[[Arithmetic, State], _Found]) -> tuple[_Found, Arithmetic]:
        """What `run` finds, in logarithms where linear arithmetic loses something."""
        assert self._state is not None
        found, exact = run(self._arithmetic, self._state), Logarithmic()
        if not (self._arithmetic.is_linear and found.lossy):
            return found, self._arithmetic
        return run(exact, _to_logarithms(self._program, self._state)), exact

    def _advance(self, stream: Stream, data: Sequences) -> float:
        job, first = self._missing.on(data), self._count == 0
        found, arithmetic = self._exactly(
            lambda arithmetic, state: stream.advance(job, arithmetic, state, first)
        )
        self._require_past(found.log_unseen)
        self._state, self._arithmetic = found.state, arithmetic
        return found.log_seen - found.log_unseen

    def _advance_by_history(self, data: Sequences) -> float:
        """Outputs that multiply groups: both prefixes are evaluated afresh."""
        longer = np.concatenate([self._history, data.values])
        blank = np.concatenate([self._history, np.full_like(data.values, np.nan)])
        offsets = [0, len(longer), 2 * len(longer)]
        both = Sequences.from_codes(np.concatenate([longer, blank]), offsets, self._schema)
        log_seen, log_unseen = likelihood(self._program, both).tolist()
        self._require_past(log_unseen)
        self._history = longer
        return float(log_seen - log_unseen)

    def predict(self, *, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Marginals:
        """P(x_{t+1} | x_1..x_t), entry by entry: marginals of a single slice."""
        levels = checked_levels(quantiles)
        self._require_possible()
        if self._stream is None:
            return self._predict_by_history(levels)
        stream, first = self._stream, self._count == 0
        found, _ = self._exactly(lambda arithmetic, state: stream.predict(arithmetic, state, first))
        self._require_past(found.log_unseen)
        at_bottom = first or self._program.network.root == Root.FIRST
        parameters = self._program.leaf_parameters(at_bottom)
        marginals = []
        for variable, bank in enumerate(self._program.network.template.banks):
            mixer = Mixer(self._schema[variable], bank.family, levels, 1)
            loads, members = leaf_rows(self._program, variable)
            mixer.put(_ROW, found.posterior[loads][None], parameters[variable][members])
            marginals.append(mixer.result(_ROW))
        return Marginals(self._schema, np.array([self._log_likelihood]), tuple(marginals))

    def _predict_by_history(self, levels: tuple[float, ...]) -> Marginals:
        values = np.concatenate([self._history, np.full((1, len(self._schema)), np.nan)])
        wanted = np.zeros(values.shape, dtype=np.bool_)
        wanted[-1] = True
        data = Sequences.from_codes(values, [0, len(values)], self._schema)
        return marginals_at(self._program, data, wanted, levels)


def _to_logarithms(program: Program, state: State) -> State:
    """A linear state as logarithms, exponents included."""
    group = program.input_group
    with np.errstate(divide="ignore"):
        v = np.log(state.v) + state.exponents[group] * _LOG_TWO
    return state._replace(v=v, exponents=np.zeros_like(state.exponents))

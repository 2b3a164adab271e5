"""A stream of slices, one at a time: surprise of each, and the distribution of the next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike

from dspn._arrays import Floats
from dspn._checks import require_type
from dspn.data.sequences import SliceReader
from dspn.engine import Program
from dspn.engine.totals import TERMS, difference, log_shares, plus, rounded
from dspn.errors import EvidenceError
from dspn.inference._tracks import Memory, Track, bytewise, with_missing_slice
from dspn.inference.filter_state import FilterState
from dspn.inference.leaf_mixtures import Marginals, Mixer, checked_levels, leaf_rows
from dspn.inference.marginals import marginals_at
from dspn.inference.mixed import AnyProgram, MixedProgram, schema_of
from dspn.structure.network import Root

_ROW: Final = np.zeros(1, dtype=np.int64)
_NOTHING: Final = np.empty((0, 0))


@final
@dataclass(frozen=True)
class Step:
    """-log P_t(x_t | x_1..x_{t-1}) of the newest slice, and minus the sum of these so far.

    With the root at the first slice and a tied bottom `log_likelihood` is log P(x_1..x_t).
    """

    surprise: float
    log_likelihood: float


@final
class Filter:
    """One stream: `update` with each slice, `predict` the next, `state` to stop and go on later.

    The stream of a mixture is a track for each component that has a weight, and counts as much as
    the component's posterior given the slices so far.
    """

    def __init__(self, program: AnyProgram, state: FilterState | None = None) -> None:
        self._is_mixed = isinstance(program, MixedProgram)
        parts = list(program.parts) if isinstance(program, MixedProgram) else [(0, 0.0, program)]
        self._program = program
        self._log_weights = np.array([log_weight for _, log_weight, _ in parts])
        self._tracks = [Track(own) for _, _, own in parts]
        self._memories = [track.fresh() for track in self._tracks]
        self._schema = schema_of(program)
        self._read = SliceReader(self._schema)
        self._count = 0
        self._total = np.zeros(TERMS)
        if state is not None:
            self._restore(state)

    def _fingerprint(self) -> Floats:
        program = self._program
        whole = program.network if isinstance(program, Program) else program.mixture
        return bytewise(whole.fingerprint)

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
        parts = saved.components if self._is_mixed else (saved,)
        if len(parts) != len(self._tracks) or any(
            part.num_slices != saved.num_slices for part in parts
        ):
            raise EvidenceError(
                f"`state` must have the states of {len(self._tracks)} components after "
                f"{saved.num_slices} slices, but has those of {len(parts)}, or after other numbers "
                "of slices; the state is damaged, start a new filter."
            )
        self._memories = [
            track.restored(part) for track, part in zip(self._tracks, parts, strict=True)
        ]
        self._count = saved.num_slices
        self._total = np.zeros(TERMS)
        self._total[0] = saved.log_likelihood
        if saved.total.shape == (TERMS,) and rounded(saved.total) == saved.log_likelihood:
            self._total[:] = saved.total

    @property
    def _log_likelihood(self) -> float:
        return float(rounded(self._total))

    def state(self) -> FilterState:
        """A copy of everything remembered."""
        parts = [
            track.saved(memory, self._count, self._log_likelihood)
            for track, memory in zip(self._tracks, self._memories, strict=True)
        ]
        if not self._is_mixed:
            return replace(parts[0], total=self._total.copy())
        return FilterState(
            self._count,
            self._log_likelihood,
            False,
            _NOTHING,
            _NOTHING,
            np.empty((0, len(self._schema))),
            self._fingerprint(),
            total=self._total.copy(),
            components=tuple(parts),
        )

    def _require_possible(self) -> None:
        """Raises once a slice was impossible."""
        if self._log_likelihood == -np.inf:
            raise EvidenceError(
                f"slice {self._count - 1} of this stream was impossible, so that nothing can be "
                "said of what follows it. Start a new filter, or go back to a saved state."
            )

    def _weighted(self, logs: list[Floats]) -> tuple[Floats, Floats]:
        """Log shares of the components, and the log of their weighted sum, from their totals."""
        if len(logs) == 1:  # of weight 1
            return np.zeros(1), logs[0]
        return log_shares(plus(np.stack(logs, axis=1), self._log_weights))

    def _require_past(self, log_unseen: Floats) -> None:
        """Raises where a network of one more slice has no room for the past."""
        if log_unseen[0] == -np.inf:
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
        found = [
            track.advance(memory, data, self._count == 0)
            for track, memory in zip(self._tracks, self._memories, strict=True)
        ]
        _, log_unseen = self._weighted([part.log_unseen for part in found])
        self._require_past(log_unseen)
        _, log_seen = self._weighted([part.log_seen for part in found])
        log_ratio = float(difference(log_seen, log_unseen))
        self._memories = [part.memory for part in found]
        self._count += 1
        self._total = plus(self._total, log_ratio)
        return Step(-log_ratio, self._log_likelihood)

    def predict(self, *, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Marginals:
        """P(x_{t+1} | x_1..x_t), entry by entry: marginals of a single slice."""
        levels = checked_levels(quantiles)
        self._require_possible()
        if not self._is_mixed and self._tracks[0].keeps_history:
            return self._predict_by_history(self._memories[0], levels)
        pairs = zip(self._tracks, self._memories, strict=True)
        found = [track.predict(memory, self._count == 0) for track, memory in pairs]
        own_shares, log_unseen = self._weighted([part.log_unseen for part in found])
        self._require_past(log_unseen)
        shares = np.exp(own_shares)
        at_bottom = self._count == 0 or self._tracks[0].program.network.root == Root.FIRST
        present = [c for c in range(len(found)) if shares[c] > 0]
        marginals = []
        for variable, bank in enumerate(self._tracks[0].program.network.template.banks):
            mixer = Mixer(self._schema[variable], bank.family, levels, 1)
            weights, parameters = [], []
            for c in present:
                program = self._tracks[c].program
                loads, members = leaf_rows(program, variable)
                weights.append(shares[c] * found[c].posterior[loads])
                parameters.append(program.leaf_parameters(at_bottom)[variable][members])
            mixer.put(_ROW, np.concatenate(weights)[None], np.concatenate(parameters))
            marginals.append(mixer.result(_ROW))
        return Marginals(self._schema, np.array([self._log_likelihood]), tuple(marginals))

    def _predict_by_history(self, memory: Memory, levels: tuple[float, ...]) -> Marginals:
        program = self._tracks[0].program
        data = with_missing_slice(program, memory.history)
        wanted = np.zeros(data.values.shape, dtype=np.bool_)
        wanted[-1] = True
        return marginals_at(program, data, wanted, levels)

"""A stream of slices, one at a time: surprise of each, and the distribution of the next."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike

from dspn._arguments import Floats, float_array, require_type
from dspn.data.sequences import Sequences, SliceReader
from dspn.engine.base import (
    TERMS,
    Posteriors,
    Program,
    StreamArrays,
    difference,
    divide_blocks,
    log_shares,
    plus,
    rounded,
    weigh_entries,
)
from dspn.errors import EvidenceError
from dspn.inference.marginals import Marginals, Mixer, checked_levels, leaf_parameters
from dspn.inference.tails import tail_probabilities
from dspn.leaves.base import Contextual
from dspn.leaves.block import carrier_of
from dspn.leaves.told import has_told_gaps, told_values
from dspn.structure.network import Root

_ROW: Final = np.zeros(1, dtype=np.int64)
# Exponents are whole numbers in float64 arrays.
_LARGEST_EXPONENT: Final = 2.0**53
_ARRAYS: Final = ("vectors", "exponents", "history", "fingerprint")
_LATER_ARRAYS: Final = ("scale", "low", "total")  # states of earlier releases do not have them


def _nothing() -> Floats:
    return np.empty((0, 0))


@final
@dataclass(frozen=True, eq=False, repr=False)
class FilterState:
    """Everything a filter remembers, as plain arrays: enough to go on elsewhere, later.

    `vectors` has a column for each term of the top network (root at the first slice) or one column;
    `history` holds the coded slices themselves for the templates that need them and is empty
    otherwise. `fingerprint` is that of the network, byte by byte: a state serves no other model.
    `scale` and `total` hold logarithms in several terms, those of the leaves' divisors and of the
    log-likelihood; `low` is to be added to vectors of logarithms. States of earlier releases have
    none of them.
    A mixture has a state for each component that has a weight, with its own log-likelihood.
    """

    num_slices: int
    log_likelihood: float
    in_logarithms: bool
    vectors: Floats
    exponents: Floats
    history: Floats
    fingerprint: Floats
    scale: Floats = field(default_factory=_nothing)
    low: Floats = field(default_factory=_nothing)
    total: Floats = field(default_factory=_nothing)
    components: tuple["FilterState", ...] = ()

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise EvidenceError(
                f"the state of a filter is damaged: {problem}; save it again, or start anew."
            )
        object.__setattr__(self, "num_slices", int(self.num_slices))
        object.__setattr__(self, "in_logarithms", bool(self.in_logarithms))

    def _problems(self) -> Iterator[str]:
        """What no filter can have written, in words."""
        if not (self.num_slices >= 0 and float(self.num_slices).is_integer()):
            yield f"its number of slices must be a whole number, but is {self.num_slices}"
        if not self.log_likelihood < np.inf:
            yield f"its log-likelihood must be a number, but is {self.log_likelihood}"
        if self.in_logarithms not in (0, 1):
            yield f"its mark of logarithms must be 0 or 1, but is {self.in_logarithms}"
        if self.log_likelihood == -np.inf or not self.vectors.size:
            return
        if not np.all((self.vectors >= self._zero) & (self.vectors < np.inf)):
            yield "its vectors hold what is neither a probability nor its logarithm"
        exponents = np.abs(self.exponents)
        if self.in_logarithms:
            if not np.all(np.isfinite(exponents)):
                yield "its exponents are not all finite"
        elif not np.all((exponents < _LARGEST_EXPONENT) & (exponents == np.floor(exponents))):
            yield "its exponents are not all whole numbers below 2**53"
        if not (np.all(np.isfinite(self.scale)) and np.all(np.isfinite(self.low))):
            yield "its scale is not finite"

    @property
    def _zero(self) -> float:
        return -np.inf if self.in_logarithms else 0.0

    @property
    def arrays(self) -> StreamArrays:
        """What the stream of one network remembers."""
        own = (self.vectors, self.exponents, self.history, self.scale, self.low)
        return StreamArrays(self.in_logarithms, *own)

    @property
    def is_dead_end(self) -> bool:
        """Whether no slice can follow, though all slices so far were possible."""
        parts = self.components or (self,)
        nothing = all(part.vectors.size and not np.any(part.vectors > part._zero) for part in parts)
        return nothing and self.log_likelihood > -np.inf

    def __repr__(self) -> str:
        return (
            f"FilterState(num_slices={self.num_slices}, log_likelihood={self.log_likelihood:.6g})"
        )

    def to_arrays(self) -> dict[str, Floats]:
        """The state as named float64 arrays, ready for any file format.

        The names of a component's arrays begin with its number and a dot.
        """
        scalars = [float(self.num_slices), self.log_likelihood, float(self.in_logarithms)]
        arrays = {name: getattr(self, name).copy() for name in (*_ARRAYS, *_LATER_ARRAYS)}
        for number, component in enumerate(self.components):
            own = component.to_arrays()
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
        return {"scalars": np.array(scalars), **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> "FilterState":
        """The state that `to_arrays` wrote."""
        try:
            fields = [_fields(arrays, "")]
            while f"{len(fields) - 1}.scalars" in arrays:
                fields.append(_fields(arrays, f"{len(fields) - 1}."))
        except (KeyError, ValueError, TypeError) as error:
            raise EvidenceError(
                f"`arrays` must be the state of a filter as `to_arrays` gives it, but is not: "
                f"{error!r}."
            ) from None
        whole, *parts = fields
        return replace(cls(*whole), components=tuple(cls(*part) for part in parts))


def _fields(arrays: Mapping[str, Floats], prefix: str) -> list[Any]:
    """The fields of one state, whose arrays have names that begin with the prefix."""
    count, total, logarithms = (float(number) for number in arrays[f"{prefix}scalars"])
    given = {name: arrays[prefix + name] for name in _ARRAYS}
    given |= {name: arrays.get(prefix + name, _nothing()) for name in _LATER_ARRAYS}
    rest = (
        float_array(array, prefix + name, EvidenceError).copy() for name, array in given.items()
    )
    return [count, total, logarithms, *rest]


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

    The stream of a mixture is one for each component that has a weight, and counts as much as the
    component's posterior given the slices so far.
    """

    def __init__(self, program: Program, state: FilterState | None = None) -> None:
        self._program = program
        self._is_mixed = len(program.components) > 1
        self._log_weights = np.array([log_weight for _, log_weight, _ in program.parts])
        self._read = SliceReader(program.schema)
        self._count = 0
        self._total = np.zeros(TERMS)
        if state is None:
            self._streams = [own.stream() for _, _, own in program.parts]
        else:
            self._restore(state)

    def _restore(self, saved: FilterState) -> None:
        require_type(
            saved, FilterState, "state", EvidenceError, remedy="`Filter.state` gives the state"
        )
        if not np.array_equal(saved.fingerprint, _bytewise(self._program.mixture.fingerprint)):
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
        programs = [own for _, _, own in self._program.parts]
        if len(parts) != len(programs) or any(
            part.num_slices != saved.num_slices for part in parts
        ):
            raise EvidenceError(
                f"`state` must have the states of {len(programs)} components after "
                f"{saved.num_slices} slices, but has those of {len(parts)}, or after other numbers "
                "of slices; the state is damaged, start a new filter."
            )
        self._streams = [
            own.stream(part.arrays, part.num_slices, part.log_likelihood)
            for own, part in zip(programs, parts, strict=True)
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
        parts = []
        for (_, _, own), stream in zip(self._program.parts, self._streams, strict=True):
            logarithms, vectors, exponents, history, scale, low = stream.arrays()
            head = (self._count, self._log_likelihood, logarithms, vectors, exponents, history)
            parts.append(FilterState(*head, _bytewise(own.network.fingerprint), scale, low))
        if not self._is_mixed:
            return replace(parts[0], total=self._total.copy())
        return FilterState(
            *(self._count, self._log_likelihood, False, _nothing(), _nothing()),
            np.empty((0, len(self._program.schema) + len(self._program.schema.inputs))),
            _bytewise(self._program.mixture.fingerprint),
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

    def update(self, values: ArrayLike, inputs: Any = None) -> Step:
        """Takes in the next slice and returns its surprise; NaN or None is missing.

        `inputs` are those of the slice that no rule computes from its number.

        Categories are given as they are, not by their codes. An impossible slice has infinite
        surprise; nothing can follow it, and a further update raises. A slice that is refused leaves
        the stream as it was.
        """
        self._require_possible()
        data = self._read(values, self._place, self._count, inputs)
        found = [stream.advance(data, self._count == 0) for stream in self._streams]
        _, log_unseen = self._weighted([part.log_unseen for part in found])
        self._require_past(log_unseen)
        _, log_seen = self._weighted([part.log_seen for part in found])
        log_ratio = float(difference(log_seen, log_unseen))
        self._streams = [part.stream for part in found]
        self._count += 1
        self._total = plus(self._total, log_ratio)
        return Step(-log_ratio, self._log_likelihood)

    def tails(self, values: ArrayLike, inputs: Any = None) -> Floats:
        """The tail of each entry of a slice that may come next, given the past and the others.

        See `Surprise.tails`; here nothing that follows is known. NaN for missing entries, and where
        the other entries are impossible. The stream stays as it was.
        """
        self._require_possible()
        data = self._read(values, self._place, self._count, inputs)
        observed = np.flatnonzero(~np.isnan(data.values[0]))
        found = self._predictions(data, given=True)
        logs, surprises = (
            [part.log_values[0] for part in found],
            [part.surprises[0, observed] for part in found],
        )
        tails = np.full(len(self._program.schema), np.nan)
        if np.isneginf(logs).any() or np.isnan(surprises).any():
            # What holds the slice impossible may hold it possible without an entry.
            for variable in observed.tolist():
                tails[variable] = self._tail_without(data, variable)
            return tails
        own_shares, _ = self._weighted([part.log_values for part in found])
        numbered = dict(enumerate(found))
        shares, _ = weigh_entries(numbered, own_shares[None])
        for variable in observed.tolist():
            by_component = [float(shares[number][0, variable]) for number in numbered]
            leaves = [part.leaves[variable] for part in found]
            tails[variable] = self._tail(data, variable, leaves, by_component)
        return tails

    @property
    def _at_bottom(self) -> bool:
        """Whether the next slice stands on the bottom network."""
        return self._count == 0 or self._program.root == Root.FIRST

    def _predictions(self, data: Sequences, *, given: bool = False) -> list[Posteriors]:
        """What each stream says of the next slice, see `Stream.predict`."""
        bottom, asked = np.array([self._at_bottom]), np.ones(data.values.shape, dtype=np.bool_)
        found = []
        for (_, _, own), stream in zip(self._program.parts, self._streams, strict=True):
            part = stream.predict(self._count == 0, data, given=given)
            parts = (own.network, data, part, bottom, asked, asked)
            found.append(divide_blocks(*parts, given=given))
        return found

    def _tail_without(self, data: Sequences, variable: int) -> float:
        """The tail of an entry, from a prediction that does not know it; NaN if impossible."""
        values = data.values.copy()
        values[0, variable] = np.nan
        rest = data.with_values(values)
        found = self._predictions(rest, given=True)
        shares, total = self._weighted([part.log_values for part in found])
        if total[0] == -np.inf:
            return np.nan
        leaves = [part.leaves[variable] for part in found]
        return self._tail(data, variable, leaves, np.exp(shares).tolist())

    def _tail(
        self, data: Sequences, variable: int, leaves: list[Floats], shares: Sequence[float]
    ) -> float:
        family = self._program.mixture.components[0].template.banks[variable].family
        mixed = self._mix(leaves, shares, variable, data)
        own = self._program.schema[variable], family, *mixed, data.values[:, variable]
        return float(tail_probabilities(*own)[0])

    def _mix(
        self,
        leaves: list[Floats],
        shares: Sequence[float],
        variable: int,
        data: Sequences,
    ) -> tuple[Floats, Floats]:
        """Weights (1, leaves) and parameters of a variable's leaves at the next slice."""
        program = self._program
        carrier = carrier_of(program.schema, variable)
        weights = [np.zeros(len(n.template.banks[carrier].nodes)) for n in program.mixture]
        for share, (c, _, _), own in zip(shares, program.parts, leaves, strict=True):
            if share > 0:
                weights[c] = share * own[0]
        parameters = leaf_parameters(program, variable, self._at_bottom)
        family = program.mixture.components[0].template.banks[variable].family
        if isinstance(family, Contextual):
            parameters = family.given(parameters, self._next_values(variable, data))[1]
        return np.concatenate(weights)[None], parameters

    def _next_values(self, variable: int, data: Sequences) -> Floats:
        """The value of a variable in the next slice, `data`, with what its leaves are told."""
        history, width = self._streams[0].arrays().history, len(data.schema)
        past = history.reshape(-1, width + len(data.schema.inputs))
        values = np.concatenate([past[:, :width], data.values])
        inputs = np.concatenate([past[:, width:], data.inputs])
        offsets = np.array([0, len(values)])
        known = Sequences.trusted(values, offsets, self._program.schema, inputs=inputs)
        return told_values(known, variable, np.array([len(values) - 1]))

    @property
    def _place(self) -> str:
        return f"slice {self._count} of this stream"

    def predict(
        self, *, quantiles: Sequence[float] = (0.05, 0.5, 0.95), inputs: Any = None
    ) -> Marginals:
        """P(x_{t+1} | x_1..x_t), entry by entry: marginals of a single slice.

        `inputs` are those of that slice, as for `update`.
        """
        levels = checked_levels(quantiles)
        self._require_possible()
        blank = self._read.blank(self._place, self._count, inputs)
        found = self._predictions(blank)
        own_shares, log_unseen = self._weighted([part.log_values for part in found])
        self._require_past(log_unseen)
        program, shares = self._program, np.exp(own_shares).tolist()
        marginals = []
        for variable, bank in enumerate(program.mixture.components[0].template.banks):
            mixer = Mixer(program.schema[variable], bank.family, levels, 1)
            leaves = [part.leaves[variable] for part in found]
            own = self._mix(leaves, shares, variable, blank)
            mixer.put(_ROW, *own)
            marginals.append(mixer.result(_ROW))
        exact = not has_told_gaps(blank)
        total = np.array([self._log_likelihood])
        return Marginals(program.schema, total, tuple(marginals), exact)


def _bytewise(fingerprint: bytes) -> Floats:
    """Bytes as numbers, for states that are arrays of numbers."""
    return np.frombuffer(fingerprint, dtype=np.uint8).astype(np.float64)

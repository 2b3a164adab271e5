"""What a stream remembers, as plain arrays that can be kept anywhere and are checked on return."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import float_array
from dspn.errors import EvidenceError

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

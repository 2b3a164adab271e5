"""A mixture compiled for the engine, and what its components say of the evidence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.data import Schema, Sequences
from dspn.engine import Program, compile_program
from dspn.engine.totals import TERMS, log_shares, plus, rounded
from dspn.inference._observed import observed_totals
from dspn.structure import Mixture
from dspn.structure.network import Root

_NEVER: Final = -np.inf


@final
@dataclass(frozen=True, eq=False)
class MixedProgram:
    """Several networks under one root sum, each compiled by itself."""

    mixture: Mixture
    programs: tuple[Program, ...]

    def __post_init__(self) -> None:
        assert len(self.programs) == len(self.mixture) > 1

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.mixture.schema

    @property
    def root(self) -> Root:
        """Which slice carries the root."""
        return self.mixture.root

    @cached_property
    def log_weights(self) -> Floats:
        """Logarithms of the root sum's weights, -inf for zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.mixture.weights)

    @property
    def parts(self) -> Iterator[tuple[int, float, Program]]:
        """Number, log weight and program of each component that has a weight."""
        numbered = enumerate(zip(self.log_weights.tolist(), self.programs, strict=True))
        return ((c, weight, program) for c, (weight, program) in numbered if weight > _NEVER)


AnyProgram = Program | MixedProgram


def compile_mixture(mixture: Mixture) -> AnyProgram:
    """The compiled mixture: a plain program where there is one component."""
    if len(mixture) == 1:
        return compile_program(mixture.only)
    return MixedProgram(mixture, tuple(compile_program(network) for network in mixture))


def schema_of(program: AnyProgram) -> Schema:
    """The variables of a slice."""
    return program.schema if isinstance(program, MixedProgram) else program.network.schema


def log_joint(program: MixedProgram, data: Sequences) -> Floats:
    """Log weights[c] P_c(observed entries) of each sequence, as totals (TERMS, N, C)."""
    found = np.zeros((TERMS, len(data), len(program.programs)))
    found[0] = _NEVER
    for c, log_weight, own in program.parts:
        found[:, :, c] = plus(observed_totals(own, data), log_weight)
    return found


def evidence_totals(program: AnyProgram, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence, as totals."""
    if isinstance(program, Program):
        return observed_totals(program, data)
    return log_shares(log_joint(program, data))[1]


def evidence_likelihood(program: AnyProgram, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence."""
    return rounded(evidence_totals(program, data))


def rows_of(data: Sequences, chosen: Bools) -> Ints:
    """The slices of the sequences chosen, in their order."""
    return np.flatnonzero(np.repeat(chosen, data.lengths))


def for_each_component(
    program: MixedProgram,
    data: Sequences,
    chosen: Bools,
    work: Callable[[int, Program, Sequences, Bools], None],
) -> None:
    """work(c, its program, its sequences, which they are) for the sequences `chosen[:, c]`.

    A component is not asked about evidence that it holds impossible, where its answers mean
    nothing.
    """
    for c, _, own in program.parts:
        mask = chosen[:, c]
        if mask.all():
            work(c, own, data, mask)
        elif mask.any():
            work(c, own, data[mask], mask)


def bounded_runs(costs: Ints, most: int) -> Iterator[slice]:
    """Runs of neighbours whose costs add up to at most `most`, or single ones that cost more."""
    ends = np.cumsum(costs)
    start, before = 0, 0
    while start < costs.size:
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(start, stop)
        start, before = stop, int(ends[stop - 1])

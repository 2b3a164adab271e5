"""Likelihood of evidence, and of a query given evidence."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.engine.base import Program, difference, log_shares, rounded
from dspn.errors import EvidenceError, ImpossibleEvidenceWarning, warn

_MOST_NAMED: Final = 5


def _sequence_name(data: Sequences, index: int) -> str:
    """How a message refers to a sequence: by number, and by id where it has one."""
    return f"sequence {index}" if data.ids is None else f"sequence {index} (id {data.ids[index]!r})"


def _first_impossible_slices(program: Program, data: Sequences) -> Ints:
    """The first slice of each impossible sequence that is so together with those before it.

    Found by halving: less evidence is never less probable, so as many slices as possible are taken
    as missing from the end. The slice holds an observation, as without it the rest is possible.
    """
    position = np.arange(data.total_slices) - np.repeat(data.offsets[:-1], data.lengths)
    possible, impossible = np.zeros_like(data.lengths), data.lengths
    while (impossible - possible > 1).any():
        middle = (possible + impossible) // 2
        seen = position < np.repeat(middle, data.lengths)
        part = data.with_values(np.where(seen[:, None], data.values, np.nan))
        dead = program.log_likelihood(part) == -np.inf
        possible, impossible = np.where(dead, possible, middle), np.where(dead, middle, impossible)
    return impossible - 1


def _where(program: Program, data: Sequences, impossible: Ints) -> str:
    """Names the impossible sequences, and the slice that makes each of the first few so."""
    named = impossible[:_MOST_NAMED]
    slices = _first_impossible_slices(program, data[named])
    found = [
        f"{_sequence_name(data, index)} at slice {at}"
        for index, at in zip(named.tolist(), slices.tolist(), strict=True)
    ]
    more = impossible.size - named.size
    return ", ".join(found) + (f" and {more} more" if more else "")


def log_likelihood(program: Program, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence; -inf, with a warning, where that is impossible.

    The slice named is the first that, together with those before it, has probability zero.
    """
    found = program.log_likelihood(data)
    impossible = np.flatnonzero(found == -np.inf)
    if impossible.size:
        warn(f"probability zero: {_where(program, data, impossible)}.", ImpossibleEvidenceWarning)
    return found


def require_possible(program: Program, data: Sequences, found: Floats) -> Floats:
    """The log-likelihoods `found`; raises where one is zero and names the slice."""
    impossible = np.flatnonzero(found == -np.inf)
    if impossible.size:
        raise EvidenceError(
            "the evidence has probability zero, so nothing can be conditioned on it: "
            f"{_where(program, data, impossible)}. Mark the impossible entries as missing, or use "
            "a model with smoothed parameters."
        )
    return found


def _joined(query: Sequences, evidence: Sequences) -> Sequences:
    if not np.array_equal(query.offsets, evidence.offsets):
        raise EvidenceError(
            f"`query` and `evidence` must have the same sequences, but have lengths "
            f"{query.lengths.tolist()[:10]} and {evidence.lengths.tolist()[:10]}."
        )
    both = ~np.isnan(query.values) & ~np.isnan(evidence.values)
    clash = both & (query.values != evidence.values)
    if clash.any():
        row, column = (int(found[0]) for found in np.nonzero(clash))
        index = int(np.searchsorted(evidence.offsets, row, side="right")) - 1
        variable = evidence.schema[column]
        given = [
            repr(variable.categories[int(value)]) if variable.categories else f"{value:g}"
            for value in (query.values[row, column], evidence.values[row, column])
        ]
        raise EvidenceError(
            f"`query` and `evidence` contradict each other: {_sequence_name(evidence, index)}, "
            f"slice {row - evidence.offsets[index]}, variable {variable.name!r} is "
            f"{given[0]} in the query and {given[1]} in the evidence. Leave the entry out of one "
            "of them."
        )
    return evidence.with_values(np.where(np.isnan(query.values), evidence.values, query.values))


def log_prob(program: Program, query: Sequences, evidence: Sequences) -> Floats:
    """Log Pr(query | evidence), the difference of two upward passes."""
    joint = _joined(query, evidence)
    given = program.log_totals(evidence)
    require_possible(program, evidence, given[0])
    found = difference(program.log_totals(joint), given)
    # Of categories and counts alone it is a probability, which rounding must not raise above 1.
    is_density = np.array([variable.kind == Kind.CONTINUOUS for variable in query.schema])
    asked = ~np.isnan(query.values) & np.isnan(evidence.values)
    has_density = np.logical_or.reduceat(asked[:, is_density].any(axis=1), query.offsets[:-1])
    return np.where(has_density, found, np.minimum(found, 0.0))


def component_posteriors(program: Program, data: Sequences) -> Floats:
    """P(component | observed entries) of each sequence, (N, C)."""
    shares, total = log_shares(program.log_joint(data))
    require_possible(program, data, rounded(total))
    return np.exp(shares)


def bounded_runs(costs: Ints, most: int) -> Iterator[slice]:
    """Runs of neighbours whose costs add up to at most `most`, or single ones that cost more."""
    ends = np.cumsum(costs)
    start, before = 0, 0
    while start < costs.size:
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(start, stop)
        start, before = stop, int(ends[stop - 1])

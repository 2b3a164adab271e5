"""Likelihood of evidence, and of a query given evidence."""

import warnings

import numpy as np

from dspn._arrays import Floats
from dspn.engine import Likelihood, Program, likelihood
from dspn.errors import EvidenceError, ImpossibleEvidenceWarning
from dspn.sequences import Sequences


def sequence_name(data: Sequences, index: int) -> str:
    """How a message refers to a sequence: by number, and by id where it has one."""
    return f"sequence {index}" if data.ids is None else f"sequence {index} (id {data.ids[index]!r})"


def _where(data: Sequences, found: Likelihood) -> str:
    impossible = np.flatnonzero(found.log_likelihood == -np.inf)
    said = [f"{sequence_name(data, i)} at slice {found.dead_slice[i]}" for i in impossible[:5]]
    more = f" and {impossible.size - 5} more" if impossible.size > 5 else ""
    return ", ".join(said) + more


def log_likelihood(program: Program, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence; -inf, with a warning, where that is impossible.

    The slice named is the one at which every interface node has become impossible, reading away from the bottom
    network.
    """
    found = likelihood(program, data)
    if np.any(found.log_likelihood == -np.inf):
        warnings.warn(
            f"probability zero: {_where(data, found)}.", ImpossibleEvidenceWarning, stacklevel=3
        )
    return found.log_likelihood


def possible_likelihood(program: Program, data: Sequences) -> Floats:
    """Log P(observed entries); raises where it is zero, as nothing can be conditioned on that."""
    found = likelihood(program, data)
    require_possible(data, found)
    return found.log_likelihood


def require_possible(data: Sequences, found: Likelihood) -> None:
    """Raises and names the sequences and slices whose probability is zero."""
    if np.any(found.log_likelihood == -np.inf):
        raise EvidenceError(
            f"the evidence has probability zero, so nothing can be conditioned on it: {_where(data, found)}. "
            "Mark the impossible entries as missing, or use a model with smoothed parameters."
        )


def _joined(query: Sequences, evidence: Sequences) -> Sequences:
    if not np.array_equal(query.offsets, evidence.offsets):
        raise EvidenceError(
            f"`query` and `evidence` must have the same sequences, but have lengths "
            f"{query.lengths.tolist()[:10]} and {evidence.lengths.tolist()[:10]}."
        )
    both = ~np.isnan(query.values) & ~np.isnan(evidence.values)
    clash = both & (query.values != evidence.values)
    if clash.any():
        row, variable = (int(found[0]) for found in np.nonzero(clash))
        index = int(np.searchsorted(evidence.offsets, row, side="right")) - 1
        raise EvidenceError(
            f"`query` and `evidence` contradict each other: {sequence_name(evidence, index)}, slice "
            f"{row - evidence.offsets[index]}, variable {evidence.schema[variable].name!r} is "
            f"{query.values[row, variable]:g} in the query and {evidence.values[row, variable]:g} in the "
            "evidence. Leave the entry out of one of them."
        )
    return evidence.with_values(np.where(np.isnan(query.values), evidence.values, query.values))


def log_prob(program: Program, query: Sequences, evidence: Sequences) -> Floats:
    """Log Pr(query | evidence), the difference of two upward passes."""
    joint = _joined(query, evidence)
    given = possible_likelihood(program, evidence)
    return likelihood(program, joint).log_likelihood - given

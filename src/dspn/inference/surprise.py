"""How unexpected each slice and each entry is."""

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints, whole_number
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.engine.base import TERMS, NetworkProgram, Program, difference, log_shares, plus
from dspn.errors import EvidenceError
from dspn.inference.likelihood import bounded_runs
from dspn.inference.marginals import leaf_mixtures
from dspn.inference.tails import (
    Cell,
    cells_at,
    oddest_places,
    responsibilities,
    tail_probabilities,
)
from dspn.leaves.block import carrier_of
from dspn.leaves.told import has_lags

_MOST_SLICES: Final = 1 << 18


@final
@dataclass(frozen=True, eq=False, repr=False)
class Surprise:
    """Surprises in nats, and tail probabilities.

    `slices[t]` = -log P_t(x_t | x_1..x_{t-1}), P_t being the network of t slices; with the root at
    the first slice and a tied bottom they add up to -log P of the sequence. An impossible slice has
    +inf, those after it NaN. `variables[t, v]` = -log P(x_v^t | every other observed entry of the
    sequence), NaN where the entry is missing or the sequence is impossible.

    `tails[t, v]` is the probability of a value as far out as x_v^t, given the same: twice the
    smaller of P(X <= x) and P(X >= x) for numbers and counts, and the probability of all categories
    at most as probable as x for categories. It does not depend on the unit of a variable, so that
    tails of all variables compare. NaN where `variables` is, except that in an impossible sequence
    an entry without which the sequence is possible has the tail 0.

    Where leaves are told entries (lags), the slices are right, but `variables` are not `exact`: an
    entry is left out of its own slice and still told to those after it.
    """

    slices: Floats
    variables: Floats
    tails: Floats
    sequences: Sequences
    exact: bool = True

    def __repr__(self) -> str:
        total, variables = self.variables.shape
        return f"Surprise(total_slices={total}, num_variables={variables})"

    def to_frame(self, library: str = "pandas") -> Any:
        """A row for each slice: nats of each entry and of the slice, and the tail of each entry.

        `library` is "pandas", "polars" or "pyarrow".
        """
        from dspn.inference.frames import surprise_frame

        return surprise_frame(self, library)

    def oddest(self, most: int = 20) -> tuple[Cell, ...]:
        """The entries of the smallest tails, the oddest first; of equal ones by surprise."""
        places = oddest_places(
            self.tails, self.variables, whole_number(most, "most", EvidenceError)
        )
        return cells_at(self.sequences, *places, self.tails, self.variables)


def usual_surprises(surprises: Floats) -> Floats:
    """The median surprise of each variable's entries; 0 for a variable without any."""
    known = [own[np.isfinite(own)] for own in surprises.T]
    return np.array([np.median(own) if own.size else 0.0 for own in known])


def surprise(program: Program, data: Sequences, *, fitted: bool = False) -> Surprise:
    """Surprise by slice (given the past) and by entry (given everything else).

    With `fitted` the data are those that the model was learned from. An odd value may then have a
    leaf that was learned from nothing else; tails take from the weight of each leaf the share that
    the entry itself has in it, so that no value vouches for itself. Nats stay as they are.
    """
    entries = _entry_surprises(program, data, fitted)
    return Surprise(_slice_surprises(program, data), *entries, data, not has_lags(data.schema))


def _slice_surprises(program: Program, data: Sequences) -> Floats:
    """-log P_t(x_t | x_1..x_{t-1}), with P_t the weighted sum of the components.

    It is +inf for an impossible slice and NaN where the past is impossible in all components.
    """
    found = [(log_weight, own.prefixes(data)) for _, log_weight, own in program.parts]
    if len(found) == 1:
        return -difference(*found[0][1])
    seen, unseen = (
        log_shares(np.stack([plus(own[i], weight) for weight, own in found], axis=1), axis=0)[1]
        for i in (0, 1)
    )
    return -difference(seen, unseen)


def _entry_surprises(program: Program, data: Sequences, fitted: bool) -> tuple[Floats, Floats]:
    """-log P(entry | all others), and the tail of each entry given all others."""
    observed = ~np.isnan(data.values)
    surprises, tails = np.full(data.values.shape, np.nan), np.full(data.values.shape, np.nan)
    log_likelihood = np.empty(len(data))
    counts = _leaf_counts(program, data, observed) if fitted else None
    _put_tails(program, data, observed, tails, log_likelihood, surprises, counts=counts)
    possible = log_likelihood > -np.inf
    known = observed & np.repeat(possible, data.lengths)[:, None]
    surprises, tails = np.where(known, surprises, np.nan), np.where(known, tails, np.nan)
    if not possible.all():
        rows = np.flatnonzero(np.repeat(~possible, data.lengths))
        for _, _, own in program.parts:
            slices, variables, _ = _left_out(own, data[~possible])
            tails[rows[slices], variables] = 0.0
    if len(program.parts) > 1:
        _add_ruled_out(program, data, surprises, tails)
    discrete = [variable.kind is not Kind.CONTINUOUS for variable in data.schema]
    # A probability of 1 may be rounded to a little more; 0.0 is added as minus zero is shown.
    surprises[:, discrete] = np.maximum(surprises[:, discrete], 0.0) + 0.0
    return surprises, tails


def _put_tails(
    program: Program,
    data: Sequences,
    wanted: Bools,
    tails: Floats,
    log_likelihood: Floats,
    surprises: Floats | None = None,
    values: Floats | None = None,
    counts: list[Floats] | None = None,
) -> None:
    """Writes the tails of the wanted entries of `values`, by default the data's own.

    With `counts`, the number of entries that each leaf stands for, the share of the entry itself is
    taken from its leaves.
    """
    banks = program.mixture.components[0].template.banks
    own_values = data.values if values is None else values
    slices = [np.flatnonzero(column) for column in wanted.T]
    for variable, entries, weights, parameters in leaf_mixtures(
        program, data, wanted, log_likelihood, surprises
    ):
        rows, family = slices[variable][entries], banks[variable].family
        own = own_values[rows, variable]
        if counts is not None:
            share = responsibilities(family, weights, parameters, own)
            total = np.maximum(counts[variable], np.finfo(np.float64).tiny)
            weights = weights * (np.maximum(total - share, 0.0) / total)
        tails[rows, variable] = tail_probabilities(
            data.schema[variable], family, weights, parameters, own
        )


def _leaf_counts(program: Program, data: Sequences, observed: Bools) -> list[Floats]:
    """The expected number of entries that each leaf has made, by variable."""
    banks = [network.template.banks for network in program.mixture]
    carriers = [carrier_of(data.schema, v) for v in range(data.num_variables)]
    counts = [np.zeros(sum(len(own[v].nodes) for own in banks)) for v in carriers]
    slices = [np.flatnonzero(column) for column in observed.T]
    surprises, log_likelihood = np.empty(data.values.shape), np.empty(len(data))
    for v, entries, weights, parameters in leaf_mixtures(
        program, data, observed, log_likelihood, surprises
    ):
        values = data.values[slices[v][entries], v]
        counts[v] += responsibilities(banks[0][v].family, weights, parameters, values).sum(axis=0)
    return counts


def _add_ruled_out(program: Program, data: Sequences, surprises: Floats, tails: Floats) -> None:
    """Adds what components say that hold a sequence impossible, where others do not.

    -log P(entry | all others) = log sum_c P(c | all) P_c(all others) / P_c(all). A component that
    holds the sequence impossible may hold it possible, and likely, without an entry.
    """
    joint = program.log_joint(data)
    total = log_shares(joint)[1]
    possible = total[0] > -np.inf
    changed = np.zeros(data.values.shape, dtype=np.bool_)
    for c, log_weight, own in program.parts:
        ruled_out = possible & (joint[0, :, c] == -np.inf)
        if not ruled_out.any():
            continue
        rows = np.flatnonzero(np.repeat(ruled_out, data.lengths))
        slices, variables, log_values = _left_out(own, data[ruled_out])
        evidence = np.repeat(total, data.lengths, axis=1)[:, rows[slices]]
        log_ratio = difference(plus(log_values, log_weight), evidence)
        places = rows[slices], variables
        surprises[places] = np.logaddexp(surprises[places], log_ratio)
        changed[places] = True
    rows, variables = np.nonzero(changed)
    owners = np.searchsorted(data.offsets, rows, side="right") - 1
    for run in bounded_runs(data.lengths[owners], _MOST_SLICES):
        part = data[owners[run]]
        asked = np.zeros(part.values.shape, dtype=np.bool_)
        places = rows[run] - data.offsets[owners[run]] + part.offsets[:-1], variables[run]
        asked[places] = True
        without = part.with_values(np.where(asked, np.nan, part.values))
        found = np.empty(part.values.shape)
        _put_tails(program, without, asked, found, np.empty(len(part)), values=part.values)
        tails[rows[run], variables[run]] = found[places]


def _left_out(program: NetworkProgram, data: Sequences) -> tuple[Ints, Ints, Floats]:
    """Slices, variables and log P(all other entries) of entries of impossible sequences.

    They are those without which the sequence is possible; log P is a total. Less evidence is never
    less probable: where a sequence stays impossible without a whole range of entries, none of them
    matters, and a range that does is halved. The number of ranges looked at is that of the entries
    found times the logarithm of the length, unless several entries contradict each other.
    """
    observed = ~np.isnan(data.values)
    counts = np.add.reduceat(observed.sum(axis=1), data.offsets[:-1])
    sequence = np.arange(len(data))
    low, high = np.zeros_like(counts), counts
    singles, found = [], []
    while sequence.size:
        log_values = _without(program, data, sequence, low, high)
        hit = log_values[0] > -np.inf
        sequence, low, high, log_values = sequence[hit], low[hit], high[hit], log_values[:, hit]
        single = high - low == 1
        singles.append((np.cumsum(counts) - counts)[sequence[single]] + low[single])
        found.append(log_values[:, single])
        sequence, low, high = sequence[~single], low[~single], high[~single]
        middle = (low + high) // 2
        sequence = np.concatenate([sequence, sequence])
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    places = np.flatnonzero(observed.ravel())[np.concatenate(singles)]
    slices, variables = np.divmod(places, data.num_variables)
    return slices, variables, np.concatenate(found, axis=1)


def _without(
    program: NetworkProgram, data: Sequences, sequence: Ints, low: Ints, high: Ints
) -> Floats:
    """Log P of sequence[i] less its observed entries low[i] .. high[i] - 1, for every i."""
    log_values = np.empty((TERMS, sequence.size))
    for run in bounded_runs(data.lengths[sequence], _MOST_SLICES):
        part = data[sequence[run]]
        observed = ~np.isnan(part.values)
        number = (np.cumsum(observed.ravel()) - 1).reshape(observed.shape)
        first = np.append(0, np.cumsum(observed.sum(axis=1)))[part.offsets[:-1]]
        since, until = (
            np.repeat(first + bound[run], part.lengths)[:, None] for bound in (low, high)
        )
        taken = (number >= since) & (number < until)
        values = np.where(taken, np.nan, part.values)
        log_values[:, run] = program.log_totals(part.with_values(values))
    return log_values

"""Tail probabilities: how far out a value lies under a mixture of leaves."""

from typing import Any, Final, NamedTuple

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.schema import Kind, Variable
from dspn.data.sequences import Sequences
from dspn.leaves.base import Contextual, Family, plain_family
from dspn.leaves.told import paired_log_prob, row_tails

# Cells (entry, leaf) that are held at a time: 32 MiB.
_MOST_CELLS: Final = 1 << 22
# Probabilities this close, relatively, are equal.
_ROUNDING: Final = 1e-12


def tail_probabilities(
    variable: Variable, family: Family, weights: Floats, parameters: Floats, values: Floats
) -> Floats:
    """P(something as far out as the value) under the mixture of each entry, (entries,).

    For numbers and counts it is twice the smaller of P(X <= value) and P(X >= value), at most 1;
    for points of a circle (a family with a `period`) the probability of all points at least as far
    from the mean direction of the leaves; for categories the probability of all categories that
    are at most as probable as the value. NaN where the weights are no mixture.

    Args:
        variable: The variable of the entries.
        family: The family of its leaves.
        weights: Weights of the leaves, a row for each entry; rows are normalised.
        parameters: The leaves, or those of each entry in its context (entries, leaves, P).
        values: The value of each entry, coded.
    """
    out = np.empty(len(values))
    height = max(1, _MOST_CELLS // max(1, weights.shape[1]))
    for start in range(0, len(values), height):
        part = slice(start, start + height)
        shares = np.ascontiguousarray(weights[part])
        with np.errstate(all="ignore"):
            shares = shares / shares.sum(axis=1, keepdims=True)
            own = parameters[part] if parameters.ndim == 3 else parameters
            if variable.kind == Kind.CATEGORICAL:
                out[part] = _as_rare(shares, own, values[part].astype(np.int64))
            elif isinstance(family, Contextual):
                out[part] = _two_sided_in_context(family.plain, shares, own, values[part])
            elif hasattr(family, "period"):
                out[part] = _around(family, shares, own, values[part])
            else:
                out[part] = _two_sided(family, shares, own, values[part])
    return out


def leaf_log_probs(family: Family, parameters: Floats, values: Floats) -> Floats:
    """Log p(value | leaf), (entries, leaves); leaves may be those of each entry, (E, L, P)."""
    plain = plain_family(family)
    if parameters.ndim == 2:
        return plain.log_prob(parameters, values)
    count, leaves, width = parameters.shape
    rows = parameters.reshape(count * leaves, width)
    return paired_log_prob(plain, rows, np.repeat(values, leaves)).reshape(count, leaves)


def responsibilities(family: Family, weights: Floats, parameters: Floats, values: Floats) -> Floats:
    """P(leaf | entry and all others), from P(leaf | all others); 0 where it is not known."""
    with np.errstate(all="ignore"):
        logs = np.log(weights) + leaf_log_probs(family, parameters, values)
        logs -= logs.max(axis=1, keepdims=True)
        shares = np.exp(logs)
        shares = shares / shares.sum(axis=1, keepdims=True)
    return np.asarray(np.nan_to_num(shares, nan=0.0))


def _as_rare(shares: Floats, parameters: Floats, codes: Ints) -> Floats:
    """The probability of all categories that are at most as probable as the given one."""
    columns = np.moveaxis(parameters, -1, 0)
    chances = np.stack([(shares * own).sum(axis=1) for own in columns], axis=1)
    own = np.take_along_axis(chances, codes[:, None], axis=1)
    rare = np.where(chances <= own * (1.0 + _ROUNDING), chances, 0.0)
    return np.asarray(np.minimum(rare.sum(axis=1), 1.0))


def _two_sided(family: Family, shares: Floats, parameters: Floats, values: Floats) -> Floats:
    """Twice the smaller of P(X <= x) and P(X >= x), at most 1."""
    points, place = values, np.arange(len(values))
    if family.is_discrete:  # many entries share few values
        points, place = np.unique(values, return_inverse=True)
    below = family.cdf(parameters, points)[place]
    above = family.sf(parameters, points - 1.0 if family.is_discrete else points)[place]
    tails = np.minimum((shares * below).sum(axis=1), (shares * above).sum(axis=1))
    return np.asarray(np.minimum(2.0 * tails, 1.0))


def _two_sided_in_context(
    family: Family, shares: Floats, parameters: Floats, values: Floats
) -> Floats:
    """The same for leaves of each entry by itself, (E, L, P)."""
    below = row_tails(family, parameters, values, 1.0)
    points = values - 1.0 if family.is_discrete else values
    above = row_tails(family, parameters, points, -1.0)
    tails = np.minimum((shares * below).sum(axis=1), (shares * above).sum(axis=1))
    return np.asarray(np.minimum(2.0 * tails, 1.0))


def _around(family: Any, shares: Floats, parameters: Floats, values: Floats) -> Floats:
    """P(at least as far from the mean direction of the leaves the shorter way round)."""
    period, low = float(family.period), float(family.low)
    turn = 2.0 * np.pi / period
    angles = (family.mean(parameters) - low) * turn
    cosine, sine = (shares * np.cos(angles)).sum(axis=1), (shares * np.sin(angles)).sum(axis=1)
    centre = low + np.arctan2(sine, cosine) / turn
    away = np.abs(np.mod(values - centre + period / 2, period) - period / 2)
    begin, end = (low + np.mod(centre + side * away - low, period) for side in (1.0, -1.0))
    below_end = (shares * family.cdf(parameters, end)).sum(axis=1)
    below_begin = (shares * family.cdf(parameters, begin)).sum(axis=1)
    above_begin = (shares * family.sf(parameters, begin)).sum(axis=1)
    outside = np.where(begin <= end, below_end - below_begin, below_end + above_begin)
    return np.asarray(np.clip(np.where(away == 0, 1.0, outside), 0.0, 1.0))


class Cell(NamedTuple):
    """One observed entry and how unexpected it is.

    `sequence` is the id of its sequence, or the number where there are no ids; `slice` counts from
    0 within the sequence. `tail` and `surprise` are those of `Surprise`.
    """

    sequence: Any
    slice: int
    variable: str
    value: Any
    tail: float
    surprise: float


def oddest_places(tails: Floats, surprises: Floats, most: int) -> tuple[Ints, Ints]:
    """Rows and columns of the entries of the smallest tails, the most surprising of equal ones.

    Entries without a tail are left out; an impossible entry counts as infinitely surprising.
    """
    known = np.flatnonzero(~np.isnan(tails.ravel()))
    own = tails.ravel()[known]
    if own.size > most:
        bound = np.partition(own, most - 1)[most - 1]
        known, own = known[own <= bound], own[own <= bound]
    nats = np.nan_to_num(surprises.ravel()[known], nan=np.inf)
    chosen = known[np.lexsort((known, -nats, own))][:most]
    rows, columns = np.divmod(chosen, tails.shape[1])
    return rows, columns


def cells_at(
    data: Sequences, rows: Ints, columns: Ints, tails: Floats, surprises: Floats
) -> tuple[Cell, ...]:
    """The entries at rows and columns, in the words of the data."""
    owners = np.searchsorted(data.offsets, rows, side="right") - 1
    found = []
    for row, column, owner in zip(rows.tolist(), columns.tolist(), owners.tolist(), strict=True):
        variable, code = data.schema[column], float(data.values[row, column])
        value: Any = variable.categories[int(code)] if variable.categories else code
        name = owner if data.ids is None else data.ids[owner]
        place = int(row - data.offsets[owner])
        own = float(tails[row, column]), float(surprises[row, column])
        found.append(Cell(name, place, variable.name, value, *own))
    return tuple(found)

"""What a model says of entries before it sees them: probabilities, and where a number falls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.engine import Program
from dspn.inference.likelihood import bounded_runs, require_possible
from dspn.inference.marginals import leaf_mixtures
from dspn.sequences import Kind, Sequences, Variable

_MOST_SLICES: Final = 1 << 16


@final
@dataclass(frozen=True, eq=False)
class Predicted:
    """Predictions of entries of one variable, and the values that they turned out to have.

    A categorical variable has `probabilities` (entries, categories). Others have `below` and
    `up_to`, P(X < value) and P(X <= value), which differ for a count.
    """

    variable: Variable
    values: Floats
    probabilities: Floats
    below: Floats
    up_to: Floats


def joined(parts: Sequence[Predicted]) -> Predicted:
    """All predictions of one variable."""
    return Predicted(
        parts[0].variable,
        np.concatenate([own.values for own in parts]),
        np.concatenate([own.probabilities for own in parts]),
        np.concatenate([own.below for own in parts]),
        np.concatenate([own.up_to for own in parts]),
    )


def predicted(
    program: Program, evidence: Sequences, wanted: Bools, truth: Floats
) -> list[Predicted]:
    """P(entry | evidence) of the wanted entries, missing from `evidence`, at their true values."""
    banks = program.mixture.components[0].template.banks
    values = [truth[own, n] for n, own in enumerate(wanted.T)]
    found = [
        Predicted(v, own, np.zeros((own.size, v.num_categories)), *np.zeros((2, own.size)))
        for v, own in zip(evidence.schema, values, strict=True)
    ]
    log_likelihood = np.empty(len(evidence))
    for n, entries, weights, parameters in leaf_mixtures(program, evidence, wanted, log_likelihood):
        shares = weights / weights.sum(axis=1, keepdims=True)
        own, family = found[n], banks[n].family
        if own.variable.kind is Kind.CATEGORICAL:
            own.probabilities[entries] = shares @ parameters
            continue
        at = values[n][entries]
        lower = at - 1.0 if own.variable.kind is Kind.COUNT else at
        own.up_to[entries] = (shares * family.cdf(parameters, at)).sum(axis=1)
        own.below[entries] = (shares * family.cdf(parameters, lower)).sum(axis=1)
    require_possible(program, evidence, log_likelihood)
    return found


def left_out_entries(
    data: Sequences, columns: Sequence[int], share: float, rng: np.random.Generator
) -> Bools:
    """A share of the observed entries of some variables, at least one, drawn without order."""
    eligible = np.zeros(data.values.shape, dtype=np.bool_)
    eligible[:, list(columns)] = ~np.isnan(data.values[:, list(columns)])
    places = np.flatnonzero(eligible)
    count = max(1, round(share * places.size))
    chosen = np.zeros(eligible.size, dtype=np.bool_)
    chosen[rng.choice(places, size=count, replace=False)] = True
    return chosen.reshape(eligible.shape)


def beginnings(data: Sequences, wanted: Bools, steps: int) -> Iterator[tuple[Sequences, Ints]]:
    """The slices up to each one with wanted entries, in batches of bounded size.

    The last `steps` slices of each beginning are blank; every beginning must have as many. With
    each batch come the slices of `data` that its slices are.
    """
    ends = np.flatnonzero(wanted.any(axis=1))
    starts = np.repeat(data.offsets[:-1], data.lengths)[ends]
    lengths = ends - starts + 1
    for run in bounded_runs(lengths, _MOST_SLICES):
        own = lengths[run]
        offsets = np.concatenate([[0], np.cumsum(own)])
        rows = np.arange(offsets[-1]) + np.repeat(starts[run] - offsets[:-1], own)
        values = data.values[rows]
        values[offsets[1:, None] - np.arange(1, steps + 1)] = np.nan
        yield Sequences.from_codes(values, offsets, data.schema), rows

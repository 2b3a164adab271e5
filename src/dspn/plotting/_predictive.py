"""What a model says of entries before it sees them: probabilities, and where a number falls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.data import Kind, Sequences, Variable
from dspn.engine import Program, SegmentFlows, posterior_flows
from dspn.inference.leaf_mixtures import leaf_rows
from dspn.inference.likelihood import log_posteriors, possible_likelihood
from dspn.inference.mixed import AnyProgram, bounded_runs, for_each_component, rows_of

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


@final
class _Collector:
    """Consumes flows of one component and keeps what it says of the wanted entries.

    Tables have a row for each slice. They are written over, not added to, since a linear pass that
    lost something is repeated.
    """

    def __init__(self, program: Program, wanted: Bools, truth: Floats) -> None:
        schema = program.network.schema
        self.program = program
        self.wanted = wanted
        self.truth = truth
        self.leaves = [leaf_rows(program, variable) for variable in range(len(schema))]
        self.probabilities = [np.zeros((len(truth), v.num_categories)) for v in schema]
        self.below = np.zeros(truth.shape)
        self.up_to = np.zeros(truth.shape)

    def __call__(self, segment: SegmentFlows) -> None:
        wanted = segment.active & self.wanted[segment.rows].any(axis=2)
        if not wanted.any():
            return
        posteriors = segment.leaves(*np.nonzero(wanted)).posterior
        rows = segment.rows[wanted]
        parameters = self.program.leaf_parameters(segment.bottom)
        for variable, (loads, members) in enumerate(self.leaves):
            places = np.flatnonzero(self.wanted[rows, variable])
            weights = posteriors[loads][:, places].T
            self._put(variable, rows[places], weights, parameters[variable][members])

    def _put(self, variable: int, rows: Ints, weights: Floats, parameters: Floats) -> None:
        """The entry at each row is the mixture of the leaves with these weights."""
        totals = weights.sum(axis=1)
        whole = (totals > 0) & np.isfinite(totals)
        rows, weights = rows[whole], weights[whole] / totals[whole, None]
        kind = self.program.network.schema[variable].kind
        if kind is Kind.CATEGORICAL:
            self.probabilities[variable][rows] = weights @ parameters
            return
        family = self.program.network.template.banks[variable].family
        values = self.truth[rows, variable]
        self.up_to[rows, variable] = (weights * family.cdf(parameters, values)).sum(axis=1)
        lower = values - 1.0 if kind is Kind.COUNT else values
        self.below[rows, variable] = (weights * family.cdf(parameters, lower)).sum(axis=1)


def predicted(
    program: AnyProgram, evidence: Sequences, wanted: Bools, truth: Floats
) -> list[Predicted]:
    """P(entry | evidence) of the wanted entries, missing from `evidence`, at their true values."""
    schema = evidence.schema
    probabilities = [np.zeros((len(truth), v.num_categories)) for v in schema]
    below, up_to = np.zeros(truth.shape), np.zeros(truth.shape)

    def add(own: Program, part: Sequences, rows: Ints, share: Floats) -> None:
        collector = _Collector(own, wanted[rows], truth[rows])
        posterior_flows(own, part, collector)
        below[rows] += share[:, None] * collector.below
        up_to[rows] += share[:, None] * collector.up_to
        for table, found in zip(probabilities, collector.probabilities, strict=True):
            table[rows] += share[:, None] * found

    _for_shares(program, evidence, add)
    return [
        Predicted(v, truth[own, n], probabilities[n][own], below[own, n], up_to[own, n])
        for n, (v, own) in enumerate(zip(schema, wanted.T, strict=True))
    ]


class _Work(Protocol):
    def __call__(self, own: Program, part: Sequences, rows: Ints, share: Floats, /) -> None: ...


def _for_shares(program: AnyProgram, data: Sequences, work: _Work) -> None:
    """Each component's program with its sequences, their slices and its posterior at them."""
    if isinstance(program, Program):
        possible_likelihood(program, data)
        work(program, data, np.arange(data.total_slices), np.ones(data.total_slices))
        return
    shares = np.exp(log_posteriors(program, data))

    def weighted(c: int, own: Program, part: Sequences, mask: Bools) -> None:
        work(own, part, rows_of(data, mask), np.repeat(shares[mask, c], part.lengths))

    for_each_component(program, data, shares > 0, weighted)


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

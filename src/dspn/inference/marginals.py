"""Conditional distributions of all missing entries at once, from one upward and one downward pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.engine import Program, SegmentFlows, likelihood, posterior_flows
from dspn.errors import EvidenceError
from dspn.inference.likelihood import require_possible
from dspn.leaves import Family
from dspn.sequences import Kind, Schema, Sequences, Variable


@final
@dataclass(frozen=True, eq=False)
class VariableMarginals:
    """P(entry | evidence) of one variable's missing entries, each the exact mixture of its leaves.

    `slices[e]` is the row of entry e in the data's `values`. A categorical variable has `probabilities` (entries,
    categories); others have `mean`, `variance` and `quantiles` (entries, levels). What does not apply is NaN or None.
    """

    variable: Variable
    slices: Ints
    probabilities: Floats | None
    mean: Floats
    variance: Floats
    levels: tuple[float, ...]
    quantiles: Floats

    def point(self) -> Floats:
        """The most probable category, the median of a count, the mean of a continuous variable."""
        if self.probabilities is not None:
            return self.probabilities.argmax(axis=1).astype(np.float64)
        if self.variable.kind == Kind.COUNT:
            return self.quantiles[:, self.levels.index(0.5)]
        return self.mean


@final
@dataclass(frozen=True, eq=False)
class Marginals:
    """Marginals of every variable, by name or number, and the log-likelihood of the evidence."""

    schema: Schema
    log_likelihood: Floats
    variables: tuple[VariableMarginals, ...]

    def __getitem__(self, variable: int | str) -> VariableMarginals:
        index = self.schema.index(variable) if isinstance(variable, str) else variable
        return self.variables[index]


@final
class Mixer:
    """Turns posteriors over the leaves of one variable into moments, probabilities and quantiles."""

    def __init__(
        self, variable: Variable, family: Family, levels: tuple[float, ...], count: int
    ) -> None:
        self.variable = variable
        self.family = family
        self.levels = () if variable.kind == Kind.CATEGORICAL else levels
        self.probabilities = np.zeros((count, variable.num_categories))
        self.mean = np.full(count, np.nan)
        self.variance = np.full(count, np.nan)
        self.quantiles = np.full((count, len(self.levels)), np.nan)

    def put(self, entries: Ints, weights: Floats, parameters: Floats) -> None:
        """Entry e is the mixture of the leaves `parameters` with weights `weights[e]`."""
        weights = weights / weights.sum(axis=1, keepdims=True)
        if self.variable.kind == Kind.CATEGORICAL:
            self.probabilities[entries] = weights @ parameters
            return
        means = self.family.mean(parameters)
        mean = weights @ means
        spread = (means - mean[:, None]) ** 2 + self.family.variance(parameters)
        self.mean[entries] = mean
        self.variance[entries] = (weights * spread).sum(axis=1)
        if self.levels:
            self.quantiles[entries] = self.family.mixture_quantiles(
                parameters, weights, np.array(self.levels)
            )

    def result(self, slices: Ints) -> VariableMarginals:
        """What has been put, as a value."""
        categorical = self.variable.kind == Kind.CATEGORICAL
        return VariableMarginals(
            self.variable,
            slices,
            self.probabilities if categorical else None,
            self.mean,
            self.variance,
            self.levels,
            self.quantiles,
        )


def checked_levels(quantiles: Sequence[float]) -> tuple[float, ...]:
    """The levels as a tuple; raises unless all lie strictly between 0 and 1."""
    levels = tuple(float(level) for level in quantiles)
    if not all(0 < level < 1 for level in levels):
        raise EvidenceError(
            f"`quantiles` must lie strictly between 0 and 1, but are {list(levels)}."
        )
    return levels


def leaf_rows(program: Program, variable: int) -> tuple[Ints, Ints]:
    """The loads of a variable's leaves, and the rows of their parameters."""
    loads = np.flatnonzero(program.template.load_bank == variable)
    return loads, program.template.load_member[loads]


@final
class _MarginalCollector:
    """Consumes flows and fills the marginals of the wanted entries."""

    def __init__(self, program: Program, wanted: Bools, levels: tuple[float, ...]) -> None:
        self.program = program
        self.wanted = wanted
        self.slices = [np.flatnonzero(column) for column in wanted.T]
        self.entry_of = np.cumsum(wanted, axis=0) - 1
        banks = program.network.template.banks
        self.mixers = [
            Mixer(variable, bank.family, levels, slices.size)
            for variable, bank, slices in zip(
                program.network.schema, banks, self.slices, strict=True
            )
        ]
        self.leaves = [leaf_rows(program, variable) for variable in range(len(banks))]

    def __call__(self, segment: SegmentFlows) -> None:
        parameters = self.program.leaf_parameters(segment.bottom)
        wanted = segment.active & self.wanted[segment.rows].any(axis=2)
        if not wanted.any():
            return
        found = segment.leaves(*np.nonzero(wanted))
        place = np.cumsum(wanted).reshape(wanted.shape) - 1
        for variable, mixer in enumerate(self.mixers):
            at, lane = np.nonzero(segment.active & self.wanted[segment.rows, variable])
            if not at.size:
                continue
            loads, members = self.leaves[variable]
            weights = found.posterior[loads][:, place[at, lane]].T
            entries = self.entry_of[segment.rows[at, lane], variable]
            mixer.put(entries, weights, parameters[variable][members])


def marginals_at(
    program: Program, data: Sequences, wanted: Bools, levels: tuple[float, ...]
) -> Marginals:
    """P(entry | evidence) of the wanted entries, all of them missing from `data`."""
    found = likelihood(program, data)
    require_possible(data, found)
    collector = _MarginalCollector(program, wanted, levels)
    log_values = posterior_flows(program, data, collector)
    return Marginals(
        data.schema,
        log_values,
        tuple(
            mixer.result(slices)
            for mixer, slices in zip(collector.mixers, collector.slices, strict=True)
        ),
    )


def marginals(program: Program, data: Sequences, *, quantiles: Sequence[float] = ()) -> Marginals:
    """P(entry | evidence) of every missing entry, in one pass up and one down."""
    return marginals_at(program, data, np.isnan(data.values), checked_levels(quantiles))


def interface_posteriors(program: Program, data: Sequences) -> Floats:
    """P(interface node i is on the induced tree at a slice | evidence), (slices, interfaces).

    Sums to 1 over the nodes of each group.
    """
    require_possible(data, likelihood(program, data))
    out = np.zeros((data.values.shape[0], program.num_interfaces))
    order = program.template.input_order

    def collect(segment: SegmentFlows) -> None:
        at, lane = np.nonzero(segment.active)
        out[segment.rows[at, lane][:, None], order[None, :]] = segment.flows.interface[at, :, lane]

    posterior_flows(program, data, collect, leaves=False)
    return out


def impute(program: Program, data: Sequences) -> Sequences:
    """Missing entries replaced by the mode (categories), median (counts) or mean of their marginals."""
    found = marginals(program, data, quantiles=(0.5,))
    values = data.values.copy()
    for variable, own in enumerate(found.variables):
        values[own.slices, variable] = own.point()
    return data.with_values(values)

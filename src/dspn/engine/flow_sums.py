"""Sums of expected flows while they are being added up, and the values they end as."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.arithmetic import NO_EDGES, Arithmetic, Linear
from dspn.engine.blocks import Segment
from dspn.engine.job import Job
from dspn.engine.records import EdgeFlows, LeafTables
from dspn.engine.tables import alike_banks
from dspn.engine.totals import difference, plus, total_of

_NONE: Final = np.empty(0)
NO_SEEDS: Final = np.empty((0, 0))


@final
@dataclass(frozen=True, eq=False)
class NetworkFlows:
    """Expected counts of sum edges in the order of the weights, and expected statistics of leaves.

    `leaves` has a (leaves, statistics) array for each bank.
    """

    weights: Floats
    leaves: tuple[Floats, ...]

    def __add__(self, other: "NetworkFlows") -> "NetworkFlows":
        """Flows of two shards together."""
        leaves = tuple(a + b for a, b in zip(self.leaves, other.leaves, strict=True))
        return NetworkFlows(self.weights + other.weights, leaves)


@final
@dataclass(frozen=True, eq=False)
class ExpectedFlows:
    """Flows of the template, of the top, and of a bottom network with its own parameters."""

    template: NetworkFlows
    top: NetworkFlows
    bottom: NetworkFlows | None

    def __add__(self, other: "ExpectedFlows") -> "ExpectedFlows":
        """Flows of two shards together."""
        bottom = None
        if self.bottom is not None and other.bottom is not None:
            bottom = self.bottom + other.bottom
        return ExpectedFlows(self.template + other.template, self.top + other.top, bottom)


def _times_weight(use: Floats, weight: Floats) -> Floats:
    """Expected use of each edge; one of weight zero is never used, however large its derivative."""
    out = np.zeros(use.shape)
    np.multiply(use, weight, out=out, where=weight > 0)
    return out


@final
class Sums:
    """Flows of the template's (or bottom network's) two parts while they are being summed."""

    def __init__(self, job: Job, *, by_slice: bool, bottom: bool = False) -> None:
        program = job.program
        template = program.template
        self.job = job
        self.leaf_parameters = program.leaf_parameters(bottom)
        self.mix_op = np.zeros(template.mix_part.weights.num_op_weights)
        self.mix = np.zeros(template.mix_part.weights.num_mix_weights)
        self.slice_op = np.zeros(template.slice_part.weights.num_op_weights)
        count = job.coding.distinct.rows.size if by_slice else 0
        self.coefficient = np.zeros((count, program.num_coefficients))
        self.leaves = [
            np.zeros((len(bank.nodes), bank.family.num_statistics))
            for bank in program.network.template.banks
        ]

    @property
    def mix_edges(self) -> EdgeFlows:
        """Where the mix part's flows are added."""
        return EdgeFlows(self.mix_op, self.mix, self.coefficient)

    @property
    def slice_edges(self) -> EdgeFlows:
        """Where the slice part's flows are added."""
        return EdgeFlows(self.slice_op, _NONE, NO_SEEDS) if self.slice_op.size else NO_EDGES

    def add_leaves(self, posterior: Floats, rows: Ints) -> None:
        """Adds posteriors (loads, slices) times the statistics of the slices' values."""
        layout = self.job.program.template
        for variable in range(len(self.leaves)):
            loads = np.flatnonzero(layout.load_bank == variable)
            values = self.job.data.values[rows, variable]
            self._add_statistics([variable], values, [loads], [posterior[loads]])

    def add_counts(self, tables: LeafTables, counts: Floats) -> None:
        """Adds the statistics of values, each as often as a leaf was used with its code."""
        program, coding = self.job.program, self.job.coding
        for _, banks in alike_banks(program, coding):
            values = coding.values[coding.factor_of[banks[0]]]
            loads = [np.flatnonzero(program.template.load_bank == bank) for bank in banks]
            places = [tables.start[own][:, None] + np.arange(values.size) for own in loads]
            self._add_statistics(banks, values, loads, [counts[own] for own in places])

    def add_outputs(
        self, banks: list[int], values: Floats, counts: list[Floats], factors: Ints
    ) -> None:
        """Adds the statistics of values, which output o has `counts[bank][o]` times.

        Output o is a product of leaves, `factors[o, v]` of variable v.
        """
        used = [factors[:, bank] >= 0 for bank in banks]
        loads = [factors[mask, bank] for bank, mask in zip(banks, used, strict=True)]
        own = [each[mask] for each, mask in zip(counts, used, strict=True)]
        self._add_statistics(banks, values, loads, own)

    def _add_statistics(
        self, banks: list[int], values: Floats, loads: list[Ints], counts: list[Floats]
    ) -> None:
        """Adds the statistics of values to the leaves of banks of one family, counted by load."""
        members = [self.job.program.template.load_member[own] for own in loads]
        rows = [self.leaf_parameters[bank][own] for bank, own in zip(banks, members, strict=True)]
        family = self.job.program.network.template.banks[banks[0]].family
        seen = family.expected_statistics(np.concatenate(rows), values, np.concatenate(counts))
        ends = np.cumsum([len(own) for own in members])
        for bank, own, part in zip(banks, members, np.split(seen, ends[:-1]), strict=True):
            np.add.at(self.leaves[bank], own, part)

    def network_flows(self, bottom: bool) -> NetworkFlows:
        """All sums in the order of the network's parameters; those of edges times their weights."""
        template = self.job.program.template
        weights = np.zeros(self.job.program.network.template.num_weights)
        own = self.job.program.weights(bottom)
        for part, given, op, mix in (
            (template.slice_part, own.slice_part, self.slice_op, _NONE),
            (template.mix_part, own.mix_part, self.mix_op, self.mix),
        ):
            places = part.weights
            weights[places.op_edge] += _times_weight(op, given.op)[places.op_position]
            if places.mix_edge.size:
                weights[places.mix_edge] += _times_weight(mix, given.mix)[places.mix_position]
        return NetworkFlows(weights, tuple(self.leaves))


@final
class ShardSums:
    """What one shard adds up: template, bottom where it differs, and top.

    With `by_slice` there is room for the seeds of every distinct slice.
    """

    def __init__(self, job: Job, *, by_slice: bool) -> None:
        self.job = job
        self.template = Sums(job, by_slice=by_slice)
        self.bottom = Sums(job, by_slice=by_slice, bottom=True) if job.program.untied else None
        self.top = np.zeros(job.program.network.top.num_weights)

    def sums(self, segment: Segment) -> Sums:
        """The sums a segment adds to."""
        return self.bottom if segment.bottom and self.bottom is not None else self.template

    def expected(self) -> ExpectedFlows:
        """The flows as a value."""
        bottom = None if self.bottom is None else self.bottom.network_flows(True)
        top = NetworkFlows(self.top, ())
        return ExpectedFlows(self.template.network_flows(False), top, bottom)

    def add_top(self, arithmetic: Arithmetic, rows: Floats, weight: Floats) -> None:
        """Adds the flows of the top network's sums: w D v / root."""
        program = self.job.program
        part, ops = program.top.part, program.top.part.operations
        places = part.weights.op_position
        if not places.size:
            return
        derivatives = arithmetic.top_row_derivatives(program, rows)
        parents = np.repeat(ops.op_row, np.diff(ops.op_start))[places]
        children, root = ops.op_child[places], program.top.root_row
        if arithmetic.is_linear:
            used = (derivatives[parents] * rows[children]) @ (weight / rows[root])
        else:
            logs = plus(
                total_of(derivatives[0, parents]), derivatives[1, parents], *rows[:, children]
            )
            used = np.exp(difference(logs, plus(total_of(rows[0, root]), rows[1, root]))) @ weight
        self.top[part.weights.op_edge] += used * program.top_weights.op[places]


def add_seeds(sums: Sums, bottom: bool, rows: Ints, shift: Ints, seeds: Floats) -> None:
    """Carries linear seeds (coefficients, slices) of some slices down to their leaves."""
    job, linear = sums.job, Linear()
    tables = job.leaf_tables(linear, bottom, rows).tables
    common = (job.program, bottom, tables, job.coding.codes, rows, shift, seeds, sums.slice_edges)
    if job.coding.is_complete:
        sums.add_counts(tables, linear.slice_counts(*common))
    else:
        sums.add_leaves(linear.slice_flows(*common).posterior, rows)


def finish_seeds(sums: Sums, seeds: Floats, bottom: bool) -> None:
    """Carries the summed seeds (slices, coefficients) of all distinct slices down to the leaves."""
    rows = sums.job.coding.distinct.rows
    shift = sums.job.shared_given(Linear(), bottom).coefficients.shift
    add_seeds(sums, bottom, rows, shift, np.ascontiguousarray(seeds.T))

"""Exact log-likelihood under a dynamic Bayesian network, without a joint transition matrix.

Only nodes with a child in the next slice carry anything over, so the state of the filter is the
joint table of those nodes. From slice to slice the conditional tables are multiplied in and all
other nodes summed out, one by one. For the BAT network that is a table of 2^10 states and steps of
at most 2^11 entries, where the matrix over its 18 hidden nodes would have 2^36.
"""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data import Sequences
from dspn.errors import StructureError
from dspn.structure import DbnStructure, DbnTables
from experiments.datasets.synthetic._elimination import (
    LINEAR,
    LOGARITHMIC,
    Arithmetic,
    Scope,
    Table,
    eliminated,
    elimination_order,
)

MAX_ENTRIES: Final = 2**24
"""Entries of the largest table a sequence may need: 128 MiB."""

_BLOCK_ENTRIES: Final = 2**18


@final
class _Axes:
    """Numbers for the nodes of two slices: the persistent ones of the slice before, then all."""

    def __init__(self, structure: DbnStructure) -> None:
        parents = {parent for parent, _ in structure.between}
        persistent = [node for node in structure.sizes if node in parents]
        self.before = {node: number for number, node in enumerate(persistent)}
        self.now = {node: len(persistent) + i for i, node in enumerate(structure.sizes)}
        self.sizes = tuple(structure.sizes[node] for node in (*persistent, *structure.sizes))


@final
@dataclass(frozen=True, eq=False)
class _Step:
    """The conditional tables of a slice, and the order in which its nodes are summed out."""

    tables: tuple[Table, ...]
    order: tuple[int, ...]
    largest: int

    def in_logarithms(self) -> "_Step":
        with np.errstate(divide="ignore"):
            tables = tuple(Table(table.scope, np.log(table.values)) for table in self.tables)
        return _Step(tables, self.order, self.largest)


@final
@dataclass(frozen=True, eq=False)
class FilterPlan:
    """How a slice's evidence is taken up: at the first slice, and at every later one.

    `state` and `observed` number the persistent nodes of the slice before, and the observed nodes
    with their sizes.
    """

    first: _Step
    later: _Step
    state: Scope
    observed: tuple[tuple[int, int], ...]

    @property
    def lanes(self) -> int:
        """Sequences in a block, so that its largest table stays small."""
        return max(1, _BLOCK_ENTRIES // max(self.first.largest, self.later.largest))

    def in_logarithms(self) -> "FilterPlan":
        """The same plan with logarithms of the tables."""
        first, later = self.first.in_logarithms(), self.later.in_logarithms()
        return FilterPlan(first, later, self.state, self.observed)


@final
@dataclass(frozen=True, eq=False)
class Found:
    """Log P(evidence) of each sequence; the slice that made it impossible, -1 where none did."""

    log_likelihood: Floats
    impossible_at: Ints


def _conditional(
    structure: DbnStructure, tables: DbnTables, axes: _Axes, node: str, *, is_first: bool
) -> Table:
    """P(node | parents) with its axes in rising order."""
    between = () if is_first else structure.parents_between(node)
    values = tables.later[node] if between else tables.first[node]
    scope = (
        *(axes.before[parent] for parent in between),
        *(axes.now[parent] for parent in structure.parents_within(node)),
        axes.now[node],
    )
    normalised = values / values.sum(axis=-1, keepdims=True)
    return Table(tuple(sorted(scope)), normalised.transpose(np.argsort(scope))[..., None])


def _step(structure: DbnStructure, tables: DbnTables, axes: _Axes, *, is_first: bool) -> _Step:
    conditionals = tuple(
        _conditional(structure, tables, axes, node, is_first=is_first) for node in structure.sizes
    )
    scopes: list[Scope] = [table.scope for table in conditionals]
    if not is_first:
        scopes.append(tuple(axes.before.values()))
    kept = [axes.now[node] for node in axes.before]
    order, largest = elimination_order(scopes, kept, axes.sizes)
    if largest > MAX_ENTRIES:
        raise StructureError(
            f"the exact likelihood of this DBN needs a table of {largest} entries for each "
            f"sequence, more than the {MAX_ENTRIES} allowed; use fewer or smaller nodes."
        )
    return _Step(conditionals, order, largest)


def filter_plan(structure: DbnStructure, tables: DbnTables) -> FilterPlan:
    """The plan of a DBN whose tables have been checked."""
    axes = _Axes(structure)
    return FilterPlan(
        _step(structure, tables, axes, is_first=True),
        _step(structure, tables, axes, is_first=False),
        tuple(axes.before.values()),
        tuple((axes.now[node], structure.sizes[node]) for node in structure.observed),
    )


def _evidence(plan: FilterPlan, codes: Floats, arithmetic: Arithmetic) -> list[Table]:
    """Indicators of the observed values (lanes, n); one for every value where it is missing."""
    found = []
    for column, (variable, size) in zip(codes.T, plan.observed, strict=True):
        agrees = np.isnan(column) | (column == np.arange(size)[:, None])
        found.append(Table((variable,), np.where(agrees, arithmetic.one, arithmetic.zero)))
    return found


def _scaled(values: Floats, arithmetic: Arithmetic) -> tuple[Floats, Floats]:
    """Values that sum to one in each lane, and the logarithm of what they summed to."""
    total: Floats = arithmetic.plus.reduce(values.reshape(-1, values.shape[-1]), axis=0)
    divisor = np.where(total == arithmetic.zero, arithmetic.one, total)
    if arithmetic is LINEAR:
        return values / divisor, np.log(total)
    return values - divisor, total


def _forward(
    plan: FilterPlan, values: Floats, starts: Ints, lengths: Ints, arithmetic: Arithmetic
) -> Found:
    """One pass over sequences in the order of falling length."""
    found = Found(np.zeros(starts.size), np.full(starts.size, -1))
    state: Floats | None = None
    for t in range(int(lengths[0])):
        going = int(np.searchsorted(-lengths, -t))
        tables = _evidence(plan, values[starts[:going] + t], arithmetic)
        step = plan.first if state is None else plan.later
        if state is not None:
            tables.append(Table(plan.state, state[..., :going]))
        joint = eliminated([*step.tables, *tables], step.order, arithmetic)
        state, gain = _scaled(joint.values, arithmetic)
        found.log_likelihood[:going] += gain
        died = (gain == -np.inf) & (found.impossible_at[:going] < 0)
        found.impossible_at[:going][died] = t
    return found


def forward(plan: FilterPlan, data: Sequences) -> Found:
    """Log P(observed entries) of each sequence, block by block.

    A block in which a product falls below the smallest float64 is done again with logarithms: a
    state that has become very improbable may be the only one left later on.
    """
    order = np.argsort(-data.lengths, kind="stable")
    found = Found(np.zeros(len(data)), np.full(len(data), -1))
    for begin in range(0, len(data), plan.lanes):
        block = order[begin : begin + plan.lanes]
        where = data.values, data.offsets[block], data.lengths[block]
        try:
            with np.errstate(under="raise", divide="ignore"):
                part = _forward(plan, *where, LINEAR)
        except FloatingPointError:
            with np.errstate(under="ignore", divide="ignore"):
                part = _forward(plan.in_logarithms(), *where, LOGARITHMIC)
        found.log_likelihood[block] = part.log_likelihood
        found.impossible_at[block] = part.impossible_at
    return found

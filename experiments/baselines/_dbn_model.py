"""Dynamic Bayesian networks as learners handle them: nodes by number, and a table for each.

Nodes 0, ..., n - 1 are the variables of the data; those after them are hidden. As in
`dspn.structure.DbnStructure` a node has one table for the first slice, with its parents in the same
slice, and one for later slices, with those in the slice before as well; a node without parents in
the slice before has a single table for all slices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final, final

import numpy as np

from dspn._arguments import Bools, Floats
from dspn.data import Schema, Sequences
from dspn.structure import DbnStructure, DbnTables
from experiments.datasets.synthetic.process import DbnProcess

BEFORE: Final = 1
NOW: Final = 0

Item = tuple[int, int]
"""A node of a slice: how many slices back, and which."""


@final
@dataclass(frozen=True, order=True)
class Parents:
    """Parents of a node in the slice before and in the same slice, each in rising order."""

    between: tuple[int, ...] = ()
    within: tuple[int, ...] = ()

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Parents":
        """Those of a set of items."""
        between = tuple(sorted(node for back, node in items if back == BEFORE))
        return cls(between, tuple(sorted(node for back, node in items if back == NOW)))

    @property
    def items(self) -> tuple[Item, ...]:
        """The parents, those of the slice before first."""
        return (*((BEFORE, node) for node in self.between), *((NOW, node) for node in self.within))

    def scope(self, node: int, *, is_first: bool) -> tuple[Item, ...]:
        """The axes of the node's table: its parents, then the node itself."""
        parents = Parents(within=self.within) if is_first else self
        return (*parents.items, (NOW, node))


@final
@dataclass(frozen=True)
class Nodes:
    """The nodes of a slice: the variables of a schema, and binary hidden ones."""

    schema: Schema
    num_hidden: int = 0

    @property
    def num_observed(self) -> int:
        """n, the number of variables."""
        return len(self.schema)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each node has."""
        observed = tuple(variable.num_categories for variable in self.schema)
        return (*observed, *(2 for _ in range(self.num_hidden)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each node, those of hidden ones unlike any variable's."""
        mark = "hidden"
        while any(name.startswith(mark) for name in self.schema.names):
            mark = f"_{mark}"
        return (*self.schema.names, *(f"{mark} {j}" for j in range(self.num_hidden)))

    def is_hidden(self, node: int) -> bool:
        """Whether it is none of the variables."""
        return node >= self.num_observed

    def shape(self, scope: Sequence[Item]) -> tuple[int, ...]:
        """The shape of a table with these axes."""
        return tuple(self.sizes[node] for _, node in scope)

    def num_free(self, node: int, parents: Parents) -> int:
        """How many free numbers the tables of a node have."""
        later = prod(self.sizes[parent] for _, parent in parents.items)
        first = prod(self.sizes[parent] for parent in parents.within) if parents.between else 0
        return (later + first) * (self.sizes[node] - 1)


def smoothed(counts: Floats, pseudo_count: float) -> Floats:
    """P(node | parents) from counts whose last axis is the node."""
    full = counts + pseudo_count
    table: Floats = full / full.sum(axis=-1, keepdims=True)
    return table


@final
@dataclass(frozen=True, eq=False)
class Dbn:
    """The parents and the tables of every node; `later` is None where one table does for all."""

    nodes: Nodes
    parents: tuple[Parents, ...]
    first: tuple[Floats, ...]
    later: tuple[Floats | None, ...]

    def table(self, node: int, *, is_first: bool) -> tuple[tuple[Item, ...], Floats]:
        """The axes and the entries of the table that a slice uses."""
        own = self.later[node]
        is_first = is_first or own is None
        scope = self.parents[node].scope(node, is_first=is_first)
        return scope, self.first[node] if is_first or own is None else own

    @cached_property
    def process(self) -> DbnProcess:
        """The same distribution, with an exact likelihood whatever is missing."""
        names = self.nodes.names
        structure = DbnStructure(
            dict(zip(names, self.nodes.sizes, strict=True)),
            names[: self.nodes.num_observed],
            [(names[p], name) for name, own in self._named() for p in own.within],
            [(names[p], name) for name, own in self._named() for p in own.between],
        )
        later = {name: own for name, own in zip(names, self.later, strict=True) if own is not None}
        return DbnProcess(structure, DbnTables(dict(zip(names, self.first, strict=True)), later))

    def _named(self) -> list[tuple[str, Parents]]:
        return list(zip(self.nodes.names, self.parents, strict=True))

    def marginal_log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, all else summed out node by node.

        Raises a StructureError where the tables that this takes are too large.
        """
        coded = Sequences.from_codes(data.values, data.offsets, self.process.schema)
        return self.process.log_likelihood(coded)


def has_gaps(data: Sequences) -> Bools:
    """Which sequences have missing entries, (N,)."""
    rows = np.isnan(data.values).any(axis=1)
    found: Bools = np.logical_or.reduceat(rows, data.offsets[:-1])
    return found

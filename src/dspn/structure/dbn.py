"""Small discrete two-slice dynamic Bayesian networks, compiled exactly into a template.

The interface of the template is the joint state of the hidden nodes, so its size is the *product* of
their sizes and the number of edges the square of that: exponential in the number of hidden nodes. That is
the cost of exact inference in a DBN, and the reason to learn a DSPN instead of compiling one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import prod
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.errors import StructureError
from dspn.sequences import Schema, Variable
from dspn.structure.build import mixture_top
from dspn.structure.builder import NetworkBuilder, assemble
from dspn.structure.network import DynamicNetwork, Root

MAX_STATES = 1024


@final
@dataclass(frozen=True)
class DbnStructure:
    """Nodes of a slice with their sizes, which of them are observed, and the edges (parent, child).

    `within` edges join nodes of one slice, `between` edges lead from a slice to the next.
    """

    sizes: Mapping[str, int]
    observed: Sequence[str]
    within: Sequence[tuple[str, str]]
    between: Sequence[tuple[str, str]]

    def __post_init__(self) -> None:
        known = set(self.sizes)
        unknown = {name for edge in (*self.within, *self.between) for name in edge} | set(
            self.observed
        )
        if unknown - known:
            raise StructureError(
                f"edges or `observed` name nodes that `sizes` does not have: {sorted(unknown - known)}."
            )
        if not self.observed:
            raise StructureError(
                "`observed` is empty; a DSPN needs at least one observed variable."
            )

    def parents_within(self, node: str) -> tuple[str, ...]:
        """Parents in the same slice, in the order of the edges."""
        return tuple(parent for parent, child in self.within if child == node)

    def parents_between(self, node: str) -> tuple[str, ...]:
        """Parents in the slice before, in the order of the edges."""
        return tuple(parent for parent, child in self.between if child == node)

    def state_nodes(self) -> tuple[str, ...]:
        """Nodes the interface must remember: hidden ones, and observed ones that are not plain sensors.

        An observed node joins the state when it has children or a parent in the slice before.
        """
        parents = {parent for parent, _ in (*self.within, *self.between)}
        return tuple(
            name
            for name in self.sizes
            if name not in self.observed or name in parents or self.parents_between(name)
        )

    def topological(self) -> tuple[str, ...]:
        """Nodes of a slice, parents first; raises on a cycle of `within` edges."""
        done: list[str] = []
        waiting = list(self.sizes)
        while waiting:
            ready = [n for n in waiting if all(p in done for p in self.parents_within(n))]
            if not ready:
                raise StructureError(
                    f"the edges within a slice form a cycle among {sorted(waiting)}."
                )
            done.extend(ready)
            waiting = [n for n in waiting if n not in ready]
        return tuple(done)


@final
@dataclass(frozen=True, eq=False)
class DbnTables:
    """Conditional probability tables; the last axis is the node's own value.

    `first[node]`: one axis for each parent within the slice. `later[node]`: parents between slices, then
    parents within. A node without parents between slices may be left out of `later`.
    """

    first: Mapping[str, Floats]
    later: Mapping[str, Floats]


def table_shapes(
    structure: DbnStructure,
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """The shapes `DbnTables.first` and `DbnTables.later` must have."""
    size = structure.sizes
    first = {
        node: (*(size[p] for p in structure.parents_within(node)), size[node]) for node in size
    }
    later = {
        node: (*(size[p] for p in structure.parents_between(node)), *first[node])
        for node in size
        if structure.parents_between(node)
    }
    return first, later


def random_tables(
    structure: DbnStructure, rng: np.random.Generator, *, concentration: float | None = None
) -> DbnTables:
    """Random tables: uniform(0, 1) entries, normalised; or Dirichlet rows of the given concentration."""

    def draw(shape: tuple[int, ...]) -> Floats:
        entries = (
            rng.uniform(size=shape)
            if concentration is None
            else rng.gamma(concentration, size=shape) + 1e-12
        )
        normalised: Floats = entries / entries.sum(axis=-1, keepdims=True)
        return normalised

    first, later = table_shapes(structure)
    return DbnTables(
        {node: draw(shape) for node, shape in first.items()},
        {node: draw(shape) for node, shape in later.items()},
    )


def _check_tables(structure: DbnStructure, tables: DbnTables) -> None:
    first, later = table_shapes(structure)
    for name, shapes, given in (("first", first, tables.first), ("later", later, tables.later)):
        for node, shape in shapes.items():
            if node not in given:
                raise StructureError(f"`{name}` has no table for node {node!r}.")
            found = np.asarray(given[node])
            if found.shape != shape:
                raise StructureError(
                    f"`{name}[{node!r}]` must have shape {shape}, but has {found.shape}."
                )
            if np.any(found < 0) or not np.allclose(found.sum(axis=-1), 1.0, rtol=0, atol=1e-9):
                raise StructureError(
                    f"`{name}[{node!r}]` must hold distributions along its last axis; "
                    "entries are not negative and add up to 1."
                )


@final
class _States:
    """All joint states of the state nodes, as one integer array for each node."""

    def __init__(self, structure: DbnStructure) -> None:
        self.nodes = structure.state_nodes()
        sizes = [structure.sizes[node] for node in self.nodes]
        self.count = prod(sizes)
        if self.count > MAX_STATES:
            raise StructureError(
                f"compiling this DBN needs one interface node for each joint state of {len(self.nodes)} "
                f"nodes: {self.count} of them, more than the {MAX_STATES} allowed (the template has the "
                "square of that in edges). Learn a DSPN from samples instead."
            )
        grid = np.array(list(cartesian(*(range(size) for size in sizes))), dtype=np.int64)
        self.values = {node: grid[:, column] for column, node in enumerate(self.nodes)}


def _start(structure: DbnStructure, tables: DbnTables, states: _States) -> Floats:
    start = np.ones(states.count)
    for node in states.nodes:
        index = tuple(states.values[p] for p in (*structure.parents_within(node), node))
        start *= tables.first[node][index]
    return start / start.sum()


def _transition(structure: DbnStructure, tables: DbnTables, states: _States) -> Floats:
    matrix = np.ones((states.count, states.count))
    for node in states.nodes:
        before = tuple(states.values[p][:, None] for p in structure.parents_between(node))
        now = tuple(states.values[p][None, :] for p in (*structure.parents_within(node), node))
        table = tables.later[node] if before else tables.first[node]
        matrix *= table[before + now]
    normalised: Floats = matrix / matrix.sum(axis=1, keepdims=True)
    return normalised


def dbn_schema(structure: DbnStructure) -> Schema:
    """The observed nodes as categorical variables with categories 0, 1, ..."""
    return Schema(
        tuple(
            Variable.categorical(name, tuple(range(structure.sizes[name])))
            for name in structure.observed
        )
    )


def from_dbn(structure: DbnStructure, tables: DbnTables) -> DynamicNetwork:
    """The exact marginal of the observed nodes, as a template with one interface node for each state.

    Sensor leaves are shared by all states that agree on the sensor's parents. Refuses more than
    `MAX_STATES` joint states. The result has its root at the first slice.
    """
    structure.topological()
    _check_tables(structure, tables)
    states = _States(structure)
    schema = dbn_schema(structure)
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(states.count)
    shared: dict[tuple[str, tuple[int, ...]], int] = {}

    def sensor(name: str, state: int) -> int:
        if name in states.values:
            key = (name, (int(states.values[name][state]),))
            row = np.eye(structure.sizes[name])[key[1][0]]
        else:
            parents = structure.parents_within(name)
            key = (name, tuple(int(states.values[parent][state]) for parent in parents))
            row = tables.first[name][key[1]]
        if key not in shared:
            shared[key] = builder.leaf(name, row / row.sum())
        return shared[key]

    transition = _transition(structure, tables, states)
    outputs = []
    for state in range(states.count):
        emissions = [sensor(name, state) for name in structure.observed]
        outputs.append(builder.product([*emissions, builder.sum(inputs, transition[state])]))
    start = _start(structure, tables, states)
    return assemble(builder.template(outputs), mixture_top(schema, start), root=Root.FIRST)

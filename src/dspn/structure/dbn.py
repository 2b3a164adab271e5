"""Small discrete two-slice dynamic Bayesian networks, compiled exactly into a template.

The interface of the template is the joint state of the hidden nodes, so its size is the *product*
of their sizes and the number of edges the square of that: exponential in the number of hidden
nodes. That is the cost of exact inference in a DBN, and the reason to learn a DSPN instead of
compiling one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np

from dspn._arguments import Floats, Ints, checked_rng, float_array, require_type, whole_number
from dspn.data.schema import Schema, Variable
from dspn.errors import StructureError
from dspn.structure.build import NetworkBuilder, assemble, mixture_top
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.parameters import check_distributions

MAX_STATES = 1024

_Edge = tuple[str, str]
_Shapes = dict[str, tuple[int, ...]]


def _checked_edges(edges: Iterable[_Edge], argument: str) -> tuple[_Edge, ...]:
    """The edges as pairs of names, none of them twice."""
    require_type(edges, Iterable, argument, StructureError, remedy="give a list of pairs of names")
    pairs = tuple(tuple(e) if isinstance(e, list) else e for e in edges)
    for pair in pairs:
        names = pair if isinstance(pair, tuple) else ()
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            raise StructureError(
                f"`{argument}` must hold pairs of names (parent, child), but holds {pair!r}."
            )
    repeated = sorted({pair for pair in pairs if pairs.count(pair) > 1})
    if repeated:
        raise StructureError(
            f"`{argument}` must name an edge once, but repeats {repeated}; leave the copies out."
        )
    return pairs


def _checked_names(observed: Iterable[str]) -> tuple[str, ...]:
    """Names of observed nodes, each once and at least one."""
    if isinstance(observed, str):
        raise StructureError(f"`observed` must be a list of names; write [{observed!r}].")
    require_type(observed, Iterable, "observed", StructureError, remedy="give a list of names")
    names = tuple(observed)
    if not names:
        raise StructureError("`observed` is empty; a DSPN needs at least one observed variable.")
    if len(set(names)) < len(names):
        raise StructureError(f"`observed` must name a node once, but is {list(names)}.")
    return names


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
        hint = "give a dict of name and size"
        require_type(self.sizes, Mapping, "sizes", StructureError, remedy=hint)
        sizes = self.sizes.items()
        whole = {name: whole_number(n, f"sizes[{name!r}]", StructureError) for name, n in sizes}
        object.__setattr__(self, "sizes", whole)
        object.__setattr__(self, "observed", _checked_names(self.observed))
        for edges in ("within", "between"):
            object.__setattr__(self, edges, _checked_edges(getattr(self, edges), edges))
        named = [*self.observed, *(name for edge in (*self.within, *self.between) for name in edge)]
        unknown = [name for name in dict.fromkeys(named) if name not in self.sizes]
        if unknown:
            raise StructureError(
                f"edges or `observed` name nodes that `sizes` does not have: {unknown}."
            )

    def parents_within(self, node: str) -> tuple[str, ...]:
        """Parents in the same slice, in the order of the edges."""
        return tuple(parent for parent, child in self.within if child == node)

    def parents_between(self, node: str) -> tuple[str, ...]:
        """Parents in the slice before, in the order of the edges."""
        return tuple(parent for parent, child in self.between if child == node)

    def state_nodes(self) -> tuple[str, ...]:
        """Nodes the interface must remember: hidden ones, and observed ones that are no sensors.

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

    `first[node]`: one axis for each parent within the slice. `later[node]`: parents between slices,
    then parents within; a node without parents between slices has no table there. Nested lists
    become arrays.
    """

    first: Mapping[str, Floats]
    later: Mapping[str, Floats]

    def __post_init__(self) -> None:
        for part in ("first", "later"):
            given = getattr(self, part)
            require_type(given, Mapping, part, StructureError, remedy="give a dict of tables")
            arrays = {
                node: float_array(table, f"{part}[{node!r}]", StructureError)
                for node, table in given.items()
            }
            object.__setattr__(self, part, arrays)


def table_shapes(structure: DbnStructure) -> tuple[_Shapes, _Shapes]:
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
    """Random tables: uniform(0, 1) entries, normalised; or Dirichlet rows of a concentration."""
    require_type(structure, DbnStructure, "structure", StructureError)
    checked_rng(rng, StructureError)

    def draw(shape: tuple[int, ...]) -> Floats:
        if concentration is None:
            entries = rng.uniform(size=shape)
        else:
            entries = rng.gamma(concentration, size=shape) + 1e-12
        normalised: Floats = entries / entries.sum(axis=-1, keepdims=True)
        return normalised

    shapes = table_shapes(structure)
    return DbnTables(*({node: draw(own[node]) for node in own} for own in shapes))


def check_tables(structure: DbnStructure, tables: DbnTables) -> None:
    """Raises unless each node that has a table, and no other, has distributions of its shape."""
    for part, shapes in zip(("first", "later"), table_shapes(structure), strict=True):
        given: Mapping[str, Floats] = getattr(tables, part)
        unknown = [node for node in given if node not in shapes]
        if unknown:
            raise StructureError(
                f"`{part}` must have tables for the nodes {list(shapes)} only, but has one for "
                f"{unknown[0]!r}; leave it out."
            )
        for node, shape in shapes.items():
            if node not in given:
                raise StructureError(f"`{part}` has no table for node {node!r}.")
            if given[node].shape != shape:
                raise StructureError(
                    f"`{part}[{node!r}]` must have shape {shape}, but has {given[node].shape}."
                )
            check_distributions(given[node], f"{part}[{node!r}]")


def _joint_states(structure: DbnStructure) -> dict[str, Ints]:
    """All joint states of the state nodes, as one array of values for each node."""
    nodes = structure.state_nodes()
    sizes = [structure.sizes[node] for node in nodes]
    if prod(sizes) > MAX_STATES:
        raise StructureError(
            f"compiling this DBN needs one interface node for each joint state of {len(nodes)} "
            f"nodes: {prod(sizes)} of them, more than the {MAX_STATES} allowed (the template has "
            "the square of that in edges). Learn a DSPN from samples instead."
        )
    return dict(zip(nodes, np.indices(sizes).reshape(len(sizes), prod(sizes)), strict=True))


def _joint(
    structure: DbnStructure, tables: DbnTables, states: dict[str, Ints], *, is_first: bool
) -> Floats:
    """P(state) of the first slice, one row, or P(state | state before), a row for each."""
    joint = np.ones((1 if is_first else len(next(iter(states.values()), [0])), 1))
    for node in states:
        between = () if is_first else structure.parents_between(node)
        before = tuple(states[parent][:, None] for parent in between)
        now = tuple(states[name][None, :] for name in (*structure.parents_within(node), node))
        table = tables.later[node] if before else tables.first[node]
        joint = joint * table[before + now]
    normalised: Floats = joint / joint.sum(axis=1, keepdims=True)
    return normalised


def dbn_schema(structure: DbnStructure) -> Schema:
    """The observed nodes as categorical variables with categories 0, 1, ..."""
    sizes = ((name, range(structure.sizes[name])) for name in structure.observed)
    return Schema(tuple(Variable.categorical(name, tuple(codes)) for name, codes in sizes))


def from_dbn(structure: DbnStructure, tables: DbnTables) -> DynamicNetwork:
    """The exact marginal of the observed nodes: a template with an interface node for each state.

    Sensor leaves are shared by all states that agree on the sensor's parents. Refuses more than
    `MAX_STATES` joint states. The result has its root at the first slice.
    """
    require_type(structure, DbnStructure, "structure", StructureError)
    require_type(tables, DbnTables, "tables", StructureError)
    structure.topological()
    check_tables(structure, tables)
    states = _joint_states(structure)
    schema = dbn_schema(structure)
    builder = NetworkBuilder(schema)
    start = _joint(structure, tables, states, is_first=True)[0]
    transition = _joint(structure, tables, states, is_first=False)
    inputs = builder.inputs(start.size)
    shared: dict[tuple[str, tuple[int, ...]], int] = {}
    outputs = []
    for state in range(start.size):
        leaves = []
        for name in structure.observed:
            # A node of the state is known; a sensor depends on its parents, which are.
            known = (name,) if name in states else structure.parents_within(name)
            values = tuple(int(states[node][state]) for node in known)
            if (name, values) not in shared:
                table = np.eye(structure.sizes[name]) if name in states else tables.first[name]
                shared[name, values] = builder.leaf(name, table[values] / table[values].sum())
            leaves.append(shared[name, values])
        outputs.append(builder.product([*leaves, builder.sum(inputs, transition[state])]))
    return assemble(builder.template(outputs), mixture_top(schema, start), root=Root.FIRST)

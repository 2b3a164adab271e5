"""Random valid templates of every shape the definition allows, and evidence for them.

The groups of a valid DSPN share out the variables, and every input group is read by exactly one
output group. So a `Recipe` names the group of each variable and the reader of each group, any
function from groups to groups: the identity keeps groups apart, a permutation swaps them, and one
that misses a group lets it begin afresh from the slice while another group multiplies several.
"""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from dspn.data import Schema, Sequences, Variable
from dspn.leaves import family_for
from dspn.structure import (
    DynamicNetwork,
    Input,
    Leaf,
    NetworkParameters,
    Node,
    Parameters,
    Product,
    Sum,
    Template,
    Top,
)
from dspn.structure.edit import Entry, build_network, template_entries, top_entries

Floats = NDArray[np.float64]
KINDS = ("binary", "ternary", "single", "continuous", "count")
Scope = tuple[tuple[str, int], ...]  # ("variable", v) and ("group", g), sorted


@dataclass(frozen=True)
class Recipe:
    """Everything a random network is made from."""

    seed: int
    kinds: tuple[str, ...]
    group_of: tuple[int, ...]
    sizes: tuple[int, ...]
    readers: tuple[int, ...]
    tied: bool = True
    root: str = "first"
    depth: int = 2
    sharing: float = 0.3
    zeros: float = 0.2


def random_recipe(seed: int, **fixed: object) -> Recipe:
    """A recipe drawn from a seed; fields given by name are kept."""
    rng = np.random.default_rng([7, seed])
    num_variables = rng.choice([1, 2, 3, 4], p=[0.1, 0.3, 0.3, 0.3])
    drawn = rng.choice(KINDS, num_variables, p=[0.4, 0.2, 0.05, 0.2, 0.15]).tolist()
    kinds: tuple[str, ...] = tuple(fixed.pop("kinds", drawn))  # type: ignore[arg-type]
    num_groups = int(fixed.pop("num_groups", rng.integers(1, min(3, len(kinds)) + 1)))  # type: ignore[call-overload]
    group_of = [
        *range(num_groups),
        *rng.integers(num_groups, size=len(kinds) - num_groups).tolist(),
    ]
    rng.shuffle(group_of)
    readers = [
        list(range(num_groups)),
        rng.permutation(num_groups).tolist(),
        rng.integers(num_groups, size=num_groups).tolist(),
    ][rng.choice(3, p=[0.3, 0.3, 0.4])]
    recipe = Recipe(
        seed=seed,
        kinds=kinds,
        group_of=tuple(group_of),
        sizes=tuple(rng.integers(1, 5, size=num_groups).tolist()),
        readers=tuple(readers),
        tied=bool(rng.random() < 0.6),
        root=str(rng.choice(["first", "last"])),
        depth=int(rng.integers(1, 4)),
        sharing=float(rng.choice([0.0, 0.3, 0.7])),
        zeros=float(rng.choice([0.0, 0.1, 0.4])),
    )
    return replace(recipe, **fixed)  # type: ignore[arg-type]


def schema_of(kinds: tuple[str, ...]) -> Schema:
    """Variables x0, x1, ...; categories are strings, so that nobody takes them for codes."""
    made = {
        "binary": lambda name: Variable.categorical(name, ("no", "yes")),
        "ternary": lambda name: Variable.categorical(name, ("c", "a", "b")),
        "single": lambda name: Variable.categorical(name, ("only",)),
        "continuous": Variable.continuous,
        "count": Variable.count,
    }
    return Schema(tuple(made[kind](f"x{v}") for v, kind in enumerate(kinds)))


class _Draft:
    """Nodes with their numbers, laid down over scopes of variables and input groups."""

    def __init__(
        self, recipe: Recipe, schema: Schema, groups: list[list[int]], rng: np.random.Generator
    ) -> None:
        self.recipe, self.schema, self.rng = recipe, schema, rng
        self.nodes: list[Node] = []
        self.numbers: dict[int, Floats] = {}
        self.pool: dict[Scope, list[int]] = {}
        self.input_of = {
            position: self._add(Input(position)) for group in groups for position in group
        }
        self.groups = groups

    def _add(self, node: Node, numbers: Floats | None = None, scope: Scope | None = None) -> int:
        self.nodes.append(node)
        index = len(self.nodes) - 1
        if numbers is not None:
            self.numbers[index] = numbers
        if scope is not None:
            self.pool.setdefault(scope, []).append(index)
        return index

    def weights(self, count: int) -> Floats:
        """Random weights, some of them zero."""
        weights = self.rng.dirichlet(np.ones(count))
        if self.rng.random() < self.recipe.zeros:
            weights[self.rng.random(count) < 0.5] = 0.0
            if not weights.any():
                weights[self.rng.integers(count)] = 1.0
        return weights / weights.sum()

    def leaf_row(self, variable: int) -> Floats:
        """Random parameters of a leaf; probabilities and rates may be zero."""
        kind = self.recipe.kinds[variable]
        if kind == "continuous":
            return np.array([self.rng.normal(scale=2.0), self.rng.uniform(0.2, 2.0)])
        if kind == "count":
            return np.array(
                [0.0 if self.rng.random() < self.recipe.zeros / 4 else self.rng.uniform(0.1, 4.0)]
            )
        return self.weights(family_for(self.schema[variable]).num_parameters)

    def _leaf(self, variable: int) -> int:
        node = Leaf(variable, family_for(self.schema[variable]))
        return self._add(node, self.leaf_row(variable), (("variable", variable),))

    def node(self, scope: Scope, depth: int, *, fresh: bool = False) -> int:
        """A node over exactly this scope: one that is there already, or a new one."""
        pool = self.pool.get(scope, [])
        if pool and not fresh and self.rng.random() < self.recipe.sharing:
            return int(self.rng.choice(pool))
        if len(scope) == 1:
            return self._univariate(scope[0], depth, fresh=fresh)
        if depth > 0 and self.rng.random() < 0.4:
            return self._sum(scope, depth - 1)
        return self._product(scope, depth - 1)

    def _univariate(self, item: tuple[str, int], depth: int, *, fresh: bool) -> int:
        kind, number = item
        if kind == "variable":
            return (
                self._sum((item,), depth - 1)
                if depth > 0 and self.rng.random() < 0.3
                else self._leaf(number)
            )
        inputs = [self.input_of[position] for position in self.groups[number]]
        if not fresh and self.rng.random() < 0.25:
            return int(self.rng.choice(inputs))
        if depth > 0 and self.rng.random() < 0.2:
            return self._sum((item,), depth - 1)
        size = (
            len(inputs) if self.rng.random() < 0.7 else int(self.rng.integers(1, len(inputs) + 1))
        )
        chosen = self.rng.permutation(inputs)[:size].tolist()
        return self._add(Sum(tuple(chosen)), self.weights(size), (item,))

    def _sum(self, scope: Scope, depth: int) -> int:
        count = int(self.rng.choice([1, 2, 3], p=[0.1, 0.6, 0.3]))
        children = list(dict.fromkeys(self.node(scope, depth) for _ in range(count)))
        return self._add(Sum(tuple(children)), self.weights(len(children)), scope)

    def _product(self, scope: Scope, depth: int) -> int:
        num_blocks = int(self.rng.integers(2, len(scope) + 1))
        label = [
            *range(num_blocks),
            *self.rng.integers(num_blocks, size=len(scope) - num_blocks).tolist(),
        ]
        self.rng.shuffle(label)
        blocks = [
            tuple(item for item, own in zip(scope, label, strict=True) if own == b)
            for b in range(num_blocks)
        ]
        return self._add(Product(tuple(self.node(block, depth) for block in blocks)), None, scope)

    def output(self, scope: Scope, taken: list[int]) -> int:
        """A node that is no output yet; it may stand below another output."""
        free = [node for node in self.pool.get(scope, []) if node not in taken]
        if free and self.rng.random() < 0.2:
            return int(self.rng.choice(free))
        return self.node(scope, self.recipe.depth, fresh=True)

    def renumbered(self) -> dict[int, int]:
        """A random new place for every node: nodes may stand in any order."""
        places = self.rng.permutation(len(self.nodes)).tolist()
        return dict(enumerate(places))

    def finished(self, place: dict[int, int]) -> tuple[tuple[Node, ...], dict[int, Floats]]:
        """Nodes in their new places, and their numbers."""
        moved: list[Node] = [Input(-1)] * len(self.nodes)
        for index, node in enumerate(self.nodes):
            if isinstance(node, Sum | Product):
                node = type(node)(tuple(place[child] for child in node.children))
            moved[place[index]] = node
        return tuple(moved), {place[index]: row for index, row in self.numbers.items()}


def _flat_weights(nodes: tuple[Node, ...], numbers: dict[int, Floats]) -> Floats:
    rows = [numbers[index] for index, node in enumerate(nodes) if isinstance(node, Sum)]
    return np.concatenate(rows) if rows else np.zeros(0)


def _parameters(template: Template, numbers: dict[int, Floats]) -> NetworkParameters:
    banks = tuple(np.stack([numbers[node] for node in bank.nodes]) for bank in template.banks)
    return NetworkParameters(_flat_weights(template.nodes, numbers), banks)


def random_network(recipe: Recipe | int) -> DynamicNetwork:
    """The network of a recipe, or of `random_recipe(seed)`."""
    recipe = random_recipe(recipe) if isinstance(recipe, int) else recipe
    rng = np.random.default_rng([11, recipe.seed])
    schema = schema_of(recipe.kinds)
    k = sum(recipe.sizes)
    positions = iter(rng.permutation(k).tolist())
    groups = [[next(positions) for _ in range(size)] for size in recipe.sizes]
    draft = _Draft(recipe, schema, groups, rng)
    outputs = [-1] * k
    for group, own in enumerate(groups):
        variables = [("variable", v) for v, g in enumerate(recipe.group_of) if g == group]
        read = [("group", g) for g, reader in enumerate(recipe.readers) if reader == group]
        scope = tuple(sorted([*variables, *read]))
        for position in own:
            outputs[position] = draft.output(scope, outputs)
    place = draft.renumbered()
    nodes, numbers = draft.finished(place)
    template = Template(schema, nodes, tuple(place[output] for output in outputs))
    own_numbers = None
    if not recipe.tied:
        own_numbers = {
            index: draft.weights(len(node.children))
            if isinstance(node, Sum)
            else draft.leaf_row(node.variable)
            for index, node in enumerate(nodes)
            if isinstance(node, Sum | Leaf)
        }
    cap = _Draft(recipe, schema, groups, rng)
    root = cap.node(tuple(("group", g) for g in range(len(groups))), recipe.depth)
    cap_place = cap.renumbered()
    cap_nodes, cap_numbers = cap.finished(cap_place)
    parameters = Parameters(
        _parameters(template, numbers),
        NetworkParameters(_flat_weights(cap_nodes, cap_numbers)),
        None if own_numbers is None else _parameters(template, own_numbers),
    )
    return DynamicNetwork(template, Top(k, cap_nodes, cap_place[root]), parameters, recipe.root)  # type: ignore[arg-type]


def with_tables(network: DynamicNetwork, seed: int, share: float = 0.6) -> DynamicNetwork:
    """The network with two inputs, on which the weights of a share of its template's sums depend.

    Tables are drawn afresh, some of them with zeros.
    """
    rng = np.random.default_rng([17, seed])
    inputs = (Variable.categorical("u", ("p", "q", "r")), Variable.categorical("w", ("no", "yes")))
    schema = network.schema.with_inputs(inputs)
    entries = template_entries(network)
    for index, (node, values) in enumerate(entries):
        if isinstance(node, Sum) and rng.random() < share:
            by = int(rng.integers(2))
            rows = rng.dirichlet(np.ones(len(node.children)), (len(values), 3 - by))
            rows[rng.random(rows.shape) < 0.1] = 0.0
            rows[rows.sum(axis=2) == 0] = 1.0
            rows /= rows.sum(axis=2, keepdims=True)
            entries[index] = Entry(Sum(node.children, by), rows.reshape(len(values), -1))
    own, top = network.template, top_entries(network)
    return build_network(schema, entries, own.outputs, top, network.top.root, network.root)


# Evidence.


def with_own_bottom(network: DynamicNetwork, rng: np.random.Generator) -> DynamicNetwork:
    """The same structure with a bottom network of other parameters."""
    own = network.parameters
    weights = [
        rng.dirichlet(np.ones(len(node.children)))
        for node in network.template.nodes
        if isinstance(node, Sum)
    ]
    leaves = tuple(b.family.random(len(b.nodes), rng) for b in network.template.banks)
    bottom = NetworkParameters(np.concatenate(weights), leaves)
    return network.with_parameters(Parameters(own.template, own.top, bottom))


def draw_sequence(network: DynamicNetwork, num_slices: int, rng: np.random.Generator) -> Floats:
    """One sequence from the model itself, by walking down the static network."""
    from oracles import static_network

    static = static_network(network, num_slices)
    values = np.full(num_slices * static.num_variables, np.nan)
    waiting = [static.root]
    while waiting:
        index = waiting.pop()
        node = static.nodes[index]
        if isinstance(node, Leaf):
            values[node.variable] = node.family.sample(static.leaf_parameters[index][None, :], rng)[
                0
            ]  # type: ignore[index]
        elif isinstance(node, Product):
            waiting.extend(node.children)
        else:
            assert isinstance(node, Sum)
            waiting.append(int(rng.choice(node.children, p=static.weights[index])))
    return values.reshape(num_slices, static.num_variables)


def arbitrary_sequence(schema: Schema, num_slices: int, rng: np.random.Generator) -> Floats:
    """Values of the right kinds, whether or not the model thinks them possible."""
    columns = [
        rng.integers(variable.num_categories, size=num_slices)
        if variable.num_categories
        else rng.normal(scale=2.0, size=num_slices)
        if variable.kind == "continuous"
        else rng.poisson(2.0, size=num_slices)
        for variable in schema
    ]
    return np.stack(columns, axis=1).astype(np.float64)


def hide(values: Floats, rng: np.random.Generator, share: float = 0.4) -> Floats:
    """The sequence with random entries missing, and now and then a whole slice."""
    hidden = values.copy()
    hidden[rng.random(values.shape) < share] = np.nan
    hidden[rng.random(len(values)) < 0.15] = np.nan
    return hidden


def random_evidence(
    network: DynamicNetwork, rng: np.random.Generator, *, num_sequences: int = 4, longest: int = 5
) -> list[Floats]:
    """Ragged sequences of positive probability with random gaps; lengths 1 to `longest`."""
    shares = [0.0, 0.3, 0.6, 1.0]
    return [
        hide(
            draw_sequence(network, int(rng.integers(1, longest + 1)), rng), rng, shares[number % 4]
        )
        for number in range(num_sequences)
    ]


def as_sequences(schema: Schema, arrays: list[Floats]) -> Sequences:
    """A batch from coded arrays."""
    offsets = np.concatenate([[0], np.cumsum([len(array) for array in arrays])])
    return Sequences.from_codes(np.concatenate(arrays), offsets, schema)


@st.composite
def recipes(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> Recipe:
    """Any recipe; shrinks to one binary variable, one group, one interface node."""
    num_variables = draw(st.integers(1, 4))
    num_groups = draw(st.integers(1, min(3, num_variables)))
    others = st.integers(0, num_groups - 1)
    group_of = [*range(num_groups), *(draw(others) for _ in range(num_variables - num_groups))]
    return Recipe(
        seed=draw(st.integers(0, 10_000)),
        kinds=tuple(draw(st.sampled_from(kinds)) for _ in range(num_variables)),
        group_of=tuple(draw(st.permutations(group_of))),
        sizes=tuple(draw(st.integers(1, 4)) for _ in range(num_groups)),
        readers=tuple(draw(others) for _ in range(num_groups)),
        tied=draw(st.booleans()),
        root=draw(st.sampled_from(["first", "last"])),
        depth=draw(st.integers(1, 3)),
        sharing=draw(st.sampled_from([0.0, 0.3, 0.7])),
        zeros=draw(st.sampled_from([0.0, 0.1, 0.4])),
    )


@st.composite
def networks_with_evidence(draw: st.DrawFn) -> tuple[DynamicNetwork, list[Floats]]:
    """A random network and a ragged batch of possible sequences with gaps, lengths 1 to 5."""
    network = random_network(draw(recipes()))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    return network, random_evidence(network, rng, num_sequences=draw(st.integers(1, 5)))


def random_case(seed: int, **fixed: object) -> tuple[DynamicNetwork, list[Floats], Sequences]:
    """Network number `seed`, four possible sequences with gaps, and the same as a batch."""
    network = random_network(random_recipe(seed, **fixed))
    arrays = random_evidence(network, np.random.default_rng([13, seed]))
    return network, arrays, as_sequences(network.schema, arrays)

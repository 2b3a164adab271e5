"""What the engine must agree with: definitions written down as simply as they can be.

Nothing here uses the engine. `evaluate` walks the static network of `unroll`; `slice_by_slice` does
not even use that and stacks the template by its definition; `induced_trees` multiplies the network
out. `properties.log_space` has the same recursion in log space, for sequences of any length.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dspn.leaves import Family
from dspn.structure import (
    DynamicNetwork,
    Input,
    Leaf,
    NetworkParameters,
    Node,
    Product,
    StaticNetwork,
    Sum,
    Template,
    unroll,
)

Floats = NDArray[np.float64]
Add = Callable[[list[float]], float]


# Leaves in plain numbers.


def density(family: Family, parameters: Sequence[float], value: float) -> float:
    """p(value | leaf); 1 for a missing value."""
    if math.isnan(value):
        return 1.0
    if family.name == "categorical":
        return float(parameters[int(value)])
    if family.name == "gaussian":
        mean, variance = parameters
        return math.exp(-((value - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    assert family.name == "poisson"
    rate = float(parameters[0])
    return math.exp(-rate) * rate**value / math.factorial(int(value))


def mode_density(family: Family, parameters: Sequence[float]) -> float:
    """max_x p(x | leaf)."""
    if family.name == "categorical":
        return float(max(parameters))
    return density(
        family, parameters, float(parameters[0] // 1 if family.name == "poisson" else parameters[0])
    )


def cdf(family: Family, parameters: Sequence[float], value: float) -> float:
    """P(X <= value | leaf) of a continuous or count leaf."""
    if family.name == "gaussian":
        mean, variance = parameters
        return 0.5 * math.erfc((mean - value) / math.sqrt(2 * variance))
    return math.fsum(density(family, parameters, float(x)) for x in range(int(value) + 1))


def moments(family: Family, parameters: Sequence[float]) -> tuple[float, float]:
    """Mean and variance of a continuous or count leaf."""
    return (parameters[0], parameters[1] if family.name == "gaussian" else parameters[0])


# The static network.


def static_network(
    network: DynamicNetwork, num_slices: int, inputs: Floats | None = None
) -> StaticNetwork:
    """`unroll`, remembered."""
    return _unrolled(network, num_slices, None if inputs is None else inputs.tobytes())


@lru_cache(maxsize=256)
def _unrolled(network: DynamicNetwork, num_slices: int, inputs: bytes | None) -> StaticNetwork:
    told = None if inputs is None else np.frombuffer(inputs).reshape(num_slices, -1)
    return unroll(network, num_slices, told)


@lru_cache(maxsize=256)
def _edges(static: StaticNetwork) -> list[tuple[Sequence[int] | None, list[float] | None]]:
    """Children and weights of every node; a leaf has neither, a product no weights."""
    return [
        (None if isinstance(node, Leaf) else node.children, None if own is None else own.tolist())  # type: ignore[union-attr]
        for node, own in zip(static.nodes, static.weights, strict=True)
    ]


def evaluate(static: StaticNetwork, leaves: Sequence[float], *, add: Add = math.fsum) -> float:
    """Value of the root when leaf node i is leaves[i]; `add=max` maximises at the sums."""
    values: list[float] = []
    for index, (children, weights) in enumerate(_edges(static)):
        if children is None:
            values.append(leaves[index])
        elif weights is None:
            values.append(math.prod([values[child] for child in children]))
        else:
            values.append(add([w * values[c] for w, c in zip(weights, children, strict=True)]))
    return values[static.root]


def leaf_values(static: StaticNetwork, values: Floats, *, missing: str = "sum") -> list[float]:
    """Density of every leaf at the values (T, n); a missing one has 1, or its mode's for "max"."""
    flat = values.reshape(-1).tolist()
    found = [math.nan] * len(static.nodes)
    for index, node, row in _leaves(static):
        value = flat[node.variable]
        if math.isnan(value) and missing == "max":
            found[index] = mode_density(node.family, row)
        else:
            found[index] = density(node.family, row, value)
    return found


@lru_cache(maxsize=256)
def _leaves(static: StaticNetwork) -> list[tuple[int, Leaf, list[float]]]:
    return [
        (index, node, row.tolist())  # type: ignore[union-attr]
        for index, (node, row) in enumerate(zip(static.nodes, static.leaf_parameters, strict=True))
        if isinstance(node, Leaf)
    ]


def likelihood(network: DynamicNetwork, values: Floats, inputs: Floats | None = None) -> float:
    """P(observed values) of one sequence (T, n)."""
    static = static_network(network, len(values), inputs)
    return evaluate(static, leaf_values(static, values))


def log_likelihood(network: DynamicNetwork, values: Floats) -> float:
    """Log of `likelihood`, -inf for zero."""
    value = likelihood(network, values)
    return math.log(value) if value > 0 else -math.inf


def completions(network: DynamicNetwork, values: Floats) -> Iterator[Floats]:
    """Every way to fill in the missing categorical entries."""
    missing = [
        (t, v)
        for t, v in np.argwhere(np.isnan(values)).tolist()
        if network.schema[v].num_categories
    ]
    for codes in product(*(range(network.schema[v].num_categories) for _, v in missing)):
        filled = values.copy()
        for (t, v), code in zip(missing, codes, strict=True):
            filled[t, v] = code
        yield filled


@dataclass(frozen=True)
class Mixture:
    """Conditional distribution of one entry: weights over the leaves of its variable."""

    weights: tuple[float, ...]
    family: Family
    rows: tuple[tuple[float, ...], ...]

    def probabilities(self) -> list[float]:
        """P(category) of a categorical entry."""
        return [
            math.fsum(w * row[c] for w, row in zip(self.weights, self.rows, strict=True))
            for c in range(len(self.rows[0]))
        ]

    def mean(self) -> float:
        return math.fsum(
            w * moments(self.family, row)[0] for w, row in zip(self.weights, self.rows, strict=True)
        )

    def variance(self) -> float:
        centre = self.mean()
        return math.fsum(
            w * (moments(self.family, row)[1] + (moments(self.family, row)[0] - centre) ** 2)
            for w, row in zip(self.weights, self.rows, strict=True)
        )

    def cdf(self, value: float) -> float:
        return math.fsum(
            w * cdf(self.family, row, value) for w, row in zip(self.weights, self.rows, strict=True)
        )

    def tail(self, value: float) -> float:
        """P(at most as probable a category), or twice the smaller of P(X <= x) and P(X >= x)."""
        if self.family.name == "categorical":
            chances = self.probabilities()
            own = chances[int(value)]
            return math.fsum(p for p in chances if p < own or math.isclose(p, own, rel_tol=1e-11))
        above = 1.0 - self.cdf(value - 1)
        if self.family.name == "gaussian":
            mirrored = [(-mean, variance) for mean, variance in self.rows]
            above = Mixture(self.weights, self.family, tuple(mirrored)).cdf(-value)
        return min(1.0, 2.0 * min(self.cdf(value), above))


def conditional(
    network: DynamicNetwork, values: Floats, t: int, v: int, inputs: Floats | None = None
) -> Mixture:
    """Distribution of entry (t, v) given every other observed entry of the sequence.

    The network polynomial is linear in the leaves of one entry: the weight of a leaf is the root's
    value when that leaf is 1 and the entry's other leaves are 0.
    """
    static = static_network(network, len(values), inputs)
    leaves = leaf_values(static, values)
    entry = t * static.num_variables + v
    own = [
        i
        for i, node in enumerate(static.nodes)
        if isinstance(node, Leaf) and node.variable == entry
    ]
    found = []
    for chosen in own:
        for index in own:
            leaves[index] = 1.0 if index == chosen else 0.0
        found.append(evaluate(static, leaves))
    total = math.fsum(found)
    first = static.nodes[own[0]]
    assert isinstance(first, Leaf)
    rows = tuple(tuple(static.leaf_parameters[i].tolist()) for i in own)  # type: ignore[union-attr]
    return Mixture(tuple(weight / total for weight in found), first.family, rows)


def best_completion(network: DynamicNetwork, values: Floats, inputs: Floats | None = None) -> float:
    """Largest joint density of all latent choices and missing values, given the observed ones."""
    static = static_network(network, len(values), inputs)
    return evaluate(static, leaf_values(static, values, missing="max"), add=max)


def surprise_of_slice(network: DynamicNetwork, values: Floats, t: int) -> float:
    """-log P_t(x_t | x_1..x_{t-1}) in the network of t slices.

    Infinite for an impossible slice, NaN where its past is already impossible: a sequence may be
    possible although the network of some shorter length thinks that its beginning is not.
    """
    before = values[: t + 1].copy()
    before[t] = math.nan
    now, past = likelihood(network, values[: t + 1]), likelihood(network, before)
    if past == 0:
        return math.nan
    return -math.log(now / past) if now > 0 else math.inf


def surprise_of_entry(network: DynamicNetwork, values: Floats, t: int, v: int) -> float:
    """-log P(x_i^t | every other observed entry)."""
    others = values.copy()
    others[t, v] = math.nan
    return -math.log(likelihood(network, values) / likelihood(network, others))


# The definition itself: a stack of templates, one slice upon another.


def stack_order(network: DynamicNetwork, num_slices: int) -> list[int]:
    """Slice numbers from the bottom of the stack to its top."""
    forwards = list(range(num_slices))
    return forwards if network.root == "last" else forwards[::-1]


def leaf_rows(template: Template, parameters: NetworkParameters) -> dict[int, Floats]:
    """Parameters of each leaf node."""
    return {
        node: row
        for bank, rows in zip(template.banks, parameters.leaves, strict=True)
        for node, row in zip(bank.nodes, rows, strict=True)
    }


def sum_weights(nodes: Sequence[Node], flat: Floats) -> dict[int, list[float]]:
    """Weights of each sum; the flat vector holds them sum by sum in the order of the nodes."""
    found: dict[int, list[float]] = {}
    start = 0
    for index, node in enumerate(nodes):
        if isinstance(node, Sum):
            found[index] = flat[start : start + len(node.children)].tolist()
            start += len(node.children)
    return found


def has_leaf_below(template: Template) -> list[bool]:
    """Whether a node stays in the bottom network."""
    found = [False] * len(template.nodes)
    for index in template.order:
        node = template.nodes[index]
        children = node.children if isinstance(node, Sum | Product) else ()
        found[index] = isinstance(node, Leaf) or any(found[child] for child in children)
    return found


@lru_cache(maxsize=256)
def _parts(
    network: DynamicNetwork,
) -> tuple[list[bool], list[tuple[dict[int, list[float]], dict[int, list[float]]]]]:
    """Nodes that stay in the bottom network; weights of sums and rows of leaves, there and above.

    Plain numbers, converted once for each network.
    """
    template, parameters = network.template, network.parameters
    both = (parameters.bottom or parameters.template, parameters.template)
    found = []
    for own in both:
        rows = {node: row.tolist() for node, row in leaf_rows(template, own).items()}
        found.append((sum_weights(template.nodes, own.weights), rows))
    return has_leaf_below(template), found


def slice_by_slice(
    network: DynamicNetwork,
    values: Floats,
    *,
    add: Add = math.fsum,
    interfaces: Callable[[int, int], bool] = lambda t, position: True,
    inputs_of_bottom: float | None = None,
) -> float:
    """Value of the stack; an output of slice t is an interface only if `interfaces(t, position)`.

    In the bottom network, nodes without a leaf below are left out (their value is that of an empty
    product). With `inputs_of_bottom=1` they are kept and every input is 1, which must be the same.
    """
    template, top, parameters = network.template, network.top, network.parameters
    kept, parts = _parts(network)
    below: list[float] = []
    for height, t in enumerate(stack_order(network, len(values))):
        weights, rows = parts[min(height, 1)]
        found = [math.nan] * len(template.nodes)
        for index in template.order:
            node = template.nodes[index]
            if height == 0 and inputs_of_bottom is None and not kept[index]:
                found[index] = 1.0
            elif isinstance(node, Input):
                found[index] = below[node.position] if height else float(inputs_of_bottom or 1.0)
            elif isinstance(node, Leaf):
                value = float(values[t, node.variable])
                lacking = math.isnan(value) and add is max
                found[index] = (
                    mode_density(node.family, rows[index])
                    if lacking
                    else density(node.family, rows[index], value)
                )
            else:
                found[index] = _combine(node, weights.get(index), found, add)
        below = [found[o] if interfaces(t, i) else 0.0 for i, o in enumerate(template.outputs)]
    weights = sum_weights(top.nodes, parameters.top.weights)
    found = [math.nan] * len(top.nodes)
    for index in top.order:
        node = top.nodes[index]
        if isinstance(node, Input):
            found[index] = below[node.position]
        else:
            assert isinstance(node, Sum | Product)
            found[index] = _combine(node, weights.get(index), found, add)
    return found[top.root]


def _combine(
    node: Sum | Product, weights: list[float] | None, values: list[float], add: Add
) -> float:
    if isinstance(node, Product):
        return math.prod(values[child] for child in node.children)
    assert weights is not None
    return add([w * values[c] for w, c in zip(weights, node.children, strict=True)])


def interface_posteriors(network: DynamicNetwork, values: Floats) -> Floats:
    """P(interface node i of its group is the one chosen at slice t | observed), (T, k)."""
    group_of = {position: group for group in network.groups for position in group}
    found = np.empty((len(values), network.num_interfaces))
    total = slice_by_slice(network, values)
    for t in range(len(values)):
        for i in range(network.num_interfaces):

            def only(slice_number: int, position: int, t: int = t, i: int = i) -> bool:
                return slice_number != t or position == i or position not in group_of[i]

            found[t, i] = slice_by_slice(network, values, interfaces=only) / total
    return found


# Every induced tree, one by one.


@dataclass(frozen=True)
class Tree:
    """One latent choice at every sum on the way: its weight, its leaves and its interface nodes."""

    weight: float = 1.0
    leaves: tuple[tuple[int, int, Family, tuple[float, ...]], ...] = ()
    interfaces: tuple[tuple[int, int], ...] = ()

    def times(self, other: "Tree") -> "Tree":
        return Tree(
            self.weight * other.weight,
            self.leaves + other.leaves,
            self.interfaces + other.interfaces,
        )

    def likelihood(self, values: Floats) -> float:
        """Weight times the densities of the observed values."""
        return self.weight * math.prod(
            density(f, row, float(values[t, v])) for t, v, f, row in self.leaves
        )

    def best(self, values: Floats) -> float:
        """As `likelihood`, with missing values at their modes."""
        return self.weight * math.prod(
            mode_density(f, row)
            if math.isnan(values[t, v])
            else density(f, row, float(values[t, v]))
            for t, v, f, row in self.leaves
        )


def _multiply(parts: list[list[Tree]]) -> list[Tree]:
    trees = [Tree()]
    for part in parts:
        trees = [tree.times(other) for tree in trees for other in part]
    return trees


def _choose(weights: list[float], parts: list[list[Tree]]) -> list[Tree]:
    return [
        Tree(weight * tree.weight, tree.leaves, tree.interfaces)
        for weight, part in zip(weights, parts, strict=True)
        for tree in part
    ]


def induced_trees(network: DynamicNetwork, num_slices: int) -> list[Tree]:
    """The network polynomial, multiplied out; for tiny networks (see `num_induced_trees`)."""
    template, top, parameters = network.template, network.top, network.parameters
    kept = has_leaf_below(template)
    below: list[list[Tree]] = []
    for height, t in enumerate(stack_order(network, num_slices)):
        own = (
            parameters.bottom
            if height == 0 and parameters.bottom is not None
            else parameters.template
        )
        weights, rows = sum_weights(template.nodes, own.weights), leaf_rows(template, own)
        found: dict[int, list[Tree]] = {}
        for index in template.order:
            node = template.nodes[index]
            if height == 0 and not kept[index]:
                found[index] = [Tree()]
            elif isinstance(node, Input):
                found[index] = below[node.position]
            elif isinstance(node, Leaf):
                found[index] = [
                    Tree(1.0, ((t, node.variable, node.family, tuple(rows[index].tolist())),))
                ]
            elif isinstance(node, Product):
                found[index] = _multiply([found[child] for child in node.children])
            else:
                found[index] = _choose(weights[index], [found[child] for child in node.children])
        below = [
            [Tree(tree.weight, tree.leaves, (*tree.interfaces, (t, i))) for tree in found[output]]
            for i, output in enumerate(template.outputs)
        ]
    weights = sum_weights(top.nodes, parameters.top.weights)
    found = {}
    for index in top.order:
        node = top.nodes[index]
        if isinstance(node, Input):
            found[index] = below[node.position]
        elif isinstance(node, Product):
            found[index] = _multiply([found[child] for child in node.children])
        else:
            assert isinstance(node, Sum)
            found[index] = _choose(weights[index], [found[child] for child in node.children])
    return found[top.root]


def num_induced_trees(network: DynamicNetwork, num_slices: int) -> int:
    """Length of `induced_trees`, from the static network with every weight and leaf at 1."""
    static = static_network(network, num_slices)
    counts: list[int] = []
    for node in static.nodes:
        children = (
            [counts[child] for child in node.children] if isinstance(node, Sum | Product) else [1]
        )
        counts.append(sum(children) if isinstance(node, Sum) else math.prod(children))
    return counts[static.root]

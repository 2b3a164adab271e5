"""Richer slices: hidden variables in place of the leaves, shared by all interface nodes of a group.

In a plain template every interface node has leaves of its own, so variables of a slice depend on
each other through the interface alone. Here they depend on each other through hidden variables of
the slice as well, and an interface node says no more than which states of the first of these it
expects.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from dspn._arguments import Floats, Ints, checked_rng, require_type
from dspn.data.sequences import Sequences, sequences_of
from dspn.errors import StructureError
from dspn.learning.dependence import pairwise_information
from dspn.learning.em import scaled_families
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts import clusters
from dspn.leaves.base import Family
from dspn.leaves.told import told_values
from dspn.structure import edit
from dspn.structure.build import sizes_of_groups
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Leaf, Product, Sum, children_of, reachable
from dspn.structure.validity import network_scopes

# States begin as clusters of slices, each seen with this many slices on either side.
_WIDTH: Final = 1


# The tree of strongest dependences between the variables of one slice.


class SliceTree(NamedTuple):
    """A tree over variables: `variables` from the root down, and the place of each one's parent.

    The root has the parent -1.
    """

    variables: tuple[int, ...]
    parents: tuple[int, ...]

    def neighbours(self, place: int) -> tuple[int, ...]:
        """The variables next to that of a place, its parent first."""
        below = [child for child, parent in enumerate(self.parents) if parent == place]
        above = [self.parents[place]] if place else []
        return tuple(self.variables[other] for other in (*above, *below))


def slice_tree(data: Sequences, variables: Sequence[int]) -> SliceTree:
    """The spanning tree of greatest mutual information within a slice (Chow and Liu).

    Its root is the variable with the most information on all others; among equals the first of
    `variables` comes first.
    """
    information = pairwise_information(data, variables)
    root = int(np.argmax(information.sum(axis=1)))
    order, parents = [root], [-1]
    # How much the best edge from the tree to each variable has, and the place it leads from.
    strength, source = information[root].copy(), np.zeros(len(variables), dtype=np.int64)
    strength[root] = -np.inf
    while len(order) < len(variables):
        new = int(np.argmax(strength))
        parents.append(int(source[new]))
        order.append(new)
        better = (information[new] > strength) & ~np.isneginf(strength)
        strength = np.where(better, information[new], strength)
        source[better] = len(order) - 1
        strength[new] = -np.inf
    return SliceTree(tuple(variables[member] for member in order), tuple(parents))


# Hidden variables.


class _Latent(NamedTuple):
    """A hidden variable before it has parameters: the variables under it, a state for each slice.

    `above` is the place of the hidden variable it depends on, -1 for the first one.
    """

    variables: tuple[int, ...]
    above: int
    states: Ints

    @property
    def size(self) -> int:
        """The number of states."""
        return int(self.states.max()) + 1


def shared_mixture(
    network: DynamicNetwork,
    data: Sequences,
    num_states: int | Sequence[int],
    *,
    priors: Priors = DEFAULT_PRIORS,
    rng: np.random.Generator,
) -> DynamicNetwork:
    """Slices as P(x | node i) = sum_j B_ij prod_v P(x_v | j), with states j that nodes share.

    States begin as clusters of slices, with the leaves that fit these best; B_ij as the share of
    cluster j among the slices that node i is expected at. All the rest is kept: what outputs say of
    their inputs, the top, root and groups, and whether the bottom is tied.

    Args:
        network: A network with a plain template: each output a product of factors over the slice's
            variables and of factors over inputs.
        data: The training set.
        num_states: The states of every group, or a number for each; fewer where fewer slices
            differ.
        priors: Pseudo-observations of weights and leaves.
        rng: The source of randomness.
    """
    return _with_hidden(network, data, num_states, priors, rng, is_tree=False)


def hidden_tree(
    network: DynamicNetwork,
    data: Sequences,
    num_states: int | Sequence[int],
    *,
    priors: Priors = DEFAULT_PRIORS,
    rng: np.random.Generator,
) -> DynamicNetwork:
    """Slices as a tree of hidden variables, one of `num_states` states for each variable.

    As `shared_mixture`, but P(x | node i) = sum_z B_{i z_r} prod_v P(x_v | z_v) A(z_v | z_parent).
    The tree is that of the strongest dependences within a slice, and its root r the variable which
    depends most on the others. The states of v begin as clusters of what v and its neighbours in
    the tree are, and A as the shares of pairs of clusters. For one variable it is the same as
    `shared_mixture`, which explains the arguments.
    """
    return _with_hidden(network, data, num_states, priors, rng, is_tree=True)


def _with_hidden(
    network: DynamicNetwork,
    data: Sequences,
    num_states: int | Sequence[int],
    priors: Priors,
    rng: np.random.Generator,
    *,
    is_tree: bool,
) -> DynamicNetwork:
    """The network with a hidden variable for each group, or with a tree of them."""
    require_type(network, DynamicNetwork, "network", StructureError)
    require_type(priors, Priors, "priors", StructureError)
    checked_rng(rng, StructureError)
    known = sequences_of(data, network.schema, "data")
    sizes = sizes_of_groups(num_states, "num_states", len(network.groups))
    scaled = scaled_families(network, known)
    families = {bank.variable: bank.family for bank in scaled.template.banks}
    latents: list[list[_Latent]] = []
    for variables, size in zip(scaled.group_variables, sizes, strict=True):
        plan = [(variables, -1, variables)]  # of each: its variables, its parent, what it sees
        if is_tree:
            tree = slice_tree(known, variables)
            places = enumerate(zip(*tree, strict=True))
            plan = [((own,), above, (own, *tree.neighbours(at))) for at, (own, above) in places]
        latents.append([])
        for members, above, near in plan:
            states = clusters.slice_clusters(known, size, width=_WIDTH, variables=near, rng=rng)
            latents[-1].append(_Latent(members, above, states))
    visits = expected_labels(scaled, known, [own[0].states for own in latents])
    factors = _input_factors(scaled)
    nodes = scaled.template.nodes
    needed = reachable(nodes, (child for own in factors for child in own))
    entries, number = edit.keep_entries(
        edit.template_entries(scaled), needed | frozenset(scaled.template.inputs)
    )
    outputs = [-1] * scaled.num_interfaces
    for positions, own, uses in zip(scaled.groups, latents, visits, strict=True):
        roots = _add_latents(entries, own, uses, known, families, priors)
        for position, seen in zip(positions, roots, strict=True):
            rest = [number[child] for child in factors[position]]
            outputs[position] = edit.add_node(entries, Product((seen, *rest))) if rest else seen
    top = edit.top_entries(scaled)
    return edit.build_network(scaled.schema, entries, outputs, top, scaled.top.root, scaled.root)


def _add_latents(
    entries: list[edit.Entry],
    latents: Sequence[_Latent],
    visits: Floats,
    data: Sequences,
    families: Mapping[int, Family],
    priors: Priors,
) -> list[int]:
    """Appends the hidden variables of a group, with the parameters that fit their clusters.

    Returns for each interface node its sum over the states of the first one.
    """
    below: list[list[list[int]]] = [[[] for _ in range(own.size)] for own in latents]
    for place, own in reversed(list(enumerate(latents))):
        rows = {}
        for variable in own.variables:
            family, values = families[variable], told_values(data, variable)
            fit = partial(clusters.label_leaves, own.states, own.size, family, values)
            rows[Leaf(variable, family)] = fit(priors.leaf(family, variable))
        states = []
        for state, sums in enumerate(below[place]):
            leaves = (edit.add_node(entries, leaf, table[state]) for leaf, table in rows.items())
            factors = (*leaves, *sums)
            states.append(edit.add_node(entries, Product(factors)) if factors[1:] else factors[0])
        pairs = visits
        if own.above >= 0:
            above = latents[own.above]
            codes = above.states * own.size + own.states
            pairs = clusters.label_counts(codes, above.size * own.size).reshape(
                above.size, own.size
            )
        shares = clusters.smoothed_shares(pairs, pairs.sum(axis=0), priors.sum_pseudo_count)
        roots = [edit.add_node(entries, Sum(tuple(states)), row) for row in shares]
        if own.above >= 0:
            for sums, root in zip(below[own.above], roots, strict=True):
                sums.append(root)
    return roots


def _input_factors(network: DynamicNetwork) -> list[tuple[int, ...]]:
    """For each output the factors that read inputs; raises where a factor also has variables."""
    template = network.template
    n = len(template.schema)
    scopes = network_scopes(template.nodes, template.order, [1 << n] * template.num_interfaces)
    factors: list[tuple[int, ...]] = []
    for position, output in enumerate(template.outputs):
        node, finding = template.nodes[output], ""
        reading = tuple(child for child in children_of(node) if scopes[child] >> n)
        if scopes[output] >> n and not isinstance(node, Product):
            finding = f"is a {type(node).__name__.lower()}"
        elif mixed := [child for child in reading if scopes[child] != 1 << n]:
            finding = f"has the factor {mixed[0]} with both in it"
        if finding:
            raise StructureError(
                "`network` must have outputs that are products of factors over the slice's "
                f"variables and of factors over inputs, but output {output} (interface {position}) "
                f"{finding}; give a network with a plain template, such as `clustered_network` "
                "makes."
            )
        factors.append(reading)
    return factors


def expected_labels(
    network: DynamicNetwork, data: Sequences, labels: Sequence[Ints]
) -> list[Floats]:
    """Sum over the slices with label j of P(interface node i | evidence), (nodes, labels) by group.

    `labels` has a vector for each group, of whole numbers from 0 without gaps. A label is one more
    variable, on which the leaves of all nodes agree, and what is asked for is its expected use:
    posteriors of all slices need never be there at once.
    """
    widths = [int(own.max()) + 1 for own in labels]
    pairs = zip(network.groups, widths, strict=True)
    tables = [np.full((len(group), width), 1.0 / width) for group, width in pairs]
    flows = clusters.labelled_flows(network, data, np.stack(labels, axis=1), tables)[1]
    whole = flows.template if flows.bottom is None else flows.template + flows.bottom
    return [own[:, 1:] for own in whole.leaves[-len(tables) :]]

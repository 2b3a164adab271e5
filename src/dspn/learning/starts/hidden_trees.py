"""Richer slices: hidden variables in place of the leaves, shared by all interface nodes of a group.

In a plain template every interface node has leaves of its own, so variables of a slice depend on
each other through the interface alone. Here they depend on each other through hidden variables of
the slice as well, and an interface node says no more than which states of the first of these it
expects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import checked_rng, require_type
from dspn.data import Sequences
from dspn.data.sequences import sequences_of
from dspn.engine import compile_program
from dspn.errors import StructureError
from dspn.learning.dependence import pairwise_information
from dspn.learning.em import scaled_families
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts.clusters import label_counts, label_totals, slice_clusters
from dspn.leaves import Family
from dspn.structure import DynamicNetwork, Leaf, Product, Sum
from dspn.structure.build import sizes_of_groups
from dspn.structure.edit import (
    Entry,
    add_node,
    build_network,
    keep_entries,
    template_entries,
    top_entries,
    with_labels,
)
from dspn.structure.nodes import children_of, reachable
from dspn.structure.validity import network_scopes

# States begin as clusters of slices, each seen with this many slices on either side.
_WIDTH: Final = 1


# The tree of strongest dependences between the variables of one slice.


@final
@dataclass(frozen=True)
class SliceTree:
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


@final
@dataclass(frozen=True, eq=False)
class _Latent:
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


_Find = Callable[[Sequences, tuple[int, ...], int, np.random.Generator], list[_Latent]]


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
    return _with_hidden(network, data, num_states, _one_latent, priors, rng)


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
    return _with_hidden(network, data, num_states, _one_latent_each, priors, rng)


def _one_latent(
    data: Sequences, variables: tuple[int, ...], size: int, rng: np.random.Generator
) -> list[_Latent]:
    states = slice_clusters(data, size, width=_WIDTH, variables=variables, rng=rng)
    return [_Latent(variables, -1, states)]


def _one_latent_each(
    data: Sequences, variables: tuple[int, ...], size: int, rng: np.random.Generator
) -> list[_Latent]:
    tree = slice_tree(data, variables)
    latents = []
    for place, (variable, above) in enumerate(zip(tree.variables, tree.parents, strict=True)):
        seen = (variable, *tree.neighbours(place))
        states = slice_clusters(data, size, width=_WIDTH, variables=seen, rng=rng)
        latents.append(_Latent((variable,), above, states))
    return latents


def _with_hidden(
    network: DynamicNetwork,
    data: Sequences,
    num_states: int | Sequence[int],
    find: _Find,
    priors: Priors,
    rng: np.random.Generator,
) -> DynamicNetwork:
    """The network with the hidden variables that `find` gives each group, fitted to the data."""
    require_type(network, DynamicNetwork, "network", StructureError)
    require_type(priors, Priors, "priors", StructureError)
    checked_rng(rng, StructureError)
    known = sequences_of(data, network.schema, "data")
    sizes = sizes_of_groups(num_states, "num_states", len(network.groups))
    scaled = scaled_families(network, known)
    families = {bank.variable: bank.family for bank in scaled.template.banks}
    latents = [
        find(known, variables, size, rng)
        for variables, size in zip(scaled.group_variables, sizes, strict=True)
    ]
    visits = expected_labels(scaled, known, [own[0].states for own in latents])
    factors = _input_factors(scaled)
    nodes = scaled.template.nodes
    needed = reachable(nodes, (child for own in factors for child in own))
    entries, number = keep_entries(
        template_entries(scaled), needed | frozenset(scaled.template.inputs)
    )
    outputs = [-1] * scaled.num_interfaces
    for positions, own, uses in zip(scaled.groups, latents, visits, strict=True):
        roots = _add_latents(entries, own, uses, known, families, priors)
        for position, seen in zip(positions, roots, strict=True):
            rest = [number[child] for child in factors[position]]
            outputs[position] = add_node(entries, Product((seen, *rest))) if rest else seen
    top = top_entries(scaled)
    return build_network(scaled.schema, entries, outputs, top, scaled.top.root, scaled.root)


def _add_latents(
    entries: list[Entry],
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
        rows = []
        for variable in own.variables:
            family = families[variable]
            statistics = family.statistics(data.values[:, variable])
            totals = label_totals(own.states, own.size, statistics)
            rows.append(family.maximise(totals, priors.leaf(family)))
        states = []
        for state, sums in enumerate(below[place]):
            factors = [
                add_node(entries, Leaf(variable, families[variable]), table[state])
                for variable, table in zip(own.variables, rows, strict=True)
            ] + sums
            whole = factors[0] if len(factors) == 1 else add_node(entries, Product(tuple(factors)))
            states.append(whole)
        pairs = visits
        if own.above >= 0:
            above = latents[own.above]
            codes = above.states * own.size + own.states
            pairs = label_counts(codes, above.size * own.size).reshape(above.size, own.size)
        roots = [
            add_node(entries, Sum(tuple(states)), row)
            for row in _shares(pairs, priors.sum_pseudo_count)
        ]
        if own.above >= 0:
            for sums, root in zip(below[own.above], roots, strict=True):
                sums.append(root)
    return roots


def _shares(counts: Floats, pseudo_count: float) -> Floats:
    """Rows of counts as shares, with pseudo-counts and one more that is spread like all rows."""
    usual = counts.sum(axis=0) + 1.0
    smooth = counts + pseudo_count + usual / usual.sum()
    shares: Floats = smooth / smooth.sum(axis=1, keepdims=True)
    return shares


def _input_factors(network: DynamicNetwork) -> list[tuple[int, ...]]:
    """For each output the factors that read inputs; raises where a factor also has variables."""
    template = network.template
    n = len(template.schema)
    scopes = network_scopes(template.nodes, template.order, [1 << n] * template.num_interfaces)
    factors: list[tuple[int, ...]] = []
    for position, output in enumerate(template.outputs):
        node = template.nodes[output]
        reading = tuple(child for child in children_of(node) if scopes[child] >> n)
        mixed = [child for child in reading if scopes[child] != 1 << n]
        finding = f"has the factor {mixed[0]} with both in it" if mixed else ""
        if scopes[output] >> n and not isinstance(node, Product):
            finding = f"is a {type(node).__name__.lower()}"
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
    tables = []
    for group, own in zip(network.groups, labels, strict=True):
        width = int(own.max()) + 1
        tables.append(np.full((len(group), width), 1.0 / width))
    labelled = with_labels(network, tables)
    values = np.concatenate([data.values, np.stack(labels, axis=1)], axis=1)
    seen = Sequences.from_codes(values, data.offsets, labelled.schema)
    flows = compile_program(labelled).expected_flows(seen, None).flows
    whole = flows.template if flows.bottom is None else flows.template + flows.bottom
    return [own[:, 1:] for own in whole.leaves[-len(tables) :]]

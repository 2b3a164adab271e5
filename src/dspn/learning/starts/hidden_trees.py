"""Richer slices: hidden variables in place of the leaves, shared by all interface nodes of a group.

In a plain template every interface node has leaves of its own, so variables of a slice depend on
each other through the interface alone. Here they depend on each other through hidden variables of
the slice as well, and an interface node says no more than which states of the first of these it
expects.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import checked_rng, require_type, whole_number, whole_numbers
from dspn.errors import StructureError
from dspn.learning.em import scaled_families
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts._slice_templates import Latent, SliceModel, expected_labels, with_slices
from dspn.learning.starts._slice_trees import slice_tree
from dspn.learning.starts.windows import slice_clusters
from dspn.leaves import Family
from dspn.sequences import Sequences
from dspn.sequences.reading import sequences_of
from dspn.structure import DynamicNetwork
from dspn.structure.validity import network_scopes

# States begin as clusters of slices, each seen with this many slices on either side.
_WIDTH: Final = 1


@final
@dataclass(frozen=True, eq=False)
class _Clusters:
    """A hidden variable before it has numbers: the variables under it, and a state for each slice.

    `above` is the place of the hidden variable it depends on, -1 for the first one.
    """

    variables: tuple[int, ...]
    above: int
    states: Ints

    @property
    def size(self) -> int:
        """The number of states."""
        return int(self.states.max()) + 1

    def below(self, above: "_Clusters") -> Floats:
        """How often each state is there together with each state of another, (theirs, own)."""
        pairs = _counts(above.states * self.size + self.states, above.size * self.size)
        return pairs.reshape(above.size, self.size)

    def totals(self, statistics: Floats) -> Floats:
        """Statistics (slices, width) added up over the slices of each state."""
        return np.stack([_counts(self.states, self.size, own) for own in statistics.T], axis=1)


def _counts(labels: Ints, size: int, weights: Floats | None = None) -> Floats:
    """How often each of `size` labels occurs, weighted where weights are given."""
    return np.bincount(labels, weights, minlength=size).astype(np.float64)


_Find = Callable[[Sequences, tuple[int, ...], int, np.random.Generator], list[_Clusters]]


def shared_mixture(
    network: DynamicNetwork,
    data: Sequences,
    num_states: int | Sequence[int],
    *,
    priors: Priors = DEFAULT_PRIORS,
    rng: np.random.Generator,
) -> DynamicNetwork:
    """Slices as P(x | node i) = sum_j B_ij prod_v P(x_v | j), with states j that nodes share.

    Every group of a plain template (each output a product of what it says of the slice's variables
    and of what it says of its inputs) has `num_states` states of its own, given for all groups or
    one by one, and fewer where fewer slices differ. They begin as clusters of slices, with the
    leaves that fit these best; B_ij as the share of cluster j among the slices that node i is
    expected at. All the rest is kept: what outputs say of their inputs, the top, root and groups,
    and whether the bottom is tied.
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
    `shared_mixture`.
    """
    return _with_hidden(network, data, num_states, _one_latent_each, priors, rng)


def _one_latent(
    data: Sequences, variables: tuple[int, ...], size: int, rng: np.random.Generator
) -> list[_Clusters]:
    states = slice_clusters(data, size, width=_WIDTH, variables=variables, rng=rng)
    return [_Clusters(variables, -1, states)]


def _one_latent_each(
    data: Sequences, variables: tuple[int, ...], size: int, rng: np.random.Generator
) -> list[_Clusters]:
    tree = slice_tree(data, variables)
    found = []
    for place, (variable, above) in enumerate(zip(tree.variables, tree.parents, strict=True)):
        seen = (variable, *tree.neighbours(place))
        states = slice_clusters(data, size, width=_WIDTH, variables=seen, rng=rng)
        found.append(_Clusters((variable,), above, states))
    return found


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
    sizes = _sizes(num_states, len(network.groups))
    scaled = scaled_families(network, known)
    families = {bank.variable: bank.family for bank in scaled.template.banks}
    clusters = [
        find(known, variables, size, rng)
        for variables, size in zip(_group_variables(scaled), sizes, strict=True)
    ]
    visits = expected_labels(scaled, known, [own[0].states for own in clusters])
    models = [
        _slice_model(own, uses, known, families, priors)
        for own, uses in zip(clusters, visits, strict=True)
    ]
    return with_slices(scaled, models)


def _slice_model(
    clusters: Sequence[_Clusters],
    visits: Floats,
    data: Sequences,
    families: dict[int, Family],
    priors: Priors,
) -> SliceModel:
    """The hidden variables of a group with the numbers that fit their clusters."""
    count = priors.sum_pseudo_count
    latents = []
    for own in clusters:
        pairs = visits if own.above < 0 else own.below(clusters[own.above])
        leaves = {
            variable: _fitted(families[variable], data.values[:, variable], own, priors)
            for variable in own.variables
        }
        latents.append(Latent(own.above, _shares(pairs, count), leaves))
    return SliceModel(tuple(latents), families)


def _fitted(family: Family, values: Floats, clusters: _Clusters, priors: Priors) -> Floats:
    """The leaf of each state that fits its slices best; the prior's own where none is observed."""
    return family.maximise(clusters.totals(family.statistics(values)), priors.leaf(family))


def _shares(counts: Floats, pseudo_count: float) -> Floats:
    """Rows of counts as shares, with pseudo-counts and one more that is spread like all rows."""
    usual = counts.sum(axis=0) + 1.0
    smooth = counts + pseudo_count + usual / usual.sum()
    shares: Floats = smooth / smooth.sum(axis=1, keepdims=True)
    return shares


def _group_variables(network: DynamicNetwork) -> list[tuple[int, ...]]:
    """The slice's variables of each group, in order."""
    template = network.template
    scopes = network_scopes(template.nodes, template.order, [0] * template.num_interfaces)
    every = range(len(template.schema))
    return [
        tuple(variable for variable in every if scopes[template.outputs[own[0]]] >> variable & 1)
        for own in network.groups
    ]


def _sizes(num_states: int | Sequence[int], num_groups: int) -> list[int]:
    """The number of states asked for in each group."""
    if np.ndim(num_states) == 0:
        return [whole_number(num_states, "num_states", StructureError)] * num_groups
    sizes: list[int] = whole_numbers(num_states, "num_states", StructureError).tolist()
    if len(sizes) != num_groups:
        raise StructureError(
            f"`num_states` must be one number, or one for each of the {num_groups} groups, but is "
            f"{sizes}."
        )
    return sizes

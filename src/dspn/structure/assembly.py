"""Whole networks put together as one: side by side over other variables, or under one sum."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import float_array, indices, require_type
from dspn.data import Schema
from dspn.errors import StructureError
from dspn.structure.graph import reachable
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum
from dspn.structure.parameters import NetworkParameters, Parameters, check_distributions
from dspn.structure.template import Template, Top

Columns = tuple[int, ...]


def side_by_side(
    schema: Schema, networks: Sequence[DynamicNetwork], columns: Sequence[Sequence[int]]
) -> DynamicNetwork:
    """P(x) = prod_i P_i(x[columns[i]]): networks over disjoint variables under one product.

    `columns[i]` are the variables of `schema` that networks[i] is over, in its own order; together
    they share out the variables. Interface nodes keep their order, network after network, and the
    groups of each network stay its own. Where some bottoms are untied all become so: a tied one
    repeats its template's parameters, which is the same distribution.
    """
    require_type(schema, Schema, "schema", StructureError)
    found = _checked_networks(networks)
    places = _checked_columns(schema, found, columns)
    if len(found) == 1 and places[0] == tuple(range(len(schema))):
        return found[0]
    tops = list(_shifted_tops(found, Product))
    terms = tuple(term for part in tops for term in part.terms)
    nodes = [node for part in tops for node in part.nodes]
    if len(terms) > 1:
        nodes.append(Product(terms))
    root = len(nodes) - 1 if len(terms) > 1 else terms[0]
    weights = np.concatenate([part.weights for part in tops])
    return _joined(schema, found, places, (tuple(nodes), root), weights)


def united(networks: Sequence[DynamicNetwork], weights: Sequence[float] | Floats) -> DynamicNetwork:
    """P(x) = sum_c weights[c] P_c(x) as one network whose interface has the nodes of all.

    Each network has a single interface group, so that all interface nodes have the same scope and
    the root may be one sum over them; a root that is a sum already gives its children instead of
    itself. Networks of weight zero are left out. Leaves take the family of the first network for
    each variable: reference values, in which alone families of one schema can differ, do not
    change what parameters mean.
    """
    found = _checked_networks(networks)
    shares = float_array(weights, "weights", StructureError)
    if shares.shape != (len(found),):
        raise StructureError(
            f"`weights` must have one number for each of the {len(found)} networks, but has shape "
            f"{shares.shape}."
        )
    check_distributions(shares, "weights")
    _check_alike(found)
    kept = np.flatnonzero(shares).tolist()
    found = [found[index] for index in kept]
    if len(found) == 1:
        return found[0]
    tops = list(_shifted_tops(found, Sum))
    terms = tuple(term for part in tops for term in part.terms)
    own = np.concatenate(
        [shares[index] * part.shares for index, part in zip(kept, tops, strict=True)]
    )
    nodes = (*(node for part in tops for node in part.nodes), Sum(terms))
    flat = np.concatenate([*(part.weights for part in tops), own / own.sum()])
    places = [tuple(range(len(found[0].schema)))] * len(found)
    return _joined(found[0].schema, found, places, (nodes, len(nodes) - 1), flat)


def _joined(
    schema: Schema,
    networks: Sequence[DynamicNetwork],
    places: Sequence[Columns],
    top: tuple[tuple[Node, ...], int],
    top_weights: Floats,
) -> DynamicNetwork:
    """The network with the templates of all, under the given nodes of a top network."""
    template = _joined_template(schema, networks, places)
    own = [network.parameters.template for network in networks]
    bottom = None
    if not all(network.parameters.tied for network in networks):
        bottoms = [network.parameters.bottom or network.parameters.template for network in networks]
        bottom = _joined_parameters(networks, bottoms, places)
    parameters = Parameters(
        _joined_parameters(networks, own, places), NetworkParameters(top_weights), bottom
    )
    cap = Top(template.num_interfaces, *top)
    return DynamicNetwork(template, cap, parameters, networks[0].root)


def _joined_template(
    schema: Schema, networks: Sequence[DynamicNetwork], places: Sequence[Columns]
) -> Template:
    """Nodes and outputs of all templates, one after another."""
    leaves: dict[int, Leaf] = {}
    nodes: list[Node] = []
    outputs: list[int] = []
    for network, columns in zip(networks, places, strict=True):
        template = network.template
        for bank in template.banks:
            place = columns[bank.variable]
            leaves.setdefault(place, Leaf(place, bank.family))
        own = {variable: leaves[place] for variable, place in enumerate(columns)}
        first = len(nodes)
        shift = range(first, first + len(template.nodes))
        nodes.extend(_renumbered(template.nodes, shift, len(outputs), own))
        outputs.extend(first + output for output in template.outputs)
    return Template(schema, tuple(nodes), tuple(outputs))


def _renumbered(
    nodes: Sequence[Node], numbers: Sequence[int], first_position: int, leaves: dict[int, Leaf]
) -> Iterator[Node]:
    """The nodes with child c called numbers[c], later positions, and leaves over other columns."""
    for node in nodes:
        if isinstance(node, Leaf):
            yield leaves[node.variable]
        elif isinstance(node, Input):
            yield Input(first_position + node.position)
        else:
            yield type(node)(tuple(map(numbers.__getitem__, node.children)))


def _joined_parameters(
    networks: Sequence[DynamicNetwork],
    parts: Sequence[NetworkParameters],
    places: Sequence[Columns],
) -> NetworkParameters:
    """Weights network after network; leaf rows variable by variable, then network by network."""
    rows: dict[int, list[Floats]] = {}
    for network, part, columns in zip(networks, parts, places, strict=True):
        for bank, own in zip(network.template.banks, part.leaves, strict=True):
            rows.setdefault(columns[bank.variable], []).append(own)
    leaves = tuple(np.concatenate(rows[variable]) for variable in sorted(rows))
    return NetworkParameters(np.concatenate([part.weights for part in parts]), leaves)


@final
@dataclass(frozen=True, eq=False)
class _TopPart:
    """What is left of a top network when its root is to stand under a new one.

    `terms` are the children of the new root, `shares` their weights if both roots are sums.
    """

    nodes: tuple[Node, ...]
    weights: Floats
    terms: tuple[int, ...]
    shares: Floats


def _shifted_tops(
    networks: Sequence[DynamicNetwork], new_root: type[Sum] | type[Product]
) -> Iterator[_TopPart]:
    """The top networks one after another; a root of the new root's kind gives its children."""
    positions = accumulate((network.num_interfaces for network in networks), initial=0)
    first = 0
    for network, position in zip(networks, positions, strict=False):
        part = _top_part(network, new_root, first, position)
        first += len(part.nodes)
        yield part


def _top_part(
    network: DynamicNetwork,
    new_root: type[Sum] | type[Product],
    first: int,
    first_position: int,
) -> _TopPart:
    top, weights = network.top, network.parameters.top.weights
    root = top.nodes[top.root]
    terms: tuple[int, ...] = (top.root,)
    shares = np.ones(1)
    if isinstance(root, new_root):
        assert isinstance(root, Sum | Product)
        terms = root.children
        shares = _own_weights(top, weights, top.root)
    # Nodes that the root does not read could still name the root, which may be gone.
    read = reachable(top.nodes, terms) | set(top.inputs)
    kept = sorted(read)
    numbers = [-1] * len(top.nodes)
    for number, index in enumerate(kept):
        numbers[index] = first + number
    nodes = tuple(_renumbered([top.nodes[index] for index in kept], numbers, first_position, {}))
    flat = [_own_weights(top, weights, index) for index in kept]
    return _TopPart(nodes, np.concatenate(flat), tuple(numbers[term] for term in terms), shares)


def _own_weights(top: Top, weights: Floats, index: int) -> Floats:
    """The weights of a sum; nothing for another node."""
    node = top.nodes[index]
    if not isinstance(node, Sum):
        return np.zeros(0)
    start = top.edge_offsets[index]
    return weights[start : start + len(node.children)]


def _checked_networks(networks: Any) -> list[DynamicNetwork]:
    """The networks as a list; raises unless there is one and all have the same root."""
    if isinstance(networks, DynamicNetwork) or not hasattr(networks, "__iter__"):
        raise StructureError(
            f"`networks` must be a list of DynamicNetwork, found {type(networks).__name__}."
        )
    found: list[DynamicNetwork] = list(networks)
    if not found:
        raise StructureError("`networks` must hold at least one DynamicNetwork, but is empty.")
    for index, network in enumerate(found):
        require_type(network, DynamicNetwork, f"networks[{index}]", StructureError)
        if network.root != found[0].root:
            raise StructureError(
                f"`networks` must share one root, but networks[{index}] has root "
                f"{network.root.value!r} where networks[0] has {found[0].root.value!r}; build all "
                "with the same root."
            )
    return found


def _checked_columns(
    schema: Schema, networks: Sequence[DynamicNetwork], columns: Any
) -> list[Columns]:
    """The columns of each network; raises unless they share out the variables and fit."""
    given = list(columns) if hasattr(columns, "__iter__") else []
    if len(given) != len(networks):
        raise StructureError(
            f"`columns` must have one list of variable numbers for each of the {len(networks)} "
            f"networks, but is {columns!r}."
        )
    places = [indices(own, f"columns[{index}]", StructureError) for index, own in enumerate(given)]
    if sorted(place for own in places for place in own) != list(range(len(schema))):
        raise StructureError(
            f"`columns` must name each of the {len(schema)} variables exactly once, but is "
            f"{places}; variables are numbered from 0."
        )
    for index, (network, own) in enumerate(zip(networks, places, strict=True)):
        wanted = tuple(schema[place] for place in own)
        if tuple(network.schema) != wanted:
            raise StructureError(
                f"networks[{index}] must be over the variables of columns {list(own)}, "
                f"{', '.join(variable.name for variable in wanted)}, but is over "
                f"{', '.join(network.schema.names)}, or other kinds or categories; build it with "
                "the schema of its columns."
            )
    return places


def _check_alike(networks: Sequence[DynamicNetwork]) -> None:
    """Raises unless all networks have the schema of the first and a single interface group."""
    first = networks[0].schema
    for index, network in enumerate(networks):
        if network.schema != first:
            raise StructureError(
                f"`networks` must share one schema, but networks[{index}] has the variables "
                f"{', '.join(network.schema.names)} where networks[0] has "
                f"{', '.join(first.names)}, or other kinds or categories; build all networks with "
                "the same schema."
            )
        if len(network.groups) > 1:
            raise StructureError(
                f"`networks` must each have a single interface group, but networks[{index}] has "
                f"{len(network.groups)}; put them under the root of a `Mixture`."
            )

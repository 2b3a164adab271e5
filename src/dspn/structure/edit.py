"""Changes of networks that carry their parameters along.

A network is taken apart into entries, each a node with its own parameters; an edit is a change of
that list; `build_network` packs the parameters again. `side_by_side`, `united`, `marginal` and
`with_labels` are edits of whole networks; moves and starts of learning make others.
"""

import operator
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dspn._arguments import Bools, Floats, indices, require_type
from dspn.data.schema import Schema, Variable
from dspn.errors import StructureError
from dspn.leaves.base import Contextual
from dspn.leaves.block import GaussianBlock
from dspn.leaves.categorical import Categorical
from dspn.leaves.told import has_lags
from dspn.structure.chain import reads_inputs
from dspn.structure.network import DynamicNetwork, Root, check_networks
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum, children_of, reachable
from dspn.structure.parameters import NetworkParameters, Parameters, checked_shares
from dspn.structure.template import Template, Top
from dspn.structure.validity import network_scopes


class Entry(NamedTuple):
    """A node and its parameters, (sets, number): weights of a sum's edges, or the row of a leaf.

    The tables of a sum whose weights depend on an input follow each other. Products and inputs
    have none. The template has two sets of parameters where the bottom network
    is untied, first its own and then those of the bottom, and otherwise one.
    """

    node: Node
    values: Floats


def template_entries(network: DynamicNetwork) -> list[Entry]:
    """The nodes of the template, in their order, with their parameters."""
    own = network.parameters
    return _entries(network.template, [own.template, *([own.bottom] if own.bottom else [])])


def top_entries(network: DynamicNetwork) -> list[Entry]:
    """The nodes of the top network, in their order, with their weights."""
    return _entries(network.top, [network.parameters.top])


def _entries(part: Template | Top, sets: Sequence[NetworkParameters]) -> list[Entry]:
    weights = np.stack([own.weights for own in sets])
    values = [weights[:, :0]] * len(part.nodes)
    for index, start in part.edge_offsets.items():
        size = len(children_of(part.nodes[index])) * part.num_tables(part.nodes[index])
        values[index] = weights[:, start : start + size]
    if isinstance(part, Template):
        for bank, *tables in zip(part.banks, *(own.leaves for own in sets), strict=True):
            for node, rows in zip(bank.nodes, np.stack(tables, axis=1), strict=True):
                values[node] = rows
    return list(map(Entry, part.nodes, values))


def add_node(entries: list[Entry], node: Node, values: Sequence[float] | Floats = ()) -> int:
    """Appends a node with the same parameters in every set; returns its number."""
    sets = len(entries[0].values) if entries else 1
    entries.append(Entry(node, np.tile(np.asarray(values, dtype=np.float64), (sets, 1))))
    return len(entries) - 1


def keep_entries(
    entries: Sequence[Entry],
    kept: Iterable[int],
    *,
    first: int = 0,
    positions: Mapping[int, int] | None = None,
    leaves: Mapping[int, Leaf] | None = None,
) -> tuple[list[Entry], list[int]]:
    """Some of the entries, renumbered in their order, and the new number of each old node.

    A node that is not kept has the number -1, and products and sums lose it as a child. Weights
    of a sum are not normalised again.

    Args:
        kept: The nodes to keep.
        first: The number of the first entry.
        positions: The new position of each input that is kept.
        leaves: The leaf in place of those over each variable.
    """
    chosen = sorted(kept)
    number = [-1] * len(entries)
    for place, index in enumerate(chosen, start=first):
        number[index] = place
    found: list[Entry] = []
    for index in chosen:
        node, values = entries[index]
        if isinstance(node, Sum | Product):
            below = tuple(number[child] for child in node.children if number[child] >= 0)
            if isinstance(node, Sum) and len(below) < len(node.children):
                values = keep_edges(values, [number[child] >= 0 for child in node.children])
            node = replace(node, children=below)
        elif isinstance(node, Input) and positions is not None:
            node = Input(positions[node.position])
        elif isinstance(node, Leaf) and leaves is not None:
            node = leaves[node.variable]
        found.append(Entry(node, values))
    return found, number


def keep_edges(values: Floats, stays: Sequence[bool] | Bools) -> Floats:
    """The weights (sets, tables and edges) of some edges of a sum, in each of its tables."""
    kept: Floats = values[:, np.tile(np.asarray(stays), values.shape[1] // len(stays))]
    return kept


def keep_reached(
    entries: Sequence[Entry], roots: Sequence[int], positions: Mapping[int, int]
) -> tuple[list[Entry], list[int]]:
    """The inputs at the given positions and what the roots reach; the new numbers of the roots."""
    nodes = [entry.node for entry in entries]
    below = reachable(nodes, roots)
    kept = [
        index
        for index, node in enumerate(nodes)
        if (node.position in positions if isinstance(node, Input) else index in below)
    ]
    found, number = keep_entries(entries, kept, positions=positions)
    return found, [number[root] for root in roots]


def pack_parameters(
    part: Template | Top, entries: Sequence[Entry], place: int = 0
) -> NetworkParameters:
    """The parameters of one set as the arrays that belong to the network."""
    weights = [entries[index].values[place] for index in part.edge_offsets]
    banks = part.banks if isinstance(part, Template) else ()
    leaves = (np.stack([entries[node].values[place] for node in bank.nodes]) for bank in banks)
    return NetworkParameters(np.concatenate([np.zeros(0), *weights]), tuple(leaves))


def build_network(
    schema: Schema,
    template: Sequence[Entry],
    outputs: Sequence[int],
    top: Sequence[Entry],
    top_root: int,
    root: Root,
) -> DynamicNetwork:
    """The checked network of entries.

    Args:
        schema: The variables of a slice.
        template: The entries of the template.
        outputs: The output node of each interface.
        top: The entries of the top network.
        top_root: The root of the top network.
        root: The slice that carries the top network.
    """
    slices = Template(schema, tuple(entry.node for entry in template), tuple(outputs))
    cap = Top(len(outputs), tuple(entry.node for entry in top), top_root)
    sets = [pack_parameters(slices, template, place) for place in range(len(template[0].values))]
    parameters = Parameters(sets[0], pack_parameters(cap, top), *sets[1:])
    return DynamicNetwork(slices, cap, parameters, root)


def reduce_network(
    network: DynamicNetwork,
    template: Sequence[Entry],
    top: Sequence[Entry],
    positions: Sequence[int] | None = None,
    top_root: int | None = None,
) -> DynamicNetwork:
    """The network with changed entries, less what neither an output nor the root reaches.

    Args:
        network: The network before the change.
        template: Its entries, changed in place.
        top: The entries of its top network, changed in place.
        positions: The interface nodes that stay, in their order; by default all.
        top_root: The root of the top network; by default the one that it had.
    """
    stays = range(network.num_interfaces) if positions is None else positions
    number = {position: place for place, position in enumerate(stays)}
    below, outputs = keep_reached(template, [network.template.outputs[p] for p in stays], number)
    cap, (apex,) = keep_reached(top, [network.top.root if top_root is None else top_root], number)
    return build_network(network.schema, below, outputs, cap, apex, network.root)


# Several networks as one.


def side_by_side(
    schema: Schema, networks: Sequence[DynamicNetwork], columns: Sequence[Sequence[int]]
) -> DynamicNetwork:
    """P(x) = prod_i P_i(x[columns[i]]): networks over disjoint variables under one product.

    Interface nodes keep their order, network after network, and the groups of each network stay
    its own. Where some bottoms are untied all become so: a tied one repeats its template's
    parameters, which is the same distribution.

    Args:
        schema: The variables of all networks.
        networks: The factors, with the same root.
        columns: For each network the variables of `schema` that it is over, in its own order;
            every variable of the schema is named once.
    """
    require_type(schema, Schema, "schema", StructureError)
    factors = check_networks(networks, "networks", one_schema=False)
    places = _checked_columns(schema, factors, columns)
    if len(factors) == 1 and places[0] == tuple(range(len(schema))):
        return factors[0]
    return _join(schema, factors, places, Product, np.ones(len(factors)))


def united(networks: Sequence[DynamicNetwork], weights: Sequence[float] | Floats) -> DynamicNetwork:
    """P(x) = sum_c weights[c] P_c(x) as one network whose interface has the nodes of all.

    Each network has a single interface group, so that all interface nodes have the same scope and
    the root may be one sum over them; a root that is a sum already gives its children instead of
    itself. Networks of weight zero are left out. Leaves take the family of the first network for
    each variable: reference values, in which alone families of one schema can differ, do not
    change what parameters mean.
    """
    terms = check_networks(networks, "networks")
    shares = checked_shares(weights, len(terms), "networks")
    for index, network in enumerate(terms):
        if len(network.groups) > 1:
            raise StructureError(
                f"`networks` must each have a single interface group, but networks[{index}] has "
                f"{len(network.groups)}; put them under the root of a `Mixture`."
            )
    terms = tuple(network for network, share in zip(terms, shares, strict=True) if share)
    if len(terms) == 1:
        return terms[0]
    schema = terms[0].schema
    places = [tuple(range(len(schema)))] * len(terms)
    return _join(schema, terms, places, Sum, shares[shares > 0])


def _join(
    schema: Schema,
    networks: Sequence[DynamicNetwork],
    columns: Sequence[tuple[int, ...]],
    kind: type[Sum] | type[Product],
    shares: Floats,
) -> DynamicNetwork:
    """The templates of all networks beside each other, their roots under a sum or a product.

    A root of that kind already gives its children instead of itself.
    """
    tied = all(network.parameters.tied for network in networks)
    template: list[Entry] = []
    top: list[Entry] = []
    outputs: list[int] = []
    terms: list[int] = []
    weights: list[Floats] = []
    leaf_of: dict[int, Leaf] = {}
    for network, own, share in zip(networks, columns, shares, strict=True):
        first, position = len(template), len(outputs)
        places = dict(enumerate(own))
        for bank in network.template.banks:
            family = bank.family
            if isinstance(family, Contextual):
                family = family.moved(places)
            leaf_of.setdefault(own[bank.variable], Leaf(own[bank.variable], family))
        leaves = {variable: leaf_of[column] for variable, column in enumerate(own)}
        positions = {place: position + place for place in range(network.num_interfaces)}
        entries = template_entries(network if tied else network.untied())
        template += keep_entries(
            entries, range(len(entries)), first=first, positions=positions, leaves=leaves
        )[0]
        outputs += [first + output for output in network.template.outputs]
        cap, apex = top_entries(network), network.top.root
        is_kind = isinstance(cap[apex].node, kind)
        below = children_of(cap[apex].node) if is_kind else (apex,)
        # Nodes that the root does not read could still name the root, which may be gone.
        kept = reachable(network.top.nodes, below) | set(network.top.inputs)
        new, number = keep_entries(cap, kept, first=len(top), positions=positions)
        top += new
        terms += [number[child] for child in below]
        weights.append(share * (cap[apex].values[0] if is_kind and kind is Sum else np.ones(1)))
    apex, flat = terms[0], np.concatenate(weights)
    if kind is Sum:
        apex = add_node(top, Sum(tuple(terms)), flat / flat.sum())
    elif len(terms) > 1:
        apex = add_node(top, Product(tuple(terms)))
    return build_network(schema, template, outputs, top, apex, networks[0].root)


def checked_partition(schema: Schema, blocks: Any, argument: str) -> list[tuple[int, ...]]:
    """Lists of variables by number; raises unless each is in one list and no list is empty."""
    try:
        parts = [tuple(map(operator.index, block)) for block in blocks]
    except TypeError:
        raise StructureError(
            f"`{argument}` must be a list of lists of variables by number, such as [[0, 1], [2]], "
            f"but is {reprlib.repr(blocks)}."
        ) from None
    flat = sorted(variable for part in parts for variable in part)
    if flat != list(range(len(schema))) or not all(parts):
        raise StructureError(
            f"`{argument}` must hold each of the {len(schema)} variables exactly once and no empty "
            f"list, but is {parts}; variables are numbered from 0."
        )
    return parts


def _checked_columns(
    schema: Schema, networks: Sequence[DynamicNetwork], columns: Any
) -> list[tuple[int, ...]]:
    """The columns of each network; raises unless they share out the variables and fit."""
    places = checked_partition(schema, columns, "columns")
    if len(places) != len(networks):
        raise StructureError(
            f"`columns` must have one list of variable numbers for each of the {len(networks)} "
            f"networks, but is {columns!r}."
        )
    for index, (network, own) in enumerate(zip(networks, places, strict=True)):
        wanted = schema.select([schema.names[place] for place in own])
        if tuple(network.schema) != tuple(wanted):
            raise StructureError(
                f"networks[{index}] must be over the variables of columns {list(own)}, "
                f"{', '.join(variable.name for variable in wanted)}, but is over "
                f"{', '.join(network.schema.names)}, or other kinds or categories; build it with "
                "the schema of its columns."
            )
    return places


# Fewer variables, and more.


def marginal(network: DynamicNetwork, variables: Sequence[int]) -> DynamicNetwork:
    """P of some variables of every slice, exactly, as a network over them alone.

    A node over other variables only is worth 1 whatever is summed out, and is removed: its parents
    lose a factor, or are removed with it. So are interface groups over other variables only.
    `variables` are numbers of the schema, in any order; the new schema has them in the order of
    the old one.

    Raises:
        StructureError: Where a group has none of the variables in its own slice but reads some of
            the slice below: it would have no scope in the bottom network.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    kept = sorted(indices(variables, "variables", StructureError))
    if not kept or len(set(kept)) < len(kept) or not set(kept) <= set(range(len(network.schema))):
        raise StructureError(
            f"`variables` must be distinct numbers from 0 to {len(network.schema) - 1}, at least "
            f"one, but is {kept}."
        )
    if len(kept) == len(network.schema):
        return network
    if has_lags(network.schema):
        raise StructureError(
            "`variables` must be all variables where leaves are told entries of others or of "
            "earlier slices: without them the model is another one."
        )
    every, schema, stands = _keep_blocks(network, kept)
    groups = speaking_groups(network, stands)
    for group in groups:
        own = network.group_variables[group]
        if set(own).isdisjoint(stands):
            names = ", ".join(network.schema[variable].name for variable in own)
            raise StructureError(
                f"`variables` must have one of {names}: their interface group reads variables that "
                "are kept from the slice below, and cannot go; keep one of them too."
            )
    stays = sorted(position for group in groups for position in network.groups[group])
    positions = {position: place for place, position in enumerate(stays)}
    family = {node.variable: node.family for node, _ in every if isinstance(node, Leaf)}
    leaves = {variable: Leaf(place, family[variable]) for place, variable in enumerate(kept)}

    below = 1 << len(network.schema)
    marks = [below * (position in positions) for position in range(network.num_interfaces)]
    asked = below + sum(1 << variable for variable in kept)

    def reduced(part: Template | Top, entries: list[Entry]) -> tuple[list[Entry], list[int]]:
        scopes = network_scopes([node for node, _ in entries], part.order, marks)
        speaking = [index for index, scope in enumerate(scopes) if scope & asked]
        return keep_entries(entries, speaking, positions=positions, leaves=leaves)

    template, number = reduced(network.template, every)
    top, top_number = reduced(network.top, top_entries(network))
    outputs = [number[network.template.outputs[position]] for position in stays]
    return build_network(schema, template, outputs, top, top_number[network.top.root], network.root)


def _keep_blocks(
    network: DynamicNetwork, kept: Sequence[int]
) -> tuple[list[Entry], Schema, list[int]]:
    """The template's entries with blocks (`dspn.leaves.block`) of the variables kept alone.

    Also the schema of the variables kept, and the variables in whose place they stand: the first of
    a block that is kept takes the leaves of its carrier, which has its own in exchange.
    """
    entries, stands = template_entries(network), list(kept)
    variables = [network.schema[variable] for variable in kept]
    for bank in network.template.banks:
        block = bank.family
        if not isinstance(block, GaussianBlock) or block.is_silent:
            continue
        members = [m for m, column in enumerate(block.columns) if column in kept]
        if not members:
            continue
        columns = [kept.index(block.columns[m]) for m in members]
        families = block.restricted(members, columns)
        for column, family in zip(columns, families, strict=True):
            leaf = None
            if isinstance(family, GaussianBlock):
                leaf = GaussianBlock(family.columns, family.member)
            variables[column] = replace(variables[column], leaf=leaf)
        first = block.columns[members[0]]
        stands[columns[0]] = block.carrier
        own = {block.columns[m]: f for m, f in zip(members, families, strict=True)}
        for index, (node, values) in enumerate(entries):
            if not isinstance(node, Leaf):
                continue
            if node.variable == block.carrier:
                rows = block.restricted_rows(values, members)
                entries[index] = Entry(Leaf(first, own[first]), rows)
            elif node.variable == first:
                entries[index] = Entry(replace(node, variable=block.carrier), values)
            elif node.variable in own:
                entries[index] = Entry(replace(node, family=own[node.variable]), values)
    return entries, Schema(tuple(variables), network.schema.inputs), stands


def with_tables_by(
    network: DynamicNetwork, by: int | str, schema: Schema | None = None
) -> DynamicNetwork:
    """The same distribution, with a table of transition weights for each value of an input.

    Every sum over inputs of the template has its weights once for each value; learning can then
    tell them apart.

    Args:
        network: The network before.
        by: The categorical input, by name or number.
        schema: The schema with its inputs; by default that of the network.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    known = network.schema if schema is None else schema
    column = categorical_input(known, by)
    count = known.inputs[column].num_categories
    entries, reads = template_entries(network), reads_inputs(network.template)
    scopes = network_scopes(
        network.template.nodes, network.template.order, [0] * network.num_interfaces
    )
    for index, (node, values) in enumerate(entries):
        if isinstance(node, Sum) and node.by is None and reads[index] and not scopes[index]:
            entries[index] = Entry(Sum(node.children, column), np.tile(values, count))
    own = network.template.outputs, top_entries(network), network.top.root, network.root
    return build_network(known, entries, *own)


def categorical_input(schema: Schema, by: int | str) -> int:
    """The number of an input that weights may depend on, by name or number."""
    column = schema.input_index(by) if isinstance(by, str) else by
    if not 0 <= column < len(schema.inputs) or not schema.inputs[column].num_categories:
        names = [own.name for own in schema.inputs if own.num_categories]
        raise StructureError(
            f"`by` must be a categorical input of the schema ({', '.join(names) or 'none'}), but "
            f"is {by!r}."
        )
    return column


def speaking_groups(network: DynamicNetwork, variables: Iterable[int]) -> tuple[int, ...]:
    """The groups with one of the variables in their scope, in some slice."""

    def meeting(asked: set[int], sets: Sequence[tuple[int, ...]]) -> set[int]:
        return {group for group, own in enumerate(sets) if not asked.isdisjoint(own)}

    speaking = meeting(set(variables), network.group_variables)
    while not (readers := meeting(speaking, network.group_sources)) <= speaking:
        speaking |= readers
    return tuple(sorted(speaking))


def with_labels(network: DynamicNetwork, tables: Sequence[Floats]) -> DynamicNetwork:
    """The network with one more variable for each group: a label of the slice.

    Every output of group g has a leaf over the label; `tables[g]` has its category probabilities,
    a row for each position of the group. Sums keep their order and the leaves of labels are the
    last banks, so that other parameters of the network stand where they stood.
    """
    schema = network.schema
    prefix = "label"
    while any(name.startswith(prefix) for name in schema.names):
        prefix = f"_{prefix}"
    codes = [tuple(range(table.shape[1])) for table in tables]
    labels = [Variable.categorical(f"{prefix}{g}", own) for g, own in enumerate(codes)]
    entries = template_entries(network)
    outputs = list(network.template.outputs)
    below = {child for node in network.template.nodes for child in children_of(node)}
    for group, (positions, table) in enumerate(zip(network.groups, tables, strict=True)):
        family = Categorical(table.shape[1])
        for position, row in zip(positions, table, strict=True):
            leaf = add_node(entries, Leaf(len(schema) + group, family), row)
            output = outputs[position]
            node, values = entries[output]
            if isinstance(node, Product) and output not in below:
                entries[output] = Entry(Product((*node.children, leaf)), values)
            else:
                outputs[position] = add_node(entries, Product((output, leaf)))
    top, apex = top_entries(network), network.top.root
    return build_network(
        Schema((*schema, *labels), schema.inputs), entries, outputs, top, apex, network.root
    )

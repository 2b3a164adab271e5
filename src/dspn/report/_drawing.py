"""A template of moderate size as something to draw: places, edges and what each node says."""

from typing import Final

from dspn.io import JSON
from dspn.plotting._graph import Graph, Mark, capped_graph, template_graph
from dspn.plotting._layout import layered
from dspn.report._large import large_template
from dspn.structure import DynamicNetwork, Input, Leaf, Sum
from dspn.structure.nodes import children_of
from dspn.structure.validity import network_scopes

MAX_NODES: Final = 200
MAX_EDGES: Final = 2000


def drawn_template(network: DynamicNetwork) -> JSON:
    """Every node with its place, or blocks where there are too many."""
    template = network.template
    if len(template.nodes) > MAX_NODES or template.num_edges > MAX_EDGES:
        return large_template(network)
    graph = capped_graph(network)
    if len(graph.vertices) > 2 * MAX_NODES or len(graph.edges) > 2 * MAX_EDGES:
        graph = template_graph(network)
    return _drawn(network, graph)


def _drawn(network: DynamicNetwork, graph: Graph) -> JSON:
    layout = layered(graph)
    scopes = _scopes(network)
    leaves = _leaf_parameters(network)
    bottom = _bottom_weights(network)
    nodes: list[JSON] = []
    for index, vertex in enumerate(graph.vertices):
        node: dict[str, JSON] = {
            "kind": vertex.mark.value,
            "row": vertex.row,
            "column": round(layout.columns[index], 3),
            "scope": _members(scopes[index], len(network.schema)),
        }
        if vertex.group is not None:
            node["group"] = vertex.group
        if vertex.output is not None:
            node["output"] = vertex.output
        if vertex.mark is Mark.INPUT:
            node["input"] = int(vertex.label)
        node.update(leaves.get(index, {}))
        nodes.append(node)
    edges: list[JSON] = [
        [edge.parent, edge.child, edge.weight, [round(at, 3) for at in bends], bottom.get(number)]
        for number, (edge, bends) in enumerate(zip(graph.edges, layout.bends, strict=True))
    ]
    return {
        "style": "graph",
        "nodes": nodes,
        "edges": edges,
        "topRow": graph.top_row,
        "columns": round(layout.num_columns, 3),
    }


def _scopes(network: DynamicNetwork) -> list[int]:
    """Scopes of the template's nodes, then of the top's; see `structure.validity` for the bits."""
    template, top = network.template, network.top
    count = len(network.schema)
    alone = network_scopes(template.nodes, template.order, [0] * template.num_interfaces)
    inputs = [alone[output] << count for output in template.outputs]
    scopes = network_scopes(template.nodes, template.order, inputs)
    outputs = [scopes[output] for output in template.outputs]
    above = network_scopes(top.nodes, top.order, outputs)
    own = [above[i] for i, node in enumerate(top.nodes) if not isinstance(node, Input)]
    return [*scopes, *own]


def _members(scope: int, count: int) -> JSON:
    """Variables of the slice itself, and those of the slices below."""
    bits = [bit for bit in range(scope.bit_length()) if scope >> bit & 1]
    own: list[JSON] = [bit for bit in bits if bit < count]
    below: list[JSON] = [bit - count for bit in bits if bit >= count]
    return [own, below]


def _leaf_parameters(network: DynamicNetwork) -> dict[int, dict[str, JSON]]:
    """Variable and parameters of each leaf, with those of a bottom network that has its own."""
    found: dict[int, dict[str, JSON]] = {}
    own, bottom = network.parameters.template, network.parameters.bottom
    for number, bank in enumerate(network.template.banks):
        for row, node in enumerate(bank.nodes):
            leaf: dict[str, JSON] = {
                "variable": bank.variable,
                "parameters": own.leaves[number][row].tolist(),
            }
            if bottom is not None:
                leaf["bottom"] = bottom.leaves[number][row].tolist()
            found[node] = leaf
    return found


def _bottom_weights(network: DynamicNetwork) -> dict[int, float]:
    """Weights of the template's edges in a bottom network that has its own, by number of edge."""
    bottom = network.parameters.bottom
    if bottom is None:
        return {}
    found: dict[int, float] = {}
    number = 0
    for index, node in enumerate(network.template.nodes):
        for place in range(len(children_of(node))):
            if isinstance(node, Sum):
                found[number] = float(bottom.weights[network.template.edge_offsets[index] + place])
            number += 1
    return found


def group_members(network: DynamicNetwork) -> list[JSON]:
    """Each group's number of nodes, its variables and the groups it reads."""
    template = network.template
    alone = network_scopes(template.nodes, template.order, [0] * template.num_interfaces)
    found: list[JSON] = []
    for positions, sources in zip(network.groups, network.group_sources, strict=True):
        scope = alone[template.outputs[positions[0]]]
        variables: list[JSON] = [v for v in range(len(network.schema)) if scope >> v & 1]
        reads: list[JSON] = list(sources)
        found.append({"size": len(positions), "variables": variables, "reads": reads})
    return found


def node_counts(network: DynamicNetwork) -> dict[str, JSON]:
    """How many nodes of each kind the template has, and how many edges."""
    nodes = network.template.nodes
    return {
        "nodes": len(nodes),
        "edges": network.template.num_edges,
        "leaves": sum(isinstance(node, Leaf) for node in nodes),
        "sums": sum(isinstance(node, Sum) for node in nodes),
        "interfaces": network.num_interfaces,
    }

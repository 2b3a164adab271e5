"""Pruning by flow: edges of sums that the data hardly use are taken away.

The transitions of a large trained template are mostly empty. Without them a slice costs as much as
the edges that are left, and there is room for more interface nodes.
"""

import numpy as np

from dspn._arrays import Bools, Floats
from dspn._checks import require_type
from dspn.engine import ExpectedFlows
from dspn.errors import StructureError
from dspn.learning.moves._rewiring import SumEdges, checked_flows, thinned
from dspn.options import require_number
from dspn.structure import DynamicNetwork, Product, Template, Top


def _kept_edges(part: Template | Top, flows: Floats, least: float) -> Bools:
    """The edges of sums that are used, and the most used one of every sum and of every input."""
    edges = SumEdges.of(part)
    # Rounding may leave a flow just below zero.
    used = np.maximum(flows, 0.0)
    kept = used >= least
    order = np.argsort(-used, kind="stable")
    _, first = np.unique(edges.parent[order], return_index=True)
    kept[order[first]] = True
    below_product = {
        below for node in part.nodes if isinstance(node, Product) for below in node.children
    }
    lonely = np.zeros(len(part.nodes), dtype=np.bool_)
    lonely[[node for node in part.inputs if node not in below_product]] = True
    order = order[lonely[edges.child[order]]]
    _, first = np.unique(edges.child[order], return_index=True)
    kept[order[first]] = True
    return kept


def pruned(network: DynamicNetwork, flows: ExpectedFlows, least: float) -> DynamicNetwork:
    """The network without the edges of sums that fewer than `least` slices are expected to use.

    `flows` are the network's expected flows on the training set. Every sum keeps its most used
    edge, and every input the most used edge that leads to it; weights of a sum that lost edges are
    divided by their sum. Nodes that nothing leads to any more are left out. A bottom network with
    parameters of its own keeps an edge that either uses.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    checked_flows(network, flows)
    require_number("pruned", "least", least, least=0)
    template, top = network.template, network.top
    used = flows.template.weights
    if flows.bottom is not None:
        used = used + flows.bottom.weights
    return thinned(
        network,
        _kept_edges(template, used, least),
        _kept_edges(top, flows.top.weights, least),
        range(network.num_interfaces),
    )

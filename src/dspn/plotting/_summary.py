"""What a large template consists of, counted group by group."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.plotting._graph import reads_input
from dspn.structure import DynamicNetwork, Input, Leaf, Product, Sum
from dspn.structure.nodes import children_of, reachable

_FINEST = 128


@final
@dataclass(frozen=True)
class GroupSummary:
    """What stands below the outputs of one interface group.

    `leaves` counts leaves by variable, `alone` the sums and products that read no input, `mixes`
    are the sums over inputs only, `joining` counts what is between these and the outputs.
    """

    num_inputs: int
    outputs: Counter[str]
    leaves: Counter[int]
    alone: Counter[str]
    mixes: tuple[int, ...]
    joining: Counter[str]


def summarise(network: DynamicNetwork, group: int) -> GroupSummary:
    """Counts the nodes below one group's outputs by their part in the template."""
    nodes = network.template.nodes
    reads = reads_input(nodes, network.template.order)
    tops = {network.template.outputs[position] for position in network.groups[group]}
    outputs, alone, joining = Counter[str](), Counter[str](), Counter[str]()
    leaves: Counter[int] = Counter()
    mixes = []
    for index in sorted(reachable(nodes, tops)):
        node = nodes[index]
        kind = type(node).__name__.lower()
        if isinstance(node, Leaf):
            leaves[node.variable] += 1
        if index in tops:
            outputs[kind] += 1
        elif isinstance(node, Sum) and all(isinstance(nodes[c], Input) for c in node.children):
            mixes.append(index)
        elif isinstance(node, Sum | Product):
            (joining if reads[index] else alone)[kind] += 1
    return GroupSummary(len(tops), outputs, leaves, alone, tuple(mixes), joining)


def group_variables(network: DynamicNetwork, group: int) -> list[str]:
    """Names of the slice's variables below a group's outputs."""
    template = network.template
    outputs = [template.outputs[position] for position in network.groups[group]]
    nodes = [template.nodes[index] for index in reachable(template.nodes, outputs)]
    variables = {node.variable for node in nodes if isinstance(node, Leaf)}
    return [network.schema.names[variable] for variable in sorted(variables)]


def mix_picture(network: DynamicNetwork, mixes: Sequence[int]) -> Floats:
    """Mean weights on a grid of at most 128 x 128 cells, sums down and the inputs read across.

    Sums stand in the order of the first input they read. Only the grid is held, whatever the size
    of the mix.
    """
    template = network.template
    position = {node: position for position, node in enumerate(template.inputs)}
    reads = {i: np.array([position[c] for c in children_of(template.nodes[i])]) for i in mixes}
    read = np.unique(np.concatenate(list(reads.values())))
    height, width = min(len(mixes), _FINEST), min(len(read), _FINEST)
    total = np.zeros((height, width))
    down = np.arange(len(mixes)) * height // len(mixes)
    across = np.arange(len(read)) * width // len(read)
    for place, index in enumerate(sorted(mixes, key=lambda index: (reads[index].min(), index))):
        start = template.edge_offsets[index]
        weights = network.parameters.template.weights[start : start + len(reads[index])]
        np.add.at(total[down[place]], across[np.searchsorted(read, reads[index])], weights)
    mean: Floats = total / np.outer(np.bincount(down), np.bincount(across))
    return mean

"""What tries take, in the units of the effort: expected before they are made, and counted after.

Work is counted in edges of a template that are evaluated at a slice in a step of EM; one edge is a
third of a nanosecond, and a unit is 10^9 of them. The numbers were measured with the CPU engine in
single precision, with a pass over the validation set after every step. They need not be exact:
they tell what is affordable before it is tried, the same on every machine.
"""

from typing import Final

from dspn.learning.auto.base import (
    EARLY_STEPS,
    USUAL_STEPS,
    AutoTask,
    Block,
    BlockData,
    Candidate,
    Recipe,
)
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Sum

_UNIT: Final = 1e9
# Edges of sums over all inputs, which are products of matrices: in one chain, twice as much where
# its matrix has left the cache, and in each of several chains. Edges of sums over some inputs.
_DENSE_EDGE: Final = 0.1
_CACHED: Final = 512
_CHAIN_EDGE: Final = 0.4
_SPARSE_EDGE: Final = 0.2
# A slice whatever the template, with a part of it in the validation set; a chain beside others.
_PER_SLICE: Final = 450.0
_PER_CHAIN: Final = 200.0
_SCORED: Final = 0.3
# A leaf at a slice, and for each different value of its variable; one that is told something, and
# what its variable takes besides.
_PER_LEAF: Final = 0.2
_PER_VALUE: Final = 75.0
_PER_TOLD_LEAF: Final = 20.0
_PER_TOLD_SLICE: Final = 1_000.0
# Slices with Gaussian variables have no numbers: a node, one of its leaves, and dense edges in
# shares of what they take otherwise.
_PER_PRODUCT: Final = 10.0
_PER_GAUSSIAN: Final = 1.0
_WITHOUT_NUMBERS: Final = 1.5
# Edges and leaves below states of the interface, for each different slice.
_PER_INNER: Final = 6.0
# A step; a network that is begun, by node and by dense edge; a node that is split; a count that is
# pooled.
_PER_STEP: Final = 3e6
_PER_START: Final = 3e7
_PER_NODE: Final = 3.6e4
_PER_BUILT_EDGE: Final = 1e3
_PER_SPLIT: Final = 6e6
_PER_POOLED: Final = 1.5e4
# Edges that a node is expected to keep where a network is thinned.
_USUAL_EDGES: Final = 40
# Clusters: what a multiplication of k-means takes, its iterations, windows and axes at the most,
# and what a number takes that they see of a slice.
_PRODUCT: Final = 0.15
_ITERATIONS: Final = 12
_MOST_WINDOWS: Final = 20_000
_MOST_AXES: Final = 40
_PER_FEATURE: Final = 36.0


def expected_work(
    task: AutoTask,
    block: Block,
    recipe: Recipe,
    parent: Candidate | None,
    steps: int = USUAL_STEPS,
) -> float:
    """What a try is likely to take with so many steps."""
    data = task.data(block)
    if recipe.move.is_learned(task, data):
        steps = 0
    if parent is not None:
        is_new = recipe.move.growth > 1
        made = made_work(recipe, len(parent.network.template.nodes)) if is_new else 0.0
        inner = _inner_work(data, recipe.move.inner_edges(recipe, parent.size, len(block)))
        grown = recipe.move.growth * work_of(parent.network, data, steps)
        return made + grown + (steps + 1) * inner
    leaves = recipe.amount * len(block)
    sums = _chain_edges([recipe.amount] * max(1, len(recipe.layout)))
    if not recipe.move.has_clusters:
        sums = _SPARSE_EDGE * recipe.amount * data.num_runs(1)
    elif recipe.by_position:
        sums = _SPARSE_EDGE * recipe.amount**2 / task.longest
    begun = start_work(task, block, recipe)
    if task.is_thinned(recipe):
        begun += _step_work(data, sums, leaves, recipe.amount) * (EARLY_STEPS + 3)
        sums = _SPARSE_EDGE * _USUAL_EDGES * recipe.amount
    return begun + _step_work(data, sums, leaves, recipe.amount) * (steps + 1)


def start_work(task: AutoTask, block: Block, recipe: Recipe) -> float:
    """What a network without a parent takes before its first step: clusters of windows, mostly."""
    data, slices, chains = task.data(block), task.train.total_slices, max(1, len(recipe.layout))
    is_dense = recipe.move.has_clusters and not recipe.by_position
    edges = _PER_BUILT_EDGE * chains * recipe.amount**2 * is_dense
    edges += _PER_START * chains + _PER_NODE * recipe.amount * (len(block) + 2)
    if recipe.move.is_learned(task, data):
        edges += _PER_POOLED * recipe.amount * data.num_runs(1)
    elif recipe.amount > 1 and recipe.move.has_clusters:
        features = data.num_features * recipe.slices
        axes = min(features, _MOST_AXES * chains)
        windows = _ITERATIONS * min(slices, _MOST_WINDOWS) + slices
        edges += _PRODUCT * windows * recipe.amount * axes + _PER_FEATURE * slices * features
    return edges / _UNIT


def made_work(recipe: Recipe, num_nodes: int) -> float:
    """What it takes to make a template of so many nodes from another one."""
    split = recipe.amount if recipe.move.adds_nodes else 0
    return (_PER_NODE * num_nodes + _PER_SPLIT * split) / _UNIT


def work_of(network: DynamicNetwork, data: BlockData, steps: int) -> float:
    """What so many steps of EM and a last pass take."""
    template, groups = network.template, network.groups
    size, inputs = template.num_interfaces, set(template.inputs)
    sums = [node.children for node in template.nodes if isinstance(node, Sum)]
    mixes = [len(below) for below in sums if below[0] in inputs]
    states = sum(len(below) for below in sums) - sum(mixes)
    if len(groups) > 1:
        edges = _chain_edges([len(own) for own in groups])
    else:
        edges = _SPARSE_EDGE * sum(own for own in mixes if own != size)
        edges += mixes.count(size) / size * _chain_edges([size])
    leaves = [len(bank.nodes) for bank in template.banks]
    inner = _inner_work(data, states + sum(leaves)) if states else 0.0
    step = _step_work(data, edges, 0 if states else sum(leaves), max(leaves))
    return (steps + 1) * (step + inner)


def _chain_edges(sizes: list[int]) -> float:
    """What the dense sums of chains of these sizes take at a slice."""
    if len(sizes) > 1:
        return sum(_CHAIN_EDGE * size**2 + _PER_CHAIN for size in sizes)
    return _DENSE_EDGE * sizes[0] ** 2 * (2 if sizes[0] > _CACHED else 1)


def _step_work(data: BlockData, sums: float, leaves: int, size: int) -> float:
    """A step of EM, with sums that take so much at a slice."""
    told = data.num_told / len(data.train.schema)
    each = told * _PER_TOLD_LEAF + (1.0 - told) * _PER_LEAF
    if data.num_gaussian:
        sums *= _WITHOUT_NUMBERS
        sums += (_PER_PRODUCT + _PER_GAUSSIAN * data.num_gaussian) * size
    edges = _PER_SLICE + sums + leaves * each + data.num_told * _PER_TOLD_SLICE
    slices = data.train.total_slices + _SCORED * data.validation.total_slices
    return (slices * edges + _PER_VALUE * data.num_values * size + _PER_STEP) / _UNIT


def _inner_work(data: BlockData, edges: int) -> float:
    """What a step takes for so many edges and leaves below states of the interface."""
    return _PER_INNER * edges * data.num_slices / _UNIT

"""The moves of the automatic learner: each has its name and words, its rule and its start."""

from dataclasses import replace
from math import prod
from typing import Any, Final, final

from dspn.data.schema import Kind
from dspn.learning.auto.base import AutoTask, Block, BlockData, BlockRecord, Move, Recipe, Trial
from dspn.learning.dependence import Layout
from dspn.learning.moves import merged_interfaces, regrown, similar_interfaces
from dspn.learning.starts.clusters import clustered_network
from dspn.learning.starts.contexts import context_network
from dspn.learning.starts.hidden_trees import hidden_tree, shared_mixture
from dspn.learning.starts.informed import informed_split
from dspn.leaves.told import sources_of
from dspn.structure.network import DynamicNetwork, Root

# Pseudo-observations of a sum to begin with. More are tried at every rung: what a template has
# smoothed away does not come back, but it can be smoothed later.
_SUM: Final = 1.0
# Blocks of one variable, of two, and of more are compared with as many interface nodes.
_FIRST_SIZES: Final = (8, 16, 32)
# Interface nodes ask for this many slices each.
_LEAST_SLICES: Final = 10
# Clusters of windows tell no more apart than this; larger templates come from splits, or from
# clusters of each position in a sequence. Of these there must be so many at the least, from
# sequences of so many slices at the most.
_MOST_CLUSTERS: Final = 1024
_LEAST_AT_POSITION: Final = 4
_MOST_POSITIONS: Final = 64
# Blocks of slow variables need wide windows: a few slices show one value.
WIDE: Final = 10
# Slices before and after its own that a cluster sees. A node that is to remember sees what was
# before; one of many phases sees far. The first are raced at every rung.
_WINDOWS: Final = (
    (2, None),
    (2, 0),
    (1, 0),
    (0, None),
    (2, 8),
    (WIDE, None),
    (5, None),
    (3, 0),
    (1, None),
)
RACED: Final = 4
# Pseudo-observations of sums, by edge or as a whole, and of leaves.
_OTHER_SUMS: Final = ((0.1, True), (0.4, True), (0.2, False), (1.0, False))
_LEAF: Final = 1.0
_OTHER_LEAVES: Final = (3.0, 0.1, 1.0)
# Chains of runs: different slices, possible and seen, and slices of a run at the most; and
# pseudo-observations.
_MOST_POSSIBLE: Final = 4_096
_MOST_SLICES: Final = 64
_MOST_ORDER: Final = 6
_CONTEXT_EDGE: Final = 0.1
_CONTEXT_LEAF: Final = 0.1
_MOST_STATES: Final = 128
# Joint starts: products at first at the most, with as many sequences for each, and at least; the
# nodes of each block's chain; and windows, which see far ahead: starts are to tell what follows.
_MOST_PRODUCTS: Final = 64
_USUAL_SEQUENCES: Final = 60
_LEAST_SEQUENCES: Final = 20
_CHAIN: Final = 32
_AHEAD: Final = ((0, 16), (2, 8), (0, 4))
# Candidates that are split: the best ones.
_PARENTS: Final = 3
_FEW: Final = 8


def _most_nodes(task: AutoTask) -> int:
    """The number of interface nodes that options and data allow."""
    return max(1, min(task.options.max_interfaces, task.train.total_slices // _LEAST_SLICES))


@final
class Clusters(Move):
    """A network begun anew, from clusters of slices with their context."""

    name = "clusters"
    words = "{amount} clusters of {slices} slices"
    expected = 1.0

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """The next rung for as long as it is better, then other windows at the best one."""
        begun = [own for own in record.candidates if own.recipe.move in (CLUSTERS, REGROUP)]
        best = max(begun, key=lambda own: own.score)
        most = most_clusters(record.task, best.recipe.by_position)
        anew, recipes = replace(best.recipe, move=self, amount=best.size, parent=None), []
        if best.size >= max(own.size for own in begun):
            recipes.append(replace(anew, amount=min(2 * best.size, most)))
        if best.size > 1:
            recipes += other_windows(record.task, anew)
        return recipes

    def start(self, trial: Trial) -> DynamicNetwork:
        """Interface nodes that begin as clusters; the network of the parent where there is one."""
        if trial.parent is not None:
            return trial.network
        recipe, task = trial.recipe, trial.task
        settings: dict[str, Any] = {"priors": trial.priors, "rng": trial.rng, "root": task.root}
        settings |= {"width": recipe.width, "ahead": recipe.ahead}
        settings |= {"by_position": recipe.by_position}
        if recipe.layout:
            place = {variable: n for n, variable in enumerate(trial.block)}
            groups = [[place[variable] for variable in block] for block in recipe.layout]
            settings |= {"groups": groups, "num_products": recipe.products}
        network = clustered_network(trial.data.train, recipe.amount, **settings)
        return network if task.tied else network.untied()


@final
class Contexts(Move):
    """A Markov chain of variable order: nodes remember the slices before them."""

    name = "contexts"
    words = "{amount} runs of up to {slices} slices"
    expected = 0.5
    has_clusters = False

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """Longer and longer runs, as far as there is room; for a few different slices only."""
        task, data, found = record.task, record.task.data(record.block), list[Recipe]()
        own = [task.schema[variable] for variable in record.block]
        # Leaves that are told the slices before them need no nodes that remember these.
        is_apt = all(item.kind is Kind.CATEGORICAL and not sources_of(item) for item in own)
        if not is_apt or prod(variable.num_categories for variable in own) > _MOST_POSSIBLE:
            return []
        most, before = _most_nodes(task), 1
        if task.root != Root.FIRST or not 1 < data.num_runs(1) <= min(most, _MOST_SLICES):
            return []
        for order in range(1, _MOST_ORDER + 1):
            size = min(data.num_runs(order), most)
            recipe = Recipe(self, size, _CONTEXT_EDGE, order - 1, per_edge=True, leaf=_CONTEXT_LEAF)
            found += [replace(recipe, ahead=0)] * (size > before or size == most)
            before = size
        return found

    def start(self, trial: Trial) -> DynamicNetwork:
        """The chain of the runs that are most frequent in the training set."""
        data, order = trial.data.train, trial.recipe.width + 1
        size = max(trial.recipe.amount, trial.data.num_runs(1))
        pooled = self.is_learned(trial.task, trial.data)
        network = context_network(data, size, order, priors=trial.priors, pooled=pooled)
        return network if trial.task.tied else network.untied()

    def is_learned(self, task: AutoTask, data: BlockData) -> bool:
        """Yes where no entry is missing and no priors are given."""
        return task.priors is None and not data.has_missing


@final
class JointStarts(Move):
    """Blocks with chains of their own, which products of the top network start together.

    A product says what sequences of one kind have in common, once; its chain says how a block goes
    on from there.
    """

    name = "joint starts"
    words = "{products} joint starts of {chains} chains, {amount} clusters of {slices} slices"
    expected = 0.7

    def first(self, task: AutoTask, layout: Layout) -> list[Recipe]:
        """What the blocks of a layout begin with, for each window; none for few sequences."""
        total = len(task.train)
        count = max(_FEW, min(_MOST_PRODUCTS, total // _USUAL_SEQUENCES))
        count = min(count, total // _LEAST_SEQUENCES)
        size = min(_CHAIN, most_clusters(task))
        if count < 2 or size < 2:
            return []
        own = Recipe(self, size, 1.0 / size, per_edge=True, leaf=_LEAF)
        own = replace(own, layout=layout, products=count)
        return [replace(own, width=width, ahead=ahead) for width, ahead in _AHEAD]

    def larger(self, recipe: Recipe) -> Recipe:
        """Twice as many nodes, with as many pseudo-observations for each sum."""
        return replace(recipe, amount=2 * recipe.amount, concentration=0.5 * recipe.concentration)

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """More nodes, more products, blocks joined, other windows, where some are there."""
        begun = [own for own in record.candidates if own.recipe.move == self]
        if not begun:
            return []
        task, own = record.task, max(begun, key=lambda own: own.score).recipe
        found = [self.larger(own), replace(own, products=own.products * 3 // 2)]
        found += [
            replace(own, layout=tuple(sorted([joined, *rest])))
            for joined, one, other in task.joins
            if one in own.layout and other in own.layout
            if (rest := [block for block in own.layout if block not in (one, other)])
        ][:2]
        found += [replace(own, width=width, ahead=ahead) for width, ahead in _AHEAD]
        found += [replace(own, products=2 * own.products)]
        return [own for own in found if own.amount <= most_clusters(task)]

    def start(self, trial: Trial) -> DynamicNetwork:
        """Nodes that begin as clusters of their block, products as clusters of first nodes."""
        return CLUSTERS.start(trial)


@final
class Regroup(Move):
    """New blocks of variables, begun from clusters; the planner chooses the blocks."""

    name = "regroup"
    words = "{amount} clusters of {slices} slices, regrouped"
    expected = 0.5

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """Nothing for a block that is there."""
        return []

    def start(self, trial: Trial) -> DynamicNetwork:
        """Interface nodes that begin as clusters."""
        return CLUSTERS.start(trial)


@final
class Split(Move):
    """Interface nodes split in two, after edges that are hardly used were pruned."""

    name = "split"
    words = "{amount} nodes split"
    expected = 1.0
    growth = 3.0
    adds_nodes = True

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """All nodes of the best candidates, as far as there is room."""
        most = _most_nodes(record.task)
        best = sorted(record.single, key=lambda own: -own.score)[:_PARENTS]
        counts = [(parent, min(parent.size, most - parent.size)) for parent in best]
        return [own.follow(self, n) for own, n in counts if n >= max(1, own.size // 4)]

    def start(self, trial: Trial) -> DynamicNetwork:
        """The nodes that gain most, split by the kinds of their visits."""
        return trial.without_idle_edges().apply(informed_split)


@final
class SharedMixture(Move):
    """The leaves below the interface replaced by a mixture that all interface nodes share."""

    name = "shared mixture"
    words = "mixture of {amount} shared"
    expected = 1.0

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """Half as many states as nodes, and as many, up to what the variables can tell apart."""
        parent, most = record.best_plain, 1
        for variable in record.block:
            own = record.task.schema[variable]
            states = own.num_categories if own.kind == Kind.CATEGORICAL else _MOST_STATES
            most = min(_MOST_STATES, most * states)
        if parent is None or most <= 4 or parent.size < _FEW:
            return []
        sizes = [min(most, max(_FEW, parent.size // 2)), min(most, parent.size)]
        return [parent.follow(self, size) for size in dict.fromkeys(sizes)]

    def inner_edges(self, recipe: Recipe, size: int, width: int) -> int:
        """Those to the states, and their leaves."""
        return recipe.amount * (size + width)

    def start(self, trial: Trial) -> DynamicNetwork:
        """States that begin as clusters of slices."""
        return trial.apply(shared_mixture)


@final
class HiddenTree(Move):
    """The leaves below the interface replaced by a hidden Chow-Liu tree."""

    name = "hidden tree"
    words = "hidden tree of {amount} states"
    expected = 0.5

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """A few states, and twice as many, for three variables or more."""
        parent = record.best_plain
        if parent is None or len(record.block) < 3:
            return []
        return [parent.follow(self, states) for states in (_FEW, 2 * _FEW)]

    def inner_edges(self, recipe: Recipe, size: int, width: int) -> int:
        """Those to the root of the tree, between its variables' states, and their leaves."""
        return recipe.amount * (size + width * (recipe.amount + 1))

    def start(self, trial: Trial) -> DynamicNetwork:
        """States that begin as clusters of a variable and its neighbours in the tree."""
        return trial.apply(hidden_tree)


@final
class Training(Move):
    """The best model trained on, where its training ended before it was done."""

    name = "training"
    words = "{amount} nodes trained on"
    expected = 1.0

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """The best candidate, if it was cut."""
        best = max(record.candidates, key=lambda own: own.score)
        return [best.follow(self, best.size)] if best.is_cut else []

    def start(self, trial: Trial) -> DynamicNetwork:
        """The network as it is."""
        return trial.network


@final
class OtherPrior(Move):
    """The best model trained on with other priors."""

    name = "prior"
    words = "{concentration:g} pseudo-observations of sums, {leaf:g} of leaves"
    expected = 0.3

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """More and fewer pseudo-observations, unless priors were given."""
        if record.task.priors is not None:
            return []
        best = max(record.candidates, key=lambda own: own.score)
        own = best.recipe
        changes = [{"concentration": factor * own.concentration} for factor in (3.0, 1.0 / 3.0)]
        if has_categories(record.task, record.block):
            changes += [{"leaf": 2.0 * own.leaf + 1.0}, {"leaf": 0.5 * own.leaf}]
        return [best.follow(self, best.size, **change) for change in changes]

    def start(self, trial: Trial) -> DynamicNetwork:
        """The network as it is."""
        return trial.network


@final
class Merge(Move):
    """Similar interface nodes merged."""

    name = "merge"
    words = "{amount} pairs of nodes merged"
    expected = 0.3

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """Half of the nodes of the best model, and a quarter."""
        best = record.best
        is_apt = best.size >= _FEW and best.is_plain
        return [best.follow(self, best.size // share) for share in (2, 4)] if is_apt else []

    def start(self, trial: Trial) -> DynamicNetwork:
        """The pairs merged that are estimated to lose least."""
        network = trial.network
        flows = trial.expected_flows(network)
        pairs = similar_interfaces(network, flows, trial.recipe.amount).pairs
        return merged_interfaces(network, pairs) if pairs else network


@final
class Regrow(Move):
    """Transitions added that the data would use."""

    name = "regrow"
    words = "{amount} edges added"
    expected = 0.2

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """Four edges for each node of the best model, where at least half of them are missing."""
        best = record.best
        is_sparse = best.network.template.num_weights <= best.size**2 // 2
        return [best.follow(self, 4 * best.size)] if is_sparse and best.is_plain else []

    def start(self, trial: Trial) -> DynamicNetwork:
        """The edges added that the data would use most."""
        return regrown(trial.network, trial.data.train, trial.recipe.amount)


CLUSTERS: Final = Clusters()
CONTEXTS: Final = Contexts()
USUAL: Final = Recipe(CLUSTERS, 1, _SUM, leaf=_LEAF)
JOINT_STARTS: Final = JointStarts()
REGROUP: Final = Regroup()
PRIOR: Final = OtherPrior()
DEFAULT_MOVES: Final[tuple[Move, ...]] = (
    CLUSTERS,
    CONTEXTS,
    JOINT_STARTS,
    Split(),
    SharedMixture(),
    HiddenTree(),
    Training(),
    PRIOR,
    Merge(),
    Regrow(),
    REGROUP,
)


def most_clusters(task: AutoTask, by_position: bool = False) -> int:
    """The number of nodes of the highest rung of the ladder."""
    most = _most_nodes(task)
    return most if by_position else min(_MOST_CLUSTERS, most)


def may_have_positions(task: AutoTask, amount: int) -> bool:
    """Whether so many nodes suffice for some at each position in a sequence."""
    return 1 < task.longest <= _MOST_POSITIONS and amount >= _LEAST_AT_POSITION * task.longest


def of_size(task: AutoTask, recipe: Recipe, amount: int) -> Recipe:
    """The recipe with another number of nodes."""
    by_position = recipe.by_position and may_have_positions(task, amount)
    return replace(recipe, amount=amount, by_position=by_position)


def has_categories(task: AutoTask, block: Block) -> bool:
    """Whether some variable of the block is categorical."""
    return any(task.schema[variable].kind == Kind.CATEGORICAL for variable in block)


def first_recipe(
    task: AutoTask, block: Block, move: Move = CLUSTERS, like: Recipe | None = None
) -> Recipe:
    """What a block is compared with, with the settings of another recipe where one is given."""
    size = min(_FIRST_SIZES[min(len(block), len(_FIRST_SIZES)) - 1], most_clusters(task))
    return replace(of_size(task, like or USUAL, size), move=move, parent=None)


def other_windows(task: AutoTask, recipe: Recipe) -> list[Recipe]:
    """The same with nodes for each position, or for all of them, and with each of the windows.

    With nodes for each position single slices tell much already: then a node is a value there.
    """
    found = [replace(recipe, width=before, ahead=after) for before, after in _WINDOWS]
    if recipe.by_position or may_have_positions(task, recipe.amount):
        alone = replace(recipe, by_position=True, width=0, ahead=None)
        found[:0] = [replace(recipe, by_position=not recipe.by_position), alone]
    return found


def other_settings(task: AutoTask, block: Block, recipe: Recipe) -> list[Recipe]:
    """The recipe with one of its settings changed: pseudo-observations of leaves and sums."""
    if task.priors is not None:
        return []
    leaves = _OTHER_LEAVES if has_categories(task, block) else ()
    found = [replace(recipe, leaf=leaf) for leaf in leaves]
    if recipe.amount > _FEW:
        found[1:1] = [replace(recipe, concentration=c, per_edge=edge) for c, edge in _OTHER_SUMS]
    return [own for own in found if own != recipe]

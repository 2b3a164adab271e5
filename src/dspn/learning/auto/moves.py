"""The moves of the automatic learner: each has its name and words, its rule and its start."""

from typing import Any, Final, final

from dspn.data.schema import Kind
from dspn.learning.auto.base import AutoTask, Block, BlockRecord, Move, Recipe, Trial
from dspn.learning.moves import merged_interfaces, regrown, similar_interfaces
from dspn.learning.starts.clusters import clustered_network
from dspn.learning.starts.hidden_trees import hidden_tree, shared_mixture
from dspn.learning.starts.informed import informed_split
from dspn.structure.network import DynamicNetwork

USUAL: Final = 0.3
_OTHER_CONCENTRATIONS: Final = (3.0, 0.03)
# A block begins with this many interface nodes for one variable, for two, and for more.
_FIRST_SIZES: Final = (16, 32, 64)
# Interface nodes ask for this many slices each.
_LEAST_SLICES: Final = 30
# Clusters of windows tell no more apart than this; larger templates come from splits. The more
# clusters there are, the more context tells them apart.
_MOST_CLUSTERS: Final = 512
_WIDE: Final = 5
_OTHER_WIDTHS: Final = (8, 3, 5, 1)
_MOST_STATES: Final = 128
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
        """Larger and smaller templates for as long as they are better, then other windows."""
        most = min(_MOST_CLUSTERS, _most_nodes(record.task))
        begun = (CLUSTERS, REGROUP)
        sizes = [own.size for own in record.candidates if own.recipe.move in begun]
        best = min(record.best.size, most)
        recipes = []
        if best >= max(sizes):
            recipes.append(Recipe(self, min(4 * max(sizes), most), USUAL, _WIDE))
        if best <= min(sizes):
            recipes.append(Recipe(self, min(sizes) // 2, USUAL, 1))
        recipes += [Recipe(self, best, USUAL, width) for width in _OTHER_WIDTHS if best > 1]
        return [recipe for recipe in recipes if recipe.amount > 0]

    def start(self, trial: Trial) -> DynamicNetwork:
        """Interface nodes that begin as clusters; the network of the parent where there is one."""
        if trial.parent is not None:
            return trial.network
        recipe, task = trial.recipe, trial.task
        settings: dict[str, Any] = {"priors": trial.priors, "rng": trial.rng, "root": task.root}
        data, width = trial.data.train, recipe.width
        network = clustered_network(data, recipe.amount, width=width, **settings)
        return network if task.tied else network.untied()


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
        best = sorted(record.candidates, key=lambda own: -own.score)[:_PARENTS]
        counts = [(parent, min(parent.size, most - parent.size)) for parent in best]
        return [own.follow(self, n) for own, n in counts if n >= max(1, own.size // 4)]

    def start(self, trial: Trial) -> DynamicNetwork:
        """The nodes that gain most, split by the kinds of their visits."""
        return trial.apply(informed_split)


@final
class SharedMixture(Move):
    """The leaves below the interface replaced by a mixture that all interface nodes share."""

    name = "shared mixture"
    words = "mixture of {amount} shared"
    expected = 1.0
    growth = 1.5

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

    def start(self, trial: Trial) -> DynamicNetwork:
        """States that begin as clusters of slices."""
        return trial.apply(shared_mixture)


@final
class HiddenTree(Move):
    """The leaves below the interface replaced by a hidden Chow-Liu tree."""

    name = "hidden tree"
    words = "hidden tree of {amount} states"
    expected = 0.5
    growth = 1.5

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """A few states, and twice as many, for three variables or more."""
        parent = record.best_plain
        if parent is None or len(record.block) < 3:
            return []
        return [parent.follow(self, states) for states in (_FEW, 2 * _FEW)]

    def start(self, trial: Trial) -> DynamicNetwork:
        """States that begin as clusters of a variable and its neighbours in the tree."""
        return trial.apply(hidden_tree)


@final
class OtherPrior(Move):
    """The best model trained on with other priors."""

    name = "prior"
    words = "{concentration:g} pseudo-observations"
    expected = 0.3

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """More and fewer pseudo-observations, unless priors were given."""
        best = record.best
        others = _OTHER_CONCENTRATIONS if record.task.priors is None else ()
        own = best.recipe.concentration
        return [best.follow(self, best.size, other) for other in others if other != own]

    def start(self, trial: Trial) -> DynamicNetwork:
        """The network as it is."""
        return trial.network


@final
class Merge(Move):
    """Similar interface nodes merged."""

    name = "merge"
    words = "{amount} pairs of nodes merged"
    expected = 0.1

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        """A quarter of the nodes of the best model."""
        best = record.best
        is_apt = best.size >= _FEW and best.is_plain
        return [best.follow(self, best.size // 4)] if is_apt else []

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
REGROUP: Final = Regroup()
DEFAULT_MOVES: Final[tuple[Move, ...]] = (
    CLUSTERS,
    Split(),
    SharedMixture(),
    HiddenTree(),
    OtherPrior(),
    Merge(),
    Regrow(),
    REGROUP,
)


def first_recipe(task: AutoTask, block: Block, move: Move = CLUSTERS) -> Recipe:
    """What a block begins with."""
    usual = _FIRST_SIZES[min(len(block), len(_FIRST_SIZES)) - 1]
    return Recipe(move, min(usual, _MOST_CLUSTERS, _most_nodes(task)), USUAL)

"""The next recipe of each move for a block: one that was not tried yet and may pay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from dspn.data import Kind
from dspn.learning.auto.candidates import Block, Candidate
from dspn.learning.auto.recipes import Move, Recipe
from dspn.learning.auto.task import AutoTask
from dspn.structure import Leaf, Product

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


def _most_clusters(task: AutoTask) -> int:
    return min(_MOST_CLUSTERS, _most_nodes(task))


def first_size(task: AutoTask, block: Block) -> int:
    """The number of interface nodes that a block begins with."""
    usual = _FIRST_SIZES[min(len(block), len(_FIRST_SIZES)) - 1]
    return min(usual, _most_clusters(task))


def first_recipe(task: AutoTask, block: Block, move: Move = Move.CLUSTERS) -> Recipe:
    """What a block begins with."""
    return Recipe(move, first_size(task, block), USUAL)


def _is_plain(candidate: Candidate) -> bool:
    """Whether the leaves of every output stand right below it."""
    nodes = candidate.network.template.nodes
    return all(
        isinstance(own := nodes[output], Product)
        and any(isinstance(nodes[child], Leaf) for child in own.children)
        for output in candidate.network.template.outputs
    )


@final
@dataclass(frozen=True, eq=False)
class Proposer:
    """What may be tried next for one block, of which some candidates are trained."""

    task: AutoTask
    block: Block
    candidates: Sequence[Candidate]

    @property
    def best(self) -> Candidate:
        """The candidate with the greatest score."""
        return max(self.candidates, key=lambda candidate: candidate.score)

    @property
    def _tried(self) -> set[Recipe]:
        return {candidate.recipe for candidate in self.candidates}

    def recipe(self, move: Move) -> Recipe | None:
        """The next recipe of a move; None where there is nothing left to try."""
        options = {
            Move.CLUSTERS: self._clusters,
            Move.SPLIT: self._split,
            Move.SHARED: self._shared,
            Move.TREE: self._tree,
            Move.PRIOR: self._prior,
            Move.MERGE: self._merge,
            Move.REGROW: self._regrow,
        }[move]()
        tried = self._tried
        return next((recipe for recipe in options if recipe not in tried), None)

    def _clusters(self) -> list[Recipe]:
        """Larger and smaller templates for as long as they are better, then other windows."""
        most = _most_clusters(self.task)
        sizes = [
            candidate.size
            for candidate in self.candidates
            if candidate.recipe.move in (Move.CLUSTERS, Move.REGROUP)
        ]
        best = min(self.best.size, most)
        found = []
        if best >= max(sizes):
            found.append(Recipe(Move.CLUSTERS, min(4 * max(sizes), most), USUAL, _WIDE))
        if best <= min(sizes):
            found.append(Recipe(Move.CLUSTERS, min(sizes) // 2, USUAL, 1))
        found += [Recipe(Move.CLUSTERS, best, USUAL, width) for width in _OTHER_WIDTHS if best > 1]
        return [recipe for recipe in found if recipe.amount > 0]

    def _split(self) -> list[Recipe]:
        """All nodes of the best candidates, as far as there is room."""
        most = _most_nodes(self.task)
        found = []
        for parent in sorted(self.candidates, key=lambda candidate: -candidate.score)[:_PARENTS]:
            count = min(parent.size, most - parent.size)
            if count >= max(1, parent.size // 4):
                recipe = Recipe(
                    Move.SPLIT, count, parent.recipe.concentration, parent=parent.number
                )
                found.append(recipe)
        return found

    def _plain_parent(self) -> Candidate | None:
        plain = [candidate for candidate in self.candidates if _is_plain(candidate)]
        return max(plain, key=lambda candidate: candidate.score, default=None)

    def _states(self) -> int:
        """The number of latent states that a slice may ask for."""
        schema = self.task.schema
        states = 1
        for variable in self.block:
            own = schema[variable]
            states *= own.num_categories if own.kind == Kind.CATEGORICAL else _MOST_STATES
            if states >= _MOST_STATES:
                return _MOST_STATES
        return states

    def _shared(self) -> list[Recipe]:
        parent, most = self._plain_parent(), self._states()
        if parent is None or most <= 4 or parent.size < _FEW:
            return []
        sizes = [min(most, max(_FEW, parent.size // 2)), min(most, parent.size)]
        return [
            Recipe(Move.SHARED, size, parent.recipe.concentration, parent=parent.number)
            for size in dict.fromkeys(sizes)
        ]

    def _tree(self) -> list[Recipe]:
        parent = self._plain_parent()
        if parent is None or len(self.block) < 3:
            return []
        return [
            Recipe(Move.TREE, states, parent.recipe.concentration, parent=parent.number)
            for states in (_FEW, 2 * _FEW)
        ]

    def _prior(self) -> list[Recipe]:
        best = self.best
        if self.task.priors is not None:
            return []
        return [
            Recipe(Move.PRIOR, best.size, concentration, parent=best.number)
            for concentration in _OTHER_CONCENTRATIONS
            if concentration != best.recipe.concentration
        ]

    def _merge(self) -> list[Recipe]:
        best = self.best
        if best.size < _FEW or not _is_plain(best):
            return []
        count = best.size // 4
        return [Recipe(Move.MERGE, count, best.recipe.concentration, parent=best.number)]

    def _regrow(self) -> list[Recipe]:
        best = self.best
        edges, size = best.network.template.num_weights, best.size
        if edges > size * size // 2 or not _is_plain(best):
            return []
        return [Recipe(Move.REGROW, 4 * size, best.recipe.concentration, parent=best.number)]

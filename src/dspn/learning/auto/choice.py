"""Which layouts the model is mixed from, and what each of their blocks is mixed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats
from dspn.learning.auto.candidates import Block, BlockModel, Pool, block_model
from dspn.learning.auto.mixing import kept_members, mixed, mixture_weights
from dspn.learning.auto.options import Auto
from dspn.learning.layouts import Layout

# Layouts that are looked at together; the best by themselves.
_MOST_AT_ONCE: Final = 12


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """The best mixture of layouts that the candidates allow, and its validation likelihoods."""

    layouts: tuple[Layout, ...]
    weights: Floats
    models: Mapping[Block, BlockModel]
    validation: Floats

    @property
    def score(self) -> float:
        """Mean log-likelihood of the validation sequences."""
        return float(self.validation.mean())

    def block_weights(self) -> dict[Block, float]:
        """How much each block counts: the weight of the layouts that it is part of."""
        found: dict[Block, float] = {}
        for layout, weight in zip(self.layouts, self.weights.tolist(), strict=True):
            for block in layout:
                found[block] = found.get(block, 0.0) + weight
        return found


def _added_one_by_one(table: Floats, most: int) -> list[int]:
    """Columns of a table of log-likelihoods, each the one that makes the mixture best.

    The best column comes first; columns that make nothing better are left out.
    """
    order = np.argsort(-table.mean(axis=0), kind="stable")[:_MOST_AT_ONCE]
    ranked = [int(column) for column in order]
    kept = ranked[:1]
    best = float(table[:, kept[0]].mean())
    while len(kept) < most:
        scores = {}
        for column in ranked:
            if column not in kept:
                columns = [*kept, column]
                weights = mixture_weights(table[:, columns])
                scores[column] = float(mixed(table[:, columns], weights).mean())
        column = max(scores, key=lambda column: scores[column], default=-1)
        if column < 0 or scores[column] <= best:
            break
        kept.append(column)
        best = scores[column]
    return kept


@final
class Chooser:
    """Chooses again whenever there are more candidates; blocks without news are not mixed again.

    Candidates and layouts only become more, so that what was chosen before stays possible: a choice
    is never worse than the one before it.
    """

    def __init__(self, options: Auto) -> None:
        self._options = options
        self._known: dict[tuple[Block, int], BlockModel] = {}
        self._best: Choice | None = None

    def model(self, pool: Pool, block: Block) -> BlockModel:
        """The mixture of a block's candidates."""
        own = pool.by_block[block]
        key = (block, len(own))
        if key not in self._known:
            options = self._options
            self._known[key] = block_model(
                own, most=options.max_members, least=options.least_weight
            )
        return self._known[key]

    def choice(self, pool: Pool, layouts: Sequence[Layout]) -> Choice:
        """The mixture of the layouts that are worth it, with weights learned on validation."""
        found = self._found(pool, layouts)
        # Members that are left out for others, and the prior of the weights, may cost something.
        if self._best is None or found.score >= self._best.score:
            self._best = found
        return self._best

    def _found(self, pool: Pool, layouts: Sequence[Layout]) -> Choice:
        models = {block: self.model(pool, block) for layout in layouts for block in layout}
        table = np.stack(
            [sum(models[block].validation for block in layout) for layout in layouts], axis=1
        )
        options = self._options
        kept = _added_one_by_one(table, options.max_layouts)
        weights = mixture_weights(table[:, kept])
        kept = [kept[place] for place in kept_members(weights, options.least_weight, len(kept))]
        chosen = tuple(layouts[place] for place in kept)
        weights = mixture_weights(table[:, kept])
        used = {block: models[block] for layout in chosen for block in layout}
        return Choice(chosen, weights, used, mixed(table[:, kept], weights))

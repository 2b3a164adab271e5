"""The mixture that the candidates allow: of layouts, and of the models of each of their blocks.

Weights of mixtures are learned on the validation sequences, which no member was trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
from scipy.special import logsumexp

from dspn._arrays import Floats
from dspn.errors import DataError
from dspn.learning.auto.base import Auto, Block, Candidate
from dspn.learning.dependence import Layout

_MOST_STEPS: Final = 200
_TOLERANCE: Final = 1e-6
# Layouts that are looked at together; the best by themselves.
_MOST_AT_ONCE: Final = 12


def mixture_weights(log_likelihoods: Floats, *, pseudo_count: float = 0.5) -> Floats:
    """The weights w that maximise sum_i log sum_c w_c exp(l[i, c]) + sum_c a log w_c, (C,).

    `log_likelihoods` is (sequences, members), and a is `pseudo_count` / C. The sum is concave in w,
    and steps of EM lead to its maximum.
    """
    if log_likelihoods.ndim != 2 or not log_likelihoods.shape[1]:
        raise DataError(
            "`log_likelihoods` must be an array of sequences and members, with one member at "
            f"least, but has shape {log_likelihoods.shape}."
        )
    count = log_likelihoods.shape[1]
    weights = np.full(count, 1.0 / count)
    seen = log_likelihoods[np.isfinite(log_likelihoods).any(axis=1)]
    if count == 1 or not len(seen):
        return weights
    prior = pseudo_count / count
    shares = np.exp(seen - seen.max(axis=1, keepdims=True))
    for _ in range(_MOST_STEPS):
        joint = shares * weights
        posterior = joint / joint.sum(axis=1, keepdims=True)
        before = weights
        weights = (posterior.sum(axis=0) + prior) / (len(seen) + pseudo_count)
        if float(np.abs(weights - before).max()) < _TOLERANCE:
            break
    normalised: Floats = weights / weights.sum()
    return normalised


def mix(log_likelihoods: Floats, weights: Floats) -> Floats:
    """Log sum_c w_c exp(l[i, c]) of each sequence; -inf where every member says so."""
    with np.errstate(divide="ignore"):
        return np.asarray(logsumexp(log_likelihoods + np.log(weights), axis=1))


def worthy_members(weights: Floats, least: float, most: int) -> list[int]:
    """The members worth keeping: the `most` heaviest at the most, none below `least`, never none.

    They are numbered in their own order.
    """
    order = np.argsort(-weights, kind="stable")[:most]
    return sorted([int(own) for own in order if weights[own] >= least] or [int(order[0])])


@final
@dataclass(frozen=True, eq=False)
class BlockModel:
    """The candidates of a block that are kept, mixed: their weights and validation likelihoods."""

    members: tuple[Candidate, ...]
    weights: Floats
    validation: Floats

    @property
    def score(self) -> float:
        """Mean log-likelihood of the validation sequences."""
        return float(self.validation.mean())


def block_model(candidates: tuple[Candidate, ...], *, most: int, least: float) -> BlockModel:
    """The mixture of the candidates that are worth it, with weights learned on validation."""
    table = np.stack([candidate.validation for candidate in candidates], axis=1)
    kept = worthy_members(mixture_weights(table), least, most)
    weights = mixture_weights(table[:, kept])
    members = tuple(candidates[place] for place in kept)
    return BlockModel(members, weights, mix(table[:, kept], weights))


@final
@dataclass(frozen=True, eq=False)
class Pool:
    """All candidates by block; new ones make a new pool."""

    by_block: Mapping[Block, tuple[Candidate, ...]] = field(default_factory=dict)

    def __contains__(self, block: Block) -> bool:
        return block in self.by_block

    def with_candidates(self, *candidates: Candidate) -> "Pool":
        """The pool with more candidates."""
        by_block = dict(self.by_block)
        for candidate in candidates:
            by_block[candidate.block] = (*by_block.get(candidate.block, ()), candidate)
        return Pool(by_block)

    @property
    def work(self) -> float:
        """What all candidates took together."""
        return sum(candidate.work for own in self.by_block.values() for candidate in own)


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
        totals: dict[Block, float] = {}
        for layout, weight in zip(self.layouts, self.weights.tolist(), strict=True):
            for block in layout:
                totals[block] = totals.get(block, 0.0) + weight
        return totals


def _add_one_by_one(table: Floats, most: int) -> list[int]:
    """Columns of a table of log-likelihoods, each the one that makes the mixture best.

    The best column comes first; columns that make nothing better are left out.
    """
    order = np.argsort(-table.mean(axis=0), kind="stable")[:_MOST_AT_ONCE]
    rest = [int(column) for column in order]
    kept = [rest.pop(0)]
    best = float(table[:, kept[0]].mean())
    while rest and len(kept) < most:
        scores = {}
        for column in rest:
            own = table[:, [*kept, column]]
            scores[column] = float(mix(own, mixture_weights(own)).mean())
        column = max(scores, key=lambda column: scores[column])
        if scores[column] <= best:
            break
        rest.remove(column)
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
        candidates = pool.by_block[block]
        key = (block, len(candidates))
        if key not in self._known:
            options = self._options
            self._known[key] = block_model(
                candidates, most=options.max_members, least=options.least_weight
            )
        return self._known[key]

    def choice(self, pool: Pool, layouts: Sequence[Layout]) -> Choice:
        """The mixture of the layouts that are worth it, with weights learned on validation."""
        models = {block: self.model(pool, block) for layout in layouts for block in layout}
        table = np.stack(
            [sum(models[block].validation for block in layout) for layout in layouts], axis=1
        )
        options = self._options
        kept = _add_one_by_one(table, options.max_layouts)
        weights = mixture_weights(table[:, kept])
        kept = [kept[place] for place in worthy_members(weights, options.least_weight, len(kept))]
        chosen = tuple(layouts[place] for place in kept)
        weights = mixture_weights(table[:, kept])
        used = {block: models[block] for layout in chosen for block in layout}
        new = Choice(chosen, weights, used, mix(table[:, kept], weights))
        # Members that are left out for others, and the prior of the weights, may cost something.
        if self._best is None or new.score >= self._best.score:
            self._best = new
        return self._best

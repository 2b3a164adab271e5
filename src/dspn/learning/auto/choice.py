"""The mixture that the candidates allow: of layouts, and of the models of each of their blocks.

Weights of mixtures are learned on the validation sequences, which no member was trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

import numpy as np
from scipy.special import logsumexp

from dspn._arguments import Floats
from dspn.learning.auto.base import Auto, Block, Candidate
from dspn.learning.dependence import Layout

_MOST_STEPS: Final = 200
_TOLERANCE: Final = 1e-6
# Layouts that are looked at together; the best by themselves.
_MOST_AT_ONCE: Final = 12
# A standard error asks for as many sequences.
_FEW_GAINS: Final = 3
# Independent entries are left for what is better by so many standard errors: the best of many
# models is often better by one where there is nothing to find.
_CLEAR: Final = 2.0
# A gain that counts whole is at most so many times the median of all.
_USUAL_GAINS: Final = 2.0


def mixture_weights(log_likelihoods: Floats, *, pseudo_count: float = 0.5) -> Floats:
    """The weights w that maximise sum_i log sum_c w_c exp(l[i, c]) + sum_c a log w_c, (C,).

    `log_likelihoods` is (sequences, members), and a is `pseudo_count` / C. The sum is concave in w,
    and steps of EM lead to its maximum.
    """
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


class BlockModel(NamedTuple):
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
    mixed = BlockModel(members, weights, mix(table[:, kept], weights))
    best = max(candidates, key=lambda own: own.score)
    # The prior of the weights, and members that are left out, may cost something.
    return mixed if mixed.score > best.score else BlockModel((best,), np.ones(1), best.validation)


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
        for own in candidates:
            by_block[own.block] = (*by_block.get(own.block, ()), own)
        return Pool(by_block)

    @property
    def work(self) -> float:
        """What all candidates took together."""
        return sum(candidate.work for own in self.by_block.values() for candidate in own)


class Choice(NamedTuple):
    """The best mixture of layouts that the candidates allow, and its validation likelihoods.

    `guard` are models of independent entries, block by block, and have a share besides.
    """

    layouts: tuple[Layout, ...]
    weights: Floats
    models: Mapping[Block, BlockModel]
    validation: Floats
    guard: tuple[Candidate, ...] = ()
    share: float = 0.0

    @property
    def score(self) -> float:
        """Mean log-likelihood of the validation sequences."""
        return float(self.validation.mean())

    @property
    def members(self) -> dict[int, Candidate]:
        """The candidates of all blocks that are kept, by their numbers."""
        kept = [own for model in self.models.values() for own in model.members]
        return {own.number: own for own in (*kept, *self.guard)}

    @property
    def is_plain(self) -> bool:
        """Whether it is independent slices of independent variables."""
        return all(own.size == 1 for own in self.members.values())

    def guarded(self, guard: tuple[Candidate, ...], share: float) -> "Choice":
        """The same with a share for independent entries, for sequences unlike all others."""
        table = np.stack([self.validation, sum(own.validation for own in guard)], axis=1)
        validation = mix(table, np.array([1.0 - share, share]))
        rest = (1.0 - share) * self.weights
        return Choice(self.layouts, rest, self.models, validation, guard, share)

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

    def score(columns: list[int]) -> float:
        own = table[:, columns]
        return float(mix(own, mixture_weights(own)).mean())

    order: list[int] = np.argsort(-table.mean(axis=0), kind="stable")[:_MOST_AT_ONCE].tolist()
    kept, best = order[:1], float(table[:, order[0]].mean())
    while len(kept) < min(most, len(order)):
        scores = {column: score([*kept, column]) for column in order if column not in kept}
        column = max(scores, key=lambda column: scores[column])
        if scores[column] <= best:
            break
        kept.append(column)
        best = scores[column]
    return kept


@final
class Chooser:
    """Chooses again whenever there are more candidates; blocks without news are not mixed again.

    Candidates and layouts only become more, so that what was chosen before stays possible: a choice
    is never worse than the one before it. Independent entries, the first candidates, stay chosen
    until something is better by more than two standard errors.
    """

    def __init__(self, options: Auto) -> None:
        self._options = options
        self._known: dict[tuple[Block, int], BlockModel] = {}
        self._best: Choice | None = None
        self._plain: Choice | None = None
        self._is_clear = False

    def model(self, pool: Pool, block: Block) -> BlockModel:
        """The mixture of a block's candidates."""
        candidates = pool.by_block[block]
        key = (block, len(candidates))
        if key not in self._known:
            most, least = self._options.max_members, self._options.least_weight
            self._known[key] = block_model(candidates, most=most, least=least)
        return self._known[key]

    def choice(self, pool: Pool, layouts: Sequence[Layout], errors: float = 0.0) -> Choice:
        """The mixture of the layouts that are worth it, with weights learned on validation.

        The choice before it is kept unless the new one is better by more than so many standard
        errors.
        """
        models = {block: self.model(pool, block) for layout in layouts for block in layout}
        columns = [sum(models[block].validation for block in layout) for layout in layouts]
        table = np.stack(columns, axis=1)
        kept = _add_one_by_one(table, self._options.max_layouts)
        weights = mixture_weights(table[:, kept])
        worthy = worthy_members(weights, self._options.least_weight, len(kept))
        kept = [kept[place] for place in worthy]
        chosen = tuple(layouts[place] for place in kept)
        weights = mixture_weights(table[:, kept])
        used = {block: models[block] for layout in chosen for block in layout}
        new = Choice(chosen, weights, used, mix(table[:, kept], weights))
        # Members that are left out for others, and the prior of the weights, may cost something.
        if self._best is None or is_clear(new.validation, self._best.validation, errors):
            self._best = new
        if self._plain is None:
            self._plain = new
        if not self._is_clear:
            self._is_clear = any(
                is_clear(own, self._plain.validation, _CLEAR)
                for own in (self._best.validation, self._tamed())
            )
        return self._best if self._is_clear else self._plain

    def _tamed(self) -> Floats:
        """Log-likelihoods of the best, of which no sequence gains more than is usual.

        A sequence that gains very much makes the standard error large, so that it would speak
        against what is better.
        """
        assert self._best is not None and self._plain is not None
        if not np.isfinite(self._best.validation + self._plain.validation).all():
            return self._best.validation
        gains = self._best.validation - self._plain.validation
        usual = _USUAL_GAINS * float(np.median(np.abs(gains)))
        return self._plain.validation + np.minimum(gains, usual)


def is_clear(new: Floats, old: Floats, errors: float = 1.0) -> bool:
    """Whether log-likelihoods by sequence are better by so many standard errors of the difference.

    With a few sequences, or with impossible ones, the greater mean decides.
    """
    if len(new) < _FEW_GAINS or not (np.isfinite(new) & np.isfinite(old)).all():
        return bool(np.mean(new) > np.mean(old))
    gains = new - old
    error = float(np.std(gains, ddof=1) / np.sqrt(gains.size))
    return bool(np.mean(gains) > errors * error)

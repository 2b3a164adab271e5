"""Covariances chosen by data that were held out: which numbers of a slice move together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats
from dspn.data.schema import Kind
from dspn.data.sequences import sequences_of
from dspn.learning.auto.base import FEW_SLICES, AutoTask, Block, Try
from dspn.learning.auto.choice import is_clear
from dspn.learning.auto.moves import USUAL, most_clusters
from dspn.learning.auto.training import attempted
from dspn.learning.auto.work import expected_work
from dspn.learning.dependence import dependence, joins_by_dependence
from dspn.leaves.block import with_blocks

# Nodes of the models that are compared, the most that are affordable, and their steps of EM.
_NODES: Final = (32, 16, 8)
_STEPS: Final = 10
# Of the effort, and of a time limit: what the comparison may take.
_SHARE: Final = 0.15
# A covariance of more variables is not tried.
_MOST_TOGETHER: Final = 32
# It has to be better by so many standard errors of the difference.
_CLEARLY: Final = 2.0
# The tries are numbered apart from those of the search.
_FIRST: Final = 40_000


@final
class TriedCovariance(NamedTuple):
    """Variables whose leaves had a covariance in a try, and what that was worth.

    `gain` is in nats per held-out slice, over the best model of these variables without it, with
    one chain or with several. `error` is its standard error.
    """

    names: tuple[str, ...]
    gain: float
    error: float
    kept: bool

    def __str__(self) -> str:
        worth = f"{self.gain:+.3f} +- {self.error:.3f} nats a slice"
        return f"covariance of {', '.join(self.names)}: {worth}{', kept' * self.kept}"


@final
class Beginning(NamedTuple):
    """What depends on the clock before the first model: a run that goes on takes it as it was.

    `timed` is the effort that the time limit allowed; `work` is what the covariances took that were
    tried.
    """

    timed: float
    tried: tuple[TriedCovariance, ...] = ()
    work: float = 0.0

    def of(self, task: AutoTask) -> AutoTask:
        """The task that begins like this."""
        kept = [own.names for own in self.tried if own.kept]
        return _with_covariances(replace(task, timed=self.timed), kept)


def choose_covariances(task: AutoTask) -> Beginning:
    """Gaussian leaves over blocks of variables where that pays.

    Variables are joined by their dependence, the strongest first. Of each block a model whose
    leaves have a covariance is compared with one that has those found so far, and with the models
    of the two blocks that it is joined from; all are trained on a few slices. Variables that name a
    leaf family keep theirs.
    """
    names, nothing = task.schema.names, Beginning(task.timed)
    still = set(task.constant)
    free = tuple(
        column
        for column, variable in enumerate(task.schema)
        if variable.kind is Kind.CONTINUOUS and variable.leaf is None and column not in still
    )
    if len(free) < 2:
        return nothing
    few = task.sampled(FEW_SLICES, task.clock.within(_SHARE)).with_steps(_STEPS)
    sizes = [replace(USUAL, amount=min(own, most_clusters(few))) for own in _NODES]
    budget, count = _SHARE * task.effort, 2 * len(free) - 1
    affordable = (
        own for own in sizes if count * expected_work(few, free, own, None, _STEPS) <= budget
    )
    recipe = next(affordable, None)
    if recipe is None:
        return nothing
    tried, work = list[TriedCovariance](), 0.0

    def named(block: Block) -> tuple[str, ...]:
        return tuple(names[column] for column in block)

    def scores(block: Block, covariances: Sequence[Block]) -> Floats | None:
        """Validation scores of a model of some variables; None where that is too much work."""
        nonlocal work
        own = _with_covariances(few, [named(joint) for joint in covariances])
        if work + expected_work(own, block, recipe, None, _STEPS) > budget:
            return None
        found = attempted(Try(_FIRST, block, recipe), own)
        work += 0.0 if found is None else found.work
        return found.validation if found is not None and found.is_whole else None

    singles = [(column,) for column in free]
    # The best scores of each block so far, and the covariances that they come from.
    best: dict[Block, tuple[Floats, list[Block]]] = {}
    for block in singles:
        single = scores(block, [])
        if single is None:
            return nothing._replace(work=work)
        best[block] = single, []
    for union, one, other in joins_by_dependence(dependence(few.train), singles):
        apart, kept = best[one][0] + best[other][0], best[one][1] + best[other][1]
        plain = scores(union, kept) if len(union) <= _MOST_TOGETHER else None
        full = None if plain is None else scores(union, [union])
        if plain is None or full is None:
            best[union] = apart, kept
            continue
        apart = max(apart, plain, key=np.mean)
        gains = (full - apart) * (len(full) / few.validation.total_slices)
        is_better = is_clear(full, apart, _CLEARLY)
        best[union] = (full, [union]) if is_better else (apart, kept)
        error = float(np.std(gains) / np.sqrt(gains.size))
        tried.append(TriedCovariance(named(union), float(np.mean(gains)), error, False))
    chosen = [named(block) for block in best[free][1]]
    found = tuple(own._replace(kept=own.names in chosen) for own in tried)
    return Beginning(task.timed, found, work)


def _with_covariances(task: AutoTask, blocks: Sequence[Sequence[str]]) -> AutoTask:
    """The task with a covariance of each of the blocks."""
    if not blocks:
        return task
    schema = with_blocks(task.schema, blocks)
    train, validation = (
        sequences_of(data, schema, name)
        for name, data in (("train", task.train), ("validation", task.validation))
    )
    return replace(task, train=train, validation=validation, _restricted={})

"""Fully observed dynamic Bayesian networks whose structure is found by REVEAL.

Liang, Fuhrman and Somogyi (1998) look for the smallest set of parents in the slice before that
explains all of a variable's entropy. Data with noise have no such set; as in Murphy's Bayes Net
Toolbox the set with the best penalised likelihood is taken then, and the likelihood is as many
nats per slice as the mutual information less the entropy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import log, prod
from typing import Any, Final, final

import numpy as np
from scipy.special import xlogy

from dspn._arguments import Bools, Floats, Ints, require_type, whole_number
from dspn.data import Sequences
from dspn.data.sequences import joined, sequences_of
from dspn.errors import StructureError
from dspn.learning.run import Clock
from dspn.options import require_number
from experiments.baselines._dbn_inference import dbn_log_likelihood
from experiments.baselines._dbn_model import Dbn, Nodes, Parents, smoothed
from experiments.baselines.base import Baseline, FittedBaseline, Task, require_categorical

_MOST_ENTRIES: Final = 2**22


@final
@dataclass(frozen=True)
class RevealOptions:
    """Which parents are looked at, and how they are chosen.

    Every set of up to `max_parents` variables of the slice before is scored, for each variable: log
    likelihood less a penalty times log(slices) times free numbers. A penalty of 0.5 is the Bayesian
    information criterion and the toolbox's usual one; of several the validation set takes its pick.
    In data with gaps a set counts by its mean over the slices in which it is seen. Every entry of a
    table has `pseudo_count` observations beforehand. With `refit` the tables are
    made from the validation set, too.
    """

    max_parents: int = 5
    penalties: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    pseudo_count: float = 0.5
    refit: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        most = whole_number(self.max_parents, "max_parents", StructureError, least=0)
        object.__setattr__(self, "max_parents", most)
        object.__setattr__(self, "penalties", _checked_penalties(self.penalties))
        require_number("RevealOptions", "pseudo_count", self.pseudo_count, above=0)
        require_type(self.refit, bool, "refit", StructureError)


def _checked_penalties(penalties: Any) -> tuple[float, ...]:
    """The penalties, at least one and none negative."""
    if not isinstance(penalties, tuple | list) or not penalties:
        raise StructureError(
            f"`penalties` must be a tuple of at least one number, but is {penalties!r}; "
            "(0.5,) is usual."
        )
    for penalty in penalties:
        require_number("RevealOptions", "penalties", penalty, least=0)
    return tuple(float(penalty) for penalty in penalties)


@final
@dataclass(frozen=True, eq=False)
class _Pairs:
    """All slices that have one before them: codes of both, (rows, n), -1 where missing."""

    before: Ints
    now: Ints
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, data: Sequences, sizes: tuple[int, ...]) -> "_Pairs":
        """The pairs of all sequences."""
        codes = _codes(data)
        later = np.setdiff1d(np.arange(len(codes)), data.offsets[:-1])
        return cls(codes[later - 1], codes[later], sizes)

    def joint(self, parents: tuple[int, ...]) -> tuple[Ints, Bools]:
        """The joint value of the parents in each row, and where all of them are observed."""
        found = np.zeros(len(self.before), dtype=np.int64)
        seen = np.ones(len(self.before), dtype=np.bool_)
        for parent in parents:
            found = found * self.sizes[parent] + self.before[:, parent]
            seen &= self.before[:, parent] >= 0
        return found, seen

    def counts(self, parents: tuple[int, ...], joint: Ints, seen: Bools, node: int) -> Floats:
        """Rows with each joint value of parents and node, (parents' values, node's values)."""
        size, width = prod(self.sizes[parent] for parent in parents), self.sizes[node]
        used = seen & (self.now[:, node] >= 0)
        cells = joint[used] * width + self.now[used, node]
        return np.bincount(cells, minlength=size * width).reshape(size, width).astype(np.float64)


def _codes(data: Sequences) -> Ints:
    return np.where(np.isnan(data.values), -1, data.values).astype(np.int64)


def _log_likelihood(counts: Floats) -> float:
    """The largest log-likelihood of a table, in nats per counted row: -H(node | parents)."""
    total = counts.sum()
    if not total:
        return 0.0
    joint = float(xlogy(counts, counts).sum())
    margins = counts.sum(axis=1)
    return (joint - float(xlogy(margins, margins).sum())) / float(total)


@final
class _Search:
    """The best parents of every variable so far, for each penalty."""

    def __init__(self, pairs: _Pairs, options: RevealOptions) -> None:
        self.pairs = pairs
        self.sizes = pairs.sizes
        self.penalties = options.penalties
        self.rows = (pairs.now >= 0).sum(axis=0)
        shape = (len(self.penalties), len(self.sizes))
        self.best = np.full(shape, -np.inf)
        self.parents: list[list[tuple[int, ...]]] = [
            [() for _ in self.sizes] for _ in self.penalties
        ]

    def scores(self, parents_values: int, node: int, likelihood: float) -> Floats:
        """The score for each penalty of a set with so many joint values."""
        free = parents_values * (self.sizes[node] - 1)
        cost = log(max(int(self.rows[node]), 1)) * free
        found: Floats = likelihood * self.rows[node] - np.array(self.penalties) * cost
        return found

    def open_nodes(self, count: int) -> list[int]:
        """Variables that a set of so many parents may still improve.

        No likelihood is above 1, so that a set which already explains everything ends the search,
        as does one whose gain larger sets must pay more for than there is left to explain.
        """
        least = prod(sorted(self.sizes)[:count])
        return [
            node
            for node in range(len(self.sizes))
            if np.any(self.scores(least, node, 0.0) > self.best[:, node])
        ]

    def add(self, parents: tuple[int, ...], open_nodes: list[int]) -> None:
        """Scores a set of parents for each of the variables."""
        values = prod(self.sizes[parent] for parent in parents)
        joint, seen = self.pairs.joint(parents)
        for node in open_nodes:
            if values * self.sizes[node] > _MOST_ENTRIES:
                continue
            counts = self.pairs.counts(parents, joint, seen, node)
            if parents and not counts.any():
                continue
            found = self.scores(values, node, _log_likelihood(counts))
            for place in np.flatnonzero(found > self.best[:, node]).tolist():
                self.best[place, node] = found[place]
                self.parents[place][node] = parents


def _searched(pairs: _Pairs, options: RevealOptions, clock: Clock) -> _Search:
    """Sets of parents by rising size, until none can be better or time is up."""
    search = _Search(pairs, options)
    variables = range(len(pairs.sizes))
    for count in range(min(options.max_parents, len(variables)) + 1):
        open_nodes = search.open_nodes(count)
        for parents in combinations(variables, count) if open_nodes else ():
            search.add(parents, open_nodes)
            if clock.is_due():
                return search
    return search


def _network(
    data: Sequences, nodes: Nodes, parents: list[tuple[int, ...]], pseudo_count: float
) -> Dbn:
    """The tables of given parents, from the rows in which a variable and its parents are seen."""
    pairs, codes = _Pairs.of(data, nodes.sizes), _codes(data)
    openings = codes[data.offsets[:-1]]
    first: list[Floats] = []
    later: list[Floats | None] = []
    for node, (own, size) in enumerate(zip(parents, nodes.sizes, strict=True)):
        seen = (openings if own else codes)[:, node]
        counts = np.bincount(seen[seen >= 0], minlength=size).astype(np.float64)
        first.append(smoothed(counts, pseudo_count))
        if not own:
            later.append(None)
            continue
        table = pairs.counts(own, *pairs.joint(own), node)
        shape = (*(nodes.sizes[parent] for parent in own), size)
        later.append(smoothed(table.reshape(shape), pseudo_count))
    return Dbn(nodes, tuple(Parents(own) for own in parents), tuple(first), tuple(later))


@final
@dataclass(frozen=True, eq=False)
class FittedReveal(FittedBaseline):
    """A dynamic Bayesian network without hidden nodes, and the penalty that found its parents."""

    dbn: Dbn
    penalty: float

    @property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """The parents of each variable in the slice before, by name."""
        names = self.dbn.nodes.names
        return {
            name: tuple(names[parent] for parent in own.between)
            for name, own in zip(names, self.dbn.parents, strict=True)
        }

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, (N,).

        What is missing is summed out, at a cost that is exponential in the number of variables that
        are parents; a StructureError says where that is too much.
        """
        return dbn_log_likelihood(self.dbn, sequences_of(data, self.dbn.nodes.schema, "data"))


@final
class RevealBaseline(Baseline[FittedReveal]):
    """A dynamic Bayesian network without hidden nodes: parents in the slice before, by REVEAL."""

    def __init__(self, options: RevealOptions | None = None) -> None:
        self.options = RevealOptions() if options is None else options
        require_type(self.options, RevealOptions, "options", StructureError)

    @property
    def name(self) -> str:
        """What tables call it."""
        return "Reveal DBN"

    def _fitted(self, task: Task) -> FittedReveal:
        """Finds the parents of every variable, all in one iteration; nothing is drawn."""
        require_categorical(task.schema, "a dynamic Bayesian network")
        nodes = Nodes(task.schema)
        search = _searched(_Pairs.of(task.train, nodes.sizes), self.options, task.clock)
        ending = task.ending
        scored = list(self._scored(task, nodes, search))
        place = int(np.argmax([score for score, _ in scored]))
        dbn = scored[place][1]
        if self.options.refit:
            whole = joined([task.train, task.validation])
            dbn = _network(whole, nodes, search.parents[place], self.options.pseudo_count)
        return FittedReveal(task.clock.seconds, 1, ending, dbn, self.options.penalties[place])

    def _scored(self, task: Task, nodes: Nodes, search: _Search) -> Iterator[tuple[float, Dbn]]:
        """The network of each penalty with its mean log-likelihood on the validation set."""
        known: dict[tuple[tuple[int, ...], ...], tuple[float, Dbn]] = {}
        for parents in search.parents:
            key = tuple(parents)
            if key not in known:
                dbn = _network(task.train, nodes, parents, self.options.pseudo_count)
                score = float(dbn_log_likelihood(dbn, task.validation).mean())
                known[key] = score, dbn
            yield known[key]

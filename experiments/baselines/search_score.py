"""Partially observed dynamic Bayesian networks by search and score: structural EM.

Friedman, Murphy and Russell (1998): under the network at hand the expected counts of every family
one change away are computed, the changes that raise the expected score most are made, and the
tables are learned by expectation maximisation, in turn. A change that raises the expected score
raises the score. Inference is exact over the joint state of the hidden nodes, at a cost that is
exponential in their number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np

from dspn._arguments import Floats, require_type, whole_number
from dspn.data import Sequences
from dspn.data.sequences import joined, sequences_of
from dspn.errors import DataError, StructureError
from dspn.learning.starts.clusters import slice_clusters
from dspn.options import require_number
from experiments.baselines._dbn_families import (
    Family,
    Prior,
    all_counts,
    cost,
    maximised,
    neighbours,
    score,
)
from experiments.baselines._dbn_inference import Evidence, Posterior, dbn_log_likelihood, posterior
from experiments.baselines._dbn_model import Dbn, Nodes, Parents, has_gaps
from experiments.baselines.base import Baseline, FittedBaseline, Task, require_categorical

MOST_PAIRS: Final = 2**27
"""Entries of the largest table of posteriors: 1 GiB."""

_START: Final = 1
# Rounding may make a change of nothing look like a gain.
_LEAST_GAIN: Final = 1e-6


@final
@dataclass(frozen=True)
class SearchScoreOptions:
    """Hidden nodes, and how structure and tables are searched.

    Nodes have up to `max_parents` parents, in the slice before and among the nodes that come before
    them in their own slice: hidden ones before variables, and with `within` the variables in their
    order. A free number costs `penalty` times log(slices); 0.5 is the Bayesian information
    criterion. A round is up to `em_steps` steps of expectation maximisation, ended by a relative
    gain below `tolerance`, then one change of each node's parents. A start ends when no change
    is left, after `max_rounds`, or after `patience` rounds without a better validation score. The
    first start is from clusters of slices, the others are random. Every entry of a table has
    `pseudo_count` observations beforehand. With `refit` the tables are learned once more, from the
    validation set too.
    """

    num_hidden: int = 3
    max_parents: int = 5
    within: bool = True
    penalty: float = 0.5
    pseudo_count: float = 0.5
    num_starts: int = 2
    max_rounds: int = 40
    em_steps: int = 10
    tolerance: float = 1e-4
    patience: int = 5
    refit: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        wholes = {"num_hidden": 0, "max_parents": 1, "max_rounds": 0}
        wholes.update(dict.fromkeys(("num_starts", "em_steps", "patience"), 1))
        for name, least in wholes.items():
            number = whole_number(getattr(self, name), name, StructureError, least=least)
            object.__setattr__(self, name, number)
        for name in ("penalty", "tolerance"):
            require_number("SearchScoreOptions", name, getattr(self, name), least=0)
        require_number("SearchScoreOptions", "pseudo_count", self.pseudo_count, above=0)
        for name in ("within", "refit"):
            require_type(getattr(self, name), bool, name, StructureError)

    @property
    def prior(self) -> Prior:
        """What the score has besides the likelihood."""
        return Prior(self.pseudo_count, self.penalty)


@final
@dataclass(frozen=True, eq=False)
class State:
    """A network, what it believes about the hidden nodes, and its score on the training set."""

    dbn: Dbn
    beliefs: Posterior
    score: float


@final
@dataclass(eq=False)
class Climb:
    """Steps that never lower the score of a network on some sequences without gaps.

    `state_pairs` counts the pairs of joint hidden states that were looked at.
    """

    evidence: Evidence
    nodes: Nodes
    options: SearchScoreOptions
    state_pairs: int = field(default=0, init=False)

    def state(self, dbn: Dbn) -> State:
        """A network with its beliefs."""
        beliefs = posterior(dbn, self.evidence)
        self.state_pairs += beliefs.later.size + beliefs.first.size
        total = float(beliefs.log_likelihood.sum())
        value = score(dbn, total, self.options.prior, self.evidence.num_slices)
        return State(dbn, beliefs, value)

    def em_step(self, state: State) -> State:
        """The tables that are best given the beliefs."""
        return self.state(self.maximised(state.dbn.parents, state.beliefs))

    def maximised(self, parents: tuple[Parents, ...], beliefs: Posterior) -> Dbn:
        """The tables of a structure that are best given beliefs."""
        counts = all_counts(enumerate(parents), self.nodes, self.evidence, beliefs)
        assert counts is not None
        return maximised(self.nodes, parents, counts, self.options.prior)

    def structure_step(self, state: State, task: Task) -> State | None:
        """The change of each node's parents that is best given the beliefs.

        None where there is none, or where time is up before all have been scored.
        """
        options, nodes = self.options, self.nodes
        current = list(enumerate(state.dbn.parents))
        around = {
            family: neighbours(nodes, family, options.max_parents, within=options.within)
            for family in current
        }
        families = [*current, *(other for own in around.values() for other in own)]
        counts = all_counts(families, nodes, self.evidence, state.beliefs, task.clock.is_due)
        if counts is None:
            return None
        num_slices = self.evidence.num_slices

        def value(family: Family) -> float:
            fixed = cost(family, nodes, options.prior, num_slices)
            return counts[family].score(options.pseudo_count) - fixed

        chosen = []
        for family in current:
            best = max(around[family], key=value, default=family)
            chosen.append(best if value(best) > value(family) + _LEAST_GAIN else family)
        if chosen == current:
            return None
        parents = tuple(own for _, own in chosen)
        return self.state(maximised(nodes, parents, counts, options.prior))


def first_parents(nodes: Nodes, max_parents: int) -> tuple[Parents, ...]:
    """Hidden nodes that follow themselves, and variables that depend on all hidden nodes."""
    hidden = tuple(range(nodes.num_observed, len(nodes.sizes)))
    observed = [Parents(within=hidden[:max_parents]) for _ in range(nodes.num_observed)]
    return (*observed, *(Parents(between=(node,)) for node in hidden))


def _guess(task: Task, evidence: Evidence, num_states: int, number: int) -> Posterior:
    """Certainty that the joint hidden state of a slice is its cluster.

    Which cluster is which state is drawn: hidden nodes share the clusters out by their bits.
    """
    rng = task.rng(_START, number)
    data = task.train[evidence.order]
    labels = np.zeros(data.total_slices, dtype=np.int64)
    if num_states > 1:
        labels = rng.permutation(num_states)[slice_clusters(data, num_states, rng=rng)]
    begins = data.offsets[:-1]
    later = np.setdiff1d(np.arange(labels.size), begins)
    pairs = np.zeros((later.size, num_states, num_states))
    pairs[np.arange(later.size), labels[later - 1], labels[later]] = 1.0
    first = np.eye(num_states)[labels[begins]][:, None, :]
    return Posterior(first, pairs, np.zeros(len(data)))


def _trained(climb: Climb, state: State, task: Task) -> State:
    """Steps of expectation maximisation until they gain little, or time is up."""
    for _ in range(climb.options.em_steps):
        if task.clock.is_due():
            return state
        before, state = state.score, climb.em_step(state)
        if state.score - before <= climb.options.tolerance * abs(state.score):
            return state
    return state


def _rounds(task: Task, climb: Climb, number: int) -> Iterator[State]:
    """The networks of one start, each with tables learned for its structure."""
    beliefs = _guess(task, climb.evidence, 2**climb.nodes.num_hidden, number)
    parents = first_parents(climb.nodes, climb.options.max_parents)
    state = _trained(climb, climb.state(climb.maximised(parents, beliefs)), task)
    yield state
    for _ in range(climb.options.max_rounds):
        changed = None if task.clock.is_due() else climb.structure_step(state, task)
        if changed is None:
            return
        state = _trained(climb, changed, task)
        yield state


@final
@dataclass(frozen=True, eq=False)
class FittedSearchScore(FittedBaseline):
    """A dynamic Bayesian network with hidden nodes; `state_pairs` counts what inference cost."""

    dbn: Dbn
    state_pairs: int

    @property
    def edges(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """The parents of each node in the slice before and in the same slice, by name."""
        names = self.dbn.nodes.names
        return {
            name: (tuple(names[p] for p in own.between), tuple(names[p] for p in own.within))
            for name, own in zip(names, self.dbn.parents, strict=True)
        }

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, (N,).

        What is missing is summed out, at a cost that is exponential in the number of nodes with
        children in the next slice; a StructureError says where that is too much.
        """
        return dbn_log_likelihood(self.dbn, sequences_of(data, self.dbn.nodes.schema, "data"))


@final
class SearchScoreBaseline(Baseline[FittedSearchScore]):
    """A dynamic Bayesian network with hidden nodes, by structural expectation maximisation."""

    def __init__(self, options: SearchScoreOptions | None = None) -> None:
        self.options = SearchScoreOptions() if options is None else options
        require_type(self.options, SearchScoreOptions, "options", StructureError)

    @property
    def name(self) -> str:
        """What tables call it."""
        return "Search-Score DBN"

    def _fitted(self, task: Task) -> FittedSearchScore:
        """Keeps the network of all rounds that is best on the validation set.

        An iteration is a round: the tables are learned, and every node's parents are changed once.
        The training sequences must be without gaps.
        """
        require_categorical(task.schema, "a dynamic Bayesian network")
        _require_complete(task.train)
        nodes = Nodes(task.schema, self.options.num_hidden)
        _require_small(task.train, nodes)
        climb = Climb(Evidence.of(task.train), nodes, self.options)
        best, rounds = self._best(task, climb)
        if self.options.refit and not task.clock.is_due():
            best = self._refitted(task, climb, best)
        return FittedSearchScore(task.clock.seconds, rounds, task.ending, best, climb.state_pairs)

    def _best(self, task: Task, climb: Climb) -> tuple[Dbn, int]:
        """The best network on the validation set, and how many rounds were made."""
        kept: tuple[float, Dbn] | None = None
        rounds = 0
        # Without hidden nodes there is nothing to start differently from.
        for number in range(self.options.num_starts if climb.nodes.num_hidden else 1):
            own, stale = -np.inf, 0
            for state in _rounds(task, climb, number):
                rounds += 1
                value = float(dbn_log_likelihood(state.dbn, task.validation).mean())
                own, stale = max(own, value), 0 if value > own else stale + 1
                if kept is None or value > kept[0]:
                    kept = value, state.dbn
                if stale >= self.options.patience:
                    break
            if task.clock.is_due():
                break
        assert kept is not None
        return kept[1], rounds

    def _refitted(self, task: Task, climb: Climb, dbn: Dbn) -> Dbn:
        """The same structure, with tables learned from all sequences without gaps."""
        held = task.validation
        complete = np.flatnonzero(~has_gaps(held))
        if not complete.size:
            return dbn
        evidence = Evidence.of(joined([task.train, held[complete]]))
        again = Climb(evidence, climb.nodes, self.options)
        state = _trained(again, again.state(dbn), task)
        climb.state_pairs += again.state_pairs
        return state.dbn


def _require_complete(train: Sequences) -> None:
    gaps = np.flatnonzero(has_gaps(train))
    if gaps.size:
        raise DataError(
            f"`train` must be without gaps for search and score, which is exact over the hidden "
            f"nodes alone, but {gaps.size} of {len(train)} sequences have missing entries, the "
            f"first of them sequence {gaps[0]}; fill them in or leave the sequences out."
        )


def _require_small(train: Sequences, nodes: Nodes) -> None:
    entries = train.total_slices * 4**nodes.num_hidden
    if entries > MOST_PAIRS:
        raise StructureError(
            f"`num_hidden` of SearchScoreOptions must leave a table of at most {MOST_PAIRS} pairs "
            f"of joint hidden states, but {nodes.num_hidden} hidden nodes make {entries} of them "
            f"for {train.total_slices} slices; use fewer hidden nodes, or fewer sequences."
        )

"""Algorithm 1: interface nodes are added one at a time for as long as the score improves.

Growth is a chain of immutable states, as the search of Algorithm 2 is. The randomness of the step
to k nodes comes from the seed and from k alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

import numpy as np

from dspn._arguments import Floats
from dspn.data.sequences import Sequences
from dspn.engine import compile_program
from dspn.errors import StructureError
from dspn.learning.em import EmFit, EmOptions, Task, best_of
from dspn.learning.starts.clusters import clustered_network, randomised
from dspn.learning.starts.informed import informed_split
from dspn.learning.starts.splits import interface_use, split_interfaces
from dspn.leaves.told import told_values
from dspn.options import Options, choice_field, number_field, part_field, whole_field
from dspn.structure.build import initial_network
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.parameters import NetworkParameters, Parameters


class GrowthMode(StrEnum):
    """How Algorithm 1 is read.

    LITERAL: a random factored node is added, everything is trained, and the first size that is
    worse ends the growth. SPLIT: nodes that hold two kinds of slices are split in two, which keeps
    what was learned, and growth goes on until `patience` sizes in a row were no better than the
    best.
    """

    SPLIT = "split"
    LITERAL = "literal"


_STREAM: Final = 1
_EM: Final = EmOptions(max_steps=40, min_steps=15, tolerance=1e-6, patience=8)
# Up to this size another start may well find what a split does not: a single node over a single
# variable holds no two kinds of slices, whatever the slices before and after them.
_FEW: Final = 4
# How far the halves of a busy node start from each other.
_NOISE: Final = 0.5


@final
@dataclass(frozen=True)
class GrowthOptions(Options):
    """When growth ends, and how each size is trained.

    At each step the share `at_once` of the nodes, at least one, is split. Every size is tried from
    `num_starts` splits, by turns of the nodes that hold two kinds of slices and of the busiest
    ones, and up to four nodes also from clusters of slices with their context and from `num_random`
    random networks. A size is better than another where its score is greater
    by `caution` standard errors (`Score.is_better`); the literal reading adds one node at a time
    and has no caution. No size below `min_interfaces` ends the growth or is chosen.
    """

    mode: GrowthMode | str = choice_field(GrowthMode.SPLIT)
    min_interfaces: int = whole_field(1)
    max_interfaces: int = whole_field(32)
    patience: int = whole_field(4)
    num_starts: int = whole_field(2)
    num_random: int = whole_field(2, least=0)
    at_once: float = number_field(0.125, least=0, most=1)
    caution: float = number_field(1.0, least=0)
    em: EmOptions = part_field(_EM)

    def _check(self) -> None:
        if self.min_interfaces > self.max_interfaces:
            raise StructureError(
                f"`min_interfaces` must be at most `max_interfaces`, but they are "
                f"{self.min_interfaces} and {self.max_interfaces}."
            )


DEFAULT_GROWTH: Final = GrowthOptions()


@final
@dataclass(frozen=True)
class GrowthStep:
    """A number of interface nodes, the score of the network trained with as many, its fate."""

    num_interfaces: int
    score: float
    accepted: bool


@final
@dataclass(frozen=True, eq=False)
class GrowthState:
    """Where growth stands: the best network so far, and the last one, from which it goes on."""

    network: DynamicNetwork
    score: float
    seed: int
    trail: tuple[GrowthStep, ...]
    current: DynamicNetwork

    @property
    def failures(self) -> int:
        """The number of sizes tried since the best one."""
        return next(i for i, step in enumerate(reversed(self.trail)) if step.accepted)

    def is_over(self, options: GrowthOptions) -> bool:
        """Whether a stopping rule is met."""
        size = self.trail[-1].num_interfaces
        if size >= options.max_interfaces:
            return True
        patience = 1 if options.mode == GrowthMode.LITERAL else options.patience
        return size >= options.min_interfaces and self.failures >= patience


@final
@dataclass(frozen=True, eq=False)
class GrowthTask(Task):
    """What growth works on; `is_due` says when to give up."""

    options: GrowthOptions = DEFAULT_GROWTH
    is_due: Callable[[], bool] = lambda: False

    def trained(self, network: DynamicNetwork, rng: np.random.Generator) -> EmFit:
        """The network after EM; mini-batches are drawn from `rng`."""
        return self.fit(network, self.options.em, rng=rng, deadline=self.is_due)


def first_growth(task: GrowthTask, *, seed: int, root: Root, tied: bool) -> GrowthState:
    """A single factored node: the variables of a slice are independent, and slices are."""
    rng = _stream(seed, 1)
    fit = task.trained(_initial(task.train, 1, rng, root=root, tied=tied), rng)
    trail = (GrowthStep(1, fit.score, True),)
    return GrowthState(fit.network, fit.score, seed, trail, fit.network)


def _stream(seed: int, size: int) -> np.random.Generator:
    """The randomness of one size, apart from that of the tries of a search with the same seed."""
    return np.random.default_rng([seed, _STREAM, size])


def _initial(
    train: Sequences, size: int, rng: np.random.Generator, *, root: Root, tied: bool
) -> DynamicNetwork:
    """The initial template with random parameters; leaves begin where the data are."""
    network = initial_network(train.schema, size, rng=rng, root=root)
    return randomised(network if tied else network.untied(), train, rng)


def next_growth(state: GrowthState, task: GrowthTask) -> GrowthState | None:
    """The state with more interface nodes; None where time was up before they were trained."""
    options = task.options
    literal = options.mode == GrowthMode.LITERAL
    rng = _stream(state.seed, state.current.num_interfaces + 1)
    if literal:
        starts = [_with_random_node(state.current, task.train, rng)]
    else:
        starts = _split_starts(state.current, task, rng)
    fits = []
    for start in starts:
        if task.is_due():
            return None
        fits.append(task.trained(start, rng))
    if task.is_due():
        return None
    fit = best_of(fits)
    caution = None if literal else options.caution
    better = task.is_better(fit, state.network, state.score, caution)
    accepted = better or state.network.num_interfaces < options.min_interfaces
    step = GrowthStep(fit.network.num_interfaces, fit.score, accepted)
    best = fit if accepted else state
    trail = (*state.trail, step)
    return GrowthState(best.network, best.score, state.seed, trail, fit.network)


def _split_starts(
    network: DynamicNetwork, task: GrowthTask, rng: np.random.Generator
) -> list[DynamicNetwork]:
    """The network with nodes split that hold two kinds of slices; others while it is small."""
    options, size = task.options, network.num_interfaces
    count = max(1, min(int(options.at_once * size), options.max_interfaces - size))
    starts = []
    for number in range(options.num_starts):
        if number % 2 == 0:
            start = informed_split(network, task.train, count, priors=task.priors, rng=rng)
        else:
            use = interface_use(compile_program(network), task.train)
            busiest = np.argsort(-use, kind="stable")[:count].tolist()
            start = split_interfaces(network, busiest, rng, _NOISE)
        starts.append(start)
    if size < _FEW:
        root, tied, more = network.root, network.parameters.tied, size + count
        fresh = clustered_network(task.train, more, priors=task.priors, rng=rng, root=root)
        starts.append(fresh if tied else fresh.untied())
        starts += [
            _initial(task.train, more, rng, root=root, tied=tied) for _ in range(options.num_random)
        ]
    # Where the data leave no doubt about the halves, splits are alike to the last bit.
    return list({start.fingerprint: start for start in starts}.values())


def _with_random_node(
    network: DynamicNetwork, train: Sequences, rng: np.random.Generator
) -> DynamicNetwork:
    """The factored network with one random factored node more.

    The sums that were there give the new node an equal share.
    """
    size = network.num_interfaces
    grown = _initial(train, size + 1, rng, root=network.root, tied=True)

    def shared(weights: Floats) -> Floats:
        rows = weights.reshape(-1, size)
        share = np.full((len(rows), 1), 1.0 / (size + 1))
        return np.concatenate([rows * (size / (size + 1)), share], axis=1)

    def extended(old: NetworkParameters) -> NetworkParameters:
        own = rng.dirichlet(np.ones(size + 1))
        weights = np.concatenate([shared(old.weights).ravel(), own])
        leaves = tuple(
            np.concatenate([rows, bank.family.random(1, rng, told_values(train, bank.variable))])
            for bank, rows in zip(grown.template.banks, old.leaves, strict=True)
        )
        return NetworkParameters(weights, leaves)

    old = network.parameters
    bottom = None if old.bottom is None else extended(old.bottom)
    top = NetworkParameters(shared(old.top.weights).ravel())
    return grown.with_parameters(Parameters(extended(old.template), top, bottom))

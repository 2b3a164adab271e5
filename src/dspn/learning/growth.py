"""Algorithm 1: interface nodes are added one at a time for as long as the score improves.

Growth is a chain of immutable states, as the search of Algorithm 2 is. The randomness of the step
to k nodes comes from the seed and from k alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import require_type, whole_number
from dspn.engine import compile_program
from dspn.errors import StructureError
from dspn.learning.fitting import EmFit, EmOptions, best_of, fit_em, scaled_families
from dspn.learning.priors import Priors
from dspn.learning.scores import Score
from dspn.learning.starts.splitting import interface_use, split_interface
from dspn.sequences import Sequences
from dspn.structure import DynamicNetwork, NetworkParameters, Parameters, Root, initial_network


class GrowthMode(StrEnum):
    """How Algorithm 1 is read.

    LITERAL: a random factored node is added, everything is trained, and the first size that is
    worse ends the growth. SPLIT: the busiest node is split in two, which keeps what was learned,
    and growth goes on until `patience` sizes in a row were no better than the best.
    """

    SPLIT = "split"
    LITERAL = "literal"


_EM: Final = EmOptions(max_steps=100, min_steps=12, patience=4)


@final
@dataclass(frozen=True)
class GrowthOptions:
    """When growth ends, and how each size is trained.

    Every size is tried from `num_starts` splits: of the busiest node, and of nodes drawn by how
    busy they are. `noise` says how far the two halves start from each other. No size below
    `min_interfaces` ends the growth or is chosen.
    """

    mode: GrowthMode | str = GrowthMode.SPLIT
    min_interfaces: int = 1
    max_interfaces: int = 32
    patience: int = 3
    num_starts: int = 2
    noise: float = 0.5
    em: EmOptions = _EM

    def __post_init__(self) -> None:
        """Refuse an unknown mode and numbers out of range."""
        try:
            object.__setattr__(self, "mode", GrowthMode(self.mode))
        except ValueError:
            raise StructureError(
                f"`mode` must be 'split' or 'literal', but is {self.mode!r}; choose one."
            ) from None
        for name in ("min_interfaces", "max_interfaces", "patience", "num_starts"):
            number = whole_number(getattr(self, name), name, StructureError)
            object.__setattr__(self, name, number)
        if self.min_interfaces > self.max_interfaces:
            raise StructureError(
                f"`min_interfaces` must be at most `max_interfaces`, but they are "
                f"{self.min_interfaces} and {self.max_interfaces}."
            )
        if not (isinstance(self.noise, int | float) and 0 < self.noise <= 1):
            raise StructureError(
                f"`noise` must be a number above 0 and at most 1, but is {self.noise!r}; without "
                "noise the halves of a node stay alike."
            )
        require_type(self.em, EmOptions, "em", StructureError)


DEFAULT_GROWTH: Final = GrowthOptions()


@final
@dataclass(frozen=True)
class GrowthStep:
    """A number of interface nodes, and the score of the network trained with as many."""

    num_interfaces: int
    score: float


@final
@dataclass(frozen=True, eq=False)
class GrowthState:
    """Where growth stands: the best network so far, and the last one, from which it goes on.

    `failures` counts the sizes since the best one.
    """

    network: DynamicNetwork
    score: float
    seed: int
    trail: tuple[GrowthStep, ...]
    current: DynamicNetwork
    failures: int = 0

    def is_over(self, options: GrowthOptions) -> bool:
        """Whether a stopping rule is met."""
        size = self.current.num_interfaces
        if size >= options.max_interfaces:
            return True
        patience = 1 if options.mode == GrowthMode.LITERAL else options.patience
        return size >= options.min_interfaces and self.failures >= patience


@final
@dataclass(frozen=True, eq=False)
class GrowthTask:
    """What growth works on: data, score, priors and options; `is_due` says when to give up."""

    train: Sequences
    validation: Sequences
    score: Score
    priors: Priors
    options: GrowthOptions = DEFAULT_GROWTH
    is_due: Callable[[], bool] = lambda: False

    def trained(self, network: DynamicNetwork) -> EmFit:
        """The network after EM."""
        return fit_em(
            network,
            self.train,
            validation=self.validation,
            score=self.score,
            options=self.options.em,
            priors=self.priors,
            deadline=self.is_due,
        )


def first_growth(task: GrowthTask, *, seed: int, root: Root, tied: bool) -> GrowthState:
    """A single factored node: the variables of a slice are independent, and slices are."""
    rng = np.random.default_rng([seed, 1])
    network = scaled_families(initial_network(task.train.schema, 1, rng=rng, root=root), task.train)
    if not tied:
        own = network.parameters
        network = network.with_parameters(Parameters(own.template, own.top, own.template))
    fit = task.trained(network)
    trail = (GrowthStep(1, fit.score),)
    return GrowthState(fit.network, fit.score, seed, trail, fit.network)


def next_growth(state: GrowthState, task: GrowthTask) -> GrowthState | None:
    """The state with one more interface node; None where time was up before it was trained."""
    options = task.options
    literal = options.mode == GrowthMode.LITERAL
    size = state.current.num_interfaces + 1
    rng = np.random.default_rng([state.seed, size])
    if literal:
        starts = [_with_random_node(state.current, task.train, rng)]
    else:
        starts = _split_starts(state.current, task.train, options, rng)
    fit = best_of(map(task.trained, starts))
    if task.is_due():
        return None
    better = fit.score > state.score or (literal and fit.score == state.score)
    kept = better or size <= options.min_interfaces
    return replace(
        state,
        network=fit.network if kept else state.network,
        score=fit.score if kept else state.score,
        trail=(*state.trail, GrowthStep(size, fit.score)),
        current=fit.network,
        failures=0 if kept else state.failures + 1,
    )


def _split_starts(
    network: DynamicNetwork, train: Sequences, options: GrowthOptions, rng: np.random.Generator
) -> list[DynamicNetwork]:
    """The network with the busiest node split, and with nodes split that were drawn by use."""
    use = interface_use(compile_program(network), train)
    chosen = [int(np.argmax(use))]
    drawn = rng.choice(use.size, size=options.num_starts - 1, p=use / use.sum())
    chosen.extend(int(position) for position in drawn)
    return [split_interface(network, position, rng, options.noise) for position in chosen]


def _with_random_node(
    network: DynamicNetwork, train: Sequences, rng: np.random.Generator
) -> DynamicNetwork:
    """The factored network with one random factored node more.

    The sums that were there give the new node an equal share.
    """
    size = network.num_interfaces
    grown = scaled_families(
        initial_network(network.schema, size + 1, rng=rng, root=network.root), train
    )

    def shared(weights: Floats) -> Floats:
        rows = weights.reshape(-1, size)
        share = np.full((len(rows), 1), 1.0 / (size + 1))
        return np.concatenate([rows * (size / (size + 1)), share], axis=1)

    def extended(old: NetworkParameters) -> NetworkParameters:
        own = rng.dirichlet(np.ones(size + 1))
        weights = np.concatenate([shared(old.weights).ravel(), own])
        leaves = tuple(
            np.concatenate([rows, bank.family.random(1, rng, train.values[:, bank.variable])])
            for bank, rows in zip(grown.template.banks, old.leaves, strict=True)
        )
        return NetworkParameters(weights, leaves)

    old = network.parameters
    bottom = None if old.bottom is None else extended(old.bottom)
    top = NetworkParameters(shared(old.top.weights).ravel())
    return grown.with_parameters(Parameters(extended(old.template), top, bottom))

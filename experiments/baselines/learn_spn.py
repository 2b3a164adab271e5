"""LearnSPN on sequences of one length, each seen as one instance of all its entries.

Gens and Domingos (2013): variables that fall into independent subsets become a product; where they
do not, the instances are clustered and become a sum; a single variable is a leaf, and too few
instances are a product of leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product as cartesian
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, Ints, require_type, whole_number
from dspn.data import Schema, Sequences
from dspn.data.sequences import joined, sequences_of
from dspn.engine import Program, compile_program
from dspn.errors import DataError, StructureError
from dspn.learning.dependence import checked_alpha, independent_subsets
from dspn.learning.priors import Priors
from dspn.learning.run import Clock
from dspn.options import require_number
from dspn.structure import DynamicNetwork, NetworkBuilder, assemble, mixture_top
from experiments.baselines._spn_clusters import Instances, clusters
from experiments.baselines.base import Baseline, FittedBaseline, Task

_CLUSTERS: Final = 1
# Each level takes instances or variables away; more levels than this peel off one at a time.
_MOST_LEVELS: Final = 100


@final
@dataclass(frozen=True)
class LearnSpnOptions:
    """How far instances are taken apart; of several levels and penalties validation chooses.

    Variables are called dependent at a level of `alphas`. A cluster costs one of `penalties`, in
    nats, for each variable; there are at most `max_clusters` to a sum. Fewer than `min_instances`
    are not taken apart further. Leaves have `leaf_pseudo_count` observations beforehand (of each
    category, for categorical ones). With `refit` the chosen settings learn once more, from the
    validation set too.
    """

    alphas: tuple[float, ...] = (0.0015, 0.0001, 0.000001)
    penalties: tuple[float, ...] = (0.2, 0.8, 3.2)
    max_clusters: int = 8
    min_instances: int = 10
    leaf_pseudo_count: float = 0.5
    refit: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        levels = _several(self.alphas, "alphas")
        object.__setattr__(self, "alphas", tuple(checked_alpha(alpha) for alpha in levels))
        penalties = _several(self.penalties, "penalties")
        for penalty in penalties:
            require_number("LearnSpnOptions", "penalties", penalty, least=0)
        object.__setattr__(self, "penalties", tuple(map(float, penalties)))
        for name, least in (("max_clusters", 2), ("min_instances", 1)):
            number = whole_number(getattr(self, name), name, StructureError, least=least)
            object.__setattr__(self, name, number)
        require_number("LearnSpnOptions", "leaf_pseudo_count", self.leaf_pseudo_count, above=0)
        require_type(self.refit, bool, "refit", StructureError)


def _several(values: Any, argument: str) -> tuple[Any, ...]:
    if not isinstance(values, tuple | list) or not values:
        raise StructureError(
            f"`{argument}` of LearnSpnOptions must be a tuple of at least one number, but is "
            f"{values!r}; write ({values!r},) for a single one."
        )
    return tuple(values)


def flat_schema(schema: Schema, length: int) -> Schema:
    """A variable for each entry of a sequence: variable v of slice t is number t * n + v."""
    return Schema(
        tuple(replace(own, name=f"{t}.{own.name}") for t in range(length) for own in schema)
    )


def flattened(data: Sequences, length: int, argument: str) -> Sequences:
    """Each sequence as a single slice of all its entries; raises at another length."""
    other = np.flatnonzero(data.lengths != length)
    if other.size:
        raise DataError(
            f"`{argument}` must hold sequences of {length} slices, the length of the training "
            f"sequences, as LearnSPN has a variable for each entry, but sequence {other[0]} has "
            f"{data.lengths[other[0]]}; cut the sequences to one length."
        )
    values = data.values.reshape(len(data), -1)
    return Sequences.from_codes(values, np.arange(len(data) + 1), flat_schema(data.schema, length))


@final
@dataclass(frozen=True)
class _Setting:
    """One level of significance and one penalty."""

    alpha: float
    penalty: float


@final
class _Learner:
    """Lays down the network of some instances; once time is up, everything left is leaves."""

    def __init__(
        self, instances: Instances, setting: _Setting, options: LearnSpnOptions, clock: Clock
    ) -> None:
        self.builder = NetworkBuilder(instances.data.schema)
        self.instances = instances
        self.setting = setting
        self.options = options
        self.clock = clock

    def network(self, rng: np.random.Generator) -> DynamicNetwork:
        """The network of all instances, as a DSPN of one slice whose chain says nothing."""
        builder, data = self.builder, self.instances.data
        inputs = builder.inputs(1)
        variables = tuple(range(data.num_variables))
        factors = self._factors(np.arange(len(data)), variables, 0, rng)
        output = builder.product([*factors, builder.sum(inputs, [1.0])])
        return assemble(builder.template([output]), mixture_top(data.schema, np.ones(1)))

    def _factors(
        self, rows: Ints, variables: Sequence[int], level: int, rng: np.random.Generator
    ) -> list[int]:
        """Nodes for independent subsets of the variables, whose product is their distribution."""
        is_small = len(variables) == 1 or rows.size < self.options.min_instances
        if is_small or level >= _MOST_LEVELS or self.clock.is_due():
            return self._leaves(rows, variables)
        columns = [self.instances.column(rows, variable) for variable in variables]
        nodes = []
        for subset in independent_subsets(columns, alpha=self.setting.alpha):
            own = [variables[place] for place in subset]
            nodes.extend(self._mixture(rows, own, level, rng))
        return nodes

    def _mixture(
        self, rows: Ints, variables: Sequence[int], level: int, rng: np.random.Generator
    ) -> list[int]:
        """A sum over clusters of the instances; leaves where there is a single cluster."""
        if len(variables) == 1 or self.clock.is_due():
            return self._leaves(rows, variables)
        found = clusters(
            self.instances.part(rows, variables),
            penalty=self.setting.penalty,
            max_clusters=self.options.max_clusters,
            rng=rng,
            is_due=self.clock.is_due,
        )
        if len(found) == 1:
            return self._leaves(rows, variables)
        children = [
            self.builder.product(self._factors(own, variables, level + 1, rng)) for own in found
        ]
        sizes = np.array([own.size for own in found], dtype=np.float64)
        return [self.builder.sum(children, sizes / sizes.sum())]

    def _leaves(self, rows: Ints, variables: Sequence[int]) -> list[int]:
        families = self.instances.families
        return [
            self.builder.leaf(variable, self.instances.leaf(rows, variable), families[variable])
            for variable in variables
        ]


@final
@dataclass(frozen=True, eq=False)
class FittedSpn(FittedBaseline):
    """A sum-product network over the entries of sequences of one length.

    `network` is a DSPN over sequences of a single slice, which has all the entries.
    """

    network: DynamicNetwork
    schema: Schema
    length: int
    alpha: float
    penalty: float

    @cached_property
    def _program(self) -> Program:
        return compile_program(self.network)

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, (N,); all of the length of training."""
        known = sequences_of(data, self.schema, "data")
        return self._program.log_likelihood(flattened(known, self.length, "data"))


@final
class LearnSpnBaseline(Baseline[FittedSpn]):
    """A static sum-product network of whole sequences, all of one length, by LearnSPN."""

    def __init__(self, options: LearnSpnOptions | None = None) -> None:
        self.options = LearnSpnOptions() if options is None else options
        require_type(self.options, LearnSpnOptions, "options", StructureError)

    @property
    def name(self) -> str:
        """What tables call it."""
        return "LearnSPN"

    def _fitted(self, task: Task) -> FittedSpn:
        """Learns a network for each setting and keeps the best; an iteration is a network."""
        length = int(task.train.lengths[0])
        flat = flattened(task.train, length, "train")
        held = flattened(task.validation, length, "validation")
        network, chosen, count = self._best(task, flat, held)
        if self.options.refit and not task.clock.is_due():
            again = self._learned(task, joined([flat, held]), chosen)
            # A network that time has cut short is worse than one that it has not.
            network = network if task.clock.is_due() else again
        seconds, setting = task.clock.seconds, (chosen.alpha, chosen.penalty)
        return FittedSpn(seconds, count, task.ending, network, task.schema, length, *setting)

    def _best(
        self, task: Task, flat: Sequences, held: Sequences
    ) -> tuple[DynamicNetwork, _Setting, int]:
        """The best network on what is held out, its setting, and how many networks were learned."""
        best: tuple[float, DynamicNetwork, _Setting] | None = None
        count = 0
        for setting in self._settings():
            if best is not None and task.clock.is_due():
                break
            network = self._learned(task, flat, setting)
            count += 1
            value = float(compile_program(network).log_likelihood(held).mean())
            if best is None or value > best[0]:
                best = value, network, setting
        assert best is not None
        return best[1], best[2], count

    def _settings(self) -> list[_Setting]:
        return [_Setting(*pair) for pair in cartesian(self.options.alphas, self.options.penalties)]

    def _learned(self, task: Task, flat: Sequences, setting: _Setting) -> DynamicNetwork:
        priors = Priors(leaf_pseudo_count=self.options.leaf_pseudo_count)
        learner = _Learner(Instances(flat, priors), setting, self.options, task.clock)
        return learner.network(task.rng(_CLUSTERS))

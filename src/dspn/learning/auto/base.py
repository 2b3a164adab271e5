"""What the automatic learner works with: moves, recipes, models, options, and data by block."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Final, NamedTuple, final

import numpy as np

from dspn._arguments import Bools, Floats, require_type
from dspn.data.schema import Kind, Schema
from dspn.data.sequences import Sequences, cut_sequences, drawn_part, drawn_places, joined
from dspn.engine import ExpectedFlows
from dspn.errors import StructureError
from dspn.executors import Executor, Serial, Shared
from dspn.learning.dependence import (
    Layout,
    components,
    dependence,
    joins_by_dependence,
    layout_neighbours,
    layout_of,
)
from dspn.learning.em import EmOptions
from dspn.learning.moves import pruned
from dspn.learning.priors import Priors
from dspn.learning.run import Clock
from dspn.learning.starts.contexts import count_runs
from dspn.leaves.categorical import CategoricalPrior
from dspn.leaves.told import sources_of
from dspn.options import Options, number_field, part_field, whole_field
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Leaf, Product

Block = tuple[int, ...]

# The steps that training usually takes, and those without which it is not begun.
USUAL_STEPS: Final = 25
LEAST_STEPS: Final = 6
# The usual effort: by entries up to a bound, and for very many slices by these.
_ENTRIES_A_UNIT: Final = 500
_SLICES_A_UNIT: Final = 10_000
_LEAST_EFFORT: Final = 5.0
_MOST_EFFORT: Final = 300.0
# Of the effort: what training on all data in the end may take.
REFIT_SHARE: Final = 0.1
_EM: Final = EmOptions(max_steps=40, min_steps=8, tolerance=1e-5, patience=4, single_precision=True)
_REFIT: Final = EmOptions(max_steps=5, tolerance=1e-7, single_precision=True)
_STREAM: Final = 5  # of randomness, apart from those of growth, search and refitting
_SAMPLE: Final = 6
_DIVISION: Final = 8
# So many sequences are enough to choose by; of few sequences a share is held out at the most.
_ENOUGH: Final = 20
_MOST_HELD: Final = 0.35
# Fewer sequences than these are cut into runs of about so many slices.
_FEW_SEQUENCES: Final = 5
_RUN: Final = 40
_LEAST_RUNS: Final = 3
_MOST_RUNS: Final = 40
# Of each category, where leaves are drawn towards the frequencies of the training set.
_LEAST_COUNT: Final = 0.01
# From this many interface nodes on, transitions that fewer slices are expected at are pruned.
MANY: Final = 64
LEAST_FLOW: Final = 0.02
# From so many on, with so many slices for each, chains of clusters are thinned after so many steps.
_LARGE: Final = 256
_MANY_SLICES: Final = 100
_MANY_AT_POSITION: Final = 50
EARLY_STEPS: Final = 2
# Estimates of dependence look at so many pairs of entries at the most.
_MOST_PAIRS: Final = 50_000_000
# A model of so many slices tells how long one of all would take, and serves until there is one.
FEW_SLICES: Final = 3_000


class Move(ABC):
    """A way to a new model of a block of variables; one object, told apart by its name.

    The automatic learner makes the move for which the gain per work is expected to be largest,
    trains the network that `start` gives, and keeps it if the validation set is better off.

    Attributes:
        name: The name of the move in reports.
        words: What a try does, such as "{amount} nodes split"; the fields of the recipe are put in,
            `{slices}`, the number of slices that clusters see, and `{chains}`, the number of
            blocks of the recipe's layout.
        expected: The gain that is expected before the move was tried, compared with 1 for the
            best of the moves.
        growth: The edges after the move, in shares of those of the model that it starts from.
        adds_nodes: Whether the amount of a recipe is a number of interface nodes that are added.
        has_clusters: Whether a network without a parent begins with clusters of slices.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    expected: ClassVar[float] = 0.3
    growth: ClassVar[float] = 1.0
    adds_nodes: ClassVar[bool] = False
    has_clusters: ClassVar[bool] = True

    @abstractmethod
    def recipes(self, record: "BlockRecord") -> list["Recipe"]:
        """What may pay for a block, in the order to try it; what was tried is skipped."""

    @abstractmethod
    def start(self, trial: "Trial") -> DynamicNetwork:
        """The network to train."""

    def is_learned(self, task: "AutoTask", data: "BlockData") -> bool:
        """Whether the start is what there is to learn, and steps of EM would undo it."""
        return False

    def inner_edges(self, recipe: "Recipe", size: int, width: int) -> int:
        """Edges and leaves below states that `size` nodes of `width` variables are given."""
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Move) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"


@final
@dataclass(frozen=True)
class Recipe:
    """What a try does; the same recipe is not tried twice for a block.

    `amount` is the number of interface nodes, of nodes that are split or merged, of states of a
    latent, or of edges added, as the move has it. `concentration` is the number of
    pseudo-observations of each sum, or with `per_edge` of each of its edges; `leaf` that of each
    leaf, spread like the values of its variable. Clusters see `width` slices before their own and
    `ahead` after it, by default as many. `parent` is the number of the candidate that the try
    starts from. With a `layout` its blocks have chains of their own, which so many `products` of
    the top network start together. With `by_position` each position in a sequence has nodes of its
    own.
    """

    move: Move
    amount: int
    concentration: float
    width: int = 2
    parent: int | None = None
    per_edge: bool = False
    leaf: float = 0.0
    ahead: int | None = None
    layout: Layout = ()
    products: int = 1
    by_position: bool = False

    @property
    def slices(self) -> int:
        """The slices that clusters see."""
        return 1 + self.width + (self.width if self.ahead is None else self.ahead)

    def __str__(self) -> str:
        words = self.move.words.format(slices=self.slices, chains=len(self.layout), **vars(self))
        words += " by position" * self.by_position
        return words if self.parent is None else f"{words}, from model {self.parent}"

    @property
    def smoothing(self) -> str:
        """The pseudo-observations in words."""
        edges = f"{self.concentration:g} for each {'edge' if self.per_edge else 'sum'}"
        return edges if self.leaf == 0 else f"{edges}, {self.leaf:g} for each leaf"


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A trained model of the variables of one block.

    `validation` has its log-likelihood of the block's variables in every validation sequence,
    `steps` the steps of EM and `work` what it took. One that is not whole was cut short by the
    clock, or trained on a sample, and knows the likelihood of some of the sequences only. One that
    is cut was still getting better when it had the steps that work or options allow.
    """

    number: int
    block: Block
    network: DynamicNetwork
    recipe: Recipe
    validation: Floats
    steps: int
    work: float
    is_whole: bool = True
    is_cut: bool = False

    @property
    def score(self) -> float:
        """Mean log-likelihood of the validation sequences."""
        return float(self.validation.mean())

    @property
    def size(self) -> int:
        """Number of interface nodes."""
        return self.network.num_interfaces

    def follow(self, move: Move, amount: int, **smoothing: Any) -> Recipe:
        """The recipe of a move that starts from this model, by default with its priors."""
        usual = replace(self.recipe, move=move, amount=amount, parent=self.number)
        return replace(usual, **{"width": 2, "ahead": None, "by_position": False, **smoothing})

    @property
    def is_single(self) -> bool:
        """Whether all interface nodes are in one group."""
        return len(self.network.groups) == 1

    @property
    def is_plain(self) -> bool:
        """Whether the leaves of every output stand right below it."""
        nodes = self.network.template.nodes
        return all(
            isinstance(own := nodes[output], Product)
            and any(isinstance(nodes[child], Leaf) for child in own.children)
            for output in self.network.template.outputs
        )


@final
@dataclass(frozen=True)
class Auto(Options):
    """The budget of the automatic learner, and the bounds of what it builds.

    `effort` counts work, not time: one unit is 10^9 edges of a template evaluated at a slice in a
    step of EM, leaves, clusters and edges of wide sums counted by what they take, which is of the
    order of a third of a second. The same effort does as much on a slow machine as on a fast one.
    Without one it follows the data: a unit for every 500 entries, from 5 to 300, more only for more
    than 3,000,000 slices; what comes after the ladder is then bounded by what it gains. The share
    `exploration` of the effort, at most, goes into finding layouts: which variables share an
    interface. A model mixes `max_layouts` layouts at most, and a block of variables `max_members`
    models that are mixed. The search ends after `patience` moves in a row that made nothing better.
    `moves` are what it tries after the ladder, `DEFAULT_MOVES` where none are given.
    """

    effort: float | None = number_field(None, above=0)
    exploration: float = number_field(0.2, least=0, most=1)
    max_interfaces: int = whole_field(2048)
    max_layouts: int = whole_field(5)
    max_members: int = whole_field(6)
    least_weight: float = number_field(0.04, least=0, most=1)
    patience: int = whole_field(40)
    em: EmOptions = part_field(_EM)
    refit: EmOptions = part_field(_REFIT)
    moves: Sequence[Move] | None = None

    def _check(self) -> None:
        if self.moves is None:
            return
        require_type(self.moves, Iterable, "moves", StructureError, remedy="see `DEFAULT_MOVES`")
        object.__setattr__(self, "moves", tuple(self.moves))
        for place, move in enumerate(self.moves):
            require_type(move, Move, f"moves[{place}]", StructureError, remedy="give an object")
            if move in self.moves[:place]:
                raise StructureError(
                    f"`moves` must have different names, but {move.name!r} is there twice; rename "
                    "one."
                )


DEFAULT_AUTO: Final = Auto()


@final
@dataclass(frozen=True, eq=False)
class BlockData:
    """The training and validation sequences with the variables of one block only."""

    train: Sequences
    validation: Sequences
    _num_runs: dict[int, int] = field(default_factory=dict)

    @cached_property
    def everything(self) -> Sequences:
        """Training and validation sequences together."""
        return _together(self.train, self.validation)

    @cached_property
    def has_missing(self) -> bool:
        """Whether an entry of the training or validation set is missing."""
        return any(np.isnan(own.values).any() for own in (self.train, self.validation))

    @cached_property
    def _is_gaussian(self) -> Bools:
        """Which variables have Gaussian leaves of their own, which the engine evaluates fast."""
        schema = self.train.schema
        return np.array([own.kind == Kind.CONTINUOUS and own.leaf is None for own in schema])

    @cached_property
    def num_gaussian(self) -> int:
        """The number of these."""
        return int(self._is_gaussian.sum())

    @cached_property
    def num_values(self) -> int:
        """Different values of the other variables in the training set, added up."""
        columns = self.train.values[:, ~self._is_gaussian].T
        return sum(np.unique(own[~np.isnan(own)]).size for own in columns)

    def num_runs(self, order: int) -> int:
        """Different runs of up to so many slices in the training set."""
        if order not in self._num_runs:
            self._num_runs[order] = count_runs(self.train, order)
        return self._num_runs[order]

    @cached_property
    def num_slices(self) -> int:
        """Different slices of the training set, as far as the engine tells them apart."""
        is_told_apart = self.has_missing or any(
            own.num_categories == 0 for own in self.train.schema
        )
        return self.train.total_slices if is_told_apart else self.num_runs(1)

    @cached_property
    def num_told(self) -> int:
        """Variables whose leaves are told something: their densities are not tabulated."""
        return sum(bool(sources_of(own)) for own in self.train.schema)

    @cached_property
    def num_features(self) -> int:
        """Numbers that clusters see of a slice."""
        kinds = ((own.kind == Kind.CATEGORICAL, own) for own in self.train.schema)
        return sum(own.num_categories if is_category else 1 for is_category, own in kinds)

    @cached_property
    def shares(self) -> tuple[Floats | None, ...]:
        """How often each category of a variable occurs; None for numbers."""
        found: list[Floats | None] = []
        for variable, values in zip(self.train.schema, self.train.values.T, strict=True):
            if variable.kind == Kind.CATEGORICAL:
                codes = values[~np.isnan(values)].astype(np.int64)
                counts = np.bincount(codes, minlength=variable.num_categories) + 0.5
                found.append(np.asarray(counts / counts.sum(), dtype=np.float64))
            else:
                found.append(None)
        return tuple(found)


def _together(train: Sequences, validation: Sequences) -> Sequences:
    return train if train is validation else joined([train, validation])


def divide(train: Sequences, validation: Sequences, seed: int) -> tuple[Sequences, Sequences]:
    """The same sequences, with enough of them to choose by.

    A validation set of few sequences is made larger from the training set, up to a share of all.
    Where there are a few sequences only they are cut into runs of slices first: a single one is
    its own validation set otherwise.
    """
    data, rng = _together(train, validation), np.random.default_rng([seed, _DIVISION])
    held = np.arange(len(train), len(data))
    if len(data) < _FEW_SEQUENCES:
        most = -(-_MOST_RUNS // len(data))
        counts = np.clip(data.lengths // _RUN, min(_LEAST_RUNS, most), most)
        data = cut_sequences(data, np.minimum(counts, data.lengths))
        held = np.arange(0)
    wanted = min(_ENOUGH, round(_MOST_HELD * len(data)))
    if len(held) >= wanted:
        return train, validation
    rest = np.setdiff1d(np.arange(len(data)), held)
    chosen = np.union1d(held, rng.permutation(rest)[: wanted - len(held)])
    return data[np.setdiff1d(rest, chosen)], data[chosen]


def restrict(data: Sequences, block: Block) -> Sequences:
    """The sequences with the variables of a block only, in the block's order."""
    names = [data.schema.names[variable] for variable in block]
    return data if tuple(names) == data.schema.names else data.select(names)


@final
@dataclass(frozen=True, eq=False)
class AutoTask:
    """Data, options, seed and clock of one run; the sets restricted to blocks are made once.

    `timed` is the effort that the time limit is likely to allow, where it is less than what is
    asked for.
    """

    train: Sequences
    validation: Sequences
    options: Auto
    priors: Priors | None
    seed: int
    root: Root
    tied: bool
    executor: Executor
    clock: Clock
    timed: float = inf
    _restricted: dict[Block, BlockData] = field(default_factory=dict)

    @cached_property
    def shared(self) -> "Shared[AutoTask]":
        """The task as workers get it, once."""
        return self.executor.share(replace(self, executor=Serial()))

    @property
    def asked(self) -> float:
        """The effort that is given, or less within a time limit."""
        return min(self.timed, inf if self.options.effort is None else self.options.effort)

    @property
    def effort(self) -> float:
        """The effort that is asked for, by default what is usual for such data."""
        if self.options.effort is not None:
            return self.asked
        usual = min(_MOST_EFFORT, self.train.values.size / _ENTRIES_A_UNIT)
        usual = max(_LEAST_EFFORT, usual, self.train.total_slices / _SLICES_A_UNIT)
        return min(self.asked, usual)

    @property
    def allowed(self) -> float:
        """What tries may take together; the rest is for training on all data."""
        return (1.0 - REFIT_SHARE) * self.effort

    @cached_property
    def units(self) -> Layout:
        """Variables that are never put into different blocks: leaves are told each other's."""
        linked = np.eye(len(self.schema), dtype=np.bool_)
        for column, variable in enumerate(self.schema):
            told = [own.column for own in sources_of(variable) if own.kind != "input"]
            linked[column, told] = linked[told, column] = True
        return layout_of(components(linked))

    def neighbours(self, layout: Layout) -> Iterator[Layout]:
        """Layouts in which a unit is moved to another block, or blocks are joined."""
        place = {variable: n for n, unit in enumerate(self.units) for variable in unit}
        by_unit = layout_of([sorted({place[own] for own in block}) for block in layout])
        for other in layout_neighbours(by_unit):
            yield layout_of([[own for n in block for own in self.units[n]] for block in other])

    @cached_property
    def constant(self) -> Block:
        """Variables that have one value at most in the training set: there is nothing to learn."""
        found = []
        for column, variable in enumerate(self.schema):
            values = self.train.values[:, column]
            is_told = any(own.kind != "input" for own in sources_of(variable))
            if not is_told and np.unique(values[~np.isnan(values)]).size < 2:
                found.append(column)
        return tuple(found)

    @cached_property
    def varying(self) -> Block:
        """All other variables; all variables where every one is constant."""
        still = set(self.constant)
        return tuple(i for i in range(len(self.schema)) if i not in still) or self.constant

    @cached_property
    def longest(self) -> int:
        """The slices of the longest sequence of the training set."""
        return int(self.train.lengths.max())

    @cached_property
    def varying_units(self) -> Layout:
        """The units of the varying variables."""
        return tuple(unit for unit in self.units if unit[0] in self.varying)

    @cached_property
    def strength(self) -> Floats:
        """The dependence of each pair of variables, from as many slices as can be afforded."""
        slices = max(FEW_SLICES, int(_MOST_PAIRS / len(self.schema) ** 2))
        is_much = self.train.total_slices > slices
        return dependence(self.sampled(slices, Clock()).train if is_much else self.train)

    @cached_property
    def joins(self) -> list[tuple[Block, Block, Block]]:
        """Blocks of the varying variables, each with the two that it is joined from."""
        return joins_by_dependence(self.strength, self.varying_units)

    def with_constants(self, blocks: Iterable[Block]) -> Layout:
        """A layout of blocks of the varying variables, and of the constant ones together."""
        rest = () if self.constant in ((), self.varying) else (self.constant,)
        return layout_of([*blocks, *rest])

    def is_apart(self, layout: Layout) -> bool:
        """Whether a layout has the constant variables in a block of their own."""
        return self.constant in ((), self.varying, *layout)

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.train.schema

    def data(self, block: Block) -> BlockData:
        """The data of a block."""
        if block not in self._restricted:
            train = restrict(self.train, block)
            same = self.train is self.validation
            validation = train if same else restrict(self.validation, block)
            self._restricted[block] = BlockData(train, validation)
        return self._restricted[block]

    def sampled(self, num_slices: int, clock: Clock) -> "AutoTask":
        """The task with as many slices of either set, and another clock."""
        train = drawn_part(self.train, num_slices, np.random.default_rng([self.seed, _SAMPLE, 0]))
        validation = train
        if self.validation is not self.train:
            # Whole ones, so that scores are those of sequences.
            rng = np.random.default_rng([self.seed, _SAMPLE, 1])
            validation = self.validation[drawn_places(self.validation, FEW_SLICES, rng)]
        return replace(self, train=train, validation=validation, clock=clock, _restricted={})

    def with_steps(self, max_steps: int) -> "AutoTask":
        """The task with so many steps of EM at most."""
        em = replace(self.options.em, max_steps=max_steps)
        return replace(self, options=replace(self.options, em=em))

    def rng(self, number: int) -> np.random.Generator:
        """The randomness of one try."""
        return np.random.default_rng([self.seed, _STREAM, number])

    def is_thinned(self, recipe: Recipe) -> bool:
        """Whether edges that the first steps hardly use are left out: clusters lead to a few.

        That asks for many slices; and with pseudo-observations by edge all edges count, unless
        there are as few as with nodes for each position.
        """
        is_apt = recipe.by_position or not recipe.per_edge
        is_begun = recipe.parent is None and recipe.move.has_clusters and not recipe.layout
        slices = _MANY_AT_POSITION if recipe.by_position else _MANY_SLICES
        is_much = self.train.total_slices >= slices * recipe.amount
        return is_begun and is_much and recipe.amount >= _LARGE and is_apt

    def priors_of(self, recipe: Recipe, size: int, block: Block) -> Priors:
        """The pseudo-observations of a recipe, for sums over `size` nodes.

        Priors that are given are not changed.
        """
        if self.priors is not None:
            return self.priors
        count = recipe.concentration if recipe.per_edge else recipe.concentration / size
        if recipe.leaf == 0:
            return Priors(sum_pseudo_count=count)
        own = [
            None if share is None else CategoricalPrior(_LEAST_COUNT, tuple(recipe.leaf * share))
            for share in self.data(block).shares
        ]
        return Priors(sum_pseudo_count=count, by_variable=tuple(own))


class BlockRecord(NamedTuple):
    """The candidates of one block so far, from which moves propose what to try next."""

    task: AutoTask
    block: Block
    candidates: Sequence[Candidate]

    @property
    def single(self) -> list[Candidate]:
        """The candidates with one group of interface nodes."""
        return [candidate for candidate in self.candidates if candidate.is_single]

    @property
    def best(self) -> Candidate:
        """The one of these with the greatest score."""
        return max(self.single, key=lambda candidate: candidate.score)

    @property
    def best_plain(self) -> Candidate | None:
        """The best of those whose outputs have their own leaves."""
        plain = [candidate for candidate in self.single if candidate.is_plain]
        return max(plain, key=lambda candidate: candidate.score, default=None)

    def next_recipe(self, move: Move) -> Recipe | None:
        """The next recipe of a move; None where there is nothing left to try."""
        tried = {candidate.recipe for candidate in self.candidates}
        return next((recipe for recipe in move.recipes(self) if recipe not in tried), None)


class Try(NamedTuple):
    """A recipe for a block, the candidate that it starts from, and the most work it may take."""

    number: int
    block: Block
    recipe: Recipe
    parent: Candidate | None = None
    most: float = inf


class Trial(NamedTuple):
    """What a move needs to start a try: recipe and parent, the block's data, priors, randomness."""

    block: Block
    recipe: Recipe
    parent: Candidate | None
    data: BlockData
    priors: Priors
    rng: np.random.Generator
    task: AutoTask

    @property
    def network(self) -> DynamicNetwork:
        """The network of the parent."""
        assert self.parent is not None
        return self.parent.network

    def without_idle_edges(self) -> "Trial":
        """The trial with a parent of many nodes pruned of the edges that are hardly used."""
        assert self.parent is not None
        network = self.network
        if network.num_interfaces < MANY:
            return self
        smaller = pruned(network, self.expected_flows(network), LEAST_FLOW)
        return self._replace(parent=replace(self.parent, network=smaller))

    def apply(self, start: Callable[..., DynamicNetwork]) -> DynamicNetwork:
        """What a function of `dspn.learning.starts` makes of the network of the parent."""
        data, amount = self.data.train, self.recipe.amount
        return start(self.network, data, amount, priors=self.priors, rng=self.rng)

    def expected_flows(self, network: DynamicNetwork) -> ExpectedFlows:
        """The expected flows of a network on the training set."""
        return self.task.options.em.compile(network).expected_flows(self.data.train).flows

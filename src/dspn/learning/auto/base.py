"""What the automatic learner works with: moves, recipes, models, options, and data by block."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats, require_type
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences, drawn_part, drawn_places, joined
from dspn.engine import ExpectedFlows
from dspn.errors import StructureError
from dspn.executors import Executor, Serial, Shared
from dspn.learning.em import EmOptions
from dspn.learning.priors import Priors
from dspn.learning.run import Clock
from dspn.options import Options, number_field, part_field, whole_field
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Leaf, Product, Sum

Block = tuple[int, ...]

_WORK_UNIT: Final = 1e9
# The steps that training usually takes.
_USUAL_STEPS: Final = 25
_ENTRIES_A_UNIT: Final = 5_000
_LEAST_EFFORT: Final = 0.1
_MOST_EFFORT: Final = 50.0
_EM: Final = EmOptions(max_steps=40, min_steps=8, tolerance=1e-5, patience=4, single_precision=True)
_REFIT: Final = EmOptions(max_steps=5, tolerance=1e-7, single_precision=True)
_STREAM: Final = 5  # of randomness, apart from those of growth, search and refitting
_SAMPLE: Final = 6
# A model of so many slices tells how long one of all would take, and serves until there is one.
FEW_SLICES: Final = 3_000
# Sums of so many children are products of matrices, whose edges cost this much of others.
_WIDE_SUM: Final = 64
_WIDE_SHARE: Final = 0.4
# What a slice takes whatever the template, in edges.
_PER_SLICE: Final = 100.0


class Move(ABC):
    """A way to a new model of a block of variables; one object, told apart by its name.

    The automatic learner makes the move for which the gain per work is expected to be largest,
    trains the network that `start` gives, and keeps it if the validation set is better off.

    Attributes:
        name: The name of the move in reports.
        words: What a try does, such as "{amount} nodes split"; the fields of the recipe are put in,
            and `{slices}`, the number of slices that clusters see.
        expected: The gain that is expected before the move was tried, compared with 1 for the
            best of the moves.
        growth: The edges after the move, in shares of those of the model that it starts from.
        adds_nodes: Whether the amount of a recipe is a number of interface nodes that are added.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    expected: ClassVar[float] = 0.3
    growth: ClassVar[float] = 1.0
    adds_nodes: ClassVar[bool] = False

    @abstractmethod
    def recipes(self, record: "BlockRecord") -> list["Recipe"]:
        """What may pay for a block, in the order to try it; what was tried is skipped."""

    @abstractmethod
    def start(self, trial: "Trial") -> DynamicNetwork:
        """The network to train."""

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
    pseudo-observations of each sum, `width` that of slices before and after that clusters see, and
    `parent` the number of the candidate that the try starts from.
    """

    move: Move
    amount: int
    concentration: float
    width: int = 2
    parent: int | None = None

    def __str__(self) -> str:
        words = self.move.words.format(slices=2 * self.width + 1, **vars(self))
        return words if self.parent is None else f"{words}, from model {self.parent}"


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A trained model of the variables of one block.

    `validation` has its log-likelihood of the block's variables in every validation sequence,
    `steps` the steps of EM and `work` what it took. One that is not whole was cut short by the
    clock, or trained on a sample, and knows the likelihood of some of the sequences only.
    """

    number: int
    block: Block
    network: DynamicNetwork
    recipe: Recipe
    validation: Floats
    steps: int
    work: float
    is_whole: bool = True

    @property
    def score(self) -> float:
        """Mean log-likelihood of the validation sequences."""
        return float(self.validation.mean())

    @property
    def size(self) -> int:
        """Number of interface nodes."""
        return self.network.num_interfaces

    def follow(self, move: Move, amount: int, concentration: float | None = None) -> Recipe:
        """The recipe of a move that starts from this model, by default with its priors."""
        prior = self.recipe.concentration if concentration is None else concentration
        return Recipe(move, amount, prior, parent=self.number)

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
    step of EM, edges of wide sums counted less, which is of the order of a third of a second. The
    same effort leads to the same model on every machine. Without one it follows the data: a unit
    for every 5,000 entries, 50 at most. The share `exploration` of it, at most,
    goes into finding layouts: which variables share an interface. A model has `max_layouts`
    components at most, and a block of variables `max_members` models that are mixed. The search
    ends after `patience` moves in a row that made nothing better. `moves` are what it tries,
    `DEFAULT_MOVES` where none are given.
    """

    effort: float | None = number_field(None, above=0)
    exploration: float = number_field(0.3, least=0, most=1)
    max_interfaces: int = whole_field(1024)
    max_layouts: int = whole_field(5)
    max_members: int = whole_field(6)
    least_weight: float = number_field(0.04, least=0, most=1)
    patience: int = whole_field(12)
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

    @cached_property
    def everything(self) -> Sequences:
        """Training and validation sequences together."""
        same = self.train is self.validation
        return self.train if same else joined([self.train, self.validation])


def restrict(data: Sequences, block: Block) -> Sequences:
    """The sequences with the variables of a block only, in the block's order."""
    names = [data.schema.names[variable] for variable in block]
    return data if tuple(names) == data.schema.names else data.select(names)


@final
@dataclass(frozen=True, eq=False)
class AutoTask:
    """Data, options, seed and clock of one run; the sets restricted to blocks are made once."""

    train: Sequences
    validation: Sequences
    options: Auto
    priors: Priors | None
    seed: int
    root: Root
    tied: bool
    executor: Executor
    clock: Clock
    _restricted: dict[Block, BlockData] = field(default_factory=dict)

    @cached_property
    def shared(self) -> "Shared[AutoTask]":
        """The task as workers get it, once."""
        return self.executor.share(replace(self, executor=Serial()))

    @property
    def effort(self) -> float:
        """The effort that is given, or what is usual for such data."""
        usual = max(_LEAST_EFFORT, self.train.values.size / _ENTRIES_A_UNIT)
        return min(_MOST_EFFORT, usual) if self.options.effort is None else self.options.effort

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

    def expected_work(self, block: Block, recipe: Recipe, parent: Candidate | None) -> float:
        """What a try is likely to take, in the units of the effort."""
        if parent is not None:
            return recipe.move.growth * work_of(parent.network, self.train, _USUAL_STEPS)
        edges = _edges_at_work([recipe.amount] * recipe.amount, recipe.amount * (len(block) + 1))
        return edges * self.train.total_slices * _USUAL_STEPS / _WORK_UNIT

    def priors_of(self, concentration: float, size: int) -> Priors:
        """Priors with `concentration` pseudo-observations for each sum over `size` nodes.

        Priors that are given are not changed.
        """
        return self.priors or Priors(sum_pseudo_count=concentration / size)


class BlockRecord(NamedTuple):
    """The candidates of one block so far, from which moves propose what to try next."""

    task: AutoTask
    block: Block
    candidates: Sequence[Candidate]

    @property
    def best(self) -> Candidate:
        """The candidate with the greatest score."""
        return max(self.candidates, key=lambda candidate: candidate.score)

    @property
    def best_plain(self) -> Candidate | None:
        """The best of the candidates whose outputs have their own leaves."""
        plain = [candidate for candidate in self.candidates if candidate.is_plain]
        return max(plain, key=lambda candidate: candidate.score, default=None)

    def next_recipe(self, move: Move) -> Recipe | None:
        """The next recipe of a move; None where there is nothing left to try."""
        tried = {candidate.recipe for candidate in self.candidates}
        return next((recipe for recipe in move.recipes(self) if recipe not in tried), None)


class Try(NamedTuple):
    """A recipe for a block, and the candidate that it starts from."""

    number: int
    block: Block
    recipe: Recipe
    parent: Candidate | None = None


class Trial(NamedTuple):
    """What a move needs to start a try: recipe and parent, the block's data, priors, randomness."""

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

    def apply(self, start: Callable[..., DynamicNetwork]) -> DynamicNetwork:
        """What a function of `dspn.learning.starts` makes of the network of the parent."""
        data, amount = self.data.train, self.recipe.amount
        return start(self.network, data, amount, priors=self.priors, rng=self.rng)

    def expected_flows(self, network: DynamicNetwork) -> ExpectedFlows:
        """The expected flows of a network on the training set."""
        return self.task.options.em.compile(network).expected_flows(self.data.train).flows


def _edges_at_work(widths: Iterable[int], other_edges: int) -> float:
    """The edges of a template as work: of sums by their widths, and all others."""
    sums = sum(width * (_WIDE_SHARE if width >= _WIDE_SUM else 1.0) for width in widths)
    return _PER_SLICE + sums + other_edges


def work_of(network: DynamicNetwork, data: Sequences, steps: int) -> float:
    """Edges evaluated at slices in so many steps of EM, in units of 10^9."""
    template = network.template
    widths = [len(node.children) for node in template.nodes if isinstance(node, Sum)]
    edges = _edges_at_work(widths, template.num_edges - sum(widths))
    return edges * data.total_slices * (steps + 1) / _WORK_UNIT

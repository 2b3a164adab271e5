"""Distillation: an exact model that is learned from sequences drawn from a teacher.

A teacher that predicts well but has no exact queries, such as a recurrent net, can be drawn from
without end. A large model is learned from the draws, where overfitting is no concern, and then
tuned on the real data, with what it expects of the draws as prior.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Protocol, final, runtime_checkable

import numpy as np

from dspn._arguments import Floats, require_type
from dspn.data.inputs import Rule
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences, joined, sequences_of
from dspn.engine import Expectation, Program
from dspn.errors import DataError, StructureError
from dspn.learning.em import (
    EmFit,
    EmOptions,
    EmState,
    Members,
    Part,
    fit_em,
    scale_flows,
    scaled_families,
)
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.run import Clock, Ending
from dspn.learning.scores import FitRecord, Score
from dspn.learning.starts.clusters import clustered_network, sequence_clusters
from dspn.options import Options, part_field, require_number, whole_field
from dspn.structure.edit import with_tables_by
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork, Root

# Sequences that a teacher is asked for at once, and the most times that it is asked.
_AT_ONCE: Final = 8_192
_MOST_TIMES: Final = 64
# Of more draws a part stands for all at the start, and a moving average in the end.
_MOST_COUNTED: Final = 2**18
# The draws that start a network have as many slices as this to a node, within bounds.
_SLICES_PER_NODE: Final = 200
_LEAST_SLICES: Final = 20_000
_MOST_SLICES: Final = 2**20
# Of a time limit, when learning from the draws ends; the rest is for tuning.
_SHARE_OF_DRAWS: Final = 0.8
_STREAM: Final = 11  # of randomness, apart from those of other learners
# The window around a slice that clusters see where the teacher has no states.
_WIDTH: Final = 2
# Draws are no data: all passes are made. Small batches learn faster on a CPU.
_EM: Final = EmOptions(max_steps=12, min_steps=12, batch_size=1_024, single_precision=True)
_TUNING: Final = EmOptions(max_steps=30, min_steps=4, patience=3, single_precision=True)


@runtime_checkable
class Teacher(Protocol):
    """What can be learned from: anything that draws sequences.

    It may also have `states(data)`, which returns numbers (slices, n) that say what the teacher
    knows after each slice: they make better starts.
    """

    def sample(self, n: int, rng: np.random.Generator) -> Sequences:
        """Draws of `n` whole sequences."""


@runtime_checkable
class TeacherOptions(Protocol):
    """How a teacher is trained on the data first."""

    def fit(self, train: Sequences, validation: Sequences, *, seed: int, clock: Clock) -> Teacher:
        """The trained teacher; it depends on the data and the seed alone, unless time is up."""


@final
@dataclass(frozen=True)
class Distilled(Options):
    """An exact model learned from a teacher's draws, then tuned on the data.

    Attributes:
        teacher: An object with `sample(n, rng)`, options with `fit(train, validation, seed=,
            clock=)` that return one, or None for LSTMs that are trained on the data first (see
            `dspn.learning.lstm.Lstms`; they need PyTorch).
        n_interfaces: Number of interface nodes of each component.
        n_components: Number of components.
        num_draws: Number of sequences that are drawn. Tens of thousands suit a CPU, millions a GPU.
        by: A categorical input of the data by name, or a rule such as `dspn.inputs.Position(24)`:
            sums over interface nodes have a table of weights for each of its values. By default
            the categorical input, where the data have just one.
        width: The slices on either side that clusters of the start see; by default none where the
            teacher has states, else two.
        em: How the model is learned from the draws; by batches, as `batch_size` says.
        tuning: When learning from the real data stops.
        worths: What is tried for the prior: how many drawn sequences count for each real one. The
            best on the validation set is taken, the untuned model included.
    """

    teacher: Any = None
    n_interfaces: int = whole_field(64)
    n_components: int = whole_field(1)
    num_draws: int = whole_field(60_000)
    by: str | Rule | None = None
    width: int | None = whole_field(None, least=0)
    em: EmOptions = part_field(_EM)
    tuning: EmOptions = part_field(_TUNING)
    worths: tuple[float, ...] = (30.0, 10.0, 3.0, 1.0, 0.3)

    def _check(self) -> None:
        object.__setattr__(self, "worths", tuple(self.worths))
        if not isinstance(self.by, str | Rule | None):
            raise StructureError(
                "`by` of Distilled must be the name of an input or a rule of `dspn.inputs`, but is "
                f"{self.by!r}."
            )
        for worth in self.worths:
            require_number("Distilled", "worths", worth, above=0)
        if self.teacher is not None and not isinstance(self.teacher, Teacher | TeacherOptions):
            raise StructureError(
                "`teacher` must have a method `sample(n, rng)` that draws sequences, or `fit` that "
                f"returns such an object, but {type(self.teacher).__name__} has neither."
            )


@dataclass(frozen=True, eq=False)
class _Around(Members):
    """Members that answer as a part of them does."""

    part: Part

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", self.part.weights)

    def flows(self, program: Program) -> Expectation:
        """Expected flows of the part under the program."""
        return self.part.flows(program)

    def log_likelihood(self, program: Program) -> Floats:
        """The log-likelihood of each sequence of the part."""
        return self.part.log_likelihood(program)

    def score(self, score: Score, program: Program) -> float:
        """The mean of another score over the part."""
        return self.part.score(score, program)


@final
@dataclass(frozen=True, eq=False)
class Backed(_Around):
    """Real sequences, with expected flows of others that count beside theirs: a prior by counts."""

    prior: Expectation

    def flows(self, program: Program) -> Expectation:
        """Expected flows of the real sequences under the program, plus the fixed ones."""
        return self.part.flows(program) + self.prior

    def batches(self, batch_size: int, rng: np.random.Generator) -> list[tuple[Members, float]]:
        """The real sequences in batches, each with its share of the prior."""
        return [
            (Backed(own, scale_flows(self.prior, 1 / factor)), factor)
            for own, factor in self.part.batches(batch_size, rng)
            if isinstance(own, Part)
        ]


@final
@dataclass(frozen=True, eq=False)
class Drawn(_Around):
    """Draws in batches; a part of them stands for all where the flows of all are asked for."""

    draws: Sequences

    @classmethod
    def of(cls, draws: Sequences, most: int) -> "Drawn":
        """Draws, of which the first `most` stand for all."""
        first = draws[:most]
        return cls(Part.of(first, np.full(len(first), len(draws) / len(first))), draws)

    def batches(self, batch_size: int, rng: np.random.Generator) -> list[tuple[Members, float]]:
        """All draws in their order, which is a random one."""
        cuts = np.linspace(0, len(self.draws), -(-len(self.draws) // batch_size) + 1).astype(int)
        parts = [self.draws[start:end] for start, end in pairwise(cuts.tolist())]
        return [(Part.of(own, None), len(self.draws) / len(own)) for own in parts]


@final
@dataclass(frozen=True, eq=False)
class Distillation:
    """The model, its validation score before what was held out was learned from, and the way there.

    `scores` has the validation score by the worth of the prior; infinity stands for the model of
    the draws alone.
    """

    mixture: Mixture
    score: float
    worth: float
    scores: dict[float, float]
    history: tuple[FitRecord, ...]
    ending: Ending
    num_draws: int

    def explanation(self) -> str:
        """What was done and chosen, in words."""
        lines = [
            f"Learned from {self.num_draws:,} sequences drawn from the teacher: "
            f"{self.mixture.num_interfaces} interface nodes, components: {len(self.mixture)}.",
            "Validation score in nats per sequence, by how many draws count for a real sequence:",
        ]
        for worth, score in self.scores.items():
            taken = ", taken" if worth == self.worth else ""
            amount = "draws alone" if worth == np.inf else f"{worth:g}"
            lines.append(f"  {amount}: {score:.4g}{taken}")
        return "\n".join(lines)


def distil(
    train: Sequences,
    validation: Sequences,
    *,
    options: Distilled,
    priors: Priors | None = None,
    seed: int = 0,
    root: Root = Root.FIRST,
    tied: bool = True,
    refit: bool = True,
    clock: Clock | None = None,
) -> Distillation:
    """Learns from a teacher, then from the data; the same seed gives the same model.

    Args:
        train: The sequences that the teacher and the tuning learn from.
        validation: The sequences that choose the worth of the draws.
        options: Teacher, sizes and steps.
        priors: Pseudo-observations of weights and leaves, beside the draws.
        seed: Seed of everything random.
        root: The slice that carries the top network.
        tied: Whether the bottom network shares the template's parameters.
        refit: Whether the tuning is done again in the end with what was held out.
        clock: Its limit ends training of the teacher after half of it, learning from the draws
            after four fifths, and tuning.
    """
    require_type(options, Distilled, "options", StructureError)
    clock, own = clock or Clock(), priors or DEFAULT_PRIORS

    def rng(part: int) -> np.random.Generator:
        return np.random.default_rng([seed, _STREAM, part])

    teacher = _taught(options, train, validation, seed, clock)
    draws = _draws(teacher, train, options.num_draws, rng(0))
    by = _input(train.schema, options.by)
    start = _start(teacher, draws, options, own, root, rng(1))
    if by is not None:
        start = Mixture(tuple(with_tables_by(network, by) for network in start), start.weights)
    if not tied:
        start = Mixture(tuple(network.untied() for network in start), start.weights)
    start = _of_one_structure(start)
    settings: dict[str, Any] = {"priors": own, "deadline": clock.is_due}
    drawn, counts = _learned(start, draws, validation, options.em, own, rng(2), clock)

    def tuned(data: Sequences, worth: float, **more: Any) -> EmFit:
        prior = scale_flows(counts, worth * len(data) / len(draws))
        members = Backed(Part.of(data, None), prior)
        return fit_em(drawn.mixture, members, rng=rng(3), **settings, **more)

    fits = {np.inf: drawn}
    for worth in options.worths:
        if clock.is_due():
            break
        fits[worth] = tuned(train, worth, validation=validation, options=options.tuning)
    scores = {worth: fit.score for worth, fit in fits.items()}
    worth = max(scores, key=lambda one: scores[one])
    found = fits[worth]
    mixture = found.mixture
    if refit and worth < np.inf and not clock.is_due():
        steps = max(found.history, key=lambda record: record.validation or -np.inf).step
        again = replace(options.tuning, max_steps=steps, min_steps=steps)
        mixture = tuned(joined([train, validation]), worth, options=again).mixture
    ending = Ending.TIME_LIMIT if clock.is_due() else Ending.FINISHED
    score = scores[worth]
    return Distillation(mixture, score, worth, scores, found.history, ending, len(draws))


def _learned(
    start: Mixture,
    draws: Sequences,
    validation: Sequences,
    options: EmOptions,
    priors: Priors,
    rng: np.random.Generator,
    clock: Clock,
) -> tuple[EmFit, Expectation]:
    """The model of the draws, and its expected flows on them.

    Of many draws the flows are the moving average that the model was made from.
    """
    averages: list[Expectation] = []

    def on_state(state: EmState) -> None:
        if state.best is state.mixture and state.statistics is not None:
            averages[:] = [state.statistics]

    many = len(draws) > _MOST_COUNTED and options.batch_size is not None
    fit = fit_em(
        start,
        Drawn.of(draws, _MOST_COUNTED) if many else draws,
        validation=validation,
        options=options,
        priors=priors,
        rng=rng,
        deadline=clock.within(_SHARE_OF_DRAWS).is_due,
        on_state=on_state,
    )
    if many and averages:
        return fit, averages[0]
    return fit, Part.of(draws, None).flows(options.compile(fit.mixture))


def _taught(
    options: Distilled, train: Sequences, validation: Sequences, seed: int, clock: Clock
) -> Teacher:
    """The teacher, trained where it is to be."""
    teacher = options.teacher
    if teacher is None:
        from dspn.learning.lstm import Lstms

        teacher = Lstms()
    if not isinstance(teacher, TeacherOptions):
        return teacher  # type: ignore[no-any-return]
    half = Clock(None if clock.limit is None else max(clock.left / 2, 1e-9))
    return teacher.fit(train, validation, seed=seed, clock=half)


def _draws(teacher: Teacher, train: Sequences, count: int, rng: np.random.Generator) -> Sequences:
    """Draws of the variables of the training set."""
    parts, at_once = [], max(_AT_ONCE, -(-count // _MOST_TIMES))
    for begin in range(0, count, at_once):
        part = teacher.sample(min(at_once, count - begin), rng)
        require_type(part, Sequences, "teacher.sample(n, rng)", DataError)
        parts.append(sequences_of(part, train.schema, "teacher.sample(n, rng)"))
    return joined(parts)


def _input(schema: Schema, by: str | Rule | None) -> str | None:
    """The name of the categorical input that tables are for, None where there is none."""
    known = [own.name for own in schema.inputs if own.num_categories]
    if by is None:
        return known[0] if len(known) == 1 else None
    if isinstance(by, Rule):
        return next((own.name for own in schema.inputs if own.rule == by), str(by))
    return by


def _of_one_structure(mixture: Mixture) -> Mixture:
    """The same mixture, whose components share the structure of the first where theirs is equal.

    What engines derive from a structure is then made once.
    """
    first = mixture.components[0]

    def shared(network: DynamicNetwork) -> DynamicNetwork:
        is_equal = network.template == first.template and network.top == first.top
        return first.with_parameters(network.parameters) if is_equal else network

    return Mixture(tuple(map(shared, mixture)), mixture.weights)


def _start(
    teacher: Teacher,
    draws: Sequences,
    options: Distilled,
    priors: Priors,
    root: Root,
    rng: np.random.Generator,
) -> Mixture:
    """Components for clusters of sequences, nodes for clusters of the teacher's states."""
    size, count = options.n_interfaces, options.n_components
    wanted = min(max(_LEAST_SLICES, _SLICES_PER_NODE * size * count), _MOST_SLICES)
    sample = draws[: int(np.searchsorted(draws.offsets, wanted)) + 1]
    read: Callable[[Sequences], Floats] | None = getattr(teacher, "states", None)
    states = None if read is None else np.asarray(read(sample))
    width = options.width
    if width is None:
        width = _WIDTH if states is None else 0
    labels = np.zeros(len(sample), dtype=np.int64)
    if count > 1:
        labels = sequence_clusters(sample, count, rng, states)
    owner = np.repeat(labels, sample.lengths)
    networks: list[DynamicNetwork] = []
    for number in range(count):
        beside = None if states is None else states[owner == number]
        network = clustered_network(
            sample[np.flatnonzero(labels == number)],
            size,
            width=width,
            beside=beside,
            priors=priors,
            rng=rng,
            root=root,
        )
        networks.append(scaled_families(network, draws))
    shares = np.bincount(labels, minlength=count) + 1.0
    return Mixture(tuple(networks), shares / shares.sum())

"""Weights and leaves by expectation maximisation, until a stopping rule is met."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypedDict, Unpack, final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import checked_rng, require_type
from dspn.engine import Program, TimeUpError, compile_program
from dspn.errors import StructureError
from dspn.learning._learnable import checked_learnable
from dspn.learning._stages import (
    Batches,
    Maximiser,
    Part,
    Stage,
    full_batch,
    mini_batch,
    weighted_part,
)
from dspn.learning.diagnosis import DeadNode, dead_nodes
from dspn.learning.priors import DEFAULT_PRIORS, Priors, log_prior
from dspn.learning.scores import LIKELIHOOD, Likelihood, Score
from dspn.learning.stopping import StopReason, is_kept, stop_reason
from dspn.options import Options, number_field, part_field, whole_field
from dspn.sequences import Sequences
from dspn.sequences.reading import sequences_of
from dspn.structure import DynamicNetwork, Leaf, Template


@final
@dataclass(frozen=True)
class EmOptions(Options):
    """When expectation maximisation stops, and whether it sees all sequences at every step.

    Never before `min_steps`, a fit stops when a step has raised the penalised log-likelihood per
    sequence by no more than `tolerance` times its size (which counts as 1 where it is less), or,
    with a validation set, after `patience` steps in a row without a better validation score.

    With a `batch_size` a step is a pass over batches of that many sequences. The t-th batch
    replaces the share (t + `step_delay`) ** -`step_power` of the statistics by its own.

    `single_precision` computes flows and scores in float32 where its range suffices, which is
    faster for templates of the initial kind with sixteen interface nodes or more.
    """

    max_steps: int = whole_field(100, least=0)
    min_steps: int = whole_field(0, least=0)
    tolerance: float = number_field(1e-5, least=0)
    patience: int = whole_field(5)
    batch_size: int | None = whole_field(None)
    step_power: float = number_field(0.6, above=0.5, most=1)
    step_delay: float = number_field(2.0, least=0)
    single_precision: bool = part_field(False)


DEFAULT_OPTIONS: Final = EmOptions()


@final
@dataclass(frozen=True)
class EmRecord:
    """What is known of the network after `step` steps, in nats per sequence.

    `train` is its log-likelihood, and `penalised` has the log prior added. With mini-batches
    `train` is the mean over the pass that led to the network, each sequence seen before the update
    that it was part of.
    """

    step: int
    train: float
    penalised: float
    validation: float | None


@final
@dataclass(frozen=True, eq=False)
class EmFit:
    """The network that was kept: the best on the validation set, or the last one without a set.

    `score` is its score on the validation set, or on the training set without one. `dead` names the
    nodes that nothing flowed through in the statistics its parameters were made from.
    """

    network: DynamicNetwork
    history: tuple[EmRecord, ...]
    score: float
    stopped: StopReason
    dead: tuple[DeadNode, ...]


@final
@dataclass(frozen=True, eq=False)
class _Task:
    """What stays the same from the first step of a fit to the last, checked."""

    train: Part
    validation: Sequences | None
    score: Score
    options: EmOptions
    maximiser: Maximiser
    rng: np.random.Generator | None
    on_step: Callable[[EmRecord], None] | None
    deadline: Callable[[], bool] | None

    def is_due(self) -> bool:
        """Whether time is up."""
        return self.deadline is not None and bool(self.deadline())

    def stages(self, program: Program) -> Iterator[Stage]:
        """The network at the start and after each step."""
        options = self.options
        if options.batch_size is None:
            return full_batch(program, self.train, self.maximiser, options.max_steps)
        assert self.rng is not None
        settings = Batches(
            options.batch_size, options.step_power, options.step_delay, self.rng, self.is_due
        )
        return mini_batch(program, self.train, self.maximiser, options.max_steps, settings)

    def record(self, step: int, stage: Stage) -> EmRecord:
        """The scores of a network on the way."""
        priors, learnable = self.maximiser.priors, self.maximiser.learnable
        penalty = log_prior(stage.program.network, priors, learnable)
        validation = None
        if self.validation is not None:
            validation = self.score.mean(stage.program, self.validation)
        penalised = stage.train + penalty / float(self.train.weights.sum())
        return EmRecord(step, stage.train, penalised, validation)

    def final_score(self, stage: Stage, record: EmRecord) -> float:
        """The validation score; without one that of the training set, which may be unknown yet."""
        if record.validation is not None:
            return record.validation
        if isinstance(self.score, Likelihood) and self.options.batch_size is None:
            return stage.train
        return self.score.mean(stage.program, self.train.data, self.train.weights)


def fit_em(
    network: DynamicNetwork,
    train: Sequences,
    *,
    validation: Sequences | None = None,
    score: Score = LIKELIHOOD,
    options: EmOptions = DEFAULT_OPTIONS,
    priors: Priors = DEFAULT_PRIORS,
    sample_weights: Floats | None = None,
    rng: np.random.Generator | None = None,
    learnable: Collection[int] | None = None,
    on_step: Callable[[EmRecord], None] | None = None,
    deadline: Callable[[], bool] | None = None,
    program: Program | None = None,
) -> EmFit:
    """Steps to a maximum of log-likelihood plus log prior, from the network's own parameters.

    Every full-batch step raises that sum. The leaves' families should be scaled to the data, see
    `scaled_families`.

    Args:
        validation: Sequences whose score chooses among the networks on the way, that before the
            first step included.
        sample_weights: How often each training sequence counts; zero leaves it out.
        rng: Draws the batches; needed with a `batch_size` only.
        learnable: Nodes of the template whose parameters may change, see `maximise`; everything by
            default.
        on_step: Called with every record as soon as it is known.
        deadline: Asked after every step and every batch; the fit ends when it says yes.
        program: The network compiled, where it is at hand.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    require_type(priors, Priors, "priors", StructureError)
    score.check(network.schema)
    task = _Task(
        weighted_part(sequences_of(train, network.schema, "train"), sample_weights),
        None if validation is None else sequences_of(validation, network.schema, "validation"),
        score,
        options,
        Maximiser(priors, checked_learnable(network.template, learnable)),
        None if options.batch_size is None else checked_rng(rng, StructureError),
        on_step,
        deadline,
    )
    if program is None:
        program = compile_program(
            network, precision="single" if options.single_precision else "double"
        )
    return _run(program.rebind(network), task)


def _run(program: Program, task: _Task) -> EmFit:
    """Takes steps until a rule says stop, and keeps the best network."""
    history: list[EmRecord] = []
    best: tuple[Stage, EmRecord] | None = None
    stopped: StopReason | None = None
    stages = enumerate(task.stages(program))
    while stopped is None:
        try:
            step, stage = next(stages)
            record = task.record(step, stage)
        except TimeUpError:
            if best is None:
                raise
            stopped = StopReason.DEADLINE
            break
        history.append(record)
        if task.on_step is not None:
            task.on_step(record)
        if best is None or is_kept(record, best[1]):
            best = (stage, record)
        stopped = stop_reason(history, best[1].step, task.options, is_due=task.is_due())
    assert best is not None
    kept, record = best
    network = kept.program.network
    score = task.final_score(kept, record)
    return EmFit(network, tuple(history), score, stopped, dead_nodes(network, kept.statistics))


class FitSettings(TypedDict, total=False):
    """The settings of `fit_em` by name, for functions that hand them on."""

    validation: Sequences | None
    score: Score
    options: EmOptions
    priors: Priors
    sample_weights: Floats | None
    rng: np.random.Generator | None
    learnable: Collection[int] | None
    on_step: Callable[[EmRecord], None] | None
    deadline: Callable[[], bool] | None


def restarts(
    networks: Iterable[DynamicNetwork], train: Sequences, **settings: Unpack[FitSettings]
) -> EmFit:
    """The best of the fits from several starting points; see `fit_em` for the settings.

    The first network is always fitted; no further one is begun once the deadline has passed.
    """
    return best_of(_fits(networks, train, settings))


def _fits(
    networks: Iterable[DynamicNetwork], train: Sequences, settings: FitSettings
) -> Iterator[EmFit]:
    program: Program | None = None
    for network in networks:
        require_type(network, DynamicNetwork, "networks", StructureError)
        options = settings.get("options", DEFAULT_OPTIONS)
        program = _program(network, program, single=options.single_precision)
        yield fit_em(network, train, program=program, **settings)
        deadline = settings.get("deadline")
        if deadline is not None and deadline():
            return


def _program(network: DynamicNetwork, known: Program | None, *, single: bool) -> Program:
    """The network compiled; bound to known layouts where its structure is the same."""
    if (
        known is not None
        and known.network.template is network.template
        and known.network.top is network.top
        and known.network.root == network.root
    ):
        return known.rebind(network)
    return compile_program(network, precision="single" if single else "double")


def best_of(fits: Iterable[EmFit]) -> EmFit:
    """The fit with the greatest score, the first among equals."""
    best: EmFit | None = None
    for fit in fits:
        if best is None or fit.score > best.score:
            best = fit
    if best is None:
        raise StructureError("there must be at least one network to fit, but there is none.")
    return best


def scaled_families(network: DynamicNetwork, data: Sequences) -> DynamicNetwork:
    """The same distribution, with the reference of every leaf family taken from the data.

    Default priors and statistics are relative to the reference; see `Family.scaled_to`.
    """
    template = network.template
    known = sequences_of(data, network.schema, "data")
    families = {
        bank.variable: bank.family.scaled_to(known.values[:, bank.variable])
        for bank in template.banks
    }
    if all(bank.family == families[bank.variable] for bank in template.banks):
        return network
    nodes = tuple(
        Leaf(node.variable, families[node.variable]) if isinstance(node, Leaf) else node
        for node in template.nodes
    )
    scaled = Template(template.schema, nodes, template.outputs)
    return DynamicNetwork(scaled, network.top, network.parameters, network.root)

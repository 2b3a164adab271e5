"""Expectation maximisation: expected flows, then the weights and leaves that fit them best.

`maximise` is one M-step, `fit_em` repeats both steps until a stopping rule is met.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, final

import numpy as np
from scipy.special import xlogy

from dspn._arguments import Floats, Ints, checked_rng, require_type, sequence_weights
from dspn.data.sequences import Sequences, sequences_of
from dspn.engine import (
    Expectation,
    ExpectedFlows,
    NetworkFlows,
    Program,
    TimeUpError,
    compile_program,
)
from dspn.errors import DataError, EvidenceError, NumericalError, StructureError
from dspn.executors import Executor, Shared
from dspn.learning.priors import DEFAULT_PRIORS, Priors, checked_learnable, log_prior, sections
from dspn.learning.scores import LIKELIHOOD, FitLog, FitRecord, Score, StopOptions, StopReason
from dspn.leaves.base import NO_WEIGHT
from dspn.leaves.told import told_values
from dspn.options import choice_field, number_field, part_field, whole_field
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Product, Sum, children_of, reachable
from dspn.structure.parameters import NetworkParameters, Parameters, sum_of_edge
from dspn.structure.template import Template, Top
from dspn.structure.validity import bottom_nodes

# Slices of a shard of an EM step that an executor works on.
_SHARD_SLICES: Final = 50_000
# Components of so many weights together are worked on side by side.
_MANY_WEIGHTS: Final = 2**22


# What went wrong: parameters that are not finite, and nodes that nothing flows through.


def check_finite(network: DynamicNetwork, parameters: Parameters | None = None) -> None:
    """Raises unless all parameters, those of the network or others for it, are finite numbers."""
    for own in sections(network):
        values = getattr(parameters or network.parameters, own.name)
        findings = [
            f"leaf {bank.nodes[row]} of variable {network.schema[bank.variable].name!r} in the "
            f"{own.name} network has parameters {rows[row].tolist()}, which are not finite"
            for bank, rows in zip(own.banks, values.leaves, strict=True)
            for row in np.flatnonzero(~np.isfinite(rows).all(axis=1))[:1]
        ]
        for edge in np.flatnonzero(~np.isfinite(values.weights))[:1]:
            findings[:0] = [
                f"sum {sum_of_edge(own.network, int(edge))} of the {own.name} network has "
                f"weights that are not finite, such as {values.weights[edge]}"
            ]
        if findings:
            raise NumericalError(
                f"{findings[0]}. The data or the sample weights are too large or too small for the "
                "arithmetic; rescale them, or use stronger priors."
            )


@final
@dataclass(frozen=True)
class DeadNode:
    """A node through which (almost) nothing flows, so that the data say nothing about it.

    `what` is "sum", "leaf of variable ..." or "interface ..." with the position. An interface is
    named by its output node in the template.
    """

    network: str
    node: int
    what: str

    @property
    def is_interface(self) -> bool:
        """Whether it is an interface node, below which all nodes that only it uses are dead too."""
        return self.what.startswith("interface ")

    def __str__(self) -> str:
        return f"{self.what} (node {self.node} of the {self.network} network)"


def dead_nodes(
    network: DynamicNetwork, flows: ExpectedFlows, least: float = 1e-8
) -> tuple[DeadNode, ...]:
    """Sums, leaves and interfaces whose expected number of uses is below `least`.

    A leaf is used by an observed value: one whose variable is always missing where it is reached
    counts as dead. An interface is dead where no path of edges with flow leads from the root to it;
    a product of inputs at the bottom slice, which are read there by nobody, counts as such a path.
    """
    template = network.template
    found = [
        DeadNode("template", template.outputs[position], f"interface {position}")
        for position in _dead_interfaces(network, flows, least)
    ]
    # Sums over inputs alone are not part of the bottom network.
    below = bottom_nodes(template)
    for own in sections(network):
        used: NetworkFlows = getattr(flows, own.name)
        if used.weights.size:
            starts = np.fromiter(own.network.edge_offsets.values(), dtype=np.int64)
            totals = np.add.reduceat(used.weights, starts)
            for node, total in zip(own.network.edge_offsets, totals.tolist(), strict=True):
                if total < least and (own.name != "bottom" or isinstance(below[node], Sum)):
                    found.append(DeadNode(own.name, node, "sum"))
        for bank, statistics in zip(own.banks, used.leaves, strict=True):
            what = f"leaf of variable {template.schema[bank.variable].name!r}"
            rows = np.flatnonzero(statistics[:, 0] < least).tolist()
            found += [DeadNode(own.name, bank.nodes[row], what) for row in rows]
    return tuple(found)


def _dead_interfaces(network: DynamicNetwork, flows: ExpectedFlows, least: float) -> list[int]:
    """The positions that no path with flow reaches."""

    def reached(part: Template | Top, weights: Floats, roots: set[int]) -> set[int]:
        """Positions of the inputs below the roots, or below sum edges with flow, by products."""
        children = (
            child
            for node in map(part.nodes.__getitem__, part.edge_offsets)
            for child in children_of(node) * part.num_tables(node)
        )
        pairs = zip(children, weights.tolist(), strict=True)
        fed = {child for child, flow in pairs if flow >= least}
        products = [node if isinstance(node, Product) else Input(0) for node in part.nodes]
        below = reachable(products, fed | roots)
        return {position for position, node in enumerate(part.inputs) if node in below}

    template, top = network.template, network.top
    used: set[int] = set()
    more = reached(top, flows.top.weights, {top.root})
    while more - used:
        used |= more
        more = reached(template, flows.template.weights, {template.outputs[i] for i in used})
    return sorted(set(range(template.num_interfaces)) - used)


# One step.


@final
@dataclass(frozen=True, eq=False)
class EmStep:
    """The network after one step, and the log-likelihoods of the sequences before it."""

    network: DynamicNetwork
    log_likelihood: Floats


def maximise(
    network: DynamicNetwork,
    flows: ExpectedFlows,
    priors: Priors = DEFAULT_PRIORS,
    learnable: Collection[int] | None = None,
) -> DynamicNetwork:
    """Argmax of the expected complete log-likelihood plus the log prior.

    Args:
        network: The network whose parameters are replaced.
        flows: Its expected flows on the training data.
        priors: The pseudo-observations.
        learnable: Nodes of the template; where these are given, only their parameters change, in
            the template and in a bottom network of its own. All others and the top network stay as
            they are, bit for bit.
    """
    new = {}
    for own in sections(network, checked_learnable(network.template, learnable)):
        found: NetworkFlows = getattr(flows, own.name)
        counts = np.maximum(found.weights, 0.0) + own.pseudo_counts(priors)
        totals = own.reduce(np.add, counts)
        # A sum that nothing flowed through, with no pseudo-counts, keeps its weights. A total that
        # is NaN is not below the limit, so that `check_finite` sees it.
        keeps = ~own.edges | (totals < NO_WEIGHT)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.where(keeps, own.parameters.weights, counts / totals)
        leaves = []
        for bank, statistics, mask, old in zip(
            own.banks, found.leaves, own.leaves, own.parameters.leaves, strict=True
        ):
            rows = bank.family.maximise(statistics, priors.leaf(bank.family, bank.variable))
            leaves.append(np.where(mask[:, None], rows, old))
        new[own.name] = NetworkParameters(weights, tuple(leaves))
    parameters = Parameters(**new)
    check_finite(network, parameters)
    return network.with_parameters(parameters)


def em_step(
    network: DynamicNetwork,
    data: Sequences,
    *,
    priors: Priors = DEFAULT_PRIORS,
    weights: Floats | None = None,
    program: Program | None = None,
    learnable: Collection[int] | None = None,
) -> EmStep:
    """One full-batch step of expectation maximisation.

    Args:
        network: The network before the step.
        data: The training sequences.
        priors: The pseudo-observations.
        weights: How often each sequence counts.
        program: The network compiled, where it is at hand.
        learnable: Nodes of the template whose parameters may change, see `maximise`.
    """
    found = (program or compile_program(network)).expected_flows(data, weights)
    return EmStep(maximise(network, found.flows, priors, learnable), found.log_likelihood)


# What is learned from, and its flows.


class Members(ABC):
    """What is learned from: members that have weights, be it sequences or shards of them."""

    weights: Floats

    @abstractmethod
    def flows(self, program: Program) -> Expectation:
        """Expected flows, with the log-likelihood of each member."""

    @abstractmethod
    def log_likelihood(self, program: Program) -> Floats:
        """The log-likelihood of each member."""

    @abstractmethod
    def score(self, score: Score, program: Program) -> float:
        """The mean of another score over all sequences."""

    @abstractmethod
    def batches(self, batch_size: int, rng: np.random.Generator) -> "list[tuple[Members, float]]":
        """The members, dealt at random into batches of about so many sequences.

        Each batch comes with the number that its flows are multiplied by to stand for all.
        """

    @final
    def mean(self, values: Floats) -> float:
        """Weighted mean of a number for each member."""
        return float(np.average(values, weights=self.weights))


@final
@dataclass(frozen=True, eq=False)
class Part(Members):
    """Sequences with their weights, all positive, and their places in the training set.

    With an `executor` the flows are computed by shards, whose number depends on the data alone.
    """

    data: Sequences
    weights: Floats
    places: Ints
    executor: Executor | None = None
    _sent: list[Shared[Program]] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls, train: Sequences, sample_weights: Floats | None, executor: Executor | None = None
    ) -> "Part":
        """The sequences of positive weight."""
        weights = np.ones(len(train)) if sample_weights is None else sample_weights
        weights = sequence_weights(weights, "sample_weights", DataError, len(train))
        part = cls(train, weights, np.arange(len(train)), executor)
        return part if weights.all() else part.pick(np.flatnonzero(weights))

    def pick(self, members: Ints) -> "Part":
        """Some of the sequences."""
        weights, places = self.weights[members], self.places[members]
        return replace(self, data=self.data[members], weights=weights, places=places)

    def log_likelihood(self, program: Program) -> Floats:
        """The log-likelihood of each sequence."""
        return program.log_likelihood(self.data)

    def score(self, score: Score, program: Program) -> float:
        """The mean of another score over the sequences."""
        return score.mean(program, self.data, self.weights)

    def batches(self, batch_size: int, rng: np.random.Generator) -> list[tuple[Members, float]]:
        """The sequences, dealt at random into batches of about one size."""
        size = len(self.data)
        members = np.array_split(rng.permutation(size), -(-size // batch_size))
        return [(self.pick(np.sort(own)), size / own.size) for own in members]

    def flows(self, program: Program) -> Expectation:
        """Expected flows; a sequence of probability zero is named by its place and id."""
        try:
            if self.executor is None or len(self._shards) == 1:
                return program.expected_flows(self.data, self.weights)
            found: Expectation = sum_by_shard(
                _flows_of, program, self._shards, self.executor, self._sent
            )
            return found
        except EvidenceError:
            impossible = np.flatnonzero(program.log_likelihood(self.data) == -np.inf)
            if not impossible.size:
                raise
        first = int(impossible[np.argmin(self.places[impossible])])
        name = "" if self.data.ids is None else f" (id {self.data.ids[first]!r})"
        others = f", as have {impossible.size - 1} others" if impossible.size > 1 else ""
        raise DataError(
            f"sequence {self.places[first]}{name} of `train` has probability zero under the "
            f"network{others}, so nothing can be learned from it. Leave it out, mark its "
            "impossible entries as missing, or start from parameters without zeros."
        )

    @cached_property
    def _shards(self) -> list[Shared[tuple[Sequences, Floats]]]:
        """Neighbouring sequences of about as many slices together in each shard."""
        assert self.executor is not None
        total = self.data.total_slices
        count = max(1, total // _SHARD_SLICES)
        cuts = np.searchsorted(self.data.offsets, total * np.arange(1, count) / count)
        parts = [own for own in np.split(np.arange(len(self.data)), cuts) if own.size]
        return [self.executor.share((self.data[own], self.weights[own])) for own in parts]


def _flows_of(program: Program, shard: Shared[tuple[Sequences, Floats]]) -> Expectation:
    return program.expected_flows(*shard.value)


def sum_by_shard(
    work: Callable[[Program, Any], Any],
    program: Program,
    shards: Sequence[Any],
    executor: Executor,
    sent: list[Shared[Program]],
) -> Any:
    """What a function of a program and a shard adds up to, in one order with every executor.

    The structure goes to the workers once, the parameters once for each call.

    Args:
        work: A function of a module.
        program: The compiled model.
        shards: What it is called with.
        executor: Does the work.
        sent: Holds the program that the workers have; is updated.
    """
    mixture = program.mixture
    templates = [network.template for network in mixture]
    if not sent or [own.template for own in sent[0].value.mixture] != templates:
        sent[:] = [executor.share(program)]
    now = executor.share((mixture.weights, tuple(own.parameters for own in mixture)))
    return executor.reduce(partial(_work_on_shard, work, sent[0], now), shards)


def _work_on_shard(
    work: Callable[[Program, Any], Any],
    sent: Shared[Program],
    now: Shared[tuple[Floats, tuple[Parameters, ...]]],
    shard: Any,
) -> Any:
    weights, parameters = now.value
    pairs = zip(sent.value.mixture, parameters, strict=True)
    networks = tuple(network.with_parameters(own) for network, own in pairs)
    return work(sent.value.rebind(Mixture(networks, weights)), shard)


# Many steps.


class EngineName(StrEnum):
    """The engines by name; see `dspn.engine.compile_program`."""

    CPU = "cpu"
    GPU = "gpu"
    REFERENCE = "reference"


@final
@dataclass(frozen=True)
class EmOptions(StopOptions):
    """When expectation maximisation stops, and whether it sees all sequences at every step.

    Never before `min_steps`, a fit stops when a step has raised the penalised log-likelihood per
    sequence by no more than `tolerance` times its size (which counts as 1 where it is less), or,
    with a validation set, after `patience` steps in a row without a better validation score.

    With a `batch_size` a step is a pass over batches of that many sequences. The t-th batch
    replaces the share (t + `step_delay`) ** -`step_power` of the statistics by its own.

    `single_precision` computes flows and scores in float32 where its range suffices, which is
    faster for templates of the initial kind with sixteen interface nodes or more. `engine` says
    what computes them: "cpu", "gpu" or "reference".
    """

    batch_size: int | None = whole_field(None)
    step_power: float = number_field(0.6, above=0.5, most=1)
    step_delay: float = number_field(2.0, least=0)
    single_precision: bool = part_field(False)
    engine: EngineName = choice_field(EngineName.CPU)

    def compile(self, model: Mixture | DynamicNetwork) -> Program:
        """The model, compiled as these options say."""
        precision = "single" if self.single_precision else "double"
        return compile_program(model, precision=precision, engine=str(self.engine))


DEFAULT_EM: Final = EmOptions()


@final
@dataclass(frozen=True, eq=False)
class EmFit:
    """The model that was kept: the best on the validation set, or the last one without a set.

    `score` is its score on the validation set, or on the training set without one. `dead` names the
    nodes that nothing flowed through in the statistics its parameters were made from.
    """

    mixture: Mixture
    history: tuple[FitRecord, ...]
    score: float
    stopped: StopReason
    dead: tuple[DeadNode, ...]

    @property
    def network(self) -> DynamicNetwork:
        """The only network; raises where a mixture of several was fitted."""
        return self.mixture.only


@final
@dataclass(frozen=True, eq=False)
class EmState:
    """Where a fit stands, so that it can go on from there.

    Attributes:
        mixture: The model after the last step.
        best: The best model so far.
        history: The records of all steps.
        statistics: The moving average, where there are batches.
        num_batches: Batches that were seen.
        rng_state: The state of the randomness, where there are batches.
    """

    mixture: Mixture
    best: Mixture
    history: tuple[FitRecord, ...]
    statistics: Expectation | None = None
    num_batches: int = 0
    rng_state: Any = None


class _Stage(NamedTuple):
    """A model on the way, the statistics it was made from, and its mean log-likelihood.

    At the start the statistics are those of the model itself; they may be None after a resumption.
    """

    program: Program
    statistics: Expectation | None
    train: float
    num_batches: int = 0


Maximiser = Callable[[Program, Expectation], Program]


def _full_batch(
    program: Program, train: Members, maximiser: Maximiser, steps: range
) -> Iterator[_Stage]:
    """Every step from the flows of all members, which come with the likelihood before it."""
    found = train.flows(program)
    yield _Stage(program, found, train.mean(found.log_likelihood))
    for step in steps:
        statistics = found
        program = maximiser(program, statistics)
        if step == steps[-1]:
            values = train.log_likelihood(program)
        else:
            found = train.flows(program)
            values = found.log_likelihood
        yield _Stage(program, statistics, train.mean(values))


def _mini_batch(
    program: Program,
    train: Members,
    maximiser: Maximiser,
    options: EmOptions,
    rng: np.random.Generator,
    is_due: Callable[[], bool],
    state: EmState | None,
) -> Iterator[_Stage]:
    """Stepwise EM (Cappé and Moulines): the statistics are a moving average over batches.

    The statistics begin as those of all sequences, so that no batch has to stand for what it has
    not seen. Batches are drawn once and come in a new order at every pass, which is one step. Where
    time is up within a pass, the pass ends with the current batch.
    """
    assert options.batch_size is not None
    done = number = 0
    batches = train.batches(options.batch_size, rng)
    if state is None or state.statistics is None:
        statistics = train.flows(program)
        yield _Stage(program, statistics, train.mean(statistics.log_likelihood))
    else:
        statistics, number, done = state.statistics, state.num_batches, len(state.history) - 1
        rng.bit_generator.state = state.rng_state
    for step in range(done, options.max_steps):
        if step == 0:
            program = maximiser(program, statistics)
        total = weight = 0.0
        for index in rng.permutation(len(batches)).tolist():
            batch, factor = batches[index]
            found = batch.flows(program)
            total += float(found.log_likelihood @ batch.weights)
            weight += float(batch.weights.sum())
            number += 1
            share = float((number + options.step_delay) ** -options.step_power)
            statistics = _blended(statistics, 1.0 - share, found, share * factor)
            program = maximiser(program, statistics)
            if is_due():
                break
        yield _Stage(program, statistics, total / weight, number)


def scale_flows(found: Expectation, factor: float) -> Expectation:
    """The flows times a number; log-likelihoods have no place in an average."""
    components = tuple(_scaled(flows, factor) for flows in found.components)
    return Expectation(components, factor * found.counts, np.empty(0))


def _scaled(flows: ExpectedFlows, factor: float) -> ExpectedFlows:
    def scale(own: NetworkFlows) -> NetworkFlows:
        return NetworkFlows(factor * own.weights, tuple(factor * rows for rows in own.leaves))

    bottom = None if flows.bottom is None else scale(flows.bottom)
    return ExpectedFlows(scale(flows.template), scale(flows.top), bottom)


def _blended(one: Expectation, share: float, other: Expectation, more: float) -> Expectation:
    """Two flows, each times a number, added up."""
    components = _by_component(
        lambda left, right: _scaled(left, share) + _scaled(right, more),
        [flows.template.weights.size for flows in one.components],
        one.components,
        other.components,
    )
    counts = share * one.counts + more * other.counts
    return Expectation(tuple(components), counts, np.empty(0))


def _by_component(work: Callable[..., Any], sizes: list[int], *given: Iterable[Any]) -> list[Any]:
    """What a function makes of each component, in their order, in threads where they are large.

    `sizes` are their numbers of weights.
    """
    if len(sizes) == 1 or sum(sizes) < _MANY_WEIGHTS:
        return list(map(work, *given))
    with ThreadPoolExecutor(min(len(sizes), os.cpu_count() or 1)) as pool:
        return list(pool.map(work, *given))


def _maximise_all(
    mixture: Mixture, found: Expectation, priors: Priors, learnable: frozenset[int] | None
) -> Mixture:
    """An M-step of every component, and of the weights of the root sum."""
    networks = tuple(
        _by_component(
            lambda network, flows: maximise(network, flows, priors, learnable),
            [network.template.num_weights for network in mixture],
            mixture,
            found.components,
        )
    )
    if len(networks) == 1 or learnable is not None:
        return Mixture(networks, mixture.weights)
    counts = found.counts + priors.sum_pseudo_count
    return Mixture(networks, counts / counts.sum())


def _log_prior_of(mixture: Mixture, priors: Priors, learnable: frozenset[int] | None) -> float:
    sizes = [network.template.num_weights for network in mixture]
    total = float(sum(_by_component(lambda own: log_prior(own, priors, learnable), sizes, mixture)))
    if len(mixture) > 1 and learnable is None:
        total += float(np.sum(xlogy(priors.sum_pseudo_count, mixture.weights)))
    return total


def fit_em(
    network: DynamicNetwork | Mixture,
    train: Sequences | Members,
    *,
    validation: Sequences | None = None,
    score: Score = LIKELIHOOD,
    options: EmOptions = DEFAULT_EM,
    priors: Priors = DEFAULT_PRIORS,
    sample_weights: Floats | None = None,
    rng: np.random.Generator | None = None,
    learnable: Collection[int] | None = None,
    on_step: Callable[[FitRecord], None] | None = None,
    deadline: Callable[[], bool] | None = None,
    program: Program | None = None,
    executor: Executor | None = None,
    state: EmState | None = None,
    on_state: Callable[[EmState], None] | None = None,
    keeps_interrupted: bool = False,
) -> EmFit:
    """Steps to a maximum of log-likelihood plus log prior, from the network's own parameters.

    Every full-batch step raises that sum. The leaves' families should be scaled to the data, see
    `scaled_families`.

    Args:
        network: The network or mixture to start from.
        train: The training sequences, or a `Members` of data that are larger than memory.
        validation: Sequences whose score chooses among the networks on the way, that before the
            first step included.
        score: The score on the validation set.
        options: When to stop, and the size of batches.
        priors: The pseudo-observations.
        sample_weights: How often each training sequence counts; zero leaves it out.
        rng: Draws the batches; needed with a `batch_size` only.
        learnable: Nodes of the template whose parameters may change, see `maximise`; everything by
            default, and always for a mixture.
        on_step: Called with every record as soon as it is known.
        deadline: Asked after every step and every batch; the fit ends when it returns true.
        program: The network compiled, where it is at hand.
        executor: Computes the flows of large data by shards, whose results are added in one order
            with every executor. By default the engine computes them in threads of this process.
        state: Where to go on from; what follows is the same as without an interruption.
        on_state: Called with the state after every step.
        keeps_interrupted: Whether Ctrl-C ends the fit, with the best so far, and is not raised.
    """
    require_type(priors, Priors, "priors", StructureError)
    mixture = network if isinstance(network, Mixture) else Mixture.of(network)  # checks its type
    score.check(mixture.schema)
    part = train
    if not isinstance(part, Members):
        data = sequences_of(part, mixture.schema, "train")
        part = Part.of(data, sample_weights, executor)
    held = None if validation is None else sequences_of(validation, mixture.schema, "validation")
    chosen = None
    if learnable is not None:
        chosen = checked_learnable(mixture.only.template, learnable)
    if program is None:
        program = options.compile(mixture)

    def maximiser(own: Program, statistics: Expectation) -> Program:
        return own.rebind(_maximise_all(own.mixture, statistics, priors, chosen))

    log: FitLog[_Stage] = FitLog(options, on_step, deadline)
    first = program.rebind(mixture if state is None else state.mixture)
    rng_of_batches = None
    if options.batch_size is None:
        done = 0 if state is None else len(state.history) - 1
        stages = _full_batch(first, part, maximiser, range(done + 1, options.max_steps + 1))
    else:
        rng_of_batches = checked_rng(rng, StructureError)
        stages = _mini_batch(first, part, maximiser, options, rng_of_batches, log.is_due, state)
    stopped = None
    if state is not None:
        # The last record of full batches is computed again with the flows that the next step needs.
        known = state.history if rng_of_batches is not None else state.history[:-1]
        stopped = log.replay(known, _Stage(program.rebind(state.best), None, 0.0))
    total = float(part.weights.sum())
    try:
        while stopped is None:
            stage = next(stages)
            held_score = None if held is None else score.mean(stage.program, held)
            prior = _log_prior_of(stage.program.mixture, priors, chosen)
            record = FitRecord(
                len(log.history), stage.train, stage.train + prior / total, held_score
            )
            stopped = log.add(stage, record)
            if on_state is not None and log.best is not None:
                on_state(_state_of(stage, log.best[0], log.history, rng_of_batches))
    except TimeUpError:
        if log.best is None:
            raise
        stopped = StopReason.DEADLINE
    except KeyboardInterrupt:
        if log.best is None or not keeps_interrupted:
            raise
        stopped = StopReason.INTERRUPTED
    assert log.best is not None
    best, record = log.best
    final_score = record.validation
    if final_score is None:
        is_known = score == LIKELIHOOD and options.batch_size is None
        final_score = best.train if is_known else part.score(score, best.program)
    statistics = best.statistics or part.flows(best.program)
    pairs = zip(best.program.mixture, statistics.components, strict=True)
    dead = tuple(node for network, flows in pairs for node in dead_nodes(network, flows))
    return EmFit(best.program.mixture, tuple(log.history), final_score, stopped, dead)


def _state_of(
    stage: _Stage, best: _Stage, history: list[FitRecord], rng: np.random.Generator | None
) -> EmState:
    mixtures = stage.program.mixture, best.program.mixture
    if rng is None:
        return EmState(*mixtures, tuple(history))
    counted, rng_state = stage.num_batches, rng.bit_generator.state
    return EmState(*mixtures, tuple(history), stage.statistics, counted, rng_state)


@dataclass(frozen=True, eq=False)
class Task:
    """What the networks of one run are trained with and judged by."""

    train: Sequences
    validation: Sequences
    score: Score
    priors: Priors

    def fit(self, network: DynamicNetwork, options: EmOptions, **settings: Any) -> EmFit:
        """`fit_em` with more settings, by default with the validation set."""
        settings = {"validation": self.validation, "score": self.score, **settings}
        return fit_em(network, self.train, options=options, priors=self.priors, **settings)

    def is_better(
        self, fit: EmFit, network: DynamicNetwork, score: float, caution: float | None
    ) -> bool:
        """Whether a fit is to replace a network of a known score.

        It is not to be worse, or, with a `caution`, to be better as `Score.is_better` has it.
        """
        if caution is None:
            return fit.score >= score
        new, old = compile_program(fit.network), compile_program(network)
        return self.score.is_better(new, old, self.validation, caution=caution)


def restarts(networks: Iterable[DynamicNetwork], train: Sequences, **settings: Any) -> EmFit:
    """The best of the fits from several starting points; see `fit_em` for the settings.

    The first network is always fitted; no further one is begun once the deadline has passed.
    """
    options = settings.get("options", DEFAULT_EM)
    is_due = settings.get("deadline") or (lambda: False)
    fits, known, program = [], None, None
    for network in networks:
        require_type(network, DynamicNetwork, "networks", StructureError)
        # Networks of one structure share a compiled program.
        structure = (id(network.template), id(network.top), network.root)
        if structure != known:
            program, known = options.compile(network), structure
        fits.append(fit_em(network, train, program=program, **settings))
        if is_due() or fits[-1].stopped is StopReason.INTERRUPTED:
            break
    return best_of(fits)


def best_of(fits: Iterable[EmFit]) -> EmFit:
    """The fit with the greatest score, the first among equals; Ctrl-C in any ended all."""
    found = list(fits)
    best = max(found, key=lambda fit: fit.score, default=None)
    if best is None:
        raise StructureError("there must be at least one network to fit, but there is none.")
    if any(fit.stopped is StopReason.INTERRUPTED for fit in found):
        return replace(best, stopped=StopReason.INTERRUPTED)
    return best


def scaled_families(network: DynamicNetwork, data: Sequences) -> DynamicNetwork:
    """The same distribution, with the reference of every leaf family taken from the data.

    Default priors and statistics are relative to the reference; see `Family.scaled_to`.
    """
    template = network.template
    own = sequences_of(data, network.schema, "data")
    families = {
        bank.variable: bank.family.scaled_to(told_values(own, bank.variable))
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

"""Expectation maximisation: expected flows, then the weights and leaves that fit them best.

`maximise` is one M-step, `fit_em` repeats both steps until a stopping rule is met.
"""

import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import Any, Final, NamedTuple, final

import numpy as np

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
from dspn.options import number_field, part_field, whole_field
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Product, Sum, children_of, reachable
from dspn.structure.parameters import NetworkParameters, Parameters, sum_starts
from dspn.structure.template import Template, Top
from dspn.structure.validity import bottom_nodes

# Slices of a shard of an EM step that an executor works on.
_SHARD_SLICES: Final = 50_000


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
            number = int(np.searchsorted(sum_starts(own.network), edge, side="right")) - 1
            findings[:0] = [
                f"sum {list(own.network.edge_offsets)[number]} of the {own.name} network has "
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
            totals = np.add.reduceat(used.weights, sum_starts(own.network))
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
        children = (child for sum_ in part.edge_offsets for child in children_of(part.nodes[sum_]))
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
        counts = np.maximum(found.weights, 0.0) + priors.sum_pseudo_count
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
            rows = bank.family.maximise(statistics, priors.leaf(bank.family))
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


# Sequences with weights, and their flows.


@final
@dataclass(frozen=True, eq=False)
class Part:
    """Sequences with their weights, all positive, and their places in the training set.

    With an `executor` the flows are computed by shards, whose number depends on the data alone.
    """

    data: Sequences
    weights: Floats
    places: Ints
    executor: Executor | None = None
    _compiled: list[Shared[Program]] = field(default_factory=list, repr=False)

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

    def mean(self, values: Floats) -> float:
        """Weighted mean of a number for each sequence."""
        return float(np.average(values, weights=self.weights))

    def flows(self, program: Program) -> Expectation:
        """Expected flows; a sequence of probability zero is named by its place and id."""
        try:
            if self.executor is None or len(self._shards) == 1:
                return program.expected_flows(self.data, self.weights)
            return self._flows_by_shard(program, self.executor)
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
    def _shards(self) -> "list[Shared[tuple[Sequences, Floats]]]":
        """Neighbouring sequences of about as many slices together in each shard."""
        assert self.executor is not None
        total = self.data.total_slices
        count = max(1, total // _SHARD_SLICES)
        cuts = np.searchsorted(self.data.offsets, total * np.arange(1, count) / count)
        parts = [own for own in np.split(np.arange(len(self.data)), cuts) if own.size]
        return [self.executor.share((self.data[own], self.weights[own])) for own in parts]

    def _flows_by_shard(self, program: Program, executor: Executor) -> Expectation:
        """The flows of all shards, added in their order."""
        network, compiled = program.network, self._compiled
        if not compiled or compiled[0].value.network.template is not network.template:
            compiled[:] = [executor.share(program)]
        work = partial(_shard_flows, compiled[0], network.parameters)
        found = executor.map(work, self._shards)
        total = reduce(operator.add, (own.flows for own in found))
        values = np.concatenate([own.log_likelihood for own in found])
        return Expectation((total,), self.weights.sum(keepdims=True), values)


def _shard_flows(
    compiled: Shared[Program], parameters: Parameters, shard: Shared[tuple[Sequences, Floats]]
) -> Expectation:
    program = compiled.value
    network = program.network.with_parameters(parameters)
    return program.rebind(network).expected_flows(*shard.value)


# Many steps.


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
    faster for templates of the initial kind with sixteen interface nodes or more.
    """

    batch_size: int | None = whole_field(None)
    step_power: float = number_field(0.6, above=0.5, most=1)
    step_delay: float = number_field(2.0, least=0)
    single_precision: bool = part_field(False)

    @property
    def precision(self) -> str:
        """The precision as the engine names it."""
        return "single" if self.single_precision else "double"


DEFAULT_EM: Final = EmOptions()


@final
@dataclass(frozen=True, eq=False)
class EmFit:
    """The network that was kept: the best on the validation set, or the last one without a set.

    `score` is its score on the validation set, or on the training set without one. `dead` names the
    nodes that nothing flowed through in the statistics its parameters were made from.
    """

    network: DynamicNetwork
    history: tuple[FitRecord, ...]
    score: float
    stopped: StopReason
    dead: tuple[DeadNode, ...]


class _Stage(NamedTuple):
    """A network on the way, the statistics it was made from, and its mean log-likelihood.

    At the start the statistics are those of the network itself.
    """

    program: Program
    statistics: ExpectedFlows
    train: float


Maximiser = Callable[[Program, ExpectedFlows], Program]


def _full_batch(
    program: Program, train: Part, maximiser: Maximiser, max_steps: int
) -> Iterator[_Stage]:
    """Every step from the flows of all sequences, which come with the likelihood before it."""
    found = train.flows(program)
    yield _Stage(program, found.flows, train.mean(found.log_likelihood))
    for step in range(1, max_steps + 1):
        statistics = found.flows
        program = maximiser(program, statistics)
        if step == max_steps:
            values = program.log_likelihood(train.data)
        else:
            found = train.flows(program)
            values = found.log_likelihood
        yield _Stage(program, statistics, train.mean(values))


def _mini_batch(
    program: Program,
    train: Part,
    maximiser: Maximiser,
    options: EmOptions,
    rng: np.random.Generator,
    is_due: Callable[[], bool],
) -> Iterator[_Stage]:
    """Stepwise EM (Cappé and Moulines): the statistics are a moving average over batches.

    The statistics begin as those of all sequences, so that no batch has to stand for what it has
    not seen. Batches are drawn once and come in a new order at every pass, which is one step. Where
    time is up within a pass, the pass ends with the current batch.
    """
    found = train.flows(program)
    statistics = found.flows
    yield _Stage(program, statistics, train.mean(found.log_likelihood))
    size = len(train.data)
    assert options.batch_size is not None
    parts = np.array_split(rng.permutation(size), -(-size // options.batch_size))
    batches = [train.pick(np.sort(members)) for members in parts]
    number = 0
    for step in range(options.max_steps):
        if step == 0:
            program = maximiser(program, statistics)
        total = weight = 0.0
        for index in rng.permutation(len(batches)).tolist():
            batch = batches[index]
            found = batch.flows(program)
            total += float(found.log_likelihood @ batch.weights)
            weight += float(batch.weights.sum())
            number += 1
            share = float((number + options.step_delay) ** -options.step_power)
            new = _scale(found.flows, share * size / len(batch.data))
            statistics = _scale(statistics, 1.0 - share) + new
            program = maximiser(program, statistics)
            if is_due():
                break
        yield _Stage(program, statistics, total / weight)


def _scale(flows: ExpectedFlows, factor: float) -> ExpectedFlows:
    """The flows times a number."""

    def scale(own: NetworkFlows) -> NetworkFlows:
        return NetworkFlows(factor * own.weights, tuple(factor * rows for rows in own.leaves))

    bottom = None if flows.bottom is None else scale(flows.bottom)
    return ExpectedFlows(scale(flows.template), scale(flows.top), bottom)


def fit_em(
    network: DynamicNetwork,
    train: Sequences,
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
) -> EmFit:
    """Steps to a maximum of log-likelihood plus log prior, from the network's own parameters.

    Every full-batch step raises that sum. The leaves' families should be scaled to the data, see
    `scaled_families`.

    Args:
        network: The network to start from.
        train: The training sequences.
        validation: Sequences whose score chooses among the networks on the way, that before the
            first step included.
        score: The score on the validation set.
        options: When to stop, and the size of batches.
        priors: The pseudo-observations.
        sample_weights: How often each training sequence counts; zero leaves it out.
        rng: Draws the batches; needed with a `batch_size` only.
        learnable: Nodes of the template whose parameters may change, see `maximise`; everything by
            default.
        on_step: Called with every record as soon as it is known.
        deadline: Asked after every step and every batch; the fit ends when it returns true.
        program: The network compiled, where it is at hand.
        executor: Computes the flows of large data by shards, whose results are added in one order
            with every executor. By default the engine computes them in threads of this process.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    require_type(priors, Priors, "priors", StructureError)
    score.check(network.schema)
    part = Part.of(sequences_of(train, network.schema, "train"), sample_weights, executor)
    held = None if validation is None else sequences_of(validation, network.schema, "validation")
    chosen = checked_learnable(network.template, learnable)
    if program is None:
        program = compile_program(network, precision=options.precision)

    def maximiser(own: Program, statistics: ExpectedFlows) -> Program:
        return own.rebind(maximise(own.network, statistics, priors, chosen))

    log: FitLog[_Stage] = FitLog(options, on_step, deadline)
    first = program.rebind(network)
    if options.batch_size is None:
        stages = _full_batch(first, part, maximiser, options.max_steps)
    else:
        own_rng = checked_rng(rng, StructureError)
        stages = _mini_batch(first, part, maximiser, options, own_rng, log.is_due)
    stopped = None
    total = float(part.weights.sum())
    try:
        while stopped is None:
            stage = next(stages)
            held_score = None if held is None else score.mean(stage.program, held)
            penalised = stage.train + log_prior(stage.program.network, priors, chosen) / total
            record = FitRecord(len(log.history), stage.train, penalised, held_score)
            stopped = log.add(stage, record)
    except TimeUpError:
        if log.best is None:
            raise
        stopped = StopReason.DEADLINE
    assert log.best is not None
    best, record = log.best
    final_score = record.validation
    if final_score is None:
        is_known = score == LIKELIHOOD and options.batch_size is None
        final_score = best.train if is_known else score.mean(best.program, part.data, part.weights)
    kept = best.program.network
    return EmFit(kept, tuple(log.history), final_score, stopped, dead_nodes(kept, best.statistics))


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
    precision = settings.get("options", DEFAULT_EM).precision
    is_due = settings.get("deadline") or (lambda: False)
    fits, known, program = [], None, None
    for network in networks:
        require_type(network, DynamicNetwork, "networks", StructureError)
        # Networks of one structure share a compiled program.
        structure = (id(network.template), id(network.top), network.root)
        if structure != known:
            program, known = compile_program(network, precision=precision), structure
        fits.append(fit_em(network, train, program=program, **settings))
        if is_due():
            break
    return best_of(fits)


def best_of(fits: Iterable[EmFit]) -> EmFit:
    """The fit with the greatest score, the first among equals."""
    best = max(fits, key=lambda fit: fit.score, default=None)
    if best is None:
        raise StructureError("there must be at least one network to fit, but there is none.")
    return best


def scaled_families(network: DynamicNetwork, data: Sequences) -> DynamicNetwork:
    """The same distribution, with the reference of every leaf family taken from the data.

    Default priors and statistics are relative to the reference; see `Family.scaled_to`.
    """
    template = network.template
    values = sequences_of(data, network.schema, "data").values
    families = {
        bank.variable: bank.family.scaled_to(values[:, bank.variable]) for bank in template.banks
    }
    if all(bank.family == families[bank.variable] for bank in template.banks):
        return network
    nodes = tuple(
        Leaf(node.variable, families[node.variable]) if isinstance(node, Leaf) else node
        for node in template.nodes
    )
    scaled = Template(template.schema, nodes, template.outputs)
    return DynamicNetwork(scaled, network.top, network.parameters, network.root)

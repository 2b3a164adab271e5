"""Expectation maximisation: expected flows, then the weights and leaves that fit them best.

`maximise` is one M-step, `fit_em` repeats both steps until a stopping rule is met.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, Literal, NamedTuple, TypeVar, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import checked_rng, require_type, sequence_weights
from dspn.data import Sequences
from dspn.data.sequences import sequences_of
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
from dspn.learning.priors import (
    DEFAULT_PRIORS,
    Priors,
    checked_learnable,
    learnable_masks,
    log_prior,
)
from dspn.learning.scores import LIKELIHOOD, FitLog, FitRecord, Likelihood, Score, StopReason
from dspn.leaves.base import NO_WEIGHT
from dspn.options import Options, number_field, part_field, whole_field
from dspn.structure import (
    DynamicNetwork,
    Leaf,
    NetworkParameters,
    Parameters,
    Product,
    Sum,
    Template,
    Top,
)
from dspn.structure.nodes import children_of
from dspn.structure.parameters import sum_starts
from dspn.structure.validity import bottom_nodes

# Slices of a shard of an EM step that an executor works on.
_SHARD_SLICES: Final = 50_000


# What went wrong: parameters that are not finite, and nodes that nothing flows through.

PartName = Literal["template", "bottom", "top"]


def check_finite(network: DynamicNetwork, parameters: Parameters | None = None) -> None:
    """Raises unless all parameters, those of the network or others for it, are finite numbers."""
    own = network.parameters if parameters is None else parameters
    template = network.template
    for name, part, values in _parts(network, own.template, own.top, own.bottom):
        if not np.isfinite(values.weights).all():
            edge = int(np.argmin(np.isfinite(values.weights)))
            number = int(np.searchsorted(sum_starts(part), edge, side="right")) - 1
            raise _not_finite(
                f"sum {list(part.edge_offsets)[number]} of the {name} network has weights that are "
                f"not finite, such as {values.weights[edge]}"
            )
        for bank, rows in zip(template.banks, values.leaves, strict=False):
            if not np.isfinite(rows).all():
                row = int(np.argmin(np.isfinite(rows).all(axis=1)))
                raise _not_finite(
                    f"leaf {bank.nodes[row]} of variable {template.schema[bank.variable].name!r} "
                    f"in the {name} network has parameters {rows[row].tolist()}, which are not "
                    "finite"
                )


def _not_finite(finding: str) -> NumericalError:
    return NumericalError(
        f"{finding}. The data or the sample weights are too large or too small for the "
        "arithmetic; rescale them, or use stronger priors."
    )


Values = TypeVar("Values", NetworkParameters, NetworkFlows)


def _parts(
    network: DynamicNetwork, template: Values, top: Values, bottom: Values | None
) -> Iterator[tuple[PartName, Template | Top, Values]]:
    """The networks of a DSPN by name, with numbers for each."""
    yield "template", network.template, template
    yield "top", network.top, top
    if bottom is not None:
        yield "bottom", network.template, bottom


@final
@dataclass(frozen=True)
class DeadNode:
    """A node through which (almost) nothing flows, so that the data say nothing about it.

    `what` is "sum", "leaf of variable ..." or "interface ..." with the position. An interface is
    named by its output node in the template.
    """

    network: PartName
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
    for name, part, own in _parts(network, flows.template, flows.top, flows.bottom):
        if own.weights.size:
            totals = np.add.reduceat(own.weights, sum_starts(part))
            for node, total in zip(part.edge_offsets, totals.tolist(), strict=True):
                if total < least and (name != "bottom" or isinstance(below[node], Sum)):
                    found.append(DeadNode(name, node, "sum"))
        for bank, statistics in zip(template.banks, own.leaves, strict=False):
            what = f"leaf of variable {template.schema[bank.variable].name!r}"
            rows = np.flatnonzero(statistics[:, 0] < least).tolist()
            found += [DeadNode(name, bank.nodes[row], what) for row in rows]
    return tuple(found)


def _dead_interfaces(network: DynamicNetwork, flows: ExpectedFlows, least: float) -> list[int]:
    """The positions that no path with flow reaches."""
    template, top = network.template, network.top
    reached = _reached(top, {top.root, *_fed(top, flows.top.weights, least)})
    used = {position for position, node in enumerate(top.inputs) if node in reached}
    waiting = _fed(template, flows.template.weights, least)
    waiting |= {template.outputs[position] for position in used}
    reached = set()
    while waiting:
        reached |= _reached(template, waiting)
        more = {position for position, node in enumerate(template.inputs) if node in reached}
        used |= more
        waiting = {template.outputs[position] for position in more} - reached
    return sorted(set(range(template.num_interfaces)) - used)


def _fed(part: Template | Top, flows: Floats, least: float) -> set[int]:
    """The nodes that a sum edge with flow leads to."""
    children = [child for index in part.edge_offsets for child in children_of(part.nodes[index])]
    return {child for child, flow in zip(children, flows.tolist(), strict=True) if flow >= least}


def _reached(part: Template | Top, roots: set[int]) -> set[int]:
    """The roots, and what products among them are products of."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        index = waiting.pop()
        node = part.nodes[index]
        if index not in seen and isinstance(node, Product):
            waiting.extend(node.children)
        seen.add(index)
    return seen


# One step.


@final
@dataclass(frozen=True, eq=False)
class EmStep:
    """The network after one step, and the log-likelihoods of the sequences before it."""

    network: DynamicNetwork
    log_likelihood: Floats


def _new_weights(
    network: Template | Top, old: Floats, flows: Floats, pseudo_count: float
) -> Floats:
    """Flows plus pseudo-counts, normalised at each sum.

    A sum that nothing flowed through, with no pseudo-counts, keeps its weights.
    """
    starts = sum_starts(network)
    if not starts.size:
        return old
    counts = np.maximum(flows, 0.0) + pseudo_count
    widths = np.diff(np.append(starts, counts.size))
    totals = np.repeat(np.add.reduceat(counts, starts), widths)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A total that is NaN fails the test, so that `check_finite` sees it.
        return np.where(totals < NO_WEIGHT, old, counts / totals)


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
    template, old, count = network.template, network.parameters, priors.sum_pseudo_count
    chosen = checked_learnable(template, learnable)
    edges, leaves = learnable_masks(template, chosen)

    def new_parameters(own: NetworkParameters, found: NetworkFlows) -> NetworkParameters:
        weights = _new_weights(template, own.weights, found.weights, count)
        rows = (
            np.where(
                mask[:, None], bank.family.maximise(statistics, priors.leaf(bank.family)), kept
            )
            for bank, statistics, mask, kept in zip(
                template.banks, found.leaves, leaves, own.leaves, strict=True
            )
        )
        return NetworkParameters(np.where(edges, weights, own.weights), tuple(rows))

    top, bottom = old.top, None
    if chosen is None:
        top = NetworkParameters(_new_weights(network.top, top.weights, flows.top.weights, count))
    if old.bottom is not None and flows.bottom is not None:
        bottom = new_parameters(old.bottom, flows.bottom)
    parameters = Parameters(new_parameters(old.template, flows.template), top, bottom)
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
        size = len(train)
        if sample_weights is None:
            return cls(train, np.ones(size), np.arange(size), executor)
        weights = sequence_weights(sample_weights, "sample_weights", DataError, size)
        part = cls(train, weights, np.arange(size), executor)
        return part if weights.all() else part.pick(np.flatnonzero(weights))

    def pick(self, members: Ints) -> "Part":
        """Some of the sequences."""
        return replace(
            self,
            data=self.data[members],
            weights=self.weights[members],
            places=self.places[members],
        )

    def mean(self, values: Floats) -> float:
        """Weighted mean of a number for each sequence."""
        return float(np.average(values, weights=self.weights))

    def flows(self, program: Program) -> Expectation:
        """Expected flows; a sequence of probability zero is named by its place and id."""
        try:
            if self.executor is not None and len(self._shards) > 1:
                return self._flows_by_shard(program, self.executor)
            return program.expected_flows(self.data, self.weights)
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
        count = max(1, self.data.total_slices // _SHARD_SLICES)
        levels = self.data.total_slices * np.arange(1, count) / count
        cuts = np.unique(np.searchsorted(self.data.offsets, levels))
        parts = np.split(np.arange(len(self.data)), cuts)
        return [
            self.executor.share((self.data[own], self.weights[own])) for own in parts if own.size
        ]

    def _flows_by_shard(self, program: Program, executor: Executor) -> Expectation:
        """The flows of all shards, added in their order."""
        network, compiled = program.network, self._compiled
        if not compiled or compiled[0].value.network.template is not network.template:
            compiled[:] = [executor.share(program)]
        work = partial(_shard_flows, compiled[0], network.parameters)
        found = executor.map(work, self._shards)
        total = found[0].flows
        for other in found[1:]:
            total = total + other.flows
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
        if step < max_steps:
            found = train.flows(program)
            values = found.log_likelihood
        else:
            values = program.log_likelihood(train.data)
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
            scale = share * size / len(batch.data)
            statistics = _blend(statistics, 1.0 - share, found.flows, scale)
            program = maximiser(program, statistics)
            if is_due():
                break
        yield _Stage(program, statistics, total / weight)


def _blend(one: ExpectedFlows, a: float, other: ExpectedFlows, b: float) -> ExpectedFlows:
    """The weighted sum a * one + b * other."""

    def blend(mine: NetworkFlows, theirs: NetworkFlows) -> NetworkFlows:
        leaves = (a * x + b * y for x, y in zip(mine.leaves, theirs.leaves, strict=True))
        return NetworkFlows(a * mine.weights + b * theirs.weights, tuple(leaves))

    bottom = None
    if one.bottom is not None and other.bottom is not None:
        bottom = blend(one.bottom, other.bottom)
    return ExpectedFlows(blend(one.template, other.template), blend(one.top, other.top), bottom)


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
    while stopped is None:
        try:
            stage = next(stages)
            held_score = None if held is None else score.mean(stage.program, held)
        except TimeUpError:
            if log.best is None:
                raise
            stopped = StopReason.DEADLINE
            break
        penalised = stage.train + log_prior(stage.program.network, priors, chosen) / total
        record = FitRecord(len(log.history), stage.train, penalised, held_score)
        stopped = log.add(stage, record)
    assert log.best is not None
    best, record = log.best
    final_score = record.validation
    if final_score is None:
        is_known = isinstance(score, Likelihood) and options.batch_size is None
        final_score = best.train if is_known else score.mean(best.program, part.data, part.weights)
    kept = best.program.network
    return EmFit(kept, tuple(log.history), final_score, stopped, dead_nodes(kept, best.statistics))


def restarts(networks: Iterable[DynamicNetwork], train: Sequences, **settings: Any) -> EmFit:
    """The best of the fits from several starting points; see `fit_em` for the settings.

    The first network is always fitted; no further one is begun once the deadline has passed.
    """
    deadline, program, fits = settings.get("deadline"), None, []
    known: tuple[object, ...] = ()
    for network in networks:
        require_type(network, DynamicNetwork, "networks", StructureError)
        # Networks of one structure share a compiled program.
        structure = (id(network.template), id(network.top), network.root)
        if program is None or structure != known:
            precision = settings.get("options", DEFAULT_EM).precision
            program, known = compile_program(network, precision=precision), structure
        fits.append(fit_em(network, train, program=program, **settings))
        if deadline is not None and deadline():
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

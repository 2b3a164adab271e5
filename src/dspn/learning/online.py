"""Learning from batches that come one after the other: stepwise EM, and growth on the way.

What is remembered of all batches so far is an `OnlineState`: the model and the expected statistics
that its parameters were made from. No batch is looked at twice. `update` takes in one batch.

Stepwise EM (Cappé and Moulines): with N sequences seen in all and n of them in this batch,

    S = (1 - share) (N / N_before) S_before + share (N / n) flows(batch)

replaces the statistics, and the parameters are those that fit S and the priors best. Statistics
always stand for N sequences, so that priors lose weight as data come in. In the t-th of batches of
equal size N / n is t; a smaller batch replaces less.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dspn._arguments import Floats, Ints, require_type
from dspn.data.layout import offsets_of
from dspn.data.sequences import Sequences, sequences_of
from dspn.engine import ExpectedFlows, NetworkFlows, Program, compile_program
from dspn.engine.base import Want, bottom_rows, without_values
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.inference.likelihood import component_posteriors
from dspn.inference.marginals import interface_posteriors
from dspn.learning.em import Part, maximise
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts.informed import informed_split
from dspn.learning.starts.splits import split_interfaces
from dspn.leaves.base import Family
from dspn.leaves.block import GaussianBlock
from dspn.leaves.categorical import Categorical
from dspn.leaves.student_t import StudentT
from dspn.leaves.told import Told, sources_of, told_values
from dspn.options import Options, number_field, part_field, whole_field
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Sum, children_of
from dspn.structure.parameters import NetworkParameters, Parameters
from dspn.structure.template import Template, Top

# Steps in which a candidate, and the model that it is compared with, learn from a batch.
_TRIAL_STEPS: Final = 10
# The least share of the statistics that both take from it: what is new must be able to show.
_TRIAL_SHARE: Final = 0.5
# Parts of a batch, each of which is held out once to decide about a candidate, and the fewest
# sequences that can.
_FOLDS: Final = 3
_FEWEST_SEQUENCES: Final = 9
_MOST_NODES_PER_BATCH: Final = 4
# Nodes of the quadrature over a continuous leaf, exact for moments up to the 15th of a Gaussian.
_QUADRATURE: Final = 8
# Values of a discrete leaf that are summed over, and the probability that is left out at each end.
_MOST_VALUES: Final = 10_000
_TAIL: Final = 1e-13
_PROGRESS: Final = ("num_sequences", "num_batches", "tested", "score", "spread")


@final
@dataclass(frozen=True)
class OnlineOptions(Options):
    """How much a batch counts, and when interface nodes are added.

    With N sequences seen in all and n in this batch, the batch replaces the share
    (N / n + `step_delay`) ** -`step_power` of the statistics by its own; N / n is t in the t-th of
    equal batches. A `step_power` of 1 without delay weighs all batches alike, a smaller one forgets
    old batches, and what was expected of them by models that knew less, sooner. `inner_steps` is
    the number of times that parameters and the statistics of the batch are computed in turn.

    With `growth`, a batch is tested for new interface nodes where its score per slice is below the
    usual one by more than `surprise` standard errors, where no usual score is known (the first
    batch for a model that was fitted to all data at once), whenever the number of sequences has
    doubled since the last test, and after a batch that has added nodes. Each third of the batch is
    held out once, while the others train a model with one more node, old statistics included: the
    node stays where it raises the held-out score by more than `caution` standard errors. Up to four
    nodes are added for each batch, and a network has at most `max_interfaces`. A batch of fewer
    than nine sequences adds none.
    """

    step_power: float = number_field(0.9, above=0.5, most=1)
    step_delay: float = number_field(2.0, least=0)
    inner_steps: int = whole_field(3)
    growth: bool = part_field(True)
    surprise: float = number_field(3.0, least=0)
    caution: float = number_field(2.0, least=0)
    max_interfaces: int = whole_field(64)

    def share(self, seen: float, new: float) -> float:
        """The share of the statistics that `new` sequences replace, after `seen` others."""
        if seen == 0:
            return 1.0
        return float(((seen + new) / new + self.step_delay) ** -self.step_power)


DEFAULT_ONLINE: Final = OnlineOptions()


@final
@dataclass(frozen=True, eq=False)
class OnlineState:
    """A model, and all that is remembered of the sequences that it was learned from.

    Attributes:
        mixture: The model.
        statistics: Expected flows of each component, as of `num_sequences` sequences.
        counts: The expected number of sequences that each component explains.
        num_sequences: The number of sequences seen, each counted with its weight.
        num_batches: The number of batches seen.
        tested: The number of sequences that had been seen when growth was tested last; 0 where the
            next batch is to be tested.
        score: The usual score of a new sequence, in nats per slice; NaN before the first batch.
        spread: The variance of this score between sequences.
    """

    mixture: Mixture
    statistics: tuple[ExpectedFlows, ...]
    counts: Floats
    num_sequences: float
    num_batches: int = 0
    tested: float = 0.0
    score: float = math.nan
    spread: float = math.nan

    @classmethod
    def of_data(
        cls, mixture: Mixture, data: Sequences, weights: Floats | None = None
    ) -> "OnlineState":
        """The state after a model was learned from these sequences, as one batch."""
        part = Part.of(sequences_of(data, mixture.schema, "data"), weights)
        found = part.flows(compile_program(mixture))
        total = float(part.weights.sum())
        usual = _score(part, found.log_likelihood)
        return cls(mixture, found.components, found.counts, total, 1, total, *usual)

    @classmethod
    def of_model(
        cls,
        mixture: Mixture,
        num_sequences: float,
        mean_length: float = 1.0,
        data: Sequences | None = None,
    ) -> "OnlineState":
        """The state of a model whose data are not known: what it expects of itself.

        The statistics are those that sequences drawn from the model have on average, so that
        without priors they lead back to its own parameters.

        Args:
            mixture: The model.
            num_sequences: The number of sequences that it stands for.
            mean_length: Their mean number of slices.
            data: Sequences with inputs and lags like theirs, where the model has such.
        """
        counts = num_sequences * mixture.weights
        own = tuple(
            expected_of_itself(network, count, mean_length)
            if data is None or not (mixture.schema.inputs or any(map(sources_of, mixture.schema)))
            else _expected_in_context(network, data, np.full(len(data), count / len(data)))
            for network, count in zip(mixture, counts.tolist(), strict=True)
        )
        return cls(mixture, own, counts, float(num_sequences), 0, float(num_sequences))

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Everything but the model, as named arrays; see `from_arrays`."""
        found = {"counts": self.counts, "progress": np.array(self._progress())}
        for number, flows in enumerate(self.statistics):
            for name, own in _parts(flows):
                found[f"{number}.{name}.weights"] = own.weights
                found |= {f"{number}.{name}.leaves.{i}": rows for i, rows in enumerate(own.leaves)}
        # Files hold finite numbers: a score that is not known yet is left out.
        if math.isnan(self.score):
            found["progress"] = found["progress"][:3]
        return found

    def _progress(self) -> list[float]:
        return [float(getattr(self, name)) for name in _PROGRESS]

    @classmethod
    def from_arrays(cls, mixture: Mixture, arrays: Mapping[str, NDArray[Any]]) -> "OnlineState":
        """The state of a model from what `arrays` gave; raises where they do not fit the model."""
        blank = tuple(map(ExpectedFlows.nothing, mixture))
        usual = cls(mixture, blank, np.zeros(len(mixture)), 0.0, score=0.0, spread=0.0).arrays()
        progress = np.asarray(arrays.get("progress", ()), dtype=np.float64)
        fits = arrays.keys() == usual.keys() and progress.shape in ((3,), (5,))
        if not fits or any(
            arrays[name].shape != own.shape for name, own in usual.items() if name != "progress"
        ):
            raise ModelFileError(
                "the statistics for further learning do not fit the networks of the model; the "
                "file is damaged."
            )

        def read(number: int, name: str, own: NetworkFlows) -> NetworkFlows:
            prefix = f"{number}.{name}"
            leaves = (arrays[f"{prefix}.leaves.{i}"] for i in range(len(own.leaves)))
            return NetworkFlows(arrays[f"{prefix}.weights"], tuple(leaves))

        statistics = tuple(
            _whole({name: read(number, name, own) for name, own in _parts(flows)})
            for number, flows in enumerate(blank)
        )
        told: dict[str, Any] = dict(zip(_PROGRESS, progress.tolist(), strict=False))
        told["num_batches"] = int(told["num_batches"])
        return cls(mixture, statistics, arrays["counts"], **told)


@final
@dataclass(frozen=True)
class OnlineRecord:
    """What one batch did; scores are in nats per slice, weighted by sequence.

    Attributes:
        batch: Its number, from 1.
        num_sequences: The sequences that it had, each counted with its weight.
        share: The share of the statistics that it has replaced.
        before: Its score under the model before it was learned from.
        after: Its score afterwards.
        tested: Whether it was tested for new interface nodes.
        added: The number of interface nodes that were added.
        num_interfaces: The number of interface nodes afterwards.
    """

    batch: int
    num_sequences: float
    share: float
    before: float
    after: float
    tested: bool
    added: int
    num_interfaces: int


class OnlineUpdate(NamedTuple):
    """The state after a batch, and what the batch did."""

    state: OnlineState
    record: OnlineRecord


def update(
    state: OnlineState,
    data: Sequences,
    *,
    weights: Floats | None = None,
    options: OnlineOptions = DEFAULT_ONLINE,
    priors: Priors = DEFAULT_PRIORS,
    seed: int = 0,
) -> OnlineUpdate:
    """Takes in one batch; the batches before are not needed.

    Args:
        state: What is remembered so far.
        data: The batch, of the variables of the model.
        weights: How often each sequence counts; zero leaves it out.
        options: How much the batch counts, and when interface nodes are added.
        priors: Pseudo-observations of weights and leaves.
        seed: Seed of the tests for new nodes, together with the number of the batch.
    """
    require_type(state, OnlineState, "state", StructureError)
    require_type(options, OnlineOptions, "options", StructureError)
    require_type(priors, Priors, "priors", StructureError)
    part = Part.of(sequences_of(data, state.mixture.schema, "data"), weights)
    if not len(part.data):
        raise DataError("a batch must have at least one sequence, but has none; leave it out.")
    program = compile_program(state.mixture)
    # Flows are asked for, and not likelihoods alone, as they name what is impossible.
    score, spread = _score(part, part.flows(program).log_likelihood)
    size, new = state.mixture.num_interfaces, float(part.weights.sum())
    total = state.num_sequences + new
    is_tested = _asks_for_nodes(state, part, score, total, options)
    grown = state
    if is_tested:
        rng = np.random.default_rng([seed, 5, state.num_batches])
        grown = _grow(state, part, options, priors, rng)
    added = grown.mixture.num_interfaces - size
    updated = _learn(grown, part, options, priors)
    share = options.share(state.num_sequences, new)
    after = _score(part, compile_program(updated.mixture).log_likelihood(part.data))
    if added or math.isnan(state.score):
        usual = after
    else:
        usual = (
            (1 - share) * state.score + share * score,
            (1 - share) * state.spread + share * spread,
        )
    # Where one node was missing another may be: the next batch is tested, too.
    tested = 0.0 if added else total if is_tested else state.tested
    updated = replace(
        updated,
        num_batches=state.num_batches + 1,
        tested=tested,
        score=usual[0],
        spread=usual[1],
    )
    number = updated.num_batches
    sizes = updated.mixture.num_interfaces
    record = OnlineRecord(number, new, share, score, after[0], is_tested, added, sizes)
    return OnlineUpdate(updated, record)


def _score(part: Part, log_values: Floats) -> tuple[float, float]:
    """Mean and variance between sequences of the log-likelihood per slice."""
    values = log_values / part.data.lengths
    mean = part.mean(values)
    return mean, part.mean((values - mean) ** 2)


# Stepwise EM.


def _learn(
    state: OnlineState, part: Part, options: OnlineOptions, priors: Priors, *, trial: bool = False
) -> OnlineState:
    """The state after some steps with a batch, each from the same old statistics.

    In a `trial` the batch counts for more.
    """
    program = compile_program(state.mixture)
    new = float(part.weights.sum())
    total = state.num_sequences + new
    share = options.share(state.num_sequences, new)
    if trial:
        share = max(share, _TRIAL_SHARE)
    keep = 0.0 if share == 1.0 else (1.0 - share) * total / state.num_sequences
    statistics, counts = state.statistics, state.counts
    for _ in range(_TRIAL_STEPS if trial else options.inner_steps):
        found = part.flows(program)
        factor = share * total / new
        statistics = tuple(
            _blend(old, own, keep, factor)
            for old, own in zip(state.statistics, found.components, strict=True)
        )
        counts = keep * state.counts + factor * found.counts
        program = program.rebind(_maximised(program.mixture, statistics, counts, priors))
    return replace(
        state,
        mixture=program.mixture,
        statistics=statistics,
        counts=counts,
        num_sequences=total,
    )


def _maximised(
    mixture: Mixture, statistics: Sequence[ExpectedFlows], counts: Floats, priors: Priors
) -> Mixture:
    """The model that fits the statistics best."""
    pairs = zip(mixture, statistics, strict=True)
    networks = tuple(maximise(network, flows, priors) for network, flows in pairs)
    if len(networks) == 1:
        return Mixture.of(networks[0])
    shares = counts + priors.sum_pseudo_count
    return Mixture(networks, shares / shares.sum())


def _blend(old: ExpectedFlows, new: ExpectedFlows, keep: float, factor: float) -> ExpectedFlows:
    """The old flows times `keep` plus the new ones times `factor`."""

    def blend(one: NetworkFlows, other: NetworkFlows) -> NetworkFlows:
        leaves = zip(one.leaves, other.leaves, strict=True)
        return NetworkFlows(
            keep * one.weights + factor * other.weights,
            tuple(keep * a + factor * b for a, b in leaves),
        )

    pairs = zip(_parts(old), _parts(new), strict=True)
    return _whole({name: blend(one, other) for (name, one), (_, other) in pairs})


def _parts(flows: ExpectedFlows) -> Iterator[tuple[str, NetworkFlows]]:
    """The flows of each network by its name."""
    for name in ("template", "top", "bottom"):
        own = getattr(flows, name)
        if own is not None:
            yield name, own


def _whole(parts: Mapping[str, NetworkFlows]) -> ExpectedFlows:
    """The flows that `_parts` took apart."""
    return ExpectedFlows(parts["template"], parts["top"], parts.get("bottom"))


# A model without a history.


def expected_of_itself(
    network: DynamicNetwork, num_sequences: float, mean_length: float
) -> ExpectedFlows:
    """The flows that sequences drawn from a network have on average.

    Args:
        network: The network.
        num_sequences: The number of sequences.
        mean_length: Their mean number of slices, at least 1; a share of them is one slice longer.
    """
    shorter = int(mean_length)
    lengths = np.array([shorter, shorter + 1])
    weights = num_sequences * np.array([shorter + 1 - mean_length, mean_length - shorter])
    lengths, weights = lengths[weights > 0], weights[weights > 0]
    if not weights.size:
        return ExpectedFlows.nothing(network)
    values = np.full((int(lengths.sum()), len(network.schema)), np.nan)
    blank = Sequences.from_codes(values, offsets_of(lengths), network.schema)
    return _expected_in_context(network, blank, weights)


def _expected_in_context(
    network: DynamicNetwork, data: Sequences, weights: Floats
) -> ExpectedFlows:
    """The same for sequences with the inputs and lags of some data, whose values are not used.

    Visits are exact: those of slices without values. What leaves are told is that of the data, and
    what a visited leaf adds is the mean of its statistics.
    """
    program, blank = compile_program(network), without_values(data)
    flows = program.expected_flows(blank, weights).flows
    every = np.ones(data.values.shape, dtype=np.bool_)
    visits = program.posteriors(blank, Want(leaves=every)).leaves
    by_slice = np.repeat(weights, data.lengths)
    at_bottom = np.zeros(data.total_slices, dtype=np.bool_)
    if network.parameters.bottom is not None:
        at_bottom[bottom_rows(data, network.root)] = True

    def filled(visited: NetworkFlows, part: NetworkParameters, rows: Ints) -> NetworkFlows:
        leaves = []
        for bank, own in zip(network.template.banks, part.leaves, strict=True):
            family, found = bank.family, np.zeros((len(own), bank.family.num_statistics))
            counts = visits[bank.variable][rows].T * by_slice[rows]
            if isinstance(family, GaussianBlock):
                if not family.is_silent:
                    found = counts.sum(axis=1)[:, None] * family.mean_statistics(own)
            elif isinstance(family, Told):
                values = told_values(data, bank.variable, rows)
                for leaf in range(len(own)):
                    found[leaf] = _mean_in_context(family, own[[leaf]], values, counts[leaf])
            else:
                found = counts.sum(axis=1)[:, None] * _mean_statistics(family, own)
            leaves.append(found)
        return NetworkFlows(visited.weights, tuple(leaves))

    own, bottom = network.parameters, None
    if flows.bottom is not None and own.bottom is not None:
        bottom = filled(flows.bottom, own.bottom, np.flatnonzero(at_bottom))
    template = filled(flows.template, own.template, np.flatnonzero(~at_bottom))
    return ExpectedFlows(template, flows.top, bottom)


def _mean_in_context(family: Told, row: Floats, values: Floats, counts: Floats) -> Floats:
    """Sum over contexts of counts times E[statistics | leaf, context], (S,)."""
    plain, given = family.given(row, values)
    rows, found = given[:, 0], np.zeros(family.num_statistics)
    nodes: list[tuple[Floats, Floats]] = []  # values, and their weights
    if isinstance(plain, Categorical):
        nodes = [(np.full(len(rows), code), own) for code, own in enumerate(rows.T)]
    elif plain.is_discrete:  # statistics are linear in a count
        mean = plain.mean(rows)
        nodes = [(np.floor(mean), 1.0 - mean % 1.0), (np.floor(mean) + 1.0, mean % 1.0)]
    elif isinstance(plain, StudentT):  # the precision is 1 there, as it is on average
        nodes = [
            (rows[:, 0] + side * np.sqrt(rows[:, 1]), np.full(len(rows), 0.5)) for side in (-1, 1)
        ]
    else:
        scores, shares = np.polynomial.hermite_e.hermegauss(3)  # exact for squares
        mean, deviation = plain.mean(rows), np.sqrt(plain.variance(rows))
        for score, share in zip(scores, shares / shares.sum(), strict=True):
            nodes.append((mean + score * deviation, np.full(len(rows), share)))
    known = values.copy()
    for value, share in nodes:
        known[:, 0] = value
        found += family.expected_statistics(row, known, (counts * share)[None])[0]
    return found


def _mean_statistics(family: Family, parameters: Floats) -> Floats:
    """E[statistics | leaf], (L, P) -> (L, S).

    Continuous leaves by Gauss-Hermite quadrature in the normal scores of their quantiles, which is
    exact for a Gaussian; discrete ones as a sum, or where that is too long by the two whole numbers
    around the mean.
    """
    found = np.empty((len(parameters), family.num_statistics))
    scores, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE)
    quantiles = None
    if family.is_discrete:
        ends = family.quantile_bounds(parameters, np.array([_TAIL, 1.0 - _TAIL]))
        low, high = ends[0][0] + 1, ends[1][1]
    else:
        quantiles = family.quantile_bounds(parameters, np.asarray(ndtr(scores)))[0]
    for leaf in range(len(parameters)):
        row = parameters[leaf : leaf + 1]
        if quantiles is not None:
            values, chances = quantiles[:, leaf], weights
        elif high[leaf] - low[leaf] < _MOST_VALUES:
            values = np.arange(low[leaf], high[leaf] + 1)
            chances = np.exp(family.log_prob(row, values)[:, 0])
        else:
            mean = float(family.mean(row)[0])
            values = np.floor(mean) + np.array([0.0, 1.0])
            chances = np.array([1.0 - (mean - values[0]), mean - values[0]])
        shares = chances / chances.sum()
        found[leaf] = family.expected_statistics(row, values, shares[None])[0]
    return found


# Growth.


def _asks_for_nodes(
    state: OnlineState, part: Part, score: float, total: float, options: OnlineOptions
) -> bool:
    """Whether a batch is to be tested for interface nodes that the model lacks."""
    if not options.growth or len(part.data) < _FEWEST_SEQUENCES:
        return False
    if math.isnan(state.score) or total >= 2 * state.tested:
        return True
    error = math.sqrt(state.spread / len(part.data))
    return bool(score < state.score - options.surprise * error)


def _grow(
    state: OnlineState,
    part: Part,
    options: OnlineOptions,
    priors: Priors,
    rng: np.random.Generator,
) -> OnlineState:
    """The state with as many more interface nodes as the batch asks for; often none.

    Old statistics keep their meaning: nodes that were there have them as they were, and new nodes
    and edges begin with none.
    """
    count = len(part.data)
    folds = np.array_split(rng.permutation(count), _FOLDS)

    def trained(own: OnlineState, train: Part) -> Program:
        return compile_program(_learn(own, train, options, priors, trial=True).mixture)

    for _ in range(_MOST_NODES_PER_BATCH):
        gains = np.zeros((2, count))
        for fold in folds:
            held = part.data[np.sort(fold)]
            train = part.pick(np.setdiff1d(np.arange(count), fold))
            before = trained(state, train).log_likelihood(held)
            for kind, candidate in enumerate(_candidates(state, train, options, priors, rng)):
                after = trained(candidate, train).log_likelihood(held)
                with np.errstate(invalid="ignore"):
                    gains[kind, np.sort(fold)] = after - before
        means = [part.mean(own) for own in gains]
        kind = int(np.argmax(means))
        with np.errstate(invalid="ignore"):
            error = float(np.std(gains[kind], ddof=1)) / math.sqrt(count)
        if not means[kind] > options.caution * error:
            break
        state = list(_candidates(state, part, options, priors, rng))[kind]
        # The parameters that the batch has led to are kept, so that its last steps begin there.
        state = replace(state, mixture=trained(state, part).mixture)
    return state


def _candidates(
    state: OnlineState,
    part: Part,
    options: OnlineOptions,
    priors: Priors,
    rng: np.random.Generator,
) -> Iterator[OnlineState]:
    """The state with one more node in the component that explains most of the batch.

    The node is made for the sequences that are rather of this component than of any other.
    """
    shares = component_posteriors(compile_program(state.mixture), part.data)
    chosen = int(np.argmax(part.weights @ shares))
    network = state.mixture.components[chosen]
    if network.num_interfaces >= options.max_interfaces:
        return
    data = part.data[np.argmax(shares, axis=1) == chosen]
    grown = [
        informed_split(network, data, priors=priors, rng=rng),
        _with_surprising_node(network, data, priors, rng),
    ]
    for candidate in grown:
        networks, statistics = list(state.mixture), list(state.statistics)
        statistics[chosen] = _extended(network, candidate, statistics[chosen])
        networks[chosen] = candidate
        mixture = Mixture(tuple(networks), state.mixture.weights)
        yield replace(state, mixture=mixture, statistics=tuple(statistics))


def _with_surprising_node(
    network: DynamicNetwork, data: Sequences, priors: Priors, rng: np.random.Generator
) -> DynamicNetwork:
    """One more node, whose leaves are those of the slices that the network expects least.

    These are the slices with the least probable entries, each given all others. The node stands
    beside the one that is used most in these slices, and shares its weights.
    """
    program = compile_program(network)
    entries = program.posteriors(data, Want(surprises=True)).surprises
    slices = np.nan_to_num(entries, nan=0.0, posinf=0.0, neginf=0.0).sum(axis=1)
    rows = np.flatnonzero(slices > _threshold(slices))
    use = interface_posteriors(program, data)[rows].sum(axis=0)
    split = split_interfaces(network, [int(np.argmax(use))], rng, 0.0)

    def moved(part: NetworkParameters) -> NetworkParameters:
        leaves = []
        for bank, own in zip(split.template.banks, part.leaves, strict=True):
            values = told_values(data, bank.variable, rows)
            seen = bank.family.statistics(values).sum(axis=0, keepdims=True)
            changed = own.copy()
            new = np.array(bank.nodes) >= len(network.template.nodes)
            changed[new] = bank.family.maximise(seen, priors.leaf(bank.family, bank.variable))
            leaves.append(changed)
        return NetworkParameters(part.weights, tuple(leaves))

    own = split.parameters
    bottom = None if own.bottom is None else moved(own.bottom)
    return split.with_parameters(Parameters(moved(own.template), own.top, bottom))


def _threshold(values: Floats) -> float:
    """Half-way between the means of the values below and above it, as two means in one dimension.

    It begins so high that one value in ten is above it.
    """
    limit = float(np.quantile(values, 0.9))
    for _ in range(_TRIAL_STEPS):
        above = values > limit
        if not above.any() or above.all():
            break
        limit = 0.5 * float(values[above].mean() + values[~above].mean())
    return min(limit, float(np.quantile(values, 0.99)))


def _extended(old: DynamicNetwork, new: DynamicNetwork, statistics: ExpectedFlows) -> ExpectedFlows:
    """The statistics of a network as those of the same network with nodes and edges added.

    Old nodes have their old numbers and their old edges first; see `split_interfaces`.
    """
    blank = ExpectedFlows.nothing(new)

    def edges(name: str, own: NetworkFlows) -> Floats:
        part: Template | Top = old.top if name == "top" else old.template
        grown: Template | Top = new.top if name == "top" else new.template
        weights = np.zeros(grown.num_weights)
        for node, start in part.edge_offsets.items():
            assert isinstance(grown.nodes[node], Sum)
            width, tables = len(children_of(part.nodes[node])), part.num_tables(part.nodes[node])
            place, size = grown.edge_offsets[node], len(children_of(grown.nodes[node]))
            target = weights[place : place + tables * size].reshape(tables, size)
            target[:, :width] = own.weights[start : start + tables * width].reshape(tables, width)
        return weights

    def extended(name: str, own: NetworkFlows, zeros: NetworkFlows) -> NetworkFlows:
        leaves = []
        for rows, none in zip(own.leaves, zeros.leaves, strict=True):
            longer = none.copy()
            longer[: len(rows)] = rows
            leaves.append(longer)
        return NetworkFlows(edges(name, own), tuple(leaves))

    pairs = zip(_parts(statistics), _parts(blank), strict=True)
    return _whole({name: extended(name, own, none) for (name, own), (_, none) in pairs})

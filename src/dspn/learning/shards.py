"""Expectation maximisation on data sets that are larger than memory, shard by shard."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.atomic import write_atomically
from dspn.data.sequences import Sequences, data_fingerprint, joined, sequences_of
from dspn.engine.base import Expectation, ExpectedFlows, Program, TimeUpError, until
from dspn.errors import DataError, EvidenceError, ModelFileError
from dspn.executors import Executor, Serial, Shared
from dspn.io.codec import Contents
from dspn.io.files import pack, unpack
from dspn.learning.em import DeadNode, EmOptions, EmState, Members, fit_em, sum_by_shard
from dspn.learning.priors import Priors
from dspn.learning.run import Clock, Ending, describe_options
from dspn.learning.scores import FitRecord, Score, StopReason
from dspn.structure.mixture import Mixture

if TYPE_CHECKING:  # Arrow takes long to load and is not on every machine
    from dspn.data.dataset import Dataset, Shard

# Slices of the validation set, which stays in memory.
_MOST_HELD: Final = 200_000
_VERSION: Final = 1


@final
@dataclass(frozen=True, eq=False)
class ShardedPart(Members):
    """Shards of a data set: the members are shards, and weigh as many as they have sequences.

    No process holds more than a shard at a time, apart from those that it keeps while memory
    allows. Sums are taken in the order of the shards.
    """

    shards: tuple[Shard, ...]
    weights: Floats
    executor: Executor = field(default_factory=Serial)
    _sent: list[Shared[Program]] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, data: Dataset, executor: Executor | None = None) -> ShardedPart:
        """The sequences of a data set that are not held out."""
        counts = [own.num_trained for own in data.shards]
        shards = tuple(own for own, count in zip(data.shards, counts, strict=True) if count)
        weights = np.array([count for count in counts if count], dtype=np.float64)
        if not shards:
            raise DataError("the data set holds no sequence to learn from; hold out fewer.")
        return cls(shards, weights, executor or Serial())

    def flows(self, program: Program) -> Expectation:
        """Expected flows; the log-likelihoods are the means of the shards."""
        found: Expectation = self._sum(_shard_flows, program)
        return found

    def log_likelihood(self, program: Program) -> Floats:
        """The mean log-likelihood of each shard."""
        return np.array(self._sum(_shard_likelihood, program))

    def score(self, score: Score, program: Program) -> float:
        """The mean of another score over all sequences."""
        return self.mean(np.array(self._sum(partial(_shard_score, score), program)))

    def batches(self, batch_size: int, rng: np.random.Generator) -> list[tuple[Members, float]]:
        """The shards, dealt at random into batches of at least one shard each."""
        total = float(self.weights.sum())
        count = int(np.clip(round(total / batch_size), 1, len(self.shards)))
        members = np.array_split(rng.permutation(len(self.shards)), count)
        picked = [self._pick(np.sort(own)) for own in members]
        return [(own, total / float(own.weights.sum())) for own in picked]

    def _pick(self, members: Ints) -> ShardedPart:
        shards = tuple(self.shards[own] for own in members.tolist())
        return replace(self, shards=shards, weights=self.weights[members])

    def _sum(self, work: Any, program: Program) -> Any:
        return sum_by_shard(work, program, self.shards, self.executor, self._sent)


def _load(program: Program, shard: Shard) -> Sequences:
    data = shard.load()
    assert data is not None
    return sequences_of(data, program.schema, "train")


def _shard_flows(program: Program, shard: Shard) -> Expectation:
    data = _load(program, shard)
    try:
        found = program.expected_flows(data)
    except EvidenceError:
        impossible = int(np.count_nonzero(program.log_likelihood(data) == -np.inf))
        if not impossible:
            raise
        raise DataError(
            f"{impossible} of the sequences of the shard {shard.path!r} have probability zero "
            "under the model, so nothing can be learned from them. Mark their impossible entries "
            "as missing, or start from parameters without zeros."
        ) from None
    return replace(found, log_likelihood=np.array([np.mean(found.log_likelihood)]))


# Numbers of shards are tuples, which add up to all of them one after the other.


def _shard_likelihood(program: Program, shard: Shard) -> tuple[float]:
    return (float(np.mean(program.log_likelihood(_load(program, shard)))),)


def _shard_score(score: Score, program: Program, shard: Shard) -> tuple[float]:
    return (score.mean(program, _load(program, shard)),)


def hold_out(
    data: Dataset, fraction: float, seed: int, executor: Executor | None = None
) -> tuple[Dataset, Sequences | None]:
    """The data set without a share of its sequences, and those, at most some 200,000 slices.

    Args:
        data: The data set.
        fraction: The largest share of the sequences.
        seed: Draws them.
        executor: Reads the shards.
    """
    share = min(fraction, _MOST_HELD / data.total_slices)
    if share <= 0:
        return data, None
    rest = data.hold_out(share, seed)
    found = (executor or Serial()).map(methodcaller("load_held"), rest.shards)
    parts = [own for own in found if own is not None]
    if not parts or not any(own.num_trained for own in rest.shards):
        return data, None
    return rest, joined(parts)


@final
@dataclass(frozen=True, eq=False)
class ShardedFit:
    """The best model, the records of all steps, its score, and why the fit ended."""

    mixture: Mixture
    history: tuple[FitRecord, ...]
    score: float
    ending: StopReason | Ending
    dead: tuple[DeadNode, ...] = ()


def fit_shards(
    mixture: Mixture,
    data: Dataset,
    validation: Sequences | None,
    *,
    options: EmOptions,
    priors: Priors,
    seed: int,
    executor: Executor | None = None,
    clock: Clock | None = None,
    checkpoint: str | None = None,
    resume: bool = False,
    on_step: Callable[[FitRecord], None] | None = None,
) -> ShardedFit:
    """Expectation maximisation of a model on all sequences of a data set that are not held out.

    Ctrl-C ends it with the best model so far.

    Args:
        mixture: The model to start from.
        data: The data set.
        validation: Sequences whose score chooses among the models on the way.
        options: When to stop, and whether a step sees all shards or some.
        priors: The pseudo-observations.
        seed: Draws the batches.
        executor: Works on the shards.
        clock: Ends the fit when it is due.
        checkpoint: File that keeps the state after every step.
        resume: Whether to go on from that file where there is one.
        on_step: Called with every record.
    """
    part = ShardedPart.of(data, executor)
    clock = clock or Clock()
    file = state = None
    latest: list[EmState] = []
    if checkpoint is not None:
        counted = None if validation is None else data_fingerprint(validation).hex()
        run = {"data": data.origin, "validation": counted, "options": options, "priors": priors}
        file = StateFile(checkpoint, mixture, seed=seed, **run)
        if not resume and file.path.exists():
            raise ModelFileError(
                f"there is a checkpoint at {checkpoint!r} already; go on from it with "
                "`resume=True`, or remove it."
            )
        state = file.load()

    def keep(now: EmState) -> None:
        latest[:] = [now]
        if file is not None:
            file.save(now)

    try:
        with until(clock.is_due):
            fit = fit_em(
                mixture,
                part,
                validation=validation,
                options=options,
                priors=priors,
                rng=np.random.default_rng([seed, 19]),
                deadline=clock.is_due,
                state=state,
                on_state=keep,
                on_step=on_step,
            )
    except (KeyboardInterrupt, TimeUpError) as error:
        if not latest:
            raise
        is_time = isinstance(error, TimeUpError)
        records = latest[0].history
        scores = [own.validation for own in records if own.validation is not None]
        score = max(scores, default=records[-1].train)
        ending = StopReason.DEADLINE if is_time else Ending.INTERRUPTED
        return ShardedFit(latest[0].best, records, score, ending)
    return ShardedFit(fit.mixture, fit.history, fit.score, fit.stopped, fit.dead)


# The state of a fit in a file.


def _arrays(value: Any) -> Iterator[NDArray[Any]]:
    """The arrays within tuples and dataclasses, in one order."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _arrays(item)
    elif is_dataclass(value):
        for item in fields(value):
            yield from _arrays(getattr(value, item.name))


def _with_arrays(value: Any, arrays: Iterator[NDArray[Any]]) -> Any:
    """The same tuples and dataclasses around other arrays."""
    if isinstance(value, np.ndarray):
        found = next(arrays)
        if found.shape != value.shape or found.dtype != value.dtype:
            raise ModelFileError("its arrays have other shapes")
        return found
    if isinstance(value, tuple):
        return tuple(_with_arrays(item, arrays) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        new = {own.name: _with_arrays(getattr(value, own.name), arrays) for own in fields(value)}
        return replace(value, **new)
    return value


def _values_of(mixture: Mixture) -> tuple[Any, ...]:
    return mixture.weights, tuple(network.parameters for network in mixture)


@final
class StateFile:
    """The file that keeps the state of a fit on a data set after every step.

    Args:
        path: The file.
        mixture: The model that the fit starts from.
        run: What the fit depends on, as `describe_run` has it.
    """

    def __init__(self, path: str | os.PathLike[str], mixture: Mixture, **run: object) -> None:
        self.path = Path(path)
        self._mixture = mixture
        own = {name: describe_options(value) for name, value in run.items()}
        self._run = json.dumps({"start": mixture.fingerprint.hex(), **own}, sort_keys=True)

    def save(self, state: EmState) -> None:
        """Writes the state, whole or not at all."""
        values = (_values_of(state.mixture), _values_of(state.best))
        arrays = [*_arrays(values)]
        if state.statistics is not None:
            arrays += _arrays((state.statistics.components, state.statistics.counts))
        tensors = {f"a{n:06d}": np.ascontiguousarray(own) for n, own in enumerate(arrays)}
        records = [[own.step, own.train, own.penalised, own.validation] for own in state.history]
        metadata: Any = {
            "state": _VERSION,
            "run": self._run,
            "history": json.dumps(records),
            "num_batches": state.num_batches,
            "rng": json.dumps(state.rng_state),
            "has_statistics": state.statistics is not None,
        }
        write_atomically(self.path, pack(Contents(tensors, metadata)))

    def load(self) -> EmState | None:
        """The state that was saved; None where there is no file."""
        if not self.path.exists():
            return None
        try:
            found = unpack(self.path.read_bytes())
            told: Any = found.metadata
            if told.get("state") != _VERSION or told.get("run") != self._run:
                raise ModelFileError("it belongs to a fit of other data, options or another start")
            arrays = iter([found.tensors[name] for name in sorted(found.tensors)])
            own = (_values_of(self._mixture), _values_of(self._mixture))
            statistics = None
            now, best = _with_arrays(own, arrays)
            if told["has_statistics"]:
                flows = tuple(ExpectedFlows.nothing(network) for network in self._mixture)
                components, counts = _with_arrays((flows, self._mixture.weights), arrays)
                statistics = Expectation(components, counts, np.empty(0))
            records = tuple(FitRecord(*item) for item in json.loads(told["history"]))
            mixtures = (self._mixture_of(now), self._mixture_of(best))
            return EmState(
                *mixtures, records, statistics, told["num_batches"], json.loads(told["rng"])
            )
        except (OSError, KeyError, TypeError, ValueError, StopIteration) as error:
            raise ModelFileError(
                f"cannot go on from {str(self.path)!r}: {str(error).rstrip('.')}. Give what it was "
                "made with, or begin anew at another path."
            ) from error

    def _mixture_of(self, values: tuple[Any, ...]) -> Mixture:
        weights, parameters = values
        pairs = zip(self._mixture, parameters, strict=True)
        return Mixture(tuple(network.with_parameters(own) for network, own in pairs), weights)

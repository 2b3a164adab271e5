"""What all estimators of sequences have in common: how they take data, and what they remember."""

import math
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from dspn import __version__
from dspn.engine.flows import expected_flows
from dspn.engine.threads import TimeUpError
from dspn.errors import ConvergenceWarning, EvidenceError, ModelFileError, warn
from dspn.io import JSON, LoadedMixture, load_mixture, save_mixture
from dspn.io.paths import path_text
from dspn.learning import (
    AutoOptions,
    ConditionalLikelihood,
    EmOptions,
    Ending,
    GrowthOptions,
    Likelihood,
    PartitionOptions,
    SearchOptions,
    SliceSpnOptions,
)
from dspn.learning.clock import Clock, limited
from dspn.learning.diagnosis import DeadNode, dead_nodes
from dspn.learning.fitting import EmFit, fit_em
from dspn.learning.plan import DEFAULT_PLAN, described
from dspn.learning.priors import Priors
from dspn.learning.stopping import StopReason
from dspn.leaves import CategoricalPrior, GaussianPrior, PoissonPrior
from dspn.models._data import (
    checked_sample_weight,
    read_for_fit,
    read_for_query,
    remember_columns,
    seed_of,
)
from dspn.models._training import (
    TrainingData,
    checked_fraction,
    training_data,
    warn_of_idle_variables,
    warn_of_single_sequence,
    warn_of_unseen_categories,
)
from dspn.models._verbs import SequenceVerbs
from dspn.models.model import FITTED, Model
from dspn.sequences import Schema, Sequences
from dspn.structure import DynamicNetwork, Mixture

_MOST_NAMED: Final = 5
_GRACE: Final = 0.1  # of a time limit: what a last look at the data may take after it
# What a model file tells otherwise, or what belongs to the machine.
_NOT_RECORDED: Final = frozenset(
    ["schema", "random_state", "checkpoint", "checkpoint_every", "resume", "n_jobs", "verbose"]
)
# How an option that a file describes fails to be one.
_NOT_MADE: Final = (KeyError, TypeError, ValueError, ArithmeticError)
# What a file knows by its name alone.
_ENDINGS: Final = {str(ending): ending for kind in (StopReason, Ending) for ending in kind}
_OPTIONS: Final[dict[str, Callable[..., Any]]] = {
    kind.__name__: kind
    for kind in (
        AutoOptions,
        CategoricalPrior,
        ConditionalLikelihood,
        EmOptions,
        GaussianPrior,
        GrowthOptions,
        Likelihood,
        PartitionOptions,
        PoissonPrior,
        Priors,
        SearchOptions,
        SliceSpnOptions,
    )
}


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """What an estimator has learned: a model, its score where others chose it, and how it went.

    `score` is in nats per sequence, on the validation set and before that was learned from; None
    without a validation set.
    """

    network: DynamicNetwork | Mixture
    score: float | None
    history: tuple[Any, ...]
    ending: StrEnum


def outcome_of(fit: EmFit, data: TrainingData, priors: Priors, *, refit: bool) -> Outcome:
    """What expectation maximisation has found, trained once more with what was held out.

    Says where it ended before its time.
    """
    if fit.stopped is StopReason.MAX_STEPS and fit.history[-1].step:
        warn(
            f"expectation maximisation ended after {fit.history[-1].step} steps and was still "
            "gaining; the model can be used, and more `max_steps` may make it better.",
            ConvergenceWarning,
        )
    if fit.stopped is StopReason.DEADLINE:
        warn_of_time(data, f"expectation maximisation after {fit.history[-1].step} steps")
    network = fit.network
    if refit and data.is_held_out and DEFAULT_PLAN.refit is not None and fit.score > -np.inf:
        whole, weights = data.whole()
        clock = data.clock.grace(2 * _GRACE, whole)
        with suppress(TimeUpError), limited(clock, whole):
            network = fit_em(
                network,
                whole,
                options=DEFAULT_PLAN.refit,
                priors=priors,
                sample_weights=weights,
                deadline=clock.is_due,
            ).network
    score = None if data.validation is None else fit.score
    return Outcome(network, score, fit.history, fit.stopped)


def warn_of_time(data: TrainingData, what: str) -> None:
    """Says that a time limit has ended what was not worth ending yet."""
    warn(
        f"`time_limit={data.clock.limit:g}` ended {what}; the model can be used, and more time may "
        f"make it better (there are {data.train.total_slices:,} slices of "
        f"{data.train.num_variables} variables to learn from).",
        ConvergenceWarning,
    )


class SequenceEstimator(SequenceVerbs, BaseEstimator):
    """A model of sequences that is learned from data; scikit-learn's conventions throughout.

    Data are everywhere a `Sequences`, a list of (T_i, n) arrays, an (N, T, n) array, or one array
    of rows, which with `lengths` holds as many sequences and without is a single one. NaN and None
    are missing.

    Attributes:
        model_: The `Model`, and `network_`, `schema_` its parts.
        validation_score_: Its score in nats per sequence where sequences were held out, else None.
        history_: How the score rose.
        ending_: Why learning ended.
        dead_: Nodes of the model that the training data do not use, each by name.
    """

    schema: Schema | None
    validation_fraction: float
    random_state: Any
    n_features_in_: int
    validation_score_: float | None
    history_: tuple[Any, ...]
    ending_: StrEnum | None
    feature_names_in_: NDArray[Any]
    dead_: tuple[DeadNode, ...]

    # Attributes of a kind of estimator that its file keeps.
    _KEPT: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _check(self, schema: Schema, *, weighted: bool, validated: bool) -> None:
        """Raises where options are out of range or do not go together, before any work."""

    @abstractmethod
    def _learned(self, data: TrainingData) -> Outcome:
        """The model of the data."""

    @final
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        lengths: Any = None,
        sample_weight: Any = None,
        validation: Any = None,
    ) -> Self:
        """Learns a model of the sequences.

        Args:
            y: Not used; there for scikit-learn.
            lengths: Slices of each sequence where X is one array of rows.
            sample_weight: How often each sequence counts; zero leaves it out.
            validation: Sequences that choose among models. Without them a share
                `validation_fraction` of X is held out, a single sequence being its own validation
                set; in the end the model is trained once more with what was held out, unless
                `refit` is off.
        """
        clock = Clock(getattr(self, "time_limit", None))
        data = read_for_fit(self, X, lengths, self.schema)
        weights = checked_sample_weight(sample_weight, len(data))
        held = None if validation is None else self._validation(validation, data)
        warn_of_idle_variables(data)
        if held is None and len(data) == 1 and self.validation_fraction:
            warn_of_single_sequence()
        fraction = checked_fraction(self.validation_fraction)
        parts = training_data(data, weights, held, fraction, seed_of(self.random_state))
        return self._fit_parts(replace(parts, clock=clock))

    def _validation(self, validation: Any, data: Sequences) -> Sequences:
        held = read_for_query(self, validation, None, data.schema, "validation")
        warn_of_unseen_categories(data, held)
        return held

    @final
    def _fit_parts(self, parts: TrainingData) -> Self:
        """Learns from data that are read, checked and divided."""
        self._check(
            parts.schema,
            weighted=parts.weights is not None,
            validated=parts.validation is not None,
        )
        if parts.clock.limit is None:
            parts = replace(parts, clock=Clock(getattr(self, "time_limit", None)))
        known = parts.fingerprints()  # first, so that it is within a time limit and not after it
        outcome = self._learned(parts)
        self.n_features_in_ = parts.train.num_variables
        self.validation_score_ = outcome.score
        self.history_ = outcome.history
        self.ending_ = outcome.ending
        self.model_ = Model(outcome.network, provenance=self._provenance(parts, known, outcome))
        self.dead_ = _dead(self.model_, parts)
        _warn_of_dead_interfaces(self.dead_, self.model_.mixture.num_interfaces)
        return self

    def _provenance(
        self, data: TrainingData, fingerprints: Mapping[str, JSON], outcome: Outcome
    ) -> Mapping[str, JSON]:
        """Where the model comes from, to be kept with it."""
        options = self.get_params(deep=False)
        score = outcome.score
        return {
            "estimator": type(self).__name__,
            "parameters": {
                name: _plain(value) for name, value in options.items() if name not in _NOT_RECORDED
            },
            "seed": data.seed,
            "data": fingerprints,
            "validation_score": score if score is not None and math.isfinite(score) else None,
            "ending": str(outcome.ending),
            "dspn": __version__,
        }

    @final
    def save(self, path: str | bytes | os.PathLike[str]) -> None:
        """Writes model and estimator to a `*.dspn` file, which `dspn.load` reads."""
        model = self._model()
        kept: dict[str, JSON] = {
            name: _plain(getattr(self, name)) for name in self._KEPT if hasattr(self, name)
        }
        kept["columns"] = hasattr(self, "feature_names_in_")
        save_mixture(model.mixture, path, provenance={**model.provenance, FITTED: kept})

    @final
    @classmethod
    def load(cls, path: str | bytes | os.PathLike[str]) -> Self:
        """The estimator in a file: it answers as the one that was saved.

        Parameters come back as far as they are numbers, text or options of this library, and
        `random_state` as the seed that was used. `history_` and `dead_` are empty: how the model
        was learned is not kept.
        """
        found = load_mixture(path)
        if found.provenance.get("estimator") != cls.__name__:
            raise ModelFileError(
                f"cannot load {path_text(path)!r} as {cls.__name__}: no {cls.__name__} has learned "
                "the model in it; use `dspn.load`."
            )
        return cls._from_file(found)

    @final
    @classmethod
    def _from_file(cls, found: LoadedMixture) -> Self:
        told: dict[str, Any] = dict(found.provenance)
        kept = told.pop(FITTED, None)
        own = cls(**_restored_parameters(cls, told))
        own.schema = found.mixture.schema
        own.model_ = Model(found.mixture, provenance=told)
        own.history_, own.dead_ = (), ()
        own.validation_score_ = told.get("validation_score")
        own.ending_ = _ENDINGS.get(str(told.get("ending")))
        if not isinstance(kept, dict):  # a file of before there was this entry
            remember_columns(own, own.schema)
            return own
        own.n_features_in_ = len(own.schema)
        if kept.get("columns"):
            own.feature_names_in_ = np.array(own.schema.names, dtype=object)
        for name in kept.keys() & set(cls._KEPT):
            with suppress(*_NOT_MADE):
                setattr(own, name, _restored(kept[name]))
        return own

    @final
    def _read(self, X: Any, lengths: Any, argument: str = "X") -> Sequences:
        return read_for_query(self, X, lengths, self._model().schema, argument)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.three_d_array = True
        return tags


def _dead(model: Model, data: TrainingData) -> tuple[DeadNode, ...]:
    """The nodes that nothing of the training data flows through.

    A mixture has none to speak of: a component that the data do not need still has its weight. None
    are named where a time limit leaves no time to look.
    """
    if len(model.components) > 1:
        return ()
    try:
        with limited(data.clock.grace(_GRACE, data.train), data.train):
            flows = expected_flows(model.program, data.train).flows
    except (EvidenceError, TimeUpError):  # what is impossible is said by every query
        return ()
    return dead_nodes(model.network, flows)


def _warn_of_dead_interfaces(dead: tuple[DeadNode, ...], num_interfaces: int) -> None:
    """Names the interface nodes that are not used; what stands below them is not used either."""
    idle = [str(node) for node in dead if node.is_interface]
    if idle:
        named = ", ".join(idle[:_MOST_NAMED]) + (", ..." if len(idle) > _MOST_NAMED else "")
        warn(
            f"{len(idle)} of {num_interfaces} interface nodes are not used by the training data "
            f"({named}); the model can be used, and fewer nodes would do.",
            ConvergenceWarning,
        )


def _restored_parameters(kind: type[SequenceEstimator], told: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a file tells of, as far as they can be made from what it says."""
    found: dict[str, Any] = {}
    usual = kind().get_params(deep=False)
    given: Any = told.get("parameters")
    for name in usual.keys() & set(given if isinstance(given, dict) else ()):
        with suppress(*_NOT_MADE):
            value = _restored(given[name])
            # Any other text stands for an object that JSON does not have.
            if isinstance(usual[name], str) or not isinstance(value, str):
                found[name] = value
    if isinstance(told.get("seed"), int):
        found["random_state"] = told["seed"]
    return found


def _restored(value: Any) -> Any:
    """The option that `_plain` wrote as JSON."""
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _restored(item) for name, item in value.items() if name != "class"}
    if "class" in value:
        return _OPTIONS[value["class"]](**fields)
    return {int(name): float(item) for name, item in fields.items()}


def _plain(value: Any) -> JSON:
    """An option as JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return described(value)

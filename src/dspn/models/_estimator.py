"""What all estimators of sequences have in common: how they take data, and what they remember."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self, final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from dspn._version import __version__
from dspn._warnings import warn
from dspn.engine.flows import expected_flows
from dspn.engine.threads import TimeUpError
from dspn.errors import ConvergenceWarning, EvidenceError
from dspn.io import JSON
from dspn.learning.clock import Clock, limited
from dspn.learning.diagnosis import DeadNode, dead_nodes
from dspn.learning.fitting import EmFit, fit_em
from dspn.learning.plan import DEFAULT_PLAN, described
from dspn.learning.priors import Priors
from dspn.learning.stopping import StopReason
from dspn.models._data import checked_sample_weight, read_for_fit, read_for_query, seed_of
from dspn.models._training import (
    TrainingData,
    checked_fraction,
    training_data,
    warn_of_idle_variables,
    warn_of_single_sequence,
    warn_of_unseen_categories,
)
from dspn.models._verbs import SequenceVerbs
from dspn.models.model import Model
from dspn.sequences import Schema, Sequences
from dspn.structure import DynamicNetwork, Mixture

_MOST_NAMED: Final = 5
_GRACE: Final = 0.1  # of a time limit: what a last look at the data may take after it
# What a model file tells otherwise, or what belongs to the machine.
_NOT_RECORDED: Final = frozenset(
    ["schema", "random_state", "checkpoint", "checkpoint_every", "resume", "n_jobs", "verbose"]
)


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
    ending_: StrEnum
    dead_: tuple[DeadNode, ...]

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


def _plain(value: Any) -> JSON:
    """An option as JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return described(value)

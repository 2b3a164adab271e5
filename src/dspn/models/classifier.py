"""Classification of whole sequences."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dspn._arrays import Floats
from dspn._checks import require_type
from dspn.errors import ConvergenceWarning, ImpossibleEvidenceWarning, StructureError, warn
from dspn.io.classifiers import LoadedClassifier, load_classifier, save_classifier
from dspn.learning.ascent import DEFAULT_ASCENT, AscentOptions
from dspn.learning.discrimination import class_likelihoods, class_posteriors, discriminate
from dspn.learning.priors import DEFAULT_PRIORS
from dspn.models._data import (
    checked_sample_weight,
    read_for_fit,
    read_for_query,
    remember_columns,
    seed_of,
)
from dspn.models._estimator import SequenceEstimator
from dspn.models._labels import (
    checked_labels,
    class_parts,
    coded_labels,
    labelled,
    log_shares,
    together,
)
from dspn.models._training import TrainingData, checked_fraction, warn_of_idle_variables
from dspn.models.hmm import HMM
from dspn.models.model import Model


class Mode(StrEnum):
    """What the models of the classes are made for.

    GENERATIVE: each is a likely model of its own class. DISCRIMINATIVE: from there all are changed
    together so that log P(class | sequence) rises.
    """

    GENERATIVE = "generative"
    DISCRIMINATIVE = "discriminative"


@final
class DSPNClassifier(ClassifierMixin, BaseEstimator):
    """P(class | sequence) from a model for each class and the frequencies of the classes.

    Data are given as to the other estimators, but for one form: rows of an array without `lengths`
    are samples, as everywhere in scikit-learn, each a sequence of a single slice.

    Args:
        estimator: What models a class, an `HMM` by default; cloned for each class.
        mode: "generative" or "discriminative".
        ascent: When the discriminative steps end.
        random_state: Seed of everything random; without one, that of `estimator`.

    Attributes:
        classes_: The classes, sorted.
        models_: The model of each class, and `estimators_` what has learned them.
        class_log_prior_: Log P(class).
        history_: The discriminative steps.
    """

    def __init__(
        self,
        estimator: SequenceEstimator | None = None,
        *,
        mode: str = "generative",
        ascent: AscentOptions | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.mode = mode
        self.ascent = ascent
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        lengths: Any = None,
        sample_weight: Any = None,
        validation: Any = None,
    ) -> Self:
        """Learns a model for each class of `y`, which has a label for each sequence.

        `validation` is a pair (X, y) of sequences that choose among models. Without it each class
        holds out a share of its sequences, as `estimator.validation_fraction` says.
        """
        base = self._base()
        mode, ascent = self._options()
        data = read_for_fit(self, X, lengths, base.schema, by_row=True)
        labels = checked_labels(y, len(data))
        weights = checked_sample_weight(sample_weight, len(data))
        classes, codes = coded_labels(labels, weights)
        held = None if validation is None else labelled(validation, data.schema, classes)
        warn_of_idle_variables(data)
        seed = seed_of(base.random_state if self.random_state is None else self.random_state)
        fraction = checked_fraction(base.validation_fraction)
        parts = class_parts(data, codes, weights, held, fraction, seed)
        _warn_of_single_sequences(classes, parts)
        if mode is Mode.DISCRIMINATIVE:
            # What was held out still has to choose among the steps that follow.
            parts = [replace(part, is_held_out=False) for part in parts]
        self.estimators_ = [
            clone(base).set_params(random_state=part.seed)._fit_parts(part) for part in parts
        ]
        self.models_ = [own.model_ for own in self.estimators_]
        self.class_log_prior_ = log_shares(codes, weights)
        self.history_: tuple[Any, ...] = ()
        if mode is Mode.DISCRIMINATIVE:
            self._discriminate(parts, ascent)
        self.classes_, self.schema_ = classes, data.schema
        return self

    def _base(self) -> SequenceEstimator:
        base = HMM() if self.estimator is None else self.estimator
        require_type(
            base, SequenceEstimator, "estimator", StructureError, remedy="give an HMM or a DSPN"
        )
        if getattr(base, "checkpoint", None) is not None:
            raise StructureError(
                "`estimator` must have no `checkpoint`, as the models of all classes would go to "
                "the same file; leave it out."
            )
        return base

    def _options(self) -> tuple[Mode, AscentOptions]:
        try:
            mode = Mode(self.mode)
        except ValueError:
            raise StructureError(
                f"`mode` must be 'generative' or 'discriminative', but is {self.mode!r}; choose "
                "one."
            ) from None
        ascent = DEFAULT_ASCENT if self.ascent is None else self.ascent
        require_type(ascent, AscentOptions, "ascent", StructureError)
        if self.ascent is not None and mode is Mode.GENERATIVE:
            raise StructureError(
                "`ascent` must be None with `mode='generative'`, which takes no such steps; leave "
                "it out, or choose 'discriminative'."
            )
        return mode, ascent

    def _discriminate(self, parts: Sequence[TrainingData], ascent: AscentOptions) -> None:
        """Changes all models together, from where they are."""
        mixed = [len(model.components) for model in self.models_ if len(model.components) > 1]
        if mixed:
            raise StructureError(
                "`mode='discriminative'` changes single networks, but the model of a class is a "
                f"mixture of {mixed[0]}; use `mode='generative'`, or an estimator that learns one "
                "network, such as HMM or DSPN(learner='paper')."
            )
        priors = getattr(self.estimators_[0], "priors", None) or DEFAULT_PRIORS
        chosen = [part.validation for part in parts if part.validation is not None]
        fit = discriminate(
            [model.network for model in self.models_],
            self.class_log_prior_,
            together([part.train for part in parts], [part.weights for part in parts]),
            validation=together(chosen, [None] * len(chosen)) if chosen else None,
            options=ascent,
            priors=priors,
        )
        self.history_ = fit.history
        self.class_log_prior_ = fit.logits
        self.models_ = [
            Model(network, provenance={**own.provenance, "mode": str(Mode.DISCRIMINATIVE)})
            for network, own in zip(fit.networks, self.models_, strict=True)
        ]

    def predict_log_proba(self, X: Any, *, lengths: Any = None) -> Floats:
        """Log P(class | sequence), (sequences, classes).

        A sequence that is impossible in every class has the prior of the classes, with a warning.
        """
        check_is_fitted(self, "models_")
        data = read_for_query(self, X, lengths, self.schema_, "X", by_row=True)
        found = class_likelihoods([model.compiled for model in self.models_], data)
        nowhere = np.flatnonzero(np.all(found[0] == -np.inf, axis=1))
        if nowhere.size:
            warn(
                f"{nowhere.size} sequences have probability zero in every class, the first of them "
                f"sequence {nowhere[0]}; only the frequencies of the classes speak for them.",
                ImpossibleEvidenceWarning,
            )
        return class_posteriors(found, self.class_log_prior_)

    def predict_proba(self, X: Any, *, lengths: Any = None) -> Floats:
        """P(class | sequence), (sequences, classes)."""
        return np.exp(self.predict_log_proba(X, lengths=lengths))

    def predict(self, X: Any, *, lengths: Any = None) -> NDArray[Any]:
        """The most probable class of each sequence."""
        best = self.predict_log_proba(X, lengths=lengths).argmax(axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, lengths: Any = None) -> float:
        """Share of the sequences whose class is predicted."""
        predicted = self.predict(X, lengths=lengths)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def save(
        self,
        path: str | bytes | os.PathLike[str],
        *,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the models of all classes to one file, which `load` reads."""
        check_is_fitted(self, "models_")
        save_classifier(
            path,
            self.classes_.tolist(),
            self.class_log_prior_,
            [(model.mixture, model.provenance) for model in self.models_],
            provenance=provenance,
        )

    @classmethod
    def load(cls, path: str | bytes | os.PathLike[str]) -> Self:
        """The classifier in a file: it predicts as the one that was saved.

        What has learned the models is not kept, so `estimators_` is empty and a second `fit` is one
        with the usual options. `feature_names_in_` are the names of the variables, unless these are
        x0, x1, ...
        """
        return cls._from_file(load_classifier(path))

    @classmethod
    def _from_file(cls, found: LoadedClassifier) -> Self:
        own = cls()
        own.classes_, own.class_log_prior_ = np.array(found.classes), found.logits
        own.models_ = [Model(one.mixture, provenance=dict(one.provenance)) for one in found.models]
        own.schema_, own.estimators_, own.history_ = own.models_[0].schema, [], ()
        own.provenance_ = found.provenance
        remember_columns(own, own.schema_)
        return own

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.three_d_array = True
        return tags


def _warn_of_single_sequences(classes: NDArray[Any], parts: Sequence[TrainingData]) -> None:
    """Names the classes in which nothing can be held out."""
    alone = [part.validation is part.train for part in parts]
    if any(alone):
        warn(
            f"classes {classes[alone].tolist()} have a single sequence each, which is its own "
            "validation set; their models may fit it too closely.",
            ConvergenceWarning,
        )

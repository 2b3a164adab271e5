"""Classification of whole sequences."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from typing import Any, Self, Unpack, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dspn._arguments import Floats, Ints, require_type, sequence_weights
from dspn.data.schema import Kind, Schema
from dspn.data.sequences import Sequences, joined, sequences_of
from dspn.errors import (
    ConvergenceWarning,
    DataError,
    ImpossibleEvidenceWarning,
    StructureError,
    warn,
)
from dspn.io.codec import LoadedClassifier, LoadedMixture
from dspn.io.files import Path, load_classifier, save_classifier
from dspn.learning import ascent as steps
from dspn.learning.ascent import AscentOptions
from dspn.learning.em import EmOptions
from dspn.learning.priors import DEFAULT_PRIORS
from dspn.learning.run import Ending
from dspn.leaves import Families, family_for
from dspn.leaves.told import sources_of
from dspn.models.dspn import DSPN, Em, Paper
from dspn.models.estimator import SequenceEstimator
from dspn.models.forms import TABLE, Reading
from dspn.models.hmm import HMM, HMMSPN
from dspn.models.model import FITTED, Model
from dspn.models.online import sequences_seen
from dspn.models.training import SequenceReader, TrainingData, seed_of
from dspn.progress import show_progress


@final
@dataclass(eq=False, repr=False)
class DSPNClassifier(ClassifierMixin, SequenceReader):
    """P(class | sequence) from a model for each class and the frequencies of the classes.

    Data are given as to the other estimators, but for one form: rows of an array without `lengths`
    are samples, as everywhere in scikit-learn, each a sequence of a single slice.

    Leaves of numbers begin with one observation of the data of all classes, and none is narrower
    than a hundredth of their spread, unless `estimator` has priors of leaves or divides the
    variables, as `DSPN(Auto())` does.

    Args:
        estimator: What models a class, an `HMM` by default; cloned for each class.
        mode: "generative" for models that are likely for their own class each, "discriminative" to
            change all of them together from there so that log P(class | sequence) rises.
        ascent: When the discriminative steps end.
        random_state: Seed of everything random; without one, that of `estimator`.
        verbose: Whether to show how learning goes on.

    Attributes:
        classes_: The classes, sorted.
        models_: The model of each class, and `estimators_` what has learned them.
        class_log_prior_: Log P(class).
        history_: The discriminative steps.
        ending_: "interrupted" where Ctrl-C ended learning: the classes after it have a single step.
    """

    estimator: SequenceEstimator | None = None
    _: KW_ONLY
    mode: str = "generative"
    ascent: AscentOptions | None = None
    random_state: Any = None
    verbose: int = 0

    _ROWS_ARE_SEQUENCES = True

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        validation: Any = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Learns a model for each class of `y`, which has a label for each sequence.

        `validation` is a pair (X, y) of sequences that choose among models. Without it each class
        holds out a share of its sequences, as `estimator.validation_fraction` says. For a long
        table `sequence`, `order` and the other arguments of `Sequences.from_table` say how it is
        read, and `y` has the classes in the order of the first rows of the sequences, or is a
        Series whose index has the ids of the sequences in any order.
        """
        base, ascent = self._checked()
        data, weights = self._read_for_fit(X, base.schema, sample_weight, reading)
        y = _by_id(y, data)
        classes, codes = _coded_labels(_checked_labels(y, len(data)), weights)
        base = _with_common_priors(base, data if weights is None else data[weights > 0])
        held = None if validation is None else _labelled(validation, data.schema, classes)
        seed = seed_of(base.random_state if self.random_state is None else self.random_state)
        parts = []
        for code in range(classes.size):
            members = np.flatnonzero(codes == code)
            chosen = None if held is None else held[0][np.flatnonzero(held[1] == code)]
            share = None if weights is None else weights[members]
            fraction = base.validation_fraction
            class_seed = _class_seed(seed, code)
            parts.append(TrainingData.split(data[members], share, chosen, fraction, class_seed))
        alone = [part.validation is part.train for part in parts]
        if any(alone):
            warn(
                f"classes {classes[alone].tolist()} have a single sequence each, which is its own "
                "validation set; their models may fit it too closely.",
                ConvergenceWarning,
            )
        if ascent is not None:
            # What was held out still has to choose among the steps that follow.
            parts = [replace(part, is_held_out=False) for part in parts]
        self.estimators_ = []
        self.ending_: StrEnum | None = None
        with show_progress("learning", quiet=not self.verbose) as tell:
            for code, part in enumerate(parts):
                tell(f"class {code + 1} of {len(parts)}", code / len(parts))
                own = clone(base).set_params(random_state=part.seed)
                if self.ending_ is not None and hasattr(own, "em"):  # the others need a model, too
                    own.set_params(em=EmOptions(max_steps=1))
                own._fit_parts(part)
                if own.ending_ == Ending.INTERRUPTED:
                    self.ending_ = own.ending_
                self.estimators_.append(own)
        self.models_ = [own.model_ for own in self.estimators_]
        counted = codes >= 0
        counts = np.bincount(codes[counted], None if weights is None else weights[counted])
        self.class_log_prior_: Floats = np.log(counts / counts.sum())
        self.history_: tuple[Any, ...] = ()
        if ascent is not None and self.ending_ is None:
            self._discriminate(parts, ascent)
        self.classes_, self.schema_ = classes, self._told_schema(data.schema)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        *,
        lengths: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learns from one more batch, without those that came before: each class from its own.

        See `partial_fit` of the estimator of a class. The frequencies of the classes are those of
        all batches so far. After `fit`, or `dspn.load`, learning goes on from these models.

        Args:
            X: The sequences of the batch.
            y: A label for each sequence.
            classes: All classes that will ever occur; needed at the first call, which must have
                sequences of each. May be left out later.
            lengths: Slices of each sequence where X is one array of rows.
            sample_weight: How often each sequence counts; zero leaves it out.
        """
        base, ascent = self._checked()
        if ascent is not None:
            raise StructureError(
                "`partial_fit` needs `mode='generative'`, as discriminative steps change the "
                "models of all classes on all data together; use `fit`, or choose 'generative'."
            )
        rows: Reading = {"lengths": lengths}
        is_first = "models_" not in vars(self)
        known = _checked_classes(classes, None if is_first else self.classes_)
        if is_first:
            data, weights = self._read_for_fit(X, base.schema, sample_weight, rows)
        else:
            data, weights = self._read_for_query(X, self.schema_, "X", rows), None
            if sample_weight is not None:
                weights = sequence_weights(sample_weight, "sample_weight", DataError, len(data))
        codes = _codes_of(_checked_labels(_by_id(y, data), len(data)), known)
        own = np.ones(len(data)) if weights is None else weights
        counts = np.bincount(codes, own, minlength=known.size)
        if is_first and not counts.all():
            raise DataError(
                "the first batch must have sequences of every class in `classes`, but has none of "
                f"{known[counts == 0].tolist()[0]!r}; wait until there are some, or leave the "
                "class out."
            )
        if is_first:
            base = _with_common_priors(base, data[own > 0])
        estimators = self._class_estimators(base, known.size, is_first)
        before = counts if is_first else self._class_counts(float(own.sum()))
        # Every class is learned before any is changed, so that a failure changes none.
        learned = [copy(estimator) for estimator in estimators]
        for code in np.flatnonzero(counts).tolist():
            members = np.flatnonzero((codes == code) & (own > 0))
            share = None if weights is None else weights[members]
            learned[code]._take(data[members], share)
        total = counts if is_first else before + counts
        self.estimators_, self.models_ = learned, [own.model_ for own in learned]
        self.class_log_prior_ = np.log(total / total.sum())
        if is_first:
            self.classes_, self.schema_, self.history_ = known, self._told_schema(data.schema), ()
        return self

    def _told_schema(self, schema: Schema) -> Schema:
        """The schema of the data, with what the leaves of the models are told."""
        own = self.models_[0].schema
        return own if any(map(sources_of, own)) else schema

    def _class_estimators(
        self, base: SequenceEstimator, count: int, is_first: bool
    ) -> list[SequenceEstimator]:
        """What learns each class: new ones, those at hand, or those that a file tells of."""
        if is_first:
            seed = seed_of(base.random_state if self.random_state is None else self.random_state)
            return [clone(base).set_params(random_state=_class_seed(seed, c)) for c in range(count)]
        if self.estimators_:
            return self.estimators_
        found = []
        for model in self.models_:
            name = model.provenance.get("estimator")
            kinds: dict[Any, Any] = {"DSPN": DSPN, "HMMSPN": HMMSPN}
            kind = kinds.get(name, HMM)
            told = {**model.provenance, FITTED: {}}
            found.append(kind._from_file(LoadedMixture(model.mixture, told, model.online)))
        return found

    def _class_counts(self, num_new: float) -> Floats:
        """The sequences seen of each class; where a file does not tell, as many as are new."""
        seen = [sequences_seen(model) for model in self.models_]
        known = [count for count in seen if count is not None]
        if len(known) == len(seen):
            return np.array(known)
        return np.asarray(num_new * np.exp(self.class_log_prior_))

    def _checked(self) -> tuple[SequenceEstimator, AscentOptions | None]:
        """The estimator of a class, and the options of discriminative steps where there are any."""
        base = HMM() if self.estimator is None else self.estimator
        remedy = "give an HMM or a DSPN"
        require_type(base, SequenceEstimator, "estimator", StructureError, remedy=remedy)
        if getattr(base, "checkpoint", None) is not None:
            raise StructureError(
                "`estimator` must have no `checkpoint`, as the models of all classes would go to "
                "the same file; leave it out."
            )
        if self.mode not in ("generative", "discriminative"):
            rule = "`mode` must be 'generative' or 'discriminative'"
            raise StructureError(f"{rule}, but is {self.mode!r}; choose one.")
        ascent = steps.DEFAULT_ASCENT if self.ascent is None else self.ascent
        require_type(ascent, AscentOptions, "ascent", StructureError)
        if self.ascent is not None and self.mode == "generative":
            raise StructureError(
                "`ascent` must be None with `mode='generative'`, which takes no such steps; leave "
                "it out, or choose 'discriminative'."
            )
        if base.covariance == "auto":  # the models of all classes have the same leaves
            base = clone(base).set_params(covariance="diag")
        return base, ascent if self.mode == "discriminative" else None

    def _discriminate(self, parts: Sequence[TrainingData], ascent: AscentOptions) -> None:
        """Changes all models together, from where they are."""
        mixed = [len(model.components) for model in self.models_ if len(model.components) > 1]
        if mixed:
            raise StructureError(
                "`mode='discriminative'` changes single networks, but the model of a class is a "
                f"mixture of {mixed[0]}; use `mode='generative'`, or an estimator that learns one "
                "network, such as HMM or DSPN(learner='paper')."
            )
        # An observation of all classes in each leaf would draw the classes together again.
        priors = getattr(self.estimator, "priors", None) or DEFAULT_PRIORS
        known = self._told_schema(parts[0].train.schema)
        train = [(sequences_of(part.train, known, "X"), part.weights) for part in parts]
        chosen = [
            (sequences_of(part.validation, known, "X"), None)
            for part in parts
            if part.validation is not None
        ]
        with show_progress("separating", quiet=not self.verbose, is_bound=True) as tell:
            fit = steps.discriminate(
                [model.network for model in self.models_],
                self.class_log_prior_,
                _together(train),
                validation=_together(chosen) if chosen else None,
                options=ascent,
                priors=priors,
                on_step=lambda own: tell(f"step {own.step}", own.step / ascent.max_steps),
            )
        self.history_ = fit.history
        self.class_log_prior_ = fit.logits
        self.models_ = [
            Model(network, provenance={**own.provenance, "mode": "discriminative"})
            for network, own in zip(fit.networks, self.models_, strict=True)
        ]

    def predict_log_proba(self, X: Any, **reading: Unpack[Reading]) -> Floats:
        """Log P(class | sequence), (sequences, classes).

        A sequence that is impossible in every class has the prior of the classes, with a warning.
        """
        check_is_fitted(self, "models_")
        data = self._read_for_query(X, self.schema_, "X", reading)
        found = steps.class_likelihoods([model.compiled for model in self.models_], data)
        nowhere = np.flatnonzero(np.all(found[0] == -np.inf, axis=1))
        if nowhere.size:
            warn(
                f"{nowhere.size} sequences have probability zero in every class, the first of them "
                f"sequence {nowhere[0]}; only the frequencies of the classes speak for them.",
                ImpossibleEvidenceWarning,
            )
        return steps.class_posteriors(found, self.class_log_prior_)

    def predict_proba(self, X: Any, **reading: Unpack[Reading]) -> Floats:
        """P(class | sequence), (sequences, classes)."""
        return np.exp(self.predict_log_proba(X, **reading))

    def predict(self, X: Any, **reading: Unpack[Reading]) -> NDArray[Any]:
        """The most probable class of each sequence."""
        best = self.predict_log_proba(X, **reading).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def score(self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Reading]) -> float:
        """Share of the sequences whose class is predicted; `y` as for `fit`."""
        check_is_fitted(self, "models_")
        data = self._read_for_query(X, self.schema_, "X", reading)
        predicted = self.predict(data)
        return float(accuracy_score(_by_id(y, data), predicted, sample_weight=sample_weight))

    def save(self, path: Path, *, provenance: Mapping[str, Any] | None = None) -> None:
        """Writes the models of all classes to one file, which `load` reads."""
        check_is_fitted(self, "models_")
        classes, models = self.classes_.tolist(), [(m.mixture, m.provenance) for m in self.models_]
        online = [model.online for model in self.models_]
        if self._remembered():
            keys = {"sequence": None, "order": None, **self._remembered()}
            provenance = {TABLE: keys, **(provenance or {})}
        logits = self.class_log_prior_
        save_classifier(path, classes, logits, models, provenance=provenance, online=online)

    @classmethod
    def load(cls, path: Path, *, families: Families = ()) -> Self:
        """The classifier in a file: it predicts as the one that was saved.

        What has learned the models is not kept, so `estimators_` is empty and a second `fit` is one
        with the usual options. `feature_names_in_` are the names of the variables, unless these are
        x0, x1, ... `families` are leaf families of your own; see `dspn.load`.
        """
        return cls._from_file(load_classifier(path, families=families))

    @classmethod
    def _from_file(cls, found: LoadedClassifier) -> Self:
        own = cls()
        own.classes_, own.class_log_prior_ = np.array(found.classes), found.logits
        own.models_ = [
            Model(one.mixture, provenance=dict(one.provenance), online=one.online)
            for one in found.models
        ]
        own.schema_, own.estimators_, own.history_ = own.models_[0].schema, [], ()
        own.ending_ = None
        own.provenance_ = found.provenance
        own._remember_columns(own.schema_)
        table = found.provenance.get(TABLE)
        told = table.items() if isinstance(table, dict) else ()
        own._reading = {name: value for name, value in told if isinstance(value, str)}
        return own


def _by_id(y: Any, data: Sequences) -> Any:
    """Labels in the order of the sequences, where an index says by their ids which are whose."""
    names = getattr(y, "index", None)
    if data.ids is None or names is None or callable(names) or not hasattr(y, "reindex"):
        return y
    own, known = list(map(str, names)), list(map(str, data.ids))
    is_counted = type(names).__name__ == "RangeIndex"
    if is_counted or own == known or len(set(own)) < len(own) or set(own) != set(known):
        return y
    place = {name: i for i, name in enumerate(own)}
    return y.iloc[[place[name] for name in known]]


def _checked_labels(y: Any, num_sequences: int) -> NDArray[Any]:
    """One label for each sequence, none of them missing."""
    labels = column_or_1d(y, warn=True)
    if labels.size != num_sequences:
        raise DataError(
            f"`y` must have a label for each of the {num_sequences} sequences, but has "
            f"{labels.size}."
        )
    missing = [
        index
        for index, label in enumerate(labels.tolist())
        if label is None or (isinstance(label, float) and not np.isfinite(label))
    ]
    if missing:
        others = f", as are {len(missing) - 1} others" if len(missing) > 1 else ""
        raise DataError(
            f"`y` must have no missing labels, but entry {missing[0]} is "
            f"{labels.tolist()[missing[0]]!r}{others}; leave these sequences out."
        )
    check_classification_targets(labels)
    return np.asarray(labels)


def _coded_labels(labels: NDArray[Any], weights: Floats | None) -> tuple[NDArray[Any], Ints]:
    """The classes that have any weight, at least two, and the number of each label's class.

    Labels of other classes, whose sequences do not count, are numbered -1.
    """
    counted = labels if weights is None else labels[weights > 0]
    classes = np.unique(counted)
    if classes.size < 2:
        raise DataError(
            f"`y` must have at least two classes, but every sequence that counts is of the class "
            f"{classes.tolist()[0]!r}; a model of one class is an `HMM` or a `DSPN`."
        )
    place = np.minimum(np.searchsorted(classes, labels), classes.size - 1)
    return classes, np.where(classes[place] == labels, place, -1)


def _with_common_priors(base: SequenceEstimator, data: Sequences) -> SequenceEstimator:
    """The estimator, with an observation of the data of all classes in each leaf of numbers.

    The usual prior and the narrowest leaf follow the data that are learned from. Within a class a
    variable may hardly vary, and leaves as narrow as that rule the class out for one other value.
    Priors of leaves that are given stay. Learners that divide the variables choose their own.
    """
    priors = base.priors or DEFAULT_PRIORS
    divides = isinstance(base, DSPN) and not isinstance(base._options(), Em | Paper)
    if divides or priors.leaves or priors.by_variable:
        return base
    count = 1.0 if priors.leaf_pseudo_count is None else priors.leaf_pseudo_count
    own: list[Any] = []
    for variable, values in zip(data.schema, data.values.T, strict=True):
        prior: Any = None
        if variable.kind != Kind.CATEGORICAL and not sources_of(variable):
            prior = family_for(variable, values).default_prior
            prior = replace(prior, pseudo_count=count)
        own.append(prior)
    scaled: SequenceEstimator = clone(base)
    return scaled.set_params(priors=replace(priors, by_variable=tuple(own)))


def _class_seed(seed: int, code: int) -> int:
    """The seed of the model of a class."""
    return int(np.random.SeedSequence([seed, code]).generate_state(1)[0])


def _checked_classes(classes: Any, known: NDArray[Any] | None) -> NDArray[Any]:
    """The classes of a stream: given at the first call, and the same ever after."""
    if classes is None:
        if known is None:
            raise DataError(
                "`classes` must be given at the first call of `partial_fit`, as one batch need not "
                "tell all of them; give the list of all classes."
            )
        return known
    given = np.unique(column_or_1d(classes))
    if known is not None and not np.array_equal(given, known):
        raise DataError(
            f"`classes` must be those of the first call, {known.tolist()}, but is "
            f"{given.tolist()}; leave it out, or begin a new classifier."
        )
    if given.size < 2:
        raise DataError(
            f"`classes` must name at least two classes, but is {given.tolist()}; a model of one "
            "class is an `HMM` or a `DSPN`."
        )
    return given


def _codes_of(labels: NDArray[Any], classes: NDArray[Any]) -> Ints:
    """The number of each label's class; raises for a label of no class."""
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise DataError(
            f"`y` must have the classes {classes.tolist()} only, but has "
            f"{labels[unknown].tolist()[0]!r}; `classes` of the first call names all that may "
            "occur."
        )
    return np.searchsorted(classes, labels)


def _labelled(validation: Any, schema: Schema, classes: NDArray[Any]) -> tuple[Sequences, Ints]:
    """The pair (X, y) of a validation set, its labels as numbers of classes."""
    if not (isinstance(validation, tuple) and len(validation) == 2):
        raise DataError(
            "`validation` must be a pair (X, y) of sequences and their labels, but is a "
            f"{type(validation).__name__}; write validation=(X, y)."
        )
    data = sequences_of(validation[0], schema, "validation")
    labels = _checked_labels(validation[1], len(data))
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise DataError(
            f"`validation` must have the classes of `y`, {classes.tolist()}, but has "
            f"{labels[unknown].tolist()[0]!r}; leave these sequences out."
        )
    absent = classes[~np.isin(classes, labels)]
    if absent.size:
        raise DataError(
            f"`validation` must have sequences of every class, but has none of "
            f"{absent.tolist()[0]!r}; add some, or leave `validation` out."
        )
    return data, np.searchsorted(classes, labels)


def _together(parts: Sequence[tuple[Sequences, Floats | None]]) -> steps.LabelledSequences:
    """The sequences of all classes; `parts[c]` are those of class c, and how often each counts."""
    weights = [np.ones(len(data)) if own is None else own for data, own in parts]
    labels = np.repeat(np.arange(len(parts)), [*map(len, weights)])
    return steps.LabelledSequences(
        joined([data for data, _ in parts]), labels, np.concatenate(weights)
    )

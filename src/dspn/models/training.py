"""What estimators learn from: how data are read, checked and divided, and what EM makes of them."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeGuard, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import validate_data

from dspn._arguments import Bools, Floats, require_type, sequence_weights, whole_number
from dspn.data.coding import INFERRED
from dspn.data.layout import Ragged
from dspn.data.proposals import is_doubtful, rises
from dspn.data.schema import Kind, Schema
from dspn.data.sequences import Sequences, drawn_places, joined, sequences_of
from dspn.engine.base import TimeUpError
from dspn.errors import (
    ConvergenceWarning,
    DataError,
    warn,
)
from dspn.learning.em import EmFit, fit_em
from dspn.learning.learner import DEFAULT_PLAN
from dspn.learning.priors import Priors
from dspn.learning.run import Clock, limited
from dspn.learning.scores import StopReason
from dspn.leaves.told import sources_of
from dspn.models.forms import (
    Reading,
    is_frame,
    read_form,
    show_arguments,
    told_keys,
)
from dspn.options import require_number
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork

if TYPE_CHECKING:
    from dspn.data.dataset import Dataset

GRACE: Final = 0.1
"""The share of a time limit that a last pass over the data may take after it."""
_LARGEST_NUMBER: Final = 1e150
_LARGEST_SEED: Final = 2**32
_MOST_NAMED: Final = 5


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """The training set, the validation set where there is one, and the seed of all randomness.

    `weights` says how often each training sequence counts, None where all count once. A validation
    set that was held out of the training data is learned from in the end, as `held_weights` say;
    one that was given is not. `is_sample` says that all shards of a data set are learned from
    afterwards. `clock` counts from the beginning of the fit.
    """

    train: Sequences
    validation: Sequences | None
    weights: Floats | None
    seed: int
    is_held_out: bool = False
    held_weights: Floats | None = None
    is_sample: bool = False
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def split(
        cls,
        data: Sequences,
        weights: Floats | None,
        validation: Sequences | None,
        fraction: float,
        seed: int,
    ) -> "TrainingData":
        """The sequences that count, and those that choose: as given, or held out at random.

        Held out is a share `fraction`, but at least one sequence and never all. A single sequence
        is its own validation set.
        """
        require_number("an estimator", "validation_fraction", fraction, least=0, below=1)
        if weights is not None and not weights.all():
            counted = np.flatnonzero(weights)
            data, weights = data[counted], weights[counted]
        if weights is not None and np.all(weights == 1):
            weights = None
        if validation is not None or fraction == 0:
            return cls(data, validation, weights, seed)
        size = len(data)
        if size == 1:
            return cls(data, data, weights, seed)
        order = np.random.default_rng([seed, 0]).permutation(size)
        held = min(max(1, round(fraction * size)), size - 1)
        chosen, rest = np.sort(order[:held]), np.sort(order[held:])
        if weights is None:
            return cls(data[rest], data[chosen], None, seed, True)
        return cls(data[rest], data[chosen], weights[rest], seed, True, weights[chosen])

    def whole(self) -> tuple[Sequences, Floats | None]:
        """All sequences to learn from in the end, and their weights."""
        if self.validation is None or not self.is_held_out:
            return self.train, self.weights
        data = joined([self.train, self.validation])
        if self.weights is None or self.held_weights is None:
            return data, None
        return data, np.concatenate([self.weights, self.held_weights])

    def sampled(self, num_slices: int, clock: Clock) -> "TrainingData":
        """Some of the sequences of either set, of about as many slices, and another clock."""
        rows = drawn_places(self.train, num_slices, self.rng(3))
        held = self.validation
        return replace(
            self,
            train=self.train[rows],
            weights=None if self.weights is None else self.weights[rows],
            validation=None if held is None else held[drawn_places(held, num_slices, self.rng(4))],
            clock=clock,
        )

    def rng(self, *part: int) -> np.random.Generator:
        """The randomness of one part of the work, whatever the others draw."""
        return np.random.default_rng([self.seed, *part])


class Outcome(NamedTuple):
    """What an estimator has learned: a model, its score where others chose it, and how it went.

    `score` is in nats per sequence, on the validation set and before that was learned from; None
    without a validation set.
    """

    network: DynamicNetwork | Mixture
    score: float | None
    history: tuple[Any, ...]
    ending: StrEnum


def outcome_of_em(fit: EmFit, data: TrainingData, priors: Priors, *, refit: bool) -> Outcome:
    """The result of EM, trained once more with what was held out; warns if it ended early."""
    steps = fit.history[-1].step
    if fit.stopped is StopReason.MAX_STEPS and steps:
        warn(
            f"expectation maximisation ended after {steps} steps and was still gaining; the model "
            "can be used, and more `max_steps` may make it better.",
            ConvergenceWarning,
        )
    if fit.stopped is StopReason.DEADLINE:
        warn_of_time(data, f"expectation maximisation after {steps} steps")
    network, options = fit.network, DEFAULT_PLAN.refit
    if fit.stopped is StopReason.INTERRUPTED:
        warn(
            f"expectation maximisation was interrupted after {steps} steps; the model is the best "
            "so far.",
            ConvergenceWarning,
        )
        refit = False
    stopped = fit.stopped
    if refit and data.is_held_out and options is not None and fit.score > -np.inf:
        whole, weights = data.whole()
        clock = data.clock.grace(2 * GRACE, whole)
        settings: Any = {"sample_weights": weights, "deadline": clock.is_due}
        try:
            with suppress(TimeUpError), limited(clock, whole):
                network = fit_em(network, whole, options=options, priors=priors, **settings).network
        except KeyboardInterrupt:  # the model before it is there
            stopped = StopReason.INTERRUPTED
    score = None if data.validation is None else fit.score
    return Outcome(network, score, fit.history, stopped)


def warn_of_time(data: TrainingData, what: str) -> None:
    """Says that a time limit ended learning too early."""
    warn(
        f"`time_limit={data.clock.limit:g}` ended {what}; the model can be used, and more time may "
        f"make it better (there are {data.train.total_slices:,} slices of "
        f"{data.train.num_variables} variables to learn from).",
        ConvergenceWarning,
    )


def seed_of(random_state: Any) -> int:
    """The seed that `random_state` stands for, as scikit-learn takes it, or a NumPy generator.

    A whole number is the seed itself; anything else is asked for one.
    """
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_LARGEST_SEED))
    if random_state is None or isinstance(random_state, np.random.RandomState):
        source = check_random_state(random_state)
        return int(source.randint(0, _LARGEST_SEED, dtype=np.uint32))
    return whole_number(random_state, "random_state", DataError, least=0)


def rng_of(random_state: Any) -> np.random.Generator:
    """The generator that draws are made with: the one given, or one with the seed of the rest."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(seed_of(random_state))


class SequenceReader(BaseEstimator):
    """An estimator that takes sequences with gaps, numbers and text, in any of several forms.

    `X` is a `Sequences`, a list of (T_i, n) arrays, an (N, T, n) array, or an array of rows. With
    `lengths` an array of rows holds as many sequences; without, it is a single one, or each row is
    one where `_ROWS_ARE_SEQUENCES`.
    """

    n_features_in_: int
    feature_names_in_: NDArray[Any]

    _ROWS_ARE_SEQUENCES: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        show_arguments(cls)  # before scikit-learn looks at them
        super().__init_subclass__(**kwargs)

    def _read_for_fit(
        self,
        X: Any,
        schema: Schema | None,
        sample_weight: Any,
        reading: Reading,
        inputs: Any = None,
    ) -> tuple[Sequences, Floats | None]:
        """The sequences of X, whose columns are remembered, and how often each counts."""
        if schema is not None:
            require_type(schema, Schema, "schema", DataError)
        lengths, told = reading.get("lengths"), told_keys(reading)
        self._reading = {name: str(own) for name, own in told.items() if name != "kinds"}
        # A frame without keys is one of samples where rows are sequences.
        if reading.keys() - {"lengths"} or not (self._ROWS_ARE_SEQUENCES and is_frame(X)):
            X, inputs = read_form(X, schema, reading, {}, inputs)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if lengths is not None or _is_matrix(X):
            matrix = self._matrix(X, lengths, reset=True)
            names = getattr(self, "feature_names_in_", None)
            if schema is not None and names is not None and tuple(names.tolist()) != schema.names:
                raise DataError(
                    f"`X` must have the columns of the schema in its order, {list(schema.names)}, "
                    f"but has {names.tolist()}; select them by name, or give an array without "
                    "names."
                )
            data = self._cut(matrix, lengths, schema, names, inputs)
        else:
            if not isinstance(X, Sequences):
                data = Sequences.from_arrays(X, schema=schema, inputs=inputs, argument="X")
            elif schema is None and inputs is not None:
                raise DataError(
                    "`inputs` must be left out where X is a Sequences, which has its own; give "
                    "them when the data are read."
                )
            else:
                data = X if schema is None else sequences_of(X, schema, "X", inputs)
            self._remember_columns(data.schema)
        _refuse_impossible_values(data)
        warn_of_idle_variables(data)
        _warn_of_guesses(data)
        if told or data.inference_notes:
            _warn_of_steps(data, told.get("dates"))
        if sample_weight is None:
            return data, None
        return data, sequence_weights(sample_weight, "sample_weight", DataError, len(data))

    def _read_for_query(
        self, X: Any, schema: Schema, argument: str, reading: Reading, inputs: Any = None
    ) -> Sequences:
        """The sequences of X, of the variables that were fitted."""
        lengths, known = reading.get("lengths"), self._remembered()
        told = reading.keys() - {"lengths"}
        if told or known or not (self._ROWS_ARE_SEQUENCES and is_frame(X)):
            X, inputs = read_form(X, schema, reading, known, inputs)
        if lengths is not None or _is_matrix(X):
            return self._cut(self._matrix(X, lengths, reset=False), lengths, schema, None, inputs)
        return sequences_of(X, schema, argument, inputs)

    def _remembered(self) -> Mapping[str, Any]:
        """How the data were read that were learned from."""
        return getattr(self, "_reading", {})

    def _remember_columns(self, schema: Schema) -> None:
        """Sets what scikit-learn knows of columns: how many, and their names unless x0, x1, ..."""
        self.n_features_in_ = len(schema)
        if schema.names != tuple(f"x{i}" for i in range(len(schema))):
            self.feature_names_in_ = np.array(schema.names, dtype=object)

    def _matrix(self, X: Any, lengths: Any, *, reset: bool) -> Any:
        """One array of rows, after scikit-learn's checks of its shape and its columns' names."""
        wrong = ""
        if isinstance(X, Sequences):
            wrong = "a Sequences, which knows its own"
        elif lengths is not None and isinstance(X, list | tuple) and np.ndim(X[0] if X else 0) == 2:
            wrong = "a list of sequences; give them with one array of all rows only"
        if wrong:
            raise DataError(f"`lengths` must be left out where X is {wrong}.")
        if len(getattr(X, "shape", ())) == 1:
            rows = "X.reshape(-1, 1)" if lengths is not None else "[X] for one sequence"
            raise DataError(
                "`X` must be sequences of slices, each with a value for every variable, but has "
                f"shape {X.shape}. Reshape your data: of a single variable it is {rows}."
            )
        if isinstance(X, np.ma.MaskedArray):  # scikit-learn would bring back masked values
            X, masked = np.ma.getdata(X).astype(object), np.ma.getmaskarray(X)
            X[masked] = None
        if hasattr(X, "select_dtypes"):
            # scikit-learn turns a frame with nullable numbers into floats, unless it has columns of
            # objects, so that the text of categories has to take their place.
            categories = X.select_dtypes("category").items()
            words = [n for n, own in categories if own.cat.categories.dtype.kind not in "biuf"]
            X = X.astype(dict.fromkeys(words, object)) if words else X
        return validate_data(
            self, X, reset=reset, dtype=None, ensure_all_finite=False, accept_sparse=False
        )

    def _cut(
        self, rows: Any, lengths: Any, schema: Schema | None, names: Any, inputs: Any = None
    ) -> Sequences:
        if lengths is None:
            num_rows = len(rows)
            lengths = np.ones(num_rows, np.int64) if self._ROWS_ARE_SEQUENCES else [num_rows]
        return Sequences.from_concatenated(rows, lengths, schema=schema, names=names, inputs=inputs)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        for name in ("allow_nan", "string", "categorical", "three_d_array"):
            setattr(tags.input_tags, name, True)
        return tags


def is_shards(X: Any) -> "TypeGuard[Dataset]":
    """Whether X is a data set in shards."""
    # Arrow is loaded with the class, which takes long, and is not on every machine.
    module = sys.modules.get("dspn.data.dataset")
    return module is not None and isinstance(X, module.Dataset)


def _is_matrix(X: Any) -> bool:
    """Whether X is one table of numbers, as opposed to a list of sequences."""
    if isinstance(X, list | tuple | Sequences):
        return False
    shape = getattr(X, "shape", None)
    if shape is None and hasattr(X, "__array__"):
        shape = np.shape(np.asarray(X))
    return shape is not None and len(shape) != 3


def _refuse_impossible_values(data: Sequences) -> None:
    """Raises where a value is outside the support of the leaf family that its variable names.

    The usual leaves of numbers cannot be learned from values whose squares are out of range.
    """
    for column, variable in enumerate(data.schema):
        values, named = data.values[:, column], variable.leaf is not None
        if named and not sources_of(variable):
            wrong = ~np.isnan(values) & (variable.leaf.statistics(values)[:, 0] == 0)
            rule = f"values that its leaf family {variable.leaf.name!r} can have"
            remedy = "mark such values as missing, or take another family"
        else:
            wrong = np.abs(values) > _LARGEST_NUMBER
            rule = f"numbers up to {_LARGEST_NUMBER:g} to be learned"
            remedy = "correct it, or divide all values by one number"
        if wrong.any():
            row = int(np.argmax(wrong))
            place = Ragged(data.offsets, data.ids).place(row)
            more = f", and {int(wrong.sum()) - 1:,} more" if wrong.sum() > 1 else ""
            raise DataError(
                f"variable {variable.name!r} must hold {rule}, but is "
                f"{values[row]:g} in {place}{more}; {remedy}."
            )


def warn_of_idle_variables(data: Sequences) -> None:
    """Names the variables that say nothing: never observed, or the same in every slice."""
    # fmin and fmax leave NaN where there is nothing but NaN.
    low, high = (np.asarray(f.reduce(data.values)) for f in (np.fmin, np.fmax))
    for mask, what in (
        (
            np.isnan(low),
            "have no observed value, so that nothing is learned of them; leave them out, as what "
            "is scored or filled in of them is the prior",
        ),
        (low == high, "have the same value wherever they are observed and are learned as constant"),
    ):
        if mask.any():
            names = np.array(data.schema.names, dtype=object)[mask].tolist()
            warn(f"variables {listed(names)} {what}.", UserWarning)


def _warn_of_guesses(data: Sequences) -> None:
    """Names the variables that may be of another kind than was inferred, or the order."""
    noted = zip(data.schema, data.values.T, data.inference_notes, strict=False)
    guessed = [(variable, values) for variable, values, note in noted if INFERRED in note]
    for kind, other, what in (
        (Kind.CATEGORICAL, "count", "categories and are spread as counts are; if they count"),
        (Kind.COUNT, "categorical", "counts and are not spread as counts are; if they are labels"),
    ):
        names = [
            own.name for own, values in guessed if own.kind is kind and is_doubtful(own, values)
        ]
        if names:
            said = dict.fromkeys(names[:_MOST_NAMED], other)
            warn(
                f"variables {listed(names)} have whole numbers, which are taken as {what}, say "
                f"kinds={said} (of arrays, in a `schema`), else {str(kind)!r}.",
                UserWarning,
            )
    if data.table_keys is None or data.table_keys.order is not None:
        return
    owners = np.repeat(np.arange(len(data)), data.lengths)
    for own, values in guessed:
        if rises(values, owners):
            warn(
                f"variable {own.name!r} rises from row to row; if it has times or counts the rows, "
                f"say order={own.name!r}, else say its kind in `kinds`.",
                UserWarning,
            )


def _warn_of_steps(data: Sequences, dates: str | None) -> None:
    """Says where the steps of the order column of a table are not all equal."""
    keys = data.table_keys
    if keys is not None and keys.order is not None and keys.order_values is not None:
        from dspn.data.times import steps_of  # loads Arrow, as the table has done

        steps = steps_of(keys.order_values, data.offsets, dates)
        if steps is not None and steps.uneven is not None:
            warn(steps.advice(keys.order, f"every={steps.every!r}"), UserWarning)


def warn_of_short(data: Sequences, lag: int) -> None:
    """Says where lags reach behind the beginning of most slices."""
    short = int(np.sum(data.lengths <= lag))
    if short == len(data):
        raise DataError(
            f"`lags` must be less than the length of some sequence, but leaves look back {lag} "
            f"slices and the longest sequence has {int(data.lengths.max())}: nothing could be "
            "learned of the lags. Use fewer, or longer sequences."
        )
    if 2 * short > len(data):
        warn(
            f"{short} of {len(data)} sequences are not longer than the {lag} slices that leaves "
            "look back; these sequences do without lags.",
            UserWarning,
        )


def warn_of_unseen_categories(train: Sequences, validation: Sequences) -> None:
    """Names the categories that occur in the validation set but never in training."""

    def seen(data: Sequences, column: int, size: int) -> Bools:
        values = data.values[:, column]
        codes = values[~np.isnan(values)].astype(np.int64)
        return np.asarray(np.bincount(codes, minlength=size) > 0)

    unseen = []
    for column, variable in enumerate(train.schema):
        if size := variable.num_categories:
            new = np.flatnonzero(seen(validation, column, size) & ~seen(train, column, size))
            if new.size:
                unseen.append(f"{variable.name!r}: {[variable.categories[code] for code in new]}")
    if unseen:
        warn(
            f"`validation` has categories that never occur in training ({listed(unseen)}); only "
            "the priors speak for them.",
            UserWarning,
        )


def listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more

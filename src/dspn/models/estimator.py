"""What all estimators of sequences have in common: how they learn, and what they remember."""

import math
import sys
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack, final

import numpy as np
from sklearn.utils import Tags, TransformerTags
from sklearn.utils.validation import check_is_fitted

from dspn._arguments import Floats, Ints, require_type, sequence_weights
from dspn._version import __version__
from dspn.atomic import path_text
from dspn.data.inputs import Rule
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences, data_fingerprint, sequences_of
from dspn.engine.base import Program, TimeUpError
from dspn.errors import (
    ConvergenceWarning,
    DataError,
    EvidenceError,
    ModelFileError,
    StructureError,
    warn,
)
from dspn.executors import Executor, executor_of
from dspn.io.codec import LoadedMixture
from dspn.io.files import Path, load_mixture, save_mixture
from dspn.io.json_values import JSON
from dspn.learning.auto.base import Auto
from dspn.learning.em import DeadNode, EmOptions, dead_nodes
from dspn.learning.families import FamilyChoice, choose_families
from dspn.learning.lags import TriedLags, choose_lags
from dspn.learning.online import OnlineOptions, OnlineRecord, OnlineState, OnlineUpdate
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.run import Clock, Ending, describe_options, limited
from dspn.learning.scores import ConditionalLikelihood, FitRecord, Likelihood, StopReason
from dspn.learning.shards import fit_shards, hold_out
from dspn.learning.slice_spn import SliceSpnOptions
from dspn.learning.unlagged import learn_unlagged
from dspn.leaves import Families
from dspn.leaves.block import with_blocks
from dspn.leaves.told import has_lags, longest_lag, sources_of, with_context
from dspn.models.forms import (
    TABLE,
    Given,
    Reading,
    as_given,
    check_unused_labels,
)
from dspn.models.model import FITTED, Model, Queries
from dspn.models.online import TRAINED_ON, with_batch, with_state
from dspn.models.training import (
    GRACE,
    Outcome,
    SequenceReader,
    is_shards,
    listed,
    rng_of,
    seed_of,
    warn_of_idle_variables,
    warn_of_short,
    warn_of_unseen_categories,
)
from dspn.models.training import (
    TrainingData as TrainingData,
)
from dspn.options import Checked, Options
from dspn.progress import share_text
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork

if TYPE_CHECKING:
    from dspn.data.dataset import Dataset

# What a model file holds elsewhere, or what belongs to the machine.
_NOT_RECORDED: Final = {
    "schema",
    "random_state",
    "checkpoint",
    "resume",
    "n_jobs",
    "verbose",
    "executor",
}
# Slices of a data set in shards that structure and starting parameters are learned from.
_SAMPLED_SLICES: Final = 200_000
# What some parameters have to be, where they are given.
_PARTS: Final = {
    "em": EmOptions,
    "emission": SliceSpnOptions,
    "online": OnlineOptions,
    "priors": Priors,
}
# How an option that a file describes fails to be one.
_NOT_MADE: Final = (AttributeError, KeyError, TypeError, ValueError, ArithmeticError)
_ENDINGS: Final = {str(ending): ending for kind in (StopReason, Ending) for ending in kind}


@dataclass(eq=False, repr=False)
class SequenceEstimator(Queries, SequenceReader):
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
        batches_: What each batch of `partial_fit` did.
        families_: What `families="auto"` has compared and chosen for each variable.
        lags_: What `lags="auto"` has tried, what it was worth, and what was used.
    """

    _: KW_ONLY
    priors: Priors | None = None
    schema: Schema | None = None
    validation_fraction: float = 0.1
    refit: bool = True
    random_state: Any = None
    executor: Executor | str | None = None
    online: OnlineOptions | None = None
    lags: int | Sequence[int] | str = 0
    lags_of: str = "own"
    within: bool = False
    leaf_inputs: bool = False
    covariance: Any = "diag"
    families: str | None = None

    # Attributes of a kind of estimator that its file keeps.
    _KEPT: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _check(self, data: TrainingData) -> None:
        """Raises where options are out of range or do not go together, before any work."""

    @abstractmethod
    def _learned(self, data: TrainingData) -> Outcome:
        """The model of the data."""

    @classmethod
    def _current_parameters(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters that a file tells of, by the names they have now."""
        return parameters

    @property
    def network_(self) -> DynamicNetwork:
        """The network that was learned, where it is one."""
        return self.model_.network

    @property
    def mixture_(self) -> Mixture:
        """The mixture that was learned; of one component where it is one network."""
        return self.model_.mixture

    @property
    def schema_(self) -> Schema:
        """The variables of a slice."""
        return self.model_.schema

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Whatever else `model_` knows, such as `provenance` and `components`."""
            if not name.startswith("_") and "model_" in vars(self):
                with suppress(AttributeError):
                    return getattr(self.model_, name)
            return super().__getattr__(name)

    def _compiled(self) -> Program:
        check_is_fitted(self, "model_")
        return self.model_.compiled

    def _read(
        self, X: Any, argument: str = "X", /, *, inputs: Any = None, **reading: Unpack[Reading]
    ) -> Sequences:
        check_is_fitted(self, "model_")
        return self._read_for_query(X, self.model_.schema, argument, reading, inputs)

    def _remembered(self) -> Mapping[str, Any]:
        told = self.model_.provenance.get(TABLE) if "model_" in vars(self) else None
        return told if isinstance(told, dict) else {}

    def transform(self, X: Any, **given: Unpack[Given]) -> Any:
        """X with its missing entries filled in as `impute` does, in the form that X has."""
        filled = self.impute(X, **given)
        return as_given(filled, X, given.get("layout") or self._remembered().get("layout"))

    def fit_transform(self, X: Any, y: Any = None, **how: Any) -> Any:
        """`fit`, and then `transform` of the same data."""
        self.fit(X, y, **how)
        known = how.keys() & Given.__annotations__
        return self.transform(X, **{name: how[name] for name in known})

    def sample(
        self,
        n_samples: int,
        length: int | Sequence[int] | Ints,
        *,
        inputs: Any = None,
        random_state: Any = None,
    ) -> Sequences:
        """Draws of whole sequences; `length` is one number, or one for each sequence.

        `inputs` has a row for each slice, of the inputs that no rule computes.
        """
        check_is_fitted(self, "model_")
        return self.model_.sample(n_samples, length, inputs=inputs, rng=rng_of(random_state))

    def sample_given(
        self, X: Any, *, random_state: Any = None, **given: Unpack[Given]
    ) -> Sequences:
        """Missing entries drawn jointly, given the observed ones."""
        data = self._read(X, **given)
        return self.model_.sample_given(data, rng=rng_of(random_state))

    def sample_futures(
        self,
        X: Any,
        steps: int,
        *,
        inputs: Any = None,
        random_state: Any = None,
        **reading: Unpack[Reading],
    ) -> Sequences:
        """One drawn continuation of each sequence; `inputs` as for `forecast`."""
        data, rng = self._read(X, **reading), rng_of(random_state)
        return self.model_.sample_futures(data, steps, inputs=inputs, rng=rng)

    def set_params(self, **params: Any) -> Self:
        """Sets parameters; those of options within as `name__field`, as scikit-learn has it."""
        for path in list(params):
            name, _, rest = path.partition("__")
            options = getattr(self, name, None) if rest else None
            if isinstance(options, Options):
                setattr(self, name, options.with_params(**{rest: params.pop(path)}))
        super().set_params(**params)
        return self

    @final
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        validation: Any = None,
        **given: Unpack[Given],
    ) -> Self:
        """Learns a model of the sequences.

        Of a `Dataset` in shards, structure and a first model are learned from a sample of some
        200,000 slices that fits into memory, then all parameters from all sequences, shard by
        shard; `provenance` says so. What is held out, at most 200,000 slices, is not learned from.

        Args:
            X: The sequences, or a `Dataset`.
            y: Not used; there for scikit-learn.
            lengths: Slices of each sequence where X is one array of rows.
            inputs: What is given for every slice and not modelled, laid out as X is; where X is a
                `Sequences` it has them.
            sample_weight: How often each sequence counts; zero leaves it out.
            validation: Sequences that choose among models. Without them a share
                `validation_fraction` of X is held out. A single sequence is its own validation
                set; the automatic learner cuts it in time instead. In the end the model is trained
                once more with what was held out, unless `refit` is off.
            reading: For a data frame `sequence`, `order`, `kinds`, `every`, `duplicates` and
                `dates`, as in `Sequences.from_table`; for arrays `layout`. See `Reading`.
        """
        clock, inputs = Clock(getattr(self, "time_limit", None)), given.pop("inputs", None)
        reading: Reading = given
        if is_shards(X):
            others = (inputs, sample_weight, *reading.values())
            if any(own is not None for own in others):
                raise DataError(
                    "`lengths`, `inputs`, `sample_weight` and how tables are read must be left out "
                    "with a Dataset; inputs are prepared with it (`prepare(inputs=)`)."
                )
            if self.families is not None:
                raise DataError(
                    "`families` must be left out with a Dataset, whose leaves are usual."
                )
            return self._fit_dataset(X, validation, clock)
        data, weights = self._read_for_fit(X, self.schema, sample_weight, reading, inputs)
        check_unused_labels(y, data)
        data = self._with_rule(data)
        held = None
        if validation is not None:
            how: Reading = {**reading, "lengths": None}
            held = self._read_for_query(validation, data.schema, "validation", how)
            warn_of_unseen_categories(data, held)
        self._fit_read(data, weights, held, clock)
        return self._remember_table()

    def _remember_table(self) -> Self:
        """Notes in the model how the data were read."""
        if self._reading:
            self.model_.provenance[TABLE] = {"sequence": None, "order": None, **self._reading}
        return self

    def _with_rule(self, data: Sequences) -> Sequences:
        """The data, with the input of `by` where that is a rule that they do not have."""
        by = getattr(self, "by", None)
        if not isinstance(by, Rule) or by in [own.rule for own in data.schema.inputs]:
            return data
        return data.with_rule(by)

    def _fit_read(
        self, data: Sequences, weights: Floats | None, held: Sequences | None, clock: Clock
    ) -> Self:
        """Learns from data that are read."""
        if held is None and len(data) == 1 and self.validation_fraction and not self._divides():
            warn(
                "there is a single sequence, so that none can be held out: it is its own "
                "validation set, and nothing keeps the model from fitting it too closely. Cut it "
                "into several sequences (`Sequences.from_table` reads a table that has more than "
                "one), give `validation`, or set `validation_fraction=0`.",
                ConvergenceWarning,
            )
        seed, fraction = seed_of(self.random_state), self.validation_fraction
        parts = TrainingData.split(data, weights, held, fraction, seed)
        return self._fit_parts(replace(parts, clock=clock))

    def _executor(self) -> Executor:
        """Who works on shards, and on models that are trained side by side."""
        return executor_of(self.executor or "processes", self._num_jobs())

    def _num_jobs(self) -> int:
        return 1

    @property
    def _is_verbose(self) -> bool:
        return bool(getattr(self, "verbose", 0))

    def _divides(self) -> bool:
        """Whether the learner itself divides a single sequence in time."""
        return False

    def _em_options(self) -> EmOptions:
        """When expectation maximisation on shards stops."""
        return getattr(self, "em", None) or EmOptions()

    def _with_context(self, parts: TrainingData) -> TrainingData:
        """The data with a schema whose leaves are told lags and inputs."""
        told: dict[str, Any] = {"within": self.within, "leaf_inputs": self.leaf_inputs}
        self.lags_: tuple[TriedLags, ...] = ()
        lags: Any = self.lags
        if isinstance(lags, str) and lags == "auto":
            told |= {"rng": parts.rng(8), "deadline": parts.clock.is_due}
            if (states := getattr(self, "n_states", None)) is not None:
                told["num_states"] = states
            schema, self.lags_ = choose_lags(parts.train, parts.validation, **told)
        else:
            own = parts.train.schema
            schema = with_context(own, lags=lags, lags_of=self.lags_of, **told)
        schema = with_blocks(schema, self.covariance)
        if schema == parts.train.schema:
            return parts
        if self.families is not None and any(map(sources_of, schema)):
            raise StructureError(
                "`families` must be left out where leaves are told lags or inputs, or have a "
                "covariance: the kind of a variable says what they do with these."
            )
        warn_of_short(parts.train, longest_lag(schema))
        held = parts.validation
        return replace(
            parts,
            train=sequences_of(parts.train, schema, "X"),
            validation=None if held is None else sequences_of(held, schema, "validation"),
        )

    @final
    def _with_families(self, parts: TrainingData) -> TrainingData:
        """The data with the leaf families that they choose, where `families` asks for that."""
        self.families_: tuple[FamilyChoice, ...] = ()
        if self.families is None:
            return parts
        if self.families != "auto":
            raise StructureError(
                f"`families` must be None or 'auto', but is {self.families!r}; name the family of "
                "a variable in the schema, as `Variable.continuous('x', leaf='student_t')`."
            )
        held = parts.validation
        schema, self.families_ = choose_families(parts.train, held, parts.rng(5))
        train = sequences_of(parts.train, schema, "X")
        if held is not None:
            held = train if held is parts.train else sequences_of(held, schema, "validation")
        return replace(parts, train=train, validation=held)

    @final
    def _fit_parts(self, parts: TrainingData) -> Self:
        """Learns from data that are read, checked and divided."""
        for name, value in self.get_params(deep=False).items():
            if name in _PARTS and value is not None:
                require_type(value, _PARTS[name], name, StructureError)
        parts = self._with_context(parts)
        self._check(parts)
        parts = self._with_families(parts)
        if parts.clock.limit is None:
            parts = replace(parts, clock=Clock(getattr(self, "time_limit", None)))
        # Before learning, so that it is within a time limit and not after it.
        sets = {"train": parts.train, "validation": parts.validation}
        known = {
            name: None if data is None else data_fingerprint(data).hex()
            for name, data in sets.items()
        }
        outcome = self._learned(parts)
        if has_lags(parts.train.schema):
            rng = parts.rng(6)
            unlagged = learn_unlagged(
                outcome.network, parts.train, self.priors or DEFAULT_PRIORS, rng
            )
            outcome = outcome._replace(network=unlagged)
        options, score = self.get_params(deep=False), outcome.score
        provenance: dict[str, JSON] = {
            "estimator": type(self).__name__,
            "parameters": {
                name: _plain(value) for name, value in options.items() if name not in _NOT_RECORDED
            },
            "seed": parts.seed,
            "data": known,
            TRAINED_ON: _sizes(parts, refit=self.refit),
            "validation_score": score if score is not None and math.isfinite(score) else None,
            "ending": str(outcome.ending),
            "dspn": __version__,
        }
        self.n_features_in_ = parts.train.num_variables
        self.validation_score_ = score
        self.history_ = outcome.history
        self.ending_: StrEnum | None = outcome.ending
        self.model_ = Model(outcome.network, provenance=provenance)
        # That pass runs where the model was learned.
        engine = getattr(self, "engine", "cpu")
        there = self.model_ if engine == "cpu" else self.model_.to(engine)
        self.dead_ = dead_nodes_of(there, parts)
        self.batches_: tuple[OnlineRecord, ...] = ()
        return self

    @final
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        inputs: Any = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Learns from one more batch of sequences, without those that came before.

        The first call is a `fit` to its batch, which also fixes the variables: their kinds and
        categories are those of `schema`, or are inferred from this batch, and later batches must
        have the same. Every later call is a step of stepwise expectation maximisation, and adds
        interface nodes where the batch asks for them: see `OnlineOptions`, the parameter `online`.
        Whatever the number of batches, memory and time are those of one.

        After `fit`, or `dspn.load`, learning goes on from that model. One that was fitted to all
        data at once weighs as many sequences as it was fitted to.

        Args:
            X: The sequences of the batch.
            y: Not used; there for scikit-learn.
            lengths: Slices of each sequence where X is one array of rows.
            sample_weight: How often each sequence counts; zero leaves it out.
            inputs: What is given for every slice and not modelled; see `fit`.
            reading: How X is read; see `fit`.
        """
        if "model_" not in vars(self):
            data, weights = self._read_for_fit(X, self.schema, sample_weight, reading, inputs)
            check_unused_labels(y, data)
            return self._take(data, weights)._remember_table()
        data = self._read_for_query(X, self.model_.schema, "X", reading, inputs)
        check_unused_labels(y, data)
        weights = None
        if sample_weight is not None:
            weights = sequence_weights(sample_weight, "sample_weight", DataError, len(data))
        return self._take(data, weights)

    @final
    def _take(self, data: Sequences, weights: Floats | None) -> Self:
        """Learns from one more batch, or from the first, which is read."""
        if "model_" in vars(self):
            return self._continue(data, weights)
        self._fit_read(data, weights, None, Clock(getattr(self, "time_limit", None)))
        # The statistics of the batch, under the model that was fitted to it.
        state = OnlineState.of_data(self.model_.mixture, data, weights)
        size, seen = state.mixture.num_interfaces, state.num_sequences
        record = OnlineRecord(1, seen, 1.0, math.nan, state.score, False, 0, size)
        score = self.model_.provenance["validation_score"]
        self.model_ = with_state(self.model_, OnlineUpdate(state, record))
        self.model_.provenance["validation_score"] = score
        self.batches_ = (record,)
        return self

    @final
    def _continue(self, data: Sequences, weights: Floats | None) -> Self:
        """Learns from one more batch."""
        options: Any = {"options": self.online, "priors": self.priors}
        self.model_, record = with_batch(self.model_, data, weights=weights, **options)
        self.validation_score_ = None
        self.batches_ = (*self.batches_, record)
        self.dead_ = ()
        if len(self.model_.components) == 1:
            state = OnlineState.from_arrays(self.model_.mixture, self.model_.online)
            self.dead_ = dead_nodes(self.model_.network, state.statistics[0])
        return self

    @final
    def _fit_dataset(self, data: "Dataset", validation: Any, clock: Clock) -> Self:
        """Learns from a sample of the data set, and then from all of it."""
        seed, executor = seed_of(self.random_state), self._executor()
        rest, held = data, None
        if validation is None:
            rest, held = hold_out(data, self.validation_fraction, seed, executor)
        sample = rest.sample(_SAMPLED_SLICES, seed)
        if self.schema is not None:
            sample = sequences_of(sample, self.schema, "X")
        sample = self._with_rule(sample)
        if validation is not None:
            held = self._read_for_query(validation, sample.schema, "validation", {})
        self._remember_columns(sample.schema)
        warn_of_idle_variables(sample)
        parts = TrainingData.split(sample, None, None, self.validation_fraction, seed)
        self._fit_parts(replace(parts, is_sample=True, clock=clock))
        checkpoint = getattr(self, "checkpoint", None)
        if self.ending_ == Ending.INTERRUPTED or clock.is_due():
            warn(
                f"learning ended before the {len(data.shards):,} shards of the data set were "
                "learned from; the model is that of a sample.",
                ConvergenceWarning,
            )
            return self
        begun, most, verbose = time.monotonic(), self._em_options().max_steps, self._is_verbose
        fit = fit_shards(
            self.mixture_,
            rest,
            held,
            options=self._em_options(),
            priors=self.priors or DEFAULT_PRIORS,
            seed=seed,
            executor=executor,
            clock=clock,
            checkpoint=None if checkpoint is None else f"{path_text(checkpoint)}.em",
            resume=bool(getattr(self, "resume", False)),
            on_step=partial(_tell_step, begun, most) if verbose else None,
        )
        is_judged = held is not None and math.isfinite(fit.score)
        provenance: dict[str, JSON] = {
            **self.model_.provenance,
            "data": {"dataset": data.origin},
            TRAINED_ON: {
                "sequences": float(len(data) - (0 if held is None else len(held))),
                "slices": float(data.total_slices - (0 if held is None else held.total_slices)),
            },
            "sample": {
                "sequences": len(sample),
                "slices": sample.total_slices,
                "held_out": 0 if held is None else len(held),
            },
            "validation_score": fit.score if is_judged else None,
            "ending": str(fit.ending),
        }
        self.validation_score_ = fit.score if held is not None else None
        self.history_, self.ending_, self.dead_ = fit.history, fit.ending, fit.dead
        known = sequences_of(sample, fit.mixture.schema, "X")
        rng = np.random.default_rng([seed, 6])
        model = learn_unlagged(fit.mixture, known, self.priors or DEFAULT_PRIORS, rng)
        self.model_ = Model(model, provenance=provenance)
        return self

    @final
    def save(self, path: Path) -> None:
        """Writes model and estimator to a `*.dspn` file, which `dspn.load` reads."""
        check_is_fitted(self, "model_")
        kept: dict[str, JSON] = {
            name: _plain(getattr(self, name)) for name in self._KEPT if hasattr(self, name)
        }
        kept["columns"] = hasattr(self, "feature_names_in_")
        provenance = {**self.model_.provenance, FITTED: kept}
        online = self.model_.online
        save_mixture(self.model_.mixture, path, provenance=provenance, online=online)

    @final
    @classmethod
    def load(cls, path: Path, *, families: Families = ()) -> Self:
        """The estimator in a file: it answers as the one that was saved.

        Parameters come back as far as they are numbers, text or options of this library, and
        `random_state` as the seed that was used. `history_` and the like are empty: how the model
        was learned is not kept. `families` are leaf families of your own; see `dspn.load`.
        """
        found = load_mixture(path, families=families)
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
        own = cls(**cls._restored_parameters(told))
        own.schema = found.mixture.schema
        own.model_ = Model(found.mixture, provenance=told, online=found.online)
        own.history_, own.dead_, own.batches_, own.families_, own.lags_ = (), (), (), (), ()
        own.validation_score_ = told.get("validation_score")
        own.ending_ = _ENDINGS.get(str(told.get("ending")))
        if not isinstance(kept, dict):  # a file of before there was this entry
            own._remember_columns(own.schema)
            return own
        own.n_features_in_ = len(own.schema)
        if kept.get("columns"):
            own.feature_names_in_ = np.array(own.schema.names, dtype=object)
        for name in kept.keys() & set(cls._KEPT):
            with suppress(*_NOT_MADE):
                setattr(own, name, _restored(kept[name]))
        return own

    @classmethod
    def _restored_parameters(cls, told: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that a file tells of, as far as they can be made from what it says."""
        given, restored = told.get("parameters"), {}
        for name, value in given.items() if isinstance(given, dict) else ():
            with suppress(*_NOT_MADE):
                restored[name] = _restored(value)
        with suppress(*_NOT_MADE):
            restored = cls._current_parameters(restored)
        usual = cls().get_params(deep=False)
        parameters = {
            name: value
            for name, value in restored.items()
            # Any other text stands for an object that JSON does not have.
            if name in usual and (isinstance(usual[name], str) or not isinstance(value, str))
        }
        if isinstance(told.get("seed"), int):
            parameters["random_state"] = told["seed"]
        return parameters

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        tags.transformer_tags = TransformerTags(preserves_dtype=[])
        return tags


def _tell_step(begun: float, most: int, record: FitRecord) -> None:
    held = "" if record.validation is None else f", {record.validation:.6g} held out"
    share = share_text(record.step / most, time.monotonic() - begun, is_bound=True)
    done = f" ({share})" if share else ""
    text = f"step {record.step} on all shards: {record.train:.6g} nats per sequence{held}{done}"
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _sizes(parts: TrainingData, *, refit: bool) -> JSON:
    """The sequences and slices that are learned from, each counted with its weight."""
    sets = [(parts.train, parts.weights)]
    if parts.validation is not None and parts.is_held_out and refit:
        sets.append((parts.validation, parts.held_weights))
    counts = [(np.ones(len(data)) if own is None else own, data.lengths) for data, own in sets]
    return {
        "sequences": float(sum(own.sum() for own, _ in counts)),
        "slices": float(sum(own @ lengths for own, lengths in counts)),
    }


def dead_nodes_of(model: Model, data: TrainingData) -> tuple[DeadNode, ...]:
    """The nodes that nothing of the training data flows through; warns of dead interface nodes.

    What stands below an interface node that is not used is not used either. A mixture has no dead
    nodes: a component that the data do not need still has its weight. None are named where a time
    limit or Ctrl-C leaves no time for another pass.
    """
    if len(model.components) > 1:
        return ()
    try:
        with limited(data.clock.grace(GRACE, data.train), data.train):
            flows = model.program.expected_flows(data.train).flows
    except (EvidenceError, TimeUpError, KeyboardInterrupt):  # every query says what is impossible
        return ()
    dead = dead_nodes(model.network, flows)
    idle = [str(node) for node in dead if node.is_interface]
    if idle:
        warn(
            f"{len(idle)} of {model.network.num_interfaces} interface nodes are not used by the "
            f"training data ({listed(idle)}); the model can be used, and fewer nodes would do.",
            ConvergenceWarning,
        )
    return dead


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _restored(value: Any) -> Any:
    """The option that `_plain` wrote as JSON."""
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _restored(item) for name, item in value.items() if name != "class"}
    if "class" in value:
        kinds: tuple[type[Any], ...] = (*_kinds(Checked), Likelihood, ConditionalLikelihood)
        known: dict[str, Any] = {kind.__name__: kind for kind in kinds}
        known["AutoOptions"] = Auto  # its name in older files
        return known[value["class"]](**fields)
    return {int(name): float(item) for name, item in fields.items()}


def _plain(value: Any) -> JSON:
    """An option as JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return describe_options(value)

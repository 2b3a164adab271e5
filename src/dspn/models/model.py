"""A DSPN, or a mixture of several, to ask questions of: every query is a method."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Unpack, final

import numpy as np
from numpy.typing import ArrayLike

from dspn._arguments import Floats, Ints, require_type
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences, sequences_of
from dspn.engine import Engine, Program, compile_program
from dspn.errors import StructureError
from dspn.inference.completion import Completion, complete
from dspn.inference.evaluation import Evaluation, Hiding, backtest, evaluate
from dspn.inference.filter import Filter, FilterState
from dspn.inference.forecast import Forecast, forecast, sample_futures
from dspn.inference.likelihood import component_posteriors, log_likelihood, log_prob
from dspn.inference.marginals import (
    Imputation,
    Marginals,
    impute,
    impute_with_bands,
    interface_posteriors,
    marginals,
)
from dspn.inference.sampling import redraw_outside, sample, sample_given
from dspn.inference.surprise import Surprise, surprise
from dspn.io.codec import LoadedClassifier
from dspn.io.files import Path, load_any, load_mixture, save_mixture
from dspn.io.json_values import JSON
from dspn.leaves import Families
from dspn.models.forms import TABLE, Given, Reading, check_unused_labels, read_form, show_arguments
from dspn.structure.dbn import DbnStructure, DbnTables, from_dbn
from dspn.structure.edit import marginal
from dspn.structure.hmm import from_hmm
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork, Root

Data = Sequences | Iterable[ArrayLike]

# Estimators that `save` a model of their own, with what they have learned besides in this entry of
# its provenance.
_ESTIMATORS: Final = ("DSPN", "HMM", "HMMSPN")
FITTED: Final = "fitted"


@show_arguments
class Queries(ABC):
    """The questions that models and fitted estimators answer alike.

    `X` is everywhere a `Sequences` of the schema, a list of (T_i, n) arrays, or an (N, T, n) array,
    with NaN or None for what is missing. With `lengths` it is one array of rows, so many for each
    sequence. `inputs` are those of its slices, laid out as X is, where the model has inputs that no
    rule computes and X is not a `Sequences` that has them. A data frame is read with `sequence`,
    `order` and the other arguments of `Sequences.from_table`, which a model that was fitted to a
    table remembers; `layout` is for arrays that have their channels first (see `Reading`).
    """

    @abstractmethod
    def _compiled(self) -> Program:
        """The components, compiled for the engine."""

    @abstractmethod
    def _read(
        self, X: Any, argument: str = "X", /, *, inputs: Any = None, **reading: Unpack[Reading]
    ) -> Sequences:
        """The sequences of X, which messages call `argument`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says of an attribute that is not there what predicts classes, and what does not."""
            remedy = ""
            if name.startswith("predict"):
                remedy = (
                    "; it has no classes: `DSPNClassifier` predicts the class of a sequence, "
                    "`forecast` the slices that follow, and `impute` what is missing"
                )
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{remedy}")

    def log_likelihood(self, X: Any, **given: Unpack[Given]) -> Floats:
        """Log P(observed entries) of each sequence; -inf, with a warning, where impossible."""
        return log_likelihood(self._compiled(), self._read(X, **given))

    def score_samples(self, X: Any, **given: Unpack[Given]) -> Floats:
        """`log_likelihood`, by scikit-learn's name."""
        return self.log_likelihood(X, **given)

    def score(self, X: Any, y: Any = None, **given: Unpack[Given]) -> float:
        """Mean log-likelihood of a sequence; `y` is not used."""
        data = self._read(X, **given)
        check_unused_labels(y, data)
        return float(log_likelihood(self._compiled(), data).mean())

    def log_prob(self, query: Any, evidence: Any, **given: Unpack[Given]) -> Floats:
        """Log Pr(query | evidence) of each sequence; NaN marks what a side does not mention."""
        program, asked = self._compiled(), self._read(query, "query", **given)
        return log_prob(program, asked, self._read(evidence, "evidence", **given))

    def marginals(
        self, X: Any, *, quantiles: Sequence[float] = (), **given: Unpack[Given]
    ) -> Marginals:
        """P(entry | evidence) of every missing entry."""
        return marginals(self._compiled(), self._read(X, **given), quantiles=quantiles)

    def interface_posteriors(self, X: Any, **given: Unpack[Given]) -> Floats:
        """P(component, interface node | evidence) for every slice, (slices, interfaces).

        Components come one after the other.
        """
        return interface_posteriors(self._compiled(), self._read(X, **given))

    def component_posteriors(self, X: Any, **given: Unpack[Given]) -> Floats:
        """P(component | evidence) of each sequence, (sequences, components)."""
        return component_posteriors(self._compiled(), self._read(X, **given))

    def impute(self, X: Any, **given: Unpack[Given]) -> Sequences:
        """Missing entries replaced by the mode, median or mean of their marginals."""
        return impute(self._compiled(), self._read(X, **given))

    def impute_with_bands(
        self, X: Any, *, quantiles: Sequence[float] = (0.1, 0.9), **given: Unpack[Given]
    ) -> Imputation:
        """What `impute` fills in, a mark of it, and the quantiles of every filled number."""
        data = self._read(X, **given)
        return impute_with_bands(self._compiled(), data, quantiles=quantiles)

    def complete(self, X: Any, **given: Unpack[Given]) -> Completion:
        """The most probable missing entries and latent choices, jointly."""
        return complete(self._compiled(), self._read(X, **given))

    def surprise(self, X: Any, *, fitted: bool = False, **given: Unpack[Given]) -> Surprise:
        """How unexpected each slice is given its past, and each entry given all others.

        With `fitted` X is what the model was learned from, and no entry vouches for itself in the
        tails: see `dspn.inference.surprise`.
        """
        data = self._read(X, **given)
        return surprise(self._compiled(), data, fitted=fitted)

    def forecast(
        self,
        X: Any,
        steps: int,
        *,
        inputs: Any = None,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        num_paths: int = 1000,
        seed: int = 0,
        known: Any = None,
        **reading: Unpack[Reading],
    ) -> Forecast:
        """Distributions of the next slices.

        Args:
            X: The sequences so far.
            steps: Number of slices after the last one.
            lengths: Slices of each sequence where X is one array of rows.
            inputs: Inputs of the next slices that no rule computes: a (steps, inputs) array for all
                sequences, or one for each. Those of X come with it, as a `Sequences`.
            quantiles: Levels at which quantiles of the numbers are given.
            num_paths: Paths that are drawn where leaves are told lags; others are exact.
            seed: Of the paths.
            known: What is known of the next slices of each sequence, NaN for what is not.
            reading: How X is read; see `Reading`.
        """
        program, data = self._compiled(), self._read(X, **reading)
        more: dict[str, Any] = {"quantiles": quantiles, "num_paths": num_paths, "seed": seed}
        ahead = None if known is None else _known(known, program.schema)
        return forecast(program, data, steps, known=ahead, inputs=inputs, **more)

    def evaluate(
        self,
        X: Any,
        *,
        hide: Hiding = "random",
        share: float = 0.2,
        length: int = 6,
        steps: int = 1,
        season: int | None = None,
        seed: int = 0,
        **given: Unpack[Given],
    ) -> Evaluation:
        """Hides observed entries and scores what the model and simple rules say of them.

        Args:
            X: Sequences that were not used for learning.
            lengths: Slices of each sequence where X is one array of rows.
            inputs: Inputs of the slices of X.
            hide: "random" entries; "gaps", runs of one variable; "last", the last slices whole.
            share: The share of entries to hide, for "random" and "gaps".
            length: The number of slices of a gap.
            steps: The number of last slices.
            season: Slices of a season, for the rule "seasonal naive".
            seed: Seed of what is hidden.
            reading: How X is read; see `Reading`.
        """
        own: Any = {"hide": hide, "share": share, "length": length, "steps": steps}
        program, data = self._compiled(), self._read(X, **given)
        return evaluate(program, data, season=season, seed=seed, **own)

    def backtest(
        self,
        X: Any,
        steps: int,
        *,
        origins: int = 10,
        stride: int | None = None,
        window: int | None = None,
        season: int | None = None,
        **given: Unpack[Given],
    ) -> Evaluation:
        """Forecasts from rolling origins, scored by step against what came.

        Args:
            X: Sequences that were not used for learning.
            steps: Number of slices ahead.
            lengths: Slices of each sequence where X is one array of rows.
            inputs: Inputs of the slices of X.
            origins: The largest number of origins of a sequence, counted from its end.
            stride: Slices from one origin to the next; by default `steps`.
            window: Only so many slices before an origin are given; by default all.
            season: Slices of a season, for the rule "seasonal naive".
            reading: How X is read; see `Reading`.
        """
        own: Any = {"origins": origins, "stride": stride, "window": window, "season": season}
        return backtest(self._compiled(), self._read(X, **given), steps, **own)

    def filter(self, state: FilterState | None = None) -> Filter:
        """A stream of slices, from its beginning or from a saved state."""
        return Filter(self._compiled(), state)


@final
@show_arguments
class Model(Queries):
    """A checked DSPN, or a mixture of several, with its queries.

    Answers are exact, in time linear in slices, sequences, components and template edges.
    Randomness comes from the `rng` given, from nowhere else. `online` holds the arrays that online
    learning goes on from, and is empty for models that were learned from all data at once.
    """

    def __init__(
        self,
        network: DynamicNetwork | Mixture,
        *,
        provenance: Mapping[str, JSON] | None = None,
        online: Mapping[str, Floats] | None = None,
    ) -> None:
        if not isinstance(network, Mixture):
            remedy = "`dspn.structure` builds one, and `Model.load` reads a model from a file"
            require_type(network, DynamicNetwork, "network", StructureError, remedy=remedy)
            network = Mixture.of(network)
        self.mixture: Mixture = network
        self.provenance: dict[str, JSON] = dict(provenance or {})
        self.online: dict[str, Floats] = dict(online or {})

    @classmethod
    def from_hmm(
        cls,
        start: Sequence[float] | Floats,
        transition: Sequence[Sequence[float]] | Floats,
        emissions: Mapping[str, ArrayLike],
        *,
        schema: Schema,
        root: Root | str = Root.FIRST,
    ) -> "Model":
        """A hidden Markov model with independent emissions; see `dspn.structure.from_hmm`."""
        return cls(from_hmm(start, transition, emissions, schema=schema, root=root))

    @classmethod
    def from_dbn(cls, structure: DbnStructure, tables: DbnTables) -> "Model":
        """A small discrete dynamic Bayesian network; see `dspn.structure.from_dbn`."""
        return cls(from_dbn(structure, tables))

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.mixture.schema

    @property
    def root(self) -> Root:
        """Which slice carries the root."""
        return self.mixture.root

    @property
    def components(self) -> tuple[DynamicNetwork, ...]:
        """The networks under the root sum; one, unless the model is a mixture."""
        return self.mixture.components

    @property
    def weights(self) -> Floats:
        """The weights of the root sum, one for each component."""
        return self.mixture.weights

    @property
    def network(self) -> DynamicNetwork:
        """The only component; raises where there are several."""
        return self.mixture.only

    @cached_property
    def compiled(self) -> Program:
        """All components compiled for the engine."""
        return compile_program(self.mixture)

    def to(self, engine: Engine | str, *, precision: str = "double") -> "Model":
        """The same model, with queries that another engine answers; see `compile_program`.

        Args:
            engine: "cpu", "gpu", "reference", or an engine with options.
            precision: "double" or "single".
        """
        model = Model(self.mixture, provenance=self.provenance, online=self.online)
        model.compiled = compile_program(self.mixture, engine=engine, precision=precision)
        return model

    @property
    def program(self) -> Program:
        """The only component compiled for the engine; raises where there are several."""
        if len(self.components) == 1:
            return self.compiled
        raise StructureError(
            f"the model is a mixture of {len(self.components)} components and has no single "
            "program; take model.compiled.component(i)."
        )

    def __repr__(self) -> str:
        variables, root = f"Model({len(self.schema)} variables", f"root={self.root.value!r})"
        if len(self.components) == 1:
            return f"{variables}, {_sizes(self.network)}, {root}"
        listed = "".join(
            f"\n  {weight:.4g}: {_sizes(network)}"
            for weight, network in zip(self.weights, self.components, strict=True)
        )
        return f"{variables}, {len(self.components)} components, {root}{listed}"

    def _compiled(self) -> Program:
        return self.compiled

    def _read(
        self, X: Any, argument: str = "X", /, *, inputs: Any = None, **reading: Unpack[Reading]
    ) -> Sequences:
        told = self.provenance.get(TABLE)
        known = told if isinstance(told, dict) else {}
        X, inputs = read_form(X, self.schema, reading, known, inputs)
        if (lengths := reading.get("lengths")) is not None:
            return Sequences.from_concatenated(X, lengths, schema=self.schema, inputs=inputs)
        return sequences_of(X, self.schema, argument, inputs)

    def sample(
        self,
        num_sequences: int,
        length: int | Sequence[int] | Ints,
        *,
        inputs: Any = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        rng: np.random.Generator,
    ) -> Sequences:
        """Draws of whole sequences; `length` is one number, or one for each sequence.

        `inputs` has a row for each slice, of the inputs that no rule computes. `bounds` are the
        lowest and the largest value of numbers, by name: an entry outside is drawn again given all
        others.
        """
        drawn = sample(self.compiled, num_sequences, length, inputs=inputs, rng=rng)
        return redraw_outside(self.compiled, drawn, bounds, rng=rng) if bounds else drawn

    def sample_given(
        self, X: Any, *, rng: np.random.Generator, **given: Unpack[Given]
    ) -> Sequences:
        """Missing entries drawn jointly, given the observed ones."""
        return sample_given(self.compiled, self._read(X, **given), rng=rng)

    def sample_futures(
        self,
        X: Any,
        steps: int,
        *,
        inputs: Any = None,
        rng: np.random.Generator,
        **reading: Unpack[Reading],
    ) -> Sequences:
        """One drawn continuation of each sequence; `inputs` as for `forecast`."""
        data = self._read(X, **reading)
        return sample_futures(self.compiled, data, steps, inputs=inputs, rng=rng)

    def over(self, variables: Iterable[str]) -> "Model":
        """P of some variables alone, exactly, as a smaller model; the others are summed out.

        Whatever the order of the names, the variables are in the order of this model.
        """
        names = self.schema.without_leaves().select(variables).names
        columns = [self.schema.index(name) for name in names]
        parts = tuple(marginal(network, columns) for network in self.components)
        return Model(Mixture(parts, self.weights), provenance=self.provenance)

    def save(self, path: Path) -> None:
        """Writes the model to a `*.dspn` file, whole or not at all."""
        save_mixture(self.mixture, path, provenance=self.provenance, online=self.online)

    @classmethod
    def load(cls, path: Path, *, families: Families = ()) -> "Model":
        """The model in a `*.dspn` file, whether it was saved by itself or by an estimator.

        `families` are the leaf families of your own that it has; see `dspn.load`.
        """
        found = load_mixture(path, families=families)
        told = {name: item for name, item in found.provenance.items() if name != FITTED}
        return cls(found.mixture, provenance=told, online=found.online)


def _known(known: Any, schema: Schema) -> Sequences:
    """What is known of slices to come: entries of variables, no inputs."""
    return sequences_of(known, Schema(schema.variables), "known")


def _sizes(network: DynamicNetwork) -> str:
    template, groups = network.template, len(network.groups)
    return (
        f"{template.num_interfaces} interface nodes in {groups} group{'s' if groups > 1 else ''}, "
        f"{len(template.nodes)} nodes, {template.num_edges} edges"
    )


def load(path: Path, *, families: Families = ()) -> Any:
    """What was saved to a `*.dspn` file: a `Model`, a fitted estimator or a `DSPNClassifier`.

    It answers as before, bit for bit. `Model.load` gives the model of an estimator's file alone.

    Args:
        path: The file.
        families: The leaf families of your own that the model has, as classes; a file has their
            names alone.
    """
    found = load_any(path, families=families)
    name = found.provenance.get("estimator")
    if isinstance(found, LoadedClassifier):
        name = "DSPNClassifier"
    elif name not in _ESTIMATORS or not isinstance(found.provenance.get(FITTED), dict):
        return Model(found.mixture, provenance=found.provenance, online=found.online)
    return getattr(import_module("dspn.models"), str(name))._from_file(found)

"""The questions that every fitted estimator answers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from dspn._arrays import Floats, Ints
from dspn.data import Schema, Sequences
from dspn.inference import Completion, Filter, FilterState, Forecast, Marginals, Surprise
from dspn.models._data import rng_of
from dspn.models.model import Model
from dspn.structure import DynamicNetwork, Mixture


class SequenceVerbs(ABC):
    """Queries of `model_`, for data in any form that `fit` takes."""

    model_: Model

    @abstractmethod
    def _read(self, X: Any, lengths: Any, argument: str = "X") -> Sequences:
        """The sequences of X, which messages call `argument`."""

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
            """Whatever else `model_` knows, such as `provenance` and `log_likelihood`."""
            if name.startswith("_") or "model_" not in vars(self):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self.model_, name)

    def _model(self) -> Model:
        check_is_fitted(self, "model_")
        return self.model_

    def score_samples(self, X: Any, *, lengths: Any = None) -> Floats:
        """Log P(observed entries) of each sequence."""
        return self._model().log_likelihood(self._read(X, lengths))

    def score(self, X: Any, y: Any = None, *, lengths: Any = None) -> float:
        """Mean log-likelihood of a sequence; `y` is not used."""
        return float(self.score_samples(X, lengths=lengths).mean())

    def log_prob(self, query: Any, evidence: Any, *, lengths: Any = None) -> Floats:
        """Log Pr(query | evidence) of each sequence; NaN marks what a side does not mention."""
        model = self._model()
        return model.log_prob(
            self._read(query, lengths, "query"), self._read(evidence, lengths, "evidence")
        )

    def marginals(
        self, X: Any, *, lengths: Any = None, quantiles: Sequence[float] = ()
    ) -> Marginals:
        """P(entry | evidence) of every missing entry."""
        return self._model().marginals(self._read(X, lengths), quantiles=quantiles)

    def interface_posteriors(self, X: Any, *, lengths: Any = None) -> Floats:
        """P(component, interface node | evidence) for every slice, (slices, interfaces)."""
        return self._model().interface_posteriors(self._read(X, lengths))

    def component_posteriors(self, X: Any, *, lengths: Any = None) -> Floats:
        """P(component | evidence) of each sequence, (sequences, components)."""
        return self._model().component_posteriors(self._read(X, lengths))

    def impute(self, X: Any, *, lengths: Any = None) -> Sequences:
        """Missing entries replaced by the mode, median or mean of their marginals."""
        return self._model().impute(self._read(X, lengths))

    def complete(self, X: Any, *, lengths: Any = None) -> Completion:
        """The most probable missing entries and latent choices, jointly."""
        return self._model().complete(self._read(X, lengths))

    def surprise(self, X: Any, *, lengths: Any = None) -> Surprise:
        """How unexpected each slice is given its past, and each entry given all others."""
        return self._model().surprise(self._read(X, lengths))

    def forecast(
        self,
        X: Any,
        steps: int,
        *,
        lengths: Any = None,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    ) -> Forecast:
        """Distributions of the next `steps` slices."""
        return self._model().forecast(self._read(X, lengths), steps, quantiles=quantiles)

    def filter(self, state: FilterState | None = None) -> Filter:
        """A stream of slices, from its beginning or from a saved state."""
        return self._model().filter(state)

    def sample(
        self, n_samples: int, length: int | Sequence[int] | Ints, *, random_state: Any = None
    ) -> Sequences:
        """Draws of whole sequences; `length` is one number, or one for each sequence."""
        return self._model().sample(n_samples, length, rng=rng_of(random_state))

    def sample_given(self, X: Any, *, lengths: Any = None, random_state: Any = None) -> Sequences:
        """Missing entries drawn jointly, given the observed ones."""
        return self._model().sample_given(self._read(X, lengths), rng=rng_of(random_state))

    def sample_futures(
        self, X: Any, steps: int, *, lengths: Any = None, random_state: Any = None
    ) -> Sequences:
        """One drawn continuation of each sequence."""
        return self._model().sample_futures(self._read(X, lengths), steps, rng=rng_of(random_state))

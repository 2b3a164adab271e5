"""Estimators for sktime: `from dspn.sktime import SequenceForecaster, SequenceImputer, ...`.

They need sktime, which is not among the requirements of dspn. Each wraps an estimator of dspn: all
settings are those of that estimator, and the fitted one is `estimator_`.
"""

from typing import Any, Final, final

import numpy as np
import pandas as pd
from sklearn.base import clone
from sktime.classification.base import BaseClassifier
from sktime.forecasting.base import BaseForecaster
from sktime.transformations.base import BaseTransformer

from dspn.data.schema import Schema, Variable
from dspn.models.classifier import DSPNClassifier
from dspn.models.dspn import DSPN
from dspn.models.estimator import SequenceEstimator
from dspn.models.hmm import HMM

_AUTHORS: Final = "The dspn authors"
_FRAMES: Final = ["pd.DataFrame", "pd-multiindex"]


def _arrays(frame: pd.DataFrame) -> list[Any]:
    """The rows of each series: of the only one, or one for each instance of a panel."""
    if not isinstance(frame.index, pd.MultiIndex):
        return [frame.to_numpy(dtype=np.float64)]
    return [own.to_numpy(dtype=np.float64) for _, own in frame.groupby(level=0, sort=False)]


def _fitted(estimator: SequenceEstimator | None, frame: pd.DataFrame) -> SequenceEstimator:
    """A copy of the estimator, fitted to the series of a frame, whose columns are all numbers."""
    chosen = DSPN(random_state=0) if estimator is None else clone(estimator)
    variables = [Variable.continuous(f"x{column}") for column in range(frame.shape[1])]
    return chosen.set_params(schema=Schema(tuple(variables))).fit(_arrays(frame))


def _small() -> SequenceEstimator:
    """What sktime's own checks fit many times."""
    return HMM(2, random_state=0)


@final
class SequenceForecaster(BaseForecaster):
    """Exact forecasts of one or several series together, with quantiles.

    Args:
        estimator: A `DSPN`, `HMM` or `HMMSPN`; the automatic learner by default. The series of a
            panel are learned from together, as sequences of one model.

    Examples:
        >>> from sktime.datasets import load_airline
        >>> from dspn import HMM
        >>> from dspn.sktime import SequenceForecaster
        >>> forecaster = SequenceForecaster(HMM(4, random_state=0))
        >>> forecaster.fit(load_airline(), fh=[1, 2, 3])
        SequenceForecaster(...)
        >>> bands = forecaster.predict_interval(coverage=0.8)
    """

    _tags = {  # noqa: RUF012
        "authors": _AUTHORS,
        "maintainers": _AUTHORS,
        "capability:multivariate": True,
        "capability:exogenous": False,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "y_inner_mtype": _FRAMES,
        "X_inner_mtype": _FRAMES,
        "requires-fh-in-fit": False,
    }

    def __init__(self, estimator: SequenceEstimator | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, y: pd.DataFrame, X: Any, fh: Any) -> "SequenceForecaster":
        self.estimator_ = _fitted(self.estimator, y)
        return self

    def _ahead(self, fh: Any, levels: tuple[float, ...]) -> tuple[Any, Any, list[Any]]:
        """The slices asked for, their index, and a reader of numbers for each column."""
        y = self._y
        at = fh.to_relative(self.cutoff).to_numpy().astype(int) - 1
        times = fh.to_absolute_index(self.cutoff)
        index = times
        if isinstance(y.index, pd.MultiIndex):
            instances = y.index.get_level_values(0).unique()
            index = pd.MultiIndex.from_product([instances, times], names=y.index.names)
        steps = int(at.max()) + 1
        found = self.estimator_.forecast(_arrays(y), steps, quantiles=levels).marginals
        rows = (np.arange(found.log_likelihood.size)[:, None] * steps + at).ravel()
        return rows, index, [found[column] for column in range(y.shape[1])]

    def _predict(self, fh: Any, X: Any) -> pd.DataFrame:
        rows, index, columns = self._ahead(fh, ())
        values = np.stack([own.mean[rows] for own in columns], axis=1)
        return pd.DataFrame(values, index=index, columns=self._y.columns)

    def _predict_quantiles(self, fh: Any, X: Any, alpha: list[float]) -> pd.DataFrame:
        rows, index, columns = self._ahead(fh, tuple(alpha))
        names = self._get_varnames()
        labels = pd.MultiIndex.from_product([names, alpha])
        values = np.concatenate([own.quantiles[rows] for own in columns], axis=1)
        return pd.DataFrame(values, index=index, columns=labels)

    def _predict_var(self, fh: Any, X: Any = None, cov: bool = False) -> pd.DataFrame:
        rows, index, columns = self._ahead(fh, ())
        values = np.stack([own.variance[rows] for own in columns], axis=1)
        return pd.DataFrame(values, index=index, columns=self._get_varnames())

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that sktime's checks use."""
        return [{"estimator": _small()}, {"estimator": HMM(1, random_state=1)}]


@final
class SequenceImputer(BaseTransformer):
    """Missing entries replaced by the mean of their exact distribution given all others.

    Args:
        estimator: A `DSPN`, `HMM` or `HMMSPN`; the automatic learner by default.

    Examples:
        >>> from sktime.datasets import load_airline
        >>> from dspn import HMM
        >>> from dspn.sktime import SequenceImputer
        >>> y = load_airline().astype(float)
        >>> y.iloc[10:20] = float("nan")
        >>> whole = SequenceImputer(HMM(4, random_state=0)).fit_transform(y)
    """

    _tags = {  # noqa: RUF012
        "authors": _AUTHORS,
        "maintainers": _AUTHORS,
        "X_inner_mtype": _FRAMES,
        "scitype:instancewise": False,
        "fit_is_empty": False,
        "transform-returns-same-time-index": True,
        "capability:missing_values": True,
        "capability:missing_values:removes": True,
        "capability:categorical_in_X": False,
    }

    def __init__(self, estimator: SequenceEstimator | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: Any = None) -> "SequenceImputer":
        self.estimator_ = _fitted(self.estimator, X)
        return self

    def _transform(self, X: pd.DataFrame, y: Any = None) -> pd.DataFrame:
        filled = self.estimator_.impute(_arrays(X))
        return pd.DataFrame(filled.values.copy(), index=X.index, columns=X.columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that sktime's checks use."""
        return [{"estimator": _small()}, {"estimator": HMM(1, random_state=1)}]


@final
class SequenceClassifier(BaseClassifier):
    """P(class | series) from a model of each class; series may differ in length and have gaps.

    Args:
        classifier: A `DSPNClassifier`; one of hidden Markov models by default.

    Examples:
        >>> from sktime.datasets import load_unit_test
        >>> from dspn.sktime import SequenceClassifier
        >>> X, y = load_unit_test(split="train")
        >>> classifier = SequenceClassifier().fit(X, y)
        >>> chances = classifier.predict_proba(X)
    """

    _tags = {  # noqa: RUF012
        "authors": _AUTHORS,
        "maintainers": _AUTHORS,
        "X_inner_mtype": "pd-multiindex",
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:missing_values": True,
        "capability:predict_proba": True,
        "capability:categorical_in_X": False,
    }

    def __init__(self, classifier: DSPNClassifier | None = None) -> None:
        self.classifier = classifier
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: Any) -> "SequenceClassifier":
        own = DSPNClassifier(random_state=0) if self.classifier is None else clone(self.classifier)
        self.classifier_ = own.fit(_arrays(X), y)
        return self

    def _predict(self, X: pd.DataFrame) -> Any:
        return self.classifier_.predict(_arrays(X))

    def _predict_proba(self, X: pd.DataFrame) -> Any:
        return self.classifier_.predict_proba(_arrays(X))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that sktime's checks use."""
        small = DSPNClassifier(HMM(2, random_state=0), random_state=0)
        return [{"classifier": small}, {"classifier": DSPNClassifier(HMM(1), random_state=1)}]

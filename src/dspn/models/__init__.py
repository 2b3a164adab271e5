"""What people use: a DSPN with its queries as methods, and estimators that learn one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dspn.models.model import Model, load

if TYPE_CHECKING:
    from dspn.models.classifier import DSPNClassifier
    from dspn.models.dspn import DSPN, Em, Paper
    from dspn.models.hmm import HMM, HMMSPN

__all__ = ["DSPN", "HMM", "HMMSPN", "DSPNClassifier", "Em", "Model", "Paper", "load"]

# scikit-learn takes longer to import than the rest of the package, and a loaded model needs none of
# it: estimators are imported when they are first used.
_HOMES: Final = {
    "DSPN": "dspn.models.dspn",
    "DSPNClassifier": "dspn.models.classifier",
    "Em": "dspn.models.dspn",
    "HMM": "dspn.models.hmm",
    "HMMSPN": "dspn.models.hmm",
    "Paper": "dspn.models.dspn",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

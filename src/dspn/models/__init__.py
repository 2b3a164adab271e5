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
_HOMES: Final = {"classifier": "DSPNClassifier", "dspn": "DSPN Em Paper", "hmm": "HMM HMMSPN"}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"dspn.models.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

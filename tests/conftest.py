import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from dspn import progress

# The first example of a property may compile kernels: no clock may decide whether a test passes.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("dev", _UNTIMED)
settings.register_profile("ci", _UNTIMED, derandomize=True, database=None, print_blob=True)
settings.register_profile("thorough", _UNTIMED, max_examples=2000)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

_REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The data sets that lie beside the repository, in ../shared/data."""
    directory = _REPOSITORY.parent / "shared" / "data"
    if not directory.is_dir():
        pytest.skip("needs the data sets in ../shared/data, beside the repository: none there")
    return directory


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a command takes must not decide what it writes."""
    for name in ("_FIRST_AFTER_S", "_DRAWN_AFTER_S"):
        monkeypatch.setattr(progress, name, 1e6)

"""The names of the package: all there, each from one place, none imported before it is needed."""

import subprocess
import sys

import dspn


def test_every_public_name_is_there() -> None:
    assert all(getattr(dspn, name) is not None for name in dspn.__all__)
    homes = [name for names in dspn._HOMES.values() for name in names.split()]
    assert sorted([*homes, "__version__"]) == sorted(dspn.__all__)
    assert set(dspn.__all__) <= set(dir(dspn))


def test_nothing_is_imported_before_it_is_named() -> None:
    code = "import sys, dspn; print([n for n in ('numba', 'numpy', 'sklearn') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

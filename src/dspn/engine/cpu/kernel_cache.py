"""Compiled kernels on disk: one file for each kernel and signature, checked before it is run.

Numba's own cache raises where no folder can be written or a file is cut short, runs damaged machine
code, and keeps a kernel whose callee in another file has changed. Here a file holds a digest of
the sources, a digest of its name and content, and the content. What disagrees is compiled again.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, final
from uuid import uuid4

import numba
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps, loads

_DIGEST = sha256().digest_size
_PACKAGE = Path(__file__).parent
_BESIDE_SOURCE = _PACKAGE / "__pycache__"
# What compiled code is made of: it holds the kernels that a kernel calls, and offsets in records.
SOURCES = ("records.py", "kernels/*.py")


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Numba's `njit`, with compiled code kept by this module."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if dispatcher is not function:  # as it is under NUMBA_DISABLE_JIT
            dispatcher._cache = _KernelCache(function)
        return dispatcher

    return decorate


@cache
def folder() -> Path | None:
    """Where compiled kernels are written; None where there is no such place.

    The first that can be written of NUMBA_CACHE_DIR, the folder of the package, the user's cache,
    and a folder for temporary files that belongs to this user alone.
    """
    try:
        return Path(FunctionCache(folder.__wrapped__).cache_path)
    except (OSError, RuntimeError):
        return _temporary_folder()


def _temporary_folder() -> Path | None:
    try:
        path = Path(tempfile.gettempdir(), f"dspn-kernels-{os.getuid()}")
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except (AttributeError, OSError):  # no users on Windows, where the user's cache is writable
        return None
    # Code is run from here: nobody else may be able to put any in.
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022
    return path if private and found.st_uid == os.getuid() and os.access(path, os.W_OK) else None


@cache
def _version() -> bytes:
    """Digest of the compiler and the sources."""
    files = [file for pattern in SOURCES for file in sorted(_PACKAGE.glob(pattern))]
    parts = [numba.__version__.encode(), *(file.read_bytes() for file in files)]
    return sha256(b"".join(sha256(part).digest() for part in parts)).digest()


def _places() -> Iterator[Path]:
    """Where compiled kernels may lie: those of a tree made read-only later are of use, too."""
    own = folder()
    if own is not None:
        yield own
    if own != _BESIDE_SOURCE:
        yield _BESIDE_SOURCE


def is_on_disk(kernel: str) -> bool:
    """Whether a compiled form of a kernel, named with its module, lies on disk for this version."""
    for path in (each for place in _places() for each in place.glob(f"{kernel}-*.nbc")):
        with suppress(OSError), path.open("rb") as file:
            if file.read(_DIGEST) == _version():
                return True
    return False


@cache
def _say_damaged() -> None:
    print("dspn: a compiled kernel was damaged and is compiled again.", file=sys.stderr, flush=True)


@final
class _KernelCache:
    """The cache of one kernel, as Numba's dispatcher calls it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"

    @property
    def cache_path(self) -> str | None:
        return None if (path := folder()) is None else str(path)

    def _file_name(self, signature: object, codegen: Any) -> str:
        target = repr((signature, codegen.magic_tuple(), sys.implementation.cache_tag))
        return f"{self._name}-{sha256(target.encode()).hexdigest()[:32]}.nbc"

    def load_overload(self, sig: object, target_context: Any) -> Any:
        target_context.refresh()
        name = self._file_name(sig, target_context.codegen())
        for place in _places():
            try:
                data = (place / name).read_bytes()
            except OSError:
                continue
            if not data.startswith(_version()):
                continue
            content = data[2 * _DIGEST :]
            if data[_DIGEST : 2 * _DIGEST] == sha256(name.encode() + content).digest():
                return CompileResult._rebuild(target_context, *loads(content))
            _say_damaged()
        return None

    def save_overload(self, sig: object, cres: Any) -> None:
        path = folder()
        if path is None or cres.lifted or cres.library.has_dynamic_globals:
            return
        name = self._file_name(sig, cres.codegen)
        content = dumps(cres._reduce())
        partial = path / f"{name}.{uuid4().hex[:16]}"
        with suppress(OSError):  # what cannot be kept is compiled again
            try:
                partial.write_bytes(_version() + sha256(name.encode() + content).digest() + content)
                partial.replace(path / name)
            except OSError:
                partial.unlink()

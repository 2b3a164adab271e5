"""The processor's underflow flag, raised by any operation whose tiny result was not exact."""

import ctypes
import platform
from collections.abc import Callable
from typing import Final

_FLAG_BY_MACHINE: Final = {"x86_64": 0x10, "amd64": 0x10, "aarch64": 0x08, "arm64": 0x08}


def _functions() -> tuple[Callable[[int], int], Callable[[int], int]] | None:
    if platform.system() not in ("Linux", "Darwin"):
        return None
    try:
        library = ctypes.PyDLL(None)
        return library.feclearexcept, library.fetestexcept
    except (OSError, AttributeError):
        return None


_FUNCTIONS = _functions()
_FLAG = _FLAG_BY_MACHINE.get(platform.machine().lower(), 0)


def clear_underflow() -> None:
    """Lowers the flag of this thread."""
    if _FUNCTIONS is not None and _FLAG:
        _FUNCTIONS[0](_FLAG)


def underflow_may_have_happened() -> bool:
    """Whether the flag was raised since it was cleared; always true where the flag cannot be read."""
    if _FUNCTIONS is None or not _FLAG:
        return True
    return bool(_FUNCTIONS[1](_FLAG))

"""The processor's underflow flag, raised by any operation whose tiny result was not exact."""

import ctypes
import platform
from collections.abc import Callable
from typing import Any, Final

_FLAG_BY_MACHINE: Final = {"x86_64": 0x10, "amd64": 0x10, "aarch64": 0x08, "arm64": 0x08}


def _functions() -> tuple[Callable[[int], int], Callable[[int], int]] | None:
    if platform.system() not in ("Linux", "Darwin"):
        return None
    try:
        library = ctypes.PyDLL(None)
        return library.feclearexcept, library.fetestexcept
    except (OSError, AttributeError):
        return None


_FUNCTIONS: Final = _functions()
_FLAG: Final = _FLAG_BY_MACHINE.get(platform.machine().lower(), 0)


def underflows(kernel: Callable[..., None], *arguments: Any) -> bool:
    """Runs a compiled kernel and says whether it may have underflowed.

    Where the flag cannot be read the answer is always yes. The flag belongs to the thread and
    NumPy's own operations clear it, so it is read as soon as the kernel returns.
    """
    if _FUNCTIONS is None or not _FLAG:
        kernel(*arguments)
        return True
    clear, test = _FUNCTIONS
    clear(_FLAG)
    kernel(*arguments)
    return bool(test(_FLAG))

"""Compiled kernels.

`contract` allows fused multiply-add and nothing else: no reordering of sums, so a lane's result
does not depend on its block; denormals and infinities keep their meaning. `reducing` kernels add up
over lanes and may reorder; `maximising` ones see no NaN.
"""

from typing import Any, Final

from dspn.engine.cpu.kernel_cache import njit

OPTIONS: Final[dict[str, Any]] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "boundscheck": False,
}
LOG_TWO: Final = 0.6931471805599453

kernel = njit(**OPTIONS)
reducing = njit(**OPTIONS | {"fastmath": {"contract", "reassoc", "nsz"}})
maximising = njit(**OPTIONS | {"fastmath": {"contract", "reassoc", "nsz", "nnan"}})

"""Compilation options shared by all kernels.

`contract` allows fused multiply-add and nothing else: no reordering of sums, so a lane's result
does not depend on its block; denormals and infinities keep their meaning. `REDUCING` kernels add up
over lanes and may reorder.
"""

from typing import Any

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "boundscheck": False,
}
REDUCING: dict[str, Any] = OPTIONS | {"fastmath": {"contract", "reassoc", "nsz"}}
MAXIMISING: dict[str, Any] = OPTIONS | {"fastmath": {"contract", "reassoc", "nsz", "nnan"}}

LOG_TWO = 0.6931471805599453

"""Compilation options shared by all kernels.

`contract` allows fused multiply-add and nothing else: no reordering of sums, so results do not depend on
how sequences are spread over blocks; denormals and signed infinities keep their meaning.
"""

from typing import Any

OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "boundscheck": False,
}

"""Tells the user, once, that kernels are being compiled."""

import sys
from functools import cache

from dspn._kernel_cache import folder, is_on_disk


@cache
def announce_compilation() -> None:
    """Prints one line when the first evaluation of this process has to compile its kernels."""
    if is_on_disk("dspn.engine.kernels.upward.upward"):
        return
    if folder() is None:
        sentence = (
            "compiling kernels for this process alone, because no folder to keep them can be "
            "written; set NUMBA_CACHE_DIR to one that can."
        )
    else:
        sentence = "compiling kernels for this machine, once; this takes a minute or two."
    print(f"dspn: {sentence}", file=sys.stderr, flush=True)

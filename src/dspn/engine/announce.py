"""Tells the user, once, that kernels are being compiled."""

import sys
from functools import cache
from pathlib import Path

from dspn.engine.kernels.upward import upward


def kernels_are_cached() -> bool:
    """Whether compiled kernels of this version lie in Numba's cache."""
    folder = upward.stats.cache_path
    return folder is not None and any(Path(folder).glob("*upward*.nbi"))


@cache
def announce_compilation() -> None:
    """Prints one line when the first evaluation of this process has to compile its kernels."""
    if not kernels_are_cached():
        print(
            "dspn: compiling kernels for this machine, once; this takes a minute or two.",
            file=sys.stderr,
            flush=True,
        )

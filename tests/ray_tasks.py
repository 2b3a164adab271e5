"""What tests of executors run in other processes."""

import os
import signal
import warnings
from pathlib import Path
from typing import Any

from dspn.executors import Shared


def slow_square(shared: Shared[Any], number: int) -> float:
    """The square of an entry; warns of one number."""
    if number == 7:
        warnings.warn("it is seven", UserWarning, stacklevel=1)
    return float(shared.value[number]) * number


def die_once(item: tuple[str, int]) -> int:
    """The number; the process that is first asked for an odd one is killed."""
    path, number = item
    if number % 2 and not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number

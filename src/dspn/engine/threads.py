"""How many threads the engine may use."""

import os

from dspn.errors import DspnError

_VARIABLE = "DSPN_NUM_THREADS"


def num_threads() -> int:
    """The environment variable DSPN_NUM_THREADS, else the processors this process may run on."""
    given = os.environ.get(_VARIABLE)
    if given is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not (given.isascii() and given.isdigit()) or int(given) < 1:
        raise DspnError(
            f"the environment variable {_VARIABLE} must be a whole number of at least 1, not {given!r}."
        )
    return int(given)

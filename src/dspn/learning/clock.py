"""When learning has to end: a time limit, and a request to stop that all threads see."""

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Final, final

from dspn._checks import is_number
from dspn.engine import until
from dspn.errors import StructureError
from dspn.sequences import Sequences

# A pass over data of fewer entries is over before it is worth ending within.
_LARGE: Final = 100_000


@final
class Clock:
    """Counts the seconds since it was made; due when the limit has passed or after `stop`."""

    def __init__(self, limit: float | None = None) -> None:
        if limit is not None and not (is_number(limit) and limit > 0):
            raise StructureError(
                f"`time_limit` must be a positive number of seconds, or None for no limit, but is "
                f"{limit!r}."
            )
        self.limit = None if limit is None else float(limit)
        self._start = time.monotonic()
        self._stopped = threading.Event()

    @property
    def seconds(self) -> float:
        """Time since the clock was made."""
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return float("inf") if self.limit is None else self.limit - self.seconds

    def grace(self, share: float, data: Sequences) -> "Clock":
        """A clock that is due when such a share of the limit has passed once more from now on.

        It has no limit where the data are not large: the last work on them is short.
        """
        if self.limit is None or not is_large(data):
            return Clock()
        return Clock(share * self.limit)

    def stop(self) -> None:
        """From now on the clock is due."""
        self._stopped.set()

    def is_due(self) -> bool:
        """Whether to end."""
        return self._stopped.is_set() or (self.limit is not None and self.seconds >= self.limit)


def is_large(data: Sequences) -> bool:
    """Whether a single pass over the data may take longer than a limit allows."""
    return data.values.size > _LARGE


def limited(clock: Clock, data: Sequences) -> AbstractContextManager[None]:
    """Passes over large data end with `TimeUpError` when the clock is due, not after it."""
    return until(clock.is_due) if is_large(data) else nullcontext()

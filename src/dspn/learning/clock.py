"""When learning has to end: a time limit, and a request to stop that all threads see."""

import threading
import time
from typing import final

from dspn._checks import is_number
from dspn.errors import StructureError


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

    def stop(self) -> None:
        """From now on the clock is due."""
        self._stopped.set()

    def is_due(self) -> bool:
        """Whether to end."""
        return self._stopped.is_set() or (self.limit is not None and self.seconds >= self.limit)

"""Values that are computed once, when they are first asked for, whichever thread asks."""

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar, cast, final

Value = TypeVar("Value")


@final
class Memo:
    """Values by key. A second thread that asks for a value waits until the first has made it.

    A copy, as pickling makes it, begins empty.
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, object] = {}
        self._lock = RLock()

    def __call__(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """make(), called at most once for each key."""
        if key not in self._values:
            with self._lock:
                if key not in self._values:
                    self._values[key] = make()
        return cast(Value, self._values[key])

    def __reduce__(self) -> tuple[type["Memo"], tuple[Any, ...]]:
        return Memo, ()

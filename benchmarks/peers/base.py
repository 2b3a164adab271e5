"""What a competitor offers: tasks to be timed, with what is done before and after the clock."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Result = Mapping[str, NDArray[np.generic]]


class NotAvailable(Exception):  # noqa: N818
    """A task that the competitor does not have, and why."""


class Task(NamedTuple):
    """`run(prepare())` is timed without `prepare`; `result` turns its value into named arrays.

    Results are `log_likelihood` (the sum over sequences), `states` (one for each slice), or
    `start`, `transition` and `emissions` as a `Case` has them.
    """

    run: Callable[[Any], Any]
    result: Callable[[Any], Result]
    prepare: Callable[[], Any] = lambda: None


class Peer(ABC):
    """A competitor with the data and the model of one case in the form it likes best."""

    version: str

    @abstractmethod
    def tasks(self) -> Mapping[str, Task]:
        """The tasks by name: log_likelihood, one_shot, em, viterbi."""

"""Work in threads, and how many of them the engine may use."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar, final

from dspn.errors import DspnError

Item = TypeVar("Item")
Result = TypeVar("Result")

_VARIABLE = "DSPN_NUM_THREADS"


_this_thread = threading.local()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Passes that the calling thread begins stay in it: for callers that share out the processors.

    Results are the same, as they do not depend on the number of threads.
    """
    before = getattr(_this_thread, "alone", False)
    _this_thread.alone = True
    try:
        yield
    finally:
        _this_thread.alone = before


@final
class TimeUpError(Exception):
    """A pass was given up, see `until`."""


@contextmanager
def until(is_due: Callable[[], bool]) -> Iterator[None]:
    """Passes that the calling thread begins end with `TimeUpError` once `is_due` says yes."""
    before = getattr(_this_thread, "is_due", None)
    _this_thread.is_due = is_due
    try:
        yield
    finally:
        _this_thread.is_due = before


def check_time() -> None:
    """Raises where the time of the calling thread is up."""
    is_due = getattr(_this_thread, "is_due", None)
    if is_due is not None and is_due():
        raise TimeUpError


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay, because starting them costs as much as a small pass."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dspn")


if hasattr(os, "register_at_fork"):
    # A forked process has the pool but none of its threads, and would wait for them for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """work(item) for every item, in their order; kernels release the interpreter's lock."""
    threads = min(num_threads(), len(items))
    if threads <= 1 or getattr(_this_thread, "alone", False):
        return [work(item) for item in items]
    is_due = getattr(_this_thread, "is_due", None)
    if is_due is None:
        return list(_pool(threads).map(work, items))

    def limited(item: Item) -> Result:
        with until(is_due):
            check_time()
            return work(item)

    return list(_pool(threads).map(limited, items))


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
            f"the environment variable {_VARIABLE} must be a whole number of at least 1, but is "
            f"{given!r}."
        )
    return int(given)

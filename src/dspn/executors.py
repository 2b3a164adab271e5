"""Work that is done side by side: in this process, in threads, or in other processes.

`Executor.map(function, items)` is all that learning asks for. It is used at three places: shards of
a step of expectation maximisation, neighbours of a search, and tries of the automatic learner. What
is mapped takes values that pickle, and what all items have in common is handed over as `Shared`, so
that a worker decodes it once. Results are in the order of the items, and the same to the last bit
with every executor and with any number of workers. An executor for a cluster is a subclass of
`Executor` with the same `map`.
"""

import atexit
import os
import pickle
import signal
import threading
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, Generic, TypeVar, final

from dspn._arguments import whole_number
from dspn.engine.base import one_thread_each
from dspn.errors import DspnError, StructureError, warn

Value = TypeVar("Value")
Work = Callable[[Any], Any]
OnError = Callable[[], None] | None

# Seconds after which an idle worker process ends.
_IDLE_S: Final = 120
# Values that a worker process keeps at a time.
_MOST_SHARED: Final = 16

_received: "dict[str, Shared[Any]]" = {}  # in a worker process: handles by their keys


@final
class Shared(Generic[Value]):
    """A handle of a value that many items need, such as a data set.

    Where the handle goes to other processes, the value is encoded once, and each of them decodes it
    once. Nothing of it is written to a file.
    """

    def __init__(self, value: Value) -> None:
        self.value = value
        self._key = uuid.uuid4().hex
        self._encoded: bytes | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Imported when it is used. It also encodes classes of the user's script.
        from joblib.externals.loky.backend.reduction import dumps

        with self._lock:
            if self._encoded is None:
                self._encoded = bytes(dumps(self.value))
        return _receive, (self._key, self._encoded)


def _receive(key: str, encoded: bytes) -> Shared[Any]:
    if key not in _received:
        while len(_received) >= _MOST_SHARED:
            del _received[next(iter(_received))]
        _received[key] = Shared(pickle.loads(encoded))
    return _received[key]


class Executor(ABC):
    """Runs a function on many items, `num_workers` at a time."""

    num_workers: int = 1

    @abstractmethod
    def map(self, function: Work, items: Sequence[Any], on_error: OnError = None) -> list[Any]:
        """The results of all items, in their order.

        The first exception of an item, and Ctrl-C, end the others and are raised.

        Args:
            function: A function of a module, or a `functools.partial` of one; it and the items
                pickle.
            items: What it is called with.
            on_error: Called where something is raised, so that items that are under way in other
                threads end at their next chance.
        """

    def share(self, value: Value) -> Shared[Value]:
        """A handle that brings a value to all workers; its attribute `value` is the value."""
        return Shared(value)


@final
class Serial(Executor):
    """One item after the other, in the calling thread."""

    def map(self, function: Work, items: Sequence[Any], on_error: OnError = None) -> list[Any]:
        """The results, see `Executor.map`."""
        return [function(item) for item in items]


@final
class Threads(Executor):
    """Threads of this process; they share Python's lock, which compiled kernels release."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = whole_number(num_workers, "num_workers", StructureError)

    def map(self, function: Work, items: Sequence[Any], on_error: OnError = None) -> list[Any]:
        """The results, see `Executor.map`."""
        workers = min(self.num_workers, len(items))
        if workers <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(workers, thread_name_prefix="dspn-worker") as pool:
            try:
                return list(pool.map(partial(_run_in_thread, function), items))
            except BaseException:
                if on_error is not None:
                    on_error()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _run_in_thread(function: Work, item: Any) -> Any:
    with one_thread_each():
        return function(item)


@final
class Processes(Executor):
    """The calling process and others on this machine, which do not share Python's lock.

    Other processes take a few seconds to start. Until they are there, all items run in the calling
    process, so that nothing waits for them; afterwards they stay for further calls.
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers = whole_number(num_workers, "num_workers", StructureError)

    def share(self, value: Value) -> Shared[Value]:
        """A handle of a value; the processes begin to start, since work is to be expected."""
        if self.num_workers > 1:
            _start_pool(self.num_workers - 1)
        return Shared(value)

    def map(self, function: Work, items: Sequence[Any], on_error: OnError = None) -> list[Any]:
        """The results, see `Executor.map`."""
        if min(self.num_workers, len(items)) <= 1:
            return [function(item) for item in items]
        pool = _start_pool(self.num_workers - 1)
        try:
            return pool.run(function, items)
        except BaseException as error:
            if on_error is not None:
                on_error()
            _start_pool.cache_clear()
            pool.end()
            if isinstance(error, BrokenProcessPool):
                raise DspnError(
                    "a worker process has ended before its work was done; it was killed, perhaps "
                    "for lack of memory. Use fewer workers (`n_jobs`), or `executor='threads'`."
                ) from error
            raise


@final
class _Pool:
    """Worker processes beside the calling one."""

    def __init__(self, num_workers: int) -> None:
        # Imported when it is used, as it takes long to load. Its processes do not run the main
        # module again, as those of the standard library do.
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        self._num_workers = num_workers
        self._processes = ProcessPoolExecutor(
            num_workers, timeout=_IDLE_S, initializer=_begin_worker, initargs=(os.getpid(),)
        )
        self.ready: Future[Any] = self._processes.submit(import_module, "dspn.learning")
        atexit.register(self.end)

    def run(self, function: Work, items: Sequence[Any]) -> list[Any]:
        """The results of all items; every process takes the next one when it has done its own."""
        waiting = deque(enumerate(items))
        remote: dict[int, Future[Any]] = {}
        results: dict[int, Any] = {}
        lock = threading.RLock()

        def feed(_: object = None) -> None:
            """Gives the next item to a worker process."""
            with lock:
                if waiting:
                    number, item = waiting.popleft()
                    remote[number] = self._processes.submit(_run_in_process, function, item)
                    remote[number].add_done_callback(feed)

        is_fed = False
        try:
            while True:
                if not is_fed and self.ready.done():
                    is_fed = True
                    for _ in range(self._num_workers):
                        feed()
                with lock:
                    if not waiting:
                        break
                    number, item = waiting.popleft()
                with one_thread_each():
                    results[number] = function(item)
            for number, future in remote.items():
                results[number], noted = future.result()
                for message, category in noted:
                    warn(message, category)
        except BaseException:
            with lock:
                waiting.clear()
            # loky fails where it is ended between taking an item and passing it on to a worker.
            until = time.monotonic() + 1.0
            while time.monotonic() < until and not all(
                own.running() or own.done() for own in remote.values()
            ):
                time.sleep(0.005)
            raise
        return [results[number] for number in range(len(items))]

    def end(self) -> None:
        """Ends the processes, whatever they do."""
        atexit.unregister(self.end)
        self._processes.shutdown(wait=True, kill_workers=True)


def _run_in_process(function: Work, item: Any) -> tuple[Any, list[tuple[str, type[Warning]]]]:
    """The result in a worker process, and the warnings on the way, for the calling process."""
    with one_thread_each(), warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        result = function(item)
    return result, [(str(note.message), note.category) for note in noted]


def _begin_worker(parent: int) -> None:
    """Leaves Ctrl-C to the calling process, and ends the worker where that process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@cache
def _start_pool(num_workers: int) -> _Pool:
    """The worker processes, the same at every call."""
    return _Pool(num_workers)


def executor_of(executor: Executor | str, num_workers: int) -> Executor:
    """The executor that options name: "threads", "processes", or one that is given as it is."""
    workers = whole_number(num_workers, "num_jobs", StructureError)
    if isinstance(executor, Executor):
        return executor
    if executor not in ("threads", "processes"):
        raise StructureError(
            "`executor` must be 'threads', 'processes' or an Executor of `dspn.executors`, but is "
            f"{executor!r}; choose one."
        )
    if workers == 1:
        return Serial()
    return Threads(workers) if executor == "threads" else Processes(workers)

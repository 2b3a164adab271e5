"""Work that is done side by side: in this process, in threads, in processes, or on a cluster.

`Executor.map` and `Executor.reduce` are all that learning asks for: for shards of a step of
expectation maximisation, neighbours of a search, and tries of the automatic learner. What is mapped
takes values that pickle, and what all items have in common is handed over as `Shared`, so that a
worker decodes it once. Results are in the order of the items, and sums are taken in one order, so
that both are the same to the last bit with every executor and with any number of workers.
"""

import atexit
import operator
import os
import pickle
import platform
import signal
import socket
import threading
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial, reduce
from importlib import import_module
from typing import Any, Final, Generic, TypeVar, final

from dspn._arguments import whole_number
from dspn.engine.base import check_time, one_thread_each
from dspn.errors import DspnError, StructureError, warn

Value = TypeVar("Value")
Work = Callable[[Any], Any]
OnError = Callable[[], None] | None

# Seconds after which an idle worker process ends.
_IDLE_S: Final = 120
# Seconds within which a cluster has to answer.
_ANSWER_S: Final = 10
# Values that a worker process keeps at a time.
_MOST_SHARED: Final = 16
# Results that are added in a row, and results that are held at a time: a power of the first.
_ADDED_AT_ONCE: Final = 8
_HELD_AT_ONCE: Final = 64

_received: "dict[str, Shared[Any]]" = {}  # in a worker process: handles by their keys


@final
class Shared(Generic[Value]):
    """A handle of a value that many items need, such as a data set.

    Where the handle goes to other processes, the value is encoded once, and each of them decodes it
    once. Nothing of it is written to a file.

    Args:
        value: The value.
        put: Brings the value to a cluster and returns a function that fetches it there; without
            it, the encoded value travels with the handle.
    """

    def __init__(
        self, value: Value, put: Callable[[Value], Callable[[], Value]] | None = None
    ) -> None:
        self.value = value
        self._key = uuid.uuid4().hex
        self._put = put
        self._sent: Callable[[], Value] | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            if self._sent is None:
                self._sent = (self._put or _encode)(self.value)
        return _receive, (self._key, self._sent)


def _encode(value: Value) -> Callable[[], Value]:
    # Imported when it is used. It also encodes classes of the user's script.
    from joblib.externals.loky.backend.reduction import dumps

    return partial(pickle.loads, bytes(dumps(value)))


def _receive(key: str, fetch: Callable[[], Any]) -> Shared[Any]:
    if key not in _received:
        while len(_received) >= _MOST_SHARED:
            del _received[next(iter(_received))]
        _received[key] = Shared(fetch())
    return _received[key]


def _add_in_order(values: Sequence[Any]) -> Any:
    """The sum of values, eight neighbours at a time, then of eight sums, and so on."""
    while len(values) > 1:
        starts = range(0, len(values), _ADDED_AT_ONCE)
        values = [reduce(operator.add, values[start : start + _ADDED_AT_ONCE]) for start in starts]
    return values[0]


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

    def reduce(self, function: Work, items: Sequence[Any]) -> Any:
        """The sum of the results of all items, which are added in an order that is always the same.

        Args:
            function: As for `map`; its results have an addition.
            items: What it is called with, at least one.
        """
        parts = []
        for start in range(0, len(items), _HELD_AT_ONCE):
            check_time()
            parts.append(_add_in_order(self.map(function, items[start : start + _HELD_AT_ONCE])))
        return _add_in_order(parts)

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
                results[number] = _with_warnings(future.result())
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


def _with_warnings(found: tuple[Any, list[tuple[str, type[Warning]]]]) -> Any:
    """The result of `_run_in_process`; its warnings are given here."""
    result, noted = found
    for message, category in noted:
        warn(message, category)
    return result


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


@final
class Ray(Executor):
    """The machines of a Ray cluster; needs `pip install dspn[ray]`.

    Every item is a task, which is tried again on another machine where a worker or its machine is
    lost. Shared values lie in the object store of the cluster, and sums are taken by tasks too, so
    that the results of single items do not travel. All machines need the Python version and the
    release of dspn of the calling process, and the paths of data sets in shards.

    Args:
        address: That of the cluster, "auto" for the one that this machine belongs to, or "local"
            for one that is started on this machine and ends with the process.
        num_retries: How often an item is tried again whose worker was lost.
        resources: What a task needs, as Ray names it, such as {"num_gpus": 1}; by default a core.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        num_retries: int = 8,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        self.address = address
        self.num_retries = whole_number(num_retries, "num_retries", StructureError, least=0)
        self.resources = {"num_cpus": 1, **(resources or {})}

    @property
    def num_workers(self) -> int:  # type: ignore[override]
        """Tasks that the cluster runs at a time, as it is now."""
        total = self._connect().cluster_resources()
        shares = [
            total.get({"num_cpus": "CPU", "num_gpus": "GPU"}.get(name, name), 0.0) / needed
            for name, needed in self.resources.items()
            if isinstance(needed, int | float) and needed > 0
        ]
        return max(1, int(min(shares, default=1)))

    def map(self, function: Work, items: Sequence[Any], on_error: OnError = None) -> list[Any]:
        """The results, see `Executor.map`."""
        found = self._get(self._begin(function, items), on_error)
        return [_with_warnings(result) for result in found]

    def reduce(self, function: Work, items: Sequence[Any]) -> Any:
        """The sum, see `Executor.reduce`; the tasks add each other's results."""
        references, adding = self._begin(function, items), self._task(_add_tasks)
        while len(references) > 1:
            references = [
                adding.remote(*references[start : start + _ADDED_AT_ONCE])
                for start in range(0, len(references), _ADDED_AT_ONCE)
            ]
        (found,) = self._get(references)
        return _with_warnings(found)

    def share(self, value: Value) -> Shared[Value]:
        """A handle of a value in the object store."""
        put = self._connect().put
        return Shared(value, lambda own: partial(_fetch, [put(own)]))

    def _task(self, function: Callable[..., Any]) -> Any:
        self._connect()
        return _remote(function).options(max_retries=self.num_retries, **self.resources)

    def _begin(self, function: Work, items: Sequence[Any]) -> list[Any]:
        task, common = self._task(_run_in_process), self._connect().put(function)
        return [task.remote(common, item) for item in items]

    def _get(self, references: list[Any], on_error: OnError = None) -> list[Any]:
        """The results; the cluster's failures become errors that say what to do."""
        ray = self._connect()
        try:
            return list(ray.get(references))
        except BaseException as error:
            if on_error is not None:
                on_error()
            if isinstance(error, KeyboardInterrupt):
                for reference in references:
                    ray.cancel(reference)
            if isinstance(error, ray.exceptions.RayTaskError):
                raise error.cause from None
            if isinstance(error, ray.exceptions.RayError):
                raise DspnError(
                    f"the Ray cluster lost work {self.num_retries + 1} times or is gone "
                    f"({type(error).__name__}); look at its logs for a lack of memory, and run "
                    "the same again: a checkpoint goes on where it was."
                ) from error
            raise

    def _connect(self) -> Any:
        """The module `ray`, connected to the cluster."""
        return _connected_ray(self.address)


@cache
def _remote(function: Callable[..., Any]) -> Any:
    """The function as a task, the same at every call: Ray keeps a queue for each."""
    return import_module("ray").remote(function)


def _fetch(references: list[Any]) -> Any:
    """What lies in the object store; a reference in a list is not fetched by Ray itself."""
    return import_module("ray").get(references[0])


def _add_tasks(*results: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
    values, noted = zip(*results, strict=True)
    return reduce(operator.add, values), [note for own in noted for note in own]


@cache
def _connected_ray(address: str) -> Any:
    """The module `ray`; raises where the cluster does not answer, or runs other releases."""
    try:
        ray = import_module("ray")
    except ImportError:
        raise StructureError(
            "`Ray` needs the package ray, which is not installed; run `pip install dspn[ray]`."
        ) from None
    try:
        if not ray.is_initialized():
            # Ray ends the process where a machine does not answer.
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if host and port.isdigit():
                socket.create_connection((host, int(port)), _ANSWER_S).close()
            ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise DspnError(
            f"the Ray cluster at {address!r} cannot be used: {str(error).strip().rstrip('.')}; "
            "start one with `ray start --head`, or correct the address."
        ) from None
    own = _releases()
    task, scheduling = ray.remote(_releases), import_module("ray.util.scheduling_strategies")
    for node in (node for node in ray.nodes() if node["Alive"]):
        strategy = scheduling.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        try:
            found = ray.get(task.options(num_cpus=0, scheduling_strategy=strategy).remote())
        except ray.exceptions.RayError as error:
            finding = f"cannot run dspn ({str(error).strip().splitlines()[-1]})"
        else:
            finding = "" if found == own else f"runs {found}, where this process runs {own}"
        if finding:
            raise DspnError(
                f"the machine {node['NodeManagerAddress']} of the Ray cluster {finding}; install "
                "the same releases everywhere."
            )
    return ray


def _releases() -> str:
    names = ("dspn", "numpy")
    versions = (f"{name} {import_module(name).__version__}" for name in names)
    return ", ".join([f"Python {platform.python_version()}", *versions])


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

"""A run of a learner: its clock, what people see of it, how it ends, and what it leaves on disk.

Both learners, that of the paper and the automatic one, go from one immutable state to the next, so
that any state can be the last one. `follow` takes them along; `CheckpointFile` keeps the last state
of a run in one file, `RunDirectory` keeps every network that a run has trained.
"""

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar, final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from dspn._arguments import is_number, require_type
from dspn._version import __version__
from dspn.atomic import exclusive, is_temporary, path_text, write_atomically
from dspn.data.sequences import Sequences, data_fingerprint
from dspn.engine.base import TimeUpError, until
from dspn.errors import DataError, ModelFileError, StructureError, warn
from dspn.io.files import load_network, save_network
from dspn.io.json_values import JSON, compact, parse, plain
from dspn.io.json_values import fields as json_fields
from dspn.progress import share_text, show_progress
from dspn.structure.network import DynamicNetwork

State = TypeVar("State")
Read = Callable[[DynamicNetwork, dict[str, JSON]], State]

# A pass over data of fewer entries is over before it is worth ending within.
_LARGE: Final = 100_000
# Seconds between two lines of progress: where something was accepted, and where not.
_NEWS_EVERY_S: Final = 1.0
_LINE_EVERY_S: Final = 10.0
_VERSION: Final = 1  # of checkpoint files
_ENTRY: Final = "learning"
_RUN: Final = "run.json"
_LOCK: Final = "run.lock"
_MOST_BYTES: Final = 1 << 20  # of the description of a run, which has a few thousand


# Time.


@final
class Clock:
    """Counts the seconds since it was made; due when the limit has passed or after `stop`.

    A clock that goes to another process keeps its limit; a later `stop` is not seen there.
    """

    def __init__(self, limit: float | None = None) -> None:
        if limit is not None and not (is_number(limit) and limit > 0):
            raise StructureError(
                f"`time_limit` must be a positive number of seconds, or None for no limit, but is "
                f"{limit!r}."
            )
        self.limit = None if limit is None else float(limit)
        self._start = time.monotonic()
        self._stopped = threading.Event()

    def __getstate__(self) -> tuple[float | None, float, bool]:
        return self.limit, time.time() - self.seconds, self._stopped.is_set()

    def __setstate__(self, state: tuple[float | None, float, bool]) -> None:
        self.limit, began, stopped = state
        self._start = time.monotonic() - (time.time() - began)
        self._stopped = threading.Event()
        if stopped:
            self.stop()

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

    def within(self, share: float) -> "Clock":
        """A clock that began with this one and is due after a share of its limit."""
        other = Clock(None if self.limit is None else share * self.limit)
        other._start = self._start
        if self._stopped.is_set():
            other.stop()
        return other

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


# Progress.


@final
@dataclass(frozen=True)
class Report:
    """Where learning stands: the stage it is in, the best model so far, and the time taken.

    `score` is that of the best model on the validation set, in nats per sequence. `limit` is the
    time allowed, None where there is no limit; `done` the share of the work or time that has been
    done, None where that is not known.
    """

    stage: str
    score: float
    tried: int
    accepted: int
    num_interfaces: int
    num_nodes: int
    num_edges: int
    seconds: float
    limit: float | None = None
    done: float | None = None

    @property
    def _time(self) -> str:
        if self.limit is None:
            done = share_text(self.done, self.seconds)
            return f"{done}, {self.seconds:.0f} s" if done else f"{self.seconds:.0f} s"
        share = min(self.seconds / self.limit, 1.0)
        left = max(self.limit - self.seconds, 0.0)
        return f"{self.seconds:.0f} of {self.limit:.0f} s ({100 * share:.0f} %, {left:.0f} s left)"

    def __str__(self) -> str:
        return (
            f"{self._time}  {self.stage}: best score {self.score:.3f} nats per sequence, "
            f"{self.accepted} of {self.tried} accepted; {self.num_interfaces} interface nodes, "
            f"{self.num_nodes} nodes, {self.num_edges} edges"
        )

    def table(self) -> Table:
        """The report as a table with headings, for a terminal."""
        cells = {
            "stage": self.stage,
            "best score": f"{self.score:.3f}",
            "accepted": f"{self.accepted:,}",
            "tried": f"{self.tried:,}",
            "interfaces": f"{self.num_interfaces:,}",
            "nodes": f"{self.num_nodes:,}",
            "edges": f"{self.num_edges:,}",
            "time": self._time,
        }
        table = Table(*cells, box=None, pad_edge=False, header_style="dim")
        for column in table.columns[1:]:
            column.justify = "right"
        table.add_row(*cells.values())
        return table


Reporter = Callable[[Report], None]


@contextmanager
def reporter(*, quiet: bool = False, stream: TextIO | None = None) -> Iterator[Reporter]:
    """What to hand reports to: a table that is drawn anew on a terminal, lines anywhere else.

    A line is written when the stage changes, every second for as long as something is accepted,
    otherwise every ten, and at the end. Everything goes to standard error unless there is another
    stream.
    """
    if quiet:
        yield lambda report: None
        return
    console = Console(file=sys.stderr if stream is None else stream)
    is_live = console.is_terminal and not console.is_dumb_terminal
    live = Live(console=console, refresh_per_second=4) if is_live else None
    written: Report | None = None
    waiting: Report | None = None
    before = ExitStack()  # the time until the first report
    before.enter_context(show_progress("learning", stream=stream))

    def write(report: Report) -> None:
        nonlocal written, waiting
        with suppress(OSError):  # nobody reads it any more, and learning is not over
            print(report, file=console.file, flush=True)
        written, waiting = report, None

    def take(report: Report) -> None:
        nonlocal waiting
        before.close()
        if live is not None:
            live.start()
            live.update(report.table())
            return
        waiting = report
        if written is not None and report.stage == written.stage:
            pause = _NEWS_EVERY_S if report.accepted > written.accepted else _LINE_EVERY_S
            if report.seconds - written.seconds < pause:
                return
        write(report)

    try:
        yield take
    finally:
        before.close()
        if live is not None:
            live.stop()
        if waiting is not None:
            write(waiting)


# From state to state.


class Ending(StrEnum):
    """Why learning ended."""

    FINISHED = "finished"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"


def follow(
    states: Iterable[State],
    clock: Clock,
    *,
    describe: Callable[[State], Report],
    on_state: Callable[[State], None],
    report: Reporter | None = None,
) -> tuple[Ending, tuple[Report, ...]]:
    """Goes from state to state until the last one, a time limit, or Ctrl-C.

    Returns how the run ended, and the reports of all its states.

    Args:
        states: The states of a run, the first included.
        clock: Stopped where Ctrl-C is pressed.
        describe: The report of a state.
        on_state: Called with every state before anything else can be interrupted.
        report: Called with every report.
    """
    history: list[Report] = []
    ending = Ending.FINISHED
    try:
        for state in states:
            on_state(state)
            history.append(describe(state))
            if report is not None:
                report(history[-1])
        if clock.is_due():
            ending = Ending.TIME_LIMIT
    except TimeUpError:
        ending = Ending.TIME_LIMIT
    except KeyboardInterrupt:
        clock.stop()
        ending = Ending.INTERRUPTED
    return ending, tuple(history)


def check_sets(train: Sequences, validation: Sequences) -> None:
    """Raises where there is nothing to learn from or to choose by, before the long work begins."""
    for name, data in (("train", train), ("validation", validation)):
        require_type(data, Sequences, name, DataError)
    if train.schema != validation.schema:
        raise DataError(
            "`validation` must have the variables and categories of `train`, but has others; give "
            "the schema of `train` when it is read."
        )


# What a run leaves on disk.


def describe_options(value: object) -> JSON:
    """Options as JSON: a dataclass is an object of its fields and of the name of its class."""
    if isinstance(value, Enum):
        return describe_options(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        own = {item.name: describe_options(getattr(value, item.name)) for item in fields(value)}
        return {"class": type(value).__name__, **own}
    if isinstance(value, Mapping):
        return {str(key): describe_options(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [describe_options(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)


def describe_run(
    train: Sequences, validation: Sequences, seed: int, **options: object
) -> dict[str, JSON]:
    """What a result follows from: the release, the options, the seed and the data."""
    return {
        "release": __version__,
        **{name: describe_options(value) for name, value in options.items()},
        "seed": seed,
        "train": data_fingerprint(train).hex(),
        "validation": data_fingerprint(validation).hex(),
    }


def _differences(saved: object, own: object, name: str = "") -> list[str]:
    """How the descriptions of two runs differ, in words."""
    if saved == own:
        return []
    if name in ("train", "validation"):
        return [f"its `{name}` holds other data"]
    if isinstance(saved, dict) and isinstance(own, dict):
        return [
            words
            for key in sorted({*saved, *own})
            for words in _differences(saved.get(key), own.get(key), f"{name}.{key}".lstrip("."))
        ]
    return [f"its `{name}` is {_shorten(saved)} where this run has {_shorten(own)}"]


def _shorten(value: object) -> str:
    text = str(value.get("class", "other")) if isinstance(value, dict) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lock(lock: str, path: Path, run: Mapping[str, JSON]) -> AbstractContextManager[None]:
    """Keeps a path from other runs, by a lock file."""
    digest = hashlib.sha256(compact(run).encode()).hexdigest()
    return exclusive(lock, str(path), digest[:12])


def _keep_network(network: DynamicNetwork, path: Path, entry: Mapping[str, JSON]) -> None:
    """Writes a network whole or not at all; warns where the disk does not take it."""
    _keep(lambda: save_network(network, path, provenance={_ENTRY: entry}))


def _keep(write: Callable[[], None]) -> None:
    """Writes something; warns where the disk does not take it."""
    try:
        write()
    except ModelFileError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        warn(
            f"{str(error).rstrip('.')}; learning goes on, but what was not written is learned "
            "again after an interruption.",
            UserWarning,
        )


def _load(path: Path, families: Sequence[Any], read: Read[State], refusal: str) -> State | None:
    """What `read` makes of a network and of what was written with it; None without a file."""
    if not path.exists():
        return None
    found = load_network(path, families=families)
    try:
        details = json_fields(found.provenance.get(_ENTRY, {}), "its record")
        return read(found.network, dict(details))
    except (OverflowError, TypeError, ValueError) as error:
        raise ModelFileError(refusal.format(repr(str(path)), str(error).rstrip("."))) from error


def _check_same_run(details: dict[str, JSON], run: Mapping[str, JSON]) -> None:
    """Takes the description of a run out of the details; raises unless it is that of this run."""
    others = _differences(json_fields(details.pop("run", None), "its run", run.keys()), run)
    if others:
        raise ModelFileError(f"it belongs to another run: {'; '.join(others)}")


@final
class CheckpointFile:
    """The file that the states of one run go to, one in place of the other.

    Args:
        path: The file, a model by itself.
        run: What the run is, see `describe_run`.
        every: Seconds between two checkpoints.
        families: Leaf families that are not of the library.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        run: dict[str, JSON],
        every: float,
        families: Sequence[Any] = (),
    ) -> None:
        self.path = Path(path_text(path))
        directory = os.path.dirname(os.path.realpath(self.path))
        if not os.path.isdir(directory):
            raise ModelFileError(
                f"cannot write the checkpoint {str(self.path)!r}: the directory {directory!r} does "
                "not exist; create it first."
            )
        if not (is_number(every) and every >= 0):
            raise StructureError(
                f"`checkpoint_every` must be a number of seconds, not negative, but is {every!r}."
            )
        self._run = run
        self._families = families
        self._every = every
        self._last = time.monotonic()

    def hold(self) -> AbstractContextManager[None]:
        """Keeps the file from other runs."""
        return _lock(f"{self.path}.lock", self.path, self._run)

    def save(
        self, network: DynamicNetwork, details: Mapping[str, JSON], *, now: bool = True
    ) -> None:
        """Writes a state; unless it is wanted `now`, only where the last one is old enough."""
        if now or time.monotonic() - self._last >= self._every:
            entry = {"version": _VERSION, "run": self._run, **details}
            _keep_network(network, self.path, entry)
            self._last = time.monotonic()

    def require_absent(self) -> None:
        """Raises where there is a file already: what took long to learn is not overwritten."""
        if self.path.exists():
            raise ModelFileError(
                f"there is a file at the checkpoint {str(self.path)!r} already; go on from it with "
                "`resume=True`, or remove it."
            )

    def load(self, read: Read[State]) -> State | None:
        """What `read` makes of the network and the details that were saved; None without a file."""

        def read_current(network: DynamicNetwork, details: dict[str, JSON]) -> State:
            if not details:
                raise ModelFileError(
                    "it is a model, but no checkpoint to go on from: it does not say how far its "
                    "learning had come"
                )
            version = details.pop("version", None)
            if version != _VERSION:
                raise ModelFileError(
                    f"it is of version {_shorten(version)}, but this release reads version "
                    f"{_VERSION}"
                )
            _check_same_run(details, self._run)
            return read(network, details)

        return _load(
            self.path,
            self._families,
            read_current,
            "cannot go on from the checkpoint {}: {}. Give what it was made with, or begin anew at "
            "another path.",
        )


@final
@dataclass(frozen=True, eq=False)
class RunDirectory:
    """The directory of one run, with every network that it has trained by number.

    A run follows from data, options and seed. It is taken up again by going the same way once more,
    with every network that is in the directory read instead of trained.
    """

    path: Path
    run: dict[str, JSON]
    families: Sequence[Any] = ()

    @classmethod
    @contextmanager
    def hold(
        cls, path: str | os.PathLike[str], run: dict[str, JSON], *, resume: bool
    ) -> Iterator["RunDirectory"]:
        """The directory as `open` has it, kept from other runs until this one ends."""
        directory = _make_directory(path)
        with _lock(str(directory / _LOCK), directory, run):
            yield cls.open(path, run, resume=resume)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], run: dict[str, JSON], *, resume: bool
    ) -> "RunDirectory":
        """The directory, made where it is missing.

        Args:
            path: The directory.
            run: What the run is, see `describe_run`.
            resume: Whether the directory may belong to this run already.
        """
        directory = _make_directory(path)
        known = directory / _RUN
        if not os.path.lexists(known):
            names = [own.name for own in directory.iterdir()]
            if not all(name == _LOCK or is_temporary(name) for name in names):
                raise ModelFileError(
                    f"`checkpoint` must be an empty or a new directory, but {str(directory)!r} "
                    "holds other files; give another path."
                )
            write_atomically(known, json.dumps(run, indent=1).encode("utf-8"))
            return cls(directory.absolute(), run)
        if not resume:
            raise ModelFileError(
                f"there is a run in the directory {str(directory)!r} already; go on from it with "
                "`resume=True`, or remove it."
            )
        others = _differences(_read(known, "what run the directory is of", lambda own: own), run)
        if others:
            raise ModelFileError(
                f"the run in {str(directory)!r} is another one: {'; '.join(others)}. Give what it "
                "was made with, or begin anew at another path."
            )
        # Worker processes may have another working directory.
        return cls(directory.absolute(), run)

    def _file(self, number: int) -> Path:
        return self.path / f"{number:05d}.dspn"

    def note(self, name: str, value: JSON) -> None:
        """Writes a file of JSON; a disk that is full does not end learning."""
        text = json.dumps(value, indent=1).encode("utf-8")
        _keep(lambda: write_atomically(self.path / name, text))

    def noted(self, name: str, what: str, read: Callable[[JSON], State]) -> State | None:
        """What `read` makes of a file of JSON that says `what`; None without the file."""
        path = self.path / name
        return _read(path, what, read) if os.path.lexists(path) else None

    def save(self, number: int, network: DynamicNetwork, details: Mapping[str, JSON]) -> None:
        """Writes a network with details; a disk that is full does not end learning."""
        _keep_network(network, self._file(number), {"run": self.run, **details})

    def load(self, number: int, read: Read[State]) -> State | None:
        """What `read` makes of a network and its details; None where there is no such network.

        An error of `read` says that the file does not belong to this run.
        """

        def read_own(network: DynamicNetwork, details: dict[str, JSON]) -> State:
            _check_same_run(details, self.run)
            return read(network, details)

        return _load(
            self._file(number),
            self.families,
            read_own,
            "{} is not the model that this run trained: {}. Remove the file to train it again, or "
            "begin anew in another directory.",
        )


def _make_directory(path: str | os.PathLike[str]) -> Path:
    directory = Path(path_text(path))
    if directory.exists() and not directory.is_dir():
        raise ModelFileError(
            f"`checkpoint` must be a directory for the automatic learner, but "
            f"{str(directory)!r} is a file; give another path."
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(
            f"cannot make the directory {str(directory)!r} for the checkpoint: {reason}; give "
            "another path."
        ) from error
    return directory


def _read(path: Path, what: str, read: Callable[[JSON], State]) -> State:
    try:
        # A pipe would keep whoever opens it waiting, and a description is short.
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is no file of this size")
        return read(plain(parse(path.read_text(encoding="utf-8")), "it"))
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{str(path)!r}, which says {what}, cannot be read ({error}); remove the directory and "
            "begin anew."
        ) from error

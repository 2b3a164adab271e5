"""The `dspn` command: its parts, and how it ends."""

import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from dspn._version import __version__
from dspn.cli import classifying, describing, fitting, plotting, queries, watching
from dspn.cli.console import forget, note, warnings_as_notes
from dspn.cli.errors import (
    DATA,
    INTERRUPTED,
    USAGE,
    ReaderGoneError,
    StoppedError,
    UsageError,
    sentence,
)
from dspn.cli.examples import epilog
from dspn.errors import DspnError

_DEBUG = "--debug"
_LOADERS = ("_frozen_importlib", "importlib", "llvmlite", "numba")


app = typer.Typer(
    name="dspn",
    no_args_is_help=True,
    epilog=epilog("dspn"),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dspn {__version__}")
        raise typer.Exit


@app.callback()
def dspn(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the release."),
    ] = False,
    debug: Annotated[
        bool, typer.Option(_DEBUG, help="Show where an error comes from; anywhere on the line.")
    ] = False,
) -> None:
    """Dynamic sum-product networks: fit models of sequences to tables, and ask them anything.

    A table has one row for each slice, a column that names its sequence, and a column for each
    variable; empty cells are missing. Messages count rows from 1, the first below the header.
    """


for _command in (
    fitting.fit,
    queries.score,
    queries.impute,
    queries.complete,
    queries.forecast,
    queries.sample,
    queries.surprise,
    describing.inspect,
    describing.validate,
    plotting.plot,
    plotting.report,
    watching.watch,
):
    app.command(epilog=epilog(_command.__name__))(_command)
app.add_typer(classifying.app, name="classify")


def run(arguments: Sequence[str], app: typer.Typer = app, name: str = "dspn") -> int:
    """Runs a command and returns its exit status: 0, 1 for data, 2 for usage, 130 for Ctrl-C.

    After another signal than Ctrl-C the status is 128 and the number of the signal.
    """
    debug = _DEBUG in arguments
    quiet = "--quiet" in arguments or "-q" in arguments
    rest = [word for word in arguments if word != _DEBUG]
    try:
        with warnings_as_notes(quiet=quiet):
            command = typer.main.get_command(app)
            status = command.main(args=rest, prog_name=name, standalone_mode=False)
    except Exception as error:
        return _ended(error, debug=debug)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except SystemExit:  # what typer and rich make of a reader that is gone
        return _ended(ReaderGoneError(), debug=debug)
    if status == INTERRUPTED:
        note("interrupted; no output file was written.")
    return status if isinstance(status, int) else 0


def _ended(error: Exception, *, debug: bool) -> int:
    """Says in one sentence why a command ended, and returns the status for it."""
    if isinstance(error, ReaderGoneError | BrokenPipeError):
        forget(sys.stdout)
        return 0
    if isinstance(error, StoppedError):
        note(error)
        return INTERRUPTED
    if debug:
        raise error
    if isinstance(error, UsageError):
        said: Any = error
        note(f"usage: {sentence(said.format_message())}{_help_of(said)}")
        return USAGE
    if isinstance(error, DspnError | OSError | MemoryError):
        note(f"error: {sentence(_in_words(error))}")
        return DATA
    note(f"error: {type(error).__name__}: {sentence(error)} (--debug shows where)")
    return DATA


def _in_words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "the data do not fit into memory."
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror.lower()}{where}."
    return str(error)


def _help_of(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return "" if context is None else f" See `{context.command_path} --help`."


def _heed_signals() -> list[int]:
    """From now on these signals raise KeyboardInterrupt; returns where their numbers will be."""
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number != alarm:
            received.append(number)
        if alarm is not None and _is_loading(frame):
            # There an exception may be swallowed, or be shown and not raised: a moment later.
            signal.signal(alarm, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        for name in ending:  # a terminal that is closed sends the second right after the first
            signal.signal(name, signal.SIG_IGN)
        for stream in terminals:
            if not stream.isatty():
                forget(stream)
        raise KeyboardInterrupt

    alarm = getattr(signal, "SIGALRM", None)
    terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]
    known = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
    # What the process was told to ignore, as by nohup, stays ignored.
    ending = [name for name in known if name and signal.getsignal(name) is signal.SIG_DFL]
    for name in ending:
        signal.signal(name, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    return received


def _is_loading(frame: FrameType | None) -> bool:
    """Whether a module or a kernel is being loaded."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _LOADERS:
            return True
        frame = frame.f_back
    return False


def main() -> NoReturn:
    """The entry point of the command; SIGTERM and SIGHUP end it as Ctrl-C does."""
    received = _heed_signals()
    status = run(sys.argv[1:])
    for name in ("SIGINT", "SIGALRM", "SIGTERM", "SIGHUP"):  # what comes now is too late
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if status == INTERRUPTED and received:
        status = 128 + received[0]  # as shells have it
    try:
        sys.stdout.flush()
    except OSError as error:
        forget(sys.stdout)
        if not (isinstance(error, BrokenPipeError) or status):
            note(f"error: cannot write to standard output: {_in_words(error)}")
            status = DATA
    sys.exit(status)

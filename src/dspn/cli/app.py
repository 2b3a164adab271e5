"""The `dspn` command: its parts, and how it ends."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from dspn._version import __version__
from dspn.cli import classifying, describing, fitting, plotting, queries, watching
from dspn.cli.console import note, warnings_as_notes
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
    """Runs a command and returns its exit status: 0, 1 for data, 2 for usage, 130 for Ctrl-C."""
    debug = _DEBUG in arguments
    quiet = "--quiet" in arguments or "-q" in arguments
    rest = [word for word in arguments if word != _DEBUG]
    command = typer.main.get_command(app)
    try:
        with warnings_as_notes(quiet=quiet):
            status = command.main(args=rest, prog_name=name, standalone_mode=False)
    except Exception as error:
        return _ended(error, debug=debug)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status == INTERRUPTED:
        note("interrupted; no output file was written.")
    return status if isinstance(status, int) else 0


def _ended(error: Exception, *, debug: bool) -> int:
    """Says in one sentence why a command ended, and returns the status for it."""
    if isinstance(error, ReaderGoneError):
        _forget_output()
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


def main() -> NoReturn:
    """The entry point of the command."""
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
    sys.exit(status)


def _forget_output() -> None:
    """What is still in the buffer would fail once more when the interpreter flushes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

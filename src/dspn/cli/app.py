"""The `dspn` command: its subcommands, and how a process that runs it ends."""

import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, Literal, NoReturn

import typer

from dspn._version import __version__
from dspn.cli import console, options
from dspn.cli.options import (
    Drawing,
    Preparation,
    Reading,
    Request,
    Table,
    Target,
    Training,
    Unknown,
    Watching,
)
from dspn.errors import DspnError

_DEBUG: Final = "--debug"
_DATA, _USAGE, _INTERRUPTED = 1, 2, 130  # the last as in shells
_LOADERS: Final = ("_frozen_importlib", "importlib", "llvmlite", "numba")
# The class of all wrong usage; its module depends on the release of typer.
_UsageError: Final[type[Any]] = typer.BadParameter.__mro__[1]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dspn {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="dspn",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
classify = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Learn to tell sequences apart by their class, and classify new ones.",
)


def dspn(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the release."),
    ] = False,
    debug: Annotated[
        bool, typer.Option(_DEBUG, help="Show where an error comes from; anywhere on the line.")
    ] = False,
) -> None:
    """Dynamic sum-product networks: fit models of sequences to tables, and query them.

    A table has one row for each slice, a column that names its sequence, and a column for each
    variable; empty cells are missing. Messages count rows from 1, the first below the header.

    Examples:
        dspn fit days.csv -s day -o weather.dspn
        dspn score weather.dspn new.csv -o scores.csv
        dspn forecast weather.dspn new.csv --steps 24
    """


def _split_help(function: Callable[..., None]) -> dict[str, Any]:
    """The text of a docstring, and its examples, which help shows below the options."""
    text, _, examples = cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
    # A backspace on a line of its own keeps the lines of a paragraph apart.
    return {"help": text, "epilog": f"\b\nExamples:\n{examples}" if examples else ""}


def _command(implementation: str, *words: str) -> Callable[[Callable[..., None]], None]:
    """Makes a declaration, a signature with a docstring, the command of its name.

    `classify_fit` declares `classify fit`. A module is imported only when its command runs. The
    status is 1 where the implementation returns False.

    Args:
        implementation: Module of `dspn.cli` and function that take the arguments of the command.
        words: Arguments that come before those of the command.
    """

    def add(declaration: Callable[..., None]) -> None:
        def run(**given: Any) -> None:
            module, name = implementation.split(".")
            if getattr(import_module(f"dspn.cli.{module}"), name)(*words, **given) is False:
                raise typer.Exit(_DATA)

        path = declaration.__name__.replace("_", " ")
        group = classify if " " in path else app
        named = group.command(path.split()[-1], **_split_help(declaration))
        named(options.as_command(declaration, run, path))

    return add


app.callback(**_split_help(dspn))(dspn)


@_command("fit.fit")
def fit(
    *,
    output: Path | None = None,
    as_continue: Path | None = None,
    unknown: Unknown = "error",
    table: Table,
    as_input: list[str] | None = None,
    training: Training,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Learn a model of a table: the kind of each variable, and then the network that fits best.

    Ctrl-C ends learning and keeps the best model so far.

    Examples:
        dspn fit days.csv -s day -t hour -o weather.dspn
        dspn fit days.csv -s day --variables sky,celsius --kind sky=categorical -o weather.dspn
        dspn fit days.parquet -s day --effort 20 --validation new.parquet -o weather.dspn
        dspn fit days.csv -s day -t time --input hour --input dose -o weather.dspn
        dspn fit days.csv -s day --checkpoint run --time-limit 600 -o weather.dspn
        dspn fit shards/ --checkpoint run --ray auto -o machines.dspn
        dspn fit --continue weather.dspn new.csv -o newer.dspn
    """


@_command("shards.prepare")
def prepare(asked: Preparation) -> None:
    """Turn tables larger than memory into a data set of shards, for fit, score, impute, surprise.

    The files have the same columns. The rows of a sequence may lie anywhere, also in several files.
    A run that was interrupted goes on when the same command is given again.

    Examples:
        dspn prepare logs/ -s machine -t time -o shards/
        dspn prepare 'logs/2024-*.parquet' 'logs/2025-*.csv' -s machine -t time -j 4 -o shards/
        dspn fit shards/ -o machines.dspn
        dspn surprise machines.dspn shards/ -j 4 -o surprise/
    """


@_command("query.ask", "score")
def score(request: Request) -> None:
    """Compute how probable each sequence is: its log-likelihood in nats, in all and by slice.

    The answer has a row for each sequence.

    Examples:
        dspn score weather.dspn days.csv -s day -o scores.csv
        cat days.csv | dspn score weather.dspn | sort -t, -k4 -g | head
    """


@_command("query.impute")
def impute(levels: str = "", mark: bool = False, *, request: Request) -> None:
    """Fill each gap by itself: the most probable category, the median of a count, or the mean.

    The answer is the table with all its columns and rows; observed values are left as they are.
    With --levels there is a column for each quantile of a filled number (celsius@0.1) and for the
    probability of a filled category (sky@p); with --mark a column `filled` names what was filled.

    Examples:
        dspn impute weather.dspn days.csv -o whole.csv
        dspn impute weather.dspn days.csv --levels 0.1,0.9 --mark -o whole.csv
        dspn impute weather.dspn days.parquet -s day -t hour -o whole.parquet
    """


@_command("query.ask", "complete")
def complete(request: Request) -> None:
    """Fill all gaps together: the values and hidden choices that are jointly most probable.

    Examples:
        dspn complete weather.dspn days.csv -s day -o whole.csv
    """


@_command("query.forecast")
def forecast(
    steps: int = 1,
    levels: str = "0.05,0.5,0.95",
    known: str | None = None,
    inputs: str | None = None,
    *,
    request: Request,
) -> None:
    """Predict the next slices: a row for each sequence and step, with exact distributions.

    Each variable has a column for its point (most probable category, median of a count, mean), then
    columns for the probability of each category (sky=rain) or the quantiles (celsius@0.05). An
    order column of whole numbers or of times goes on with the step that makes up more than half of
    the steps of its sequence, and is empty where none does.

    Examples:
        dspn forecast weather.dspn days.csv --steps 24 -o ahead.csv
        dspn forecast weather.dspn days.csv --steps 24 --known tomorrow.csv
        dspn forecast weather.dspn days.csv --steps 24 --inputs doses.csv
        dspn forecast weather.dspn days.csv --steps 3 --levels 0.1,0.9
    """


@_command("query.sample")
def sample(
    model: Path,
    number: int = 1,
    length: int = 10,
    seed: int | None = None,
    bound: list[str] | None = None,
    *,
    target: Target,
) -> None:
    """Draw whole sequences from the model, one row for each slice.

    Examples:
        dspn sample weather.dspn -n 100 --length 24 --seed 1 -o drawn.csv
        dspn sample weather.dspn -n 100 --bound humidity=0:100 --bound wind=0:
    """


@_command("query.surprise")
def surprise(
    by: Literal["slice", "sequence"] = "slice",
    top: int | None = None,
    fitted: bool = False,
    *,
    request: Request,
) -> None:
    """Find anomalies: how unexpected each slice is given its past, and each entry, in nats.

    A row for each slice: the surprise of each entry given all others, and of the whole slice, and
    the entry of the smallest tail. A tail is the probability of a value as far out as the one
    observed; unlike nats it does not depend on units. With --by sequence: a row for each sequence,
    that with the oddest entry first. With --top: the oddest entries alone, and what was to be
    expected in their place.

    Examples:
        dspn surprise weather.dspn new.csv --top 20
        dspn surprise weather.dspn days.csv --fitted --top 20
        dspn surprise weather.dspn days.csv -o surprise.csv
        dspn surprise weather.dspn days.csv --by sequence | head -n 5
    """


@_command("evaluate.evaluate")
def evaluate(
    model: Path,
    data: str,
    hide: Literal["random", "gaps", "last"] = "random",
    share: float = 0.2,
    gap: int = 6,
    steps: int = 1,
    season: int | None = None,
    seed: int = 0,
    *,
    read: Reading,
    unknown: Unknown = "error",
    target: Target,
) -> None:
    """Hide entries of a table, and compare what the model and simple rules say of them.

    A row for each variable and method: the model, the mean, the last value, a straight line between
    neighbours, and with --season the value a season before. Columns: mean absolute error (of the
    median), root mean square error (of the mean), accuracy of categories, CRPS, pinball loss (of
    the quantiles 0.1, 0.5, 0.9), log score in nats, and the coverage of bands of 80 %. Use a table
    that the model was not fitted to.

    Examples:
        dspn evaluate weather.dspn new.csv
        dspn evaluate weather.dspn new.csv --hide gaps --gap 6 --season 24
        dspn evaluate weather.dspn new.csv --hide last --steps 24 --season 24
    """


@_command("evaluate.backtest")
def backtest(
    model: Path,
    data: str,
    steps: int = 1,
    origins: int = 10,
    stride: int | None = None,
    window: int | None = None,
    season: int | None = None,
    *,
    read: Reading,
    unknown: Unknown = "error",
    target: Target,
) -> None:
    """Forecast from rolling origins, and compare with what came, by the number of steps ahead.

    The last --origins origins of each sequence are taken, --stride slices apart. Nothing is learned
    anew. Methods and columns are those of `dspn evaluate`, and there is a row for each step.

    Examples:
        dspn backtest weather.dspn new.csv --steps 24 --season 24
        dspn backtest weather.dspn year.csv --steps 24 --origins 60 --window 500 -o scores.csv
    """


@_command("inspect.inspect")
def inspect(model: Path, as_json: bool = False) -> None:
    """Show what a model file holds: variables, networks and their sizes, and its origin.

    Examples:
        dspn inspect weather.dspn
        dspn inspect weather.dspn --json
    """


@_command("inspect.validate")
def validate(
    file: str,
    model: Path | None = None,
    as_json: bool = False,
    quiet: bool = False,
    *,
    read: Reading,
    variables: str | None = None,
    exclude: list[str] | None = None,
    kind: list[str] | None = None,
) -> None:
    """Check a model file or a table: lists what is wrong, and where; the status is then 1.

    Of a table it also says what `dspn fit` would: kinds, steps, gaps, and what may not be meant.

    Examples:
        dspn validate weather.dspn
        dspn validate days.csv -s day -t hour
        dspn validate days.csv --model weather.dspn
    """


@_command("plot.plot")
def plot(drawing: Drawing) -> None:
    """Draw a model, or what it says of one sequence of a table.

    Examples:
        dspn plot template weather.dspn -o template.svg
        dspn plot filtered weather.dspn days.csv --only monday -o monday.png
    """


@_command("plot.report")
def report(
    model: Path,
    data: str,
    output: Path,
    read: Reading,
    title: str | None = None,
    max_sequences: int | None = None,
    steps: int = 10,
    unknown: Unknown = "error",
    quiet: bool = False,
) -> None:
    """Write one HTML page about a model and a table, which needs no other file to be read.

    Examples:
        dspn report weather.dspn days.csv -o report.html
    """


@_command("watch.watch")
def watch(model: Path, watching: Watching) -> None:
    """Read slices from standard input; answer each at once with its surprise and a forecast.

    Input is CSV with a header, or a JSON object on each line. Output is CSV: the stream, the time,
    the number of the slice, its surprise and the log-likelihood so far in nats, its oddest entry
    and that entry's tail probability given the past and the rest of the slice, and the distribution
    of the next slice as `dspn forecast` writes it; with --json a JSON object on each line.

    A cell that cannot be read is noted and taken as missing, and a line that cannot be read is
    noted and skipped; with --strict both are errors.

    Examples:
        tail -n +1 -f station.csv | dspn watch weather.dspn
        tail -f station.csv | dspn watch weather.dspn --alarm 1e-6 --state station.state
        sensor | dspn watch weather.dspn --sequence station --json
    """


@_command("classify.fit_classifier")
def classify_fit(
    label: str,
    output: Path,
    table: Table,
    mode: Literal["generative", "discriminative"] = "generative",
    states: int = 8,
    seed: int = 0,
    quiet: bool = False,
) -> None:
    """Learn a model for each class; the class of a sequence is the same in all its rows.

    Examples:
        dspn classify fit walks.csv -s walk --label who -o who.dspn
    """


@_command("classify.predict_classes")
def classify_predict(request: Request) -> None:
    """Predict the class of each sequence, with the probability of every class.

    Examples:
        dspn classify predict who.dspn new.csv -o predicted.csv
    """


app.add_typer(classify, name="classify")


def run(arguments: Sequence[str], app: typer.Typer = app, name: str = "dspn") -> int:
    """Runs a command and returns its exit status: 0, 1 for data, 2 for usage, 130 for Ctrl-C.

    After a signal other than Ctrl-C, `main` makes it 128 plus the number of the signal.

    Args:
        arguments: The words after the name of the command.
        app: The commands.
        name: The name of the command in messages.
    """
    quiet = "--quiet" in arguments or "-q" in arguments
    words = [word for word in arguments if word != _DEBUG]
    try:
        with console.warnings_as_notes(quiet=quiet):
            command = typer.main.get_command(app)
            status = command.main(args=words, prog_name=name, standalone_mode=False)
    except Exception as error:
        return _end(error, debug=_DEBUG in arguments)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except SystemExit:  # what typer and rich raise when the reader of the output is gone
        return _end(console.ReaderGoneError(), debug=False)
    if status == _INTERRUPTED:
        console.note("interrupted; no output file was written.")
    return status if isinstance(status, int) else 0


def _end(error: Exception, *, debug: bool) -> int:
    """Says in one sentence why a command ended, and returns its status."""
    if isinstance(error, console.ReaderGoneError | BrokenPipeError):
        console.forget(sys.stdout)
        return 0
    if isinstance(error, console.StoppedError):
        console.note(error)
        return _INTERRUPTED
    if debug:
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(f"{error.format_message().rstrip()}\n")  # type: ignore[attr-defined]
        return _USAGE
    if isinstance(error, _UsageError):
        context = getattr(error, "ctx", None)
        remedy = f" See `{context.command_path} --help`." if context else ""
        console.note(f"usage: {error.format_message()}{remedy}")
        return _USAGE
    text = str(error)
    if isinstance(error, MemoryError):
        text = "the data do not fit into memory."
    elif isinstance(error, OSError) and error.strerror:
        text = console.plainly(error) + (f" ({error.filename})." if error.filename else ".")
    elif not isinstance(error, DspnError | OSError):
        text = f"{type(error).__name__}: {error} (--debug shows where)"
    console.note(f"error: {text}")
    return _DATA


def _heed_signals() -> list[int]:
    """Makes signals raise KeyboardInterrupt; returns the list that will hold their numbers."""
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number != alarm:
            received.append(number)
        if alarm is not None and _is_loading(frame):
            # There an exception may be lost, or be shown and not raised: try a moment later.
            signal.signal(alarm, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        for name in ending:  # a terminal that is closed sends the second right after the first
            signal.signal(name, signal.SIG_IGN)
        for stream in terminals:
            if not stream.isatty():
                console.forget(stream)
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
    if status == _INTERRUPTED and received:
        status = 128 + received[0]  # as in shells
    try:
        sys.stdout.flush()
    except OSError as error:
        console.forget(sys.stdout)
        if not (isinstance(error, BrokenPipeError) or status):
            console.note(f"error: cannot write to standard output: {console.plainly(error)}.")
            status = _DATA
    sys.exit(status)

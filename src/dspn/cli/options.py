"""Every option of every command, described once, and how a command gets its options."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal, final, get_args, get_origin

import typer
from typer import BadParameter

Format = Literal["csv", "json", "parquet", "arrow"]
Unknown = Literal["error", "missing"]
Duplicates = Literal["error", "first", "last", "mean"]

# What help says of an option. A key is written as help writes it: the option, its short form, the
# word for its value, and the range of a number; before it the command, if the description is only
# for that command.
_DESCRIPTIONS: Final = {
    "MODEL": "A model file, *.dspn.",
    "DATA": "A long table, one row for each slice: .csv, .tsv, .parquet, .arrow, .feather "
    "(.csv.gz too); - for standard input.",
    "FILE": "A model file, or a table.",
    "TABLES": "Long tables, one row for each slice: files, directories of files, or quoted "
    "patterns such as 'logs/*.parquet'.",
    "plot: KIND": "Of the model: template, unrolled. Of a sequence: filtered, interface, surprise, "
    "imputed, forecast. Of a whole table: calibration, inputs.",
    "--sequence -s COLUMN": "Column that names the sequence of a row. Without it: the one that the "
    "model was fitted with, if there is one, or else the whole table is one sequence.",
    "watch: --sequence -s COLUMN": "Column that names the stream of a slice. Without it: the one "
    "that the model was fitted with, if the input has it.",
    "--order -t COLUMN": "Column that orders the slices; by default the order is that of the rows.",
    "--sort": "The rows of a sequence need not be adjacent; the whole table is then read first.",
    "--missing WORDS": "Words of a text table that mean a missing value, separated by commas; an "
    "empty cell always does.  [default: NA,N/A,n/a,NaN,nan,null,NULL,None]",
    "--delimiter CHAR": "Character between the cells of a text table, such as ';' or tab; by "
    "default a comma, and a tab in .tsv.",
    "--decimal SIGN": "Decimal sign of numbers in a text table, . or a comma; the other one and "
    "spaces may then part thousands. By default a point, and nothing parts thousands.",
    "--encoding NAME": "Encoding of a text table, such as cp1252 or utf-16; by default UTF-8.",
    "--dates FORMAT": "How the times of an order column of text are written, such as "
    "'%d.%m.%Y %H:%M'; %z is an offset from UTC. By default as in 2024-03-31T14:05.",
    "--duplicates RULE": "What becomes of rows of a sequence with the same order value: error, "
    "first, last, or mean (of numbers; of anything else the first).  [default: error]",
    "--every STEP": "Step of the slices, such as 1h, 15min or 1d, or a number where the order "
    "column has numbers: slices that the table does not have are put in as empty ones.",
    "--exclude COLUMN": "Column that is not a variable; repeatable.",
    "--chunk-rows 1..": "Number of rows from which on a part of the table is answered.",
    "--block-size 1..": "Number of bytes of text that are read at a time.",
    "--unknown": "Whether a category that the model does not know is an error or a missing value.",
    "fit: --unknown": "With --continue, whether a category that the model does not know is an "
    "error or a missing value.",
    "--digits 1..17": "Significant digits of computed numbers; all of them by default.",
    "--output -o FILE": "Where the table goes; - is standard output.",
    "prepare: --output -o DIRECTORY": "The directory of the data set, new or empty.",
    "--shard-slices 1..": "Number of slices from which on a shard is cut; by default one that "
    "takes some tens of megabytes.",
    "--ray ADDRESS": "Ray cluster that does this in place of processes: its address, or auto.",
    "fit: --output -o MODEL": "The model file to write, *.dspn; with --continue by default the "
    "model that learning goes on from.",
    "--continue MODEL": "Go on from this model with new data; the data that it was learned from "
    "are not needed.",
    "classify fit: --output -o FILE": "The classifier file to write, *.dspn.",
    "plot: --output -o FILE": "The picture to write: .png, .svg or .pdf.",
    "report: --output -o FILE": "The page to write, *.html.",
    "--format": "Format of the table; by default that of the file's extension.",
    "--json": "Machine-readable output.",
    "--quiet -q": "No notes and no progress.",
    "--seed 0..": "Seed of everything random.",
    "--steps 1..": "Number of slices to forecast.",
    "plot: --steps 1..": "Number of slices to unroll or to forecast, 3 by default; how far ahead "
    "calibration looks, 1 by default.",
    "--levels": "Levels of the quantiles of numbers, separated by commas.",
    "--mark": "Add a column with the names of the variables that were filled.",
    "--inputs FILE": "Table of the inputs of the slices to come that no rule computes, in order: "
    "--steps rows for each sequence, with the same key columns; the order column may be left out.",
    "--known FILE": "Table of what is known of the slices to come, in order, with the same key "
    "columns; variables that it does not have are not known.",
    "--hide": "What is hidden: entries at random, gaps of one variable, or the last slices.",
    "--share": "Share of the entries that is hidden, at random or in gaps.",
    "--gap 1..": "Number of slices of a gap.",
    "evaluate: --steps 1..": "Number of last slices that are hidden.",
    "--season 1..": "Number of slices of a season, for the rule that repeats the season before.",
    "--origins 1..": "Largest number of origins of a sequence.",
    "--stride 1..": "Slices from one origin to the next; by default as many as --steps.",
    "--window 1..": "Only so many slices before an origin are given; by default all.",
    "--by": "Whether a row is a slice, or a sequence, the one with the oddest entry first.",
    "--top 1..": "Only so many entries, those of the smallest tail probabilities.",
    "--fitted": "The table is the one that the model was fitted to: in tails no value vouches for "
    "itself. It is then read as a whole.",
    "--alarm P": "Tail probability below which an entry is an alarm, such as 1e-6.",
    "--state FILE": "File that keeps the state of the streams; the same command goes on from it.",
    "--strict": "End at a cell or a line that cannot be read, instead of noting it.",
    "watch: --order -t COLUMN": "Column of the time, which is written beside each answer. Without "
    "it: the one that the model was fitted with, if the input has it.",
    "--number -n 1..": "Number of sequences.",
    "--length 1..": "Number of slices of each sequence.",
    "--bound NAME=LOW:HIGH": "Lowest and largest value of a number, one of which may be left out, "
    "as in humidity=0:100 or wind=0:; repeatable.",
    "--variables NAMES": "Variables, separated by commas; by default all columns but the keys.",
    "--kind NAME=KIND": "Kind of a variable: categorical, binary, continuous or count, or the "
    "family of its leaves, such as student_t or von_mises:24; repeatable.",
    "prepare: --kind NAME=KIND": "Kind of a variable: categorical, binary, continuous or count; "
    "repeatable.",
    "--input COLUMN": "Column that is given at every slice and not modelled, or a rule that "
    "computes it: position:24, to_end:24, phase:24, sine:24, cosine:24, or of the order column "
    "hour, weekday, month, elapsed; repeatable.",
    "--leaf-inputs": "The leaves are told the inputs too; else only transitions depend on them.",
    "--learner": "How the model is learned.",
    "--interfaces 1..": "Number of interface nodes, for the learners paper and em.",
    "--transitions WHICH": "Which nodes the sums read, for the learner em: all (dense), or few of "
    "many (block, monarch).",
    "--effort": "How much the automatic learner may do; by default it depends on the data.",
    "--families": "Leaf families: the usual ones of the kinds, or those that held-out data choose.",
    "--time-limit SECONDS": "Seconds, more than 0, after which the best model so far is taken.",
    "--validation": "Fraction of the sequences that is held out, or another table.",
    "--checkpoint": "A directory; the same command continues from what it holds.",
    "--jobs -j": "Number of processes that train models, or work on shards; -1 for all cores.",
    "--engine": "What trains models: the processors, or an NVIDIA GPU.",
    "--lags COUNT": "Number of earlier slices whose values the leaves are told, or auto for those "
    "that pay on held-out data.",
    "--lags-of": "Values of the same variable, or of all variables.",
    "--covariance": "Continuous variables given the hidden state: independent (diag), or with a "
    "covariance (full); auto lets the automatic learner choose.",
    "--label COLUMN": "Column with the class of the sequence.",
    "--mode": "Discriminative models separate the classes more sharply.",
    "--states 1..": "Number of states of each HMM.",
    "--only ID": "The sequence to draw; by default the first.",
    "--component 0..": "Component of a mixture; by default the one of the largest weight.",
    "validate: --model": "A model whose variables the table must have.",
    "--title": "Title of the page.",
    "--max-sequences 1..": "Largest number of sequences shown in full.",
}


# Sizes that change no answer, which nobody needs to choose but to see that they change none.
_HIDDEN: Final = ("chunk_rows", "block_size")


@final
@dataclass(frozen=True)
class Reading:
    """How a table is read: its key columns, and how its cells and rows are written."""

    sequence: str | None = None
    order: str | None = None
    missing: str | None = None
    delimiter: str | None = None
    sort: bool = False
    decimal: str | None = None
    encoding: str | None = None
    dates: str | None = None
    duplicates: Duplicates | None = None
    every: str | None = None
    chunk_rows: int | None = None
    block_size: int = 4 * 2**20


@final
@dataclass(frozen=True)
class Target:
    """Where a table goes, and how it is written."""

    output: str = "-"
    digits: int | None = None
    format: Format | None = None
    json: bool = False
    quiet: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Who works on shards: so many processes of this machine, or a Ray cluster."""

    jobs: int = 1
    ray: str | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Request:
    """A query: a model, a table or a data set, how to read it, and where the answer goes."""

    model: Path
    data: str = "-"
    read: Reading
    unknown: Unknown = "error"
    target: Target
    parallel: Parallel


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """A table to learn from: its file, how to read it, its variables and their kinds."""

    data: str
    read: Reading
    variables: str | None = None
    exclude: list[str] | None = None
    kind: list[str] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Tables of one data set in shards, its directory, and who does the work.

    `tables` are files, directories or patterns. A shard is cut from `shard_slices` slices on.
    """

    tables: list[str]
    output: Path
    read: Reading
    variables: str | None = None
    exclude: list[str] | None = None
    kind: list[str] | None = None
    as_input: list[str] | None = None
    shard_slices: int | None = None
    quiet: bool = False
    parallel: Parallel


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """How to learn; `validation` is a fraction, or the name of another table."""

    learner: Literal["auto", "paper", "em"] = "auto"
    interfaces: int | None = None
    transitions: Literal["dense", "block", "monarch"] = "dense"
    effort: float | None = None
    families: Literal["usual", "auto"] = "usual"
    time_limit: float | None = None
    seed: int = 0
    validation: str = "0.1"
    checkpoint: Path | None = None
    jobs: int = 1
    ray: str | None = None
    engine: Literal["cpu", "gpu"] = "cpu"
    lags: str = "0"
    lags_of: Literal["own", "all"] = "own"
    leaf_inputs: bool = False
    covariance: Literal["auto", "diag", "full"] = "auto"


@final
@dataclass(frozen=True, kw_only=True)
class Watching:
    """How slices of a stream are read, and how they are answered."""

    sequence: str | None = None
    order: str | None = None
    alarm: float | None = None
    state: Path | None = None
    strict: bool = False
    levels: str = "0.05,0.95"
    missing: str | None = None
    unknown: Unknown = "error"
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    digits: int | None = None
    json: bool = False
    quiet: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A picture: its kind, the model, the table, the sequence, the slices and the component."""

    kind: str
    model: Path
    output: str
    data: str | None = None
    only: str | None = None
    steps: int | None = None
    component: int | None = None
    read: Reading
    unknown: Unknown = "error"
    quiet: bool = False


def as_command(
    declaration: Callable[..., None], run: Callable[..., None], path: str
) -> Callable[..., None]:
    """A function as typer takes it, each parameter described by the table of options.

    A parameter whose type is one of the classes above stands for the fields of the class.

    Args:
        declaration: Has a parameter for each argument and option, with its type and its default.
        run: What is called with the values of the parameters.
        path: The words of the command, such as `classify fit`.
    """

    def command(**given: Any) -> None:
        values = {name: getattr(value, "value", value) for name, value in given.items()}
        _call(run, declaration, values)

    arguments = [_described(item, path) for item in _parameters(declaration)]
    command.__annotations__ = {item.name: item.annotation for item in arguments}
    command.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    return command


def _parameters(function: Any) -> Iterator[Parameter]:
    for item in signature(function).parameters.values():
        yield from _parameters(item.annotation) if is_dataclass(item.annotation) else [item]


def _call(function: Any, declaration: Any, given: dict[str, Any]) -> Any:
    """Calls the function with the declared parameters, and makes those of the classes above."""
    values = {}
    for name, item in signature(declaration).parameters.items():
        kind = item.annotation
        values[name] = _call(kind, kind, given) if is_dataclass(kind) else given[name]
    return function(**values)


def _described(item: Parameter, path: str) -> Parameter:
    """The parameter with its flags, the word for its value, its range and its help."""
    name = item.name.removeprefix("as_")
    words, text = _WORDS.get((path, name)) or _WORDS["", name]
    flags = [word for word in words if word.startswith("-")]
    settings: dict[str, Any] = {"help": text, "hidden": name in _HIDDEN}
    for word in words[len(flags) :]:
        least, is_range, most = word.partition("..")
        if is_range:
            settings |= {"min": int(least), "max": int(most) if most else None}
        else:
            settings["metavar"] = word
    if item.name == "delimiter":
        settings["callback"] = _parse_delimiter
    make: Any = typer.Option if flags else typer.Argument
    annotation: Any = Annotated[_with_choices(item.annotation), make(*flags, **settings)]
    return item.replace(annotation=annotation, kind=Parameter.KEYWORD_ONLY)


def _split_descriptions() -> Iterator[tuple[tuple[str, str], tuple[list[str], str]]]:
    """For each command, or "", and parameter: the words and the help that belong to it."""
    for key, text in _DESCRIPTIONS.items():
        command, _, words = key.rpartition(": ")
        name = words.split()[0].removeprefix("--").replace("-", "_").lower()
        yield (command, name), (words.split(), text)


_WORDS: Final = dict(_split_descriptions())


def _with_choices(annotation: Any) -> Any:
    """The type with an enumeration, which every release of typer knows, in place of `Literal`."""
    make: Any = StrEnum
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return make("choices", {word: word for word in parts})
    return _with_choices(parts[0]) | None if len(parts) == 2 else annotation


def _parse_delimiter(text: str | None) -> str | None:
    character = {"tab": "\t", "\\t": "\t"}.get(text or "", text)
    if character is not None and (len(character) != 1 or character in '"\r\n'):
        raise BadParameter(f"--delimiter must be one character, or 'tab', but is {text!r}.")
    return character


def parse_levels(text: str) -> tuple[float, ...]:
    """Levels strictly between 0 and 1, from text such as `0.1,0.9`."""
    try:
        levels = {float(word) for word in text.split(",") if word.strip()}
    except ValueError:
        levels = {-1.0}
    if not all(0 < level < 1 for level in levels):
        raise BadParameter(f"--levels must be numbers between 0 and 1 (0.1,0.9), but is {text!r}.")
    return tuple(sorted(levels))


def parse_names(text: str | None) -> tuple[str, ...] | None:
    """Names separated by commas."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise BadParameter("--variables must name at least one column, but names none.")
    return names or None


def parse_kinds(given: list[str] | None, *, has_leaves: bool = True) -> dict[str, str]:
    """The kind of each variable that is named, from texts such as `sky=categorical`.

    Where models are learned from the data at once, the name of a leaf family is a kind too.
    """
    from dspn.data.schema import near_misses
    from dspn.errors import DataError
    from dspn.leaves import NAMES, family_named  # which help does not wait for

    kinds = {}
    for text in given or []:
        name, _, kind = text.rpartition("=")
        words = ["categorical", "binary", "continuous", "count"]
        is_kind = kind in words
        if has_leaves and not is_kind:
            words += NAMES
            try:
                is_kind = family_named(kind) is not None
            except DataError as error:
                raise BadParameter(f"--kind {text}: {error}") from error
        if not name or not is_kind:
            rule = f"NAME=KIND, KIND being one of {', '.join(words)}"
            raise BadParameter(f"--kind must be {rule}, but is {text!r}{near_misses(kind, words)}.")
        kinds[name] = kind
    return kinds


def parse_bounds(given: list[str] | None) -> dict[str, tuple[float, float]]:
    """The lowest and the largest value by name, from texts such as `humidity=0:100`."""
    bounds = {}
    for text in given or []:
        name, _, ends = text.rpartition("=")
        low, is_pair, high = ends.partition(":")
        try:
            found = float(low or "-inf"), float(high or "inf")
        except ValueError:
            name = ""
        if not name or not is_pair:
            rule = "NAME=LOW:HIGH, one of the numbers may be left out"
            raise BadParameter(f"--bound must be {rule}, but is {text!r}.")
        bounds[name] = found
    return bounds


def parse_inputs(given: list[str] | None, columns: Sequence[str]) -> list[Any]:
    """Names of columns, and inputs that are computed by rules, each named by its text.

    A word is a column where there is one of this name.
    """
    from dspn.data.inputs import (
        CALENDAR,
        Calendar,
        Cosine,
        Elapsed,
        Phase,
        Position,
        Sine,
        ToEnd,
    )
    from dspn.data.schema import near_misses
    from dspn.errors import DataError

    sized = {"position": Position, "to_end": ToEnd, "phase": Phase, "sine": Sine, "cosine": Cosine}
    words = [*columns, *CALENDAR, "elapsed", *(f"{own}:24" for own in sized)]
    found: list[Any] = []
    for text in given or []:
        name, _, setting = text.partition(":")
        if text in columns:
            item: Any = text
        elif text in CALENDAR:
            item = Calendar(text).named(text)
        elif name == "calendar":
            item = _rule(text, Calendar, setting).named(text)
        elif text == "elapsed":
            item = Elapsed().named(text)
        elif name in sized:
            item = _rule(text, sized[name], _number(text, setting)).named(text)
        else:
            raise DataError(
                f"--input {text!r} is no column of the table{near_misses(text, words)} and no "
                f"rule ({', '.join(f'{own}:24' for own in sized)}, hour, weekday, month, elapsed); "
                f"its columns are {', '.join(columns)}."
            )
        if item in found:
            raise BadParameter(f"--input {text} is given twice; leave one out.")
        found.append(item)
    return found


def _number(text: str, setting: str) -> float:
    try:
        number = float(setting)
    except ValueError:
        raise BadParameter(
            f"--input {text} must have a number after the colon, as in {text.partition(':')[0]}:24."
        ) from None
    return int(number) if number.is_integer() else number


def _rule(text: str, kind: Any, setting: Any) -> Any:
    from dspn.errors import DataError

    try:
        return kind(setting)
    except DataError as error:
        raise BadParameter(f"--input {text}: {error}") from error


def check_extension(output: str | Path, *extensions: str) -> None:
    """Raises unless the file to write has one of the extensions."""
    if Path(output).suffix.lower() not in extensions:
        raise BadParameter(f"--output must end in {' or '.join(extensions)}, but is '{output}'.")

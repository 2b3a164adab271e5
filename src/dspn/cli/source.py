"""Input: tables that are read in record batches, and model files with the keys they remember."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from dspn.cli.console import note, rehearse, show_rows
from dspn.cli.options import Reading, Unknown
from dspn.data import files
from dspn.data.chunks import Chunk, Source, chunks
from dspn.data.files import NOTHING as NOTHING
from dspn.data.files import STDIN as STDIN
from dspn.data.files import TYPED as TYPED
from dspn.data.files import header_cells as header_cells
from dspn.data.files import quoted as quoted
from dspn.data.grid import Grid
from dspn.data.layout import MISSING, Unseen, Writing
from dspn.data.order import Keys, require_columns
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences
from dspn.errors import DataError, ModelFileError
from dspn.models.model import Model

TABLE: Final = "table"
_AS_USUAL: Final = Reading()
# How a table was written, which a model remembers.
_WRITTEN: Final = ("decimal", "missing", "dates", "duplicates", "every")

Loaded = TypeVar("Loaded")


def open_table(name: str, read: Reading = _AS_USUAL) -> AbstractContextManager[Source]:
    """The table in a file, on standard input (`-`), or in a named pipe, read with these options."""
    return files.open_table(name, read.delimiter, read.block_size, read.encoding)


def load_file(path: Path, load: Callable[[Path], Loaded]) -> Loaded:
    """What a model file holds, read by `load`; all leaf families must be those of the library."""
    try:
        return load(path)
    except ModelFileError as error:
        if "families=" not in str(error):
            raise
        raise ModelFileError(
            f"{str(path)!r} has a leaf family that is not one of dspn, and commands know no "
            "others; load the model in Python, by dspn.load(path, families=[...])."
        ) from error


def load_model(path: Path) -> Model:
    """The model in a file."""
    model = load_file(path, Model.load)
    check_texts(path, model.schema)
    return model


def check_texts(path: Path, schema: Schema, classes: Iterable[Any] = ()) -> None:
    """Raises if a name, a category or a class is text that no table can hold."""
    every = (*schema, *schema.inputs)
    named = (text for variable in every for text in (variable.name, *variable.categories))
    for text in map(str, chain(named, classes)):
        if not is_utf8(text):
            raise DataError(
                f"{str(path)!r} must have names and categories that a table can hold, but "
                f"{text[:60]!r} has half of a surrogate pair; give it another name."
            )


def require_computable(schema: Schema, command: str, *, is_stream: bool = False) -> None:
    """Raises where an input does not follow from the number of a slice alone."""
    for own in schema.inputs:
        rule = own.rule
        if rule is None or rule.needs_times or (is_stream and rule.name == "to_end"):
            raise DataError(
                f"{command} takes no model with inputs that do not follow from the number of a "
                f"slice, as {own.name!r}; ask it in Python, with `inputs`."
            )


def is_utf8(text: str) -> bool:
    """Whether text can be encoded: it has no halves of surrogate pairs."""
    return re.search("[\ud800-\udfff]", text) is None


def remember_keys(
    provenance: Mapping[str, Any], keys: Keys, read: Reading = _AS_USUAL
) -> dict[str, Any]:
    """The provenance, with the key columns, and how the table was written where that was said."""
    told = {name: getattr(read, name) for name in _WRITTEN if getattr(read, name) is not None}
    return {**provenance, TABLE: {"sequence": keys.sequence, "order": keys.order, **told}}


def as_fitted(read: Reading, provenance: Mapping[str, Any] | None, *, quiet: bool) -> Reading:
    """The options, with those of the table that the model was fitted to where none are given."""
    told = {
        name: value
        for name, value in remembered_keys(provenance).items()
        if name in _WRITTEN and getattr(read, name) is None
    }
    if told:
        options = " ".join(f"--{name} {shlex.quote(value)}" for name, value in told.items())
        note(f"note: the table is read with {options}, as the model was fitted.", quiet=quiet)
    return replace(read, **told)  # type: ignore[arg-type]


def as_written(opened: Source, read: Reading, provenance: Mapping[str, Any] | None) -> Reading:
    """How answers about a table are written: as usual, unless its numbers have decimal commas."""
    read = as_fitted(read, provenance, quiet=True)
    return read if opened.is_text and read.decimal == "," else _AS_USUAL


def writing_of(read: Reading) -> Writing:
    """How the cells of a text table are written."""
    return Writing(missing_words(read.missing), read.decimal)


def read_whole(
    source: Source, keys: Keys, names: list[str], read: Reading, fixed: Iterable[str] = ()
) -> Chunk:
    """All rows of a table, read with the options."""
    fixed = tuple(fixed)
    grid = Grid(read.every, read.duplicates or "error")
    (chunk,) = chunks(
        source,
        replace(keys, dates=read.dates),
        [*names, *fixed],
        sort=read.sort,
        whole=True,
        grid=grid,
        fixed=fixed,
        decimal=read.decimal,
    )
    return chunk


def remembered_keys(provenance: Mapping[str, Any] | None) -> dict[str, str]:
    """The key columns, `sequence` and `order`, of the table that a model was fitted to."""
    table: Any = (provenance or {}).get(TABLE)
    columns = table.items() if isinstance(table, dict) else ()
    return {name: column for name, column in columns if isinstance(column, str)}


def find_keys(source: Source, read: Reading, provenance: Any, *, quiet: bool) -> Keys:
    """The key columns: those of the options, or those of the table that the model was fitted to.

    Args:
        source: The table, which must have the columns.
        read: The options.
        provenance: The model's provenance, if there is a model.
        quiet: Do not note that the whole table is one sequence.
    """
    remembered = remembered_keys(provenance)
    columns: dict[str, Any] = {"sequence": read.sequence, "order": read.order}
    for key, option in columns.items():
        columns[key] = remembered.get(key) if option is None else option
        if columns[key] is not None:
            remedy = "" if option else f"the model was fitted with it, name another with --{key}"
            require_columns(source.title, source.columns, [columns[key]], remedy)
    keys = Keys(**columns)
    if keys.sequence is None:
        note("note: without --sequence the whole table is one sequence.", quiet=quiet)
    elif keys.sequence == keys.order:
        raise DataError(f"column {keys.order!r} cannot be both --sequence and --order.")
    return keys


def missing_words(given: str | None) -> tuple[str, ...]:
    """The words that mean a missing value."""
    return MISSING if given is None else tuple(word.strip() for word in given.split(","))


def read_chunks(
    source: Source,
    schema: Schema,
    provenance: Mapping[str, Any] | None,
    read: Reading,
    unknown: Unknown = "error",
    *,
    title: str = "read",
    quiet: bool = False,
    whole: bool = False,
    grows: bool = False,
    extra: Iterable[str] = (),
    along: Iterable[str] = (),
    work: Callable[[Chunk, Sequences], object] | None = None,
) -> Iterator[tuple[Chunk, Sequences]]:
    """Chunks of whole sequences, each with the codes of its variables; shows the progress.

    Args:
        source: The table.
        schema: The variables, which are columns of the table.
        provenance: The model's provenance, which remembers the key columns.
        read: The options for reading.
        unknown: What a category is that the schema does not have.
        title: The word for the progress.
        quiet: No notes and no progress.
        whole: All rows in one chunk.
        grows: The first chunks are small.
        extra: Further columns that are needed.
        along: Further columns that may have any type.
        work: What will be done with each chunk. Where one has most of the rows, the first of them
            tell how long it takes.
    """
    keys = find_keys(source, read, provenance, quiet=quiet)
    read = as_fitted(read, provenance, quiet=quiet)
    keys, writing = replace(keys, dates=read.dates), writing_of(read)
    unseen = Unseen() if unknown == "missing" else None
    extra = tuple(extra)
    given = [own.name for own in schema.given_inputs]
    remedy = "the model has it as a variable: add it, with empty cells where it is not known"
    require_columns(source.title, source.columns, schema.names, remedy)
    require_columns(source.title, source.columns, given, "the model takes it as an input")
    names = [*schema.names, *given, *extra]
    counted, num_read = source, 0

    def batches(wanted: list[str]) -> Iterator[Any]:
        nonlocal num_read
        for batch in counted.batches(wanted):
            num_read += batch.num_rows
            yield batch

    source, num_done = replace(source, batches=batches), 0
    with show_rows(title, quiet=quiet) as advance:
        choice: dict[str, Any] = {"sort": read.sort, "whole": whole, "chunk_rows": read.chunk_rows}
        choice["grows"] = grows
        choice |= {"grid": Grid(read.every, read.duplicates or "error"), "decimal": read.decimal}
        for chunk in chunks(source, keys, names, along=along, fixed=extra, **choice):
            data = chunk.sequences(schema, writing, unseen)
            if work is not None and not quiet and 2 * data.total_slices > num_read:
                tried = partial(_work_on_first, work, chunk, data)
                advance(0, rehearse(tried, data.total_slices))
            yield chunk, data
            # What has been read of the file is ahead of what has been answered.
            share, num_done = source.share(), num_done + chunk.grouping.rows.size
            advance(chunk.table.num_rows, share and share * min(num_done / num_read, 1.0))
    note_unseen(unseen, quiet=quiet)


def _work_on_first(
    work: Callable[[Chunk, Sequences], object], chunk: Chunk, data: Sequences, size: int
) -> None:
    work(chunk.first(size), data.first(size))


def note_unseen(unseen: Unseen | None, where: str = "", *, quiet: bool) -> None:
    """Notes how many cells had unknown categories that were read as missing, if any had."""
    counts = None if unseen is None else unseen.sentence()
    if counts is not None:
        note(f"note: {where}{counts}", quiet=quiet)

"""Data sets in shards: `dspn prepare`, and queries that answer shard by shard into a directory."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

from dspn.atomic import is_temporary, write_atomically
from dspn.cli import console, sink, source
from dspn.cli.options import (
    Format,
    Parallel,
    Preparation,
    Reading,
    Request,
    Target,
    parse_inputs,
    parse_kinds,
    parse_names,
)
from dspn.cli.query import QUERIES
from dspn.data.dataset import Dataset, Shard, is_dataset
from dspn.data.files import find_tables
from dspn.data.layout import Unseen, Writing
from dspn.data.order import Keys, require_columns
from dspn.data.prepare import prepare as prepare_dataset
from dspn.data.scan import naming
from dspn.errors import DataError
from dspn.executors import Executor, Ray, Shared, executor_of
from dspn.learning.run import describe_options
from dspn.models.model import Model
from dspn.progress import show_progress

# Tools that read a directory of tables leave out names that begin so.
_RUN: Final = "_answers.json"
_AT_ONCE: Final = 16


def make_executor(parallel: Parallel) -> Executor:
    """Processes of this machine, or a Ray cluster."""
    if parallel.ray is not None:
        return Ray(parallel.ray)
    jobs = (os.cpu_count() or 1) if parallel.jobs == -1 else parallel.jobs
    return executor_of("processes", jobs)


def prepare(asked: Preparation) -> None:
    """Writes the tables as a data set in shards."""
    read, quiet, counts = asked.read, asked.quiet, dict[str, int]()
    inputs = None
    if asked.as_input:
        with find_tables(asked.tables, read.delimiter, read.encoding)[0].open() as opened:
            inputs = parse_inputs(asked.as_input, opened.columns)
    with show_progress("prepare", quiet=quiet) as tell:

        def advance(stage: str, rows: int, share: float | None) -> None:
            counts[stage] = counts.get(stage, 0) + rows
            tell(f"{stage}, {console.counted(counts[stage], 'row')}", share)

        data = prepare_dataset(
            asked.tables,
            asked.output,
            sequence=read.sequence,
            order=read.order,
            variables=parse_names(asked.variables),
            kinds=parse_kinds(asked.kind, has_leaves=False),
            inputs=inputs,
            missing=source.missing_words(read.missing),
            delimiter=read.delimiter,
            decimal=read.decimal,
            encoding=read.encoding,
            dates=read.dates,
            every=read.every,
            duplicates=read.duplicates or "error",
            exclude=asked.exclude or (),
            shard_slices=asked.shard_slices,
            executor=make_executor(asked.parallel),
            on_progress=advance,
        )
    for line in data.notes:
        console.note(line, quiet=quiet)
    sizes = (len(data), "sequence"), (data.total_slices, "slice"), (len(data.shards), "shard")
    size = ", ".join(console.counted(*own) for own in sizes)
    console.note(f"wrote {asked.output}: {size}", quiet=quiet)


def ask(name: str, request: Request, model: Model, options: dict[str, Any]) -> None:
    """Writes the answers to a query about a data set: a file for each shard, in their order.

    Files that are there from an interrupted run of the same query are left as they are. Sequences
    are in the order of the shards, so that they have no rank.

    Args:
        name: The query.
        request: The data set, and the directory of the answers.
        model: The model.
        options: Those of the query.
    """
    if not is_dataset(request.data):
        raise DataError(
            f"--jobs and --ray work on data sets in shards, but {source.quoted(request.data)} is "
            "a table; leave them out, or make a data set of it with `dspn prepare`."
        )
    data, target = Dataset.open(request.data), request.target
    held = {*data.schema.names, *(own.name for own in data.schema.given_inputs)}
    for own in model.schema.given_inputs:
        if own.name not in held:
            raise DataError(
                f"the data set must hold the input {own.name!r} of the model, but does not; "
                f"prepare it with --input {own.name}."
            )
    _check_reading(request.read, data.keys)
    if target.output == sink.STDOUT:
        raise DataError(
            "the answers about a data set are files in a directory; name it with --output."
        )
    form: Format = "json" if target.json else target.format or "parquet"
    run = {
        "query": name,
        "options": describe_options(options),
        "model": model.mixture.fingerprint.hex(),
        "data": data.origin,
        "format": form,
        "digits": target.digits,
        "unknown": request.unknown,
    }
    directory = _claim(Path(target.output), run)
    waiting = [own for own in data.shards if not (directory / _file_name(own, form)).exists()]
    executor = make_executor(request.parallel)
    asked = name, options, data.keys, str(directory), form, target.digits, request.unknown
    work = partial(_answer, executor.share(model), *asked)
    unseen = Unseen()
    with console.show_rows(name, quiet=target.quiet) as advance:
        for start in range(0, len(waiting), _AT_ONCE):
            batch = waiting[start : start + _AT_ONCE]
            for counts in executor.map(work, batch):
                unseen.update(counts)
            done = len(data.shards) - len(waiting) + start + len(batch)
            advance(sum(own.num_slices for own in batch), done / len(data.shards))
    source.note_unseen(unseen, quiet=target.quiet)
    kept = len(data.shards) - len(waiting)
    more = f", {kept:,} of them from a run before" if kept else ""
    written = console.counted(len(data.shards), "file")
    console.note(f"wrote {target.output}: {written}{more}", quiet=target.quiet)


def _check_reading(read: Reading, keys: Keys) -> None:
    """Raises where an option says how to read a table, and not what the data set has anyway."""
    for option, value in vars(read).items():
        if value not in (getattr(Reading, option), getattr(keys, option, None)):
            raise DataError(
                f"--{option.replace('_', '-')} says how a table is read, but the data set is "
                "prepared already; leave it out, or prepare the data set with it."
            )


def _answer(
    model: Shared[Model],
    name: str,
    options: dict[str, Any],
    keys: Keys,
    directory: str,
    form: Format,
    digits: int | None,
    unknown: str,
    shard: Shard,
) -> Unseen:
    """Writes the answer about one shard, whole or not at all; counts unknown categories."""
    query, unseen = QUERIES[name], Unseen()
    chunk, data = shard.chunk(keys)
    if data.schema != model.value.schema.without_leaves():
        with naming(f"the shard {shard.path!r}"):
            given = (own.name for own in model.value.schema.given_inputs)
            wanted = (*model.value.schema.names, *given)
            require_columns("it", chunk.table.column_names, wanted)
            codes = unseen if unknown == "missing" else None
            data = chunk.sequences(model.value.schema, Writing(()), codes)
    table = query.answer(model.value, chunk, data, **options)
    exact = (*keys.names, *query.exact)
    table = sink.round_table(table, None if query.keeps_columns else digits, exact)
    output = os.path.join(directory, _file_name(shard, form))
    with sink.write_table(Target(output=output, quiet=True), form) as out:
        out.write(table)
    return unseen


def _file_name(shard: Shard, form: Format) -> str:
    return f"part-{shard.number:06d}.{'jsonl' if form == 'json' else form}"


def _claim(directory: Path, run: dict[str, Any]) -> Path:
    """The directory of the answers: a new or an empty one, or that of the same query before."""
    text = json.dumps(run, sort_keys=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / _RUN).exists():
            names = (own.name for own in directory.iterdir())
            other = next((own for own in names if not is_temporary(own)), None)
            if other is not None:
                raise DataError(
                    f"{str(directory)!r} must be a new or an empty directory, but holds "
                    f"{other!r}; give another one."
                )
            write_atomically(directory / _RUN, text.encode())
        is_same = (directory / _RUN).read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot write answers to {str(directory)!r}: {console.plainly(error)}."
        ) from None
    if not is_same:
        raise DataError(
            f"{str(directory)!r} holds the answers to another query, model or data set; give "
            "another directory, or remove that one."
        )
    return directory

"""Data sets in shards: `dspn prepare`, and queries that answer shard by shard into a directory."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

from dspn.cli import console, sink, source
from dspn.cli.options import Format, Parallel, Reading, Request, Target, parse_kinds, parse_names
from dspn.cli.query import QUERIES
from dspn.data.dataset import Dataset, Shard
from dspn.data.prepare import prepare as prepare_dataset
from dspn.data.sequences import sequences_of
from dspn.errors import DataError
from dspn.executors import Executor, Ray, Shared, executor_of
from dspn.io.atomic import write_atomically
from dspn.learning.run import describe_options
from dspn.models.model import Model

_RUN: Final = "answers.json"
_AT_ONCE: Final = 16
_EXTENSIONS: Final[dict[Format, str]] = {"csv": "csv", "json": "jsonl", "arrow": "arrow"}


def make_executor(parallel: Parallel) -> Executor:
    """Processes of this machine, or a Ray cluster."""
    if parallel.ray is not None:
        return Ray(parallel.ray)
    jobs = (os.cpu_count() or 1) if parallel.jobs == -1 else parallel.jobs
    return executor_of("processes", jobs)


def prepare(
    tables: list[str],
    output: Path,
    read: Reading,
    variables: str | None = None,
    kind: list[str] | None = None,
    shard_slices: int | None = None,
    quiet: bool = False,
    *,
    parallel: Parallel,
) -> None:
    """Writes the tables as a data set in shards.

    Args:
        tables: Files, directories or patterns.
        output: The directory of the data set.
        read: How the tables are read.
        variables: Names of the variables.
        kind: Kinds of variables.
        shard_slices: Number of slices from which on a shard is cut.
        quiet: No notes and no progress.
        parallel: Who does the work.
    """
    with console.show_progress("prepare", quiet=quiet) as advance:
        data = prepare_dataset(
            tables,
            output,
            sequence=read.sequence,
            order=read.order,
            variables=parse_names(variables),
            kinds=parse_kinds(kind),
            missing=source.missing_words(read.missing),
            delimiter=read.delimiter,
            shard_slices=shard_slices,
            executor=make_executor(parallel),
            on_progress=lambda _, rows: advance(rows, None),
        )
    for line in data.notes:
        console.note(line, quiet=quiet)
    counts = (len(data), "sequence"), (data.total_slices, "slice"), (len(data.shards), "shard")
    size = ", ".join(console.counted(*own) for own in counts)
    console.note(f"wrote {output}: {size}", quiet=quiet)


def ask(name: str, request: Request, model: Model, options: dict[str, Any]) -> None:
    """Writes the answers to a query about a data set: a file for each shard, in their order.

    Files that are there from an interrupted run of the same query are left as they are.

    Args:
        name: The query.
        request: The data set, and the directory of the answers.
        model: The model.
        options: Those of the query.
    """
    data, target = Dataset.open(request.data), request.target
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
    }
    directory = _claim(Path(target.output), run)
    ending = _EXTENSIONS.get(form, form)
    files = [directory / f"part-{own.number:06d}.{ending}" for own in data.shards]
    waiting = [own for own in data.shards if not files[own.number].exists()]
    executor = make_executor(request.parallel)
    work = partial(
        _answer, executor.share(model), name, options, data.keys, str(directory), ending, target
    )
    with console.show_progress(name, quiet=target.quiet) as advance:
        for start in range(0, len(waiting), _AT_ONCE):
            batch = waiting[start : start + _AT_ONCE]
            executor.map(work, batch)
            done = len(data.shards) - len(waiting) + start + len(batch)
            advance(sum(own.num_slices for own in batch), done / len(data.shards))
    kept = len(data.shards) - len(waiting)
    more = f", {kept:,} of them from a run before" if kept else ""
    written = console.counted(len(data.shards), "file")
    console.note(f"wrote {target.output}: {written}{more}", quiet=target.quiet)


def _answer(
    model: Shared[Model],
    name: str,
    options: dict[str, Any],
    keys: Any,
    directory: str,
    ending: str,
    target: Target,
    shard: Shard,
) -> None:
    """The answer about one shard, written whole or not at all."""
    query = QUERIES[name]
    chunk, data = shard.chunk(keys)
    data = sequences_of(data, model.value.schema, "data")
    table = query.answer(model.value, chunk, data, **options)
    digits = None if query.keeps_columns else target.digits
    table = sink.round_table(table, digits, (*keys.names, *query.exact))
    output = os.path.join(directory, f"part-{shard.number:06d}.{ending}")
    own = Target(output=output, quiet=True)
    form: Any = {extension: form for form, extension in _EXTENSIONS.items()}.get(ending, ending)
    with sink.write_table(own, form) as out:
        out.write(table)


def _claim(directory: Path, run: dict[str, Any]) -> Path:
    """The directory of the answers: a new or an empty one, or that of the same query before."""
    text = json.dumps(run, sort_keys=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / _RUN).exists():
            other = next((own for own in directory.iterdir()), None)
            if other is not None:
                raise DataError(
                    f"{str(directory)!r} must be a new or an empty directory, but holds "
                    f"{other.name!r}; give another one."
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

"""`dspn fit`: a table to learn from, notes on what it holds, and a model of it."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from typer import BadParameter

from dspn.cli.cells import is_text, plain
from dspn.cli.console import StoppedError, counted, listed, make_console, make_table, note
from dspn.cli.gathering import Described, described, gathered, variable_names, whole_table
from dspn.cli.keys import Keys, near_misses
from dspn.cli.options import Table, Training, check_extension, parse_kinds, parse_names
from dspn.cli.ordering import uneven_steps
from dspn.cli.sink import check_place
from dspn.cli.source import find_keys, missing_words, open_table, read_chunks, remember_keys
from dspn.cli.streams import Chunk
from dspn.errors import DataError, printable
from dspn.models import DSPN, Model
from dspn.sequences import Sequences

_MOST_CATEGORIES: Final = 1000
_FEWEST_DISTINCT: Final = 10
_NEARLY_ALL: Final = 0.9
_LOOKED_AT: Final = 100
_NAMED: Final = 6
_YEAR_FIRST: Final = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
_YEAR_LAST: Final = r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"
_CLOCK: Final = r"\d{1,2}:\d{2}(:\d{2}.*)?"
_TIME: Final = re.compile(rf"\s*(({_YEAR_FIRST}|{_YEAR_LAST})([T ]+{_CLOCK})?|{_CLOCK})\s*")
_UNSORTED: Final = re.compile(rf"\s*{_YEAR_LAST}\b")


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """The sequences of a table, its keys, the kind of each variable with its reason, its rows."""

    sequences: Sequences
    keys: Keys
    variables: list[Described]
    chunk: Chunk


def read_training_data(table: Table, *, quiet: bool, besides: tuple[str, ...] = ()) -> TrainingData:
    """The whole table; shows what it holds unless `quiet`.

    Args:
        table: The table, and how to read it.
        quiet: Show nothing.
        besides: Columns that are read too, and are no variables.
    """
    read, wanted, told = table.read, parse_names(table.variables), parse_kinds(table.kind)
    words = missing_words(read.missing)
    with open_table(table.data, read.delimiter) as source:
        keys = find_keys(source, read, quiet=quiet)
        names = variable_names(source, keys, wanted)
        names = [name for name in names if name not in besides]
        unknown = next((name for name in told if name not in set(names)), None)
        if unknown is not None:
            raise DataError(
                f"--kind names {unknown!r}{near_misses(unknown, names)}, but the variables are "
                f"{listed(names)}."
            )
        chunk = whole_table(source, keys, names, sort=read.sort, extra=besides)
    variables = [described(chunk, name, told.get(name), words) for name in names]
    _require_few_categories(variables, chunk)
    return TrainingData(gathered(chunk, variables), keys, variables, chunk)


def show_training_data(data: TrainingData) -> None:
    """Writes the variables and the notes on them to standard error."""
    rows = []
    for item in data.variables:
        missing = float(np.isnan(item.codes).mean())
        values = ", ".join(map(str, item.variable.categories[:6]))
        more = ", ..." if item.variable.num_categories > 6 else ""
        rows.append(
            (
                printable(item.variable.name, 200),
                str(item.variable.kind),
                f"{printable(values)}{more}",
                f"{100 * missing:.1f} %" if missing else "",
                item.reason,
            )
        )
    with suppress(OSError, SystemExit):  # if nobody reads it, learning still goes on
        headings = ("variable", "kind", "values", "missing", "inferred from")
        make_console(width=160).print(make_table(headings, rows))
    lengths = data.sequences.lengths
    shortest, longest = int(lengths.min()), int(lengths.max())
    of = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
    total = "" if len(lengths) == 1 else f", {data.sequences.total_slices:,} in all"
    note(f"{counted(len(lengths), 'sequence')} of {of} slices{total}")
    for text in _advice(data.variables, data.chunk):
        note(f"note: {text}")


def _require_few_categories(variables: Sequence[Described], chunk: Chunk) -> None:
    """Raises if a column has very many categories and no --kind says that it is categorical."""
    for item in variables:
        if item.reason == "--kind" or item.variable.num_categories <= _MOST_CATEGORIES:
            continue
        name = item.variable.name
        remedy = f"name the columns to learn with --variables, or say {_kind(item, 'categorical')}"
        if _looks_like_times(item):
            remedy = f"it looks like times, {_remedy_for_times(name, chunk)} Else {remedy}"
        raise DataError(
            f"column {name!r} must have at most {_MOST_CATEGORIES:,} categories, but has "
            f"{_distinct(item)}; {remedy}."
        )


def _advice(variables: Sequence[Described], chunk: Chunk) -> Iterator[str]:
    """A sentence for each property of the table that may not be what was meant."""
    for item in variables:
        name, count = item.variable.name, item.variable.num_categories
        present = int(np.count_nonzero(~np.isnan(item.codes)))
        if item.reason != "text":
            continue
        if _looks_like_times(item):
            yield f"column {name!r} looks like times; {_remedy_for_times(name, chunk)}"
        elif count >= _FEWEST_DISTINCT and count >= _NEARLY_ALL * present:
            yield (
                f"column {name!r} has {_distinct(item)}; leave it out with --variables, or it "
                "costs much and says nothing."
            )
    whole = [item for item in variables if item.reason.startswith("whole numbers with")]
    few = [item for item in whole if item.variable.categories]
    if few:
        yield _few_whole_numbers(few)
    order = chunk.keys.order
    if order is None:
        return
    cells = plain(chunk.table[order])
    if is_text(cells.type) and all(map(_UNSORTED.match, cells[:_LOOKED_AT].to_pylist())):
        yield f"column {order!r} is sorted as text; write its dates as 2024-03-31, year first."
    steps = uneven_steps(cells, chunk.keys, chunk.grouping)
    if steps is not None:
        yield (
            f"steps of {order!r} are not all equal ({steps}): slices follow each other whatever "
            "lies between; put in empty rows where some are missing."
        )


def _looks_like_times(item: Described) -> bool:
    some = item.variable.categories[:_LOOKED_AT]
    return bool(some) and all(isinstance(word, str) and _TIME.fullmatch(word) for word in some)


def _distinct(item: Described) -> str:
    return f"{item.variable.num_categories:,} different values in {item.codes.size:,} rows"


def _remedy_for_times(name: str, chunk: Chunk) -> str:
    if chunk.keys.order is None:
        return f"did you mean -t {shlex.quote(name)}?"
    return "leave it out with --variables."


def _few_whole_numbers(few: Sequence[Described]) -> str:
    names = ", ".join(repr(item.variable.name) for item in few[:_NAMED])
    options = " ".join(_kind(item, "count") for item in few[:_NAMED])
    have, condition = f"column {names} has", "if it counts"
    if len(few) > 1:
        more = ", ..." if len(few) > _NAMED else ""
        have, condition = f"columns {names}{more} have", "where they count"
    return (
        f"{have} few whole numbers, which are taken as categories; {condition} something, say "
        f"{options}{' ...' if len(few) > _NAMED else ''}"
    )


def _kind(item: Described, kind: str) -> str:
    return f"--kind {shlex.quote(f'{item.variable.name}={kind}')}"


def _validation_fraction(training: Training) -> float | None:
    """The fraction to hold out; None if the option names a table."""
    try:
        return float(training.validation)
    except ValueError:
        return None


def _make_estimator(training: Training, *, quiet: bool) -> DSPN:
    checkpoint, fraction = training.checkpoint, _validation_fraction(training)
    if checkpoint is not None and training.learner == "paper":
        os.makedirs(checkpoint, exist_ok=True)
        checkpoint = checkpoint / "paper.dspn"
    return DSPN(
        learner=training.learner,
        n_interfaces=training.interfaces,
        effort=training.effort,
        time_limit=training.time_limit,
        random_state=training.seed,
        validation_fraction=0.1 if fraction is None else fraction,
        checkpoint=checkpoint,
        resume=checkpoint is not None,
        n_jobs=training.jobs,
        verbose=0 if quiet else 1,
    )


def fit(
    table: Table, training: Training, output: Path, *, as_json: bool = False, quiet: bool = False
) -> None:
    """Learns and writes a model; after Ctrl-C the best so far, if there is one.

    Args:
        table: The table, and how to read it.
        training: How to learn.
        output: The model file.
        as_json: Write a summary to standard output.
        quiet: No notes and no progress.
    """
    check_extension(output, ".dspn")
    if training.learner == "em" and training.interfaces is None:
        raise BadParameter("--learner em needs the number of --interfaces.")
    check_place(str(output))
    estimator = _make_estimator(training, quiet=quiet)
    data = read_training_data(table, quiet=quiet)
    if not quiet:
        show_training_data(data)
    held_out = None
    if _validation_fraction(training) is None:
        with open_table(training.validation, table.read.delimiter) as source:
            schema = data.sequences.schema
            ((_, held_out),) = read_chunks(source, schema, None, table.read, quiet=True, whole=True)
    estimator.fit(data.sequences, validation=held_out)
    provenance = remember_keys(estimator.model_.provenance, data.keys)
    model = Model(estimator.model_.mixture, provenance=provenance)
    model.save(output)
    if estimator.ending_ == "interrupted":
        raise StoppedError(f"interrupted; the best model so far is in {str(output)!r}.")
    if as_json:
        summary: dict[str, Any] = {
            "model": str(output),
            "ending": str(estimator.ending_),
            "validation_score": provenance["validation_score"],
            "components": len(model.components),
            "interfaces": int(model.mixture.num_interfaces),
        }
        sys.stdout.write(json.dumps(summary) + "\n")
    score = estimator.validation_score_
    # A single sequence is its own validation set, unless there is another table.
    of = "held-out sequence" if held_out is not None or len(data.sequences) > 1 else "sequence"
    reached = "" if score is None else f", {score:.4g} nats per {of}"
    nodes = sum(len(network.template.nodes) for network in model.components)
    size = f"{counted(len(model.components), 'network')} with {nodes:,} template nodes"
    note(f"wrote {output}: {size}{reached}", quiet=quiet)

"""The commands that ask a model about a table: an answer for each chunk, with the table's keys."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dspn.cli import console, sink, source
from dspn.cli.options import Parallel, Request, Target, parse_levels
from dspn.data.cells import convertible, decode_cells, is_text, plain, with_columns
from dspn.data.chunks import Chunk, Source
from dspn.data.dataset import is_dataset
from dspn.data.order import next_values, order_goes_on
from dspn.data.schema import Kind, Schema, Variable
from dspn.data.sequences import Sequences
from dspn.inference.marginals import Marginals
from dspn.inference.surprise import Surprise
from dspn.inference.tails import oddest_places
from dspn.models.model import Model

_SAMPLED_ROWS: Final = 200_000


@final
@dataclass(frozen=True)
class Query:
    """A query: how it answers a chunk, and what becomes of the answers.

    `answer` takes the model, the chunk, its sequences and the options of the query, and returns a
    table. `keeps_columns` says that the whole input comes back, with its numbers as they are.
    `exact` names columns that are not rounded, and `finish` changes the answers to all chunks.
    """

    answer: Callable[..., Any]
    keeps_columns: bool = False
    exact: tuple[str, ...] = ()
    finish: Callable[..., Iterable[Any]] = iter


def ask(name: str, request: Request, **options: Any) -> None:
    """Writes the answers of a model to the query of this name."""
    query, model = QUERIES[name], source.load_model(request.model)
    if query.keeps_columns:
        options["digits"] = request.target.digits
    if is_dataset(request.data) or request.parallel != Parallel():
        from dspn.cli import shards

        shards.ask(name, request, model, options)
        return

    def answer(chunk: Chunk, data: Sequences) -> Any:
        return query.answer(model, chunk, data, **options)

    finish = partial(query.finish, top=options["top"]) if "top" in options else query.finish
    own = replace(query, answer=answer, finish=finish)
    write_answers(request, name, model.schema, model.provenance, own)


def write_answers(
    request: Request,
    title: str,
    schema: Schema,
    provenance: Mapping[str, Any],
    query: Query,
    *,
    optional: Iterable[str] = (),
) -> None:
    """Writes the answers to all chunks of a table, in the order of the table.

    Args:
        request: The table, and where the answers go.
        title: The word for the progress.
        schema: The variables of the model.
        provenance: The provenance of the model, which remembers the key columns.
        query: Its `answer` takes a chunk and the sequences of the chunk.
        optional: Further columns that chunks have if the table has them.
    """
    target, form = request.target, sink.output_format(request.target)
    with source.open_table(request.data, request.read) as opened:
        chunks = source.read_chunks(
            opened,
            schema,
            provenance,
            request.read,
            request.unknown,
            title=title,
            quiet=target.quiet,
            extra=[name for name in optional if name in opened.columns],
            along=opened.columns if query.keeps_columns else (),
        )
        digits = None if query.keeps_columns else target.digits
        tables = (
            sink.round_table(query.answer(chunk, data), digits, (*chunk.keys.names, *query.exact))
            for chunk, data in chunks
        )
        column_types = _column_types(opened, schema if query.keeps_columns else ())
        with sink.write_table(target, form, column_types) as out:
            for table in query.finish(tables):
                out.write(table)


def _column_types(opened: Source, variables: Iterable[Variable]) -> dict[str, Any]:
    """The types that the columns of a text table get in formats that have types.

    Variables that are numbers become numbers. None stands for whatever type looks the same when it
    is written as text again, so that an id 007 remains text.
    """
    if not opened.is_text:
        return {}
    column_types: dict[str, Any] = dict.fromkeys(opened.columns)
    for variable in variables:
        categories = variable.categories
        if categories and isinstance(categories[0], str | bool):
            column_types[variable.name] = pa.string()
        else:
            column_types[variable.name] = decode_cells(np.empty(0), variable).type
    return column_types


def free_name(name: str, taken: Container[str]) -> str:
    """The name, with underscores added until no other column has it."""
    while name in taken:
        name += "_"
    return name


def sequence_table(chunk: Chunk, columns: Mapping[str, Any]) -> Any:
    """A table with a row for each sequence: its id, and the columns."""
    key = chunk.keys.sequence or "sequence"
    return pa.table(
        {key: chunk.ids(), **{free_name(name, [key]): cells for name, cells in columns.items()}}
    )


def _score(model: Model, chunk: Chunk, data: Sequences) -> Any:
    scores = model.log_likelihood(data)
    columns = {"log_likelihood": scores, "slices": data.lengths}
    return sequence_table(chunk, {**columns, "per_slice": scores / data.lengths})


def _slice_surprise(model: Model, chunk: Chunk, data: Sequences) -> Any:
    """The surprise of every slice given its past, and of each of its entries given all others.

    Then the name and the tail of the entry of the smallest tail.
    """
    surprise = model.surprise(data)
    table = {name: plain(chunk.table[name]) for name in chunk.keys.names}
    names = [*model.schema.names, "slice_surprise"]
    if chunk.keys.order is None:  # slices are numbered
        table[free_name("slice", [*table, *names])] = pa.array(_slice_numbers(chunk))
    for name, values in zip(names, [*surprise.variables.T, surprise.slices], strict=True):
        table[free_name(name, table)] = chunk.as_rows(np.ascontiguousarray(values))
    oddest, tails = _oddest_of_slices(surprise)
    missing = chunk.as_rows(np.isnan(tails))
    variables = np.array(model.schema.names, dtype=object)[chunk.as_rows(oddest)]
    table[free_name("oddest", table)] = pa.array(variables, pa.string(), mask=missing)
    table[free_name("tail", table)] = chunk.as_rows(tails)
    return pa.table(table)


def _slice_numbers(chunk: Chunk) -> Any:
    """The number of each row's slice within its sequence."""
    starts = np.repeat(chunk.grouping.offsets[:-1], chunk.grouping.lengths)
    return chunk.as_rows(np.arange(chunk.table.num_rows) - starts)


def _oddest_of_slices(surprise: Surprise) -> tuple[Any, Any]:
    """The variable of the smallest tail of each slice, and that tail; NaN where there is none."""
    nats = np.nan_to_num(surprise.variables, nan=np.inf)
    tails = np.where(np.isnan(surprise.tails), np.inf, surprise.tails)
    best = tails.min(axis=1, keepdims=True)
    oddest = np.where(tails == best, nats, -np.inf).argmax(axis=1)
    return oddest, np.where(np.isinf(best[:, 0]), np.nan, best[:, 0])


def _first_largest(values: Any, data: Sequences) -> Any:
    """The row of the first largest of the values of each sequence."""
    owners = np.repeat(np.arange(len(data)), data.lengths)
    largest = np.maximum.reduceat(values, data.offsets[:-1])
    places = np.flatnonzero(values == largest[owners])
    return places[np.unique(owners[places], return_index=True)[1]]


def _places(chunk: Chunk, rows: Any, data: Sequences) -> Any:
    """What the order column has at rows of the data, or their numbers within sequences."""
    if chunk.keys.order is not None:
        return plain(chunk.table[chunk.keys.order]).take(pa.array(chunk.grouping.rows[rows]))
    owners = np.searchsorted(data.offsets, rows, side="right") - 1
    return pa.array(rows - data.offsets[owners])


def _sequence_surprise(model: Model, chunk: Chunk, data: Sequences) -> Any:
    """The surprise of each sequence, its most surprising slice, and its oddest entry."""
    found = model.surprise(data)
    # An impossible slice is infinitely surprising, and what follows it has no surprise.
    known = np.where(np.isnan(found.slices), -np.inf, found.slices)
    total = np.add.reduceat(np.where(np.isnan(found.slices), 0.0, found.slices), data.offsets[:-1])
    worst = _first_largest(known, data)
    oddest, tails = _oddest_of_slices(found)
    nats = np.nan_to_num(found.variables[np.arange(len(oddest)), oddest], nan=np.inf)
    # Of slices with the same tail, as zero, the one with the more surprising entry.
    order = np.lexsort((nats, -np.where(np.isnan(tails), 2.0, tails)))
    oddness = np.empty(len(order))
    oddness[order] = np.arange(len(order))
    odd = _first_largest(oddness, data)
    none = np.isnan(tails[odd])
    names = np.array(model.schema.names, dtype=object)[oddest[odd]]
    columns = {
        "total": total,
        "slices": data.lengths,
        "per_slice": total / data.lengths,
        "worst": _places(chunk, worst, data),
        "worst_surprise": known[worst],
        "oddest": pa.array(names, pa.string(), mask=none),
        "oddest_at": _places(chunk, odd, data),
        "oddest_surprise": np.where(none, np.nan, nats[odd]),
        "tail": tails[odd],
    }
    return sequence_table(chunk, columns)


def _rank(tables: Iterator[Any]) -> Iterator[Any]:
    """All sequences: impossible ones first, then by their oddest entry, then as in the table."""
    table = pa.concat_tables(tables)
    names = ("per_slice", "oddest_surprise", "tail")
    mean, nats, tail = (table[name].to_numpy() for name in names)
    impossible = np.isinf(mean) & (mean > 0)
    order = np.lexsort((-mean, -nats, np.where(np.isnan(tail), 2.0, tail), ~impossible))
    rank = pa.array(np.arange(1, table.num_rows + 1))
    yield table.take(pa.array(order)).add_column(0, free_name("rank", table.column_names), rank)


def _cells(model: Model, chunk: Chunk, data: Sequences, top: int) -> Any:
    """The entries of the smallest tails, with what was to be expected in their place."""
    found = model.surprise(data)
    rows, columns = oddest_places(found.tails, found.variables, top)
    owners = np.searchsorted(data.offsets, rows, side="right") - 1
    texts, expected = [], []
    if rows.size:
        copies = data[owners]
        values = copies.values.copy()
        places = rows - data.offsets[owners] + copies.offsets[:-1]
        values[places, columns] = np.nan
        filled = model.impute(copies.with_values(values)).values[places, columns]
        own = data.values[rows, columns]
        for column, codes in zip(columns.tolist(), zip(own, filled, strict=True), strict=True):
            cells = decode_cells(np.array(codes), data.schema[column]).to_pylist()
            text = [f"{cell:.10g}" if isinstance(cell, float) else str(cell) for cell in cells]
            texts.append(text[0])
            expected.append(text[1])
    order = chunk.keys.order or "slice"
    key = chunk.keys.sequence or "sequence"
    cells = {
        key: chunk.ids().take(pa.array(owners)),
        free_name(order, [key]): _places(chunk, rows, data),
        "variable": pa.array([data.schema.names[column] for column in columns], pa.string()),
        "value": pa.array(texts, pa.string()),
        "expected": pa.array(expected, pa.string()),
        "tail": found.tails[rows, columns],
        "surprise": found.variables[rows, columns],
    }
    named: dict[str, Any] = {}
    for name, column in cells.items():
        named[free_name(name, named)] = column
    return pa.table(named)


def _keep_oddest(tables: Iterator[Any], top: int) -> Iterator[Any]:
    """The oddest cells of all chunks, the oddest first."""
    table = pa.concat_tables(tables)
    tail, nats = (table[table.num_columns - at].to_numpy() for at in (2, 1))
    order = np.lexsort((-np.nan_to_num(nats, nan=np.inf), tail))[:top]
    rank = pa.array(np.arange(1, order.size + 1))
    yield table.take(pa.array(order)).add_column(0, free_name("rank", table.column_names), rank)


def _fill(
    model: Model, chunk: Chunk, data: Sequences, digits: int | None, *, jointly: bool = False
) -> Any:
    """The table with each gap filled by itself, or all jointly; observed cells stay as they are."""
    completed = model.complete(data).sequences if jointly else model.impute(data)
    gaps, values = chunk.as_rows(np.isnan(data.values)), chunk.as_rows(completed.values)
    columns = {}
    for variable, gap, codes in zip(data.schema, gaps.T, values.T, strict=True):
        cells = plain(chunk.table[variable.name])
        if variable.kind is Kind.CONTINUOUS and gap.any():
            codes = sink.rounded(codes, digits)
        filled = decode_cells(codes, variable)
        # The type of the column, if what is filled in has room in it.
        fits = types.is_floating(cells.type) and not is_text(filled.type)
        kind = cells.type if is_text(cells.type) or fits else filled.type
        with convertible(variable.name, cells):
            cells = cells.cast(kind)
        if gap.any():
            filled = filled.cast(kind, safe=False)
            if is_text(kind) and chunk.decimal == "," and not _has_words(variable):
                filled = pc.replace_substring(filled, ".", ",")
            cells = pc.if_else(pa.array(gap), filled, cells)
        columns[variable.name] = cells
    return with_columns(chunk.table, columns)


def _has_words(variable: Variable) -> bool:
    return bool(variable.categories) and isinstance(variable.categories[0], str)


def predictions(predict: Callable[..., Marginals], levels: Sequence[float]) -> dict[str, Any]:
    """Columns for every variable: its point, and probabilities or quantiles.

    The point is that of `impute`: the most probable category, the median of a count, or the mean.

    Args:
        predict: Returns the distributions; its argument `quantiles` has levels of quantiles.
        levels: The levels of the quantiles that become columns.
    """
    asked = tuple(levels) if 0.5 in levels else (*levels, 0.5)  # the point of a count is a median
    columns: dict[str, Any] = {}
    for marginals in predict(quantiles=asked).variables:
        variable = marginals.variable
        columns[variable.name] = decode_cells(marginals.point(), variable)
        if marginals.probabilities is not None:
            for category, share in zip(variable.categories, marginals.probabilities.T, strict=True):
                columns[f"{variable.name}={category}"] = np.ascontiguousarray(share)
            continue
        kind = np.int64 if variable.kind is Kind.COUNT else np.float64
        for level, values in zip(marginals.levels, marginals.quantiles.T, strict=True):
            if level in levels:
                columns[f"{variable.name}@{level:g}"] = values.astype(kind)
    return columns


def _forecast(
    model: Model, chunk: Chunk, data: Sequences, steps: int, levels: Sequence[float]
) -> Any:
    """The distributions of the slices that follow, a row for each step of each sequence."""

    def predict(quantiles: tuple[float, ...]) -> Marginals:
        return model.forecast(data, steps, quantiles=quantiles).marginals

    columns = predictions(predict, levels)
    sequence, order = chunk.keys.sequence or "sequence", chunk.keys.order
    step = free_name("step", [*chunk.keys.names, sequence, *columns])
    table = {
        sequence: chunk.ids().take(pa.array(np.repeat(np.arange(len(data)), steps))),
        step: np.tile(np.arange(1, steps + 1), len(data)),
    }
    if order is not None and order_goes_on(chunk.table[order], chunk.keys):
        table[order] = next_values(chunk.table[order], chunk.keys, chunk.grouping, steps)
    named = {free_name(name, [sequence]): cells for name, cells in columns.items()}
    return pa.table({**table, **named})


QUERIES: Final = {
    "score": Query(_score),
    "impute": Query(_fill, keeps_columns=True),
    "complete": Query(partial(_fill, jointly=True), keeps_columns=True),
    "forecast": Query(_forecast),
    "surprise by slice": Query(_slice_surprise),
    "surprise by sequence": Query(_sequence_surprise, exact=("worst", "oddest_at"), finish=_rank),
    "surprise by cell": Query(_cells, finish=_keep_oddest),
}


def forecast(steps: int, levels: str, request: Request) -> None:
    """Writes the distributions of the next `steps` slices, with quantiles of the `levels`."""
    ask("forecast", request, steps=steps, levels=parse_levels(levels))


def surprise(by: str, top: int | None, request: Request) -> None:
    """Writes how unexpected each slice is, or each sequence if `by` says so, or the `top` cells."""
    if top is None:
        ask(f"surprise by {by}", request)
    else:
        ask("surprise by cell", request, top=top)


def sample(model: Path, number: int, length: int, seed: int | None, target: Target) -> None:
    """Writes sequences drawn from a model; sequences and slices are numbered from 0.

    Args:
        model: The model file.
        number: The number of sequences.
        length: The number of slices of each.
        seed: The seed; without it one is chosen and noted.
        target: Where the table goes.
    """
    form = sink.output_format(target)
    loaded = source.load_model(model)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
        console.note(f"note: seed {seed}", quiet=target.quiet)
    rng = np.random.default_rng(seed)
    keys, taken = source.remembered_keys(loaded.provenance), loaded.schema.names
    sequence = free_name(keys.get("sequence", "sequence"), taken)
    order = free_name(keys.get("order", "slice"), [*taken, sequence])
    batch = max(_SAMPLED_ROWS // length, 1)
    with sink.write_table(target, form) as out:
        for start in range(0, number, batch):
            count = min(batch, number - start)
            values = loaded.sample(count, length, rng=rng).values
            columns: dict[str, Any] = {
                sequence: np.repeat(np.arange(start, start + count), length),
                order: np.tile(np.arange(length), count),
            }
            for variable, codes in zip(loaded.schema, values.T, strict=True):
                columns[variable.name] = decode_cells(codes, variable)
            out.write(sink.round_table(pa.table(columns), target.digits))

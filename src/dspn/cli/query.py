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
from dspn.cli.options import Parallel, Reading, Request, Target, parse_bounds, parse_levels
from dspn.data.cells import convertible, decode_cells, is_text, plain, with_columns
from dspn.data.chunks import Chunk, Source
from dspn.data.coding import decode_matrix
from dspn.data.dataset import is_dataset
from dspn.data.order import next_values, order_goes_on, parsed_values, require_columns
from dspn.data.schema import Kind, Schema, Variable, list_names, near_misses
from dspn.data.sequences import Sequences
from dspn.errors import DataError
from dspn.inference.marginals import Imputation, Marginals
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

    rows: dict[int, int] = {}  # by the first row of a chunk, which may be tried before

    def answer(chunk: Chunk, data: Sequences) -> Any:
        rows[chunk.first_row] = data.total_slices
        return query.answer(model, chunk, data, **options)

    finish = partial(query.finish, top=options["top"]) if "top" in options else query.finish
    own = replace(query, answer=answer, finish=finish)
    whole = bool(options.get("fitted"))
    write_answers(request, name, model.schema, model.provenance, own, whole=whole)
    trained_on: Any = model.provenance.get("trained_on")
    slices = trained_on.get("slices") if isinstance(trained_on, dict) else None
    if name.startswith("surprise") and not whole and slices == sum(rows.values()):
        told = "the model was fitted to as many slices; if to these, add --fitted, so that no"
        console.note(f"note: {told} value vouches for itself.", quiet=request.target.quiet)


def write_answers(
    request: Request,
    title: str,
    schema: Schema,
    provenance: Mapping[str, Any],
    query: Query,
    *,
    optional: Iterable[str] = (),
    whole: bool = False,
) -> None:
    """Writes the answers to all chunks of a table, in the order of the table.

    Args:
        request: The table, and where the answers go.
        title: The word for the progress.
        schema: The variables of the model.
        provenance: The provenance of the model, which remembers the key columns.
        query: Its `answer` takes a chunk and the sequences of the chunk.
        optional: Further columns that chunks have if the table has them.
        whole: The whole table is one chunk.
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
            whole=whole,
            grows=True,
            extra=[name for name in optional if name in opened.columns],
            along=opened.columns if query.keeps_columns else (),
            work=query.answer,
        )
        digits = None if query.keeps_columns else target.digits
        tables = (
            sink.round_table(query.answer(chunk, data), digits, (*chunk.keys.names, *query.exact))
            for chunk, data in chunks
        )
        column_types = _column_types(opened, schema if query.keeps_columns else ())
        read = source.as_written(opened, request.read, provenance)
        with sink.write_table(target, form, column_types, read) as out:
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


def _slice_surprise(model: Model, chunk: Chunk, data: Sequences, *, fitted: bool = False) -> Any:
    """The surprise of every slice given its past, and of each of its entries given all others.

    Then the name and the tail of the entry of the smallest tail.
    """
    surprise = model.surprise(data, fitted=fitted)
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


def _sequence_surprise(model: Model, chunk: Chunk, data: Sequences, *, fitted: bool = False) -> Any:
    """The surprise of each sequence, its most surprising slice, and its oddest entry."""
    found = model.surprise(data, fitted=fitted)
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
    """All sequences: impossible ones first, then by their oddest entry, then as in the table.

    The smallest of many tails is small by chance: what counts is how probable one as small is
    among those of so many slices.
    """
    table = pa.concat_tables(tables)
    names = ("per_slice", "oddest_surprise", "tail", "slices")
    mean, nats, tail, slices = (table[name].to_numpy() for name in names)
    impossible = np.isinf(mean) & (mean > 0)
    with np.errstate(divide="ignore"):
        chance = -np.expm1(slices * np.log1p(-np.minimum(tail, 1.0)))
    order = np.lexsort((-mean, -nats, np.where(np.isnan(tail), 2.0, chance), ~impossible))
    rank = pa.array(np.arange(1, table.num_rows + 1))
    yield table.take(pa.array(order)).add_column(0, free_name("rank", table.column_names), rank)


def _cells(
    model: Model,
    chunk: Chunk,
    data: Sequences,
    top: int,
    *,
    digits: int | None = None,
    fitted: bool = False,
) -> Any:
    """The entries of the smallest tails, with what was to be expected in their place."""
    found = model.surprise(data, fitted=fitted)
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
        is_number = np.array([kind.kind is Kind.CONTINUOUS for kind in data.schema])[columns]
        filled[is_number] = sink.rounded(filled[is_number], digits)
        for column, codes in zip(columns.tolist(), zip(own, filled, strict=True), strict=True):
            cells = decode_cells(np.array(codes), data.schema[column]).to_pylist()
            text = [_number_text(c, chunk) if isinstance(c, float) else str(c) for c in cells]
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


def _number_text(value: float, chunk: Chunk) -> str:
    return f"{value:.10g}".replace(".", chunk.decimal or ".")


def _keep_oddest(tables: Iterator[Any], top: int) -> Iterator[Any]:
    """The oddest cells of all chunks, the oddest first."""
    table = pa.concat_tables(tables)
    tail, nats = (table[table.num_columns - at].to_numpy() for at in (2, 1))
    order = np.lexsort((-np.nan_to_num(nats, nan=np.inf), tail))[:top]
    rank = pa.array(np.arange(1, order.size + 1))
    yield table.take(pa.array(order)).add_column(0, free_name("rank", table.column_names), rank)


def _fill(
    model: Model,
    chunk: Chunk,
    data: Sequences,
    digits: int | None,
    *,
    jointly: bool = False,
    levels: Sequence[float] = (),
    mark: bool = False,
) -> Any:
    """The table with each gap filled by itself, or all jointly; observed cells stay as they are.

    With levels there are quantiles of the filled numbers and probabilities of filled categories,
    and with `mark` the names of the variables that were filled in each row.
    """
    found = None if jointly else model.impute_with_bands(data, quantiles=levels)
    completed = model.complete(data).sequences if found is None else found.sequences
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
    table = with_columns(chunk.table, columns)
    more: dict[str, Any] = {}
    if levels and found is not None:
        more = _bands(found, chunk, digits)
    if mark:
        names = np.array(data.schema.names, dtype=object)
        more["filled"] = pa.array([" ".join(names[row]) for row in gaps], pa.string())
    for name, cells in more.items():
        table = table.append_column(free_name(name, table.column_names), cells)
    return table


def _bands(found: Imputation, chunk: Chunk, digits: int | None) -> dict[str, Any]:
    """Quantiles, or the probability of the category, of filled cells; null beside observed ones."""
    columns = {}
    for own in found.marginals.variables:
        name, is_count = own.variable.name, own.variable.kind is Kind.COUNT
        parts = {
            f"{name}@{level:g}": cells
            for level, cells in zip(own.levels, own.quantiles.T, strict=True)
        }
        if own.probabilities is not None:
            parts = {f"{name}@p": own.probabilities.max(axis=1, initial=0.0)}
        for title, cells in parts.items():
            whole = np.full(len(found.filled), np.nan)
            whole[own.slices] = sink.rounded(np.asarray(cells), None if is_count else digits)
            whole = chunk.as_rows(whole)
            column = pa.array(whole, mask=np.isnan(whole))
            columns[title] = column.cast(pa.int64()) if is_count else column
    return columns


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
    model: Model,
    chunk: Chunk,
    data: Sequences,
    steps: int,
    levels: Sequence[float],
    known: Mapping[Any, Any] | None = None,
    inputs: Mapping[Any, Any] | None = None,
) -> Any:
    """The distributions of the slices that follow, a row for each step of each sequence.

    `known` has the coded slices to come of sequences by id, and `inputs` their inputs and times.
    """
    ahead, longer = None, data
    given = None if inputs is None else _inputs_ahead(chunk, steps, inputs)
    if known is not None:
        nothing = np.full((1, data.num_variables), np.nan)
        parts = [known.get(name, nothing) for name in _ids(chunk)]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        ahead = Sequences.from_codes(np.vstack(parts), offsets, Schema(data.schema.variables))

    def predict(quantiles: tuple[float, ...]) -> Marginals:
        nonlocal longer
        found = model.forecast(data, steps, quantiles=quantiles, known=ahead, inputs=given)
        longer = found.sequences
        return found.marginals

    columns = predictions(predict, levels)
    if known is not None:
        columns = _with_known(columns, longer, steps)
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


def _with_known(columns: dict[str, Any], longer: Sequences, steps: int) -> dict[str, Any]:
    """Columns of all new slices: a known entry is its own point and has no distribution."""
    rows = (longer.offsets[1:, None] - steps + np.arange(steps)).ravel()
    out: dict[str, Any] = {}
    for v, variable in enumerate(longer.schema):
        codes = longer.values[rows, v]
        unknown = np.isnan(codes)
        own = f"{variable.name}@", f"{variable.name}="
        for name, cells in columns.items():
            if name == variable.name or name.startswith(own):
                array = cells if isinstance(cells, pa.Array) else pa.array(cells)
                place = np.where(unknown, np.cumsum(unknown) - 1, 0)
                spread = array.take(pa.array(place, mask=~unknown))
                if name == variable.name:
                    given = decode_cells(codes, variable).cast(array.type, safe=False)
                    spread = pc.if_else(pa.array(unknown), spread, given)
                out[name] = spread
    return out


QUERIES: Final = {
    "score": Query(_score),
    "impute": Query(_fill, keeps_columns=True),
    "complete": Query(partial(_fill, jointly=True), keeps_columns=True),
    "forecast": Query(_forecast),
    "surprise by slice": Query(_slice_surprise),
    "surprise by sequence": Query(_sequence_surprise, exact=("worst", "oddest_at"), finish=_rank),
    "surprise by cell": Query(_cells, finish=_keep_oddest),
}


def impute(levels: str, mark: bool, request: Request) -> None:
    """Writes the table with its gaps filled, with quantiles of the `levels` and a mark if asked."""
    more: dict[str, Any] = {"levels": parse_levels(levels)} if levels else {}
    ask("impute", request, **more, **({"mark": True} if mark else {}))


def forecast(
    steps: int, levels: str, known: str | None, inputs: str | None, request: Request
) -> None:
    """Writes the distributions of the next `steps` slices, with quantiles of the `levels`."""
    options: dict[str, Any] = {"steps": steps, "levels": parse_levels(levels)}
    if known is not None:
        if is_dataset(request.data):
            raise DataError("--known works on tables; leave it out for a data set in shards.")
        options["known"] = _read_known(known, request, steps)
    schema = source.load_model(request.model).schema
    if inputs is not None:
        if is_dataset(request.data):
            raise DataError("--inputs works on tables; leave it out for a data set in shards.")
        options["inputs"] = _read_inputs(inputs, request)
    elif schema.given_inputs:
        names = list_names([own.name for own in schema.given_inputs])
        remedy = "give those of the slices ahead with --inputs FILE"
        if is_dataset(request.data):
            remedy = "forecast a table, with those of the slices ahead in --inputs FILE"
        raise DataError(f"the model has inputs that no rule computes ({names}); {remedy}.")
    ask("forecast", request, **options)


def _read_inputs(path: str, request: Request) -> dict[Any, Any]:
    """Inputs of slices to come by the id of the sequence, and their times where these matter.

    The table has all inputs of the model, or those that no rule computes.
    """
    model, read = source.load_model(request.model), request.read
    own, told = model.schema.inputs, source.remembered_keys(model.provenance)
    if not own:
        raise DataError("--inputs is for models with inputs, but this one has none; leave it out.")
    with source.open_table(path, read) as table:
        is_whole = all(item.name in table.columns for item in own)
        wanted = own if is_whole or not model.schema.given_inputs else model.schema.given_inputs
        names = [item.name for item in wanted]
        remedy = "--inputs must have the inputs of the slices ahead"
        require_columns(table.title, table.columns, names, remedy)
        if (read.order or told.get("order")) not in table.columns:
            read = replace(read, order=None, every=None, duplicates=None)
            told = {name: told[name] for name in told.keys() - {"order", "every", "duplicates"}}
        schema = Schema(tuple(replace(item, rule=None, default=None) for item in wanted))
        ((chunk, data),) = source.read_chunks(
            *(table, schema, {source.TABLE: told}, read, request.unknown), quiet=True, whole=True
        )
    computed = [item for item in own if item not in wanted and item.rule.needs_times]
    times = chunk.order_values() if computed and chunk.keys.order is not None else None
    values, ids = decode_matrix(data.values, schema), _ids(chunk)
    found = {}
    for i, name in enumerate(ids):
        rows = slice(data.offsets[i], data.offsets[i + 1])
        found[name] = values[rows], None if times is None else times[rows]
    return found


def _ids(chunk: Chunk) -> list[Any]:
    return chunk.grouping.ids if chunk.keys.sequence is not None else [None]


def _inputs_ahead(chunk: Chunk, steps: int, inputs: Mapping[Any, Any]) -> list[Any]:
    """Inputs of the slices ahead of each sequence; raises where there are not `steps` of them.

    Where inputs are computed from times, those of the slices ahead must be the ones that follow.
    """
    found, keys, ids = [], chunk.keys, _ids(chunk)
    following = None
    if keys.order is not None and any(times is not None for _, times in inputs.values()):
        later = next_values(chunk.table[keys.order], keys, chunk.grouping, steps)
        following = parsed_values(later, keys, 1)
    for i, name in enumerate(ids):
        values, times = inputs.get(name, ((), None))
        of = "the table" if name is None else f"sequence {name!r}"
        if len(values) != steps:
            raise DataError(
                f"--inputs must have {steps} rows for each sequence, as --steps says, but has "
                f"{len(values) or 'none'} for {of}."
            )
        if times is not None and following is not None:
            wrong = np.flatnonzero(times != following[i * steps : (i + 1) * steps])
            if wrong.size:
                raise DataError(
                    f"the order column of --inputs must go on by the step of the table, but for "
                    f"{of} row {wrong[0] + 1} is {times[wrong[0]]} in place of "
                    f"{following[i * steps + wrong[0]]}; correct it, or give all inputs."
                )
        found.append(values)
    return found


def _read_known(path: str, request: Request, steps: int) -> dict[Any, Any]:
    """The coded slices of a table of what is known ahead, by the id of the sequence.

    Variables that the table does not have are not known.
    """
    model = source.load_model(request.model)
    with source.open_table(path, request.read) as table:
        present = [name for name in model.schema.names if name in table.columns]
        if not present:
            raise DataError(
                f"--known must have columns of the model's variables, but {source.quoted(path)} "
                f"has {', '.join(table.columns)}."
            )
        schema = Schema(tuple(own for own in model.schema if own.name in present))
        ((chunk, data),) = source.read_chunks(
            *(table, schema, model.provenance, request.read, request.unknown),
            quiet=True, whole=True,
        )  # fmt: skip
    if int(data.lengths.max()) > steps:
        raise DataError(
            f"--known must have at most {steps} rows for a sequence, as --steps says, but has "
            f"{int(data.lengths.max())}; raise --steps."
        )
    places = [model.schema.index(name) for name in schema.names]
    values = np.full((data.total_slices, len(model.schema)), np.nan)
    values[:, places] = data.values
    ids = _ids(chunk)
    return {name: values[data.offsets[i] : data.offsets[i + 1]] for i, name in enumerate(ids)}


def surprise(by: str, top: int | None, fitted: bool, request: Request) -> None:
    """Writes how unexpected each slice is, or each sequence if `by` says so, or the `top` cells."""
    options: dict[str, Any] = {"fitted": True} if fitted else {}
    if fitted and is_dataset(request.data):
        raise DataError("--fitted needs the whole table in memory, but DATA is a set of shards.")
    if top is None:
        ask(f"surprise by {by}", request, **options)
    else:
        ask("surprise by cell", request, top=top, digits=request.target.digits, **options)


def sample(
    model: Path,
    number: int,
    length: int,
    seed: int | None,
    bound: list[str] | None = None,
    *,
    target: Target,
) -> None:
    """Writes sequences drawn from a model; sequences and slices are numbered from 0.

    Args:
        model: The model file.
        number: The number of sequences.
        length: The number of slices of each.
        seed: The seed; without it one is chosen and noted.
        bound: Bounds of numbers.
        target: Where the table goes.
    """
    form, bounds = sink.output_format(target), parse_bounds(bound)
    loaded = source.load_model(model)
    source.require_computable(loaded.schema, "`dspn sample`")
    for name in bounds:
        if name not in loaded.schema.names:
            near = near_misses(name, loaded.schema.names)
            names = list_names(loaded.schema.names)
            raise DataError(f"--bound {name!r} is no variable of the model{near}: it has {names}.")
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
        console.note(f"note: seed {seed}", quiet=target.quiet)
    rng = np.random.default_rng(seed)
    keys, taken = source.remembered_keys(loaded.provenance), loaded.schema.names
    sequence = free_name(keys.get("sequence", "sequence"), taken)
    order = free_name(keys.get("order", "slice"), [*taken, sequence])
    batch = max(_SAMPLED_ROWS // length, 1)
    progress = console.show_rows("sample", quiet=target.quiet)
    read = Reading(decimal=",", delimiter=";") if keys.get("decimal") == "," else Reading()
    with sink.write_table(target, form, read=read) as out, progress as advance:
        for start in range(0, number, batch):
            count = min(batch, number - start)
            values = loaded.sample(count, length, rng=rng, bounds=bounds or None).values
            columns: dict[str, Any] = {
                sequence: np.repeat(np.arange(start, start + count), length),
                order: np.tile(np.arange(length), count),
            }
            for variable, codes in zip(loaded.schema, values.T, strict=True):
                columns[variable.name] = decode_cells(codes, variable)
            out.write(sink.round_table(pa.table(columns), target.digits))
            advance(count * length, (start + count) / number)

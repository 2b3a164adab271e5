"""`dspn fit`: a table to learn from, notes on what it holds, and a model of it."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from typer import BadParameter

from dspn.cli import console, sink, source
from dspn.cli.options import (
    Table,
    Training,
    Unknown,
    check_extension,
    parse_inputs,
    parse_kinds,
    parse_names,
)
from dspn.data.chunks import Chunk, Described, collect, describe_column
from dspn.data.dataset import Dataset, is_dataset
from dspn.data.layout import looks_like_time
from dspn.data.order import Keys, describe_steps, variable_names
from dspn.data.proposals import is_doubtful, propose, rises
from dspn.data.schema import Kind, Schema, Variable, list_names, near_misses
from dspn.data.sequences import Sequences
from dspn.errors import DataError, StructureError, printable
from dspn.executors import Ray
from dspn.learning.auto.base import Auto
from dspn.learning.growth import GrowthOptions
from dspn.models import DSPN, DSPNClassifier, Em, Model, Paper, load
from dspn.models.online import sequences_seen, with_batch

_MOST_CATEGORIES: Final = 1000
_FEWEST_DISTINCT: Final = 10
_NEARLY_ALL: Final = 0.9
_LOOKED_AT: Final = 100
_NAMED: Final = 6


def read_training_data(
    table: Table,
    *,
    quiet: bool,
    besides: tuple[str, ...] = (),
    inputs: list[str] | None = None,
) -> tuple[Sequences, Chunk]:
    """The sequences of a table, and its rows.

    Args:
        table: The table, and how to read it.
        quiet: Do not show the variables, and the notes on them.
        besides: Columns that are read too, and are no variables.
        inputs: Columns that are inputs, and rules of inputs.
    """
    chunk, names, own = read_columns(table, quiet=quiet, besides=besides, inputs=inputs)
    told, writing = parse_kinds(table.kind), source.writing_of(table.read)

    def describe(name: str) -> Described:
        item = describe_column(chunk, name, told.get(name), writing)
        require_few_categories(item, chunk)
        return item

    variables = collect(describe, names)
    given = collect(lambda name: _as_input(describe(name)), filter(_is_column, own))
    declared = {item.variable.name: item.variable for item in given}
    schema = Schema(
        tuple(item.variable for item in variables),
        tuple(declared[item] if isinstance(item, str) else item for item in own),
    )
    sequences = chunk.ordered((item.codes for item in (*variables, *given)), schema)
    if not quiet:
        computed = (
            Described(item, sequences.inputs[:, number], "input, by its rule")
            for number, item in enumerate(schema.inputs)
            if item.rule is not None
        )
        show_variables((*variables, *given, *computed))
        console.note(size_of(chunk))
        for text in advice(variables, chunk):
            console.note(f"note: {text}")
    return sequences, chunk


def read_columns(
    table: Table,
    *,
    quiet: bool,
    besides: tuple[str, ...] = (),
    inputs: list[str] | None = None,
) -> tuple[Chunk, list[str], list[Any]]:
    """All rows of a table to learn from, the names of its variables, and its inputs.

    An input is the name of a column, or has a rule.
    """
    read, wanted, told = table.read, parse_names(table.variables), parse_kinds(table.kind)
    with source.open_table(table.data, read) as opened:
        keys = source.find_keys(opened, read, None, quiet=quiet)
        own = parse_inputs(inputs, opened.columns)
        given = [*filter(_is_column, own)]
        _check_inputs(own, keys, {*(wanted or ()), *besides}, told)
        without = [*(table.exclude or ()), *besides, *given]
        names = variable_names(opened.title, opened.columns, keys, wanted, without)
        for name in sorted(told.keys() - {*names, *given}):
            near = near_misses(name, names)
            raise DataError(
                f"--kind names {name!r}{near}, but the variables are {list_names(names)}."
            )
        return source.read_whole(opened, keys, [*names, *given], read, besides), names, own


def _is_column(item: Any) -> bool:
    return isinstance(item, str)


def _check_inputs(
    own: Iterable[Any], keys: Keys, others: set[str], told: Mapping[str, str]
) -> None:
    """Raises where an input is a column for something else, or needs times that are not there."""
    for item in own:
        if isinstance(item, str):
            if item in keys.names:
                raise DataError(f"column {item!r} cannot be both a key and an --input.")
            if item in others:
                raise DataError(
                    f"column {item!r} cannot be both a variable and an --input; leave it out of "
                    "one."
                )
            if told.get(item, "continuous") not in ("categorical", "binary", "continuous"):
                raise BadParameter(
                    f"--kind {item}={told[item]} is for variables: an input is categorical, binary "
                    "or continuous."
                )
        elif item.rule.needs_times and keys.order is None:
            raise DataError(
                f"--input {item.name} follows from the times of the slices; name their column "
                "with --order."
            )


def _as_input(item: Described) -> Described:
    """The column as an input: counts are continuous."""
    own = item.variable
    variable = Variable.continuous(own.name) if own.kind is Kind.COUNT else own
    return Described(variable, item.codes, f"input, {item.reason}")


def show_variables(variables: Iterable[Described]) -> None:
    """Writes the variables to standard error: kind, categories, gaps, and the reason."""
    rows = []
    for item in variables:
        variable, missing = item.variable, float(np.isnan(item.codes).mean())
        values = printable(", ".join(map(str, variable.categories[:6])))
        values += ", ..." if variable.num_categories > 6 else ""
        share = f"{100 * missing:.1f} %" if missing else ""
        rows.append((printable(variable.name, 200), str(variable.kind), values, share, item.reason))
    with suppress(OSError, SystemExit):  # if nobody reads it, learning still goes on
        headings = ("variable", "kind", "values", "missing", "inferred from")
        console.make_console(width=160).print(console.make_table(headings, rows))


def size_of(chunk: Chunk) -> str:
    """Numbers of sequences and slices, in words."""
    lengths = chunk.grouping.lengths
    shortest, longest = int(lengths.min()), int(lengths.max())
    of = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
    total = "" if lengths.size == 1 else f", {int(lengths.sum()):,} in all"
    return f"{console.counted(lengths.size, 'sequence')} of {of} slices{total}"


def require_few_categories(item: Described, chunk: Chunk) -> None:
    """Raises if a column has very many categories and no --kind says that it is categorical."""
    if item.reason == "--kind" or item.variable.num_categories <= _MOST_CATEGORIES:
        return
    name = item.variable.name
    remedy = f"leave it out with --exclude {shlex.quote(name)}, or say {_kind(item, 'categorical')}"
    if _looks_like_times(item):
        remedy = f"it looks like times, {_remedy_for_times(name, chunk)} Else {remedy}"
    rule = f"column {name!r} must have at most {_MOST_CATEGORIES:,} categories"
    raise DataError(f"{rule}, but has {_distinct(item)}; {remedy}.")


def advice(variables: Sequence[Described], chunk: Chunk) -> Iterator[str]:
    """A sentence for each property of the table that may not be what was meant."""
    for item in variables:
        name, present = item.variable.name, np.count_nonzero(~np.isnan(item.codes))
        if item.reason == "text" and _looks_like_times(item):
            yield f"column {name!r} looks like times; {_remedy_for_times(name, chunk)}"
        elif item.reason == "text" and item.variable.num_categories >= max(
            _FEWEST_DISTINCT, _NEARLY_ALL * present
        ):
            yield (
                f"column {name!r} has {_distinct(item)}; leave it out with --exclude "
                f"{shlex.quote(name)}, or it costs much and says nothing."
            )
        elif (
            chunk.keys.order is None
            and item.reason not in ("text", "--kind")
            and rises(item.codes[chunk.grouping.rows], chunk.grouping.owners)
        ):
            yield (
                f"column {name!r} has numbers that rise from row to row; if they are times or "
                f"count the rows, say -t {shlex.quote(name)}."
            )
        if _is_fixed(item, chunk):
            yield (
                f"column {name!r} does not change within a sequence; if it names the sequence, "
                f"leave it out with --exclude {shlex.quote(name)}."
            )
    yield from _proposals(variables)
    whole = [item for item in variables if item.reason.startswith("whole numbers with")]
    few = [item for item in whole if item.variable.categories]
    if few:
        yield _few_whole_numbers(few)
    for item in whole:
        if item.variable.kind is Kind.COUNT and is_doubtful(item.variable, item.codes):
            yield (
                f"column {item.variable.name!r} has whole numbers that are taken as counts and are "
                f"not spread as counts are; if they are labels, say {_kind(item, 'categorical')}"
            )
    order = chunk.keys.order
    if order is None:
        return
    steps = describe_steps(chunk.table[order], chunk.keys, chunk.grouping)
    if steps is not None and steps.uneven is not None:
        are_dates = _are_dates(chunk.table[order]) and chunk.keys.dates is None
        dates = "if these are dates, say --dates %Y%m%d" if are_dates else ""
        yield steps.advice(order, f"--every {steps.every}", dates)


def _proposals(variables: Sequence[Described]) -> Iterator[str]:
    """Leaf families that may fit better, a sentence for each; many columns have one together."""
    found: dict[str, list[tuple[Described, str]]] = {}
    for item in variables:
        proposal = None if item.reason == "--kind" else propose(item.variable, item.codes)
        if proposal is not None:
            found.setdefault(proposal.family, []).append((item, proposal.reason))
    for family, own in found.items():
        item, reason = own[0]
        rule = f"{family} leaves may fit better than the usual ones of {item.variable.kind}"
        remedy = f"say {_kind(item, family)}"
        if len(own) == 1:
            yield f"column {item.variable.name!r}: {reason}; {rule} variables, {remedy}"
        else:
            names = list_names([repr(one.variable.name) for one, _ in own], _NAMED)
            yield (
                f"columns {names}: {reason} in the first; {rule} variables, {remedy} and so on, or "
                "--families auto"
            )


def _are_dates(cells: Any) -> bool:
    """Whether whole numbers look like days written in eight digits, as 20240331."""
    some = [str(cell) for cell in cells[:_LOOKED_AT].to_pylist()]
    return all(re.fullmatch(r"(18|19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", x) for x in some)


def _is_fixed(item: Described, chunk: Chunk) -> bool:
    """Whether each sequence of several slices has one value throughout, and not all the same."""
    grouping = chunk.grouping
    codes = item.codes[grouping.rows]
    within = np.diff(grouping.owners) == 0
    changes = np.diff(codes) != 0  # also where a value is missing
    return bool(within.any() and not changes[within].any() and changes.any())


def _looks_like_times(item: Described) -> bool:
    some = item.variable.categories[:_LOOKED_AT]
    return bool(some) and all(isinstance(word, str) and looks_like_time(word) for word in some)


def _distinct(item: Described) -> str:
    return f"{item.variable.num_categories:,} different values in {item.codes.size:,} rows"


def _remedy_for_times(name: str, chunk: Chunk) -> str:
    if chunk.keys.order is None:
        return f"did you mean -t {shlex.quote(name)}?"
    return f"leave it out with --exclude {shlex.quote(name)}."


def _few_whole_numbers(few: Sequence[Described]) -> str:
    more = ["..."] if len(few) > _NAMED else []
    names = ", ".join([*(repr(item.variable.name) for item in few[:_NAMED]), *more])
    options = " ".join([*(_kind(item, "count") for item in few[:_NAMED]), *more])
    have, condition = f"columns {names} have", "where they count"
    if len(few) == 1:
        have, condition = f"column {names} has", "if it counts"
    rule = "few whole numbers, which are taken as categories"
    return f"{have} {rule}; {condition} something, say {options}"


def _kind(item: Described, kind: str) -> str:
    return f"--kind {shlex.quote(f'{item.variable.name}={kind}')}"


def _make_learner(training: Training) -> Auto | Em | Paper:
    """The learner with its options of the command line."""
    size, effort = training.interfaces, training.effort
    if training.transitions != "dense" and training.learner != "em":
        raise BadParameter(
            f"--transitions {training.transitions} is for --learner em, not for "
            f"{training.learner}: leave it out."
        )
    match training.learner, size, effort:
        case "auto", None, _:
            return Auto(effort=effort)
        case "em", int(), None:
            return Em(size, transitions=training.transitions)
        case "paper", None, None:
            return Paper()
        case "paper", int(), None:
            return Paper(GrowthOptions(min_interfaces=size, max_interfaces=size))
        case "auto", int(), _:
            raise BadParameter(
                "--interfaces is for --learner em or paper: add one of these, or leave it out, as "
                "the automatic learner chooses the number."
            )
        case "em" | "paper", _, _:
            raise BadParameter("--effort is for --learner auto: leave it out.")
    raise StructureError(
        f"`learner` must be 'auto', 'paper' or 'em', but is {training.learner!r}; choose one."
    )


def _parse_lags(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal():
        raise BadParameter(f"--lags must be a whole number of at least 0, or auto, not {text!r}.")
    return int(text)


def _make_estimator(training: Training, fraction: float | None, *, quiet: bool) -> DSPN:
    if training.time_limit is not None and not training.time_limit > 0:
        raise BadParameter(
            f"--time-limit must be more than 0 seconds, but is {training.time_limit:g}; leave it "
            "out for no limit."
        )
    checkpoint = training.checkpoint
    if checkpoint is not None and training.learner == "paper":
        os.makedirs(checkpoint, exist_ok=True)
        checkpoint = checkpoint / "paper.dspn"
    return DSPN(
        _make_learner(training),
        time_limit=training.time_limit,
        random_state=training.seed,
        validation_fraction=0.1 if fraction is None else fraction,
        checkpoint=checkpoint,
        resume=checkpoint is not None,
        n_jobs=training.jobs,
        engine=training.engine,
        families="auto" if training.families == "auto" else None,
        lags=_parse_lags(training.lags),
        lags_of=training.lags_of,
        leaf_inputs=training.leaf_inputs,
        covariance=training.covariance,
        executor=None if training.ray is None else Ray(training.ray),
        verbose=0 if quiet else 1,
    )


def fit(
    table: Table,
    training: Training,
    output: Path | None = None,
    as_continue: Path | None = None,
    unknown: Unknown = "error",
    *,
    as_input: list[str] | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Learns and writes a model; after Ctrl-C the best so far, if there is one.

    Args:
        table: The table, and how to read it.
        training: How to learn.
        output: The model file; by default that of `as_continue`.
        as_continue: A model to go on from.
        unknown: What a category is that this model does not know.
        as_input: Columns that are inputs, and rules of inputs.
        as_json: Write a summary to standard output.
        quiet: No notes and no progress.
    """
    if as_continue is not None:
        _check_unused(table, training, as_input)
        target = as_continue if output is None else output
        continue_fit(as_continue, table, target, unknown, as_json=as_json, quiet=quiet)
        return
    if unknown != "error":
        raise BadParameter("--unknown is for --continue: a new model knows all categories.")
    if output is None:
        raise BadParameter("--output must name the model file to write, but is missing.")
    check_extension(output, ".dspn")
    if training.learner == "em" and training.interfaces is None:
        raise BadParameter("--learner em needs the number of --interfaces.")
    if as_input and training.learner != "auto" and not training.leaf_inputs:
        raise BadParameter(
            f"--learner {training.learner} uses inputs in leaves only: add --leaf-inputs, or leave "
            "out --input."
        )
    sink.check_place(str(output))
    fraction = None  # the option names a table
    with suppress(ValueError):
        fraction = float(training.validation)
    estimator = _make_estimator(training, fraction, quiet=quiet)
    sequences: Sequences | Dataset
    if is_dataset(table.data):
        if as_input:
            raise BadParameter("--input is for `dspn prepare`, not for its shards.")
        if table.variables or table.kind or table.exclude:
            raise BadParameter(
                "--variables, --exclude and --kind are for `dspn prepare`, not for its shards."
            )
        sequences = Dataset.open(table.data)
        keys = sequences.keys
    else:
        sequences, chunk = read_training_data(table, quiet=quiet, inputs=as_input)
        keys = chunk.keys
    for own in () if training.leaf_inputs else sequences.schema.inputs:
        if not own.num_categories:
            text = f"input {own.name!r} is a number, which only leaves can use"
            console.note(f"note: {text}: say --leaf-inputs.", quiet=quiet)
    held_out = None
    if fraction is None:
        with source.open_table(training.validation, table.read) as opened:
            schema, read = sequences.schema, table.read
            parts = source.read_chunks(opened, schema, None, read, quiet=True, whole=True)
            ((_, held_out),) = parts
    estimator.fit(sequences, validation=held_out)
    for tried in getattr(estimator, "tables_", ()):
        worth = f"{tried.gain:.3g} nats per held-out sequence, error {tried.error:.2g}"
        used = "used" if tried.kept else "not used"
        console.note(f"transitions by input {tried.name!r} gain {worth}: {used}", quiet=quiet)
    for lags in estimator.lags_:
        console.note(f"leaves that are told {lags}", quiet=quiet)
    for choice in estimator.families_:
        console.note(f"leaves of {choice}", quiet=quiet)
    provenance = source.remember_keys(estimator.model_.provenance, keys, table.read)
    model = Model(estimator.model_.mixture, provenance=provenance)
    console.save(output, model.save)
    if estimator.ending_ == "interrupted":
        raise console.StoppedError(f"interrupted; the best model so far is in {str(output)!r}.")
    if as_json:
        summary = {
            "model": str(output),
            "ending": str(estimator.ending_),
            "validation_score": provenance["validation_score"],
            "components": len(model.components),
            "interfaces": int(model.mixture.num_interfaces),
        }
        sys.stdout.write(json.dumps(summary) + "\n")
    if isinstance(sequences, Dataset):
        console.note(_name_sample(provenance["sample"], sequences), quiet=quiet)
    score = estimator.validation_score_
    # A single sequence is its own validation set, unless there is another table.
    of = "held-out sequence" if held_out is not None or len(sequences) > 1 else "sequence"
    reached = "" if score is None else f", {_nats(score)} nats per {of}"
    nodes = sum(len(network.template.nodes) for network in model.components)
    size = f"{console.counted(len(model.components), 'network')} with {nodes:,} template nodes"
    console.note(f"wrote {output}: {size}{reached}", quiet=quiet)


def _nats(score: float) -> str:
    return f"{score:.4g}" if abs(score) < 10_000 else f"{score:,.0f}"


def _name_sample(sample: Any, data: Dataset) -> str:
    return (
        f"structure was learned from a sample of {sample['sequences']:,} sequences, parameters "
        f"from all {len(data) - sample['held_out']:,} in {len(data.shards):,} shards; "
        f"{sample['held_out']:,} were held out"
    )


def _check_unused(table: Table, training: Training, inputs: list[str] | None) -> None:
    """Raises where options are given that a model that learns on has settled."""
    options = [(item, getattr(training, item.name)) for item in fields(training)]
    given = [item.name for item, value in options if value != item.default]
    given += [name for name in ("variables", "exclude", "kind") if getattr(table, name)]
    given += ["input"] if inputs else []
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise BadParameter(
            f"{option} must be left out with --continue: the model has its variables, structure "
            "and seed already."
        )


def continue_fit(
    path: Path,
    table: Table,
    output: Path,
    unknown: Unknown = "error",
    *,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Goes on from a model with the batches of a new table, and writes it at the end.

    The table is read in chunks of whole sequences, each a batch. A failure leaves both files as
    they were.

    Args:
        path: The model.
        table: The new table, and how to read it.
        output: Where the model is written.
        unknown: What a category is that the model does not know.
        as_json: Write a summary to standard output.
        quiet: No notes and no progress.
    """
    check_extension(output, ".dspn")
    sink.check_place(str(output))
    loaded: Any = source.load_file(path, load)
    if isinstance(loaded, DSPNClassifier):
        raise DataError(
            f"{str(path)!r} must be a model, but is a classifier, whose batches need labels; "
            "continue it in Python, by `partial_fit`."
        )
    model: Model = loaded if isinstance(loaded, Model) else loaded.model_
    source.check_texts(path, model.schema)
    if sequences_seen(model) is None:
        rule = "the model does not say how many sequences it was learned from"
        console.note(f"note: {rule}; it counts as much as the first batch.", quiet=quiet)
    records = []
    with source.open_table(table.data, table.read) as opened:
        keys = source.find_keys(opened, table.read, model.provenance, quiet=True)
        told, read = model.provenance, table.read
        parts = source.read_chunks(
            opened, model.schema, told, read, unknown, title="learned", quiet=quiet
        )
        for _, sequences in parts:
            if isinstance(loaded, Model):
                loaded, record = with_batch(loaded, sequences)
            else:
                record = loaded.partial_fit(sequences).batches_[-1]
            records.append(record)
    model = loaded if isinstance(loaded, Model) else loaded.model_
    if source.TABLE not in model.provenance:
        model.provenance = source.remember_keys(model.provenance, keys)
    console.save(output, loaded.save)
    weights = [record.num_sequences for record in records]
    before, after = (
        float(np.average([getattr(record, name) for record in records], weights=weights))
        for name in ("before", "after")
    )
    added, size = sum(record.added for record in records), records[-1].num_interfaces
    if as_json:
        summary = {
            "model": str(output),
            "batches": len(records),
            "sequences": int(sum(weights)),
            "score_before": before,
            "score_after": after,
            "interfaces_added": added,
            "interfaces": size,
        }
        sys.stdout.write(json.dumps(summary) + "\n")
    console.note(
        f"learned from {console.counted(int(sum(weights)), 'sequence')} in "
        f"{console.counted(len(records), 'batch').replace('batchs', 'batches')}: {before:.4g} nats "
        f"per slice before each batch, {after:.4g} after it",
        quiet=quiet,
    )
    grown = f"added {console.counted(added, 'interface node')}" if added else "added no node"
    console.note(
        f"wrote {output}: {grown}, {console.counted(size, 'interface node')} now", quiet=quiet
    )

"""Data for learning, shown as it is understood, and learning itself."""

import json as json_text
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from dspn.cli.advice import advice, require_few_categories
from dspn.cli.console import console, note
from dspn.cli.errors import StoppedError
from dspn.cli.gathering import Described, described, gathered, variable_names, whole_table
from dspn.cli.keys import Keys, near_misses
from dspn.cli.loading import keys_of, missing_words, remembered
from dspn.cli.reading import listed
from dspn.cli.request import Reading
from dspn.cli.sources import opened
from dspn.cli.streams import Chunk, chunks
from dspn.cli.writing import check_place
from dspn.errors import DataError, StructureError, printable
from dspn.learning import Auto, GrowthOptions
from dspn.models import DSPN, Em, Model, Paper
from dspn.sequences import Schema, Sequences


@final
@dataclass(frozen=True)
class Table:
    """A table to learn from, and how to read it."""

    data: str
    read: Reading
    variables: tuple[str, ...] | None
    kinds: dict[str, str]


@final
@dataclass(frozen=True)
class Training:
    """How to learn; `validation` is a share, or the name of another table."""

    learner: str
    interfaces: int | None
    effort: float | None
    time_limit: float | None
    seed: int
    validation: str
    checkpoint: Path | None
    jobs: int


@final
@dataclass(frozen=True, eq=False)
class Gathered:
    """The sequences of a table, its keys, what each variable is and why, and its rows."""

    sequences: Sequences
    keys: Keys
    found: list[Described]
    chunk: Chunk


def gather(table: Table, *, quiet: bool, besides: tuple[str, ...] = ()) -> Gathered:
    """Reads the whole table; columns `besides` are read along and are no variables."""
    read = table.read
    words = missing_words(read.missing)
    with opened(table.data, read.delimiter) as source:
        keys = keys_of(source, read.sequence, read.order, quiet=quiet)
        names = variable_names(source, keys, table.variables)
        names = [name for name in names if name not in besides]
        known = set(names)
        unknown = [name for name in table.kinds if name not in known]
        if unknown:
            raise DataError(
                f"--kind names {unknown[0]!r}{near_misses(unknown[0], names)}, but the variables "
                f"are {listed(names)}."
            )
        chunk = whole_table(source, keys, names, sort=read.sort, extra=besides)
    found = [described(chunk, name, table.kinds.get(name), words) for name in names]
    require_few_categories(found, chunk)
    return Gathered(gathered(chunk, found), keys, found, chunk)


def show(data: Gathered) -> None:
    """A table of the variables on standard error, and what may not be as it was meant."""
    import numpy as np
    from rich.table import Table as Shown

    shown = Shown(box=None, pad_edge=False, header_style="dim")
    for heading in ("variable", "kind", "values", "missing", "inferred from"):
        shown.add_column(heading, overflow="fold")
    for own in data.found:
        share = float(np.isnan(own.codes).mean())
        values = ", ".join(map(str, own.variable.categories[:6]))
        more = ", ..." if own.variable.num_categories > 6 else ""
        shown.add_row(
            printable(own.variable.name, 200),
            str(own.variable.kind),
            f"{printable(values)}{more}",
            f"{100 * share:.1f} %" if share else "",
            own.reason,
        )
    out = console()
    if not out.is_terminal:
        out.width = 160
    with suppress(OSError, SystemExit):  # nobody reads it, which is no reason not to learn
        out.print(shown, markup=False)
    note(_extent(data.sequences))
    for sentence in advice(data.found, data.chunk):
        note(f"note: {sentence}")


def _extent(data: Sequences) -> str:
    """How many sequences there are, and how long they are."""
    count, lengths = len(data), data.lengths
    fewest, most = int(lengths.min()), int(lengths.max())
    of = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    said = f"{count:,} {'sequence' if count == 1 else 'sequences'} of {of} slices"
    return said if count == 1 else f"{said}, {data.total_slices:,} in all"


def read_by_schema(table: Table, name: str, keys: Keys, schema: Schema) -> Sequences:
    """Another table, read as the first was."""
    words = missing_words(table.read.missing)
    with opened(name, table.read.delimiter) as source:
        (chunk,) = chunks(source, keys, list(schema.names), sort=table.read.sort, whole=True)
        return chunk.sequences(schema, words)


def share_or_table(validation: str) -> float | None:
    """The share to hold out; None where the option names a table."""
    try:
        return float(validation)
    except ValueError:
        return None


def _learner(training: Training) -> Auto | Em | Paper:
    """The learner with its options of the command line."""
    size, effort = training.interfaces, training.effort
    if training.learner == "auto" and size is None:
        return Auto(effort=effort)
    if training.learner == "em" and size is not None and effort is None:
        return Em(size)
    if training.learner == "paper" and effort is None:
        growth = GrowthOptions()
        if size is not None:
            growth = GrowthOptions(min_interfaces=size, max_interfaces=size)
        return Paper(growth)
    raise StructureError(
        f"`learner` must be 'auto', 'paper' or 'em', but is {training.learner!r}; `interfaces` is "
        "for 'paper' and 'em', and `effort` for 'auto', to be left out with the others."
    )


def _estimator(training: Training, *, quiet: bool) -> DSPN:
    share = share_or_table(training.validation)
    checkpoint = training.checkpoint
    if checkpoint is not None and training.learner == "paper":
        os.makedirs(checkpoint, exist_ok=True)
        checkpoint = checkpoint / "paper.dspn"
    return DSPN(
        _learner(training),
        time_limit=training.time_limit,
        random_state=training.seed,
        validation_fraction=0.1 if share is None else share,
        checkpoint=checkpoint,
        resume=checkpoint is not None,
        n_jobs=training.jobs,
        verbose=0 if quiet else 1,
    )


def fitted(table: Table, training: Training, output: Path, *, json: bool, quiet: bool) -> None:
    """Learns and writes the model; after Ctrl-C the best so far, where there is one."""
    check_place(str(output))
    estimator = _estimator(training, quiet=quiet)
    data = gather(table, quiet=quiet)
    if not quiet:
        show(data)
    held = None
    if share_or_table(training.validation) is None:
        held = read_by_schema(table, training.validation, data.keys, data.sequences.schema)
    estimator.fit(data.sequences, validation=held)
    model = Model(
        estimator.model_.mixture, provenance=remembered(estimator.model_.provenance, data.keys)
    )
    model.save(output)
    if estimator.ending_ == "interrupted":
        raise StoppedError(f"interrupted; the best model so far is in {str(output)!r}.")
    if json:
        sys.stdout.write(json_text.dumps(_summary(estimator, output)) + "\n")
    score = estimator.validation_score_
    # A single sequence is its own validation set, unless another table is.
    of = "held-out sequence" if held is not None or len(data.sequences) > 1 else "sequence"
    said = "" if score is None else f", {score:.4g} nats per {of}"
    note(f"wrote {output}: {_size(model)}{said}", quiet=quiet)


def _summary(estimator: DSPN, output: Path) -> dict[str, Any]:
    return {
        "model": str(output),
        "ending": str(estimator.ending_),
        "validation_score": estimator.model_.provenance["validation_score"],
        "components": len(estimator.model_.components),
        "interfaces": int(estimator.model_.mixture.num_interfaces),
    }


def _size(model: Model) -> str:
    count = len(model.components)
    nodes = sum(len(network.template.nodes) for network in model.components)
    return f"{count} {'network' if count == 1 else 'networks'} with {nodes:,} template nodes"

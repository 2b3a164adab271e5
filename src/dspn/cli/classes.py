"""Classifiers of sequences, learned from tables and asked about tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dspn._arrays import Floats
from dspn.cli.answers import free_name
from dspn.cli.console import note
from dspn.cli.digits import shortened
from dspn.cli.learning import Table, gather, show
from dspn.cli.loading import check_texts, remembered
from dspn.cli.request import Request
from dspn.cli.running import parts, wanted_types
from dspn.cli.sources import opened
from dspn.cli.writing import check_place, format_of, written
from dspn.data.cells import convertible, is_missing, plain
from dspn.data.chunks import Chunk
from dspn.errors import DataError
from dspn.models import HMM, DSPNClassifier


@final
@dataclass(frozen=True)
class Labels:
    """Which column holds the classes, and how they are learned."""

    column: str
    mode: str
    states: int
    seed: int


def labels_of(chunk: Chunk, name: str) -> list[Any]:
    """The class of each sequence; raises where a row has none, or a sequence has several."""
    with convertible(name, chunk.table[name]):
        missing = is_missing(plain(chunk.table[name]))
    if missing.any():
        raise DataError(
            f"column {name!r} must have the class in every row, but row "
            f"{chunk.first_row + int(np.argmax(missing))} has none."
        )
    return known_labels(chunk, name)


def known_labels(chunk: Chunk, name: str) -> list[Any]:
    """The class of each sequence, None where no row has one; raises where there are several."""
    with convertible(name, chunk.table[name]):
        return _known_labels(plain(chunk.table[name]), chunk, name)


def _known_labels(cells: Any, chunk: Chunk, name: str) -> list[Any]:
    missing, grouping = is_missing(cells), chunk.grouping
    if missing.all():
        return [None] * len(grouping.ids)
    owners = np.repeat(np.arange(len(grouping.ids)), grouping.lengths)
    labelled_first = np.lexsort((missing[grouping.rows], owners))
    rows = grouping.rows[labelled_first]
    own = rows[grouping.offsets[:-1]]
    first = own[owners]
    same = pc.equal(cells.take(pa.array(rows)), cells.take(pa.array(first)))
    differ = ~missing[rows] & ~same.fill_null(True).to_numpy(zero_copy_only=False)
    if differ.any():
        place = int(np.argmax(differ))
        one, other = int(first[place]), int(rows[place])
        raise DataError(
            f"column {name!r} must be the same in all rows of a sequence, but is "
            f"{cells[one].as_py()!r} in row {chunk.first_row + one} and {cells[other].as_py()!r} "
            f"in row {chunk.first_row + other}."
        )
    found: list[Any] = cells.take(pa.array(own, mask=missing[own])).to_pylist()
    return found


def fitted(table: Table, labels: Labels, output: Path, *, quiet: bool) -> None:
    """Learns a model for each class and writes all of them to one file."""
    check_place(str(output))
    data = gather(table, quiet=quiet, besides=(labels.column,))
    classes = labels_of(data.chunk, labels.column)
    if not quiet:
        show(data)
    classifier = DSPNClassifier(HMM(labels.states), mode=labels.mode, random_state=labels.seed)
    classifier.fit(data.sequences, np.array(classes))
    told = remembered({"label": labels.column, "mode": labels.mode, "seed": labels.seed}, data.keys)
    classifier.save(output, provenance=told)
    note(f"wrote {output}: {len(classifier.classes_)} classes", quiet=quiet)


def predicted(request: Request) -> None:
    """Writes the class of each sequence, in the order of the table."""
    form = format_of(request.output, request.format)
    check_place(request.output)
    found = _loaded(request.model)
    label = str(found.provenance_.get("label", ""))
    right = total = 0
    with opened(request.data, request.delimiter) as source:
        labelled = label in source.columns
        extra = (label,) if labelled else ()
        own = parts(request, source, found.schema_, found.provenance_, "classify", columns=extra)
        with written(request.output, form, wanted_types(source, None), quiet=request.quiet) as sink:
            for chunk, data in own:
                shares = found.predict_proba(data)
                table = _table(chunk, found.classes_.tolist(), shares)
                sink.write(shortened(table, request.digits, chunk.keys.names))
                if labelled:
                    best = found.classes_[shares.argmax(axis=1)].tolist()
                    told = known_labels(chunk, label)
                    right += sum(map(_same, best, told))
                    total += len(told) - told.count(None)
    if total:
        note(f"{right:,} of {total:,} sequences have the class of their label", quiet=request.quiet)


def _loaded(path: Path) -> DSPNClassifier:
    found = DSPNClassifier.load(path)
    check_texts(path, found.schema_, found.classes_.tolist())
    return found


def _same(found: Any, told: Any) -> bool:
    return told is not None and (bool(found == told) or str(found) == str(told))


def _table(chunk: Chunk, classes: list[Any], shares: Floats) -> Any:
    named = chunk.keys.sequence or "sequence"
    columns: dict[str, Any] = {
        named: chunk.ids(),
        free_name("predicted", [named]): pa.array(
            [classes[number] for number in shares.argmax(axis=1)]
        ),
    }
    for number, label in enumerate(classes):
        columns[free_name(f"P({label})", columns)] = np.ascontiguousarray(shares[:, number])
    return pa.table(columns)

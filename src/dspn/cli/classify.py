"""`dspn classify`: classifiers of sequences, learned from tables and asked about tables."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dspn.cli import console, fit, query, sink, source
from dspn.cli.options import Request, Table, check_extension
from dspn.data.cells import convertible, is_missing, plain
from dspn.data.chunks import Chunk
from dspn.data.sequences import Sequences
from dspn.errors import DataError
from dspn.models import HMM, DSPNClassifier


def _labels(chunk: Chunk, name: str, *, everywhere: bool = False) -> list[Any]:
    """The class of each sequence, None if no row has one; raises if its rows differ.

    Args:
        chunk: The rows.
        name: The column of the classes.
        everywhere: Raise if a row has no class.
    """
    with convertible(name, chunk.table[name]):
        cells = plain(chunk.table[name])
        missing, grouping = is_missing(cells), chunk.grouping
        if everywhere and missing.any():
            raise DataError(
                f"column {name!r} must have the class in every row, but row "
                f"{chunk.first_row + int(np.argmax(missing))} has none."
            )
        if missing.all():
            return [None] * len(grouping.ids)
        owners = grouping.owners
        classes_first = np.lexsort((missing[grouping.rows], owners))
        rows = grouping.rows[classes_first]
        firsts = rows[grouping.offsets[:-1]]
        same = pc.equal(cells.take(pa.array(rows)), cells.take(pa.array(firsts[owners])))
        differ = ~missing[rows] & ~same.fill_null(True).to_numpy(zero_copy_only=False)
        if differ.any():
            place = int(np.argmax(differ))
            one, other = int(firsts[owners[place]]), int(rows[place])
            raise DataError(
                f"column {name!r} must be the same in all rows of a sequence, but is "
                f"{cells[one].as_py()!r} in row {chunk.first_row + one} and "
                f"{cells[other].as_py()!r} in row {chunk.first_row + other}."
            )
        labels: list[Any] = cells.take(pa.array(firsts, mask=missing[firsts])).to_pylist()
        return labels


def fit_classifier(
    table: Table, label: str, output: Path, *, mode: str, states: int, seed: int, quiet: bool
) -> None:
    """Learns a model for each class and writes all of them to one file.

    Args:
        table: The table, and how to read it.
        label: The column of the classes.
        output: The classifier file.
        mode: `generative` or `discriminative`.
        states: The number of states of each HMM.
        seed: The seed.
        quiet: No notes and no progress.
    """
    check_extension(output, ".dspn")
    sink.check_place(str(output))
    sequences, chunk = fit.read_training_data(table, quiet=quiet, besides=(label,))
    classes = _labels(chunk, label, everywhere=True)
    classifier = DSPNClassifier(HMM(states), mode=mode, random_state=seed, verbose=not quiet)
    classifier.fit(sequences, np.array(classes))
    provenance = source.remember_keys(
        {"label": label, "mode": mode, "seed": seed}, chunk.keys, table.read
    )
    console.save(output, partial(classifier.save, provenance=provenance))
    if classifier.ending_ is not None:
        raise console.StoppedError(f"interrupted; the best models so far are in {str(output)!r}.")
    console.note(f"wrote {output}: {len(classifier.classes_)} classes", quiet=quiet)


def predict_classes(request: Request) -> None:
    """Writes the class of each sequence; notes how many agree with the labels of the table."""
    classifier = source.load_file(request.model, DSPNClassifier.load)
    classes = classifier.classes_.tolist()
    source.check_texts(request.model, classifier.schema_, classes)
    label = str(classifier.provenance_.get("label", ""))
    found: dict[int, list[bool]] = {}  # by the first row of a chunk, which may be tried before

    def answer(chunk: Chunk, data: Sequences) -> Any:
        shares = classifier.predict_proba(data)
        best = [classes[number] for number in shares.argmax(axis=1)]
        if label in chunk.table.column_names:
            pairs = zip(best, _labels(chunk, label), strict=True)
            known = [(one, other) for one, other in pairs if other is not None]
            agree = [one == other or str(one) == str(other) for one, other in known]
            found[chunk.first_row] = agree
        columns: dict[str, Any] = {"predicted": pa.array(best)}
        for name, share in zip(classes, shares.T, strict=True):
            columns[query.free_name(f"P({name})", columns)] = np.ascontiguousarray(share)
        return query.sequence_table(chunk, columns)

    schema, provenance, asked = classifier.schema_, classifier.provenance_, query.Query(answer)
    query.write_answers(request, "classify", schema, provenance, asked, optional=[label])
    if agreements := [own for part in found.values() for own in part]:
        console.note(
            f"{sum(agreements):,} of {len(agreements):,} sequences have the class of their label",
            quiet=request.target.quiet,
        )

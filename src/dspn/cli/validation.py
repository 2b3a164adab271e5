"""What is wrong with a file, and where."""

import json as json_text
import sys
from pathlib import Path

from dspn.cli.console import note
from dspn.cli.errors import sentence
from dspn.cli.inspection import inspected
from dspn.cli.loading import keys_of, loaded, missing_words
from dspn.cli.reading import STDIN
from dspn.cli.request import Reading
from dspn.cli.sources import opened
from dspn.data.cells import code_cells
from dspn.data.chunks import describe_column, read_whole
from dspn.data.coding import Column
from dspn.data.order import variable_names
from dspn.errors import DataError, DspnError


def problems_of(
    path: str,
    model: Path | None,
    read: Reading,
) -> list[str]:
    """Every problem of a model file or a table, in a sentence each."""
    if path != STDIN and _looks_like_a_model(path):
        try:
            inspected(Path(path))
        except DspnError as error:
            return [sentence(error)]
        return []
    try:
        return _problems_of_table(path, model, read)
    except DataError as error:
        return [sentence(error)]


def _looks_like_a_model(path: str) -> bool:
    """By its extension, or by how it begins."""
    if path.endswith(".dspn"):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError:
        return False


def _problems_of_table(
    path: str,
    model_path: Path | None,
    read: Reading,
) -> list[str]:
    model = None if model_path is None else loaded(model_path)
    words = missing_words(read.missing)
    with opened(path, read.delimiter) as source:
        provenance = None if model is None else model.provenance
        keys = keys_of(source, read.sequence, read.order, provenance)
        names = variable_names(source, keys, None) if model is None else list(model.schema.names)
        chunk = read_whole(source, keys, names, sort=read.sort)
    problems = []
    for number, name in enumerate(names):
        try:
            if model is None:
                describe_column(chunk, name, None, words)
            else:
                column = Column(name, chunk.first_row, words)
                code_cells(chunk.table[name], model.schema[number], column)
        except DataError as error:
            problems.append(sentence(error))
    return problems


def said(path: str, problems: list[str], *, json: bool, quiet: bool) -> None:
    """The problems on standard output, one on each line."""
    if json:
        found = {"file": path, "valid": not problems, "problems": problems}
        sys.stdout.write(json_text.dumps(found) + "\n")
        return
    for problem in problems:
        sys.stdout.write(problem + "\n")
    if not problems:
        note(f"{path}: nothing is wrong", quiet=quiet)

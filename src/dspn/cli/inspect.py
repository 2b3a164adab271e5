"""`dspn inspect` and `dspn validate`: what a file holds, and what is wrong with it."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dspn.cli import console, sink, source
from dspn.cli.options import Reading
from dspn.data.cells import code_cells
from dspn.data.chunks import chunks, describe_column
from dspn.data.layout import Column
from dspn.data.order import variable_names
from dspn.errors import DataError, DspnError, printable
from dspn.io.codec import LoadedClassifier, LoadedMixture
from dspn.io.files import load_any
from dspn.structure.network import DynamicNetwork


def inspect(model: Path, *, as_json: bool) -> None:
    """Writes what a model file holds: one JSON object, or tables."""
    contents = _contents(model)
    if as_json:
        sys.stdout.write(json.dumps(sink.plain_json(contents), indent=2) + "\n")
        return
    out = console.make_console(stderr=False, width=120)
    for part in _describe(contents):
        out.print(part)


def _contents(path: Path) -> dict[str, Any]:
    """What a model file holds; loading it checks that it is valid."""
    loaded = source.load_file(path, load_any)
    if not isinstance(loaded, LoadedClassifier):
        return {"file": str(path), "type": "model", **_model(loaded)}
    models = [_model(model) for model in loaded.models]
    return {
        "file": str(path),
        "type": "classifier",
        "classes": list(loaded.classes),
        "logits": loaded.logits.tolist(),
        "variables": models[0]["variables"],
        "models": models,
        "provenance": loaded.provenance,
    }


def _model(loaded: LoadedMixture) -> dict[str, Any]:
    """The variables, networks and origin of a model."""
    mixture = loaded.mixture
    return {
        "valid": True,
        "root": str(mixture.root),
        "variables": [
            {"name": item.name, "kind": str(item.kind), "categories": list(item.categories)}
            for item in mixture.schema
        ],
        "components": list(map(_network, mixture.weights, mixture.components)),
        "provenance": loaded.provenance,
    }


def _network(weight: float, network: DynamicNetwork) -> dict[str, Any]:
    names = network.schema.names
    return {
        "weight": float(weight),
        "interfaces": network.num_interfaces,
        "groups": [
            {"interfaces": list(group), "variables": [names[number] for number in numbers]}
            for group, numbers in zip(network.groups, network.group_variables, strict=True)
        ],
        "nodes": len(network.template.nodes),
        "edges": network.template.num_edges,
        "top_nodes": len(network.top.nodes),
        "bottom": "tied" if network.parameters.tied else "own",
    }


def _describe(contents: dict[str, Any]) -> Iterator[Any]:
    """The lines and tables that describe a file."""
    yield f"{printable(contents['file'])}: a valid {contents['type']}"
    rows = []
    for item in contents["variables"]:
        categories = item["categories"]
        more = f", ... ({len(categories)})" if len(categories) > 12 else ""
        shown = printable(", ".join(map(str, categories[:12]))) + more
        rows.append((printable(item["name"]), item["kind"], shown))
    yield console.make_table(("variable", "kind", "categories"), rows)
    if contents["type"] == "classifier":
        yield f"classes: {printable(', '.join(map(str, contents['classes'])))}"
        for label, model in zip(contents["classes"], contents["models"], strict=True):
            yield f"\nclass {printable(str(label))}"
            yield _components_table(model["components"])
    else:
        yield ""
        yield _components_table(contents["components"])
        yield f"root: {contents['root']} slice"
    for name, value in contents["provenance"].items():
        yield f"{printable(name)}: {json.dumps(value)}"


def _components_table(components: list[dict[str, Any]]) -> Any:
    names, rows = ("weight", "interfaces", "groups", "nodes", "edges", "bottom"), []
    for item in components:
        counts = (item["interfaces"], len(item["groups"]), item["nodes"], item["edges"])
        rows.append((f"{item['weight']:.4g}", *map("{:,}".format, counts), item["bottom"]))
    return console.make_table(names, rows)


def validate(file: str, model: Path | None, read: Reading, *, as_json: bool, quiet: bool) -> bool:
    """Writes what is wrong with a file, a problem on each line; returns whether nothing is.

    Args:
        file: A model file, or a table.
        model: A model whose variables the table must have.
        read: How to read the table.
        as_json: Write one JSON object.
        quiet: Do not note that nothing is wrong.
    """
    problems: list[str] = []
    try:
        if file != source.STDIN and _looks_like_a_model(file):
            _contents(Path(file))
        else:
            problems = _table_problems(file, model, read, quiet=quiet)
    except DspnError as error:
        problems = [console.sentence(error)]
    if as_json:
        verdict = {"file": file, "valid": not problems, "problems": problems}
        sys.stdout.write(json.dumps(verdict) + "\n")
    else:
        sys.stdout.write("".join(f"{problem}\n" for problem in problems))
        if not problems:
            console.note(f"{file}: nothing is wrong", quiet=quiet)
    return not problems


def _looks_like_a_model(path: str) -> bool:
    """By its extension, or by its first bytes."""
    if path.endswith(".dspn"):
        return True
    with suppress(OSError), open(path, "rb") as file:
        return file.read(9)[8:] == b"{"
    return False


def _table_problems(path: str, model: Path | None, read: Reading, *, quiet: bool) -> list[str]:
    loaded = None if model is None else source.load_model(model)
    words = source.missing_words(read.missing)
    with source.open_table(path, read) as table:
        keys = source.find_keys(table, read, loaded and loaded.provenance, quiet=quiet)
        names = list(loaded.schema.names if loaded else ())
        names = names or variable_names(table.title, table.columns, keys)
        (chunk,) = chunks(table, keys, names, sort=read.sort, whole=True)
    problems = []
    for number, name in enumerate(names):
        try:
            if loaded is None:
                describe_column(chunk, name, None, words)
            else:
                column = Column(name, chunk.first_row, words)
                code_cells(chunk.table[name], loaded.schema[number], column)
        except DataError as error:
            problems.append(console.sentence(error))
    return problems

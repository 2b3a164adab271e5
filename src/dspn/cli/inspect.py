"""`dspn inspect` and `dspn validate`: what a file holds, and what is wrong with it."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dspn.cli import console, fit, sink, source
from dspn.cli.options import Reading, Table, parse_kinds
from dspn.data.cells import code_cells
from dspn.data.chunks import describe_column
from dspn.data.order import describe_steps
from dspn.data.schema import list_names
from dspn.errors import DataError, DspnError, printable
from dspn.io.codec import LoadedClassifier, LoadedMixture
from dspn.io.files import load_any
from dspn.models.model import Model
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
        "inputs": models[0]["inputs"],
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
            | ({} if item.leaf is None else {"leaf": dict(item.leaf.to_json())})
            for item in mixture.schema
        ],
        "inputs": [
            {"name": item.name, "kind": str(item.kind), "categories": list(item.categories)}
            | ({} if item.rule is None else {"rule": item.rule.to_json()})
            for item in mixture.schema.inputs
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
    for item in (*contents["variables"], *contents["inputs"]):
        categories = item["categories"]
        more = f", ... ({len(categories)})" if len(categories) > 12 else ""
        shown = printable(", ".join(map(str, categories[:12]))) + more
        leaf = f" ({item['leaf']['name']})" if "leaf" in item else ""
        role = ", input" if item in contents["inputs"] else ""
        rows.append((printable(item["name"]), item["kind"] + leaf + role, shown))
    yield console.make_table(("variable", "kind", "categories"), rows)
    if contents["type"] == "classifier":
        yield f"classes: {printable(', '.join(map(str, contents['classes'])))}"
        for label, model in zip(contents["classes"], contents["models"], strict=True):
            yield f"\nclass {printable(str(label))}"
            yield _components_table(model["components"])
            yield from _group_lines(model["components"])
    else:
        yield ""
        yield _components_table(contents["components"])
        yield from _group_lines(contents["components"])
        yield f"root: {contents['root']} slice"
    yield from _origin(contents["provenance"])


def _origin(provenance: dict[str, Any]) -> Iterator[str]:
    """Where a model comes from, in short: --json has all of it."""
    for name, value in provenance.items():
        if isinstance(value, dict):
            own = (f"{key} {_short(item)}" for key, item in value.items() if item is not None)
            text = ", ".join(own)
            story = value.get("explanation_")
            if isinstance(story, str):
                yield printable(story)
                continue
        else:
            text = _short(value)
        yield f"{printable(name)}: {printable(text)}"


def _short(value: Any) -> str:
    """A setting in a word: the class of options, and the beginning of a fingerprint."""
    if isinstance(value, dict):
        return str(value.get("class", f"of {len(value)} entries"))
    if isinstance(value, str):
        return f"{value[:12]}..." if len(value) == 64 else value
    return json.dumps(value)


def _group_lines(components: list[dict[str, Any]]) -> Iterator[str]:
    """The groups of each network with their variables, where there are several."""
    for number, item in enumerate(components):
        several = len(item["groups"]) > 1
        of = f" of network {number}" if len(components) > 1 else ""
        for place, group in enumerate(item["groups"] if several else ()):
            names = printable(list_names(group["variables"], 20), 2000)
            size = console.counted(len(group["interfaces"]), "interface node")
            yield f"group {place}{of}: {size}; {names}"


def _components_table(components: list[dict[str, Any]]) -> Any:
    names, rows = ("weight", "interfaces", "groups", "nodes", "edges", "bottom"), []
    for item in components:
        counts = (item["interfaces"], len(item["groups"]), item["nodes"], item["edges"])
        rows.append((f"{item['weight']:.4g}", *map("{:,}".format, counts), item["bottom"]))
    return console.make_table(names, rows)


def validate(
    file: str,
    model: Path | None,
    read: Reading,
    *,
    as_json: bool,
    quiet: bool,
    variables: str | None = None,
    exclude: list[str] | None = None,
    kind: list[str] | None = None,
) -> bool:
    """Writes what is wrong with a file, a problem on each line; returns whether nothing is.

    Args:
        file: A model file, or a table.
        model: A model whose variables the table must have.
        read: How to read the table.
        as_json: Write one JSON object.
        quiet: Write problems alone.
        variables: Names of the variables of a table.
        exclude: Columns that are not variables.
        kind: Kinds of variables.
    """
    problems: list[str] = []
    told: dict[str, Any] = {}
    try:
        if file != source.STDIN and _looks_like_a_model(file):
            _contents(Path(file))
        elif model is not None:
            problems = _problems_for(source.load_model(model), file, read, quiet=quiet)
        else:
            table = Table(data=file, read=read, variables=variables, exclude=exclude, kind=kind)
            told = _describe_table(table, problems, quiet=quiet, as_json=as_json)
    except DspnError as error:
        problems = [console.sentence(error)]
    if as_json:
        verdict = {"file": file, "valid": not problems, "problems": problems, **told}
        sys.stdout.write(json.dumps(sink.plain_json(verdict)) + "\n")
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


def _problems_for(model: Model, path: str, read: Reading, *, quiet: bool) -> list[str]:
    """What keeps a table from being read with the variables of a model."""
    problems = []
    with source.open_table(path, read) as table:
        keys = source.find_keys(table, read, model.provenance, quiet=quiet)
        read = source.as_fitted(read, model.provenance, quiet=quiet)
        own = (*model.schema, *model.schema.given_inputs)
        chunk = source.read_whole(table, keys, [item.name for item in own], read)
    writing = source.writing_of(read)
    for variable in own:
        try:
            column = chunk.column(variable.name, writing)
            code_cells(chunk.table[variable.name], variable, column)
        except DataError as error:
            problems.append(console.sentence(error))
    return problems


def _describe_table(
    table: Table, problems: list[str], *, quiet: bool, as_json: bool
) -> dict[str, Any]:
    """Notes what `dspn fit` would say of a table, and adds what is wrong with its columns."""
    chunk, names, _ = fit.read_columns(table, quiet=quiet)
    told, writing = parse_kinds(table.kind), source.writing_of(table.read)
    variables = []
    for name in names:
        try:
            item = describe_column(chunk, name, told.get(name), writing)
            variables.append(item)
            fit.require_few_categories(item, chunk)
        except DataError as error:
            problems.append(console.sentence(error))
    notes, order = list(fit.advice(variables, chunk)), chunk.keys.order
    steps = None
    if order is not None:
        steps = describe_steps(chunk.table[order], chunk.keys, chunk.grouping)
    if not quiet and not as_json:
        fit.show_variables(variables)
        console.note(fit.size_of(chunk))
        if steps is not None and steps.uneven is None:
            console.note(f"steps of {order!r} are all {steps.usual}")
        for text in notes:
            console.note(f"note: {text}")
    lengths = chunk.grouping.lengths
    return {
        "variables": [
            {
                "name": item.variable.name,
                "kind": str(item.variable.kind),
                "categories": list(item.variable.categories),
                "missing": float(np.isnan(item.codes).mean()),
                "reason": item.reason,
            }
            for item in variables
        ],
        "sequences": lengths.size,
        "slices": int(lengths.sum()),
        "steps": None if steps is None else asdict(steps),
        "notes": notes,
    }

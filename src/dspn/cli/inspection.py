"""A model file in words and numbers."""

import json as json_text
import sys
from pathlib import Path
from typing import Any

from dspn.cli.console import console
from dspn.cli.sinks import plain_json
from dspn.errors import printable
from dspn.io import LoadedClassifier, load_any
from dspn.models import Model
from dspn.sequences import Schema
from dspn.structure import DynamicNetwork


def inspected(path: Path) -> dict[str, Any]:
    """What the file holds; loading it is the check that it is valid."""
    found = load_any(path)
    if not isinstance(found, LoadedClassifier):
        own = described_model(Model(found.mixture), found.provenance)
        return {"file": str(path), "type": "model", **own}
    return {
        "file": str(path),
        "type": "classifier",
        "classes": list(found.classes),
        "logits": found.logits.tolist(),
        "variables": variables(found.models[0].mixture.schema),
        "models": [described_model(Model(own.mixture), own.provenance) for own in found.models],
        "provenance": found.provenance,
    }


def described_model(model: Model, provenance: dict[str, Any] | None = None) -> dict[str, Any]:
    """Variables, networks and origin of a model."""
    return {
        "valid": True,
        "root": str(model.root),
        "variables": variables(model.schema),
        "components": [
            {"weight": float(weight), **_network(network)}
            for weight, network in zip(model.weights, model.components, strict=True)
        ],
        "provenance": model.provenance if provenance is None else provenance,
    }


def variables(schema: Schema) -> list[dict[str, Any]]:
    """Names, kinds and categories."""
    return [
        {"name": own.name, "kind": str(own.kind), "categories": list(own.categories)}
        for own in schema
    ]


def _network(network: DynamicNetwork) -> dict[str, Any]:
    template, names = network.template, network.schema.names
    return {
        "interfaces": network.num_interfaces,
        "groups": [
            {"interfaces": list(group), "variables": [names[number] for number in own]}
            for group, own in zip(network.groups, network.group_variables, strict=True)
        ],
        "nodes": len(template.nodes),
        "edges": template.num_edges,
        "top_nodes": len(network.top.nodes),
        "bottom": "tied" if network.parameters.tied else "own",
    }


def printed(found: dict[str, Any], *, json: bool) -> None:
    """One JSON object, or tables for people."""
    if json:
        sys.stdout.write(json_text.dumps(plain_json(found), indent=2) + "\n")
        return
    out = console(stderr=False)
    if not out.is_terminal:
        out.width = 120
    out.print(f"{printable(found['file'])}: a valid {found['type']}", markup=False)
    out.print(_variables_table(found["variables"]), markup=False)
    if found["type"] == "classifier":
        out.print(f"classes: {printable(', '.join(map(str, found['classes'])))}", markup=False)
        for label, own in zip(found["classes"], found["models"], strict=True):
            out.print(f"\nclass {printable(str(label))}", markup=False)
            out.print(_components_table(own["components"]), markup=False)
    else:
        out.print()
        out.print(_components_table(found["components"]), markup=False)
        out.print(f"root: {found['root']} slice", markup=False)
    for name, value in found["provenance"].items():
        out.print(f"{printable(name)}: {json_text.dumps(value)}", markup=False)


def _table(*headings: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _variables_table(found: list[dict[str, Any]]) -> Any:
    table = _table("variable", "kind", "categories")
    for own in found:
        listed = ", ".join(map(str, own["categories"][:12]))
        more = f", ... ({len(own['categories'])})" if len(own["categories"]) > 12 else ""
        table.add_row(printable(own["name"]), own["kind"], printable(listed) + more)
    return table


def _components_table(found: list[dict[str, Any]]) -> Any:
    table = _table("weight", "interfaces", "groups", "nodes", "edges", "bottom")
    for own in found:
        table.add_row(
            f"{own['weight']:.4g}",
            f"{own['interfaces']:,}",
            f"{len(own['groups']):,}",
            f"{own['nodes']:,}",
            f"{own['edges']:,}",
            own["bottom"],
        )
    return table

"""What the page needs besides the records: model, templates, variables, sequences and scales."""

import json
from typing import Any, Final

import numpy as np

from dspn._arguments import Floats
from dspn.data.schema import Kind, Variable
from dspn.data.sequences import Sequences
from dspn.io.json_values import JSON
from dspn.leaves.base import Family
from dspn.models.model import Model
from dspn.plotting import _graph
from dspn.plotting._blocks import mix_picture, summarise
from dspn.plotting._panels import order_texts
from dspn.plotting.network import MAX_EDGES, MAX_NODES
from dspn.report._records import LEVELS, MOST_CATEGORIES, MOST_GROUPS, Records, packed_array
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Sum
from dspn.structure.validity import network_scopes

_MOST_BLOCK_GROUPS: Final = 12
_MOST_BARS: Final = 12
_LEAST_SCALE: Final = 3.0
_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def json_text(value: JSON) -> str:
    """JSON in which nothing can end a script element or open a comment."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def _finite(number: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return float(number) if np.isfinite(number) else None


def page_facts(model: Model, data: Sequences, records: Records, steps: int) -> dict[str, Any]:
    """Everything but the records.

    Args:
        model: The model that is reported.
        data: All sequences, also those that are left out.
        records: The sequences that are shown.
        steps: Number of slices that are forecast.
    """
    shown = data[records.shown]
    usual = usual_surprises(records.surprises)
    excess = (records.surprises - usual)[np.isfinite(records.surprises)]
    # The colours end at the excess that 1 entry in 200 goes beyond.
    scale = float(np.quantile(excess, 0.995)) if excess.size else 0.0
    return {
        "variables": list(map(_variable, data.schema, shown.values.T, usual)),
        "components": list(map(_component, model.weights, model.components)),
        "sequences": _sequences(data, records),
        "order": _order(shown),
        "steps": steps,
        "levels": list(LEVELS),
        "mostCategories": MOST_CATEGORIES,
        "mostGroups": MOST_GROUPS,
        "root": model.root.value,
        "scale": max(scale, _LEAST_SCALE),
    }


def _component(weight: float, network: DynamicNetwork) -> dict[str, Any]:
    """A component with the numbers of nodes of its template, in all and by kind, and of edges."""
    nodes = network.template.nodes
    counts = {
        "nodes": len(nodes),
        "edges": network.template.num_edges,
        "leaves": sum(isinstance(node, Leaf) for node in nodes),
        "sums": sum(isinstance(node, Sum) for node in nodes),
        "interfaces": network.num_interfaces,
    }
    return {
        "weight": float(weight),
        "counts": counts,
        "groups": group_members(network),
        "tied": network.parameters.tied,
        "drawing": drawn_template(network),
    }


def usual_surprises(surprises: Floats) -> Floats:
    """The median surprise of each variable's entries; 0 for a variable without any."""
    known = [own[np.isfinite(own)] for own in surprises.T]
    return np.array([np.median(own) if own.size else 0.0 for own in known])


def _variable(variable: Variable, values: Floats, usual: float) -> dict[str, Any]:
    """A variable, and the range in which nearly all of its observed entries lie."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [0.002, 0.998]) if known.size else (0.0, 1.0)
    if variable.kind == Kind.COUNT:
        low, high = np.floor(low), np.ceil(high)
    return {
        "name": variable.name,
        "kind": variable.kind.value,
        "categories": [str(category) for category in variable.categories],
        "low": _finite(low),
        "high": _finite(high),
        "usual": _finite(usual),
    }


def _sequences(data: Sequences, records: Records) -> dict[str, Any]:
    shown = records.shown
    missing = np.add.reduceat(np.isnan(data.values).sum(axis=1), data.offsets[:-1])
    sizes = np.array([len(text) for text in records.texts])
    ids = None if data.ids is None else [str(data.ids[index]) for index in shown.tolist()]
    return {
        "count": len(shown),
        "ids": ids,
        "number": packed_array(shown, "<u4"),
        "length": packed_array(data.lengths[shown], "<u4"),
        "missing": packed_array(missing[shown], "<u4"),
        "perSlice": packed_array(records.per_slice[shown], "<f8"),
        "size": packed_array(sizes, "<u4"),
    }


def _order(data: Sequences) -> JSON:
    """The order column's text of each slice, each text once; None without an order column."""
    texts, keys = order_texts(data), data.table_keys
    if texts is None or keys is None:
        return None
    distinct = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([distinct[text] for text in texts])
    return {"name": keys.order, "texts": list(distinct), "codes": packed_array(codes, "<u4")}


def group_members(network: DynamicNetwork) -> list[dict[str, Any]]:
    """Each group's number of nodes, its variables and the groups it reads."""
    parts = zip(network.groups, network.group_variables, network.group_sources, strict=True)
    return [
        {"size": len(positions), "variables": list(variables), "reads": list(sources)}
        for positions, variables, sources in parts
    ]


def drawn_template(network: DynamicNetwork) -> dict[str, Any]:
    """Every node with its place, or blocks where there are too many."""
    template = network.template
    if len(template.nodes) > MAX_NODES or template.num_edges > MAX_EDGES:
        return _blocks(network)
    graph = _graph.capped_graph(network)
    if len(graph.vertices) > 2 * MAX_NODES or len(graph.edges) > 2 * MAX_EDGES:
        graph = _graph.template_graph(network)
    layout, scopes, leaves = _graph.layered(graph), _scopes(network), _leaf_parameters(network)
    nodes = []
    for index, vertex in enumerate(graph.vertices):
        fields: dict[str, Any] = {
            "kind": vertex.mark.value,
            "row": vertex.row,
            "column": round(layout.columns[index], 3),
            "scope": _members(scopes[index], len(network.schema)),
        }
        optional = {"group": vertex.group, "output": vertex.output, "input": vertex.position}
        fields |= {key: value for key, value in optional.items() if value is not None}
        nodes.append(fields | leaves.get(index, {}))
    bottom: list[float | None] = [None] * len(graph.edges)
    if not network.parameters.tied:
        own = _graph.template_graph(network, bottom=True).edges
        bottom[: len(own)] = [edge.weight for edge in own]
    edges = [
        [edge.parent, edge.child, edge.weight, [round(at, 3) for at in bends], weight]
        for edge, bends, weight in zip(graph.edges, layout.bends, bottom, strict=True)
    ]
    return {
        "style": "graph",
        "nodes": nodes,
        "edges": edges,
        "topRow": graph.top_row,
        "columns": round(layout.num_columns, 3),
    }


def _scopes(network: DynamicNetwork) -> list[int]:
    """Scopes of the template's nodes, then of the top's; see `structure.validity` for the bits."""
    template, top = network.template, network.top
    alone = network_scopes(template.nodes, template.order, [0] * template.num_interfaces)
    inputs = [alone[output] << len(network.schema) for output in template.outputs]
    scopes = network_scopes(template.nodes, template.order, inputs)
    above = network_scopes(top.nodes, top.order, [scopes[output] for output in template.outputs])
    pairs = zip(above, top.nodes, strict=True)
    return [*scopes, *(scope for scope, node in pairs if not isinstance(node, Input))]


def _members(scope: int, count: int) -> list[list[int]]:
    """Variables of the slice itself, and those of the slices below."""
    bits = [bit for bit in range(scope.bit_length()) if scope >> bit & 1]
    return [[bit for bit in bits if bit < count], [bit - count for bit in bits if bit >= count]]


def _leaf_parameters(network: DynamicNetwork) -> dict[int, dict[str, Any]]:
    """Variable and parameters of each leaf, with those of a bottom network that has its own."""
    leaves: dict[int, dict[str, Any]] = {}
    own, bottom = network.parameters.template, network.parameters.bottom
    for number, bank in enumerate(network.template.banks):
        for row, node in enumerate(bank.nodes):
            parameters = own.leaves[number][row].tolist()
            leaves[node] = {"variable": bank.variable, "parameters": parameters}
            if bottom is not None:
                leaves[node]["bottom"] = bottom.leaves[number][row].tolist()
    return leaves


def _blocks(network: DynamicNetwork) -> dict[str, Any]:
    """The first groups as blocks, of a template too large for single nodes."""
    banks, tables = network.template.banks, network.parameters.template.leaves
    shown = range(min(len(network.groups), _MOST_BLOCK_GROUPS))
    leaves = [
        _leaf_summary(network.schema[bank.variable], bank.family, rows)
        for bank, rows in zip(banks, tables, strict=True)
    ]
    groups = [_group_block(network, group) for group in shown]
    return {"style": "blocks", "groups": groups, "leaves": leaves}


def _group_block(network: DynamicNetwork, group: int) -> dict[str, Any]:
    """Counts of one group, and its mix as mean weights on a grid, in shares of the largest."""
    summary = summarise(network, [group])
    picture = None
    if summary.mixes:
        weights = mix_picture(network, summary.mixes)
        peak = float(weights.max()) or 1.0
        cells = packed_array(np.rint(255.0 * weights / peak), "u1")
        height, width = weights.shape
        picture = {"height": height, "width": width, "peak": peak, "cells": cells}
    counts = {"outputs": summary.outputs, "alone": summary.alone, "joining": summary.joining}
    return {
        "inputs": summary.num_inputs,
        **{key: dict(sorted(own.items())) for key, own in counts.items()},
        "leaves": [list(item) for item in sorted(summary.leaves.items())],
        "mixes": len(summary.mixes),
        "picture": picture,
    }


def _leaf_summary(variable: Variable, family: Family, rows: Floats) -> dict[str, Any]:
    """Mean probabilities of categories, or between which means the leaves of a number lie."""
    if variable.kind == Kind.CATEGORICAL:
        mean = rows.mean(axis=0)
        first = np.argsort(-mean, kind="stable")[:_MOST_BARS]
        bars = [[int(code), float(mean[code])] for code in np.sort(first)]
        return {"count": len(rows), "bars": bars}
    means = family.mean(rows)
    deviation = np.median(np.sqrt(family.variance(rows)))
    spans = [_finite(value) for value in (means.min(), means.max(), deviation)]
    return {"count": len(rows), "spans": spans}

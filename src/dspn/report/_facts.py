"""What the page draws: records of sequences, asked of the model, and facts about all the rest."""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dspn._arguments import Bools, Floats, Ints
from dspn.data.schema import Kind, Variable
from dspn.data.sequences import Sequences
from dspn.inference.likelihood import bounded_runs
from dspn.inference.marginals import Marginals, interface_posteriors
from dspn.inference.surprise import usual_surprises
from dspn.io.json_values import JSON
from dspn.leaves.base import Family
from dspn.models.model import Model
from dspn.plotting import _graph
from dspn.plotting._blocks import mix_picture, summarise
from dspn.plotting._panels import order_texts
from dspn.plotting.network import MAX_EDGES, MAX_NODES
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Sum
from dspn.structure.validity import network_scopes

LEVELS: Final = (0.1, 0.5, 0.9)
"""Ends and middle of the intervals, which hold 80 % as those of the plots do."""
MOST_CATEGORIES: Final = 6
"""Most categories of one entry whose probabilities are kept."""
MOST_ROWS: Final = 12
"""Most rows of interface nodes of one sequence."""
MOST_GROUPS: Final = 6
"""Most groups that have rows of interface nodes."""
ROOM: Final = 36_000_000
"""Bytes of all records of a page whose number of sequences was not asked for."""

_POOLED: Final = 65535
_OTHER_BYTES, _ORDER_BYTES = 120, 24.0
# Numbers that a run of sequences may hold at once.
_MOST_NUMBERS: Final = 8_000_000
# A record is three streams, widest first, so that each begins where its type may be read.
_WIDTHS: Final = (4, 2, 1)
_MOST_BLOCK_GROUPS, _MOST_BARS, _LEAST_SCALE = 12, 12, 3.0
_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}

Arrays = list[NDArray[Any]]


@final
@dataclass(frozen=True, eq=False)
class Records:
    """The sequences that are shown, by number, and what the page says of them.

    `per_slice` is -log P / T of every sequence of the data; `texts` are the records of those shown,
    `surprises` those of their entries, `likeliest` the components of those that are possible.
    """

    shown: Ints
    per_slice: Floats
    texts: list[str]
    surprises: Floats
    likeliest: list[int]


def make_records(model: Model, data: Sequences, steps: int, most: int | None) -> Records:
    """Records of the most surprising sequences.

    Args:
        steps: Number of slices that are forecast.
        most: Number of sequences; as many as there is room for without it.
    """
    # Without the warning of `Model.log_likelihood`: the page names impossible sequences.
    shown, per_slice = most_surprising(model.compiled.log_likelihood(data), data, steps, most)
    chosen, possible = data[shown], np.isfinite(per_slice[shown])
    widest = max(network.num_interfaces for network in model.components)
    categories = sum(max(variable.num_categories, 4) for variable in model.schema)
    costs = chosen.lengths * (widest + categories) + steps * categories
    texts: list[str] = []
    surprises: list[Floats] = []
    likeliest: list[int] = []
    for run in bounded_runs(costs, _MOST_NUMBERS):
        part, own = chosen[run], possible[run]
        found = model.surprise(part)
        answers: list[Arrays] = []
        if own.any():
            components, answers = _conditioned(model, part[own], steps)
            likeliest += components
        texts += _texts(part, found.slices, found.variables, own, iter(answers))
        surprises.append(found.variables)
    return Records(shown, per_slice, texts, np.concatenate(surprises), likeliest)


def most_surprising(
    log_likelihood: Floats, data: Sequences, steps: int, most: int | None, *, room: int = ROOM
) -> tuple[Ints, Floats]:
    """The sequences with the largest -log P / T, and -log P / T of every sequence.

    Args:
        steps: Number of slices that are forecast, which take room, too.
        most: Number of sequences; as many as fit into `room` bytes without it.
    """
    per_slice = -log_likelihood / data.lengths
    order = np.argsort(-per_slice, kind="stable")
    if most is None:
        sizes = record_sizes(data, steps)[order]
        most = int(np.searchsorted(np.cumsum(sizes), room, side="right"))
    return order[: max(most, 1)], per_slice


def record_sizes(data: Sequences, steps: int) -> Floats:
    """Bytes of each sequence's record in the page, or a little more."""
    bytes_of = (4.0 * min(v.num_categories, MOST_CATEGORIES) or 16.0 for v in data.schema)
    answers = np.array(list(bytes_of))
    missing = np.add.reduceat(np.isnan(data.values) @ answers, data.offsets[:-1])
    keys = data.table_keys
    order = _ORDER_BYTES if keys is not None and keys.order_values is not None else 0.0
    slice_bytes = order + 4.0 + 8.0 * len(data.schema) + 2.0 * MOST_ROWS
    sizes: Floats = _OTHER_BYTES + slice_bytes * data.lengths + missing + steps * answers.sum()
    return sizes * 4.0 / 3.0


def _conditioned(model: Model, data: Sequences, steps: int) -> tuple[list[int], list[Arrays]]:
    """The likeliest component of each sequence, and what is conditioned on its evidence."""
    shares = model.component_posteriors(data)
    likeliest = np.argmax(shares, axis=1)
    parts: list[Arrays] = [[probability_steps(own)] for own in shares]
    for component in np.unique(likeliest).tolist():
        members = np.flatnonzero(likeliest == component)
        own = data[members]
        posteriors = interface_posteriors(model.compiled.component(component), own)
        groups = [np.array(group) for group in model.components[component].groups]
        pieces = np.split(posteriors, own.offsets[1:-1])
        for index, piece in zip(members.tolist(), pieces, strict=True):
            rows, probabilities = interface_rows(piece, groups)
            head = np.array([component, len(rows)], dtype="<u2")
            parts[index] += [head, rows, probability_steps(probabilities)]
    _add_entries(parts, model.marginals(data, quantiles=LEVELS), data.offsets)
    if steps:
        ahead = model.forecast(data, steps, quantiles=LEVELS)
        _add_entries(parts, ahead.marginals, ahead.sequences.offsets)
    return likeliest.tolist(), parts


def interface_rows(posteriors: Floats, groups: Sequence[Ints]) -> tuple[NDArray[np.uint16], Floats]:
    """P(interface node | evidence) of the nodes with the most mass, the rest of each group pooled.

    Returns group, position and number of nodes of at most 12 rows, which at most 6 groups share
    evenly, and their probabilities. The position of pooled nodes is 65535.
    """
    room = MOST_ROWS // len(groups[:MOST_GROUPS])
    rows: list[tuple[int, int, int]] = []
    columns: list[Floats] = []
    for number, positions in enumerate(groups[:MOST_GROUPS]):
        single = positions
        if positions.size > room:
            mass = posteriors[:, positions].sum(axis=0)
            single = np.sort(positions[np.argsort(-mass, kind="stable")[: room - 1]])
        rows.extend((number, position, 1) for position in single.tolist())
        columns.extend(posteriors[:, single].T)
        if single.size < positions.size:
            rest = np.setdiff1d(positions, single)
            rows.append((number, _POOLED, rest.size))
            columns.append(posteriors[:, rest].sum(axis=1))
    return np.array(rows, dtype="<u2"), np.array(columns).T


def _add_entries(parts: Sequence[Arrays], marginals: Marginals, offsets: Ints) -> None:
    """Adds the distributions of the entries of each sequence, variable by variable.

    A number has (mean, 10 %, 50 %, 90 %); a category has the codes of the most probable ones, in
    the order of codes, and their probabilities.
    """
    for own in marginals.variables:
        if own.probabilities is None:
            arrays: Arrays = [singles(np.column_stack([own.mean, own.quantiles]))]
        else:
            likeliest = np.argsort(-own.probabilities, axis=1, kind="stable")
            codes = np.sort(likeliest[:, :MOST_CATEGORIES], axis=1)
            probabilities = np.take_along_axis(own.probabilities, codes, axis=1)
            arrays = [codes.astype("<u2"), probability_steps(probabilities)]
        bounds = np.searchsorted(own.slices, offsets)
        for array in arrays:
            for part, piece in zip(parts, np.split(array, bounds[1:-1]), strict=True):
                part.append(piece)


def _texts(
    data: Sequences, slices: Floats, entries: Floats, possible: Bools, answers: Iterator[Arrays]
) -> Iterator[str]:
    """The record of each sequence: surprises, values and, where it is possible, its answers."""
    columns = [singles(slices), singles(entries)]
    columns += [coded_column(v, own) for v, own in zip(data.schema, data.values.T, strict=True)]
    for start, length, is_possible in zip(data.offsets, data.lengths, possible, strict=False):
        parts = [column[start : start + length] for column in columns]
        yield packed_record(parts + next(answers) if is_possible else parts)


def coded_column(variable: Variable, values: Floats) -> NDArray[Any]:
    """Numbers as float32; categories as codes of 1 or 2 bytes, the largest for what is missing."""
    if not variable.num_categories:
        return singles(values)
    kind = np.dtype("<u1" if variable.num_categories < 255 else "<u2")
    return np.where(np.isnan(values), np.iinfo(kind).max, values).astype(kind)


def singles(array: NDArray[Any]) -> NDArray[np.float32]:
    """The numbers as float32; what is too large is infinite, what is too small is zero."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(array, dtype="<f4")


def probability_steps(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Probabilities in steps of 1/65535."""
    steps: NDArray[np.uint16] = np.rint(np.clip(array, 0.0, 1.0) * 65535.0).astype("<u2")
    return steps


def packed_array(array: ArrayLike, kind: str) -> str:
    """Base64 of the numbers as a little-endian array of one kind."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def packed_record(arrays: Iterable[NDArray[Any]]) -> str:
    """Base64 of arrays of 4, 2 and 1 byte, each width one after the other behind three counts.

    A reader takes the numbers of each width in the order in which they were given.
    """
    streams = dict.fromkeys(_WIDTHS, b"")
    for array in arrays:
        streams[array.dtype.itemsize] += array.tobytes()
    counts = [len(own) // width for width, own in streams.items()]
    head = np.array(counts, dtype="<u4").tobytes()
    return base64.b64encode(head + b"".join(streams.values())).decode("ascii")


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
    ids = None if data.ids is None else [str(data.ids[index]) for index in shown.tolist()]
    return {
        "count": len(shown),
        "ids": ids,
        "number": packed_array(shown, "<u4"),
        "length": packed_array(data.lengths[shown], "<u4"),
        "missing": packed_array(missing[shown], "<u4"),
        "perSlice": packed_array(records.per_slice[shown], "<f8"),
        "size": packed_array([len(text) for text in records.texts], "<u4"),
    }


def _order(data: Sequences) -> JSON:
    """The order column's text of each slice, each text once; None without an order column."""
    texts, keys = order_texts(data), data.table_keys
    if texts is None or keys is None:
        return None
    distinct = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    codes = packed_array([distinct[text] for text in texts], "<u4")
    return {"name": keys.order, "texts": list(distinct), "codes": codes}


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
    inputs = [0] * template.num_interfaces
    for shift in (len(network.schema), 0):
        scopes = network_scopes(template.nodes, template.order, inputs)
        inputs = [scopes[output] << shift for output in template.outputs]
    pairs = zip(network_scopes(top.nodes, top.order, inputs), top.nodes, strict=True)
    return [*scopes, *(scope for scope, node in pairs if not isinstance(node, Input))]


def _members(scope: int, count: int) -> list[list[int]]:
    """Variables of the slice itself, and those of the slices below."""
    bits = [bit for bit in range(scope.bit_length()) if scope >> bit & 1]
    return [[bit for bit in bits if bit < count], [bit - count for bit in bits if bit >= count]]


def _leaf_parameters(network: DynamicNetwork) -> dict[int, dict[str, Any]]:
    """Variable and parameters of each leaf, with those of a bottom network that has its own."""
    leaves: dict[int, dict[str, Any]] = {}
    parts = {"parameters": network.parameters.template, "bottom": network.parameters.bottom}
    for number, bank in enumerate(network.template.banks):
        for row, node in enumerate(bank.nodes):
            own = {name: p.leaves[number][row].tolist() for name, p in parts.items() if p}
            leaves[node] = {"variable": bank.variable, **own}
    return leaves


def _blocks(network: DynamicNetwork) -> dict[str, Any]:
    """The first groups as blocks, of a template too large for single nodes."""
    banks = zip(network.template.banks, network.parameters.template.leaves, strict=True)
    leaves = [_leaf_summary(network.schema[b.variable], b.family, rows) for b, rows in banks]
    shown = range(len(network.groups))[:_MOST_BLOCK_GROUPS]
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
    counts = ("outputs", "alone", "joining")
    return {
        "inputs": summary.num_inputs,
        **{key: dict(sorted(getattr(summary, key).items())) for key in counts},
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

"""The summary of a page, in plain words and two tables."""

from collections import Counter
from html import escape
from typing import Final

import numpy as np

from dspn._arrays import Floats
from dspn.data import Kind, Sequences, Variable
from dspn.models import Model
from dspn.report._choice import Choice
from dspn.report._records import Records
from dspn.structure import DynamicNetwork

_MOST_WORDS: Final = 12
_MINUS: Final = "\N{MINUS SIGN}"
_SPACE: Final = "\N{NO-BREAK SPACE}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 slice, 12,288 slices."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def shortened(text: str, most: int) -> str:
    """The text, cut and ended by an ellipsis where it is longer."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def summary_html(model: Model, data: Sequences, choice: Choice, found: Records) -> str:
    """What the model and the data are."""
    parts = [
        f'<p class="lead">{escape(_lead(model))}</p>',
        _tiles(model, data, choice),
        f"<p>{escape(_validity(model))}</p>",
        *(f'<p class="note">{escape(text)}</p>' for text in _notes(data, choice)),
        _variable_table(data),
    ]
    if len(model.components) > 1:
        parts.append(_component_table(model, found))
    if model.provenance:
        parts.append(_provenance(model))
    return "\n".join(parts)


def _lead(model: Model) -> str:
    variables = counted(len(model.schema), "variable")
    first = model.components[0]
    if len(model.components) == 1:
        what = f"A dynamic sum-product network over {variables} in each slice"
        return f"{what}, with {_interfaces(first)}."
    count = f"{len(model.components):,} dynamic sum-product networks"
    total = sum(network.num_interfaces for network in model.components)
    each = "each of which is a model of whole sequences"
    return (
        f"A mixture of {count} over {variables} in each slice, {each}. Together they have "
        f"{counted(total, 'interface node')}."
    )


def _interfaces(network: DynamicNetwork) -> str:
    groups = len(network.groups)
    where = "" if groups == 1 else f" in {groups:,} groups"
    return f"{counted(network.num_interfaces, 'interface node')}{where}"


def _tiles(model: Model, data: Sequences, choice: Choice) -> str:
    nodes = sum(len(network.template.nodes) for network in model.components)
    edges = sum(network.template.num_edges for network in model.components)
    shortest, longest = int(data.lengths.min()), int(data.lengths.max())
    span = f"{shortest:,} to {longest:,} in each" if shortest < longest else f"{longest:,} in each"
    missing = float(np.isnan(data.values).mean())
    per_sequence, per_slice = _means(data, choice)
    tiles = [
        ("Sequences", f"{len(data):,}", ""),
        ("Slices", f"{data.total_slices:,}", span),
        ("Missing entries", _percent(missing), f"of {data.values.size:,}"),
        ("Log-likelihood", per_sequence, "nats per sequence, mean"),
        ("Log-likelihood", per_slice, "nats per slice, mean"),
        ("Template", f"{nodes:,} nodes", counted(edges, "edge")),
    ]
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _means(data: Sequences, choice: Choice) -> tuple[str, str]:
    """Mean log P of a sequence, and log P of all over their slices, of the possible ones."""
    possible = np.isfinite(choice.per_slice)
    if not possible.any():
        return f"{_MINUS}∞", f"{_MINUS}∞"
    lengths = data.lengths[possible]
    total = -choice.per_slice[possible] * lengths
    return _number(float(total.mean())), _number(float(total.sum() / lengths.sum()))


def _number(value: float) -> str:
    return f"{value:,.4g}".replace("-", _MINUS) if abs(value) < 1e4 else f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g}{_SPACE}%"


def _validity(model: Model) -> str:
    subject = "The template is" if len(model.components) == 1 else "All templates are"
    where = {"first": "first", "last": "last"}[model.root.value]
    return (
        f"{subject} valid: complete, decomposable and invariant, so the networks of all lengths "
        f"are valid and every number on this page is exact. The root is at the {where} slice."
    )


def _notes(data: Sequences, choice: Choice) -> list[str]:
    notes = []
    left_out = len(data) - len(choice.shown)
    if left_out:
        notes.append(
            f"This page shows the {len(choice.shown):,} most surprising sequences in full and "
            f"leaves out the other {left_out:,}, which count in this summary only."
        )
    impossible = int(np.sum(~np.isfinite(choice.per_slice)))
    if impossible:
        said = "sequence has" if impossible == 1 else "sequences have"
        notes.append(
            f"{impossible:,} {said} probability zero under the model and cannot be conditioned on; "
            "means of the log-likelihood are those of the others."
        )
    return notes


def _variable_table(data: Sequences) -> str:
    rows = []
    for column, variable in enumerate(data.schema):
        values = data.values[:, column]
        known = values[~np.isnan(values)]
        missing = 1.0 - known.size / values.size
        cells = (_kind(variable), _observed(variable, known), _percent(missing))
        rows.append(
            f'<tr><th scope="row">{escape(variable.name)}</th>'
            + "".join(f"<td>{escape(text)}</td>" for text in cells)
            + "</tr>"
        )
    head = "".join(f'<th scope="col">{t}</th>' for t in ("Variable", "Kind", "Observed", "Missing"))
    return _folded(
        f"The {counted(len(data.schema), 'variable')}", head, rows, opened=len(rows) <= _MOST_WORDS
    )


def _kind(variable: Variable) -> str:
    if variable.kind == Kind.CATEGORICAL:
        count = variable.num_categories
        return f"categorical, {count:,} {'category' if count == 1 else 'categories'}"
    return variable.kind.value


def _observed(variable: Variable, known: Floats) -> str:
    if not known.size:
        return "never"
    if variable.kind != Kind.CATEGORICAL:
        low, high, mean = float(known.min()), float(known.max()), float(known.mean())
        return f"{_plain(low)} to {_plain(high)}, mean {_plain(mean)}"
    counts = np.bincount(known.astype(np.int64), minlength=variable.num_categories)
    first = np.argsort(-counts, kind="stable")[:3]
    said = [
        f"{shortened(str(variable.categories[code]), 24)} {_percent(counts[code] / known.size)}"
        for code in first.tolist()
        if counts[code]
    ]
    more = int(np.count_nonzero(counts)) - len(said)
    return ", ".join(said) + (f" and {more:,} more" if more else "")


def _plain(value: float) -> str:
    return f"{value:.4g}".replace("-", _MINUS)


def _component_table(model: Model, found: Records) -> str:
    explained = Counter(found.likeliest)
    rows = []
    for number, (weight, network) in enumerate(zip(model.weights, model.components, strict=True)):
        cells = (
            f"{weight:.4g}",
            _interfaces(network),
            counted(len(network.template.nodes), "node"),
            counted(network.template.num_edges, "edge"),
            f"{explained[number]:,}",
        )
        rows.append(
            f'<tr><th scope="row">{number}</th>'
            + "".join(f"<td>{escape(text)}</td>" for text in cells)
            + "</tr>"
        )
    names = ("Component", "Weight", "Interface", "Nodes", "Edges", "Likeliest for, of those shown")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return _folded(f"The {len(rows):,} components", head, rows, opened=len(rows) <= _MOST_WORDS)


def _provenance(model: Model) -> str:
    rows = [
        f'<tr><th scope="row">{escape(str(key))}</th>'
        f"<td>{escape(shortened(_said(value), 400))}</td></tr>"
        for key, value in model.provenance.items()
    ]
    head = '<th scope="col">Field</th><th scope="col">Value</th>'
    return _folded("How the model was made", head, rows, opened=False)


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_said(own)}" for key, own in value.items())
    if isinstance(value, list):
        return ", ".join(map(_said, value))
    return str(value)


def _folded(title: str, head: str, rows: list[str], *, opened: bool) -> str:
    state = " open" if opened else ""
    return (
        f"<details{state}><summary>{escape(title)}</summary>"
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        "</details>"
    )

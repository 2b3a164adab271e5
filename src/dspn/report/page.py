"""A page about a model and data: one file that needs neither network nor server.

Its summary is made here, of sentences, figures and tables; what the page draws is in `_facts`.
"""

import base64
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Final

import numpy as np

from dspn import __version__
from dspn._arguments import Floats, require_type, whole_number
from dspn.atomic import path_text, write_atomically
from dspn.data.schema import Kind, Variable
from dspn.data.sequences import Sequences, sequences_of
from dspn.errors import DataError, StructureError
from dspn.inference.evaluation import informed_by
from dspn.models.model import Model
from dspn.plotting._style import counted
from dspn.report._effects import effect_figures
from dspn.report._facts import Records, json_text, make_records, page_facts
from dspn.structure.network import DynamicNetwork

_TITLE: Final = "A model and its data"
# Slices that are scored, the least number of entries for it, and variables that are compared.
_MOST_SCORED, _LEAST_SCORED, _MOST_INFORMING = 20_000, 100, 12
# In an order in which each module comes after those that it imports.
_MODULES: Final = (
    "dom colours records tooltip theme node_panel graph blocks templates list axis values heat_map "
    "posterior table scroller sequence page"
)
MODULES: Final = tuple(f"{name}.js" for name in _MODULES.split())

_IMPORT: Final = re.compile(r'^import\s[^;]*?from\s+"\./([\w.]+)";\n', re.MULTILINE | re.DOTALL)
_EXPORT: Final = re.compile(r"^export (?=const|let|function|class|async)", re.MULTILINE)
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")
_MOST_OPEN_ROWS: Final = 12
_MINUS: Final = "\N{MINUS SIGN}"
_SPACE: Final = "\N{NO-BREAK SPACE}"


def report_html(
    model: Model,
    data: Sequences,
    *,
    title: str | None = None,
    max_sequences: int | None = None,
    steps: int = 10,
) -> str:
    """The model, the data by surprise, and P(entry | evidence) of all missing and future entries.

    Every number is exact; the page only draws.

    Args:
        model: The model that is reported.
        data: Sequences with the variables of the model.
        title: Title of the page.
        max_sequences: How many sequences the page holds, those with the largest -log P / T; by
            default as many as make a file of about 40 MB. The page says how many it leaves out.
        steps: How many slices are forecast; none for 0.
    """
    remedy = "take the `model_` of an estimator, or `dspn.Model.load` a file"
    require_type(model, Model, "model", StructureError, remedy=remedy)
    data = sequences_of(data, model.schema, "data")
    ahead = whole_number(steps, "steps", DataError, least=0)
    if max_sequences is not None:
        max_sequences = whole_number(max_sequences, "max_sequences", DataError)
    if title is not None:
        require_type(title, str, "title", DataError)
    records = make_records(model, data, ahead, max_sequences)
    style, script = asset("style.css"), joined_script()
    return filled(
        asset("template.html"),
        {
            "title": escape(title or _TITLE),
            "version": escape(__version__),
            "script_hash": _source_hash(script),
            "style_hash": _source_hash(style),
            "style": style,
            "script": script,
            "summary": summary_html(model, data, records),
            "facts": json_text(page_facts(model, data, records, ahead)),
            "records": "".join(records.texts),
        },
    )


def write_report(
    model: Model,
    data: Sequences,
    path: str | bytes | os.PathLike[str],
    *,
    title: str | None = None,
    max_sequences: int | None = None,
    steps: int = 10,
) -> None:
    """Writes the page of `report_html` to a file, whole or not at all.

    Args:
        model: The model that is reported.
        data: Sequences with the variables of the model.
        path: The file; an older one is replaced.
        title: Title of the page.
        max_sequences: How many sequences the page holds.
        steps: How many slices are forecast; none for 0.
    """
    path_text(path)
    text = report_html(model, data, title=title, max_sequences=max_sequences, steps=steps)
    # A name may hold half a pair of surrogates, which no file can.
    write_atomically(path, text.encode("utf-8", errors="replace"))


def asset(name: str) -> str:
    """The text of one of the files that make up a page."""
    return (files("dspn.report") / "assets" / name).read_text(encoding="utf-8")


def joined_script() -> str:
    """All modules as one: imports are left out, as what they name comes before."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", asset(name))) for name in MODULES)


def _source_hash(text: str) -> str:
    """What a content security policy calls an inline script or style."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with each {{name}} replaced once; replacements are not searched again."""
    return _PLACE.sub(lambda place: values[place.group(1)], template)


def summary_html(model: Model, data: Sequences, records: Records) -> str:
    """What the model and the data are."""
    subject = "The template is" if len(model.components) == 1 else "All templates are"
    parts = [
        f'<p class="lead">{escape(_lead(model))}</p>',
        _tiles(model, data, records),
        f"<p>{subject} valid: complete, decomposable and invariant, so the networks of all lengths "
        "are valid and every number on this page is exact. The root is at the "
        f"{model.root.value} slice.</p>",
        *(f'<p class="note">{escape(text)}</p>' for text in _notes(data, records)),
        _variable_table(data),
        *effect_figures(model, data),
        *score_tables(model, data),
    ]
    if len(model.components) > 1:
        parts.append(_component_table(model, records))
    if model.provenance:
        fields = model.provenance.items()
        rows = [(str(key), _shortened(_plain_text(value), 400)) for key, value in fields]
        parts.append(_table("How the model was made", ("Field", "Value"), rows, folded=True))
    return "\n".join(parts)


def _shortened(text: str, most: int) -> str:
    """The text, cut and ended by an ellipsis where it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _lead(model: Model) -> str:
    over = f"over {counted(len(model.schema), 'variable')} in each slice"
    if len(model.components) == 1:
        return f"A dynamic sum-product network {over}, with {_interfaces(model.components[0])}."
    total = sum(network.num_interfaces for network in model.components)
    return (
        f"A mixture of {len(model.components):,} dynamic sum-product networks {over}, each of "
        "which is a model of whole sequences. Together they have "
        f"{counted(total, 'interface node')}."
    )


def _interfaces(network: DynamicNetwork) -> str:
    groups = len(network.groups)
    where = "" if groups == 1 else f" in {groups:,} groups"
    return f"{counted(network.num_interfaces, 'interface node')}{where}"


def _tiles(model: Model, data: Sequences, records: Records) -> str:
    nodes = sum(len(network.template.nodes) for network in model.components)
    edges = sum(network.template.num_edges for network in model.components)
    lengths = " to ".join(f"{end:,}" for end in sorted({data.lengths.min(), data.lengths.max()}))
    missing = _percent(float(np.isnan(data.values).mean()))
    # Mean log P of a sequence, and log P of all over their slices, of the possible ones.
    per_sequence = per_slice = f"{_MINUS}∞"
    possible = np.isfinite(records.per_slice)
    if possible.any():
        total = -(records.per_slice * data.lengths)[possible]
        per_sequence = _number(float(total.mean()))
        per_slice = _number(float(total.sum() / data.lengths[possible].sum()))
    tiles = [
        ("Sequences", f"{len(data):,}", ""),
        ("Slices", f"{data.total_slices:,}", f"{lengths} in each"),
        ("Missing entries", missing, f"of {data.values.size:,}"),
        ("Log-likelihood", per_sequence, "nats per sequence, mean"),
        ("Log-likelihood", per_slice, "nats per slice, mean"),
        ("Template", f"{nodes:,} nodes", counted(edges, "edge")),
    ]
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _number(value: float) -> str:
    return f"{value:,.4g}".replace("-", _MINUS) if abs(value) < 1e4 else f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g}{_SPACE}%"


def _notes(data: Sequences, records: Records) -> Iterable[str]:
    """What the page leaves out, and which sequences are impossible."""
    shown = len(records.shown)
    if shown < len(data):
        yield (
            f"This page shows the {shown:,} most surprising sequences in full and leaves out the "
            f"other {len(data) - shown:,}, which count in this summary only."
        )
    impossible = int(np.sum(~np.isfinite(records.per_slice)))
    if impossible:
        have = "sequence has" if impossible == 1 else "sequences have"
        yield (
            f"{impossible:,} {have} probability zero under the model and cannot be conditioned on; "
            "means of the log-likelihood are those of the others."
        )


def _variable_table(data: Sequences) -> str:
    rows = []
    for variable, values in zip(data.schema, data.values.T, strict=True):
        known = values[~np.isnan(values)]
        kind = variable.kind.value
        if variable.kind == Kind.CATEGORICAL:
            kind += f", {counted(variable.num_categories, 'category')}"
        missing = _percent(1.0 - known.size / values.size)
        rows.append((variable.name, kind, _observed(variable, known), missing))
    title = f"The {counted(len(data.schema), 'variable')}"
    return _table(title, ("Variable", "Kind", "Observed", "Missing"), rows)


def _observed(variable: Variable, known: Floats) -> str:
    if not known.size:
        return "never"
    if variable.kind != Kind.CATEGORICAL:
        figures = (known.min(), known.max(), known.mean())
        low, high, mean = (f"{value:.4g}".replace("-", _MINUS) for value in figures)
        return f"{low} to {high}, mean {mean}"
    counts = np.bincount(known.astype(np.int64), minlength=variable.num_categories)
    first = [code for code in np.argsort(-counts, kind="stable")[:3].tolist() if counts[code]]
    words = [
        f"{_shortened(str(variable.categories[code]), 24)} {_percent(counts[code] / known.size)}"
        for code in first
    ]
    more = int(np.count_nonzero(counts)) - len(words)
    return ", ".join(words) + (f" and {more:,} more" if more else "")


def _component_table(model: Model, records: Records) -> str:
    explained = Counter(records.likeliest)
    rows = []
    for number, network in enumerate(model.components):
        nodes = counted(len(network.template.nodes), "node")
        edges = counted(network.template.num_edges, "edge")
        first = (str(number), f"{model.weights[number]:.4g}", _interfaces(network))
        rows.append((*first, nodes, edges, f"{explained[number]:,}"))
    names = ("Component", "Weight", "Interface", "Nodes", "Edges", "Likeliest for, of those shown")
    return _table(f"The {len(rows):,} components", names, rows)


def score_tables(model: Model, data: Sequences) -> Iterable[str]:
    """How good filled entries are beside simple rules, and which variables inform which."""
    possible = np.flatnonzero(model.compiled.log_likelihood(data) > -np.inf)
    ends = np.cumsum(data.lengths[possible])
    chosen = possible[: max(1, int(np.searchsorted(ends, _MOST_SCORED, side="right")))]
    some = data[chosen] if chosen.size else None
    if some is None or np.count_nonzero(~np.isnan(some.values)) < _LEAST_SCORED:
        return
    found = model.evaluate(some)
    names = ("Variable", "Method", "Entries", "MAE", "RMSE", "Accuracy", "CRPS", "Log score")
    fields = ("method", "entries", "mae", "rmse", "accuracy", "crps", "log_score", "coverage")
    rows = [
        (own.variable, *(_score(getattr(own, name)) for name in fields)) for own in found.scores
    ]
    hidden = f"{found.hidden}, of {counted(len(some), 'sequence')}"
    title = f"How good filled entries are ({hidden}); if the model was fitted to them, too good"
    yield _table(title, (*names, "In 80 % band"), rows, folded=True)
    if 1 < data.num_variables <= _MOST_INFORMING:
        lost = informed_by(model.compiled, some)
        schema = data.schema.names
        cells = [
            (name, *(_score(round(value, 2) + 0.0) for value in row))
            for name, row in zip(schema, lost.tolist(), strict=True)
        ]
        title = "Which variables inform which: nats that an entry of the row loses without a column"
        yield _table(title, ("Without", *map(escape, schema)), cells, folded=True)


def _score(value: float | str) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.3g}".replace("-", _MINUS)
    return str(value)


def _plain_text(value: object) -> str:
    """A value of the provenance as one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain_text(own)}" for key, own in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain_text, value))
    return str(value)


def _table(
    title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, folded: bool = False
) -> str:
    """A table that folds; open where it has few rows, unless it is `folded`."""
    state = " open" if len(rows) <= _MOST_OPEN_ROWS and not folded else ""
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(text)}</td>" for text in others)
        + "</tr>"
        for first, *others in rows
    )
    return (
        f"<details{state}><summary>{escape(title)}</summary>"
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )

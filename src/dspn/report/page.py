"""A page about a model and data: one file that needs neither network nor server."""

import os
from html import escape
from typing import Any

import numpy as np

from dspn import __version__
from dspn._checks import require_type, whole_number
from dspn.errors import DataError, StructureError
from dspn.io import write_atomically
from dspn.io.atomic import path_text
from dspn.models import Model
from dspn.report._assets import asset, filled, joined_script, source_hash
from dspn.report._choice import chosen
from dspn.report._facts import page_facts
from dspn.report._packing import json_text
from dspn.report._records import records
from dspn.report._words import summary_html
from dspn.sequences import Sequences
from dspn.sequences.reading import sequences_of

_TITLE = "A model and its data"


def report_html(
    model: Model,
    data: Sequences,
    *,
    title: str | None = None,
    max_sequences: int | None = None,
    steps: int = 10,
) -> str:
    """The model, the data by surprise, and P(entry | evidence) of all missing and future entries.

    Every number is exact; the page only draws. It holds the `max_sequences` with the largest
    -log P / T, by default as many as make a file of about 40 MB, and says how many it leaves out.
    `steps` slices are forecast, none for 0.
    """
    remedy = "take the `model_` of an estimator, or `dspn.Model.load` a file"
    require_type(model, Model, "model", StructureError, remedy=remedy)
    data = sequences_of(data, model.schema, "data")
    ahead = whole_number(steps, "steps", DataError, least=0)
    most = max_sequences
    if most is not None:
        most = whole_number(most, "max_sequences", DataError)
    if title is not None:
        require_type(title, str, "title", DataError)
    return _page(model, data, title or _TITLE, most, ahead)


def _page(model: Model, data: Sequences, title: str, most: int | None, steps: int) -> str:
    choice = chosen(model.compiled.log_likelihood(data), data, steps, most)
    possible = np.isfinite(choice.per_slice[choice.shown])
    found = records(model, data[choice.shown], possible, steps)
    style, script = asset("style.css"), joined_script()
    return filled(
        asset("template.html"),
        {
            "title": escape(title),
            "version": escape(__version__),
            "script_hash": source_hash(script),
            "style_hash": source_hash(style),
            "style": style,
            "script": script,
            "summary": summary_html(model, data, choice, found),
            "facts": json_text(page_facts(model, data, choice, found, steps)),
            "records": "".join(found.texts),
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
    """Writes the page of `report_html` to a file, whole or not at all."""
    path_text(path)
    options: dict[str, Any] = {"title": title, "max_sequences": max_sequences, "steps": steps}
    text = report_html(model, data, **options)
    # A name may hold half a pair of surrogates, which no file can.
    write_atomically(path, text.encode("utf-8", errors="replace"))

"""A page about a model and data: one file that needs neither network nor server."""

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Final

from dspn import __version__
from dspn._checks import require_type, whole_number
from dspn.data import Sequences
from dspn.data.sequences import sequences_of
from dspn.errors import DataError, StructureError
from dspn.io import write_atomically
from dspn.io.atomic import path_text
from dspn.models import Model
from dspn.report._facts import json_text, page_facts
from dspn.report._records import make_records
from dspn.report._summary import summary_html

_TITLE: Final = "A model and its data"
# In an order in which each module comes after those that it imports.
_MODULES: Final = (
    "dom colours records tooltip theme node_panel graph blocks templates list axis values heat_map "
    "posterior table scroller sequence page"
)
MODULES: Final = tuple(f"{name}.js" for name in _MODULES.split())

_IMPORT: Final = re.compile(r'^import\s[^;]*?from\s+"\./([\w.]+)";\n', re.MULTILINE | re.DOTALL)
_EXPORT: Final = re.compile(r"^export (?=const|let|function|class|async)", re.MULTILINE)
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")


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


def imports_of(name: str) -> list[str]:
    """The modules that a module imports."""
    return _IMPORT.findall(asset(name))


def _source_hash(text: str) -> str:
    """What a content security policy calls an inline script or style."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with each {{name}} replaced once; replacements are not searched again."""
    return _PLACE.sub(lambda place: values[place.group(1)], template)

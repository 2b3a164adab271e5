"""The page's own files, and how they become one."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

MODULES: Final = (
    "dom.js",
    "colours.js",
    "records.js",
    "tooltip.js",
    "theme.js",
    "node_panel.js",
    "graph.js",
    "blocks.js",
    "templates.js",
    "list.js",
    "axis.js",
    "values.js",
    "heat_map.js",
    "posterior.js",
    "table.js",
    "scroller.js",
    "sequence.js",
    "page.js",
)
"""In an order in which each module comes after those that it imports."""

_IMPORT: Final = re.compile(r'^import\s[^;]*?from\s+"\./([\w.]+)";\n', re.MULTILINE | re.DOTALL)
_EXPORT: Final = re.compile(r"^export (?=const|let|function|class|async)", re.MULTILINE)
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")


def asset(name: str) -> str:
    """The text of one file."""
    return (files("dspn.report") / "assets" / name).read_text(encoding="utf-8")


def joined_script() -> str:
    """All modules as one: imports are left out, as what they name stands above."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", asset(name))) for name in MODULES)


def imports_of(name: str) -> list[str]:
    """The modules that a module imports."""
    return _IMPORT.findall(asset(name))


def source_hash(text: str) -> str:
    """What a content security policy calls an inline script or style."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with each {{name}} replaced once; what replaces it is not looked at again."""
    return _PLACE.sub(lambda found: values[found.group(1)], template)

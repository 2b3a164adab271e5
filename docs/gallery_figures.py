"""Pictures of the gallery: figures that an example holds in a variable, each shown once.

The plotting functions of the library make figures without pyplot, where Sphinx-Gallery would look
for them.
"""

from typing import Any
from weakref import WeakSet

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

_shown: "WeakSet[Figure]" = WeakSet()


def _figures(names: dict[str, Any]) -> list[Figure]:
    """The figures that are not shown yet, in the order in which their variables were first set."""
    found: list[Figure] = []
    for value in names.values():
        figure = value.get_figure(root=True) if isinstance(value, Axes) else value
        if isinstance(figure, Figure) and figure not in _shown and figure not in found:
            found.append(figure)
    return found


def scraped(
    block: tuple[str, ...], block_vars: dict[str, Any], gallery_conf: dict[str, Any]
) -> str:
    """Saves the new figures of a block; returns the text that shows them."""
    paths = []
    for figure in _figures(block_vars["example_globals"]):
        path = str(next(block_vars["image_path_iterator"]))
        figure.savefig(path)
        _shown.add(figure)
        paths.append(path)
    return str(figure_rst(paths, gallery_conf["src_dir"]))


def _get_sg_image_scraper() -> Any:
    return scraped

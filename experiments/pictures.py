"""Pictures of the tables: what is measured as dots, what the paper prints as hollow diamonds."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dspn.errors import DataError
from dspn.plotting import _style
from dspn.plotting._panels import dress
from experiments.cases import CASES
from experiments.contenders import CONTENDERS
from experiments.tables import View

_PANEL: Final = (2.7, 0.3)
_MOST_ABREAST: Final = 3
_RESOLUTION: Final = 130
_OWN: Final = ("dspn", "dspn-search")
# Largest over least of an axis on which powers of ten alone would be too few labels.
_SHORT_AXIS: Final = 300.0


def _sheet(num_panels: int, num_rows: int) -> tuple[Figure, list[Axes]]:
    if not num_panels:
        raise DataError("`view` must have a result at least, but has none; run the experiment.")
    num_columns = min(num_panels, _MOST_ABREAST)
    num_lines = math.ceil(num_panels / num_columns)
    width = _PANEL[0] * num_columns + 1.6
    height = (_PANEL[1] * num_rows + 0.8) * num_lines + 0.3
    figure = Figure(figsize=(width, height), dpi=_RESOLUTION, layout="constrained")
    axes = list(figure.subplots(num_lines, num_columns, squeeze=False, sharey=True).flat)
    for ax in axes[num_panels:]:
        ax.remove()
    return figure, axes[:num_panels]


def _label_models(ax: Axes, models: Sequence[str]) -> None:
    ax.set_yticks(range(len(models)), [CONTENDERS[model].title for model in models])
    ax.set_ylim(len(models) - 0.4, -0.6)


def _dress(ax: Axes, title: str) -> None:
    dress(ax, title)
    ax.grid(axis="x", color=_style.FAINT, linewidth=0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_axisbelow(True)


def _make_logarithmic(ax: Axes) -> None:
    """Powers of ten are written out and, where they are few, three times each; nothing between."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    between = (1.0, 3.0) if high < _SHORT_AXIS * low else (1.0,)
    ax.xaxis.set_major_locator(LogLocator(subs=between))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def _dot(ax: Axes, model: str, row: int, value: float, error: float | None) -> None:
    colour = _style.group_colour(0 if model in _OWN else 1)
    ax.errorbar(value, row, xerr=error or 0.0, fmt="o", color=colour, markersize=5, capsize=2)


def _diamond(ax: Axes, row: int, value: float) -> None:
    ax.plot(value, row, "D", markersize=4.5, markerfacecolor="none", color=_style.MUTED)


def losses_figure(view: View) -> Figure:
    """A panel for each data set of Table 2, a line for each model; better is further left."""
    known = [record for record in view.records if record["folds"]]
    names = list(dict.fromkeys(record["data"] for record in known))
    models = list(dict.fromkeys(record["model"] for record in known))
    figure, axes = _sheet(len(names), len(models))
    for ax, name in zip(axes, names, strict=True):
        for record in (record for record in known if record["data"] == name):
            row = models.index(record["model"])
            _dot(ax, record["model"], row, record["mean"], record["error"])
            if record["paper"] is not None:
                _diamond(ax, row, record["paper"]["mean"])
        _dress(ax, CASES[name].title)
        values = [record["mean"] for record in known if record["data"] == name]
        if max(values) > 8 * min(values) > 0:
            _make_logarithmic(ax)
        else:
            ax.xaxis.set_major_locator(MaxNLocator(nbins=4))
    _label_models(axes[0], models)
    _caption(figure, "nats per test sequence; hollow: printed in the paper")
    return figure


def gaps_figure(view: View) -> Figure:
    """A panel for each kind of data of Table 1, a dot for each seed and model."""
    kinds = list(dict.fromkeys((record["data"], record["tables"]) for record in view.records))
    models = list(dict.fromkeys(model for record in view.records for model in record["gaps"]))
    figure, axes = _sheet(len(kinds), len(models))
    for ax, kind in zip(axes, kinds, strict=True):
        own = [record for record in view.records if (record["data"], record["tables"]) == kind]
        for place, record in zip(np.linspace(-0.2, 0.2, len(own) + 2)[1:-1], own, strict=True):
            for model, gap in record["gaps"].items():
                row = models.index(model) + place
                _dot(ax, model, row, gap["mean"], gap["error"])
                if gap["paper"] is not None:
                    _diamond(ax, models.index(model), gap["paper"])
        ax.axvline(0.0, color=_style.MUTED, linewidth=1.0)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4))
        _dress(ax, f"{kind[0]}, {kind[1]}")
    _label_models(axes[0], models)
    _caption(figure, "nats from the true model per test sequence; hollow: the paper's")
    return figure


def times_figure(view: View) -> Figure:
    """A panel for each data set of Table 3: seconds of inference, on a logarithmic scale."""
    known = [record for record in view.records if _seconds(record) is not None]
    names = list(dict.fromkeys(record["data"] for record in known))
    models = list(dict.fromkeys(record["model"] for record in known))
    figure, axes = _sheet(len(names), len(models))
    for ax, name in zip(axes, names, strict=True):
        for record in (record for record in known if record["data"] == name):
            row = models.index(record["model"])
            seconds = _seconds(record)
            assert seconds is not None
            _dot(ax, record["model"], row, seconds, None)
            if record["paper"] is not None:
                _diamond(ax, row, record["paper"])
        _make_logarithmic(ax)
        _dress(ax, CASES[name].title)
    _label_models(axes[0], models)
    _caption(figure, "seconds of inference for all sequences; hollow: printed in the paper")
    return figure


def _seconds(record: dict[str, Any]) -> float | None:
    own = record["inference"]
    return None if own is None else own.get("seconds")


def _caption(figure: Figure, text: str) -> None:
    figure.supxlabel(text, size=_style.TEXT_SIZE, color=_style.MUTED)

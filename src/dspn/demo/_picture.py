"""One recording in one picture: gaps with their bands, the hours to come, and what does not fit."""

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dspn.data import Sequences
from dspn.demo._house import AHEAD, SCHEMA
from dspn.models import Model
from dspn.plotting import plot_forecast, plot_surprise

_SIZE: Final = (11.0, 8.0)
_PIXELS_AN_INCH: Final = 160
_SHOWN: Final = ("sky", "celsius", "wind", "lights", "motion", "humidity")
_ALARM: Final = "#a84300"
_TITLE: Final = "Gaps and the hours to come, each entry with its exact distribution given all seen"


def recording_figure(model: Model, recording: Sequences, fault: int) -> Figure:
    """P(entry | all that was seen) of gaps and of the hours to come, and -log P of what was seen.

    Both panels have the same hours below each other; the faulty reading is named in both.
    """
    figure = Figure(figsize=_SIZE, dpi=_PIXELS_AN_INCH, layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=(2.1, 1.5))
    plot_forecast(model, recording, AHEAD, upper, variable=_SHOWN)
    plot_surprise(model, recording, lower)
    upper.set_title(_TITLE, loc="left", fontsize="medium", pad=19.0)
    lower.set_title(lower.get_title(loc="left"), loc="left", fontsize="medium", pad=19.0)
    upper.set_xlabel("")
    lower.set_xlabel("hour")
    for panel in (lower, _inside(lower, "slices")):
        panel.set_xlim(upper.get_xlim())
    _name_fault(_inside(upper, "celsius"), lower, recording, fault)
    return figure


def _inside(ax: Axes, gid: str) -> Axes:
    """The axes of that name inside others."""
    return next(own for own in ax.child_axes if isinstance(own, Axes) and own.get_gid() == gid)


def _name_fault(band: Axes, cells: Axes, recording: Sequences, fault: int) -> None:
    """A ring around the reading, and a frame around its cell."""
    column = SCHEMA.index("celsius")
    value = float(recording.values[fault, column])
    band.plot([fault], [value], "o", markersize=10.0, markerfacecolor="none", color=_ALARM)
    band.annotate(
        f"{value:.0f} °C in a storm",
        (fault, value),
        xytext=(9.0, 0.0),
        textcoords="offset points",
        va="center",
        color=_ALARM,
        size=9.0,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
    )
    corners = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5))
    frame = [(fault + x, column + y) for x, y in corners]
    cells.plot(*zip(*frame, strict=True), color=_ALARM, linewidth=1.6, zorder=7)

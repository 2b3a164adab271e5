"""A picture of how learning went: the best score so far against what was tried, or against time."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dspn._arguments import Floats, Ints
from dspn.errors import DataError
from dspn.learning.run import Report
from dspn.plotting import _style
from dspn.plotting._panels import WIDTH, dress, new_figure

_WORDS: Final = {"growth": "sizes", "search": "neighbours"}


def plot_learning_curve(
    history: Sequence[Report],
    ax: Axes | None = None,
    *,
    against: Literal["tries", "seconds"] = "tries",
    references: Mapping[str, float] | None = None,
) -> Axes:
    """The best validation score so far, a step up for everything that was better than all before.

    Args:
        history: The reports of a run in their order, as `DSPN.history_` has them; or a part.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        against: "tries" counts the sizes tried by growth and, after them, the neighbours tried by
            the search, whatever time they took; "seconds" is that time.
        references: Scores to compare with, by name, each a dashed line.
    """
    reports, references = list(history), references or {}
    _check(reports, against, references)
    ax = new_figure(WIDTH, 4.0).subplots() if ax is None else ax
    # A search goes on counting where growth ended.
    sizes = max((1 + report.tried for report in reports if report.stage == "growth"), default=0)
    across = np.array([r.tried + (1 if r.stage == "growth" else sizes) for r in reports])
    stages = list(dict.fromkeys(report.stage for report in reports))
    label = f"{' and '.join(_WORDS.get(stage, stage) for stage in stages)} tried"
    if against == "seconds":
        across, label = np.array([report.seconds for report in reports]), "seconds"
    scores = np.array([report.score for report in reports])
    scores[~np.isfinite(scores)] = np.nan
    shown = [stage for stage in stages if _draw_stage(ax, stage, reports, across, scores)]
    for name, score in references.items():
        line = ax.axhline(score, color=_style.MUTED, linewidth=1.0, gid="reference")
        line.set_linestyle((0, (4, 3)))
        place, words = (float(across[0]), score), f"{name}: {_number(score)}"
        _style.note(ax, place, (0.0, 3.0), words, ha="left", va="bottom")
    dress(ax, f"{' and '.join(shown)}: best score on the validation set (nats per sequence)")
    ax.legend(loc="lower right", frameon=False, fontsize=_style.SMALL_SIZE, labelcolor=_style.INK)
    ax.grid(axis="y", color=_style.FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.margins(x=0.03, y=0.12)
    steps = [1, 2, 5, 10]
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=steps))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=steps, integer=against == "tries"))
    ax.set_xlabel(label, size=_style.TEXT_SIZE, color=_style.INK)
    return ax


def _check(reports: Sequence[Report], against: str, references: Mapping[str, float]) -> None:
    if against not in ("tries", "seconds"):
        raise DataError(f"`against` must be 'tries' or 'seconds', but is {against!r}; choose one.")
    if not reports or not all(isinstance(report, Report) for report in reports):
        raise DataError(
            "`history` must be the reports of a run, at least one, but "
            f"{'is empty' if not reports else 'holds something else'}; give `history_` of a fitted "
            "DSPN, or `history` of what `learn` returns."
        )
    for name, score in references.items():
        if not np.isfinite(score):
            raise DataError(
                f"`references` must be finite scores, but {name!r} is {score}; leave it out."
            )


def _draw_stage(
    ax: Axes, stage: str, reports: Sequence[Report], across: Floats | Ints, scores: Floats
) -> bool:
    """The steps of one stage, which begin where the stage before ended.

    Returns whether the stage is named: where a part of a history begins with the last report of a
    stage, that report is only the place where the next stage starts.
    """
    own = [number for number, report in enumerate(reports) if report.stage == stage]
    last = own[-1]
    named = last > 0 or len(reports) == 1
    size = _style.counted(reports[last].num_interfaces, "interface node")
    path = slice(max(own[0] - 1, 0), last + 1)
    colour = _style.group_colour(0 if stage == "growth" else 1)
    line = ax.plot(across[path], scores[path], color=colour, linewidth=1.6, gid=stage)[0]
    line.set_drawstyle("steps-post")
    if named:
        line.set_label(f"{stage}: {_number(reports[last].score)} with {size}")
    better = [n for n in own if n == 0 or scores[n] != scores[n - 1]]
    ax.plot(across[better], scores[better], "o", markersize=4.0, color=colour, gid="better")
    return named


def _number(score: float) -> str:
    """A score as the ticks show it."""
    return f"{score:.2f}".replace("-", "\N{MINUS SIGN}")

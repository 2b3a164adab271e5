"""A picture of how learning went: the best score so far against what was tried, or against time."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dspn._arrays import Floats, Ints
from dspn.errors import DataError
from dspn.learning.run import Report
from dspn.plotting import _style
from dspn.plotting._panels import dress, new_panel

_WIDTH, _HEIGHT = 10.0, 4.0
_GROWTH: Final = "growth"
_WORDS: Final = {_GROWTH: "sizes", "search": "neighbours"}
_NO_REFERENCES: Final[Mapping[str, float]] = MappingProxyType({})


class Against(StrEnum):
    """What a curve of learning runs over."""

    TRIES = "tries"
    SECONDS = "seconds"


def plot_learning_curve(
    history: Sequence[Report],
    ax: Axes | None = None,
    *,
    against: Against | str = Against.TRIES,
    references: Mapping[str, float] = _NO_REFERENCES,
) -> Axes:
    """The best validation score so far, a step up for everything that was better than all before.

    Args:
        history: The reports of a run in their order, as `DSPN.history_` has them; or a part.
        against: "tries" counts the sizes tried by growth and, after them, the neighbours tried by
            the search, which is the same on every machine; "seconds" is the time they took.
        references: Scores to compare with, by name, each a dashed line.
    """
    reports, by = _checked(history, against)
    _check_references(references)
    ax = new_panel(_WIDTH, _HEIGHT) if ax is None else ax
    tries = _tries(reports)
    across = tries if by is Against.TRIES else np.array([r.seconds for r in reports])
    scores = np.array([report.score for report in reports])
    scores[~np.isfinite(scores)] = np.nan
    shown = [stage for stage in _stages(reports) if _draw_stage(ax, stage, reports, across, scores)]
    for name, score in references.items():
        _draw_reference(ax, name, score, across)
    dress(ax, f"{' and '.join(shown)}: best score on the validation set (nats per sequence)")
    ax.legend(loc="lower right", frameon=False, fontsize=_style.SMALL_SIZE, labelcolor=_style.INK)
    ax.grid(axis="y", color=_style.FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.margins(x=0.03, y=0.12)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_locator(
        MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=by is Against.TRIES)
    )
    ax.set_xlabel(_x_label(reports, by), size=_style.TEXT_SIZE, color=_style.INK)
    return ax


def _checked(history: Sequence[Report], against: Against | str) -> tuple[list[Report], Against]:
    try:
        by = Against(against)
    except ValueError:
        raise DataError(
            f"`against` must be 'tries' or 'seconds', but is {against!r}; choose one."
        ) from None
    reports = list(history)
    if not reports or not all(isinstance(report, Report) for report in reports):
        raise DataError(
            "`history` must be the reports of a run, at least one, but "
            f"{'is empty' if not reports else 'holds something else'}; give `history_` of a fitted "
            "DSPN, or `history` of what `learn` returns."
        )
    return reports, by


def _check_references(references: Mapping[str, float]) -> None:
    for name, score in references.items():
        if not np.isfinite(score):
            raise DataError(
                f"`references` must be finite scores, but that of {name!r} is {score}; leave it "
                "out."
            )


def _tries(reports: Sequence[Report]) -> Ints:
    """How much had been tried at each report; a search goes on counting where growth ended."""
    sizes = max((1 + report.tried for report in reports if report.stage == _GROWTH), default=0)
    return np.array([r.tried + (1 if r.stage == _GROWTH else sizes) for r in reports])


def _stages(reports: Sequence[Report]) -> list[str]:
    """The stages in their order."""
    return list(dict.fromkeys(report.stage for report in reports))


def _draw_stage(
    ax: Axes, stage: str, reports: Sequence[Report], across: Floats | Ints, scores: Floats
) -> bool:
    """The steps of one stage, which begin where the stage before ended.

    Returns whether the stage has a line of its own to speak of: where a part of a history begins
    with the last report of a stage, that is only the place where the next one starts.
    """
    own = [number for number, report in enumerate(reports) if report.stage == stage]
    first, last = own[0], own[-1]
    colour = _style.group_colour(0 if stage == _GROWTH else 1)
    path = slice(max(first - 1, 0), last + 1)
    speaks = last > 0 or len(reports) == 1
    size = _style.counted(reports[last].num_interfaces, "interface node")
    ax.plot(
        across[path],
        scores[path],
        drawstyle="steps-post",
        color=colour,
        linewidth=1.6,
        gid=stage,
        label=f"{stage}: {_number(reports[last].score)} with {size}" if speaks else None,
    )
    better = [n for n in own if n == 0 or scores[n] != scores[n - 1]]
    ax.plot(across[better], scores[better], "o", markersize=4.0, color=colour, gid="better")
    return speaks


def _number(score: float) -> str:
    """A score as the ticks have it."""
    return f"{score:.2f}".replace("-", "\N{MINUS SIGN}")


def _draw_reference(ax: Axes, name: str, score: float, across: Floats | Ints) -> None:
    ax.axhline(score, color=_style.MUTED, linewidth=1.0, linestyle=(0, (4, 3)), gid="reference")
    ax.annotate(
        f"{name}: {_number(score)}",
        (float(across[0]), score),
        xytext=(0.0, 3.0),
        textcoords="offset points",
        size=_style.SMALL_SIZE,
        color=_style.MUTED,
        ha="left",
        va="bottom",
    )


def _x_label(reports: Sequence[Report], against: Against) -> str:
    if against is Against.SECONDS:
        return "seconds"
    return f"{' and '.join(_WORDS.get(stage, stage) for stage in _stages(reports))} tried"

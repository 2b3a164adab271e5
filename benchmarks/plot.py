"""The picture of the comparison: a bar for each job and peer, with the floor marked."""

from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.compare import Row
from benchmarks.environments import PEERS
from benchmarks.jobs import TASK_NAMES
from benchmarks.results import Results

_COLOURS: Final = {True: "#3a7d5d", False: "#c8553d", None: "#8a96a3"}
_INK: Final = "#20262d"
_ROW_INCHES: Final = 0.27
_FEW: Final = 200


def _label(row: Row) -> str:
    label = f"({row.group}) {TASK_NAMES[row.task]}, k = {row.num_states}"
    few = row.num_sequences <= _FEW
    return f"{label}, {row.num_sequences} sequence{'s'[: row.num_sequences - 1]}" if few else label


def _panel(axes: Axes, rows: list[Row], peer: str, limits: tuple[float, float]) -> None:
    for place, row in enumerate(rows):
        ratio, floor = row.ratio(peer), row.floors.get(peer)
        if ratio is None:
            axes.text(1.08, place, "not measured", va="center", fontsize=7, color=_COLOURS[None])
        else:
            colour = _COLOURS[row.is_met(peer)]
            axes.barh(place, ratio - 1.0, left=1.0, height=0.68, color=colour)
            beyond = max(ratio, 1.0) if floor is None else max(ratio, floor, 1.0)
            axes.text(beyond * 1.12, place, f"{ratio:.1f}", va="center", fontsize=7, color=_INK)
        if floor is not None:
            axes.plot([floor, floor], [place - 0.44, place + 0.44], color=_INK, lw=1.8)
    axes.set_xscale("log")
    axes.set_xlim(limits)
    axes.axvline(1.0, color=_INK, lw=0.8)
    axes.set_title(peer, fontsize=10, color=_INK)
    axes.grid(axis="x", which="major", color="#d9dee3", lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="both", labelsize=8, length=0, which="both")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)


def _separate_cases(axes: Axes, rows: list[Row]) -> None:
    """A line between different data or numbers of states."""
    for place, (above, below) in enumerate(pairwise(rows)):
        if (above.title, above.num_states) != (below.title, below.num_states):
            axes.axhline(place + 0.5, color="#d9dee3", lw=0.8)


def save_plot(results: Results, file: Path) -> bool:
    """Writes the picture; False without a single ratio to show."""
    rows = [row for row in results.rows if any(row.ratio(peer) is not None for peer in PEERS)]
    if not rows:
        return False
    reached = [row.ratio(peer) or 1.0 for row in rows for peer in PEERS]
    wanted = [row.floors.get(peer) or 1.0 for row in rows for peer in PEERS]
    limits = min(*reached, 0.7) / 1.4, max(*reached, *wanted) * 2.2
    height = 1.5 + _ROW_INCHES * len(rows)
    figure, panels = plt.subplots(
        1, len(PEERS), figsize=(12.5, height), sharey=True, layout="constrained"
    )
    for axes, peer in zip(panels, PEERS, strict=True):
        _panel(axes, rows, peer, limits)
        _separate_cases(axes, rows)
    panels[0].set_yticks(range(len(rows)), [_label(row) for row in rows])
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    small = " (quick run: small data, floors do not apply)" if results.quick else ""
    figure.suptitle(f"Time of the peer over the time of dspn, one thread each{small}", color=_INK)
    figure.legend(
        handles=[
            Patch(color=_COLOURS[True], label="floor reached"),
            Patch(color=_COLOURS[False], label="floor missed"),
            Patch(color=_COLOURS[None], label="no floor"),
            Line2D([], [], color=_INK, lw=1.8, label="floor"),
        ],
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=8,
    )
    figure.savefig(file, dpi=140)
    plt.close(figure)
    return True

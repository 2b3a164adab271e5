"""The picture of the comparison: a bar for each job and peer."""

from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.compare import Row
from benchmarks.environments import PEERS
from benchmarks.jobs import TASK_NAMES
from benchmarks.results import Results

_FASTER: Final = "#3a7d5d"
_SLOWER: Final = "#c8553d"
_ABSENT: Final = "#8a96a3"
_INK: Final = "#20262d"
_ROW_INCHES: Final = 0.27
_FEW: Final = 200


def _label(row: Row) -> str:
    label = f"({row.group}) {TASK_NAMES[row.task]}, k = {row.num_states}"
    few = row.num_sequences <= _FEW
    return f"{label}, {row.num_sequences} sequence{'s'[: row.num_sequences - 1]}" if few else label


def _panel(axes: Axes, rows: list[Row], peer: str, limits: tuple[float, float]) -> None:
    for place, row in enumerate(rows):
        ratio = row.ratio(peer)
        if ratio is None:
            axes.text(1.08, place, "not measured", va="center", fontsize=7, color=_ABSENT)
        else:
            colour = _FASTER if ratio >= 1.0 else _SLOWER
            axes.barh(place, ratio - 1.0, left=1.0, height=0.68, color=colour)
            axes.text(
                max(ratio, 1.0) * 1.12, place, f"{ratio:.1f}", va="center", fontsize=7, color=_INK
            )
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
    limits = min(*reached, 0.7) / 1.4, max(*reached, 1.0) * 2.2
    height = 1.5 + _ROW_INCHES * len(rows)
    figure, panels = plt.subplots(
        1, len(PEERS), figsize=(12.5, height), sharey=True, layout="constrained"
    )
    for axes, peer in zip(panels, PEERS, strict=True):
        _panel(axes, rows, peer, limits)
        _separate_cases(axes, rows)
    panels[0].set_yticks(range(len(rows)), [_label(row) for row in rows])
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    small = " (quick run: small data)" if results.quick else ""
    figure.suptitle(f"Time of the peer over the time of dspn, one thread each{small}", color=_INK)
    figure.savefig(file, dpi=140)
    plt.close(figure)
    return True

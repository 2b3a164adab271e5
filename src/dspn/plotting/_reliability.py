"""Predictions against what came true: reliability of categories, histogram of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from scipy.stats import binom

from dspn._arrays import Bools, Floats, Ints
from dspn.plotting import _style
from dspn.plotting._panels import Handle, dress
from dspn.plotting._predictive import Predicted

_BAND: Final = "#dcdcdc"
_BAR: Final = "#9aa5b1"
_TALLEST_SHARE: Final = 0.14
_FLOOR: Final = -0.2
_NAME_ROOM: Final = 180.0


@final
@dataclass(frozen=True, eq=False)
class Reliability:
    """Bins that hold predictions: how many, their mean, the share come true, and its interval."""

    counts: Ints
    mean: Floats
    frequency: Floats
    low: Floats
    high: Floats


def _events(own: Predicted) -> tuple[Floats, Bools]:
    """Predicted probabilities of categories, and which came true; of two only the second."""
    happened = own.values[:, None] == np.arange(own.variable.num_categories)
    first = 1 if own.variable.num_categories == 2 else 0
    return own.probabilities[:, first:].ravel(), happened[:, first:].ravel()


def interval(counts: Ints, share: Floats | float, level: float) -> tuple[Floats, Floats]:
    """Central binomial interval of the share of `counts` trials that succeed."""
    low, high = (binom.ppf(end, counts, share) for end in (0.5 - level / 2, 0.5 + level / 2))
    return np.clip(low, 0, counts) / counts, np.clip(high, 0, counts) / counts


def reliability(predictions: Sequence[Predicted], num_bins: int, level: float) -> Reliability:
    """Predictions in bins of equal width by their probability; empty bins are left out."""
    events = [_events(own) for own in predictions]
    chances = np.concatenate([probability for probability, _ in events])
    happened = np.concatenate([true for _, true in events])
    place = np.minimum((chances * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(place, minlength=num_bins)
    used = counts > 0
    total = np.bincount(place, weights=chances, minlength=num_bins)
    true = np.bincount(place, weights=happened, minlength=num_bins)
    # A sum of probabilities may pass their number by rounding.
    mean = np.minimum(total[used] / counts[used], 1.0)
    return Reliability(
        counts[used], mean, true[used] / counts[used], *interval(counts[used], mean, level)
    )


def pit_shares(predictions: Sequence[Predicted], num_bins: int) -> Floats:
    """Share of P(X <= value) in bins of equal width; a count is spread over its own step."""
    below = np.concatenate([own.below for own in predictions])
    up_to = np.concatenate([own.up_to for own in predictions])
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    step = up_to - below
    spread = step > 0
    inside = np.clip(edges, below[spread, None], up_to[spread, None])
    masses = np.diff(inside, axis=1) / step[spread, None]
    points = np.minimum((up_to[~spread] * num_bins).astype(np.int64), num_bins - 1)
    total: Floats = masses.sum(axis=0) + np.bincount(points, minlength=num_bins)
    return total / len(up_to)


def _entries_in_words(predictions: Sequence[Predicted]) -> str:
    count = sum(own.values.size for own in predictions)
    words = f"{count:,} {'entry' if count == 1 else 'entries'}"
    several = f"{len(predictions)} variables"
    return f"{words} of {several if len(predictions) > 1 else predictions[0].variable.name}"


def _label(ax: Axes, predictions: Sequence[Predicted], across: str, up: str) -> None:
    dress(ax, "")
    entries = _style.shortened(_entries_in_words(predictions), _style.TEXT_SIZE, _NAME_ROOM)
    label = f"{across}\n{entries}"
    ax.set_xlabel(label, size=_style.TEXT_SIZE, color=_style.INK, parse_math=False)
    ax.set_ylabel(up, size=_style.TEXT_SIZE, color=_style.INK)


def draw_reliability(
    ax: Axes, predictions: Sequence[Predicted], num_bins: int, level: float
) -> None:
    """Share come true against the mean prediction, and how many predictions each bin holds."""
    found = reliability(predictions, num_bins, level)
    ax.plot([0.0, 1.0], [0.0, 1.0], "--", color=_style.MUTED, linewidth=0.9, zorder=2)
    ends = ax.vlines(found.mean, found.low, found.high, colors=_BAND, linewidths=9.0, zorder=1)
    ends.set_gid("interval")
    shares = _TALLEST_SHARE * found.counts / found.counts.max()
    ax.bar(found.mean, shares, width=0.4 / num_bins, bottom=_FLOOR, color=_BAR, zorder=2)
    ax.plot(found.mean, found.frequency, "-", color=_style.group_colour(0), lw=0.9, zorder=3)
    outside = (found.frequency < found.low) | (found.frequency > found.high)
    colours = np.where(outside, _style.ALARM, _style.group_colour(0)).tolist()
    ax.scatter(found.mean, found.frequency, s=22.0, c=colours, zorder=4, gid="frequency")
    _label(ax, predictions, "predicted probability", "share come true")
    ax.set(xlim=(-0.03, 1.03), ylim=(_FLOOR, 1.03), yticks=np.linspace(0.0, 1.0, 6))


def draw_histogram(ax: Axes, predictions: Sequence[Predicted], num_bins: int, level: float) -> None:
    """Density of P(X <= value), 1 where the model is right."""
    shares = pit_shares(predictions, num_bins)
    total = sum(own.values.size for own in predictions)
    low, high = interval(np.array([total]), 1.0 / num_bins, level)
    band = ax.axhspan(low[0] * num_bins, high[0] * num_bins, facecolor=_BAND, edgecolor="none")
    band.set(zorder=1, gid="interval")
    ax.axhline(1.0, color=_style.MUTED, linewidth=0.9, linestyle="--", zorder=3)
    centres = (np.arange(num_bins) + 0.5) / num_bins
    outside = (shares < low[0]) | (shares > high[0])
    colours = np.where(outside, _style.ALARM, _style.group_colour(0)).tolist()
    ax.bar(centres, shares * num_bins, width=0.9 / num_bins, color=colours, alpha=0.75, zorder=2)
    _label(ax, predictions, "P(X ≤ value)", "density")
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.1 * max(float(shares.max()), float(high[0])) * num_bins)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5))


def key(level: float, *, bars: bool) -> tuple[list[Handle], list[str]]:
    """What grey means, and the bars below a reliability curve where there is one."""
    handles: list[Handle] = [(Patch(facecolor=_BAND),)]
    labels = [f"{100 * level:g} % interval if the model is right"]
    if bars:
        handles.append((Patch(facecolor=_BAR),))
        labels.append("number of predictions")
    return handles, labels

"""Ticks over the slices of a sequence, as sparse as their names are wide."""

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, Locator

from dspn.data import Sequences
from dspn.plotting import _style
from dspn.plotting._order import order_texts, shared_start

_STEPS: Final = tuple(size * int(10**power) for power in range(8) for size in (1, 2, 5))
_MOST_TICKS: Final = 13
_NAME_ROOM: Final = 90.0
_GAP: Final = 12.0


@final
class SliceLocator(Locator):
    """Slices in view that are named: multiples of a step, and those to come counted from +1."""

    def __init__(self, ax: Axes, num_seen: int, num_slices: int, widest: float) -> None:
        self._ax = ax
        self._num_seen = num_seen
        self._num_slices = num_slices
        self._widest = widest

    def __call__(self) -> Sequence[float]:
        """The ticks of the present view."""
        low, high = self._ax.get_xlim()
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """The ticks between two places."""
        low, high = sorted((vmin, vmax))
        room = _style.size_in_points(self._ax)[0] / max(high - low, 1e-9)
        fewest = (high - low) / _MOST_TICKS
        step = _step(max((self._widest + _GAP) / room, fewest))
        ticks = np.arange(0, self._num_seen, step)
        if self._num_slices > self._num_seen:
            # A name that would touch the first of the slices to come is left out.
            ticks = ticks[(self._num_seen - ticks) * room > self._widest / 2 + _GAP]
        ahead = _step(max(2.4 * _GAP / room, fewest))
        later = np.arange(ahead if ahead > 2 else 1, self._num_slices - self._num_seen + 1, ahead)
        if ahead > 2 and self._num_slices > self._num_seen:
            later = np.concatenate([[1], later])
        found = np.concatenate([ticks, self._num_seen - 1 + later])
        inside: list[float] = found[(found >= low) & (found <= high)].tolist()
        return inside


def _step(least: float) -> int:
    return next((step for step in _STEPS if step >= least), _STEPS[-1])


def slice_axis(ax: Axes, num_slices: int, data: Sequences | None = None) -> None:
    """Slices along the lower edge, called as the order column of `data` has it, or by number.

    Slices after those of `data` are to come, and counted from +1.
    """
    texts = None if data is None else order_texts(data)
    num_seen = num_slices if data is None else data.total_slices
    label, names = "slice", None
    if data is not None and data.table_keys is not None and texts:
        start = shared_start(texts)
        label = str(data.table_keys.order) + (f" ({start.rstrip(' T-')})" if start else "")
        names = [text[len(start) :] for text in texts]
    longest = max(names, key=len) if names else str(num_seen - 1)
    widest = min(_style.text_width(longest, _style.SMALL_SIZE), _NAME_ROOM)

    def name(place: float, _: Any = None) -> str:
        number = round(place)
        if number >= num_seen:
            return f"+{number - num_seen + 1}"
        if names is None or number < 0:
            return str(number)
        return _style.shortened(names[number], _style.SMALL_SIZE, _NAME_ROOM)

    ax.set_xlim(-0.5, num_slices - 0.5)
    ax.set_xlabel(label, size=_style.TEXT_SIZE, color=_style.INK, parse_math=False)
    ax.xaxis.set_major_locator(SliceLocator(ax, num_seen, num_slices, widest))
    ax.xaxis.set_major_formatter(FuncFormatter(name))

"""A picture of the slices that follow a sequence, as their exact distributions."""

from matplotlib.axes import Axes

from dspn._checks import whole_number
from dspn.errors import DataError
from dspn.models.model import Data
from dspn.plotting import _style
from dspn.plotting._arguments import (
    AnyModel,
    Variables,
    checked_model,
    checked_share,
    chosen_variables,
    one_sequence,
)
from dspn.plotting._entries import Entries, levels_of
from dspn.plotting._order import sequence_words


def plot_forecast(
    model: AnyModel,
    sequence: Data,
    steps: int,
    ax: Axes | None = None,
    *,
    variable: Variables = None,
    level: float = 0.8,
    past: int | None = None,
) -> Axes:
    """P(x_{T+1}..x_{T+steps} | x_1..x_T) entry by entry, beside the slices that were seen.

    The new slices are on a shaded ground, drawn as `plot_imputed` draws missing entries; those
    missing among the slices that were seen are drawn so too. The numbers are those of
    `Model.forecast`.

    Args:
        variable: Variables to show, by name or number; all without it.
        level: Probability of the central interval of a number.
        past: How many of the last slices that were seen are shown; all count as evidence.
    """
    model = checked_model(model)
    data = one_sequence(sequence, model.schema)
    ahead = whole_number(steps, "steps", DataError)
    shown = data.total_slices
    if past is not None:
        shown = min(whole_number(past, "past", DataError), shown)
    columns = chosen_variables(model.schema, variable)
    level = checked_share(level, "level", 0.8)
    longer = data.extended(ahead)
    # The new slices are missing entries of the longer sequence, as `forecast` has it.
    found = model.marginals(longer, quantiles=levels_of(level))
    entries = Entries(
        longer.values,
        model.schema,
        found,
        columns,
        level=level,
        first=data.total_slices - shown,
        absent="not observed",
    )
    ax = entries.axes() if ax is None else ax
    _draw_ground(ax, data.total_slices, ahead)
    said = _style.counted(data.total_slices, "slice")
    whose = sequence_words(data)
    entries.draw(ax, f"Forecast{whose}: {_style.counted(ahead, 'slice')} after {said}", data)
    return ax


def _draw_ground(ax: Axes, num_slices: int, steps: int) -> None:
    """A shaded ground for the new slices, with a line where they begin."""
    start = num_slices - 0.5
    ground = ax.axvspan(start, start + steps, facecolor="#eceae4", edgecolor="none", zorder=0)
    ground.set_gid("forecast")
    ax.axvline(start, color=_style.INK, linewidth=1.0, zorder=6, gid="now")

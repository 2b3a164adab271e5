"""A picture of what is unexpected in a sequence: slices as bars, entries as cells."""

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.image import AxesImage
from matplotlib.patches import Patch

from dspn._arrays import Bools, Floats
from dspn._checks import require_type
from dspn.data import Sequences
from dspn.errors import DataError
from dspn.inference import Surprise
from dspn.models.model import Data
from dspn.plotting import _style
from dspn.plotting._arguments import AnyModel, checked_model, one_sequence
from dspn.plotting._order import sequence_words
from dspn.plotting._panels import (
    draw_scale,
    draw_surprise,
    dress,
    heading,
    new_panel,
    pooled,
)
from dspn.plotting._ticks import slice_axis
from dspn.plotting._values import HATCH, boxes_of, runs

_WIDTH: Final = 10.0
_ROW: Final = 0.24
_STRIP: Final = 0.9
_GAP: Final = 0.12
_TALLEST_CELLS: Final = 6.0
_MOST_NAMES: Final = 40
_NAME_ROOM: Final = 110.0
_TITLE: Final = "bars, of a slice given those before it; cells, of an entry given all others"


def plot_surprise(found: AnyModel | Surprise, sequence: Data, ax: Axes | None = None) -> Axes:
    """-log P(slice | slices before it) as bars, and -log P(entry | all other entries) as cells.

    Both in nats and exact, as `Model.surprise` has them; of a density they may be negative. Missing
    entries are hatched. Bars and cells have scales of their own, since the surprise of a slice is
    that of all its entries together. Where a sequence is impossible its cells are grey, and the
    slice that makes it so is marked by the sign of infinity.

    Args:
        found: A model, or what its `surprise` said of this sequence, then a `Sequences`.
    """
    data, said = _checked(found, sequence)
    num_variables = data.num_variables
    cells = float(np.clip(_ROW * num_variables, 0.5, _TALLEST_CELLS))
    share = cells / (cells + _GAP + _STRIP)
    if ax is None:
        ax = new_panel(_WIDTH, cells + _GAP + _STRIP + 0.9)
    missing = np.isnan(data.values)
    image = _draw_cells(ax, said.variables, missing, share)
    known = said.variables[np.isfinite(said.variables)]
    if known.size:
        ticks = np.linspace(*image.get_clim(), 3).tolist()
        draw_scale(ax, image, (0.0, share), ticks, unit="nats")
    strip = ax.inset_axes((0.0, 1.0 - _STRIP * share / cells, 1.0, _STRIP * share / cells))
    draw_surprise(said.slices, strip)
    strip.set_title("", loc="left")
    strip.set(xlim=(-0.5, data.total_slices - 0.5), xticks=[], gid="slices")
    _label(ax, data, missing)
    return ax


def _checked(found: AnyModel | Surprise, sequence: Data) -> tuple[Sequences, Surprise]:
    """The sequence, and the surprise of it."""
    if not isinstance(found, Surprise):
        model = checked_model(found, "found")
        data = one_sequence(sequence, model.schema)
        return data, model.surprise(data)
    remedy = "a list of arrays is read by the schema of a model, so give the model instead"
    require_type(sequence, Sequences, "sequence", DataError, remedy=remedy)
    assert isinstance(sequence, Sequences)
    data = one_sequence(sequence, sequence.schema)
    if found.variables.shape != data.values.shape:
        raise DataError(
            f"`found` must be the surprise of `sequence`, which has shape {data.values.shape}, but "
            f"is of shape {found.variables.shape}; give `model.surprise(sequence)`."
        )
    return data, found


def _draw_cells(ax: Axes, entries: Floats, missing: Bools, share: float) -> AxesImage:
    """The heat map in the lower share of the axes, a row for each variable, the first on top."""
    num_slices, num_variables = entries.shape
    picture, _ = pooled(entries.T)
    known = entries[np.isfinite(entries)]
    low, high = (round(float(end), 9) for end in (known.min(initial=0.0), known.max(initial=0.0)))
    image = ax.imshow(
        np.ma.masked_invalid(picture),
        cmap=_style.shades(_style.ALARM).with_extremes(bad=_style.FAINT),
        vmin=low,
        vmax=high if high > low else low + 1.0,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, num_slices - 0.5, num_variables - 0.5, -0.5),
        gid="entries",
    )
    ax.set_ylim(num_variables - 0.5, num_variables - 0.5 - num_variables / share)
    boxes = [
        box
        for variable in range(num_variables)
        for box in boxes_of(runs(missing[:, variable]), (variable - 0.5, variable + 0.5))
    ]
    hatched = PolyCollection(boxes, facecolors="white", gid="missing")
    hatched.set(edgecolor=HATCH, linewidth=0.0, hatch="/////", zorder=1)
    ax.add_collection(hatched, autolim=False)
    return image


def _label(ax: Axes, data: Sequences, missing: Bools) -> None:
    """Names of variables, slices, the title, and what hatching means where it occurs."""
    dress(ax, "")
    step = -(-data.num_variables // _MOST_NAMES)
    named = range(0, data.num_variables, step)
    words = [_style.shortened(data.schema.names[v], _style.SMALL_SIZE, _NAME_ROOM) for v in named]
    ax.set_yticks(list(named), words, color=_style.INK, parse_math=False)
    ax.tick_params(axis="y", length=0.0)
    slice_axis(ax, data.total_slices, data)
    handle = Patch(facecolor="white", edgecolor=HATCH, hatch="/////")
    title = f"Surprise (nats){sequence_words(data)}: {_TITLE}"
    heading(ax, title, [(handle,)] if missing.any() else [], ["missing"] if missing.any() else [])

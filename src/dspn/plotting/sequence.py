"""Pictures of one sequence: values, missing and future entries, interface posterior, surprise."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dspn._arrays import Bools, Floats
from dspn._checks import require_type, whole_number
from dspn.errors import DataError
from dspn.inference import Surprise
from dspn.models import Model
from dspn.models.model import Data
from dspn.plotting import _panels, _style, _values
from dspn.plotting._arguments import (
    AnyModel,
    Variables,
    checked_model,
    checked_share,
    component_of,
    one_sequence,
    variable_numbers,
)
from dspn.sequences import Kind, Schema, Sequences

_MOST_BANDS: Final = 40
_MOST_NAMES: Final = 40
_TALLEST: Final = 9.0
_TALLEST_VALUES: Final = 6.0
_TALLEST_CELLS: Final = 6.0
_STRIP: Final = 0.9
_GAP: Final = 0.12
_SURPRISE_TITLE: Final = (
    "bars, of a slice given those before it; cells, of an entry given all others"
)


def plot_filtered(
    values: Floats,
    schema: Schema,
    surprise: Floats,
    posterior: Floats | None = None,
    *,
    imputed: Floats | None = None,
    anomaly: int | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    figure: Figure | None = None,
) -> Figure:
    """One sequence over its slices: values, P(interface | evidence) and -log P(x_t | x_0..x_{t-1}).

    Args:
        values: (T, n) codes and numbers; NaN is missing and shown hatched.
        schema: The variables of a slice.
        surprise: (T,) in nats; infinite where a slice is impossible.
        posterior: (T, k), one row for each slice.
        imputed: (T, n), shown hollow where `values` is missing; NaN leaves an entry hatched.
        anomaly: A slice, counted from 0, to mark in all panels.
        groups: Interface positions of each group; rows of the posterior are set apart by group.
        figure: An empty figure to draw on; without one a figure 1200 pixels wide is made.
    """
    _check_filtered(values, schema, surprise, posterior, imputed, anomaly, groups)
    bands = [0.26 if v.kind is Kind.CATEGORICAL else 0.62 for v in schema]
    heights = [min(sum(bands), _TALLEST_VALUES), 1.2]
    if posterior is not None:
        heights.insert(1, float(np.clip(0.12 * posterior.shape[1], 0.9, 2.4)))
    if figure is None:
        width, height = _panels.WIDTH, sum(heights) + 0.5 + 0.3 * len(heights)
        dpi = _style.PIXELS_WIDE / width
        figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    panels = grid[:, 0]
    filled = np.full(values.shape, np.nan) if imputed is None else imputed
    filled = np.where(np.isnan(values), filled, np.nan)
    _draw_filtered_values(panels[0], values, filled, schema, bands)
    _panels.mark_anomaly(panels[0], anomaly)
    if posterior is not None:
        _panels.draw_posterior(posterior, panels[1], groups=groups, anomaly=anomaly)
    _panels.draw_surprise(surprise, panels[-1], anomaly=anomaly)
    _panels.slice_axis(panels[-1], len(values))
    return figure


def _check_filtered(
    values: Floats,
    schema: Schema,
    surprise: Floats,
    posterior: Floats | None,
    imputed: Floats | None,
    anomaly: int | None,
    groups: Sequence[Sequence[int]] | None,
) -> None:
    """Raises unless all arrays belong to one sequence."""
    if values.ndim != 2 or values.shape[1] != len(schema) or len(values) == 0:
        raise DataError(
            f"`values` must have at least one slice and {len(schema)} columns, one for each "
            f"variable of the schema, but has shape {values.shape}."
        )
    num_slices = len(values)
    rows = (None,) if posterior is None or posterior.ndim != 2 else (posterior.shape[1],)
    for argument, array, shape, rule in (
        ("surprise", surprise, (num_slices,), f"one entry for each of the {num_slices} slices"),
        (
            "posterior",
            posterior,
            (num_slices, *rows),
            f"one row for each of the {num_slices} slices",
        ),
        ("imputed", imputed, values.shape, f"the shape {values.shape} of `values`"),
    ):
        if array is not None and array.shape != shape:
            raise DataError(f"`{argument}` must have {rule}, but has shape {array.shape}.")
    if anomaly is not None and not 0 <= anomaly < num_slices:
        raise DataError(
            f"`anomaly` must be a slice between 0 and {num_slices - 1}, but is {anomaly}."
        )
    if groups is not None and posterior is not None:
        listed = sorted(position for group in groups for position in group)
        if listed != list(range(posterior.shape[1])):
            raise DataError(
                f"`groups` must hold each of the {posterior.shape[1]} interface positions of "
                f"`posterior` exactly once, but holds {listed}."
            )


def _draw_filtered_values(
    ax: Axes, values: Floats, filled: Floats, schema: Schema, heights: Sequence[float]
) -> None:
    """Every variable in its band, and what hatched and hollow mean where either occurs."""
    _panels.dress(ax, "")
    ax.set_xlim(-0.5, len(values) - 0.5)
    bands, lines = _values.draw_bands(ax, schema, heights)
    _style.set_title(ax, ["values"], _style.TEXT_SIZE, 4.0 + _panels.KEY_ROW * lines)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="x", length=0.0)
    for band, variable, own, guess in zip(bands, schema, values.T, filled.T, strict=True):
        if variable.kind is Kind.CATEGORICAL:
            _values.draw_filled_cells(band, own, guess, variable)
        else:
            style = "steps-mid" if variable.kind is Kind.COUNT else "default"
            _values.draw_numbers(band, own, guess, drawstyle=style)
            _values.draw_missing(band, np.isnan(own) & np.isnan(guess), *band.get_ylim())
        band.set_xlim(ax.get_xlim())
    missing, is_filled = np.isnan(values), ~np.isnan(filled)
    hatched = Patch(facecolor="white", **_values.HATCHED)
    hollow = Patch(facecolor="white", edgecolor=_values.LINE_COLOUR, linewidth=1.4)
    shown = [(missing & ~is_filled, hatched, "missing"), (is_filled, hollow, "imputed")]
    entries = [(handle, words) for where, handle, words in shown if where.any()]
    if entries:
        place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": len(entries)}
        space = {"borderaxespad": 0.0, "handlelength": 1.4, "columnspacing": 1.4}
        place["bbox_transform"] = _panels.raised(ax, lines)
        handles = [(handle,) for handle, _ in entries]
        _style.draw_legend(ax, handles, [words for _, words in entries], **place, **space)


def plot_imputed(
    model: AnyModel,
    sequence: Data,
    ax: Axes | None = None,
    *,
    variable: Variables = None,
    level: float = 0.8,
) -> Axes:
    """Observed entries, and P(entry | all observed entries) of every missing one, exactly.

    A missing category is a hatched column whose parts are as high as the probabilities; a missing
    number is the value that `Model.impute` gives it (the mean of a continuous variable, the median
    of a count) in a central interval. Each variable has a band of its own.

    Args:
        model: A model, or the network or mixture in it.
        sequence: Data that holds one sequence.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        variable: Variables to show, by name or number; all without it.
        level: Probability of the central interval of a number.
    """
    model = checked_model(model)
    data = one_sequence(sequence, model.schema)
    columns = variable_numbers(model.schema, variable)
    level = checked_share(level, "level", 0.8)
    shown = data.values[:, columns[:_MOST_BANDS]]
    counts = f"{np.isnan(shown).sum():,} of {_style.counted(shown.size, 'entry')} missing"
    slices = _style.counted(data.total_slices, "slice")
    whose = _panels.sequence_words(data)
    title = f"P(missing entry | observed entries){whose}: {slices}, {counts}"
    return _draw_entries(ax, model, data, data, columns, level, title)


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
    """P(x_{T+1}..x_{T+steps} | x_1..x_T) entry by entry, beside the observed slices.

    The new slices have a shaded background. Their entries, and those missing in observed slices,
    are drawn as `plot_imputed` draws missing entries. The numbers are those of `Model.forecast`.

    Args:
        model: A model, or the network or mixture in it.
        sequence: Data that holds one sequence.
        steps: How many slices are forecast.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        variable: Variables to show, by name or number; all without it.
        level: Probability of the central interval of a number.
        past: How many of the last observed slices are shown; all count as evidence.
    """
    model = checked_model(model)
    data = one_sequence(sequence, model.schema)
    ahead = whole_number(steps, "steps", DataError)
    num_slices = data.total_slices
    first = 0
    if past is not None:
        first = max(num_slices - whole_number(past, "past", DataError), 0)
    columns = variable_numbers(model.schema, variable)
    level = checked_share(level, "level", 0.8)
    seen, new = (_style.counted(number, "slice") for number in (num_slices, ahead))
    title = f"Forecast{_panels.sequence_words(data)}: {new} after {seen}"
    # The new slices are missing entries of the longer sequence, as `forecast` has it.
    longer = data.extended(ahead)
    ax = _draw_entries(ax, model, longer, data, columns, level, title, first, "not observed")
    start = num_slices - 0.5
    ground = ax.axvspan(start, start + ahead, facecolor="#eceae4", edgecolor="none", zorder=0)
    ground.set_gid("forecast")
    ax.axvline(start, color=_style.INK, linewidth=1.0, zorder=6, gid="now")
    return ax


def _draw_entries(
    ax: Axes | None,
    model: Model,
    entries: Sequences,
    data: Sequences,
    columns: Sequence[int],
    level: float,
    title: str,
    first: int = 0,
    absent: str = "missing",
) -> Axes:
    """Observed entries and the distributions of all others, each variable in its band.

    Args:
        entries: What is drawn; `data` is the part that was observed, and names its slices.
        columns: Variables to show.
        first: Slices before it are not shown.
        absent: The word for entries without a value.
    """
    schema = Schema(tuple(model.schema[column] for column in columns[:_MOST_BANDS]))
    heights = [0.42 if v.kind is Kind.CATEGORICAL else 0.8 for v in schema]
    if ax is None:
        ax = _panels.new_panel(_panels.WIDTH, min(sum(heights), _TALLEST) + 1.2)
    ends = (0.5 - level / 2, 0.5, 0.5 + level / 2)
    marginals = model.marginals(entries, quantiles=ends)
    _panels.dress(ax, "")
    _panels.slice_axis(ax, entries.total_slices, data)
    ax.set_xlim(left=first - 0.5)
    bands, lines = _values.draw_bands(ax, schema, heights)
    shown = set()
    for band, variable, column in zip(bands, schema, columns, strict=False):
        own, values = marginals[column], entries.values[:, column]
        if (own.slices >= first).any():
            shown.add(variable.kind)
        if variable.kind is Kind.CATEGORICAL:
            _values.draw_cells(band, values, own, first)
        else:
            answers = np.full((len(values), 3), np.nan)
            answers[own.slices] = np.column_stack([own.point(), own.quantiles[:, [0, -1]]])
            _values.draw_numbers(band, values, answers[:, 0], answers[:, 1:], first=first)
        band.set_xlim(ax.get_xlim())
    hidden = len(columns) - len(schema)
    more = f"; {_style.counted(hidden, 'more variable')} not shown" if hidden else ""
    _panels.heading(ax, title + more, *_entry_key(shown, absent, level), lines=lines)
    return ax


def _entry_key(
    kinds: set[Kind], absent: str, level: float
) -> tuple[list[_style.Handle], list[str]]:
    """What hatched columns and pale intervals mean, where there are any."""
    handles: list[_style.Handle] = []
    labels = []
    if Kind.CATEGORICAL in kinds:
        handles.append((Patch(facecolor=_style.BAR, edgecolor="white", hatch="/////"),))
        labels.append(f"{absent}: probability of each category")
    words = {Kind.CONTINUOUS: "mean", Kind.COUNT: "median"}
    points = [word for kind, word in words.items() if kind in kinds]
    if points:
        ring = Line2D([], [], linestyle="none", marker="o", markersize=4.5)
        ring.set(color=_values.LINE_COLOUR, markerfacecolor="white")
        handles.append((Patch(facecolor=_values.BAND_COLOUR), ring))
        labels.append(f"{absent}: {' or '.join(points)}, {100 * level:g} % interval")
    return handles, labels


def plot_interface(
    model: AnyModel, sequence: Data, ax: Axes | None = None, *, component: int | None = None
) -> Axes:
    """P(interface node chosen at the slice | all observed entries), a heat map over the slices.

    The nodes of each group add up to 1 at every slice.

    Args:
        model: A model, or the network or mixture in it.
        sequence: Data that holds one sequence.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        component: The component of a mixture to show, counted from 0, with its own posterior
            P(node | evidence, component). Without it the component that is likeliest given the
            sequence; the title says how likely it is.
    """
    model = checked_model(model)
    data = one_sequence(sequence, model.schema)
    shares = model.component_posteriors(data)[0]
    drawn = component_of(model, component, int(np.argmax(shares)))
    posterior = Model(drawn.network).interface_posteriors(data)
    num_slices, num_interfaces = posterior.shape
    if ax is None:
        height = 0.9 + float(np.clip(0.16 * num_interfaces, 1.0, 6.0))
        ax = _panels.new_panel(_panels.WIDTH, height)
    groups = drawn.network.groups
    _panels.draw_posterior(posterior, ax, groups=groups if len(groups) > 1 else None)
    if len(groups) == 1:
        ax.set_ylabel("interface node", size=_style.TEXT_SIZE, color=_style.INK)
    title = ax.get_title(loc="left").capitalize() + _panels.sequence_words(data)
    if drawn.words:
        title += f", {drawn.words}, posterior {shares[drawn.number]:.3g}"
    _panels.heading(ax, title)
    _panels.slice_axis(ax, num_slices, data)
    return ax


def plot_surprise(found: AnyModel | Surprise, sequence: Data, ax: Axes | None = None) -> Axes:
    """-log P(slice | slices before it) as bars, and -log P(entry | all other entries) as cells.

    Both are in nats and exact, as `Model.surprise` has them; of a density they may be negative.
    Missing entries are hatched. Bars and cells have scales of their own, since the surprise of a
    slice is that of all its entries together. Where a sequence is impossible its cells are grey,
    and the slice that makes it so is marked by the sign of infinity.

    Args:
        found: A model, or the result of its `surprise` for this sequence, then a `Sequences`.
        sequence: Data that holds one sequence.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
    """
    data, surprise = _checked_surprise(found, sequence)
    num_slices, num_variables = surprise.variables.shape
    cells = float(np.clip(0.24 * num_variables, 0.5, _TALLEST_CELLS))
    share = cells / (cells + _GAP + _STRIP)
    if ax is None:
        ax = _panels.new_panel(_panels.WIDTH, cells + _GAP + _STRIP + 0.9)
    missing = np.isnan(data.values)
    _draw_entry_surprises(ax, surprise.variables, missing, share)
    tall = _STRIP * share / cells
    strip = ax.inset_axes((0.0, 1.0 - tall, 1.0, tall))
    _panels.draw_surprise(surprise.slices, strip)
    strip.set_title("", loc="left")
    strip.set(xlim=(-0.5, num_slices - 0.5), xticks=[], gid="slices")
    _panels.dress(ax, "")
    named = range(0, num_variables, -(-num_variables // _MOST_NAMES))
    _panels.name_rows(ax, named, [data.schema.names[number] for number in named])
    _panels.slice_axis(ax, num_slices, data)
    title = f"Surprise (nats){_panels.sequence_words(data)}: {_SURPRISE_TITLE}"
    handle = Patch(facecolor="white", **_values.HATCHED)
    _panels.heading(ax, title, *(([(handle,)], ["missing"]) if missing.any() else ()))
    return ax


def _checked_surprise(found: AnyModel | Surprise, sequence: Data) -> tuple[Sequences, Surprise]:
    """The sequence, and its surprise."""
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


def _draw_entry_surprises(ax: Axes, entries: Floats, missing: Bools, share: float) -> None:
    """The heat map in the lower share of the axes, a row for each variable, the first on top."""
    num_variables = entries.shape[1]
    known = entries[np.isfinite(entries)]
    low, high = (round(float(end), 9) for end in (known.min(initial=0.0), known.max(initial=0.0)))
    cmap = _style.shades(_style.ALARM).with_extremes(bad=_style.FAINT)
    limits = (low, high if high > low else low + 1.0)
    image = _panels.draw_heat_map(ax, entries, cmap, limits)
    image.set_gid("entries")
    ax.set_ylim(num_variables - 0.5, num_variables - 0.5 - num_variables / share)
    corners = [
        _values.boxes(*_values.runs(own), variable - 0.5, variable + 0.5)
        for variable, own in enumerate(missing.T)
    ]
    style = {"facecolor": "white", "zorder": 1, "gid": "missing", **_values.HATCHED}
    _style.draw_polygons(ax, np.concatenate(corners), **style)
    if known.size:
        ticks = np.linspace(*limits, 3).tolist()
        _panels.draw_scale(ax, image, (0.0, share), ticks, unit="nats")

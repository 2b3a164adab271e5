"""Pictures of one sequence: values, missing and future entries, interface posterior, surprise."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dspn._arguments import Bools, Floats, require_type, whole_number
from dspn.data.schema import Kind, Schema
from dspn.data.sequences import Sequences
from dspn.errors import DataError
from dspn.inference.marginals import interface_posteriors
from dspn.inference.surprise import Surprise, usual_surprises
from dspn.models.model import Data
from dspn.plotting import _arguments, _panels, _style, _values
from dspn.plotting._arguments import AnyModel, Variables

_MOST_BANDS, _MOST_NAMES = 40, 40
# Lengths in inches.
_TALLEST, _TALLEST_VALUES, _TALLEST_CELLS = 9.0, 6.0, 6.0
_STRIP, _GAP = 0.9, 0.12
_SURPRISE: Final = "bars, of a slice given those before it; cells, of an entry given all others"


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
    arrays = {"surprise": surprise, "posterior": posterior, "imputed": imputed}
    _check_filtered(values, schema, anomaly, **arrays)
    if groups is not None and posterior is not None:
        listed = sorted(position for group in groups for position in group)
        if listed != list(range(posterior.shape[1])):
            raise DataError(
                f"`groups` must hold each of the {posterior.shape[1]} interface positions of "
                f"`posterior` exactly once, but holds {listed}."
            )
    bands = [0.26 if v.kind is Kind.CATEGORICAL else 0.62 for v in schema]
    heights = [min(sum(bands), _TALLEST_VALUES), 1.2]
    if posterior is not None:
        heights.insert(1, float(np.clip(0.12 * posterior.shape[1], 0.9, 2.4)))
    if figure is None:
        figure = _panels.new_figure(_panels.WIDTH, sum(heights) + 0.5 + 0.3 * len(heights))
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    panels = grid[:, 0]
    filled = np.where(np.isnan(values), np.nan if imputed is None else imputed, np.nan)
    _draw_filtered_values(panels[0], values, filled, schema, bands)
    _panels.mark_anomaly(panels[0], anomaly)
    if posterior is not None:
        _panels.draw_posterior(posterior, panels[1], groups, anomaly)
    _panels.draw_surprise(surprise, panels[-1], anomaly=anomaly)
    _panels.slice_axis(panels[-1], len(values))
    return figure


def _check_filtered(
    values: Floats, schema: Schema, anomaly: int | None, **others: Floats | None
) -> None:
    """Raises unless all arrays belong to one sequence, which has the slice `anomaly`."""
    if values.ndim != 2 or values.shape[1] != len(schema) or len(values) == 0:
        raise DataError(
            f"`values` must have at least one slice and {len(schema)} columns, one for each "
            f"variable of the schema, but has shape {values.shape}."
        )
    num_slices, posterior = len(values), others["posterior"]
    width = 0 if posterior is None else posterior.shape[-1]
    each = f"for each of the {num_slices} slices"
    shapes = {
        "surprise": ((num_slices,), f"one entry {each}"),
        "posterior": ((num_slices, width), f"one row {each}"),
        "imputed": (values.shape, f"the shape {values.shape} of `values`"),
    }
    for argument, (shape, rule) in shapes.items():
        array = others[argument]
        if array is not None and array.shape != shape:
            raise DataError(f"`{argument}` must have {rule}, but has shape {array.shape}.")
    if anomaly is not None and not 0 <= anomaly < num_slices:
        raise DataError(
            f"`anomaly` must be a slice between 0 and {num_slices - 1}, but is {anomaly}."
        )


def _draw_filtered_values(
    ax: Axes, values: Floats, filled: Floats, schema: Schema, heights: Sequence[float]
) -> None:
    """Every variable in its band, and what hatched and hollow mean where either occurs."""
    _panels.dress(ax)
    ax.set_xlim(-0.5, len(values) - 0.5)
    bands, lines = _values.draw_bands(ax, schema, heights)
    _style.set_title(ax, ["values"], _style.TEXT_SIZE, 4.0 + _panels.KEY_ROW * lines)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="x", length=0.0)
    for band, variable, own, guess in zip(bands, schema, values.T, filled.T, strict=True):
        if variable.kind is Kind.CATEGORICAL:
            _values.draw_filled_cells(band, own, guess, variable)
        else:
            is_count = variable.kind is Kind.COUNT
            _values.draw_numbers(band, own, guess, drawstyle="steps-mid" if is_count else "default")
            _values.draw_missing(band, np.isnan(own) & np.isnan(guess), *band.get_ylim())
        band.set_xlim(ax.get_xlim())
    key: dict[str, _style.Handle] = {}
    if (np.isnan(values) & np.isnan(filled)).any():
        key["missing"] = (Patch(facecolor="white", **_values.HATCHED),)
    if not np.isnan(filled).all():
        hollow = Patch(facecolor="white", edgecolor=_values.LINE_COLOUR, linewidth=1.4)
        key["imputed"] = (hollow,)
    if key:
        place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": len(key)}
        space = {"borderaxespad": 0.0, "handlelength": 1.4, "columnspacing": 1.4}
        _style.draw_legend(ax, key, bbox_transform=_panels.raised(ax, lines), **place, **space)


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
    return _plot_entries(model, sequence, ax, variable, level)


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
    ahead = whole_number(steps, "steps", DataError)
    shown = None if past is None else whole_number(past, "past", DataError)
    return _plot_entries(model, sequence, ax, variable, level, ahead, shown)


def _plot_entries(
    model: AnyModel,
    sequence: Data,
    ax: Axes | None,
    variable: Variables,
    level: float,
    steps: int = 0,
    past: int | None = None,
) -> Axes:
    """Observed entries and the distributions of all others, each variable in its band."""
    model = _arguments.checked_model(model)
    data = _arguments.one_sequence(sequence, model.schema)
    columns = _arguments.variable_numbers(model.schema, variable)
    level = _arguments.checked_share(level, "level", 0.8)
    schema = Schema(tuple(model.schema[column] for column in columns[:_MOST_BANDS]))
    heights = [0.42 if v.kind is Kind.CATEGORICAL else 0.8 for v in schema]
    if ax is None:
        ax = _panels.new_figure(_panels.WIDTH, min(sum(heights), _TALLEST) + 1.2).subplots()
    # New slices are missing entries of the longer sequence, as `forecast` has it.
    entries = data.extended(steps) if steps else data
    marginals = model.marginals(entries, quantiles=(0.5 - level / 2, 0.5, 0.5 + level / 2))
    first = 0 if past is None else max(data.total_slices - past, 0)
    _panels.dress(ax)
    _panels.slice_axis(ax, entries.total_slices, data)
    ax.set_xlim(left=first - 0.5)
    bands, lines = _values.draw_bands(ax, schema, heights)
    kinds = set()
    for band, kind, column in zip(bands, (v.kind for v in schema), columns, strict=False):
        own, values = marginals[column], entries.values[:, column]
        if (own.slices >= first).any():
            kinds.add(kind)
        if kind is Kind.CATEGORICAL:
            _values.draw_cells(band, values, own, first)
        else:
            answers = np.full((len(values), 3), np.nan)
            answers[own.slices] = np.column_stack([own.point(), own.quantiles[:, [0, -1]]])
            _values.draw_numbers(band, values, answers[:, 0], answers[:, 1:], first=first)
        band.set_xlim(ax.get_xlim())
    whose, seen = _panels.sequence_words(data), _style.counted(data.total_slices, "slice")
    shown = data.values[:, columns[:_MOST_BANDS]]
    counts = f"{np.isnan(shown).sum():,} of {_style.counted(shown.size, 'entry')} missing"
    title = f"P(missing entry | observed entries){whose}: {seen}, {counts}"
    if steps:
        title = f"Forecast{whose}: {_style.counted(steps, 'slice')} after {seen}"
        start = data.total_slices - 0.5
        ground = ax.axvspan(start, start + steps, facecolor="#eceae4", edgecolor="none", zorder=0)
        ground.set_gid("forecast")
        ax.axvline(start, color=_style.INK, linewidth=1.0, zorder=6, gid="now")
    if len(columns) > len(schema):
        more = _style.counted(len(columns) - len(schema), "more variable")
        title += f"; {more} not shown"
    key = _entry_key(kinds, "not observed" if steps else "missing", level)
    _panels.heading(ax, title, key, lines)
    return ax


def _entry_key(kinds: set[Kind], absent: str, level: float) -> dict[str, _style.Handle]:
    """What hatched columns and pale intervals mean, where there are any."""
    key: dict[str, _style.Handle] = {}
    if Kind.CATEGORICAL in kinds:
        hatched = Patch(facecolor=_style.BAR, edgecolor="white", hatch="/////")
        key[f"{absent}: probability of each category"] = (hatched,)
    words = {Kind.CONTINUOUS: "mean", Kind.COUNT: "median"}
    if points := [word for kind, word in words.items() if kind in kinds]:
        ring = Line2D([], [], linestyle="none", marker="o", markersize=4.5)
        ring.set(color=_values.LINE_COLOUR, markerfacecolor="white")
        label = f"{absent}: {' or '.join(points)}, {100 * level:g} % interval"
        key[label] = (Patch(facecolor=_values.BAND_COLOUR), ring)
    return key


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
    model = _arguments.checked_model(model)
    data = _arguments.one_sequence(sequence, model.schema)
    shares = model.component_posteriors(data)[0]
    number, words = _arguments.component_of(model, component, shares)
    posterior = interface_posteriors(model.compiled.component(number), data)
    num_slices, num_interfaces = posterior.shape
    if ax is None:
        height = 0.9 + float(np.clip(0.16 * num_interfaces, 1.0, 6.0))
        ax = _panels.new_figure(_panels.WIDTH, height).subplots()
    groups = model.components[number].groups
    _panels.draw_posterior(posterior, ax, groups if len(groups) > 1 else None)
    if len(groups) == 1:
        ax.set_ylabel("interface node", size=_style.TEXT_SIZE, color=_style.INK)
    head, sign, rest = ax.get_title(loc="left").capitalize().partition(",")
    title = f"{head}{_panels.sequence_words(data)}{sign}{rest}"
    if words:
        title += f", {words}, posterior {shares[number]:.3g}"
    _panels.heading(ax, title)
    _panels.slice_axis(ax, num_slices, data)
    return ax


def plot_surprise(
    found: AnyModel | Surprise,
    sequence: Data,
    ax: Axes | None = None,
    *,
    usual: Surprise | None = None,
) -> Axes:
    """-log P(slice | slices before it) as bars, and -log P(entry | all other entries) as cells.

    Both are in nats and exact, as `Model.surprise` has them; of a density they may be negative.
    Missing entries are hatched. Bars and cells have scales of their own, since the surprise of a
    slice is that of all its entries together. Where a sequence is impossible its cells are grey,
    and the slice that makes it so is marked by the sign of infinity.

    Args:
        found: A model, or the result of its `surprise` for this sequence, then a `Sequences`.
        sequence: Data that holds one sequence.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        usual: The surprise of many sequences, such as `model.surprise(table)`. Bars and cells then
            show what is above its medians, of slices and of each variable, so that variables of
            different units compare; what is below them has no colour.
    """
    data, surprise = _checked_surprise(found, sequence)
    entries, bars, words = surprise.variables, surprise.slices, _SURPRISE
    if usual is not None:
        require_type(usual, Surprise, "usual", DataError, remedy="give `model.surprise(table)`")
        entries = np.maximum(entries - usual_surprises(usual.variables), 0.0)
        seen = ~np.isnan(data.values).all(axis=1)  # of what is missing nothing is surprising
        bars = np.where(seen, bars - usual_surprises(usual.slices[:, None])[0], 0.0)
        words = f"above what is usual; {_SURPRISE}"
    num_slices, num_variables = entries.shape
    cells = float(np.clip(0.24 * num_variables, 0.5, _TALLEST_CELLS))
    share = cells / (cells + _GAP + _STRIP)
    if ax is None:
        ax = _panels.new_figure(_panels.WIDTH, cells + _GAP + _STRIP + 0.9).subplots()
    missing = np.isnan(data.values)
    _draw_entry_surprises(ax, entries, missing, share)
    tall = _STRIP * share / cells
    strip = ax.inset_axes((0.0, 1.0 - tall, 1.0, tall))
    _panels.draw_surprise(bars, strip)
    strip.set_title("", loc="left")
    strip.set(xlim=(-0.5, num_slices - 0.5), xticks=[], gid="slices")
    _panels.dress(ax)
    named = range(0, num_variables, -(-num_variables // _MOST_NAMES))
    _panels.name_rows(ax, named, [data.schema.names[number] for number in named])
    _panels.slice_axis(ax, num_slices, data)
    title = f"Surprise (nats){_panels.sequence_words(data)}: {words}"
    hatched = Patch(facecolor="white", **_values.HATCHED)
    _panels.heading(ax, title, {"missing": (hatched,)} if missing.any() else None)
    return ax


def _checked_surprise(found: AnyModel | Surprise, sequence: Data) -> tuple[Sequences, Surprise]:
    """The sequence, and its surprise."""
    if not isinstance(found, Surprise):
        model = _arguments.checked_model(found, "found")
        data = _arguments.one_sequence(sequence, model.schema)
        return data, model.surprise(data)
    remedy = "a list of arrays is read by the schema of a model, so give the model instead"
    require_type(sequence, Sequences, "sequence", DataError, remedy=remedy)
    assert isinstance(sequence, Sequences)
    data = _arguments.one_sequence(sequence, sequence.schema)
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
        _panels.draw_scale(ax, image, ticks, share, "nats")

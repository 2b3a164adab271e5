"""A picture of whether predicted probabilities come true."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dspn._arguments import Bools, Floats, Ints, checked_rng, whole_number
from dspn.data.layout import offsets_of
from dspn.data.schema import Kind, Variable
from dspn.data.sequences import Sequences, sequences_of
from dspn.errors import DataError
from dspn.inference.likelihood import bounded_runs, require_possible
from dspn.inference.marginals import leaf_mixtures
from dspn.leaves.base import Contextual
from dspn.leaves.told import row_tails
from dspn.models.model import Data, Model
from dspn.plotting import _arguments, _style
from dspn.plotting._arguments import AnyModel, Variables
from dspn.plotting._panels import dress, heading, new_figure

_PANEL_WIDTH, _PANEL_HEIGHT, _PANEL_SHARE = 4.6, 4.4, 0.44
_MOST_PANELS, _PANELS_A_ROW = 12, 3
_BAND: Final = "#dcdcdc"
_TALLEST_SHARE, _FLOOR, _NAME_ROOM = 0.14, -0.2, 180.0


def plot_calibration(
    model: AnyModel,
    data: Data,
    ax: Axes | None = None,
    *,
    variable: Variables = None,
    steps: int = 1,
    left_out: float | None = None,
    rng: np.random.Generator | None = None,
    num_bins: int = 10,
    level: float = 0.95,
    by_variable: bool = False,
) -> Axes:
    """How often what a model predicts comes true, over all observed entries of the data.

    An entry is predicted by its own marginal: given all slices up to `steps` before its own,
    P(x_v^t | x_1..x_{t-steps}), or, with `left_out`, given every entry that was not left out.
    Categories make a reliability curve: each category of each entry is one prediction p that comes
    true or not (of two categories only the second, since the first says the same), and the share
    that came true is drawn against the mean p, bin by bin. Numbers make a histogram of
    P(X <= value), which is flat where the model is right; a count spreads evenly from P(X < value)
    to P(X <= value).

    Grey is where a bin lies with probability `level` if the model is right and its predictions
    independent: the central binomial interval at the mean p of the bin, or at one part in
    `num_bins` of all numbers. Next slices of one variable are independent in this sense; variables
    of one slice, slices several steps ahead and left out entries need not be; a count varies less.

    Args:
        model: A model, or the network or mixture in it.
        data: Sequences with observed entries.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        variable: Variables to take, by name or number; all without it.
        steps: How far ahead slices are predicted. A model that is right one step ahead need not be
            so further ahead.
        left_out: Share of their observed entries to leave out, all at once, drawn by `rng`.
            Without it slices ahead are predicted, in time that grows with the square of the length.
        rng: Draws the entries that are left out.
        num_bins: Number of bins of the curve and of the histogram.
        level: Probability of the grey intervals.
        by_variable: A panel for each variable, of which the first dozen are shown.
    """
    model = _arguments.checked_model(model)
    batch = sequences_of(data, model.schema, "data")
    columns = _arguments.variable_numbers(model.schema, variable)
    bins = whole_number(num_bins, "num_bins", DataError, least=2)
    level = _arguments.checked_share(level, "level", 0.95)
    ahead = whole_number(steps, "steps", DataError)
    if left_out is None:
        predictions = predict_ahead(model, batch, columns, ahead)
        before = "those before it" if ahead == 1 else f"those up to {ahead} before it"
        given = f"each slice given {before}"
    else:
        if ahead > 1:
            raise DataError(
                f"`steps` must be 1 with `left_out`, which hides entries and not the last slices, "
                f"but is {ahead}; leave one of the two away."
            )
        share = _arguments.checked_share(left_out, "left_out", 0.2)
        predictions = predict_left_out(model, batch, columns, share, checked_rng(rng, DataError))
        given = "entries left out given the rest"
    if by_variable:
        return _draw_by_variable(ax, predictions, bins, level, f"Calibration: {given}")
    categories = [own for own in predictions if own.variable.kind is Kind.CATEGORICAL]
    numbers = [own for own in predictions if own.variable.kind is not Kind.CATEGORICAL]
    both = bool(categories and numbers)
    if ax is None:
        ax = new_figure((2.0 if both else 1.3) * _PANEL_WIDTH, _PANEL_HEIGHT).subplots()
    panels = [ax]
    if both:
        ax.set_axis_off()
        starts = (0.0, 1.0 - _PANEL_SHARE)
        panels = [ax.inset_axes((start, 0.0, _PANEL_SHARE, 1.0)) for start in starts]
    key = {f"{100 * level:g} % interval if the model is right": (Patch(facecolor=_BAND),)}
    if categories:
        _draw_reliability(panels[0], categories, bins, level)
        key["number of predictions"] = (Patch(facecolor=_style.BAR),)
    if numbers:
        _draw_histogram(panels[-1], numbers, bins, level)
    heading(ax, f"Calibration: {given}", key)
    return ax


def _draw_by_variable(
    ax: Axes | None, predictions: "_Predictions", num_bins: int, level: float, title: str
) -> Axes:
    """A panel for each variable, row by row."""
    shown = predictions[:_MOST_PANELS]
    columns = min(len(shown), _PANELS_A_ROW)
    rows = -(-len(shown) // columns)
    if ax is None:
        height = 0.8 + 0.75 * _PANEL_HEIGHT * rows
        ax = new_figure(2.0 * _PANEL_WIDTH, height).subplots()
    ax.set_axis_off()
    wide, tall = 1.0 / columns, 1.0 / rows
    for number, own in enumerate(shown):
        row, column = divmod(number, columns)
        corner = (column * wide + 0.18 * wide, 1.0 - (row + 0.72) * tall)
        panel = ax.inset_axes((*corner, 0.78 * wide, 0.7 * tall))
        is_category = own.variable.kind is Kind.CATEGORICAL
        (_draw_reliability if is_category else _draw_histogram)(panel, [own], num_bins, level)
    key = {f"{100 * level:g} % interval if the model is right": (Patch(facecolor=_BAND),)}
    more = len(predictions) - len(shown)
    heading(ax, title + (f"; {_style.counted(more, 'more variable')} not shown" * bool(more)), key)
    return ax


@final
class Predicted(NamedTuple):
    """Predictions of entries of one variable, and the values that they turned out to have.

    `answers` are the probabilities of the categories, (entries, categories); of a number they are
    P(X < value) and P(X <= value), which differ for a count.
    """

    variable: Variable
    values: Floats
    answers: Floats


_Predictions = Sequence[Predicted]


def _observed(data: Sequences, columns: Sequence[int]) -> Bools:
    """Which entries of some variables are observed; raises where none is."""
    observed = np.zeros(data.values.shape, dtype=np.bool_)
    observed[:, columns] = ~np.isnan(data.values[:, columns])
    if not observed.any():
        names = ", ".join(data.schema.names[column] for column in columns[:10])
        raise DataError(
            f"`data` must have observed entries of the variables to predict ({names}), but has "
            "none; give sequences in which they were observed."
        )
    return observed


def left_out_entries(
    data: Sequences, columns: Sequence[int], share: float, rng: np.random.Generator
) -> Bools:
    """A share of the observed entries of some variables, at least one, drawn at random."""
    observed = _observed(data, columns)
    places = np.flatnonzero(observed)
    chosen = np.zeros_like(observed)
    chosen.flat[rng.choice(places, size=max(1, round(share * places.size)), replace=False)] = True
    return chosen


def predict_left_out(
    model: Model, data: Sequences, columns: Sequence[int], share: float, rng: np.random.Generator
) -> list[Predicted]:
    """P(entry | all entries that are not left out) of a share of the observed entries."""
    chosen = left_out_entries(data, columns, share, rng)
    evidence = data.with_values(np.where(chosen, np.nan, data.values))
    return _predicted(model, [(evidence, chosen, data.values)])


def predict_ahead(
    model: Model, data: Sequences, columns: Sequence[int], steps: int = 1, most: int = 1 << 16
) -> list[Predicted]:
    """P(entry | slices up to `steps` before its own) of each observed entry.

    Args:
        columns: Variables to predict.
        steps: How far ahead slices are predicted.
        most: Beginnings of sequences are asked about in batches of at most so many slices.
    """
    before = np.arange(data.total_slices) - np.repeat(data.offsets[:-1], data.lengths)
    wanted = _observed(data, columns) & (before >= steps - 1)[:, None]
    if not wanted.any():
        raise DataError(
            f"`data` must have observed entries that are {steps} `steps` after the beginning of "
            f"their sequence, but the longest sequence has {data.lengths.max()} slices; give "
            "longer sequences, or fewer `steps`."
        )
    # Less evidence is never less probable: where this raises it names the sequence as it is given.
    model.component_posteriors(data)
    return _predicted(model, _beginnings(data, wanted, steps, most))


_Batch = tuple[Sequences, Bools, Floats]
"""Evidence, which of its missing entries are predicted, and their true values."""


def _beginnings(data: Sequences, wanted: Bools, steps: int, most: int) -> Iterator[_Batch]:
    """The slices up to each one with wanted entries, of which the last `steps` are blank."""
    ends = np.flatnonzero(wanted.any(axis=1))
    starts = np.repeat(data.offsets[:-1], data.lengths)[ends]
    lengths = ends - starts + 1
    for run in bounded_runs(lengths, most):
        offsets = offsets_of(lengths[run])
        rows = np.arange(offsets[-1]) + np.repeat(starts[run] - offsets[:-1], lengths[run])
        values, last = data.values[rows], np.zeros((len(rows), 1), dtype=np.bool_)
        values[offsets[1:, None] - np.arange(1, steps + 1)] = np.nan
        last[offsets[1:] - 1] = True
        evidence = Sequences.from_codes(values, offsets, data.schema, inputs=data.inputs[rows])
        yield evidence, wanted[rows] & last, data.values[rows]


def _predicted(model: Model, batches: Iterable[_Batch]) -> list[Predicted]:
    """The predictions of all batches, of each variable that has any."""
    banks = model.components[0].template.banks
    parts: list[list[tuple[Floats, Floats]]] = [[] for _ in model.schema]
    for evidence, wanted, truth in batches:
        for number, variable in enumerate(model.schema):
            values = truth[wanted[:, number], number]
            parts[number].append((values, np.zeros((values.size, variable.num_categories or 2))))
        log_likelihood = np.empty(len(evidence))
        mixtures = leaf_mixtures(model.compiled, evidence, wanted, log_likelihood)
        for number, entries, weights, parameters in mixtures:
            with np.errstate(invalid="ignore"):  # of an impossible sequence, which is refused below
                shares = weights / weights.sum(axis=1, keepdims=True)
            kind, (values, table) = model.schema[number].kind, parts[number][-1]
            if kind is Kind.CATEGORICAL:
                in_context = parameters.ndim == 3
                table[entries] = (
                    np.einsum("el,elk->ek", shares, parameters)
                    if in_context
                    else shares @ parameters
                )
                continue
            family = banks[number].family
            up_to = values[entries]
            below = up_to - 1.0 if kind is Kind.COUNT else up_to
            for column, end in enumerate((below, up_to)):
                mass = shares * (
                    row_tails(family.plain, parameters, end, 1.0)
                    if isinstance(family, Contextual)
                    else family.cdf(parameters, end)
                )
                table[entries, column] = mass.sum(axis=1)
        require_possible(model.compiled, evidence, log_likelihood)
    predictions = [
        Predicted(variable, *map(np.concatenate, zip(*own, strict=True)))
        for variable, own in zip(model.schema, parts, strict=True)
    ]
    return [own for own in predictions if own.values.size]


@final
class Reliability(NamedTuple):
    """Bins that hold predictions: how many, their mean, the share come true, and its interval."""

    counts: Ints
    mean: Floats
    frequency: Floats
    low: Floats
    high: Floats


def _interval(counts: Ints, share: Floats | float, level: float) -> tuple[Floats, Floats]:
    """Central binomial interval of the share of `counts` trials that succeed."""
    from scipy.stats import binom  # takes longer to import than all the rest

    low, high = (binom.ppf(end, counts, share) for end in (0.5 - level / 2, 0.5 + level / 2))
    return np.clip(low, 0, counts) / counts, np.clip(high, 0, counts) / counts


def reliability(predictions: _Predictions, num_bins: int, level: float) -> Reliability:
    """Predictions in bins of equal width by their probability; empty bins are left out."""
    chances, happened = [], []
    for own in predictions:
        num_categories = own.variable.num_categories
        first = 1 if num_categories == 2 else 0
        chances.append(own.answers[:, first:].ravel())
        happened.append((own.values[:, None] == np.arange(first, num_categories)).ravel())
    chance, true = np.concatenate(chances), np.concatenate(happened)
    place = np.minimum((chance * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(place, minlength=num_bins)
    used = counts > 0
    counts = counts[used]
    total, came = (np.bincount(place, part, num_bins)[used] for part in (chance, true))
    mean = np.minimum(total / counts, 1.0)  # a sum of probabilities may exceed 1 by rounding
    return Reliability(counts, mean, came / counts, *_interval(counts, mean, level))


def pit_shares(predictions: _Predictions, num_bins: int) -> Floats:
    """Share of P(X <= value) in bins of equal width; a count is spread over its own step."""
    below, up_to = np.concatenate([own.answers for own in predictions]).T
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    step = up_to - below
    spread = step > 0
    inside = np.clip(edges, below[spread, None], up_to[spread, None])
    masses = np.diff(inside, axis=1) / step[spread, None]
    points = np.minimum((up_to[~spread] * num_bins).astype(np.int64), num_bins - 1)
    total: Floats = masses.sum(axis=0) + np.bincount(points, minlength=num_bins)
    return total / len(up_to)


def _label(ax: Axes, predictions: _Predictions, across: str, up: str) -> None:
    dress(ax)
    entries = _style.counted(sum(own.values.size for own in predictions), "entry")
    several = f"{len(predictions)} variables"
    words = f"{entries} of {several if len(predictions) > 1 else predictions[0].variable.name}"
    label = f"{across}\n{_style.shortened(words, _style.TEXT_SIZE, _NAME_ROOM)}"
    ax.set_xlabel(label, size=_style.TEXT_SIZE, color=_style.INK, parse_math=False)
    ax.set_ylabel(up, size=_style.TEXT_SIZE, color=_style.INK)


def _colours(shares: Floats, low: Floats, high: Floats) -> Any:
    """The colour of alarm for shares outside their interval."""
    return np.where((shares < low) | (shares > high), _style.ALARM, _style.group_colour(0)).tolist()


def _draw_reliability(ax: Axes, predictions: _Predictions, num_bins: int, level: float) -> None:
    """Share come true against the mean prediction, and how many predictions each bin holds."""
    found = reliability(predictions, num_bins, level)
    ax.plot([0.0, 1.0], [0.0, 1.0], "--", color=_style.MUTED, linewidth=0.9, zorder=2)
    ends = ax.vlines(found.mean, found.low, found.high, colors=_BAND, linewidths=9.0, zorder=1)
    ends.set_gid("interval")
    shares = _TALLEST_SHARE * found.counts / found.counts.max()
    ax.bar(found.mean, shares, width=0.4 / num_bins, bottom=_FLOOR, color=_style.BAR, zorder=2)
    ax.plot(found.mean, found.frequency, "-", color=_style.group_colour(0), lw=0.9, zorder=3)
    colours = _colours(found.frequency, found.low, found.high)
    ax.scatter(found.mean, found.frequency, s=22.0, c=colours, zorder=4, gid="frequency")
    _label(ax, predictions, "predicted probability", "share come true")
    ax.set(xlim=(-0.03, 1.03), ylim=(_FLOOR, 1.03), yticks=np.linspace(0.0, 1.0, 6))


def _draw_histogram(ax: Axes, predictions: _Predictions, num_bins: int, level: float) -> None:
    """Density of P(X <= value), 1 where the model is right."""
    shares = pit_shares(predictions, num_bins)
    total = np.array([sum(own.values.size for own in predictions)])
    low, high = _interval(total, 1.0 / num_bins, level)
    band = ax.axhspan(low[0] * num_bins, high[0] * num_bins, facecolor=_BAND, zorder=1)
    band.set(edgecolor="none", gid="interval")
    ax.axhline(1.0, color=_style.MUTED, linewidth=0.9, linestyle="--", zorder=3)
    centres = (np.arange(num_bins) + 0.5) / num_bins
    style = {"width": 0.9 / num_bins, "color": _colours(shares, low, high), "alpha": 0.75}
    ax.bar(centres, shares * num_bins, zorder=2, **style)
    _label(ax, predictions, "P(X ≤ value)", "density")
    highest = 1.1 * max(float(shares.max()), float(high[0])) * num_bins
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, highest))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5))

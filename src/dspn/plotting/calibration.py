"""A picture of whether predicted probabilities come true."""

from typing import Final

import numpy as np
from matplotlib.axes import Axes

from dspn._arrays import Bools
from dspn._checks import checked_rng, whole_number
from dspn.data import Kind, Sequences
from dspn.data.sequences import sequences_of
from dspn.errors import DataError
from dspn.inference.likelihood import possible_likelihood
from dspn.models import Model
from dspn.models.model import Data
from dspn.plotting._arguments import (
    AnyModel,
    Variables,
    checked_model,
    checked_share,
    chosen_variables,
)
from dspn.plotting._panels import heading, new_panel
from dspn.plotting._predictive import (
    Predicted,
    beginnings,
    joined,
    left_out_entries,
    predicted,
)
from dspn.plotting._reliability import draw_histogram, draw_reliability, key

_PANEL: Final = 4.6
_HEIGHT: Final = 4.4
_SHARE: Final = 0.44


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
) -> Axes:
    """How often what a model predicts comes true, over all observed entries of the data.

    An entry is predicted by its own marginal: given all slices up to `steps` before its own,
    P(x_v^t | x_1..x_{t-steps}), or, with `left_out`, given every entry that was not left out.
    Categories make a
    reliability curve: each category of each entry is one prediction p that comes true or not (of
    two categories only the second, since the first says the same), and the share that came true is
    drawn against the mean p, bin by bin. Numbers make a histogram of P(X <= value), which is flat
    where the model is right; a count spreads evenly from P(X < value) to P(X <= value).

    Grey is where a bin lies with probability `level` if the model is right and its predictions
    independent: the central binomial interval at the mean p of the bin, or at one part in
    `num_bins` of all numbers. Next slices of one variable are independent in this sense; variables
    of one slice, slices several steps ahead and left out entries need not be; a count varies less.

    Args:
        variable: Variables to take, by name or number; all without it.
        steps: How far ahead slices are predicted. A model that is right one step ahead need not be
            so further ahead.
        left_out: Share of their observed entries to leave out, all at once, drawn by `rng`.
            Without it slices ahead are predicted, in time that grows with the square of the length.
    """
    model = checked_model(model)
    batch = sequences_of(data, model.schema, "data")
    columns = chosen_variables(model.schema, variable)
    bins = whole_number(num_bins, "num_bins", DataError, least=2)
    level = checked_share(level, "level", 0.95)
    ahead = whole_number(steps, "steps", DataError)
    found = _predictions(model, batch, columns, left_out, rng, ahead)
    how = "each slice given those before it"
    if left_out is not None:
        how = "entries left out given the rest"
    elif ahead > 1:
        how = f"each slice given those up to {ahead} before it"
    categories = [own for own in found if own.variable.kind is Kind.CATEGORICAL]
    numbers = [own for own in found if own.variable.kind is not Kind.CATEGORICAL]
    if ax is None:
        ax = new_panel(2 * _PANEL if categories and numbers else 1.3 * _PANEL, _HEIGHT)
    panels = _panels(ax, both=bool(categories and numbers))
    if categories:
        draw_reliability(panels[0], categories, bins, level)
    if numbers:
        draw_histogram(panels[-1], numbers, bins, level)
    heading(ax, f"Calibration: {how}", *key(level, bars=bool(categories)))
    return ax


def _predictions(
    model: Model,
    data: Sequences,
    columns: list[int],
    share: float | None,
    rng: np.random.Generator | None,
    steps: int = 1,
) -> list[Predicted]:
    """Predictions of each variable asked for that has any."""
    wanted = np.zeros(data.values.shape, dtype=np.bool_)
    wanted[:, columns] = ~np.isnan(data.values[:, columns])
    if not wanted.any():
        names = ", ".join(data.schema.names[column] for column in columns[:10])
        raise DataError(
            f"`data` must have observed entries of the variables to predict ({names}), but has "
            "none; give sequences in which they were observed."
        )
    if share is None:
        return _slices_ahead(model, data, wanted, steps)
    if steps > 1:
        raise DataError(
            f"`steps` must be 1 with `left_out`, which hides entries and not the last slices, but "
            f"is {steps}; leave one of the two away."
        )
    generator = checked_rng(rng, DataError)
    chosen = left_out_entries(data, columns, checked_share(share, "left_out", 0.2), generator)
    evidence = data.with_values(np.where(chosen, np.nan, data.values))
    return _present([predicted(model.compiled, evidence, chosen, data.values)])


def _slices_ahead(model: Model, data: Sequences, wanted: Bools, steps: int) -> list[Predicted]:
    before = np.arange(data.total_slices) - np.repeat(data.offsets[:-1], data.lengths)
    wanted = wanted & (before >= steps - 1)[:, None]
    if not wanted.any():
        raise DataError(
            f"`data` must have observed entries that are {steps} `steps` after the beginning of "
            f"their sequence, but the longest sequence has {data.lengths.max()} slices; give "
            "longer sequences, or fewer `steps`."
        )
    # Less evidence is never less probable: what is refused here names the sequence as it is given.
    possible_likelihood(model.compiled, data)
    batches = []
    for evidence, rows in beginnings(data, wanted, steps):
        last = np.zeros(len(rows), dtype=np.bool_)
        last[evidence.offsets[1:] - 1] = True
        own = wanted[rows] & last[:, None]
        batches.append(predicted(model.compiled, evidence, own, data.values[rows]))
    return _present(batches)


def _present(batches: list[list[Predicted]]) -> list[Predicted]:
    """The predictions of all batches together, of each variable that has any."""
    together = [joined(parts) for parts in zip(*batches, strict=True)]
    return [own for own in together if own.values.size]


def _panels(ax: Axes, *, both: bool) -> list[Axes]:
    """The axes themselves for one kind of entry; for two kinds, two panels side by side in them."""
    if not both:
        return [ax]
    ax.set_axis_off()
    return [ax.inset_axes((left, 0.0, _SHARE, 1.0)) for left in (0.0, 1.0 - _SHARE)]

"""A picture of one sequence as the filter saw it: values, interface posterior and surprise."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from dspn._arrays import Floats
from dspn.data import Schema
from dspn.errors import DataError
from dspn.plotting import _style
from dspn.plotting._panels import draw_posterior, draw_surprise
from dspn.plotting._ticks import slice_axis
from dspn.plotting._values import band_heights, draw_values

_WIDTH = 10.0
_TALLEST_VALUES = 6.0


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
        surprise: (T,) in nats; infinite where a slice is impossible.
        posterior: (T, k), one row for each slice.
        imputed: (T, n), shown hollow where `values` is missing; NaN leaves an entry hatched.
        anomaly: a slice, counted from 0, to mark in all panels.
        groups: interface positions of each group; rows of the posterior are set apart by group.
        figure: an empty figure to draw on; without one a figure 1200 pixels wide is made.
    """
    num_slices = _check(values, schema, surprise, posterior, imputed, anomaly)
    if groups is not None and posterior is not None:
        _check_groups(groups, posterior.shape[1])
    heights = [min(sum(band_heights(schema)), _TALLEST_VALUES)]
    if posterior is not None:
        heights.append(float(np.clip(0.12 * posterior.shape[1], 0.9, 2.4)))
    heights.append(1.2)
    if figure is None:
        size = (_WIDTH, sum(heights) + 0.5 + 0.3 * len(heights))
        figure = Figure(figsize=size, dpi=_style.PIXELS_WIDE / _WIDTH, layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[
        :, 0
    ]
    draw_values(values, schema, panels[0], imputed=imputed, anomaly=anomaly)
    if posterior is not None:
        draw_posterior(posterior, panels[1], groups=groups, anomaly=anomaly)
    draw_surprise(surprise, panels[-1], anomaly=anomaly)
    slice_axis(panels[-1], num_slices)
    return figure


def _check(
    values: Floats,
    schema: Schema,
    surprise: Floats,
    posterior: Floats | None,
    imputed: Floats | None,
    anomaly: int | None,
) -> int:
    """Raises unless all arrays belong to one sequence; returns its number of slices."""
    if values.ndim != 2 or values.shape[1] != len(schema) or len(values) == 0:
        raise DataError(
            f"`values` must have at least one slice and {len(schema)} columns, one for each "
            f"variable of the schema, but has shape {values.shape}."
        )
    num_slices = len(values)
    if surprise.shape != (num_slices,):
        raise DataError(
            f"`surprise` must have one entry for each of the {num_slices} slices, but has shape "
            f"{surprise.shape}."
        )
    if posterior is not None and (posterior.ndim != 2 or len(posterior) != num_slices):
        raise DataError(
            f"`posterior` must have one row for each of the {num_slices} slices, but has shape "
            f"{posterior.shape}."
        )
    if imputed is not None and imputed.shape != values.shape:
        raise DataError(
            f"`imputed` must have the shape {values.shape} of `values`, but has shape "
            f"{imputed.shape}."
        )
    if anomaly is not None and not 0 <= anomaly < num_slices:
        raise DataError(
            f"`anomaly` must be a slice between 0 and {num_slices - 1}, but is {anomaly}."
        )
    return num_slices


def _check_groups(groups: Sequence[Sequence[int]], num_interfaces: int) -> None:
    listed = sorted(position for group in groups for position in group)
    if listed != list(range(num_interfaces)):
        raise DataError(
            f"`groups` must hold each of the {num_interfaces} interface positions of `posterior` "
            f"exactly once, but holds {listed}."
        )

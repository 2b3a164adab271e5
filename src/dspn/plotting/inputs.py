"""The effect of inputs: what a model expects where an input has each of its values."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dspn._arguments import Floats
from dspn.data.schema import Kind
from dspn.data.sequences import sequences_of
from dspn.errors import DataError
from dspn.inference.effects import InputEffect, VariableEffect, input_effect
from dspn.models.model import Data
from dspn.plotting import _arguments, _style
from dspn.plotting._arguments import AnyModel
from dspn.plotting._panels import dress, heading, new_figure

_WIDTH, _ROW_HEIGHT = 10.0, 3.2
_MOST_VARIABLES, _MOST_INPUTS, _MOST_NODES, _MOST_LABELS = 3, 4, 12, 8
# Shares of nodes that change by less are not shown.
_LEAST_CHANGE: Final = 0.02
_COLOUR: Final = _style.group_colour(0)


def plot_input_effect(
    model: AnyModel,
    data: Data,
    ax: Axes | None = None,
    *,
    inputs: str | Sequence[str] | None = None,
    seed: int = 0,
) -> Axes:
    """What the model expects of each variable by the value of an input, a row for each input.

    A row has the three variables that the input changes most: of a number the mean and the band
    from 10 % to 90 %, of a category the probability of each. Dots are the means, or the shares, of
    the data. The last panel has the share of each interface node where the input changes it.
    Sequences are drawn with the inputs of the data; see `dspn.inference.effects`.

    Args:
        model: A model, or the network or mixture in it.
        data: Sequences with the inputs of the model.
        ax: Axes to draw on; without them a figure 1200 pixels wide is made.
        inputs: Inputs to take, by name; the first four without it.
        seed: Of the draws.
    """
    model = _arguments.checked_model(model)
    if not model.schema.inputs:
        raise DataError("the effect of inputs needs a model with inputs, but this one has none.")
    batch = sequences_of(data, model.schema, "data")
    names = [own.name for own in model.schema.inputs]
    asked = [inputs] if isinstance(inputs, str) else list(inputs or names)
    effects = [
        input_effect(model.compiled, batch, name, seed=seed) for name in asked[:_MOST_INPUTS]
    ]
    rows = [_panels_of(effect) for effect in effects]
    if ax is None:
        ax = new_figure(_WIDTH, 0.7 + _ROW_HEIGHT * len(rows)).subplots()
    ax.set_axis_off()
    wide, tall = 1.0 / max(map(len, rows)), 1.0 / len(rows)
    for number, (effect, row) in enumerate(zip(effects, rows, strict=True)):
        for column, own in enumerate(row):
            corner = (column * wide + 0.12 * wide, 1.0 - (number + 0.84) * tall)
            panel = ax.inset_axes((*corner, 0.82 * wide, 0.72 * tall))
            if own is None:
                _draw_shares(panel, effect, effect.nodes, None, "share of each node")
            elif own.variable.kind is Kind.CATEGORICAL:
                _draw_shares(panel, effect, own.mean, own, f"P({own.variable.name})")
            else:
                _draw_number(panel, effect, own)
            _dress_values(panel, effect)
    left = len(names if inputs is None else asked) - len(effects)
    more = f"; {_style.counted(left, 'more input')} not shown" * bool(left)
    dot = Line2D([], [], color=_style.INK, marker="o", ls="", markersize=3.5)
    key: dict[str, _style.Handle] = {
        "expected by the model": (Line2D([], [], color=_COLOUR),),
        "10 % to 90 %": (Patch(facecolor=_style.tint(_COLOUR, 0.25)),),
        "mean of the data": (dot,),
    }
    heading(ax, f"What inputs change{more}", key)
    return ax


def _panels_of(effect: InputEffect) -> list[VariableEffect | None]:
    """The variables that an input changes most, and None for the nodes where it changes them."""
    order = sorted(effect.variables, key=lambda own: -own.share)[:_MOST_VARIABLES]
    changes = np.ptp(effect.nodes, axis=0).max() >= _LEAST_CHANGE
    return [*order, *([None] if changes and effect.nodes.shape[1] <= _MOST_NODES else [])]


def _draw_number(ax: Axes, effect: InputEffect, own: VariableEffect) -> None:
    """Mean and band, as lines where values have an order and as bars where they have none."""
    places, low, high = _places(effect), *own.band.T
    if effect.is_ordered:
        ax.fill_between(places, low, high, color=_style.tint(_COLOUR, 0.25), lw=0)
        ax.plot(places, own.mean, color=_COLOUR, lw=1.6)
    else:
        ax.vlines(places, low, high, color=_style.tint(_COLOUR, 0.25), lw=12.0)
        ax.hlines(own.mean, places - 0.25, places + 0.25, color=_COLOUR, lw=2.0)
    ax.plot(places, own.observed, "o", color=_style.INK, markersize=3.0)
    dress(ax, own.variable.name)


def _draw_shares(
    ax: Axes, effect: InputEffect, shares: Floats, own: VariableEffect | None, title: str
) -> None:
    """A line for each category or node, named at its end."""
    places, count = _places(effect), shares.shape[1]
    names: Sequence[object] = range(count) if own is None else own.variable.categories
    colours = _style.category_colours(count)
    shown = range(1, 2) if own is not None and count == 2 else range(count)
    for number in shown:
        colour = _COLOUR if len(shown) == 1 else _style.dark(colours[number])
        style = {"color": colour, "lw": 1.4}
        if effect.is_ordered:
            ax.plot(places, shares[:, number], **style)  # type: ignore[arg-type]
        else:
            ax.hlines(shares[:, number], places - 0.25, places + 0.25, **style)  # type: ignore[arg-type]
        if own is not None:
            dots = _style.INK if len(shown) == 1 else colour
            ax.plot(places, own.observed[:, number], "o", color=dots, markersize=3.0)
        if len(shown) > 1:
            end = (float(places[-1]), float(shares[-1, number]))
            text = _style.shortened(str(names[number]), _style.SMALL_SIZE, 60.0)
            _style.note(ax, end, (5.0, 0.0), text, color=colour)
    if len(shown) == 1:
        title = f"{title[:-1]} = {names[1]})"
    ax.set_ylim(-0.03, 1.03)
    dress(ax, title)


def _places(effect: InputEffect) -> Floats:
    """Where groups stand: numbers at their values, categories side by side."""
    is_number = effect.variable.kind is not Kind.CATEGORICAL
    return effect.places if is_number else np.arange(effect.places.size, dtype=np.float64)


def _dress_values(ax: Axes, effect: InputEffect) -> None:
    """The name of the input under the axis, and its categories."""
    ax.set_xlabel(effect.variable.name, size=_style.SMALL_SIZE, color=_style.MUTED)
    if effect.variable.kind is Kind.CATEGORICAL:
        labels = effect.labels()
        step = -(-len(labels) // _MOST_LABELS)
        ax.set_xticks(range(0, len(labels), step), labels[::step])
        ax.set_xlim(-0.5, len(labels) - 0.5)

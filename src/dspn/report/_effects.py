"""Small pictures of what inputs change, as SVG that needs no script."""

from collections.abc import Iterable
from html import escape
from typing import Final

import numpy as np

from dspn._arguments import Floats
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.inference.effects import InputEffect, VariableEffect, input_effect
from dspn.models.model import Model
from dspn.plotting._style import category_colours, dark, group_colour, shortened

_MOST_INPUTS: Final = 6
_MOST_VARIABLES: Final = 4
_MOST_LINES: Final = 6
_WIDE, _TALL = 250.0, 165.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 232.0, 26.0, 124.0
_COLOUR: Final = group_colour(0)
_TEXT: Final = 'font-size="10" fill="currentColor"'


def effect_figures(model: Model, data: Sequences) -> Iterable[str]:
    """For each input the variables that it changes most, by its value."""
    for own in model.schema.inputs[:_MOST_INPUTS]:
        effect = input_effect(model.compiled, data, own.name)
        chosen = sorted(effect.variables, key=lambda found: -found.share)[:_MOST_VARIABLES]
        title = f"What the input {own.name} changes: expected by the model, with its 80 % band"
        pictures = "".join(_picture(effect, found) for found in chosen)
        yield (
            f"<details open><summary>{escape(title)} (dots: the data)</summary>"
            f'<div class="table pictures" tabindex="0" role="region" aria-label="{escape(title)}">'
            f"{pictures}</div></details>"
        )


def _picture(effect: InputEffect, own: VariableEffect) -> str:
    """One variable: mean and band of a number, or the probability of each category."""
    is_category = own.variable.kind is Kind.CATEGORICAL
    places = effect.places
    if effect.variable.kind is Kind.CATEGORICAL:
        places = np.arange(places.size, dtype=np.float64)
    title, low, high, parts = own.variable.name, 0.0, 1.0, list[str]()
    if not is_category:
        every = np.concatenate([own.band.ravel(), own.observed])
        low, high = float(np.nanmin(every)), float(np.nanmax(every))

    def across(values: Floats) -> Floats:
        span = float(np.ptp(places)) or 1.0
        return np.asarray(_LEFT + 8 + (values - places.min()) / span * (_RIGHT - _LEFT - 16))

    def up(values: Floats) -> Floats:
        return np.asarray(_BOTTOM - (values - low) / ((high - low) or 1.0) * (_BOTTOM - _TOP))

    x = across(places)
    if is_category:
        count = own.mean.shape[1]
        changes = np.argsort(-np.ptp(own.mean, axis=0), kind="stable")[:_MOST_LINES]
        shown = [1] if count == 2 else sorted(changes.tolist())
        colours = category_colours(count)
        if count == 2:
            title = f"P({title} = {own.variable.categories[1]})"
        for number in shown:
            colour = _COLOUR if count == 2 else dark(colours[number])
            parts += _line(effect, x, up(own.mean[:, number]), colour)
            parts += _dots(x, up(own.observed[:, number]), "currentColor" if count == 2 else colour)
            if count > 2:
                text = escape(shortened(str(own.variable.categories[number]), 8.0, 40.0))
                y = float(up(own.mean[-1:, number])[0])
                parts.append(
                    f'<text x="{x[-1]:.1f}" y="{y - 4:.1f}" font-size="9" text-anchor="end" '
                    f'fill="{colour}">{text}</text>'
                )
    else:
        lower, upper = up(own.band[:, 0]), up(own.band[:, 1])
        if effect.is_ordered and x.size > 1:
            corners = [*zip(x, upper, strict=True), *zip(x[::-1], lower[::-1], strict=True)]
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
            parts.append(f'<polygon points="{points}" fill="{_COLOUR}" fill-opacity="0.25"/>')
        else:
            parts += [
                f'<rect x="{a - 5:.1f}" y="{t:.1f}" width="10" height="{max(b - t, 0.5):.1f}" '
                f'fill="{_COLOUR}" fill-opacity="0.25"/>'
                for a, t, b in zip(x, upper, lower, strict=True)
            ]
        parts += _line(effect, x, up(own.mean), _COLOUR)
        parts += _dots(x, up(own.observed), "currentColor")
    marks, labels = x, effect.labels()
    if effect.variable.kind is not Kind.CATEGORICAL:
        ends = np.linspace(float(places.min()), float(places.max()), 3)
        marks, labels = across(ends), [f"{value:.2g}" for value in ends]
    step = -(-len(labels) // 5)
    for place, label in list(zip(marks.tolist(), labels, strict=True))[::step]:
        text = escape(shortened(label, 10.0, 44.0))
        parts.append(
            f'<text x="{place:.1f}" y="{_BOTTOM + 15}" {_TEXT} text-anchor="middle">{text}</text>'
        )
    for value, y in ((low, _BOTTOM), (high, _TOP + 8)):
        text = f"{value:.3g}"
        parts.append(f'<text x="{_LEFT - 4}" y="{y}" {_TEXT} text-anchor="end">{text}</text>')
    name = escape(shortened(title, 11.0, 200.0))
    axis = escape(shortened(effect.variable.name, 10.0, 180.0))
    middle = (_LEFT + _RIGHT) / 2
    return (
        f'<svg width="{_WIDE:g}" height="{_TALL:g}" role="img" aria-label="{name} by {axis}">'
        f'<text x="{_LEFT}" y="14" font-size="11" fill="currentColor">{name}</text>'
        f'<line x1="{_LEFT}" y1="{_BOTTOM}" x2="{_RIGHT}" y2="{_BOTTOM}" stroke="currentColor" '
        f'stroke-opacity="0.3"/>{"".join(parts)}'
        f'<text x="{middle}" y="{_TALL - 8}" {_TEXT} text-anchor="middle">{axis}</text></svg>'
    )


def _line(effect: InputEffect, x: Floats, y: Floats, colour: str) -> list[str]:
    """A line where the values of the input have an order, else a short bar at each."""
    if effect.is_ordered:
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        return [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>']
    return [
        f'<line x1="{a - 7:.1f}" x2="{a + 7:.1f}" y1="{b:.1f}" y2="{b:.1f}" stroke="{colour}" '
        'stroke-width="2"/>'
        for a, b in zip(x, y, strict=True)
    ]


def _dots(x: Floats, y: Floats, colour: str) -> list[str]:
    pairs = zip(x, y, strict=True)
    return [
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2" fill="{colour}"/>' for a, b in pairs if b == b
    ]

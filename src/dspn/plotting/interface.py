"""A picture of which interface nodes a sequence runs through."""

import numpy as np
from matplotlib.axes import Axes

from dspn import inference
from dspn._arrays import Floats
from dspn.models import Model
from dspn.models.model import Data
from dspn.plotting import _style
from dspn.plotting._arguments import (
    AnyModel,
    Component,
    checked_model,
    component_of,
    one_sequence,
)
from dspn.plotting._order import sequence_words
from dspn.plotting._panels import draw_posterior, heading, new_panel
from dspn.plotting._ticks import slice_axis
from dspn.sequences import Sequences

_WIDTH = 10.0
_ROW = 0.16


def plot_interface(
    model: AnyModel, sequence: Data, ax: Axes | None = None, *, component: int | None = None
) -> Axes:
    """P(interface node chosen at the slice | all observed entries), a heat map over the slices.

    The nodes of each group add up to 1 at every slice. Of a mixture one `component` is shown,
    counted from 0, with its own posterior P(node | evidence, component); without one it is the
    component that is likeliest given the sequence, and the title says how likely.
    """
    model = checked_model(model)
    data = one_sequence(sequence, model.schema)
    drawn, share = _likeliest(model, data, component)
    posterior = _posterior(model, data, drawn.number)
    num_slices, num_interfaces = posterior.shape
    if ax is None:
        ax = new_panel(_WIDTH, 0.9 + float(np.clip(_ROW * num_interfaces, 1.0, 6.0)))
    groups = drawn.network.groups
    draw_posterior(posterior, ax, groups=groups if len(groups) > 1 else None)
    if len(groups) == 1:
        ax.set_ylabel("interface node", size=_style.TEXT_SIZE, color=_style.INK)
    said = [ax.get_title(loc="left").capitalize() + sequence_words(data)]
    if drawn.words:
        said = [f"{said[0]},", f"{drawn.words},", f"posterior {share:.3g}"]
    heading(ax, " ".join(said))
    slice_axis(ax, num_slices, data)
    return ax


def _likeliest(model: Model, data: Sequences, component: int | None) -> tuple[Component, float]:
    """The component asked for, or the likeliest given the sequence; and how likely it is."""
    shares = model.component_posteriors(data)[0]
    drawn = component_of(model.mixture, component, int(np.argmax(shares)))
    return drawn, float(shares[drawn.number])


def _posterior(model: Model, data: Sequences, number: int) -> Floats:
    """P(node | evidence) under one component alone, however unlikely it is."""
    return inference.interface_posteriors(model.compiled.component(number), data)

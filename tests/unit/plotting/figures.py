"""What the tests of plots share: drawing a figure, and a sequence with gaps."""

import numpy as np
from matplotlib.axes import Axes

from dspn import Model, Sequences


def drawn(ax: Axes) -> Axes:
    """Draws the whole figure, but for its pixels; finds errors that only drawing raises."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    return ax


def sampled(model: Model, num_slices: int) -> Sequences:
    """One sequence drawn from the model, with a third of its entries missing."""
    rng = np.random.default_rng(5)
    data = model.sample(1, num_slices, rng=rng)
    return data.with_values(np.where(rng.random(data.values.shape) < 0.35, np.nan, data.values))

"""Pictures of networks, of learning, and of what a model says of a sequence.

Every function draws on the axes it is given, or on a figure of its own 1200 pixels wide, and leaves
the global state of matplotlib alone.
"""

from dspn.plotting.calibration import plot_calibration
from dspn.plotting.inputs import plot_input_effect
from dspn.plotting.learning_curve import plot_learning_curve
from dspn.plotting.network import plot_template, plot_unrolled
from dspn.plotting.sequence import (
    plot_filtered,
    plot_forecast,
    plot_imputed,
    plot_interface,
    plot_surprise,
)

__all__ = [
    "plot_calibration", "plot_filtered", "plot_forecast", "plot_imputed", "plot_input_effect",
    "plot_interface", "plot_learning_curve", "plot_surprise", "plot_template", "plot_unrolled",
]  # fmt: skip

"""Pictures of templates, of learning and of filtered sequences; no global state of matplotlib."""

from dspn.plotting.filtered import plot_filtered
from dspn.plotting.learning_curve import plot_learning_curve
from dspn.plotting.template import plot_template

__all__ = ["plot_filtered", "plot_learning_curve", "plot_template"]

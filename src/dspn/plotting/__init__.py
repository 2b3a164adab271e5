"""Pictures of a template and of a filtered sequence; matplotlib's objects only, no global state."""

from dspn.plotting.filtered import plot_filtered
from dspn.plotting.template import plot_template

__all__ = ["plot_filtered", "plot_template"]

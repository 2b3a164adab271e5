"""A picture of a sequence with what is missing filled by its exact distributions."""

import numpy as np
from matplotlib.axes import Axes

from dspn.models.model import Data
from dspn.plotting import _style
from dspn.plotting._arguments import (
    AnyModel,
    Variables,
    checked_model,
    checked_share,
    chosen_variables,
    one_sequence,
)
from dspn.plotting._entries import Entries, levels_of
from dspn.plotting._order import sequence_words


def plot_imputed(
    model: AnyModel,
    sequence: Data,
    ax: Axes | None = None,
    *,
    variable: Variables = None,
    level: float = 0.8,
) -> Axes:
    """Observed entries, and P(entry | all observed entries) of every missing one, exactly.

    A missing category is a hatched column whose parts are as high as the probabilities; a missing
    number is the value that `Model.impute` gives it (the mean of a continuous variable, the median
    of a count) in the central interval of probability `level`. Each variable has a band of its own;
    `variable` chooses some by name or number.
    """
    model = checked_model(model)
    data = one_sequence(sequence, model.schema)
    columns = chosen_variables(model.schema, variable)
    level = checked_share(level, "level", 0.8)
    found = model.marginals(data, quantiles=levels_of(level))
    entries = Entries(data.values, model.schema, found, columns, level=level)
    ax = entries.axes() if ax is None else ax
    missing = int(np.isnan(entries.values).sum())
    what = "entries" if entries.values.size != 1 else "entry"
    counts = f"{missing:,} of {entries.values.size:,} {what} missing"
    slices = _style.counted(data.total_slices, "slice")
    whose = sequence_words(data)
    entries.draw(ax, f"P(missing entry | observed entries){whose}: {slices}, {counts}", data)
    return ax

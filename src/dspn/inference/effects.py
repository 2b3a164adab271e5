"""The effect of an input: what a model expects where the input has each of its values."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.schema import Kind, Variable
from dspn.data.sequences import Sequences, drawn_places
from dspn.engine.base import Program, without_values
from dspn.errors import DataError
from dspn.inference.marginals import interface_posteriors
from dspn.inference.sampling import sample_given

BAND: Final = (0.1, 0.9)
# Groups that the values of a number are put into, and the fewest slices of one.
_MOST_GROUPS: Final = 12
_FEWEST_SLICES: Final = 5
# Slices of the data that are looked at, and slices that are drawn in all.
_MOST_SLICES: Final = 20_000
_DRAWN_SLICES: Final = 40_000


@final
@dataclass(frozen=True, eq=False)
class VariableEffect:
    """One variable by the value of an input.

    A number has `mean` and the `band` (groups, 2) between its 10 % and 90 % quantiles under the
    model, and `observed`, the mean of the data. A category has `mean`, the probabilities (groups,
    categories), and `observed`, the shares in the data; `band` is empty. NaN where nothing was
    observed. `share` is how much of the spread of the variable the groups explain, under the model.
    """

    variable: Variable
    mean: Floats
    band: Floats
    observed: Floats
    share: float


@final
@dataclass(frozen=True, eq=False)
class InputEffect:
    """What a model expects of each variable, and of interface nodes, by the value of an input.

    `places` are the values of the groups: codes of categories, or means of the groups of a number.
    `counts` are the slices of the data in each. `nodes` (groups, interface nodes) is the share of
    each node, exact; variables come from seeded draws with the inputs of the data. The other inputs
    are as they are in the data, and values of the data are not used but in `observed`.
    """

    variable: Variable
    places: Floats
    counts: Ints
    variables: tuple[VariableEffect, ...]
    nodes: Floats

    @property
    def is_ordered(self) -> bool:
        """Whether the values have an order: numbers, and places in time."""
        return self.variable.kind is not Kind.CATEGORICAL or self.variable.rule is not None

    def labels(self) -> list[str]:
        """The values of the groups in words."""
        if self.variable.kind is Kind.CATEGORICAL:
            return [str(self.variable.categories[int(code)]) for code in self.places]
        return [f"{value:.3g}" for value in self.places]


def input_effect(program: Program, data: Sequences, name: str, *, seed: int = 0) -> InputEffect:
    """What the model expects where an input has each of its values.

    Sequences are drawn with the inputs of the data, so that what an input does to states, and
    states to later slices, is a part of the effect. Values of a number are put into groups of as
    many slices each.

    Args:
        program: The compiled model.
        data: Sequences with the inputs of the model.
        name: The input.
        seed: Of the draws.
    """
    column = program.schema.input_index(name)
    rng = np.random.default_rng(seed)
    data = data[drawn_places(data, _MOST_SLICES, rng)]
    variable = program.schema.inputs[column]
    groups, places = _groups(variable, data.inputs[:, column])
    if not places.size:
        raise DataError(f"no value of input {name!r} has {_FEWEST_SLICES} slices of the data.")
    blank = without_values(data)
    times = max(1, _DRAWN_SLICES // data.total_slices)
    drawn = sample_given(program, blank[np.tile(np.arange(len(blank)), times)], rng=rng).values
    repeated = np.tile(groups, times)
    found = tuple(
        _effect(own, places.size, repeated, drawn[:, v], groups, data.values[:, v])
        for v, own in enumerate(program.schema)
    )
    posteriors = interface_posteriors(program, blank)
    nodes = np.stack([posteriors[groups == own].mean(axis=0) for own in range(places.size)])
    counts = np.bincount(groups[groups >= 0], minlength=places.size)
    return InputEffect(variable, places, counts, found, nodes)


def _groups(variable: Variable, values: Floats) -> tuple[Ints, Floats]:
    """The group of each slice, -1 for none, and the value of each group."""
    if variable.kind is Kind.CATEGORICAL:
        codes = values.astype(np.int64)
        counts = np.bincount(codes, minlength=variable.num_categories)
        used = np.flatnonzero(counts >= _FEWEST_SLICES)
        number = np.full(counts.size, -1)
        number[used] = np.arange(used.size)
        return number[codes], used.astype(np.float64)
    count = int(np.clip(len(values) // _FEWEST_SLICES, 1, _MOST_GROUPS))
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, count + 1)[1:-1]))
    found = np.searchsorted(edges, values, side="right")
    _, found = np.unique(found, return_inverse=True)
    found = found.ravel()
    return found, np.bincount(found, values) / np.bincount(found)


def _effect(
    variable: Variable, count: int, groups: Ints, drawn: Floats, own: Ints, observed: Floats
) -> VariableEffect:
    """One variable: draws by their groups, and the data by theirs."""

    def averaged(values: Floats, of: Ints) -> Floats:
        """Means of columns by group; NaN for a group without any."""
        there = ~np.isnan(values[:, 0]) & (of >= 0)
        sums = np.stack(
            [np.bincount(of[there], column[there], minlength=count) for column in values.T], axis=1
        )
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / np.bincount(of[there], minlength=count)[:, None])

    def columns(values: Floats) -> Floats:
        if variable.kind is not Kind.CATEGORICAL:
            return values[:, None]
        marks = (values[:, None] == np.arange(variable.num_categories)).astype(np.float64)
        return np.where(np.isnan(values)[:, None], np.nan, marks)

    each = columns(drawn)
    mean = averaged(each, groups)
    known = groups >= 0
    left = each[known] - mean[groups[known]]
    total = each[known].var(axis=0).sum()
    share = float(1.0 - (left * left).mean(axis=0).sum() / total) if total > 0 else 0.0
    seen = averaged(columns(observed), own)
    if variable.kind is Kind.CATEGORICAL:
        return VariableEffect(variable, mean, np.empty((count, 0)), seen, share)
    band = np.stack([np.quantile(drawn[groups == group], BAND) for group in range(count)])
    return VariableEffect(variable, mean[:, 0], band, seen[:, 0], share)

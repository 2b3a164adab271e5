"""Mixtures of leaves: what is known of a missing entry, as moments, probabilities and quantiles."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn._checks import float_array
from dspn.data import Kind, Schema, Variable
from dspn.engine import Program
from dspn.errors import EvidenceError
from dspn.leaves import Family


@final
@dataclass(frozen=True, eq=False, repr=False)
class VariableMarginals:
    """P(entry | evidence) of one variable's missing entries, each the exact mixture of its leaves.

    `slices[e]` is the row of entry e in the data's `values`. A categorical variable has
    `probabilities` (entries, categories); others have `mean`, `variance` and `quantiles` (entries,
    levels). What does not apply is NaN or None.
    """

    variable: Variable
    slices: Ints
    probabilities: Floats | None
    mean: Floats
    variance: Floats
    levels: tuple[float, ...]
    quantiles: Floats

    def __repr__(self) -> str:
        return f"VariableMarginals({self.described()})"

    def described(self) -> str:
        """Name, kind, number of entries and levels, in one line."""
        count = f"{self.slices.size} {'entry' if self.slices.size == 1 else 'entries'}"
        levels = f", quantiles {', '.join(map(str, self.levels))}" if self.levels else ""
        return f"{self.variable.name}: {self.variable.kind}, {count}{levels}"

    def point(self) -> Floats:
        """The most probable category, the median of a count, the mean of a continuous variable."""
        if self.probabilities is not None:
            best: Floats = np.argmax(self.probabilities, axis=1).astype(np.float64)
            return best
        if self.variable.kind != Kind.COUNT:
            return self.mean
        if 0.5 not in self.levels:
            raise EvidenceError(
                f"the point of the count {self.variable.name!r} is its median, but the levels "
                f"asked for are {list(self.levels)}; put 0.5 among the `quantiles`."
            )
        median: Floats = self.quantiles[:, self.levels.index(0.5)]
        return median


@final
@dataclass(frozen=True, eq=False, repr=False)
class Marginals:
    """Marginals of every variable, by name or number, and the log-likelihood of the evidence."""

    schema: Schema
    log_likelihood: Floats
    variables: tuple[VariableMarginals, ...]

    def __getitem__(self, variable: int | str) -> VariableMarginals:
        index = self.schema.index(variable) if isinstance(variable, str) else variable
        return self.variables[index]

    def __repr__(self) -> str:
        head = f"Marginals(num_sequences={self.log_likelihood.size})"
        return "\n  ".join([head, *(own.described() for own in self.variables)])


@final
class Mixer:
    """Turns posteriors over a variable's leaves into moments, probabilities and quantiles."""

    def __init__(
        self, variable: Variable, family: Family, levels: tuple[float, ...], count: int
    ) -> None:
        self.variable = variable
        self.family = family
        self.levels = () if variable.kind == Kind.CATEGORICAL else levels
        self.probabilities = np.full((count, variable.num_categories), np.nan)
        self.mean = np.full(count, np.nan)
        self.variance = np.full(count, np.nan)
        self.quantiles = np.full((count, len(self.levels)), np.nan)

    def put(self, entries: Ints, weights: Floats, parameters: Floats) -> None:
        """Entry e is the mixture of the leaves `parameters` with weights `weights[e]`.

        Weights that are no mixture are passed over: a linear pass that lost them is repeated. Sums
        run row by row in the order of the leaves, so that an entry's numbers do not depend on the
        others; a matrix product takes another order for another number of rows.
        """
        weights = np.ascontiguousarray(weights)
        totals = weights.sum(axis=1)
        whole = (totals > 0) & np.isfinite(totals)
        entries, weights = entries[whole], weights[whole] / totals[whole, None]
        if self.variable.kind == Kind.CATEGORICAL:
            for category, own in enumerate(parameters.T):
                self.probabilities[entries, category] = (weights * own).sum(axis=1)
            return
        means = self.family.mean(parameters)
        mean = (weights * means).sum(axis=1)
        # The root of the weight comes first, so that a leaf without weight far away adds nothing;
        # a variance beyond the largest number is infinite.
        with np.errstate(over="ignore"):
            spread = (np.sqrt(weights) * (means - mean[:, None])) ** 2
        self.mean[entries] = mean
        own = (weights * self.family.variance(parameters)).sum(axis=1)
        self.variance[entries] = spread.sum(axis=1) + own
        if self.levels:
            self.quantiles[entries] = self.family.mixture_quantiles(
                parameters, weights, np.array(self.levels)
            )

    def result(self, slices: Ints) -> VariableMarginals:
        """What has been put, as a value."""
        categorical = self.variable.kind == Kind.CATEGORICAL
        return VariableMarginals(
            self.variable,
            slices,
            self.probabilities if categorical else None,
            self.mean,
            self.variance,
            self.levels,
            self.quantiles,
        )


def checked_levels(quantiles: Sequence[float]) -> tuple[float, ...]:
    """The levels as a tuple; raises unless all lie strictly between 0 and 1."""
    remedy = "give for example (0.05, 0.5, 0.95)"
    levels = float_array(quantiles, "quantiles", EvidenceError, remedy=remedy)
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise EvidenceError(
            "`quantiles` must be a list of levels strictly between 0 and 1, but is "
            f"{reprlib.repr(quantiles)}; {remedy}."
        )
    return tuple(levels.tolist())


def leaf_rows(program: Program, variable: int) -> tuple[Ints, Ints]:
    """The loads of a variable's leaves, and the rows of their parameters."""
    loads = np.flatnonzero(program.template.load_bank == variable)
    return loads, program.template.load_member[loads]

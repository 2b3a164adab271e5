"""Leaves that are told something: inputs, entries of earlier slices, entries before them.

A told leaf is a plain leaf whose parameters follow by a rule from a row of known numbers, its
context. Values come to it as a matrix (V, 1 + D): the value, then the context (`told_values`).
Where a part of the context that comes from values is missing, a leaf uses other parameters, which
do without that part: there is a branch without values, one with all of them, and between them those
of `steps`, each told the first of the sources. The last branch whose sources are all there is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from scipy.special import gammaln, ndtr, pdtr, pdtrc, stdtr, xlogy

from dspn._arguments import Floats, Ints
from dspn.data.schema import Kind, Schema, Variable
from dspn.data.sequences import Sequences
from dspn.errors import DataError, EvidenceError, StructureError
from dspn.leaves.base import (
    Contextual,
    Family,
    Prior,
    chosen_prior,
    search_integers,
    search_reals,
)
from dspn.leaves.categorical import Categorical
from dspn.leaves.gaussian import Gaussian
from dspn.leaves.poisson import Poisson
from dspn.leaves.rules import RULES, Linear, LogLinear, Rule, Softmax, Table
from dspn.leaves.student_t import StudentT, log_density
from dspn.options import number_field

# More cells than this in the table of a leaf, and logistic regression takes its place.
_MOST_CELLS = 512
_LOG_TWO_PI = math.log(2.0 * math.pi)


class Source(NamedTuple):
    """A column of context: an input, or the value of a variable `lag` slices before.

    `categories` is 0 for a number, -1 for a count (whose logarithm is taken after adding 1).
    Members of a block of variables (`dspn.leaves.block`) are told each other: their leaf is one.
    """

    kind: str  # "input", "value" or "member"
    column: int
    lag: int
    categories: int

    @property
    def num_features(self) -> int:
        """Numbers that a regression sees: an indicator for each category but the first."""
        return self.categories - 1 if self.categories > 0 else 1


@final
@dataclass(frozen=True)
class ToldPrior(Prior):
    """`pseudo_count` observations at the mean of the context, and a ridge; see the rules."""

    pseudo_count: float = number_field(0.01, least=0)


@final
@dataclass(frozen=True)
class Told(Contextual):
    """A plain family whose parameters follow from a context by a rule.

    A row of parameters has those of the first branch, then those of the others where values are
    among the sources. Branches of a regression have a coefficient for 1 and for each feature, in
    the units of the data. Inputs come before values among the sources.

    Attributes:
        rule: `Linear()`, `LogLinear()`, `Softmax(K)` or `Table(K)`.
        sources: What a leaf is told.
        centre: Means of the features, and `unit` their standard deviations: statistics and priors
            are of standardised features. `scaled_to` takes them from data.
        reference: What the prior of each branch is centred on.
        steps: Numbers of sources, from the first on, of the branches between the one without values
            and the one with all; see `with_context`.
    """

    rule: Any
    sources: tuple[Source, ...] = ()  # type: ignore[misc]
    centre: tuple[float, ...] = ()
    unit: tuple[float, ...] = ()
    reference: tuple[tuple[float, ...], ...] = ()
    steps: tuple[int, ...] = ()

    name = "told"

    def _check(self) -> None:
        rule = self.rule
        if isinstance(rule, Mapping):
            fields = dict(rule)
            kinds = {kind.name: kind for kind in RULES}
            name = fields.pop("name", None)
            if name not in kinds:
                raise StructureError(f"`rule` must be one of {list(kinds)}, but is {name!r}.")
            rule = kinds[name](**fields)
        if not isinstance(rule, Rule):
            raise StructureError(f"`rule` of Told must be a rule of `dspn.leaves`, not {rule!r}.")
        sources = tuple(Source(*own) for own in self.sources)
        if [own.kind for own in sources] != sorted(own.kind for own in sources):
            raise StructureError("`sources` of Told must have inputs first, and values after them.")
        object.__setattr__(self, "steps", tuple(self.steps))
        given = sum(own.kind == "input" for own in sources)
        bounds = (given, *self.steps, len(sources))
        if self.steps and any(b <= a for a, b in itertools.pairwise(bounds)):
            raise StructureError(
                f"`steps` of Told must rise from {given}, the number of inputs, to {len(sources)}, "
                f"that of all sources, but are {self.steps}."
            )
        width = sum(own.num_features for own in sources)
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "centre", tuple(self.centre) or (0.0,) * width)
        object.__setattr__(self, "unit", tuple(self.unit) or (1.0,) * width)
        if len(self.centre) != width or len(self.unit) != width:
            raise StructureError(f"`centre` and `unit` of Told must have {width} numbers.")
        if not rule.has_features and not all(own.categories > 0 for own in sources):
            raise StructureError("a table is told categories only; use logistic regression.")
        reference = tuple(tuple(own) for own in self.reference)
        if not reference:
            reference = tuple(
                rule.refer(np.empty((0, own)), np.empty(0), own) for own in self._branches
            )
        object.__setattr__(self, "reference", reference)

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """That of the plain family."""
        return bool(self.plain.is_discrete)

    @property
    def plain(self) -> Family:
        """The family whose parameters a context gives."""
        found: Family = self.rule.plain
        return found

    def moved(self, places: Mapping[int, int]) -> Told:
        """The same family in a schema where variables have other places."""
        moved = [
            own if own.kind == "input" else own._replace(column=places[own.column])
            for own in self.sources
        ]
        return replace(self, sources=tuple(moved))

    @cached_property
    def _num_inputs(self) -> int:
        return sum(own.kind == "input" for own in self.sources)

    @cached_property
    def _prefixes(self) -> tuple[int, ...]:
        """How many of the sources, from the first on, each branch is told."""
        return tuple(dict.fromkeys((self._num_inputs, *self.steps, len(self.sources))))

    @cached_property
    def _branches(self) -> tuple[int, ...]:
        """Features (1 included), or combinations of categories, of each branch."""
        found = []
        for own in self._prefixes:
            chosen = self.sources[:own]
            if self.rule.has_features:
                found.append(1 + sum(source.num_features for source in chosen))
            else:
                found.append(math.prod(source.categories for source in chosen))
        return tuple(found)

    @cached_property
    def _widths(self) -> list[slice]:
        """Where the parameters of each branch lie."""
        ends = np.cumsum([0, *(self.rule.width(own) for own in self._branches)])
        return [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]

    @cached_property
    def _sizes(self) -> list[slice]:
        """Where the statistics of each branch lie, behind the weight."""
        ends = 1 + np.cumsum([0, *(self.rule.size(own) for own in self._branches)])
        return [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]

    @property
    def num_parameters(self) -> int:
        """Parameters of the branches."""
        return int(self._widths[-1].stop)

    @property
    def num_statistics(self) -> int:
        """The weight, and the statistics of the branches."""
        return int(self._sizes[-1].stop)

    @property
    def num_free(self) -> int:
        """As many as parameters."""
        return self.num_parameters

    @property
    def default_prior(self) -> ToldPrior:
        """The rule's usual number of pseudo-observations."""
        return ToldPrior(self.rule.pseudo_count)

    # Context

    def _split(self, values: Floats) -> tuple[Floats, Floats]:
        """Values (V,) and context (V, D); a vector of values has no context."""
        values = np.asarray(values, dtype=np.float64)
        if values.ndim == 1:
            return values, np.full((len(values), len(self.sources)), np.nan)
        return values[:, 0], values[:, 1:]

    def _branch_of(self, context: Floats) -> Ints:
        """The last branch whose values are all there."""
        found = np.zeros(context.shape[:-1], dtype=np.int64)
        for branch, (start, stop) in enumerate(itertools.pairwise(self._prefixes), start=1):
            there = ~np.isnan(context[..., start:stop]).any(axis=-1)
            found = np.where((found == branch - 1) & there, branch, found)
        return found

    def _features(self, context: Floats, branch: int) -> Floats:
        """Standardised features (..., F) after a 1, or the number of the combination.

        An input that is not there counts as its mean.
        """
        chosen = self.sources[: self._prefixes[branch]]
        if not self.rule.has_features:
            number = np.zeros(context.shape[:-1])
            for column, source in enumerate(chosen):
                code = np.nan_to_num(context[..., column])
                number = number * source.categories + np.clip(code, 0, source.categories - 1)
            return number[..., None]
        parts = [np.ones((*context.shape[:-1], 1))]
        for column, source in enumerate(chosen):
            own = context[..., column, None]
            if source.categories > 0:
                missing = np.isnan(own)
                own = (own == np.arange(1, source.categories)).astype(np.float64)
                own = np.where(missing, np.nan, own)
            elif source.categories < 0:
                own = np.log1p(np.maximum(own, 0.0))
            parts.append(own)
        found = np.concatenate(parts, axis=-1)
        width = found.shape[-1] - 1
        found[..., 1:] -= np.array(self.centre[:width])
        found[..., 1:] /= np.array(self.unit[:width])
        found[np.isnan(found)] = 0.0
        return found

    def _standard(self, parameters: Floats, branch: int) -> Floats:
        """Rows of a branch for standardised features and values."""
        rows = np.array(parameters[..., self._widths[branch]], dtype=np.float64)
        count = self._branches[branch]
        rows = np.asarray(self.rule.standard(rows, count))
        if not self.rule.has_features:
            return rows
        own = self._coefficients(rows, count)
        own[..., 0, :] += np.einsum(
            "f,...fm->...m", np.array(self.centre[: count - 1]), own[..., 1:, :]
        )
        own[..., 1:, :] *= np.array(self.unit[: count - 1])[:, None]
        return rows

    def _original(self, rows: Floats, branch: int) -> Floats:
        """Rows of a branch for features and values in the units of the data."""
        count, rows = self._branches[branch], np.array(rows)
        if self.rule.has_features:
            own = self._coefficients(rows, count)
            own[..., 1:, :] /= np.array(self.unit[: count - 1])[:, None]
            own[..., 0, :] -= np.einsum(
                "f,...fm->...m", np.array(self.centre[: count - 1]), own[..., 1:, :]
            )
        return np.asarray(self.rule.original(rows, count))

    def _coefficients(self, rows: Floats, count: int) -> Floats:
        """The coefficients of rows as a view (..., F, m)."""
        outputs = self.rule.num_outputs
        own = rows[..., : count * outputs]
        shape = (*rows.shape[:-1], count, outputs)
        strides = (*own.strides[:-1], outputs * own.strides[-1], own.strides[-1])
        return np.lib.stride_tricks.as_strided(own, shape, strides)

    def _reference(self, branch: int) -> Floats:
        return np.array(self.reference[branch])

    def scaled_to(self, values: Floats) -> Told:
        """Features standardised by, and priors centred on, the values and contexts given."""
        y, context = self._split(values)
        counted = self.rule.counted(y)
        if not counted.any():
            return self
        y, context = y[counted], context[counted]
        rule = self.rule.scaled_to(y)
        centre, unit = np.array(self.centre), np.array(self.unit)
        blank = Told(rule, self.sources, steps=self.steps)
        if rule.has_features and len(self.sources):
            branch = blank._branch_of(context)
            for number in range(len(self._branches)):
                own = context[branch >= number]
                rows = blank._features(own, number)[:, 1:]
                if len(rows):
                    spread = rows.std(axis=0)
                    flat = spread <= 1e-12 * np.abs(rows).max(axis=0)
                    width = rows.shape[1]
                    centre[:width] = rows.mean(axis=0)
                    unit[:width] = np.where(flat, 1.0, spread)
        scaled = replace(blank, centre=tuple(centre.tolist()), unit=tuple(unit.tolist()))
        chosen = scaled._branch_of(context)
        reference = []
        for number, count in enumerate(self._branches):
            # Branches without some values are used for few slices; their prior is that of all.
            own = chosen >= number
            features = scaled._features(context[own], number)
            reference.append(rule.refer(features, y[own], count))
        return replace(scaled, reference=tuple(reference))

    def given(self, parameters: Floats, values: Floats) -> tuple[Family, Floats]:
        """The plain family and its parameters (V, L, P) in the context of each value."""
        _, context = self._split(values)
        return self.plain, self.resolve(parameters[None], context[:, None])

    def resolve(self, parameters: Floats, context: Floats) -> Floats:
        """Parameters of the plain family for rows (..., P) in contexts (..., D)."""
        chosen = self._branch_of(context)
        found: Floats = self.rule.resolve(self._standard(parameters, 0), self._features(context, 0))
        for branch in range(1, len(self._branches)):
            if (chosen == branch).any():
                rows, features = self._standard(parameters, branch), self._features(context, branch)
                told = self.rule.resolve(rows, features)
                found = np.where(chosen[..., None] == branch, told, found)
        return found

    def linear_terms(self, parameters: Floats, context: Floats) -> tuple[Floats, Floats, Floats]:
        """The mean of a linear rule as a constant (M,) and a multiple of each source (M, D).

        Multiples are those of numbers among the values of the context; what everything else adds is
        in the constant. Also the variances (M,), or the squared scales of Student t noise.
        """
        chosen = self._branch_of(context)
        zero = context.copy()
        slopes = np.zeros(context.shape)
        for branch, count in enumerate(self._prefixes):
            at, place = np.flatnonzero(chosen == branch), 1
            rows = parameters[at, self._widths[branch]]
            for column, source in enumerate(self.sources[:count]):
                if source.kind == "value" and source.categories == 0:
                    slopes[at, column] = rows[:, place]
                    zero[at, column] = 0.0
                place += source.num_features
        plain = self.resolve(parameters, zero)
        return plain[:, 0], slopes, plain[:, 1]

    # Densities and learning

    def log_prob(self, parameters: Floats, values: Floats) -> Floats:
        """Log p(value | context, leaf), (V, L)."""
        y, context = self._split(values)
        found = np.zeros((len(y), len(parameters)))
        observed = ~np.isnan(y)
        branches = self._branch_of(context)
        for branch in range(len(self._branches)):
            own = np.flatnonzero(observed & (branches == branch))
            if own.size:
                rows = self._standard(parameters, branch)
                features = self._features(context[own], branch)
                found[own] = self.rule.log_prob(rows, features, y[own])
        return found

    def log_peak(self, parameters: Floats, values: Floats) -> Floats:
        """Log p(mode | context, leaf), (V, L)."""
        plain, resolved = self.given(parameters, values)
        rows = resolved.reshape(-1, plain.num_parameters)
        return paired_log_prob(plain, rows, plain.mode(rows)).reshape(resolved.shape[:2])

    def statistics(self, values: Floats) -> Floats:
        """The weight, and the statistics of the branch that a context chooses."""
        y, context = self._split(values)
        counted, branches = self.rule.counted(y), self._branch_of(context)
        found = np.zeros((len(y), self.num_statistics))
        found[:, 0] = counted
        for branch, count in enumerate(self._branches):
            own = np.flatnonzero(counted & (branches == branch))
            features = self._features(context[own], branch)
            reference = self._reference(branch)
            found[own, self._sizes[branch]] = self.rule.statistics(
                features, y[own], count, reference
            )
        return found

    def expected_statistics(self, parameters: Floats, values: Floats, counts: Floats) -> Floats:
        """Sums of counts times statistics, where it matters at the leaves' own parameters."""
        y, context = self._split(values)
        counted, branches = self.rule.counted(y), self._branch_of(context)
        found = np.zeros((len(counts), self.num_statistics))
        found[:, 0] = counts[:, counted].sum(axis=1)
        for branch, count in enumerate(self._branches):
            own = np.flatnonzero(counted & (branches == branch))
            if own.size:
                found[:, self._sizes[branch]] = self.rule.expected(
                    self._standard(parameters, branch),
                    self._features(context[own], branch),
                    y[own],
                    counts[:, own],
                    count,
                    self._reference(branch),
                )
        return found

    def maximise(self, statistics: Floats, prior: Prior | None = None) -> Floats:
        """Each branch by its rule."""
        c = chosen_prior(prior, self.default_prior).pseudo_count
        found = np.empty((len(statistics), self.num_parameters))
        for branch, count in enumerate(self._branches):
            own = statistics[:, self._sizes[branch]]
            rows = self.rule.maximise(own, count, self._reference(branch), c)
            found[:, self._widths[branch]] = self._original(rows, branch)
        return found

    @property
    def is_told_values(self) -> bool:
        """Whether a missing value changes what a leaf is told."""
        return len(self._branches) > 1

    @property
    def is_stepped(self) -> bool:
        """Whether `maximise` is a step from the parameters that statistics were taken at."""
        return bool(self.rule.is_stepped)

    def shortened(self, values: Floats) -> Iterator[Floats]:
        """Values as if leaves were told only what each branch but the last is told."""
        for count in self._prefixes[:-1]:
            found = values.copy()
            found[:, 1 + count :] = np.nan
            yield found

    def with_unlagged(self, parameters: Floats, statistics: Floats, prior: Prior) -> Floats:
        """Leaves with all branches but the last as statistics make them; the last stays."""
        found = self.maximise(statistics, prior)
        found[:, self._widths[-1]] = parameters[:, self._widths[-1]]
        return found

    def log_prior(self, parameters: Floats, prior: Prior | None = None) -> float:
        """The log prior of all rows and branches; -inf at an exact zero that has pseudo-counts."""
        c = chosen_prior(prior, self.default_prior).pseudo_count
        if c and not self.rule.has_features and (parameters == 0).any():
            return -math.inf
        return self.free_log_prior(parameters, prior)[0]

    def free(self, parameters: Floats) -> Floats:
        """Standardised coefficients, the log of a variance, the log of probabilities."""
        return self._by_branch(
            lambda b, n: self.rule.free(self._standard(parameters, b), n), len(parameters)
        )

    def from_free(self, free: Floats) -> Floats:
        """The parameters at free coordinates."""
        widths = self._widths
        return self._by_branch(
            lambda b, n: self._original(self.rule.from_free(free[:, widths[b]], n), b), len(free)
        )

    def _by_branch(self, make: Any, count: int) -> Floats:
        found = np.empty((count, self.num_parameters))
        for branch, num_features in enumerate(self._branches):
            found[:, self._widths[branch]] = make(branch, num_features)
        return found

    def free_gradient(self, parameters: Floats, statistics: Floats) -> Floats:
        """The gradients of the branches."""
        sizes = self._sizes
        return self._by_branch(
            lambda b, n: self.rule.gradient(
                self._standard(parameters, b), statistics[:, sizes[b]], n
            ),
            len(parameters),
        )

    def free_log_prior(
        self, parameters: Floats, prior: Prior | None = None
    ) -> tuple[float, Floats]:
        """`log_prior` without the terms of exact zeros, and its gradient."""
        c = chosen_prior(prior, self.default_prior).pseudo_count
        total, slopes = 0.0, np.empty((len(parameters), self.num_parameters))
        for branch, count in enumerate(self._branches):
            rows = self._standard(parameters, branch)
            value, slope = self.rule.log_prior(rows, count, self._reference(branch), c)
            total += float(value.sum())
            slopes[:, self._widths[branch]] = slope
        return total, slopes

    def free_bounds(self, prior: Prior | None = None) -> tuple[Floats, Floats]:
        """Bounds of the branches."""
        bounds = [
            self.rule.free_bounds(count, self._reference(branch))
            for branch, count in enumerate(self._branches)
        ]
        lower, upper = zip(*bounds, strict=True)
        return np.concatenate(lower), np.concatenate(upper)

    def random(
        self, num_leaves: int, rng: np.random.Generator, values: Floats | None = None
    ) -> Floats:
        """The leaf that fits all values, with random differences."""
        own = self if values is None else self.scaled_to(values)
        statistics = np.zeros((1, self.num_statistics))
        if values is not None and len(values):
            ones, start = np.ones((1, len(values))), own.maximise(statistics)
            statistics = own.expected_statistics(start, values, ones)
        rows = np.repeat(own.maximise(statistics), num_leaves, axis=0)
        return own.spread(rows, rng, 1.0)

    def spread(self, rows: Floats, rng: np.random.Generator, noise: float) -> Floats:
        """Leaves near to some leaves; with a noise of 1 they differ much."""

        def moved(branch: int, count: int) -> Floats:
            own = self._standard(rows, branch)
            return self._original(
                self.rule.spread(own, count, self._reference(branch), rng, noise), branch
            )

        return self._by_branch(moved, len(rows))

    def violations(self, parameters: Floats) -> list[str]:
        """Every row with a branch that is not allowed."""
        found = self._shape_violations(parameters)
        if found:
            return found
        problems = [
            self.rule.problems(parameters[:, own], count)
            for own, count in zip(self._widths, self._branches, strict=True)
        ]
        for row, texts in enumerate(zip(*problems, strict=True)):
            named = "; ".join(text for text in texts if text)
            if named:
                found.append(f"row {row}: {named}")
        return found

    def to_json(self) -> Mapping[str, Any]:
        """Name and fields."""
        return {
            "name": self.name,
            "rule": self.rule.to_json(),
            "sources": [list(own) for own in self.sources],
            "centre": list(self.centre),
            "unit": list(self.unit),
            "reference": [list(own) for own in self.reference],
            **({"steps": list(self.steps)} if self.steps else {}),
        }

    # A leaf without its context: the branch without values, at the mean of the inputs.

    def _typical(self, parameters: Floats) -> Floats:
        rows = self._standard(parameters, 0)
        if not self.rule.has_features:
            tables = rows.reshape(len(rows), self._branches[0], self.plain.num_parameters)
            return np.asarray(tables.mean(axis=1))
        features = np.zeros((1, self._branches[0]))
        features[:, 0] = 1.0
        return np.asarray(self.rule.resolve(rows, features))

    def sample(self, parameters: Floats, rng: np.random.Generator) -> Floats:
        """Draws without context."""
        return self.plain.sample(self._typical(parameters), rng)

    def mode(self, parameters: Floats) -> Floats:
        """The mode without context."""
        return self.plain.mode(self._typical(parameters))

    def mean(self, parameters: Floats) -> Floats:
        """The mean without context."""
        return self.plain.mean(self._typical(parameters))

    def variance(self, parameters: Floats) -> Floats:
        """The variance without context."""
        return self.plain.variance(self._typical(parameters))

    def cdf(self, parameters: Floats, values: Floats) -> Floats:
        """P(X <= value) without context."""
        return self.plain.cdf(self._typical(parameters), values)

    def sf(self, parameters: Floats, values: Floats) -> Floats:
        """P(X > value) without context."""
        return self.plain.sf(self._typical(parameters), values)

    def quantile_bounds(self, parameters: Floats, levels: Floats) -> tuple[Floats, Floats]:
        """Quantiles without context."""
        return self.plain.quantile_bounds(self._typical(parameters), levels)


# Values with their context


def sources_of(variable: Variable) -> tuple[Source, ...]:
    """What the leaves of a variable are told; nothing for most."""
    leaf = variable.leaf
    return () if leaf is None else tuple(getattr(leaf, "sources", ()))


def require_told(model: Schema, data: Schema) -> None:
    """Raises unless data tell the leaves of a model what they need."""
    if model is data:
        return
    for own, other in zip(model, data, strict=True):
        if sources_of(own) != sources_of(other):
            raise EvidenceError(
                f"the data do not tell the leaves of variable {own.name!r} what the model tells "
                "them; read the data with the schema of the model (`sequences_of`)."
            )


def has_lags(schema: Schema) -> bool:
    """Whether a leaf is told entries, so that a missing one changes what others are told."""
    return any(own.kind == "value" for variable in schema for own in sources_of(variable))


def tells_entries(schema: Schema) -> bool:
    """Whether leaves are told entries, which they know by the numbers of variables."""
    return any(own.kind != "input" for variable in schema for own in sources_of(variable))


def has_told_gaps(data: Sequences) -> bool:
    """Whether a leaf is told an entry that is missing: without such gaps all answers are exact."""
    missing = np.isnan(data.values)
    for variable in data.schema:
        for own in sources_of(variable):
            if own.kind == "value" and missing[:, own.column].any():
                rows = np.flatnonzero(missing[:, own.column])
                ends = data.offsets[np.searchsorted(data.offsets, rows, side="right")]
                if (rows + own.lag < ends).any():
                    return True
    return False


def longest_lag(schema: Schema) -> int:
    """The largest number of slices that a leaf looks back."""
    return max((own.lag for variable in schema for own in sources_of(variable)), default=0)


def told_values(
    data: Sequences, variable: int, rows: Ints | None = None, values: Floats | None = None
) -> Floats:
    """Values of a variable (V,), or with the context that its leaves are told, (V, 1 + D).

    A context from before the first slice of a sequence is missing.

    Args:
        data: The sequences.
        variable: The number of the variable.
        rows: The slices; all by default.
        values: Values in place of those of the data.
    """
    sources = sources_of(data.schema[variable])
    known = data.values if values is None else values
    if not sources:
        return np.asarray(known[:, variable] if rows is None else known[rows, variable])
    chosen = np.arange(len(known)) if rows is None else rows
    found = np.empty((len(chosen), 1 + len(sources)))
    found[:, 0] = known[chosen, variable]
    starts = data.offsets[np.searchsorted(data.offsets, chosen, side="right") - 1]
    for column, source in enumerate(sources, start=1):
        if source.kind == "input":
            found[:, column] = data.inputs[chosen, source.column]
            continue
        earlier = chosen - source.lag
        own = known[np.maximum(earlier, 0), source.column]
        found[:, column] = np.where(earlier >= starts, own, np.nan)
    return found


# Schemas


def check_told(family: Family, variable: Variable) -> None:
    """Raises unless leaves are told what the schema says of their variable."""
    usual = variable.leaf
    fits = (
        type(family) is type(usual)
        and family.sources == usual.sources
        and family.num_parameters == usual.num_parameters
    )
    if isinstance(family, Told) and isinstance(usual, Told):
        fits &= family.steps == usual.steps and type(family.rule) is type(usual.rule)
    if not fits:
        raise StructureError(
            f"the leaves of variable {variable.name!r} must be of the family that the schema "
            f"names, {usual!r}, but are {family!r}: what leaves are told is a part of the schema "
            "(`dspn.leaves.with_context`)."
        )


def _source(schema: Schema, index: int, lag: int) -> Source:
    return Source("value", index, lag, _categories(schema[index]))


def _categories(variable: Variable) -> int:
    return -1 if variable.kind == Kind.COUNT else variable.num_categories


def told_family(
    variable: Variable, sources: tuple[Source, ...], steps: tuple[int, ...] = ()
) -> Told:
    """The told family of a variable's kind: tables while they are small, else regressions.

    Leaves of a number have Student t noise where the variable names that family.
    """
    if variable.kind == Kind.CATEGORICAL:
        count = variable.num_categories
        cells = count * math.prod(max(own.categories, 1) for own in sources)
        if all(own.categories > 0 for own in sources) and cells <= _MOST_CELLS:
            return Told(Table(count), sources, steps=steps)
        return Told(Softmax(count), sources, steps=steps)
    if variable.kind == Kind.COUNT:
        return Told(LogLinear(), sources, steps=steps)
    plain = variable.leaf.plain if isinstance(variable.leaf, Told) else variable.leaf
    df = plain.df if isinstance(plain, StudentT) else None
    return Told(Linear(df=df), sources, steps=steps)


def _checked_lags(lags: int | Sequence[int]) -> list[int]:
    """How many slices back the entries lie that leaves are told."""

    def is_whole(lag: object, least: int) -> bool:
        is_number = isinstance(lag, int | np.integer) and not isinstance(lag, bool)
        return is_number and lag >= least  # type: ignore[operator]

    if isinstance(lags, list | tuple) and all(is_whole(lag, 1) for lag in lags):
        return sorted({int(lag) for lag in lags})
    if not is_whole(lags, 0):
        raise DataError(
            "`lags` must be a whole number of at least 0, a list of whole numbers of at least 1, "
            f"or 'auto' for an estimator to choose, but is {lags!r}."
        )
    return list(range(1, int(lags) + 1))  # type: ignore[arg-type]


def with_context(
    schema: Schema,
    *,
    lags: int | Sequence[int] = 0,
    lags_of: str = "own",
    within: bool = False,
    leaf_inputs: bool = False,
) -> Schema:
    """The schema with leaves that are told inputs and entries.

    Where some entries are missing a leaf goes back in steps: to the entries of its own variable, to
    those without a season, to the latest, and to none.

    Args:
        schema: The variables and inputs.
        lags: How many slices back leaves are told entries, or which slices, such as (1, 2, 24).
        lags_of: "own" for the entries of the same variable, "all" for those of all variables.
        within: Whether leaves are told the entries of the variables before them in the slice.
        leaf_inputs: Whether leaves are told the inputs of the slice.
    """
    back = _checked_lags(lags)
    if lags_of not in ("own", "all"):
        raise DataError(f"`lags_of` must be 'own' or 'all', but is {lags_of!r}.")
    given: tuple[Variable, ...] = getattr(schema, "inputs", ())
    if leaf_inputs and not given:
        raise DataError("`leaf_inputs` needs data with inputs, but these have none.")
    told = [Source("input", i, 0, _categories(own)) for i, own in enumerate(given)]
    variables = []
    for index, variable in enumerate(schema):
        sources = list(told) if leaf_inputs else []
        count = len(sources)
        sources += [_source(schema, index, lag) for lag in back]
        others = [v for v in range(len(schema)) if v != index] if lags_of == "all" else []
        sources += [_source(schema, v, lag) for lag in back for v in others]
        sources += [_source(schema, v, 0) for v in range(index)] if within else []
        latest = sum(lag == place for place, lag in enumerate(back, start=1))
        counts = sorted({min(1, len(back)), latest, len(back)} - {0})
        steps = tuple(count + own for own in counts if count + own < len(sources))
        if not sources:
            variables.append(variable)
            continue
        if variable.leaf is not None and not isinstance(variable.leaf, Told | StudentT):
            raise DataError(
                f"the leaves of variable {variable.name!r} are of the family "
                f"{variable.leaf.name!r}, which cannot be told lags or inputs; leave `leaf` out, "
                "name 'student_t', or leave the lags out."
            )
        variables.append(replace(variable, leaf=told_family(variable, tuple(sources), steps)))
    return replace(schema, variables=tuple(variables))


# Plain families, a row of parameters for each value


def paired_log_prob(family: Family, rows: Floats, values: Floats) -> Floats:
    """Log p(value_i | row_i), (M,), of observed values."""
    with np.errstate(all="ignore"):
        if isinstance(family, Gaussian):
            squares = (values - rows[:, 0]) ** 2 / rows[:, 1]
            return np.asarray(-0.5 * (_LOG_TWO_PI + np.log(rows[:, 1]) + squares))
        if isinstance(family, StudentT):
            return log_density(np.abs(values - rows[:, 0]), rows[:, 1], family.df)
        if isinstance(family, Poisson):
            rates = rows[:, 0]
            return np.asarray(xlogy(values, rates) - rates - gammaln(values + 1.0))
        assert isinstance(family, Categorical)
        places = np.clip(values, 0, family.num_categories - 1).astype(np.int64)
        return np.log(rows[np.arange(len(rows)), places])


def paired_tail(family: Family, rows: Floats, values: Floats, sign: float) -> Floats:
    """P(X <= value_i | row_i) where the sign is 1, P(X > value_i | row_i) where it is -1."""
    if isinstance(family, Gaussian):
        return np.asarray(ndtr(sign * (values - rows[:, 0]) / np.sqrt(rows[:, 1])))
    if isinstance(family, StudentT):
        return np.asarray(stdtr(family.df, sign * (values - rows[:, 0]) / np.sqrt(rows[:, 1])))
    if isinstance(family, Poisson):
        tail = (pdtr if sign > 0 else pdtrc)(np.maximum(np.floor(values), 0.0), rows[:, 0])
        return np.where(values < 0, 0.0 if sign > 0 else 1.0, tail)
    assert isinstance(family, Categorical)
    codes = np.arange(family.num_categories)
    below = np.where(codes <= values[:, None], rows, 0.0).sum(axis=1)
    return np.asarray(below if sign > 0 else 1.0 - below)


def row_moments(family: Family, parameters: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Means and variances of mixtures with leaves of their own, (E, L, P) and (E, L)."""
    flat = parameters.reshape(-1, parameters.shape[2])
    means = family.mean(flat).reshape(weights.shape)
    variances = family.variance(flat).reshape(weights.shape)
    mean = (weights * means).sum(axis=1)
    with np.errstate(over="ignore"):
        spread = (np.sqrt(weights) * (means - mean[:, None])) ** 2
    return mean, spread.sum(axis=1) + (weights * variances).sum(axis=1)


def row_tails(family: Family, parameters: Floats, values: Floats, sign: float) -> Floats:
    """P(X <= value_e) or P(X > value_e) of the leaves of each entry, (E, L, P) -> (E, L)."""
    count, leaves, width = parameters.shape
    flat, points = parameters.reshape(-1, width), np.repeat(values, leaves)
    return paired_tail(family, flat, points, sign).reshape(count, leaves)


def row_quantiles(
    family: Family, parameters: Floats, weights: Floats, levels: Floats, *, cells: int = 1 << 20
) -> Floats:
    """Quantiles of mixtures with leaves of their own, (E, L, P) and (E, L) -> (E, levels).

    The search is that of `Family.mixture_quantiles`.
    """
    count, leaves, width = parameters.shape
    found = np.empty((count, len(levels)))
    search = search_integers if family.is_discrete else search_reals
    height = max(1, cells // max(1, leaves))
    for start in range(0, count, height):
        part = slice(start, start + height)
        own, shares = parameters[part], weights[part]
        lower, upper = family.quantile_bounds(own.reshape(-1, width), levels)
        packed = np.concatenate([shares[:, :, None], own], axis=2)
        for number, level in enumerate(levels.tolist()):
            sign = 1.0 if level <= 0.5 else -1.0

            def evaluate(rows: Floats, points: Floats, sign: float = sign) -> tuple[Floats, Floats]:
                flat = rows[:, :, 1:].reshape(-1, width)
                at = np.repeat(points, leaves)
                tail = paired_tail(family, flat, at, sign).reshape(-1, leaves)
                total = (rows[:, :, 0] * tail).sum(axis=1)
                if family.is_discrete:
                    return total, total
                density = np.exp(paired_log_prob(family, flat, at)).reshape(-1, leaves)
                return total, (rows[:, :, 0] * density).sum(axis=1)

            low = np.where(shares > 0, lower[number].reshape(shares.shape), np.inf).min(axis=1)
            high = np.where(shares > 0, upper[number].reshape(shares.shape), -np.inf).max(axis=1)
            mass = np.full(len(own), level if sign > 0 else 1.0 - level)
            with np.errstate(all="ignore"):
                found[part, number] = search(evaluate, packed, sign, mass, low, high)
    return found

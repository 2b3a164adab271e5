"""Conditional distributions of all missing entries at once, from one pass up and one down."""

import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints, float_array
from dspn.data.schema import Kind, Schema, Variable
from dspn.data.sequences import Sequences
from dspn.engine.base import Program, Want, bottom_rows, rounded
from dspn.errors import EvidenceError
from dspn.inference.gaps import can_draw_gaps, draw_gaps
from dspn.inference.likelihood import bounded_runs, require_possible
from dspn.leaves.base import Contextual, Family, plain_family
from dspn.leaves.block import carrier_of
from dspn.leaves.told import has_told_gaps, row_moments, row_quantiles, told_values

# Weights of leaves that are held at a time: 128 MiB.
_MOST_WEIGHTS: Final = 1 << 24


@final
@dataclass(frozen=True, eq=False, repr=False)
class VariableMarginals:
    """P(entry | evidence) of one variable's missing entries, each the exact mixture of its leaves.

    `slices[e]` is the row of entry e in the data's `values`. A categorical variable has
    `probabilities` (entries, categories). Numbers and counts have `mean`, `variance` and
    `quantiles` (entries, levels), and their `probabilities` are None; means of categories are NaN.
    `error` is the standard error of the mean, or the largest of the probabilities', where they come
    from draws.
    """

    variable: Variable
    slices: Ints
    probabilities: Floats | None
    mean: Floats
    variance: Floats
    levels: tuple[float, ...]
    quantiles: Floats
    error: Floats | None = None

    def __repr__(self) -> str:
        return f"VariableMarginals({self.described()})"

    def described(self) -> str:
        """Name, kind, number of entries, and what is known of them, in one line."""
        count = f"{self.slices.size} {'entry' if self.slices.size == 1 else 'entries'}"
        levels = f", quantiles {', '.join(map(str, self.levels))}" if self.levels else ""
        known = "mean, variance" if self.probabilities is None else "probabilities"
        return f"{self.variable.name}: {self.variable.kind}, {count}, {known}{levels}"

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
    """Marginals of every variable, by name or number, and the log-likelihood of the evidence.

    Where leaves are told entries (lags) and such an entry is missing, marginals are not `exact`:
    they come from draws, or where that cannot be done the missing entry does not feel the leaves
    that it would have been told to, which do without it.
    """

    schema: Schema
    log_likelihood: Floats
    variables: tuple[VariableMarginals, ...]
    exact: bool = True
    sequences: Sequences | None = None

    def __getitem__(self, variable: int | str) -> VariableMarginals:
        index = self.schema.index(variable) if isinstance(variable, str) else variable
        return self.variables[index]

    def __contains__(self, name: object) -> bool:
        """Whether a variable has this name."""
        return name in self.schema.names

    def __iter__(self) -> Iterator[str]:
        """Names of the variables, as a mapping has its keys."""
        return iter(self.schema.names)

    def __len__(self) -> int:
        """Number of variables."""
        return len(self.variables)

    def keys(self) -> tuple[str, ...]:
        """Names of the variables."""
        return self.schema.names

    def items(self) -> Iterator[tuple[str, VariableMarginals]]:
        """Names of the variables, each with its marginals."""
        return zip(self.schema.names, self.variables, strict=True)

    def to_frame(self, library: str = "pandas") -> Any:
        """A row for each slice with an entry: ids, times, points, and probabilities or quantiles.

        `library` is "pandas", "polars" or "pyarrow".
        """
        from dspn.inference.frames import marginals_frame

        return marginals_frame(self, library)

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
        self.family = plain_family(family)
        self.levels = () if variable.kind == Kind.CATEGORICAL else levels
        self.probabilities = np.full((count, variable.num_categories), np.nan)
        self.mean = np.full(count, np.nan)
        self.variance = np.full(count, np.nan)
        self.quantiles = np.full((count, len(self.levels)), np.nan)

    def put(self, entries: Ints, weights: Floats, parameters: Floats) -> None:
        """Entry e is the mixture of the leaves `parameters` with weights `weights[e]`.

        Parameters (E, L, P) are those of each entry in its context.

        Weights that are no mixture are passed over: a linear pass that lost them is repeated. Sums
        run row by row in the order of the leaves, so that an entry's numbers do not depend on the
        others; a matrix product takes another order for another number of rows.
        """
        weights = np.ascontiguousarray(weights)
        totals = weights.sum(axis=1)
        whole = (totals > 0) & np.isfinite(totals)
        entries, weights = entries[whole], weights[whole] / totals[whole, None]
        in_context = parameters.ndim == 3
        if in_context:
            parameters = parameters[whole]
        if self.variable.kind == Kind.CATEGORICAL:
            for category in range(self.variable.num_categories):
                chances = parameters[..., category]
                self.probabilities[entries, category] = (weights * chances).sum(axis=1)
            return
        moments = row_moments if in_context else type(self.family).mixture_moments
        self.mean[entries], self.variance[entries] = moments(self.family, parameters, weights)
        if self.levels:
            own = (parameters, weights, np.array(self.levels))
            self.quantiles[entries] = (
                row_quantiles(self.family, *own)
                if in_context
                else self.family.mixture_quantiles(*own)
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


class LeafMixtures(NamedTuple):
    """Entries of one variable, each a mixture of its leaves.

    Entry e of the wanted ones has the weights `weights[e]` over leaves with the rows `parameters`,
    or `parameters[e]` where leaves are told something.
    """

    variable: int
    entries: Ints
    weights: Floats
    parameters: Floats


def leaf_parameters(program: Program, variable: int, bottom: bool) -> Floats:
    """Parameters of a variable's leaves in all components, of the bottom networks or templates.

    Those of a block of variables are those of its first.
    """
    found, variable = [], carrier_of(program.schema, variable)
    for network in program.mixture:
        own = network.parameters.bottom if bottom else None
        found.append((own or network.parameters.template).leaves[variable])
    return np.concatenate(found)


def leaf_mixtures(
    program: Program,
    data: Sequences,
    wanted: Bools,
    log_likelihood: Floats,
    surprises: Floats | None = None,
) -> Iterator[LeafMixtures]:
    """The conditional distributions of the wanted entries as mixtures of leaves.

    Sequences are taken as many at a time as memory allows.

    Args:
        program: The compiled model.
        data: The evidence; all wanted entries are missing from it, unless `surprises` are given.
        wanted: Which entries, (slices, variables).
        log_likelihood: Receives that of every sequence. Mixtures of impossible ones are undefined.
        surprises: Receives those of all entries; mixtures are then given all other entries.
    """
    banks = [[len(bank.nodes) for bank in network.template.banks] for network in program.mixture]
    bottom = np.zeros(data.total_slices, dtype=np.bool_)
    if any(network.parameters.bottom is not None for network in program.mixture):
        bottom[bottom_rows(data, program.root)] = True
    costs = np.add.reduceat(wanted @ np.sum(banks, axis=0), data.offsets[:-1])
    first = np.zeros(len(data.schema), dtype=np.int64)
    for run in bounded_runs(costs, _MOST_WEIGHTS):
        rows = slice(data.offsets[run.start], data.offsets[run.stop])
        part = data if run.stop - run.start == len(data) else data[run]
        want = Want(leaves=wanted[rows], surprises=surprises is not None)
        found = program.posteriors(part, want)
        if surprises is not None:
            surprises[rows] = found.surprises
        log_likelihood[run] = rounded(found.log_values)
        for variable, weights in enumerate(found.leaves):
            at_bottom = bottom[rows][wanted[rows, variable]]
            for own in (False, True):
                places = np.flatnonzero(at_bottom == own)
                if places.size:
                    entries = first[variable] + places
                    parameters = leaf_parameters(program, variable, own)
                    chosen = weights if places.size == len(weights) else weights[places]
                    family = program.mixture.components[0].template.banks[variable].family
                    if isinstance(family, Contextual):
                        at = np.flatnonzero(wanted[rows, variable])[places]
                        parameters = family.given(parameters, told_values(part, variable, at))[1]
                    yield LeafMixtures(variable, entries, chosen, parameters)
            first[variable] += len(weights)


def _mix(
    program: Program, data: Sequences, wanted: Bools, levels: Sequence[tuple[float, ...]]
) -> Marginals:
    """P(entry | evidence) of the wanted entries, with the levels of each variable."""
    banks = program.mixture.components[0].template.banks
    slices = [np.flatnonzero(column) for column in wanted.T]
    mixers = [
        Mixer(variable, bank.family, own, rows.size)
        for variable, bank, own, rows in zip(data.schema, banks, levels, slices, strict=True)
    ]
    log_likelihood = np.empty(len(data))
    for variable, entries, weights, parameters in leaf_mixtures(
        program, data, wanted, log_likelihood
    ):
        mixers[variable].put(entries, weights, parameters)
    require_possible(program, data, log_likelihood)
    results = (mixer.result(rows) for mixer, rows in zip(mixers, slices, strict=True))
    exact = not has_told_gaps(data)
    return Marginals(data.schema, log_likelihood, tuple(results), exact, data)


def marginals_at(
    program: Program, data: Sequences, wanted: Bools, levels: tuple[float, ...]
) -> Marginals:
    """P(entry | evidence) of the wanted entries, all of them missing from `data`."""
    return _mix(program, data, wanted, [levels] * len(data.schema))


def marginals(program: Program, data: Sequences, *, quantiles: Sequence[float] = ()) -> Marginals:
    """P(entry | evidence) of every missing entry, in one pass up and one down.

    Where leaves are told entries (lags) that are numbers, missing entries are drawn so that they
    fit both sides (`dspn.inference.gaps`), and `error` is the standard error of the means.
    """
    levels = checked_levels(quantiles)
    if can_draw_gaps(program, data):
        return _gap_marginals(program, data, [levels] * len(data.schema))
    return marginals_at(program, data, np.isnan(data.values), levels)


def _gap_marginals(
    program: Program, data: Sequences, levels: Sequence[tuple[float, ...]]
) -> Marginals:
    """Marginals of all missing entries from draws that fit both sides."""
    log_likelihood = require_possible(program, data, program.log_likelihood(data))
    missing = np.isnan(data.values)
    found = draw_gaps(program, data)
    entries, results = np.nonzero(missing), []
    for v, (variable, own) in enumerate(zip(data.schema, levels, strict=True)):
        mine = entries[1] == v
        result = marginal_of_draws(variable, entries[0][mine], found.draws[:, mine].T, own)
        if variable.kind != Kind.CATEGORICAL:
            result = replace(result, mean=found.means[mine], error=found.error[mine])
        results.append(result)
    return Marginals(data.schema, log_likelihood, tuple(results), False, data)


def marginal_of_draws(
    variable: Variable, slices: Ints, draws: Floats, levels: tuple[float, ...]
) -> VariableMarginals:
    """The marginals of one variable's entries from independent draws (entries, draws)."""
    count = draws.shape[1]
    none = np.full(len(draws), np.nan)
    if variable.kind == Kind.CATEGORICAL:
        shares = [(draws == code).mean(axis=1) for code in range(variable.num_categories)]
        probabilities = np.stack(shares, axis=1)
        quantiles = np.empty((len(draws), 0))
        error = np.sqrt((probabilities * (1.0 - probabilities)).max(axis=1, initial=0.0) / count)
        return VariableMarginals(variable, slices, probabilities, none, none, (), quantiles, error)
    method: Any = "inverted_cdf" if variable.kind == Kind.COUNT else "linear"
    quantiles = np.quantile(draws, np.array(levels), axis=1, method=method).T
    mean, variance = draws.mean(axis=1), draws.var(axis=1, ddof=1)
    error = np.sqrt(variance / count)
    return VariableMarginals(variable, slices, None, mean, variance, levels, quantiles, error)


def interface_posteriors(program: Program, data: Sequences) -> Floats:
    """P(interface node i is on the induced tree at a slice | evidence), (slices, interfaces).

    Sums to 1 over the nodes of each group. For a mixture it is P(component, node | evidence),
    component after component, and sums to the posterior of the component over each of its groups.
    """
    found = program.posteriors(data, Want(interfaces=True))
    require_possible(program, data, rounded(found.log_values))
    return found.interfaces


@final
@dataclass(frozen=True, eq=False, repr=False)
class Imputation:
    """Filled sequences, a mark of what was filled, and the distributions of the filled entries.

    `filled` is (slices, variables). The bands of variable v are `marginals[v].quantiles`, of the
    entries `marginals[v].slices`; a category has `probabilities` instead.
    """

    sequences: Sequences
    filled: Bools
    marginals: Marginals

    def __repr__(self) -> str:
        return f"Imputation(num_sequences={len(self.sequences)}, filled={int(self.filled.sum())})"

    def to_frame(self, library: str = "pandas") -> Any:
        """The filled table, with quantiles beside what was filled, and a column `filled`."""
        from dspn.inference.frames import imputation_frame

        return imputation_frame(self, library)

    def bands(self, variable: int | str) -> Floats:
        """Quantiles of a variable at every slice, (slices, levels); NaN where it was observed."""
        own = self.marginals[variable]
        out = np.full((len(self.filled), len(own.levels)), np.nan)
        out[own.slices] = own.quantiles
        return out


def impute_with_bands(
    program: Program, data: Sequences, *, quantiles: Sequence[float] = (0.1, 0.9)
) -> Imputation:
    """What `impute` fills in, with quantiles of every filled number."""
    asked = checked_levels(quantiles)
    filled = np.isnan(data.values)
    with_median = asked if 0.5 in asked else (*asked, 0.5)
    kinds = [variable.kind for variable in data.schema]
    levels = [with_median if kind == Kind.COUNT else asked for kind in kinds]
    if can_draw_gaps(program, data):
        found = _gap_marginals(program, data, levels)
    else:
        found = _mix(program, data, filled, levels)
    values = data.values.copy()
    parts = []
    for variable, own in enumerate(found.variables):
        values[own.slices, variable] = own.point()
        kept = () if own.probabilities is not None else asked
        parts.append(replace(own, levels=kept, quantiles=own.quantiles[:, : len(kept)]))
    marginals = replace(found, variables=tuple(parts))
    return Imputation(data.with_values(values), filled, marginals)


def impute(program: Program, data: Sequences) -> Sequences:
    """Missing entries replaced by the mode of a category, the median of a count, or the mean."""
    return impute_with_bands(program, data, quantiles=()).sequences

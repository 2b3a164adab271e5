"""Missing entries of models with lags, drawn so that they fit what stands before and after them.

Given the leaf of every entry, numbers that are linear in other numbers are jointly Gaussian (with
Student t noise given the precision of every entry too); given all numbers, the leaves are drawn
exactly, and the precisions given both. Draws of the one and of the other in turn (blocked Gibbs
sampling) follow P(missing | observed) of the model of complete sequences. The Gaussians of all
sequences have one banded matrix of precisions, and one factor of it gives all draws of a turn.
"""

from typing import Final, NamedTuple, final

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.linalg.lapack import dtbtrs
from scipy.sparse import coo_matrix, csr_matrix, diags

from dspn._arguments import Bools, Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine.base import Program
from dspn.inference.completion import chosen_rows
from dspn.inference.likelihood import bounded_runs, component_posteriors
from dspn.inference.sampling import sample_given
from dspn.leaves.base import Family, plain_family
from dspn.leaves.gaussian import Gaussian
from dspn.leaves.rules import Linear
from dspn.leaves.student_t import StudentT
from dspn.leaves.told import Told, has_told_gaps, sources_of, told_values

# Turns whose draws are kept, and turns before them.
NUM_DRAWS: Final = 200
_WARM_UP: Final = 20
_BATCHES: Final = 10
# Slices that are drawn together.
_MOST_SLICES: Final = 1 << 18


@final
class GapDraws(NamedTuple):
    """Draws of the missing entries, in the order of rows and then of variables.

    `means` are the entries' expectations given the leaves, averaged over the turns, and `error`
    their standard errors by batches of turns. For entries that are not Gaussian given the leaves
    they are averages of draws.
    """

    draws: Floats  # (turns, entries)
    means: Floats
    error: Floats


def _is_linear(family: Family) -> bool:
    return isinstance(family, Gaussian | StudentT) or (
        isinstance(family, Told) and isinstance(family.rule, Linear)
    )


def _families(program: Program) -> list[Family]:
    return [bank.family for bank in program.mixture.components[0].template.banks]


def can_draw_gaps(program: Program, data: Sequences) -> bool:
    """Whether leaves are told missing entries, and all such entries and leaves are linear."""
    if not has_told_gaps(data):
        return False
    families = _families(program)
    told = [
        {own.column for own in sources_of(variable) if own.kind == "value"}
        for variable in data.schema
    ]
    for v in np.flatnonzero(np.isnan(data.values).any(axis=0)).tolist():
        readers = [w for w, sources in enumerate(told) if v in sources]
        if not (readers or told[v]):
            continue
        if not _is_linear(families[v]) or not all(_is_linear(families[w]) for w in readers):
            return False
    return True


def draw_gaps(
    program: Program, data: Sequences, *, seed: int = 0, num_draws: int = NUM_DRAWS
) -> GapDraws:
    """Draws of all missing entries given the observed ones; only where `can_draw_gaps`."""
    missing = np.isnan(data.values)
    counts = np.add.reduceat(missing.sum(axis=1), data.offsets[:-1])
    draws = np.empty((num_draws, int(missing.sum())))
    means = np.zeros((_BATCHES, draws.shape[1]))
    ends = np.cumsum(counts)
    rng = np.random.default_rng(seed)
    for run in bounded_runs(data.lengths, _MOST_SLICES):
        own = slice(int(ends[run.start] - counts[run.start]), int(ends[run.stop - 1]))
        if own.stop > own.start:
            part = data if run.stop - run.start == len(data) else data[run]
            _take_turns(program, part, rng, draws[:, own], means[:, own])
    error = means.std(axis=0, ddof=1) / np.sqrt(_BATCHES)
    return GapDraws(draws, means.mean(axis=0), error)


def _take_turns(
    program: Program, data: Sequences, rng: np.random.Generator, draws: Floats, means: Floats
) -> None:
    """Fills in draws (turns, entries) and the batch means (batches, entries) of one batch."""
    missing = np.isnan(data.values)
    linear = np.array([_is_linear(family) for family in _families(program)])
    unknown, others = missing & linear, np.flatnonzero(~linear & missing.any(axis=0)).tolist()
    networks = program.mixture.components
    # A single leaf is the leaf of every entry in all turns.
    several = len(networks) > 1 or any(len(bank.nodes) > 1 for bank in networks[0].template.banks)
    values = sample_given(program, data, rng=rng).values.copy()
    per_batch = np.zeros(len(means))
    num_draws = len(draws)
    for turn in range(-_WARM_UP, num_draws):
        is_first = turn == -_WARM_UP
        if is_first or several:
            rows = _drawn_rows(program, data, values, rng)
        for v in others:
            at = np.flatnonzero(missing[:, v])
            family, own = _families(program)[v], rows[v][at]
            if isinstance(family, Told):
                context = told_values(data, v, at, values)[:, 1:]
                own, family = family.resolve(own, context), family.plain
            values[at, v] = family.sample(own, rng)
        if is_first or several or others:
            equations = _equations(program, data, values, rows, unknown)
        expected = values.copy()
        if unknown.any():
            expected[unknown], values[unknown] = _drawn_numbers(equations, values[unknown], rng)
        if turn >= 0:
            batch = turn * len(means) // num_draws
            draws[turn] = values[missing]
            means[batch] += expected[missing]
            per_batch[batch] += 1
    means /= per_batch[:, None]


def _drawn_rows(
    program: Program, data: Sequences, values: Floats, rng: np.random.Generator
) -> list[Floats]:
    """Parameters of the leaf of every entry, drawn given complete values; (slices, P) for each."""
    complete = data.with_values(values)
    drawn = np.zeros(len(data), dtype=np.int64)
    if len(program.components) > 1:
        bounds = np.cumsum(component_posteriors(program, complete), axis=1)
        drawn = np.argmax(bounds > rng.random(len(data))[:, None] * bounds[:, -1:], axis=1)
    families = _families(program)
    found = [np.empty((data.total_slices, family.num_parameters)) for family in families]
    for c in np.unique(drawn).tolist():
        own, network = drawn == c, program.mixture.components[c]
        part = complete if own.all() else complete[own]
        seeds = rng.integers(0, 2**64, size=len(part), dtype=np.uint64)
        leaves = program.components[c].draw(part, seeds).leaves
        places, every = np.flatnonzero(np.repeat(own, data.lengths)), np.arange(part.total_slices)
        for v, out in enumerate(found):
            out[places] = chosen_rows(network, part, leaves, v, every)
    return found


class _Equations(NamedTuple):
    """Every number is a constant plus multiples of others plus noise: A x - c of variances d.

    Where `degrees` are finite the noise is a Student t of such degrees, with squared scales d.
    """

    matrix: csr_matrix  # A, (equations, unknowns)
    right: Floats
    squares: Floats
    degrees: Floats


def _drawn_numbers(
    equations: _Equations, values: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The means of the unknown numbers given the leaves, and a draw of them.

    The precision of the unknown x is A' D^-1 A, and its mean solves that for A' D^-1 c. Student t
    noise has the variance d / u: u, given the current values, has a gamma distribution of shape
    (df + 1) / 2 and rate (df + t^2) / 2.
    """
    matrix, right, squares, degrees = equations
    heavy = np.flatnonzero(np.isfinite(degrees))
    if heavy.size:
        distances = (matrix @ values - right)[heavy] ** 2 / squares[heavy]
        half, rate = 0.5 * (degrees[heavy] + 1.0), 0.5 * (degrees[heavy] + distances)
        squares = squares.copy()
        squares[heavy] *= rate / rng.standard_gamma(half)
    weighted = matrix.T @ diags(1.0 / squares)
    precision = coo_matrix(weighted @ matrix)
    lower = precision.row >= precision.col
    row, column, entry = precision.row[lower], precision.col[lower], precision.data[lower]
    banded = np.zeros((int((row - column).max()) + 1, precision.shape[0]))
    banded[row - column, column] = entry
    factor = cholesky_banded(banded, lower=True)
    mean = cho_solve_banded((factor, True), weighted @ right)
    noise, _ = dtbtrs(factor, rng.standard_normal((len(mean), 1)), uplo="L", trans="T")
    return mean, mean + noise[:, 0]


def _equations(
    program: Program, data: Sequences, values: Floats, rows: list[Floats], unknown: Bools
) -> _Equations:
    """The equations of all unknown numbers and of the leaves that are told them."""
    number = np.full(unknown.shape, -1, dtype=np.int64)
    number[unknown] = np.arange(int(unknown.sum()))
    starts = np.repeat(data.offsets[:-1], data.lengths)
    places: list[tuple[Ints, Ints, Floats]] = []
    right, variances, degrees, count = [], [], [], 0
    for v, family in enumerate(_families(program)):
        if not _is_linear(family):
            continue
        sources = [
            (d, own) for d, own in enumerate(sources_of(data.schema[v])) if own.kind == "value"
        ]
        touched = unknown[:, v].copy()
        for _, own in sources:
            earlier = np.arange(len(values)) - own.lag
            inside = earlier >= starts
            touched |= inside & unknown[np.maximum(earlier, 0), own.column]
        at = np.flatnonzero(touched)
        if not at.size:
            continue
        equation = count + np.arange(at.size)
        count += at.size
        constant, slopes, variance = _terms(family, rows[v][at], data, v, at, values)
        known = np.where(unknown[at, v], 0.0, values[at, v])
        side = constant - known
        mine = unknown[at, v]
        places.append((equation[mine], number[at[mine], v], np.ones(int(mine.sum()))))
        for d, own in sources:
            slope = slopes[:, d]
            earlier = np.maximum(at - own.lag, 0)
            hidden = unknown[earlier, own.column] & (slope != 0)
            side += np.where(hidden | (slope == 0), 0.0, slope * values[earlier, own.column])
            places.append((equation[hidden], number[earlier[hidden], own.column], -slope[hidden]))
        right.append(side)
        variances.append(variance)
        plain = plain_family(family)
        degrees.append(np.full(at.size, plain.df if isinstance(plain, StudentT) else np.inf))
    if not places:
        return _Equations(csr_matrix((0, 0)), np.empty(0), np.empty(0), np.empty(0))
    equations, unknowns, entries = (np.concatenate(own) for own in zip(*places, strict=True))
    shape = (count, int(unknown.sum()))
    matrix = csr_matrix((entries, (equations, unknowns)), shape=shape)
    return _Equations(matrix, *map(np.concatenate, (right, variances, degrees)))


def _terms(
    family: Family, rows: Floats, data: Sequences, variable: int, at: Ints, values: Floats
) -> tuple[Floats, Floats, Floats]:
    """The constant, the multiple of each number among the sources, and the variance or scale."""
    if not isinstance(family, Told):
        return rows[:, 0], np.empty((len(rows), 0)), rows[:, 1]
    return family.linear_terms(rows, told_values(data, variable, at, values)[:, 1:])

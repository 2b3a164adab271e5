"""Distributions of the slices that follow: exact, or of drawn paths where leaves are told lags."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Bools, whole_number
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.engine.base import Program
from dspn.errors import DataError
from dspn.inference.likelihood import bounded_runs
from dspn.inference.marginals import Marginals, checked_levels, marginal_of_draws, marginals_at
from dspn.inference.sampling import sample_given
from dspn.leaves.told import has_lags

# Slices that are drawn at a time.
_MOST_DRAWN: Final = 1 << 20


@final
@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """The data with `steps` slices appended, and the marginals of what is not known of them.

    `num_paths` is None where they are exact. Otherwise they are those of as many drawn paths, and
    `marginals[variable].error` is the standard error of the means that comes from drawing. `before`
    are the data without the new slices.
    """

    steps: int
    sequences: Sequences
    marginals: Marginals
    num_paths: int | None = None
    before: Sequences | None = None

    def to_frame(self, library: str = "pandas") -> Any:
        """A row for each step of each sequence: ids, times, points, probabilities or quantiles.

        The order column goes on where its steps are all equal, and slices are numbered where it
        cannot go on. `library` is "pandas", "polars" or "pyarrow".
        """
        from dspn.inference.frames import forecast_frame

        return forecast_frame(self, library)

    def __repr__(self) -> str:
        return (
            f"Forecast(steps={self.steps}, num_sequences={len(self.sequences)}, "
            f"num_variables={self.sequences.num_variables})"
        )

    @property
    def future(self) -> Bools:
        """Which slices of `sequences` are new."""
        ends = np.repeat(self.sequences.offsets[1:], self.sequences.lengths)
        rows = np.arange(self.sequences.values.shape[0])
        return rows >= ends - self.steps


def forecast(
    program: Program,
    data: Sequences,
    steps: int,
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    num_paths: int = 1000,
    seed: int = 0,
    known: Sequences | None = None,
    inputs: Any = None,
) -> Forecast:
    """P(x_{T+1}..x_{T+steps} | x_1..x_T), entry by entry.

    With the root at the first slice and a tied bottom the answer does not depend on the horizon;
    otherwise the model of T + steps slices is asked. Where leaves are told entries (lags), what
    follows depends on what comes before it, and paths are drawn.

    `known` holds what is known of the slices that follow, at most `steps` for each sequence: it is
    evidence, and known entries have no marginals.

    Args:
        program: The compiled model.
        data: The sequences so far.
        steps: How many slices to look ahead.
        quantiles: Levels of the quantiles.
        num_paths: Paths of each sequence, where paths are drawn.
        seed: Of the paths.
        known: Slices that follow, with NaN for what is not known.
        inputs: Inputs of the slices ahead that no rule computes; see `Sequences.extended`.
    """
    levels = checked_levels(quantiles)
    ahead = whole_number(steps, "steps", DataError)
    longer = _with_known(data.extended(ahead, inputs), ahead, known)
    if has_lags(data.schema):
        count = whole_number(num_paths, "num_paths", DataError, least=2)
        found = path_marginals(program, longer, ahead, levels, count, seed)
        return Forecast(ahead, longer, found, count, data)
    blank = Forecast(ahead, longer, Marginals(data.schema, np.empty(0), ()))
    wanted = blank.future[:, None] & np.isnan(longer.values)
    found = marginals_at(program, longer, wanted, levels)
    return Forecast(ahead, longer, found, None, data)


def path_marginals(
    program: Program,
    longer: Sequences,
    steps: int,
    levels: tuple[float, ...],
    num_paths: int,
    seed: int,
) -> Marginals:
    """Marginals of the last `steps` slices of each sequence, from drawn paths.

    The latent choices of the future do not depend on its values, so they are drawn first, and the
    values slice after slice. As many sequences are drawn at a time as memory allows.
    """
    rng = np.random.default_rng(seed)
    schema, count = longer.schema, len(longer)
    rows = longer.offsets[1:, None] - steps + np.arange(steps)
    paths = np.empty((count, num_paths, steps, len(schema)))
    for run in bounded_runs(longer.lengths * num_paths, _MOST_DRAWN):
        part = longer[run]
        drawn = sample_given(program, part[np.repeat(np.arange(len(part)), num_paths)], rng=rng)
        ends = drawn.offsets[1:, None] - steps + np.arange(steps)
        paths[run] = drawn.values[ends].reshape(len(part), num_paths, steps, -1)
    found = []
    for v, variable in enumerate(schema):
        own = np.moveaxis(paths[..., v], 1, 2).reshape(count * steps, num_paths)
        unknown = np.isnan(longer.values[rows.ravel(), v])
        entries, categorical = rows.ravel()[unknown], variable.kind == Kind.CATEGORICAL
        asked = () if categorical else levels
        found.append(marginal_of_draws(variable, entries, own[unknown], asked))
    known = program.log_likelihood(longer)
    return Marginals(schema, known, tuple(found), False)


def _with_known(longer: Sequences, steps: int, known: Sequences | None) -> Sequences:
    """The sequences with what is known of their last `steps` slices."""
    if known is None:
        return longer
    if len(known) != len(longer):
        raise DataError(
            f"`known` must have what is known of each of the {len(longer)} sequences, but has "
            f"{len(known)}; give a matrix for each, with NaN for what is not known."
        )
    if int(known.lengths.max()) > steps:
        raise DataError(
            f"`known` must have at most {steps} slices for each sequence, as many as are forecast, "
            f"but has {int(known.lengths.max())}; raise `steps`, or leave the last ones out."
        )
    values = longer.values.copy()
    starts = np.repeat(longer.offsets[1:] - steps - known.offsets[:-1], known.lengths)
    values[starts + np.arange(known.total_slices)] = known.values
    return longer.with_values(values)


def sample_futures(
    program: Program,
    data: Sequences,
    steps: int,
    *,
    inputs: Any = None,
    rng: np.random.Generator,
    known: Sequences | None = None,
) -> Sequences:
    """One drawn continuation of each sequence (its missing entries are drawn along with it)."""
    ahead = whole_number(steps, "steps", DataError)
    return sample_given(program, _with_known(data.extended(ahead, inputs), ahead, known), rng=rng)

"""Scores of answers whose truth is known: entries are hidden, asked for, and compared.

The same entries are filled by rules that need no model: the mean, the last value, a straight line
between neighbours, and the value a season before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, final, get_args

import numpy as np
from scipy.special import erf

from dspn._arguments import Bools, Floats, Ints, whole_number
from dspn.data.schema import Kind, Variable
from dspn.data.sequences import Sequences
from dspn.engine.base import Program
from dspn.errors import DataError
from dspn.inference.forecast import path_marginals
from dspn.inference.gaps import can_draw_gaps
from dspn.inference.likelihood import require_possible
from dspn.inference.marginals import Mixer, VariableMarginals, leaf_mixtures, marginals
from dspn.inference.tails import leaf_log_probs
from dspn.leaves.base import plain_family
from dspn.leaves.told import has_lags

Hiding = Literal["random", "gaps", "last"]
BAND: Final = (0.1, 0.9)
# Levels of the quantiles from which the CRPS is computed where there is no closed form.
_GRID: Final = (np.arange(99) + 0.5) / 99
_LEVELS: Final = (BAND[0], 0.5, BAND[1])
_NUM_PATHS: Final = 300
_MODEL: Final = "model"


class Score(NamedTuple):
    """How well a method answers for one variable, over so many hidden `entries`.

    `step` is the number of slices ahead in a back-test, else 0. `mae` is that of the median and
    `rmse` that of the mean; `accuracy` is that of the most probable category. `crps` is the
    continuous ranked probability score, which for a method without distribution is the `mae`;
    `pinball` is the mean loss of the quantiles 0.1, 0.5 and 0.9; `log_score` is minus the mean log
    density (nats), `coverage` the share of entries within the band of 80 %. What does not apply is
    NaN.
    """

    variable: str
    step: int
    method: str
    entries: int
    mae: float = np.nan
    rmse: float = np.nan
    accuracy: float = np.nan
    crps: float = np.nan
    pinball: float = np.nan
    log_score: float = np.nan
    coverage: float = np.nan


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores by variable, step and method, the model first; `hidden` says what was hidden."""

    scores: tuple[Score, ...]
    hidden: str

    def __repr__(self) -> str:
        names = ("variable", "step", "method", "entries", *_NUMBERS)
        used = [
            name
            for name in names
            if name in names[:4] or not all(np.isnan(getattr(own, name)) for own in self.scores)
        ]
        if all(own.step == 0 for own in self.scores):
            used.remove("step")
        cells = [used, *([_text(getattr(own, name)) for name in used] for own in self.scores)]
        widths = [max(len(row[at]) for row in cells) for at in range(len(used))]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
        return "\n".join([f"hidden: {self.hidden}", *lines])

    def to_frame(self, library: str = "pandas") -> Any:
        """The scores as a table, a row for each variable, step and method."""
        from dspn.data.tables import make_frame

        columns = zip(*self.scores, strict=True)
        return make_frame(dict(zip(Score._fields, map(list, columns), strict=True)), library)

    def __getitem__(self, key: tuple[str, str]) -> Score:
        """The first score of a variable and a method."""
        variable, method = key
        for own in self.scores:
            if (own.variable, own.method) == (variable, method):
                return own
        raise KeyError(key)


_NUMBERS: Final = ("mae", "rmse", "accuracy", "crps", "pinball", "log_score", "coverage")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return str(value)


def evaluate(
    program: Program,
    data: Sequences,
    *,
    hide: Hiding = "random",
    share: float = 0.2,
    length: int = 6,
    steps: int = 1,
    season: int | None = None,
    seed: int = 0,
) -> Evaluation:
    """Hides observed entries and scores what the model and simple rules say of them.

    Args:
        program: The compiled model.
        data: Sequences that were not used for learning.
        hide: "random" entries; "gaps", runs of one variable; "last", the last slices whole.
        share: The share of entries to hide, for "random" and "gaps".
        length: The number of slices of a gap.
        steps: The number of last slices.
        season: Slices of a season; with it the rule "seasonal naive" is there.
        seed: Seed of what is hidden.
    """
    checked_season = None if season is None else whole_number(season, "season", DataError)
    if hide not in get_args(Hiding):
        known = ", ".join(map(repr, get_args(Hiding)))
        raise DataError(f"`hide` must be one of {known}, but is {hide!r}.")
    ahead = whole_number(steps, "steps", DataError)
    if hide == "last":
        _require_longer(data, ahead, "steps")
        hidden = data.offsets[1:].repeat(data.lengths) - np.arange(data.total_slices) <= ahead
        wanted, words = np.repeat(hidden[:, None], data.num_variables, 1), f"the last {ahead}"
        words += " slices" if ahead > 1 else " slice"
    else:
        if not 0 < share < 1:
            raise DataError(f"`share` must be between 0 and 1, but is {share!r}.")
        rng = np.random.default_rng(seed)
        size = 1 if hide == "random" else whole_number(length, "length", DataError)
        wanted = _gaps(data, share, size, rng)
        what = "of the entries at random" if size == 1 else f"of the entries in gaps of {size}"
        words = f"{100 * share:g} % {what}, seed {seed}"
    wanted &= ~np.isnan(data.values)
    if not wanted.any():
        raise DataError("nothing is hidden: the data have no observed entry there; hide more.")
    evidence = data.with_values(np.where(wanted, np.nan, data.values))
    none = np.zeros(data.total_slices, dtype=np.int64)
    methods = _rules(evidence, checked_season, ahead=hide == "last")
    last = ahead if hide == "last" else 0
    scores = _compare(program, evidence, data.values, wanted, none, methods, last)
    return Evaluation(tuple(scores), words)


def backtest(
    program: Program,
    data: Sequences,
    steps: int,
    *,
    origins: int = 10,
    stride: int | None = None,
    window: int | None = None,
    season: int | None = None,
) -> Evaluation:
    """Forecasts from rolling origins, scored against what came: scores by step ahead.

    Origin i of a sequence of T slices is slice T - steps - i * stride; origins that leave no past
    are left out. The model is asked with the slices before the origin, and nothing is learned anew.

    Args:
        program: The compiled model.
        data: Sequences; those of `steps` slices or fewer are left out.
        steps: The number of slices ahead.
        origins: The largest number of origins of a sequence.
        stride: Slices from one origin to the next; by default `steps`, so that no two overlap.
        window: Only so many slices before an origin are given; by default all.
        season: Slices of a season; with it the rule "seasonal naive" is there.
    """
    ahead = whole_number(steps, "steps", DataError)
    count = whole_number(origins, "origins", DataError)
    apart = ahead if stride is None else whole_number(stride, "stride", DataError)
    checked_season = None if season is None else whole_number(season, "season", DataError)
    _require_longer(data, ahead, "steps")
    origin = data.lengths[:, None] - ahead - apart * np.arange(count)
    owner, number = np.nonzero(origin > 0)
    ends = data.offsets[owner] + origin[owner, number] + ahead
    starts = data.offsets[owner]
    if window is not None:
        starts = np.maximum(starts, ends - ahead - whole_number(window, "window", DataError))
    lengths = ends - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    more = {"inputs": data.inputs[rows]}
    own = Sequences.trusted(np.ascontiguousarray(data.values[rows]), offsets, data.schema, **more)
    step = np.maximum(ahead - (np.repeat(offsets[1:], lengths) - 1 - np.arange(offsets[-1])), 0)
    future = np.repeat((step > 0)[:, None], data.num_variables, axis=1)
    evidence = own.with_values(np.where(future, np.nan, own.values))
    wanted = future & ~np.isnan(own.values)
    methods = _rules(evidence, checked_season, ahead=True)
    scores = _compare(program, evidence, own.values, wanted, step, methods, ahead)
    return Evaluation(tuple(scores), f"{ahead} slices after each of {len(own):,} origins")


def informed_by(program: Program, data: Sequences, *, share: float = 0.2, seed: int = 0) -> Floats:
    """How many nats an entry of variable i loses when all of variable j is hidden, (i, j).

    The entries are hidden at random. On the diagonal all other entries of the variable itself are
    hidden. NaN for a variable without observed entries.
    """
    wanted = _gaps(data, share, 1, np.random.default_rng(seed)) & ~np.isnan(data.values)
    values = np.where(wanted, np.nan, data.values)
    none = np.zeros(data.total_slices, dtype=np.int64)

    def nats(hidden: Floats) -> Floats:
        asked = data.with_values(hidden)
        found = _Answers(program, asked, data.values, wanted, none, draws=False)
        by_variable = [own[_ENTRY.index("log_score")] for own in found.numbers]
        return np.array([own.mean() if own.size else np.nan for own in by_variable])

    base = nats(values)
    columns = []
    for column in range(data.num_variables):
        hidden = values.copy()
        hidden[:, column] = np.nan
        columns.append(nats(hidden) - base)
    return np.stack(columns, axis=1)


def _require_longer(data: Sequences, steps: int, name: str) -> None:
    if not (data.lengths > steps).any():
        raise DataError(
            f"`{name}` must be below the length of some sequence, but is {steps} and the longest "
            f"has {int(data.lengths.max())} slices; give fewer."
        )


def _gaps(data: Sequences, share: float, length: int, rng: np.random.Generator) -> Bools:
    """Runs of `length` slices of single variables, within sequences, about `share` of all."""
    position = np.arange(data.total_slices) - np.repeat(data.offsets[:-1], data.lengths)
    # An entry is hidden unless none of the runs that would reach it begins.
    chance = 1.0 - (1.0 - share) ** (1.0 / length)
    begins = rng.random(data.values.shape) < chance
    hidden = begins.copy()
    for back in range(1, length):
        hidden[back:] |= begins[:-back] & (position[back:] >= back)[:, None]
    return np.asarray(hidden)


# Rules that need no model.


def _previous(values: Floats, group: Ints, order: Ints) -> Ints:
    """Row of the nearest observed value before each row in its group, in an order; -1 if none."""
    column, own = values[order], group[order]
    place = np.arange(column.size)
    start = np.maximum.accumulate(np.where(np.diff(own, prepend=own[:1] - 1) != 0, place, 0))
    last = np.maximum.accumulate(np.where(np.isnan(column), -1, place))
    found = np.full(column.size, -1, dtype=np.int64)
    found[order] = np.where(last >= start, order[np.maximum(last, 0)], -1)
    return found


def _rules(data: Sequences, season: int | None, *, ahead: bool) -> dict[str, Floats]:
    """Values of every entry by each rule; where a rule has none, the mean of the variable.

    The mean of a category is the commonest one.
    """
    owner = np.repeat(np.arange(len(data)), data.lengths)
    rows = np.arange(data.total_slices)
    position = rows - data.offsets[owner]
    columns = zip(data.schema, data.values.T, strict=True)
    centre = np.array([_centre(variable, column) for variable, column in columns])
    methods = {"mean": np.tile(centre, (len(rows), 1)), "last value": np.empty(data.values.shape)}
    if not ahead:
        methods["interpolation"] = np.empty(data.values.shape)
    if season is not None:
        methods["seasonal naive"] = np.empty(data.values.shape)
        phase = owner * season + position % season
        by_phase = np.lexsort((position, phase))
    for v, column in enumerate(data.values.T):

        def take(row: Ints, column: Floats = column, v: int = v) -> Floats:
            return np.where(row >= 0, column[row], centre[v])

        before = _previous(column, owner, rows)
        methods["last value"][:, v] = take(before)
        if not ahead:
            after = _previous(column, -owner, rows[::-1])
            low, high = np.where(before < 0, after, before), np.where(after < 0, before, after)
            span = np.maximum(high - low, 1)
            line = take(low) + (take(high) - take(low)) * (rows - low) / span
            is_category = data.schema[v].kind == Kind.CATEGORICAL
            nearest = np.where(rows - low <= high - rows, take(low), take(high))
            chosen = np.where(low == high, take(low), nearest if is_category else line)
            methods["interpolation"][:, v] = chosen
        if season is not None:
            methods["seasonal naive"][:, v] = take(_previous(column, phase, by_phase))
    return methods


def _centre(variable: Variable, column: Floats) -> float:
    known = column[~np.isnan(column)]
    if not known.size:
        return 0.0
    if variable.kind == Kind.CATEGORICAL:
        return float(np.bincount(known.astype(np.int64)).argmax())
    return float(known.mean())


# Scores.


def _compare(
    program: Program,
    evidence: Sequences,
    truth: Floats,
    wanted: Bools,
    step: Ints,
    methods: dict[str, Floats],
    ahead: int = 0,
) -> Iterator[Score]:
    """Scores of the model and of each rule, by variable and step."""
    answers = _Answers(program, evidence, truth, wanted, step, ahead)
    for v, variable in enumerate(evidence.schema):
        rows = np.flatnonzero(wanted[:, v])
        for number in np.unique(step[rows]).tolist():
            own = rows[step[rows] == number]
            yield answers.score(v, variable, number)
            for method, values in methods.items():
                yield _score_points(variable, number, method, truth[own, v], values[own, v])


def _score_points(
    variable: Variable, step: int, method: str, truth: Floats, values: Floats
) -> Score:
    head = (variable.name, step, method, truth.size)
    if variable.kind == Kind.CATEGORICAL:
        return Score(*head, accuracy=float((truth == values).mean()))
    error = np.abs(values - truth)
    mae, rmse = float(error.mean()), float(np.sqrt((error**2).mean()))
    return Score(*head, mae=mae, rmse=rmse, crps=mae, pinball=mae / 2)


@final
class _Answers:
    """What the model says of the wanted entries, each compared with the truth.

    With `ahead`, the number of last slices that are hidden, models with lags draw paths, as
    `forecast` does, and without it they draw gaps, as `marginals` does; their log scores of numbers
    are not known. Without `draws` they are asked as `marginals_at` does.
    """

    def __init__(
        self,
        program: Program,
        evidence: Sequences,
        truth: Floats,
        wanted: Bools,
        step: Ints,
        ahead: int = 0,
        *,
        draws: bool = True,
    ) -> None:
        self.rows = [np.flatnonzero(column) for column in wanted.T]
        self.steps = [step[own] for own in self.rows]
        self.truth = [truth[own, v] for v, own in enumerate(self.rows)]
        self.numbers = [np.full((len(_ENTRY), own.size), np.nan) for own in self.rows]
        with_lags = draws and has_lags(evidence.schema)
        if with_lags and (ahead or can_draw_gaps(program, evidence)):
            levels = (*_LEVELS, *_GRID.tolist())
            drawn = (
                path_marginals(program, evidence, ahead, levels, _NUM_PATHS, 0)
                if ahead
                else marginals(program, evidence, quantiles=levels)
            )
            for v, found in enumerate(drawn.variables):
                self._put(v, found, np.searchsorted(found.slices, self.rows[v]))
            return
        self._ask(program, evidence, wanted)

    def _ask(self, program: Program, evidence: Sequences, wanted: Bools) -> None:
        """Scores by the exact mixtures of leaves."""
        banks = program.mixture.components[0].template.banks
        mixers = []
        for variable, bank, rows in zip(evidence.schema, banks, self.rows, strict=True):
            plain = plain_family(bank.family)
            levels = _LEVELS if plain.name == "gaussian" else (*_LEVELS, *_GRID.tolist())
            mixers.append(Mixer(variable, bank.family, levels, rows.size))
        log_likelihood = np.empty(len(evidence))
        for v, entries, weights, parameters in leaf_mixtures(
            program, evidence, wanted, log_likelihood
        ):
            mixers[v].put(entries, weights, parameters)
            family, own = mixers[v].family, self.numbers[v]
            with np.errstate(invalid="ignore", divide="ignore"):
                shares = weights / weights.sum(axis=1, keepdims=True)
            truth = self.truth[v][entries]
            if evidence.schema[v].kind != Kind.CATEGORICAL:
                logs = leaf_log_probs(family, parameters, truth)
                with np.errstate(divide="ignore", under="ignore"):
                    log_density = np.logaddexp.reduce(logs + np.log(shares), axis=1)
                own[_ENTRY.index("log_score"), entries] = -log_density
            if family.name == "gaussian":
                own[_ENTRY.index("crps"), entries] = _gaussian_crps(shares, parameters, truth)
        require_possible(program, evidence, log_likelihood)
        for v, mixer in enumerate(mixers):
            self._put(v, mixer.result(self.rows[v]), np.arange(self.rows[v].size))

    def _put(self, v: int, found: VariableMarginals, entries: Ints) -> None:
        """Compares the distributions of some entries with the truth."""
        truth, own = self.truth[v], self.numbers[v]
        if found.probabilities is not None:
            chances, codes = found.probabilities[entries], truth.astype(np.int64)
            own[_ENTRY.index("accuracy")] = chances.argmax(axis=1) == codes
            with np.errstate(divide="ignore"):
                log_score = -np.log(chances[np.arange(codes.size), codes])
            own[_ENTRY.index("log_score")] = log_score
            return
        quantiles = found.quantiles[entries]
        low, median, high = quantiles[:, :3].T
        gap, levels = truth[:, None] - quantiles, np.array(found.levels)
        losses = np.maximum(levels * gap, (levels - 1.0) * gap)  # of each quantile
        own[_ENTRY.index("mae")] = np.abs(median - truth)
        own[_ENTRY.index("rmse")] = (found.mean[entries] - truth) ** 2
        own[_ENTRY.index("pinball")] = losses[:, :3].mean(axis=1)
        own[_ENTRY.index("coverage")] = (low <= truth) & (truth <= high)
        if losses.shape[1] > 3:
            own[_ENTRY.index("crps")] = 2.0 * losses[:, 3:].mean(axis=1)

    def score(self, v: int, variable: Variable, step: int) -> Score:
        """The mean over the entries of a variable that lie so many steps ahead."""
        own = self.numbers[v][:, self.steps[v] == step]
        with np.errstate(invalid="ignore"):
            means = dict(zip(_ENTRY, own.mean(axis=1).tolist(), strict=True))
        means["rmse"] = float(np.sqrt(means["rmse"]))
        return Score(variable.name, step, _MODEL, own.shape[1], **means)


# Rows of what is known of an entry; `rmse` holds the squared error.
_ENTRY: Final = _NUMBERS


def _gaussian_crps(shares: Floats, parameters: Floats, truth: Floats) -> Floats:
    """E|X - y| - E|X - X'| / 2 of mixtures of Gaussians, in closed form.

    Parameters (E, L, 2) are those of each entry in its context.
    """
    mean, variance = parameters[..., 0], parameters[..., 1]
    near = (shares * _expected_distance(truth[:, None] - mean, variance)).sum(axis=1)
    if parameters.ndim == 2:
        between = _expected_distance(mean[:, None] - mean, variance[:, None] + variance)
        return np.asarray(near - 0.5 * ((shares @ between) * shares).sum(axis=1))
    spread = np.zeros(len(truth))
    for leaf in range(shares.shape[1]):
        gap = _expected_distance(mean - mean[:, [leaf]], variance + variance[:, [leaf]])
        spread += shares[:, leaf] * (shares * gap).sum(axis=1)
    return np.asarray(near - 0.5 * spread)


def _expected_distance(mean: Floats, variance: Floats) -> Floats:
    """E|X| of a Gaussian."""
    deviation = np.sqrt(variance)
    with np.errstate(invalid="ignore", divide="ignore", under="ignore"):
        unit = np.where(deviation > 0, mean / deviation, np.sign(mean) * np.inf)
    bell = np.exp(-0.5 * np.where(np.isfinite(unit), unit, 0.0) ** 2) * np.isfinite(unit)
    reach = np.where(np.isnan(unit), 0.0, erf(unit / np.sqrt(2.0)))
    return np.asarray(deviation * np.sqrt(2.0 / np.pi) * bell + mean * reach)

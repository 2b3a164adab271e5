"""Lags chosen by data that were held out."""

from collections.abc import Callable
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats
from dspn.data.schema import Kind, Schema
from dspn.data.sequences import Sequences, drawn_part, sequences_of
from dspn.engine import compile_program
from dspn.learning.em import EmOptions, fit_em
from dspn.learning.priors import DEFAULT_PRIORS
from dspn.learning.starts.clusters import clustered_network
from dspn.learning.unlagged import learn_unlagged
from dspn.leaves.told import with_context

# States of the models that lags are compared by at the most, their steps, and the slices they learn
# from.
_MOST_STATES: Final = 8
_STEPS: Final = EmOptions(max_steps=15)
_MOST_SLICES: Final = 10_000
# Sequences are cut into pieces, whose scores vary independently enough to be compared.
_LENGTHS: Final = (25, 100)
_PIECES: Final = 40
_FEWEST_PIECES: Final = 8
# Numbers of lags, in the order in which they are tried while they pay.
_COUNTS: Final = (1, 2, 3, 5, 8)
# A leaf is told at most as many entries.
_MOST_TOLD: Final = 64
# More has to be better by so many standard errors of the difference.
_CLEARLY: Final = 2.0


@final
class TriedLags(NamedTuple):
    """What leaves were told in a try, its gain in nats per held-out slice, and the error of that.

    The gain is over the best before it, and what was tried is kept where the gain is more than two
    standard errors.
    """

    lags: tuple[int, ...]
    lags_of: str
    within: bool
    gain: float
    error: float
    kept: bool

    def __str__(self) -> str:
        whose = {"own": "of the same variable", "all": "of all variables"}[self.lags_of]
        words = f"lags {', '.join(map(str, self.lags))} {whose}" if self.lags else "no lags"
        more = " and the values before it in the slice" if self.within else ""
        worth = f"{self.gain:+.3f} +- {self.error:.3f} nats a slice"
        return f"{words}{more}: {worth}, {'used' if self.kept else 'not used'}"


def choose_lags(
    train: Sequences,
    validation: Sequences | None,
    *,
    rng: np.random.Generator,
    within: bool = False,
    leaf_inputs: bool = False,
    num_states: int = _MOST_STATES,
    deadline: Callable[[], bool] | None = None,
) -> tuple[Schema, tuple[TriedLags, ...]]:
    """The schema whose leaves are told the lags that pay, and what was tried.

    Hidden Markov models of one and of several states are trained on at most 10,000 slices with more
    and more lags, of the same variable and of all, and the better ones compared on pieces of the
    validation set, until more lags do not pay. Then a season is tried, the lag at which what the
    lags leave unexplained is most alike, and telling leaves the values before them in the slice.

    Args:
        train: What is learned from.
        validation: What chooses. Without it, and where it is the training set or too small, every
            fourth piece of that chooses and is not learned from, or more of few pieces.
        rng: Source of randomness.
        within: Whether leaves are told the values before them in the slice in any case.
        leaf_inputs: Whether they are told the inputs.
        num_states: The states that the model is to have, where that is known: models of at most
            so many, and of no more than eight, are compared.
        deadline: Once it says yes, no others are tried.
    """
    own, held = _parts(train, validation, rng)
    seed = int(rng.integers(2**32))
    states = tuple(dict.fromkeys((1, min(num_states, _MOST_STATES))))
    best = TriedLags((), "own", within, 0.0, 0.0, True)
    tried: list[TriedLags] = []

    def schema_of(lags: TriedLags) -> Schema:
        told = {"lags": lags.lags, "lags_of": lags.lags_of, "within": lags.within}
        return with_context(train.schema, leaf_inputs=leaf_inputs, **told)  # type: ignore[arg-type]

    if len(held) < _FEWEST_PIECES or (deadline is not None and deadline()):
        return schema_of(best), ()
    scores = _scores(own, held, schema_of(best), states, seed)

    def try_lags(lags: tuple[int, ...], lags_of: str, within: bool) -> bool:
        """Tries what leaves may be told; says whether that was better."""
        nonlocal best, scores
        width = len(lags) * (train.num_variables if lags_of == "all" else 1)
        if width > _MOST_TOLD or (deadline is not None and deadline()):
            return False
        item = TriedLags(lags, lags_of, within, 0.0, 0.0, False)
        found = _scores(own, held, schema_of(item), states, seed)
        gains = (found - scores) / held.lengths.mean()
        gain, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(gains.size))
        item = item._replace(gain=gain, error=error, kept=gain > _CLEARLY * error)
        tried.append(item)
        if item.kept:
            best, scores = item, found
        return item.kept

    several = train.num_variables > 1
    for count in _COUNTS:
        lags = tuple(range(1, count + 1))
        kinds = ["own", "all"] if several and best.lags_of == "own" else [best.lags_of]
        if count >= int(own.lengths.max()) or not any([try_lags(lags, k, within) for k in kinds]):
            break
    season = _season(own, best.lags)
    if season:
        try_lags((*best.lags, season), best.lags_of, within)
    if several and not within and train.num_variables <= _MOST_TOLD:
        try_lags(best.lags, best.lags_of, True)
    chosen = (best.lags, best.lags_of, best.within)
    shown = (own._replace(kept=own[:3] == chosen) for own in tried)
    return schema_of(best), tuple(shown)


def _parts(
    train: Sequences, validation: Sequences | None, rng: np.random.Generator
) -> tuple[Sequences, Sequences]:
    """Pieces to learn from and pieces to compare by."""
    own = _pieces(drawn_part(train, _MOST_SLICES, rng))
    if validation is not None and validation is not train:
        held = _pieces(drawn_part(validation, _MOST_SLICES, rng))
        if len(held) >= _FEWEST_PIECES:
            return own, held
    each = int(np.clip(len(own) // _FEWEST_PIECES, 2, 4))
    last = np.arange(len(own)) % each == each - 1
    return own[~last], own[last]


def _pieces(data: Sequences) -> Sequences:
    """The sequences, cut into some tens of pieces that are long enough for lags."""
    length = int(np.clip(data.total_slices // _PIECES, *_LENGTHS))
    counts = np.maximum(1, data.lengths // length)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begin, total = (np.repeat(own, counts) for own in (data.offsets[:-1], data.lengths))
    starts = begin + number * total // np.repeat(counts, counts)
    offsets = np.append(starts, data.total_slices)
    return Sequences.trusted(data.values, offsets, data.schema, inputs=data.inputs)


def _scores(
    train: Sequences, held: Sequences, schema: Schema, states: tuple[int, ...], seed: int
) -> Floats:
    """Log-likelihood of each held-out piece by the better of small models with such leaves."""
    own, pieces = sequences_of(train, schema, "train"), sequences_of(held, schema, "validation")
    found = []
    for count in states:
        start = clustered_network(own, count, rng=np.random.default_rng(seed))
        fitted = fit_em(start, own, options=_STEPS).network
        network = learn_unlagged(fitted, own, DEFAULT_PRIORS, np.random.default_rng(seed))
        found.append(compile_program(network).log_likelihood(pieces))
    return max(found, key=lambda scores: float(scores.mean()))


def _season(data: Sequences, lags: tuple[int, ...]) -> int:
    """The lag at which residuals of a regression on the lags are most alike; 0 where none is."""
    longest, first = int(data.lengths.max()) // 3, max(lags, default=0) + 2
    numbers = [i for i, own in enumerate(data.schema) if own.kind == Kind.CONTINUOUS]
    if not numbers or longest < first:
        return 0
    sequence = np.repeat(np.arange(len(data)), data.lengths)

    def earlier(values: Floats, lag: int) -> Floats:
        found = np.full(len(values), np.nan)
        found[lag:] = np.where(sequence[lag:] == sequence[:-lag], values[:-lag], np.nan)
        return found

    totals = np.zeros(longest + 1)
    least = 0.0
    for column in numbers:
        values = data.values[:, column]
        features = np.stack([np.ones(len(values)), *(earlier(values, lag) for lag in lags)], axis=1)
        seen = ~np.isnan(features).any(axis=1) & ~np.isnan(values)
        if seen.sum() <= len(lags) + 1:
            continue
        weights = np.linalg.lstsq(features[seen], values[seen], rcond=None)[0]
        rest = values - features @ weights
        rest /= max(float(np.nanstd(rest)), np.finfo(np.float64).tiny)
        least = max(least, 2.0 / float(np.sqrt(seen.sum())))
        for lag in range(first, longest + 1):
            product = rest * earlier(rest, lag)
            counted = ~np.isnan(product)
            totals[lag] += product[counted].mean() / len(numbers) if counted.any() else 0.0
    best = int(np.argmax(totals))
    return best if totals[best] > least else 0

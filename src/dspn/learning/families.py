"""Leaf families chosen by data that were held out, variable by variable."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats
from dspn.data.proposals import circle_of
from dspn.data.schema import Kind, Schema, Variable
from dspn.data.sequences import Sequences, sequences_of
from dspn.engine import compile_program
from dspn.errors import DataError
from dspn.learning.em import EmOptions, fit_em
from dspn.learning.starts.clusters import clustered_network

# States of the models of one variable that families are compared by, and their steps.
_STATES: Final = 4
_STEPS: Final = EmOptions(max_steps=25)
# Sequences are cut into pieces, whose scores vary independently enough to be compared.
_PIECE: Final = 10
_MOST_PIECES: Final = 1_000
_FEWEST_PIECES: Final = 10
# A validation set of fewer pieces chooses less well than every fourth piece of the training set.
_ENOUGH_PIECES: Final = 40
# Another family has to be better by so many standard errors of the difference.
_CLEARLY: Final = 2.0


@final
class FamilyChoice(NamedTuple):
    """The family of a variable's leaves, and what each candidate scores beyond the usual one.

    `gains` has, for each other family, the gain in nats per slice and its standard error.
    """

    name: str
    family: str
    gains: dict[str, tuple[float, float]]

    def __str__(self) -> str:
        shown = (f"{own} {gain:+.3f} +- {error:.3f}" for own, (gain, error) in self.gains.items())
        return f"{self.name}: {self.family} ({', '.join(shown)} nats a slice)"


def choose_families(
    train: Sequences, validation: Sequences | None, rng: np.random.Generator
) -> tuple[Schema, tuple[FamilyChoice, ...]]:
    """The schema with the leaf family of each variable that scores clearly best, and the scores.

    Hidden Markov models of one variable and four states are trained for each candidate, on at most
    10,000 slices, and compared on pieces of the validation set. A variable keeps its usual family
    unless another one is better by two standard errors. Categorical variables, and those that name
    a family, keep theirs.

    Args:
        train: What is learned from.
        validation: What chooses. Without it, and where it is the training set or too small, every
            fourth piece of that chooses and is not learned from.
        rng: Source of randomness.
    """
    seed = int(rng.integers(2**32))
    variables, choices = list(train.schema), []
    for column, variable in enumerate(train.schema):
        others = _candidates(variable, train.values[:, column])
        if not others:
            continue
        choice = _compare(train, validation, variable, others, seed)
        if choice is not None:
            choices.append(choice)
            usual = choice.family not in others
            variables[column] = replace(variable, leaf=None if usual else choice.family)
    return replace(train.schema, variables=tuple(variables)), tuple(choices)


def _candidates(variable: Variable, values: Floats) -> list[str]:
    """The families that a variable may have besides the usual one of its kind."""
    seen = values[~np.isnan(values)]
    if variable.kind is Kind.CATEGORICAL or variable.leaf is not None or not seen.size:
        return []
    if variable.kind is Kind.COUNT:
        return ["negative_binomial", "zero_inflated_poisson"]
    circle = circle_of(variable.name, float(seen.min()), float(seen.max()))
    positive = ["log_normal", "gamma"] if seen.min() > 0 else []
    return ["student_t", *positive, *([circle] if circle else [])]


def _compare(
    train: Sequences, validation: Sequences | None, variable: Variable, others: list[str], seed: int
) -> FamilyChoice | None:
    """The best family of one variable; None where there is too little to choose by."""
    rng = np.random.default_rng([seed, train.schema.index(variable.name)])
    own = _pieces(train, variable)
    apart = None if validation is None or validation is train else _pieces(validation, variable)
    if apart is not None and len(apart) >= _ENOUGH_PIECES:
        held = apart
    else:
        last = np.arange(len(own)) % 4 == 3
        own, held = own[~last], own[last]
    if len(held) < _FEWEST_PIECES:
        return None
    own, held = (_drawn(part, rng) for part in (own, held))
    usual = "gaussian" if variable.kind is Kind.CONTINUOUS else "poisson"
    scores = {name: _scores(own, held, variable, name, seed) for name in (usual, *others)}
    slices = held.lengths.mean()
    gains = {}
    for name in others:
        difference = scores[name] - scores[usual]
        if np.all(np.isfinite(difference)):
            error = float(np.std(difference, ddof=1)) / len(held) ** 0.5
            gains[name] = float(np.mean(difference)) / slices, error / slices
    clear = [name for name, (gain, error) in gains.items() if gain > _CLEARLY * error]
    best = max(clear, key=lambda name: gains[name][0], default=usual)
    return FamilyChoice(variable.name, best, gains)


def _pieces(data: Sequences, variable: Variable) -> Sequences:
    """One variable of the sequences, cut into pieces."""
    counts = -(-data.lengths // _PIECE)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(data.offsets[:-1], counts) + _PIECE * number
    column = data.schema.index(variable.name)
    offsets = np.append(starts, data.total_slices)
    return Sequences.from_codes(data.values[:, [column]], offsets, Schema((variable,)))


def _drawn(data: Sequences, rng: np.random.Generator) -> Sequences:
    if len(data) <= _MOST_PIECES:
        return data
    return data[np.sort(rng.permutation(len(data))[:_MOST_PIECES])]


def _scores(
    train: Sequences, held: Sequences, variable: Variable, family: str, seed: int
) -> Floats:
    """Log-likelihood of each held-out piece by a small model with leaves of the family."""
    schema = Schema((replace(variable, leaf=family),))
    own = sequences_of(train, schema, "train")
    try:
        start = clustered_network(own, _STATES, rng=np.random.default_rng(seed))
        network = fit_em(start, own, options=_STEPS).network
    except DataError:  # a value that the family cannot have
        return np.full(len(held), -np.inf)
    return compile_program(network).log_likelihood(sequences_of(held, schema, "validation"))

"""Exact draws: of whole sequences, and of missing entries given the observed ones."""

from collections.abc import Sequence

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn._checks import checked_rng, whole_number, whole_numbers
from dspn.data import Sequences
from dspn.engine import Program, drawn_choices
from dspn.errors import DataError, EvidenceError
from dspn.inference.completion import chosen_parameters
from dspn.inference.likelihood import log_posteriors, possible_likelihood
from dspn.inference.mixed import (
    AnyProgram,
    MixedProgram,
    for_each_component,
    rows_of,
    schema_of,
)


def sample_given(program: AnyProgram, data: Sequences, *, rng: np.random.Generator) -> Sequences:
    """Missing entries drawn jointly from P(missing | observed); observed entries stay.

    In a mixture the component of each sequence is drawn first, from P(component | observed).
    """
    checked_rng(rng, EvidenceError)
    if isinstance(program, MixedProgram):
        return _drawn_of_mixture(program, data, np.exp(log_posteriors(program, data)), rng)
    possible_likelihood(program, data)
    return data.with_values(_drawn(program, data, rng))


def _drawn(program: Program, data: Sequences, rng: np.random.Generator) -> Floats:
    """The values with every missing entry drawn."""
    choices, _ = drawn_choices(program, data, rng)
    values = data.values.copy()
    for variable, bank in enumerate(program.network.template.banks):
        slices, rows = chosen_parameters(program, data, choices, variable)
        if slices.size:
            values[slices, variable] = bank.family.sample(rows, rng)
    return values


def _drawn_of_mixture(
    program: MixedProgram, data: Sequences, shares: Floats, rng: np.random.Generator
) -> Sequences:
    """Missing entries drawn by components that are drawn from their `shares` (N, C)."""
    bounds = np.cumsum(shares, axis=1)
    # The first bound beyond the draw, so that a share of zero is never drawn.
    drawn = np.argmax(bounds > rng.random(len(data))[:, None] * bounds[:, -1:], axis=1)
    values = data.values.copy()

    def draw(c: int, own: Program, part: Sequences, mask: Bools) -> None:
        values[rows_of(data, mask)] = _drawn(own, part, rng)

    chosen = drawn[:, None] == np.arange(len(program.programs))
    for_each_component(program, data, chosen, draw)
    return data.with_values(values)


def sequence_lengths(num_sequences: int, length: int | Sequence[int] | Ints) -> Ints:
    """The length of each sequence; a single number stands for all."""
    count = whole_number(num_sequences, "num_sequences", DataError)
    if np.ndim(length) == 0:
        return np.full(count, whole_number(length, "length", DataError))
    lengths = whole_numbers(length, "length", DataError)
    if lengths.size != count:
        raise DataError(
            f"`length` must be one number, or one for each of the {count} sequences, but has "
            f"{lengths.size}."
        )
    return lengths


def sample(
    program: AnyProgram,
    num_sequences: int,
    length: int | Sequence[int] | Ints,
    *,
    rng: np.random.Generator,
) -> Sequences:
    """Draws from P(x_1..x_T); `length` is one number, or one for each sequence."""
    offsets = np.concatenate([[0], np.cumsum(sequence_lengths(num_sequences, length))])
    schema = schema_of(program)
    blank = Sequences.from_codes(np.full((int(offsets[-1]), len(schema)), np.nan), offsets, schema)
    if isinstance(program, MixedProgram):
        checked_rng(rng, EvidenceError)
        shares = np.tile(program.mixture.weights, (len(blank), 1))
        return _drawn_of_mixture(program, blank, shares, rng)
    return sample_given(program, blank, rng=rng)

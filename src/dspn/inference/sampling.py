"""Exact draws: of whole sequences, and of missing entries given the observed ones."""

from collections.abc import Sequence

import numpy as np

from dspn._arrays import Ints
from dspn._checks import checked_rng, whole_number, whole_numbers
from dspn.engine import Program, drawn_choices
from dspn.errors import DataError, EvidenceError
from dspn.inference.completion import chosen_parameters
from dspn.inference.likelihood import possible_likelihood
from dspn.sequences import Sequences


def sample_given(program: Program, data: Sequences, *, rng: np.random.Generator) -> Sequences:
    """Missing entries drawn jointly from P(missing | observed); observed entries stay."""
    checked_rng(rng, EvidenceError)
    possible_likelihood(program, data)
    choices, _ = drawn_choices(program, data, rng)
    values = data.values.copy()
    for variable, bank in enumerate(program.network.template.banks):
        slices, rows = chosen_parameters(program, data, choices, variable)
        if slices.size:
            values[slices, variable] = bank.family.sample(rows, rng)
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
    program: Program,
    num_sequences: int,
    length: int | Sequence[int] | Ints,
    *,
    rng: np.random.Generator,
) -> Sequences:
    """Draws from P(x_1..x_T); `length` is one number, or one for each sequence."""
    offsets = np.concatenate([[0], np.cumsum(sequence_lengths(num_sequences, length))])
    schema = program.network.schema
    blank = Sequences.from_codes(np.full((int(offsets[-1]), len(schema)), np.nan), offsets, schema)
    return sample_given(program, blank, rng=rng)

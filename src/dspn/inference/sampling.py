"""Exact draws: of whole sequences, and of missing entries given the observed ones."""

import numpy as np

from dspn.engine import Program, drawn_choices, likelihood
from dspn.errors import DataError
from dspn.inference.completion import chosen_parameters
from dspn.inference.likelihood import require_possible
from dspn.sequences import Sequences


def sample_given(program: Program, data: Sequences, *, rng: np.random.Generator) -> Sequences:
    """Missing entries drawn jointly from P(missing | observed); observed entries stay."""
    require_possible(data, likelihood(program, data))
    choices, _ = drawn_choices(program, data, rng)
    values = data.values.copy()
    for variable, bank in enumerate(program.network.template.banks):
        slices, rows = chosen_parameters(program, data, choices, variable)
        if slices.size:
            values[slices, variable] = bank.family.sample(rows, rng)
    return data.with_values(values)


def sample(
    program: Program, num_sequences: int, length: int | list[int], *, rng: np.random.Generator
) -> Sequences:
    """Draws from P(x_1..x_T); `length` is one number, or one for each sequence."""
    lengths = (
        np.broadcast_to(np.asarray(length, dtype=np.int64), (num_sequences,))
        if num_sequences > 0
        else None
    )
    if lengths is None or (lengths < 1).any():
        raise DataError(
            f"`num_sequences` and `length` must be at least 1, but are {num_sequences} and {length}."
        )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    schema = program.network.schema
    blank = Sequences.from_codes(np.full((int(offsets[-1]), len(schema)), np.nan), offsets, schema)
    return sample_given(program, blank, rng=rng)

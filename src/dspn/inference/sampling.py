"""Exact draws: of whole sequences, and of missing entries given the observed ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dspn._arguments import Floats, Ints, checked_rng, whole_number, whole_numbers
from dspn.data.sequences import Sequences
from dspn.engine.base import Program
from dspn.errors import DataError, EvidenceError
from dspn.inference.completion import fill_in
from dspn.inference.likelihood import component_posteriors, require_possible


def sample_given(program: Program, data: Sequences, *, rng: np.random.Generator) -> Sequences:
    """Missing entries drawn jointly from P(missing | observed); observed entries stay.

    In a mixture the component of each sequence is drawn first, from P(component | observed).
    """
    checked_rng(rng, EvidenceError)
    several = len(program.components) > 1
    shares = component_posteriors(program, data) if several else np.ones((len(data), 1))
    return _draw(program, data, shares, rng)


def _draw(program: Program, data: Sequences, shares: Floats, rng: np.random.Generator) -> Sequences:
    """Missing entries drawn by components that are drawn from their `shares` (N, C)."""
    drawn = np.zeros(len(data), dtype=np.int64)
    if shares.shape[1] > 1:
        bounds = np.cumsum(shares, axis=1)
        # The first bound beyond the draw, so that a share of zero is never drawn.
        drawn = np.argmax(bounds > rng.random(len(data))[:, None] * bounds[:, -1:], axis=1)
    values = data.values.copy()
    for c in np.unique(drawn).tolist():
        own = drawn == c
        part, network = data if own.all() else data[own], program.mixture.components[c]
        seeds = rng.integers(0, 2**64, size=len(part), dtype=np.uint64)
        found = program.components[c].draw(part, seeds)
        require_possible(program, part, found.log_values)
        values[np.repeat(own, data.lengths)] = fill_in(
            network, part, found.leaves, lambda leaf, rows: leaf.sample(rows, rng)
        )
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
    inputs: Any = None,
    rng: np.random.Generator,
) -> Sequences:
    """Draws from P(x_1..x_T); `length` is one number, or one for each sequence.

    `inputs` has a row for each slice, of the inputs that no rule computes.
    """
    offsets = np.concatenate([[0], np.cumsum(sequence_lengths(num_sequences, length))])
    schema = program.schema
    values = np.full((int(offsets[-1]), len(schema)), np.nan)
    blank = Sequences.trusted(values, offsets, schema.with_inputs(()))
    if schema.inputs or inputs is not None:
        blank = blank.with_inputs(inputs, schema=schema)
    checked_rng(rng, EvidenceError)
    return _draw(program, blank, np.tile(program.mixture.weights, (len(blank), 1)), rng)

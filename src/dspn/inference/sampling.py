"""Exact draws: of whole sequences, and of missing entries given the observed ones."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from dspn._arguments import Floats, Ints, checked_rng, whole_number, whole_numbers
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.engine.base import Program
from dspn.errors import DataError, EvidenceError
from dspn.inference.completion import fill_in
from dspn.inference.likelihood import component_posteriors, require_possible

_MOST_ROUNDS: Final = 100


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


def redraw_outside(
    program: Program,
    drawn: Sequences,
    bounds: Mapping[str, tuple[float, float]],
    *,
    rng: np.random.Generator,
) -> Sequences:
    """The draws with every number within its bounds, the lowest and the largest value by name.

    An entry outside is drawn again given all other entries, until all are inside. Raises where the
    model has next to nothing inside.
    """
    low, high = np.full(drawn.num_variables, -np.inf), np.full(drawn.num_variables, np.inf)
    for name, (least, most) in bounds.items():
        v = drawn.schema.index(name)
        if drawn.schema[v].kind == Kind.CATEGORICAL or not least < most:
            raise DataError(
                f"`bounds` of {name!r} must be the lowest and the largest value of a number, the "
                f"first below the second, but are {(least, most)} of a {drawn.schema[v].kind} "
                "variable."
            )
        low[v], high[v] = least, most
    values = drawn.values.copy()
    for _ in range(_MOST_ROUNDS):
        outside = (values < low) | (values > high)
        if not outside.any():
            return drawn.with_values(values)
        some = np.logical_or.reduceat(outside.any(axis=1), drawn.offsets[:-1])
        rows = np.repeat(some, drawn.lengths)
        values[outside] = np.nan
        values[rows] = sample_given(program, drawn.with_values(values)[some], rng=rng).values
    names = [drawn.schema.names[v] for v in np.flatnonzero(outside.any(axis=0))]
    raise EvidenceError(
        f"`bounds` leave too little room: after {_MOST_ROUNDS} draws of the same entries some of "
        f"{', '.join(names)} are still outside. Widen the bounds, or fit a family that has them."
    )


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

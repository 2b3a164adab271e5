"""The sequences of a page: which are shown, and one packed record for each, asked of the model."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Bools, Floats, Ints
from dspn.data.schema import Variable
from dspn.data.sequences import Sequences
from dspn.inference.likelihood import bounded_runs
from dspn.inference.marginals import Marginals, interface_posteriors
from dspn.models.model import Model

LEVELS: Final = (0.1, 0.5, 0.9)
"""Ends and middle of the intervals, which hold 80 % as those of the plots do."""
MOST_CATEGORIES: Final = 6
"""Most categories of one entry whose probabilities are kept."""
MOST_ROWS: Final = 12
"""Most rows of interface nodes of one sequence."""
MOST_GROUPS: Final = 6
"""Most groups that have rows of interface nodes."""
ROOM: Final = 36_000_000
"""Bytes of all records of a page whose number of sequences was not asked for."""

_POOLED: Final = 65535
_OTHER_BYTES: Final = 120
_ORDER_BYTES: Final = 24.0
# Numbers that a run of sequences may hold at once.
_MOST_NUMBERS: Final = 8_000_000
# A record is three streams, widest first, so that each begins where its type may be read.
_WIDTHS: Final = (4, 2, 1)

Arrays = list[NDArray[Any]]


@final
@dataclass(frozen=True, eq=False)
class Records:
    """The sequences that are shown, by number, and what the page says of them.

    `per_slice` is -log P / T of every sequence of the data; `texts` are the records of those shown,
    `surprises` those of their entries, `likeliest` the components of those that are possible.
    """

    shown: Ints
    per_slice: Floats
    texts: list[str]
    surprises: Floats
    likeliest: list[int]


def make_records(model: Model, data: Sequences, steps: int, most: int | None) -> Records:
    """Records of the most surprising sequences.

    Args:
        steps: Number of slices that are forecast.
        most: Number of sequences; as many as there is room for without it.
    """
    # Without the warning of `Model.log_likelihood`: the page names impossible sequences.
    shown, per_slice = most_surprising(model.compiled.log_likelihood(data), data, steps, most)
    chosen, possible = data[shown], np.isfinite(per_slice[shown])
    widest = max(network.num_interfaces for network in model.components)
    categories = sum(max(variable.num_categories, 4) for variable in model.schema)
    costs = chosen.lengths * (widest + categories) + steps * categories
    texts: list[str] = []
    surprises: list[Floats] = []
    likeliest: list[int] = []
    for run in bounded_runs(costs, _MOST_NUMBERS):
        part, own = chosen[run], possible[run]
        found = model.surprise(part)
        answers: list[Arrays] = []
        if own.any():
            components, answers = _conditioned(model, part[own], steps)
            likeliest += components
        texts += _texts(part, found.slices, found.variables, own, iter(answers))
        surprises.append(found.variables)
    return Records(shown, per_slice, texts, np.concatenate(surprises), likeliest)


def most_surprising(
    log_likelihood: Floats, data: Sequences, steps: int, most: int | None, *, room: int = ROOM
) -> tuple[Ints, Floats]:
    """The sequences with the largest -log P / T, and -log P / T of every sequence.

    Args:
        steps: Number of slices that are forecast, which take room, too.
        most: Number of sequences; as many as fit into `room` bytes without it.
    """
    per_slice = -log_likelihood / data.lengths
    order = np.argsort(-per_slice, kind="stable")
    if most is None:
        sizes = record_sizes(data, steps)[order]
        most = int(np.searchsorted(np.cumsum(sizes), room, side="right"))
    return order[: max(most, 1)], per_slice


def record_sizes(data: Sequences, steps: int) -> Floats:
    """Bytes of each sequence's record in the page, or a little more."""
    bytes_of = (4.0 * min(v.num_categories, MOST_CATEGORIES) or 16.0 for v in data.schema)
    answers = np.array(list(bytes_of))
    missing = np.add.reduceat(np.isnan(data.values) @ answers, data.offsets[:-1])
    keys = data.table_keys
    order = _ORDER_BYTES if keys is not None and keys.order_values is not None else 0.0
    slice_bytes = order + 4.0 + 8.0 * len(data.schema) + 2.0 * MOST_ROWS
    sizes: Floats = _OTHER_BYTES + slice_bytes * data.lengths + missing + steps * answers.sum()
    return sizes * 4.0 / 3.0


def _conditioned(model: Model, data: Sequences, steps: int) -> tuple[list[int], list[Arrays]]:
    """The likeliest component of each sequence, and what is conditioned on its evidence."""
    shares = model.component_posteriors(data)
    likeliest = np.argmax(shares, axis=1)
    parts: list[Arrays] = [[probability_steps(own)] for own in shares]
    for component in np.unique(likeliest).tolist():
        members = np.flatnonzero(likeliest == component)
        own = data[members]
        posteriors = interface_posteriors(model.compiled.component(component), own)
        groups = [np.array(group) for group in model.components[component].groups]
        pieces = np.split(posteriors, own.offsets[1:-1])
        for index, piece in zip(members.tolist(), pieces, strict=True):
            rows, probabilities = interface_rows(piece, groups)
            head = np.array([component, len(rows)], dtype="<u2")
            parts[index] += [head, rows, probability_steps(probabilities)]
    _add_entries(parts, model.marginals(data, quantiles=LEVELS), data.offsets)
    if steps:
        ahead = model.forecast(data, steps, quantiles=LEVELS)
        _add_entries(parts, ahead.marginals, ahead.sequences.offsets)
    return likeliest.tolist(), parts


def interface_rows(posteriors: Floats, groups: Sequence[Ints]) -> tuple[NDArray[np.uint16], Floats]:
    """P(interface node | evidence) of the nodes with the most mass, the rest of each group pooled.

    Returns group, position and number of nodes of at most 12 rows, which at most 6 groups share
    evenly, and their probabilities. The position of pooled nodes is 65535.
    """
    room = MOST_ROWS // len(groups[:MOST_GROUPS])
    rows: list[tuple[int, int, int]] = []
    columns: list[Floats] = []
    for number, positions in enumerate(groups[:MOST_GROUPS]):
        single = positions
        if positions.size > room:
            mass = posteriors[:, positions].sum(axis=0)
            single = np.sort(positions[np.argsort(-mass, kind="stable")[: room - 1]])
        rows.extend((number, position, 1) for position in single.tolist())
        columns.extend(posteriors[:, single].T)
        if single.size < positions.size:
            rest = np.setdiff1d(positions, single)
            rows.append((number, _POOLED, rest.size))
            columns.append(posteriors[:, rest].sum(axis=1))
    return np.array(rows, dtype="<u2"), np.array(columns).T


def _add_entries(parts: Sequence[Arrays], marginals: Marginals, offsets: Ints) -> None:
    """Adds the distributions of the entries of each sequence, variable by variable.

    A number has (mean, 10 %, 50 %, 90 %); a category has the codes of the most probable ones, in
    the order of codes, and their probabilities.
    """
    for own in marginals.variables:
        if own.probabilities is None:
            arrays: Arrays = [singles(np.column_stack([own.mean, own.quantiles]))]
        else:
            likeliest = np.argsort(-own.probabilities, axis=1, kind="stable")
            codes = np.sort(likeliest[:, :MOST_CATEGORIES], axis=1)
            probabilities = np.take_along_axis(own.probabilities, codes, axis=1)
            arrays = [codes.astype("<u2"), probability_steps(probabilities)]
        bounds = np.searchsorted(own.slices, offsets)
        for array in arrays:
            for part, piece in zip(parts, np.split(array, bounds[1:-1]), strict=True):
                part.append(piece)


def _texts(
    data: Sequences, slices: Floats, entries: Floats, possible: Bools, answers: Iterator[Arrays]
) -> Iterator[str]:
    """The record of each sequence: surprises, values and, where it is possible, its answers."""
    columns = [singles(slices), singles(entries)]
    columns += [coded_column(v, own) for v, own in zip(data.schema, data.values.T, strict=True)]
    for start, length, is_possible in zip(data.offsets, data.lengths, possible, strict=False):
        parts = [column[start : start + length] for column in columns]
        yield packed_record(parts + next(answers) if is_possible else parts)


def coded_column(variable: Variable, values: Floats) -> NDArray[Any]:
    """Numbers as float32; categories as codes of 1 or 2 bytes, the largest for what is missing."""
    if not variable.num_categories:
        return singles(values)
    kind = np.dtype("<u1" if variable.num_categories < 255 else "<u2")
    return np.where(np.isnan(values), np.iinfo(kind).max, values).astype(kind)


def singles(array: NDArray[Any]) -> NDArray[np.float32]:
    """The numbers as float32; what is too large is infinite, what is too small is zero."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(array, dtype="<f4")


def probability_steps(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Probabilities in steps of 1/65535."""
    steps: NDArray[np.uint16] = np.rint(np.clip(array, 0.0, 1.0) * 65535.0).astype("<u2")
    return steps


def packed_array(array: NDArray[Any], kind: str) -> str:
    """Base64 of the numbers as a little-endian array of one kind."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def packed_record(arrays: Iterable[NDArray[Any]]) -> str:
    """Base64 of arrays of 4, 2 and 1 byte, each width one after the other behind three counts.

    A reader takes the numbers of each width in the order in which they were given.
    """
    streams = dict.fromkeys(_WIDTHS, b"")
    for array in arrays:
        streams[array.dtype.itemsize] += array.tobytes()
    counts = [len(own) // width for width, own in streams.items()]
    head = np.array(counts, dtype="<u4").tobytes()
    return base64.b64encode(head + b"".join(streams.values())).decode("ascii")

"""One record for each sequence: everything the page draws of it, asked of the model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Floats
from dspn.inference.likelihood import bounded_runs
from dspn.models import Model
from dspn.report._entries import LEVELS, EntryTable, entry_tables
from dspn.report._interfaces import InterfaceRows, interface_rows
from dspn.report._packing import packed_record, shares, singles
from dspn.sequences import Sequences, Variable

# Numbers that a run of sequences may hold at once.
_MOST_NUMBERS: Final = 8_000_000
_NO_CODE: Final = {1: 255, 2: 65535}


@final
@dataclass(frozen=True, eq=False)
class Records:
    """The records as text, the surprises of all entries, and each possible sequence's component."""

    texts: list[str]
    entry_surprises: Floats
    likeliest: list[int]


@final
@dataclass(frozen=True, eq=False)
class _Conditioned:
    """What can be said of sequences that are possible."""

    shares: Floats
    interfaces: list[InterfaceRows]
    missing: list[EntryTable]
    future: list[EntryTable]

    def of(self, index: int) -> list[NDArray[Any]]:
        """All arrays of one sequence, in the order in which the page reads them."""
        parts = [shares(self.shares[index]), *self.interfaces[index].arrays()]
        for table in (*self.missing, *self.future):
            parts.extend(table.of(index))
        return parts


def records(model: Model, data: Sequences, possible: NDArray[np.bool_], steps: int) -> Records:
    """Surprises, values and, where a sequence is possible, all that is conditioned on it."""
    texts: list[str] = []
    surprises: list[Floats] = []
    likeliest: list[int] = []
    for run in _runs(model, data, steps):
        part, own = data[run], possible[run]
        found = model.surprise(part)
        answers = _conditioned(model, part[own], steps) if own.any() else None
        texts.extend(_texts(part, found.slices, found.variables, own, answers))
        surprises.append(found.variables)
        if answers is not None:
            likeliest.extend(rows.component for rows in answers.interfaces)
    return Records(texts, np.concatenate(surprises), likeliest)


def _runs(model: Model, data: Sequences, steps: int) -> Iterator[slice]:
    """Sequences in runs whose answers fit into memory together."""
    widest = max(network.num_interfaces for network in model.components)
    categories = sum(max(variable.num_categories, 4) for variable in model.schema)
    costs = data.lengths * (widest + categories) + steps * categories
    return bounded_runs(costs, _MOST_NUMBERS)


def _conditioned(model: Model, data: Sequences, steps: int) -> _Conditioned:
    weights = model.component_posteriors(data)
    missing = entry_tables(model.marginals(data, quantiles=LEVELS), data.offsets)
    future: list[EntryTable] = []
    if steps:
        ahead = model.forecast(data, steps, quantiles=LEVELS)
        future = entry_tables(ahead.marginals, ahead.sequences.offsets)
    return _Conditioned(weights, interface_rows(model, data, weights), missing, future)


def _texts(
    data: Sequences,
    slices: Floats,
    entries: Floats,
    possible: NDArray[np.bool_],
    answers: _Conditioned | None,
) -> Iterator[str]:
    by_slice, by_entry = singles(slices), singles(entries)
    columns = [
        coded_column(variable, data.values[:, column])
        for column, variable in enumerate(data.schema)
    ]
    place = 0
    for index, is_possible in enumerate(possible.tolist()):
        rows = slice(data.offsets[index], data.offsets[index + 1])
        parts = [by_slice[rows], by_entry[rows], *(column[rows] for column in columns)]
        if is_possible and answers is not None:
            parts.extend(answers.of(place))
            place += 1
        yield packed_record(parts)


def coded_column(variable: Variable, values: Floats) -> NDArray[Any]:
    """Numbers as float32; categories as codes of 1 or 2 bytes, the largest for what is missing."""
    if not variable.num_categories:
        return singles(values)
    width = 1 if variable.num_categories < 255 else 2
    return np.where(np.isnan(values), _NO_CODE[width], values).astype(f"<u{width}")

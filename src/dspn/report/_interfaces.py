"""Posteriors of the interface nodes that matter in a sequence, a few rows for each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn import inference
from dspn._arrays import Floats, Ints
from dspn.models import Model
from dspn.report._packing import shares as in_steps
from dspn.sequences import Sequences

MOST_ROWS: Final = 12
MOST_GROUPS: Final = 6
_POOLED: Final = 65535


@final
@dataclass(frozen=True, eq=False)
class InterfaceRows:
    """P(interface node | evidence, component) for some nodes, the rest of each group pooled.

    `rows` has group, position and number of nodes; the position of pooled nodes is 65535.
    """

    component: int
    rows: NDArray[np.uint16]
    probabilities: Floats

    def arrays(self) -> list[NDArray[Any]]:
        """Component, rows and probabilities as they stand in a record."""
        head = np.array([self.component, len(self.rows)], dtype="<u2")
        return [head, self.rows, in_steps(self.probabilities)]


def interface_rows(model: Model, data: Sequences, shares: Floats) -> list[InterfaceRows]:
    """The rows of each sequence, from the component that is likeliest given it."""
    likeliest = np.argmax(shares, axis=1)
    found: dict[int, InterfaceRows] = {}
    for component in np.unique(likeliest).tolist():
        members = np.flatnonzero(likeliest == component)
        own = _of_component(model, data[members], component)
        found.update(zip(members.tolist(), own, strict=True))
    return [found[index] for index in range(len(data))]


def _of_component(model: Model, data: Sequences, component: int) -> Iterator[InterfaceRows]:
    posteriors = inference.interface_posteriors(model.compiled.component(component), data)
    groups = [np.array(group) for group in model.components[component].groups]
    for start, end in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        yield _rows(component, posteriors[start:end], groups)


def _rows(component: int, posteriors: Floats, groups: Sequence[Ints]) -> InterfaceRows:
    """At most 12 rows, shared out evenly among at most 6 groups."""
    shown = groups[:MOST_GROUPS]
    room = MOST_ROWS // len(shown)
    rows: list[tuple[int, int, int]] = []
    columns: list[Floats] = []
    for number, positions in enumerate(shown):
        kept = positions
        if positions.size > room:
            mass = posteriors[:, positions].sum(axis=0)
            kept = np.sort(positions[np.argsort(-mass, kind="stable")[: room - 1]])
        rows.extend((number, position, 1) for position in kept.tolist())
        columns.extend(posteriors[:, kept].T)
        if kept.size < positions.size:
            rest = np.setdiff1d(positions, kept)
            rows.append((number, _POOLED, rest.size))
            columns.append(posteriors[:, rest].sum(axis=1))
    return InterfaceRows(component, np.array(rows, dtype="<u2"), np.array(columns).T)

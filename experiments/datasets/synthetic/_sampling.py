"""Ancestral draws from a dynamic Bayesian network."""

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.structure import DbnStructure, DbnTables


def _drawn(table: Floats, parents: tuple[Ints, ...], uniform: Floats) -> Ints:
    """The value at which the distribution function of the row of each lane passes `uniform`."""
    cumulative = np.cumsum(table, axis=-1)
    # An improbable last value must not take up what rounding has left of 1.
    cumulative /= cumulative[..., -1:]
    rows = np.broadcast_to(cumulative[parents], (uniform.size, table.shape[-1]))
    found: Ints = (uniform[:, None] >= rows[:, :-1]).sum(axis=1)
    return found


def ancestral_sample(
    structure: DbnStructure, tables: DbnTables, lengths: Ints, rng: np.random.Generator
) -> Floats:
    """Codes of the observed nodes, drawn node by node after their parents, sequences in a row."""
    starts = np.cumsum(lengths) - lengths
    values = np.empty((int(lengths.sum()), len(structure.observed)))
    nodes = structure.topological()
    before: dict[str, Ints] = {}
    for t in range(int(lengths.max())):
        going = np.flatnonzero(lengths > t)
        now: dict[str, Ints] = {}
        for node in nodes:
            between = structure.parents_between(node) if t else ()
            table = tables.later[node] if between else tables.first[node]
            parents = (
                *(before[parent][going] for parent in between),
                *(now[parent] for parent in structure.parents_within(node)),
            )
            now[node] = _drawn(table, parents, rng.random(going.size))
        for column, node in enumerate(structure.observed):
            values[starts[going] + t, column] = now[node]
        before = {node: _spread(drawn, going, lengths.size) for node, drawn in now.items()}
    return values


def _spread(drawn: Ints, going: Ints, count: int) -> Ints:
    """The draws at the places of their sequences."""
    everywhere = np.zeros(count, dtype=np.int64)
    everywhere[going] = drawn
    return everywhere

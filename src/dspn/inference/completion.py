"""Most probable completion: the best choice of all latent branches and missing entries together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine.base import Program, bottom_rows
from dspn.inference.likelihood import require_possible
from dspn.leaves.base import Contextual, Family
from dspn.leaves.block import carrier_of
from dspn.leaves.told import has_lags, has_told_gaps, told_values
from dspn.structure.network import DynamicNetwork


@final
@dataclass(frozen=True, eq=False, repr=False)
class Completion:
    """The completed sequences, the log of the joint density reached, the interface nodes chosen.

    `log_prob` is the joint of values and latent choices; `sequences` is therefore the best of that
    joint, not the most probable values with the latent choices summed out. `interfaces[t, g]` is
    the position of group g's node at slice t, -1 where the group is not part of the tree.

    In a mixture the component is one more latent choice: `component[i]` is that of sequence i, the
    first of those that are equally good. Positions are then the columns of `interface_posteriors`,
    component after component, and groups those of the component chosen, with -1 behind the last.
    Without a mixture `component` is 0 throughout.

    Where leaves are told entries (lags), choices do not feel how a missing entry changes the slices
    after it, which do without it: such a completion is good but not `exact`.
    """

    sequences: Sequences
    log_prob: Floats
    interfaces: Ints
    component: Ints
    exact: bool = True

    def to_frame(self, library: str = "pandas") -> Any:
        """The completed sequences as a table; see `Sequences.to_table`."""
        return self.sequences.to_table(library)

    def __repr__(self) -> str:
        total, groups = self.interfaces.shape
        return (
            f"Completion(num_sequences={len(self.sequences)}, total_slices={total}, "
            f"num_groups={groups})"
        )


def _waves(data: Sequences) -> Iterator[Ints]:
    """Slices that can be filled in together: all, or one position where leaves are told entries."""
    missing = np.flatnonzero(np.isnan(data.values).any(axis=1))
    if not has_lags(data.schema):
        yield missing
        return
    position = missing - np.repeat(data.offsets[:-1], data.lengths)[missing]
    order = np.argsort(position, kind="stable")
    bounds = np.flatnonzero(np.diff(position[order])) + 1
    yield from np.split(missing[order], bounds)


def chosen_rows(
    network: DynamicNetwork, data: Sequences, leaves: Ints, variable: int, slices: Ints
) -> Floats:
    """Parameters of the chosen leaf of a variable at some slices; `leaves` as in `Choices`."""
    members, bottom = leaves[slices, variable], network.parameters.bottom
    rows: Floats = network.parameters.template.leaves[variable][members]
    if bottom is not None:
        at_bottom = np.isin(slices, bottom_rows(data, network.root))
        rows[at_bottom] = bottom.leaves[variable][members[at_bottom]]
    return rows


def fill_in(
    network: DynamicNetwork,
    data: Sequences,
    leaves: Ints,
    value_of: Callable[[Family, Floats], Floats],
) -> Floats:
    """The values of the data, with value_of(family, parameters of its leaf) at missing entries.

    Args:
        network: The network that the leaves belong to.
        data: The evidence.
        leaves: The chosen leaf of each entry in its bank, as in `Choices`.
        value_of: Such as the mode of each leaf, or a draw.
    """
    values = data.values.copy()
    for places in _waves(data):
        for variable, bank in enumerate(network.template.banks):
            missing = np.isnan(data.values[places, variable])
            slices = places[missing]
            if not slices.size:
                continue
            carrier = carrier_of(network.schema, variable)
            rows = chosen_rows(network, data, leaves, carrier, slices)
            family: Family = bank.family
            if isinstance(family, Contextual):  # of what was filled in before, too
                context = told_values(data, variable, slices, values)[:, 1:]
                rows, family = family.resolve(rows, context), family.plain
            values[slices, variable] = value_of(family, rows)
    return values


def complete(program: Program, data: Sequences) -> Completion:
    """Argmax over missing entries and latent choices of their joint density with the evidence."""
    found = program.best(data)
    require_possible(program, data, found.log_values)
    if not (len(found.leaves) and np.isnan(data.values).any()):
        return Completion(data, found.log_values, found.interfaces, found.component)
    values = np.empty(data.values.shape)
    for c in np.unique(found.component).tolist():
        own, network = found.component == c, program.mixture.components[c]
        if own.all():
            values = fill_in(network, data, found.leaves, lambda leaf, row: leaf.mode(row))
            continue
        rows = np.repeat(own, data.lengths)
        leaves = found.leaves[rows]
        values[rows] = fill_in(network, data[own], leaves, lambda leaf, row: leaf.mode(row))
    filled = data.with_values(values)
    exact = not has_told_gaps(data)
    return Completion(filled, found.log_values, found.interfaces, found.component, exact)

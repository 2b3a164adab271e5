"""Most probable completion: the best choice of all latent branches and missing entries together."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine import Choices, Program, best_choices
from dspn.inference.likelihood import possible_likelihood
from dspn.sequences import Sequences
from dspn.structure.network import Root


@final
@dataclass(frozen=True, eq=False, repr=False)
class Completion:
    """The completed sequences, the log of the joint density reached, the interface nodes chosen.

    `log_prob` is the joint of values and latent choices; `sequences` is therefore the best of that
    joint, not the most probable values with the latent choices summed out. `interfaces[t, g]` is
    the position of group g's node at slice t, -1 where the group is not part of the tree.
    """

    sequences: Sequences
    log_prob: Floats
    interfaces: Ints

    def __repr__(self) -> str:
        total, groups = self.interfaces.shape
        return (
            f"Completion(num_sequences={len(self.sequences)}, total_slices={total}, "
            f"num_groups={groups})"
        )


def bottom_rows(data: Sequences, root: Root) -> Ints:
    """The slice of each sequence that the bottom network stands on."""
    return data.offsets[1:] - 1 if root == Root.FIRST else data.offsets[:-1]


def chosen_parameters(
    program: Program, data: Sequences, choices: Choices, variable: int
) -> tuple[Ints, Floats]:
    """Slices at which a variable is missing, and the parameters of the leaf chosen there."""
    slices = np.flatnonzero(np.isnan(data.values[:, variable]))
    members = program.template.load_member[choices.loads[slices, variable]]
    rows = program.leaf_parameters(False)[variable][members]
    if program.untied:
        at_bottom = np.isin(slices, bottom_rows(data, program.network.root))
        rows = rows.copy()
        rows[at_bottom] = program.leaf_parameters(True)[variable][members[at_bottom]]
    return slices, rows


def interface_positions(program: Program, choices: Choices) -> Ints:
    """Chosen input rows as interface positions, -1 kept."""
    order = np.append(program.template.input_order, -1)
    if np.array_equal(order[:-1], np.arange(order.size - 1)):
        return choices.interfaces
    return order[choices.interfaces]


def complete(program: Program, data: Sequences) -> Completion:
    """Argmax over missing entries and latent choices of their joint density with the evidence."""
    choices, log_values = best_choices(program, data)
    if np.any(log_values == -np.inf):
        possible_likelihood(program, data)
    return Completion(
        _filled(program, data, choices), log_values, interface_positions(program, choices)
    )


def _filled(program: Program, data: Sequences, choices: Choices) -> Sequences:
    """The data with every missing entry at the mode of its chosen leaf."""
    if not len(choices.loads) or not np.isnan(data.values).any():
        return data
    values = data.values.copy()
    for variable, bank in enumerate(program.network.template.banks):
        slices, rows = chosen_parameters(program, data, choices, variable)
        if slices.size:
            values[slices, variable] = bank.family.mode(rows)
    return data.with_values(values)

"""Most probable completion: the best choice of all latent branches and missing entries together."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.data import Sequences
from dspn.engine import Choices, Program, best_choices
from dspn.inference.likelihood import possible_likelihood, require_possible
from dspn.inference.mixed import AnyProgram, MixedProgram, rows_of
from dspn.structure.network import Root


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
    """

    sequences: Sequences
    log_prob: Floats
    interfaces: Ints
    component: Ints

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


def complete(program: AnyProgram, data: Sequences) -> Completion:
    """Argmax over missing entries and latent choices of their joint density with the evidence."""
    if isinstance(program, MixedProgram):
        return _complete_mixture(program, data)
    choices, log_values = best_choices(program, data)
    if np.any(log_values == -np.inf):
        possible_likelihood(program, data)
    return Completion(
        data.with_values(_filled(program, data, choices)) if _is_open(data, choices) else data,
        log_values,
        interface_positions(program, choices),
        np.zeros(len(data), dtype=np.int64),
    )


def _is_open(data: Sequences, choices: Choices) -> bool:
    """Whether there is an entry to fill in; where there is none, leaves may not be named."""
    return bool(len(choices.loads)) and bool(np.isnan(data.values).any())


def _filled(program: Program, data: Sequences, choices: Choices) -> Floats:
    """The values with every missing entry at the mode of its chosen leaf."""
    values = data.values.copy()
    if _is_open(data, choices):
        for variable, bank in enumerate(program.network.template.banks):
            slices, rows = chosen_parameters(program, data, choices, variable)
            if slices.size:
                values[slices, variable] = bank.family.mode(rows)
    return values


def _complete_mixture(program: MixedProgram, data: Sequences) -> Completion:
    """The best completion of any component; the first where several are as good."""
    best = np.full(len(data), -np.inf)
    component = np.zeros(len(data), dtype=np.int64)
    values = data.values.copy()
    widest = max(own.num_groups for own in program.programs)
    interfaces = np.full((data.total_slices, widest), -1, dtype=np.int64)
    offsets = program.mixture.interface_offsets
    for c, log_weight, own in program.parts:
        choices, found = best_choices(own, data)
        better = log_weight + found > best
        if not better.any():
            continue
        best[better], component[better] = log_weight + found[better], c
        rows = rows_of(data, better)
        loads = choices.loads[rows] if len(choices.loads) else choices.loads
        chosen = Choices(choices.interfaces[rows], loads)
        positions = interface_positions(own, chosen)
        interfaces[rows] = -1
        interfaces[rows, : own.num_groups] = np.where(positions < 0, -1, positions + offsets[c])
        values[rows] = _filled(own, data if better.all() else data[better], chosen)
    require_possible(program, data, best)
    return Completion(data.with_values(values), best, interfaces, component)

"""Likelihood of evidence on some variables of a wide network, without the groups of the others."""

from typing import Final

import numpy as np

from dspn._arrays import Bools, Floats
from dspn.engine import Program, compile_program, likelihood_totals
from dspn.sequences import Sequences
from dspn.structure.edit import marginal, speaking_groups

# Edges times slices that a pass must save before another network is made for it.
_WORTH: Final = 2**27
# Slices that are looked through at once for what is observed.
_SLICES: Final = 2**14


def observed_totals(program: Program, data: Sequences) -> Floats:
    """Log P(observed entries) of each sequence, as totals; groups without evidence are worth 1."""
    most = program.network.template.num_edges * data.total_slices
    if program.num_groups == 1 or most < _WORTH:
        return likelihood_totals(program, data)
    are_observed = _are_observed(data)
    if are_observed.all() or not are_observed.any():
        return likelihood_totals(program, data)
    part = _speaking_part(program, np.flatnonzero(are_observed).tolist(), data.total_slices)
    return likelihood_totals(part, data.select(part.network.schema.names))


def _are_observed(data: Sequences) -> Bools:
    """Whether a variable has an entry, for each; slices are read only as far as they have to be."""
    found = np.zeros(data.num_variables, dtype=np.bool_)
    for start in range(0, data.total_slices, _SLICES):
        # The largest number that is there; NaN where none is.
        found |= ~np.isnan(np.fmax.reduce(data.values[start : start + _SLICES], axis=0))
        if found.all():
            break
    return found


def _speaking_part(program: Program, observed: list[int], num_slices: int) -> Program:
    """The groups that the variables concern, as a program, where it pays; else the whole.

    The last one made is kept.
    """
    network = program.network
    groups = speaking_groups(network, observed)
    kept = sum(len(network.groups[group]) for group in groups) / network.num_interfaces
    if (1 - kept) * network.template.num_edges * num_slices < _WORTH:
        return program
    last: dict[tuple[int, ...], Program] = program.kept("speaking part", dict)
    found = last.get(groups)
    if found is None:
        variables = [v for group in groups for v in network.group_variables[group]]
        found = compile_program(marginal(network, variables), single=program.single)
        last.clear()
        last[groups] = found
    return found

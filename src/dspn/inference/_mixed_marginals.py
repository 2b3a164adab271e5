"""Marginals of a mixture: every entry is one mixture of the leaves of all components."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.data import Sequences
from dspn.engine import Program, SegmentFlows, posterior_flows
from dspn.engine.totals import log_shares, rounded
from dspn.inference.completion import bottom_rows
from dspn.inference.leaf_mixtures import Marginals, Mixer, leaf_rows
from dspn.inference.likelihood import require_possible
from dspn.inference.mixed import (
    MixedProgram,
    bounded_runs,
    for_each_component,
    log_joint,
    rows_of,
)

# Weights of leaves that are kept at a time: 128 MiB.
_MOST_WEIGHTS: Final = 1 << 24


@final
class _Leaves:
    """The leaves of each variable in all components, one after the other."""

    def __init__(self, program: MixedProgram) -> None:
        self.program = program
        self.own = [
            [leaf_rows(own, variable) for variable in range(len(program.schema))]
            for own in program.programs
        ]
        sizes = [[loads.size for loads, _ in component] for component in self.own]
        self.ends = np.cumsum(sizes, axis=0)
        self.starts = self.ends - sizes
        self.counts: Ints = self.ends[-1]

    def parameters(self, variable: int, bottom: bool) -> Floats:
        """Parameters of all leaves of a variable, of the bottom networks or of the templates."""
        return np.concatenate(
            [
                own.leaf_parameters(bottom)[variable][component[variable][1]]
                for own, component in zip(self.program.programs, self.own, strict=True)
            ]
        )


@final
@dataclass(frozen=True, eq=False)
class _WeightCollector:
    """Consumes flows of component c and keeps the posteriors of its leaves, entry by entry.

    `weights[v][e]` has a column for each leaf of variable v. `shares` are the posteriors of the
    component at every slice.
    """

    leaves: _Leaves
    c: int
    wanted: Bools
    entry_of: Ints
    shares: Floats
    weights: list[Floats]

    def __call__(self, segment: SegmentFlows) -> None:
        wanted = segment.active & self.wanted[segment.rows].any(axis=2)
        if not wanted.any():
            return
        found = segment.leaves(*np.nonzero(wanted))
        rows = segment.rows[wanted]
        starts, ends = self.leaves.starts[self.c], self.leaves.ends[self.c]
        for variable, (loads, _) in enumerate(self.leaves.own[self.c]):
            places = np.flatnonzero(self.wanted[rows, variable])
            own = rows[places]
            posterior = found.posterior[loads][:, places].T * self.shares[own, None]
            span = slice(starts[variable], ends[variable])
            self.weights[variable][self.entry_of[own, variable], span] = posterior


def _leaf_weights(leaves: _Leaves, data: Sequences, wanted: Bools, shares: Floats) -> list[Floats]:
    """P(component, leaf | evidence) of the wanted entries of each variable, (entries, leaves)."""
    entry_of = np.cumsum(wanted, axis=0) - 1
    counts = zip(wanted.sum(axis=0).tolist(), leaves.counts.tolist(), strict=True)
    weights = [np.zeros(shape) for shape in counts]

    def collect(c: int, own: Program, part: Sequences, mask: Bools) -> None:
        rows = rows_of(data, mask)
        share = np.repeat(shares[mask, c], part.lengths)
        collector = _WeightCollector(leaves, c, wanted[rows], entry_of[rows], share, weights)
        posterior_flows(own, part, collector)

    for_each_component(leaves.program, data, shares > 0, collect)
    return weights


def _put(
    mixer: Mixer, leaves: _Leaves, variable: int, first: int, weights: Floats, at_bottom: Bools
) -> None:
    """Entries from `first` on become the mixtures with these weights."""
    for bottom in (False, True):
        places = np.flatnonzero(at_bottom == bottom)
        if places.size:
            mixer.put(first + places, weights[places], leaves.parameters(variable, bottom))


def mixed_marginals_at(
    program: MixedProgram, data: Sequences, wanted: Bools, levels: tuple[float, ...]
) -> Marginals:
    """P(entry | evidence) of the wanted entries, all of them missing from `data`.

    Quantiles need the weights of all leaves of an entry together, so that sequences are taken as
    many at a time as memory allows.
    """
    own_shares, total = log_shares(log_joint(program, data))
    log_values = require_possible(program, data, rounded(total))
    shares = np.exp(own_shares)
    leaves = _Leaves(program)
    slices = [np.flatnonzero(column) for column in wanted.T]
    banks = program.programs[0].network.template.banks
    mixers = [
        Mixer(variable, bank.family, levels, own.size)
        for variable, bank, own in zip(data.schema, banks, slices, strict=True)
    ]
    is_bottom = np.zeros(data.total_slices, dtype=np.bool_)
    if any(own.untied for own in program.programs):
        is_bottom[bottom_rows(data, program.root)] = True
    costs = np.add.reduceat(wanted @ leaves.counts, data.offsets[:-1])
    for run in bounded_runs(costs, _MOST_WEIGHTS):
        rows = slice(data.offsets[run.start], data.offsets[run.stop])
        part = data if run.stop - run.start == len(data) else data[run]
        found = _leaf_weights(leaves, part, wanted[rows], shares[run])
        for variable, (mixer, weights) in enumerate(zip(mixers, found, strict=True)):
            first = int(np.searchsorted(slices[variable], rows.start))
            own = slices[variable][first : first + len(weights)]
            _put(mixer, leaves, variable, first, weights, is_bottom[own])
    results = (mixer.result(own) for mixer, own in zip(mixers, slices, strict=True))
    return Marginals(data.schema, log_values, tuple(results))

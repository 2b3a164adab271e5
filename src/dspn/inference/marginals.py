"""Conditional distributions of all missing entries at once, from one pass up and one down."""

from collections.abc import Sequence
from typing import final

import numpy as np

from dspn._arrays import Bools, Floats
from dspn.data import Sequences
from dspn.engine import Program, SegmentFlows, posterior_flows
from dspn.inference._mixed_marginals import mixed_marginals_at
from dspn.inference.leaf_mixtures import Marginals, Mixer, checked_levels
from dspn.inference.leaf_mixtures import leaf_rows as leaf_rows
from dspn.inference.likelihood import log_posteriors, possible_likelihood
from dspn.inference.mixed import AnyProgram, MixedProgram, for_each_component, rows_of


@final
class _MarginalCollector:
    """Consumes flows and fills the marginals of the wanted entries."""

    def __init__(self, program: Program, wanted: Bools, levels: tuple[float, ...]) -> None:
        self.program = program
        self.wanted = wanted
        self.slices = [np.flatnonzero(column) for column in wanted.T]
        self.entry_of = np.cumsum(wanted, axis=0) - 1
        banks = program.network.template.banks
        self.mixers = [
            Mixer(variable, bank.family, levels, slices.size)
            for variable, bank, slices in zip(
                program.network.schema, banks, self.slices, strict=True
            )
        ]
        self.leaves = [leaf_rows(program, variable) for variable in range(len(banks))]

    def __call__(self, segment: SegmentFlows) -> None:
        parameters = self.program.leaf_parameters(segment.bottom)
        wanted = segment.active & self.wanted[segment.rows].any(axis=2)
        if not wanted.any():
            return
        found = segment.leaves(*np.nonzero(wanted))
        place = np.cumsum(wanted).reshape(wanted.shape) - 1
        for variable, mixer in enumerate(self.mixers):
            at, lane = np.nonzero(segment.active & self.wanted[segment.rows, variable])
            if not at.size:
                continue
            loads, members = self.leaves[variable]
            weights = found.posterior[loads][:, place[at, lane]].T
            entries = self.entry_of[segment.rows[at, lane], variable]
            mixer.put(entries, weights, parameters[variable][members])


def marginals_at(
    program: AnyProgram, data: Sequences, wanted: Bools, levels: tuple[float, ...]
) -> Marginals:
    """P(entry | evidence) of the wanted entries, all of them missing from `data`."""
    if isinstance(program, MixedProgram):
        return mixed_marginals_at(program, data, wanted, levels)
    possible_likelihood(program, data)
    collector = _MarginalCollector(program, wanted, levels)
    log_values = posterior_flows(program, data, collector)
    return Marginals(
        data.schema,
        log_values,
        tuple(
            mixer.result(slices)
            for mixer, slices in zip(collector.mixers, collector.slices, strict=True)
        ),
    )


def marginals(
    program: AnyProgram, data: Sequences, *, quantiles: Sequence[float] = ()
) -> Marginals:
    """P(entry | evidence) of every missing entry, in one pass up and one down."""
    return marginals_at(program, data, np.isnan(data.values), checked_levels(quantiles))


def interface_posteriors(program: AnyProgram, data: Sequences) -> Floats:
    """P(interface node i is on the induced tree at a slice | evidence), (slices, interfaces).

    Sums to 1 over the nodes of each group. For a mixture it is P(component, node | evidence),
    component after component, and sums to the posterior of the component over each of its groups.
    """
    if isinstance(program, Program):
        possible_likelihood(program, data)
        return _interface_posteriors(program, data)
    shares = np.exp(log_posteriors(program, data))
    out = np.zeros((data.total_slices, program.mixture.num_interfaces))
    offsets = program.mixture.interface_offsets

    def collect(c: int, own: Program, part: Sequences, mask: Bools) -> None:
        share = np.repeat(shares[mask, c], part.lengths)[:, None]
        columns = offsets[c] + np.arange(own.num_interfaces)
        out[rows_of(data, mask)[:, None], columns] = share * _interface_posteriors(own, part)

    for_each_component(program, data, shares > 0, collect)
    return out


def _interface_posteriors(program: Program, data: Sequences) -> Floats:
    out = np.zeros((data.values.shape[0], program.num_interfaces))
    order = program.template.input_order

    def collect(segment: SegmentFlows) -> None:
        at, lane = np.nonzero(segment.active)
        out[segment.rows[at, lane][:, None], order[None, :]] = segment.flows.interface[at, :, lane]

    posterior_flows(program, data, collect, leaves=False)
    return out


def impute(program: AnyProgram, data: Sequences) -> Sequences:
    """Missing entries replaced by the mode of a category, the median of a count, or the mean."""
    found = marginals(program, data, quantiles=(0.5,))
    values = data.values.copy()
    for variable, own in enumerate(found.variables):
        values[own.slices, variable] = own.point()
    return data.with_values(values)

"""Leaf densities as tables: one row for each loaded row, indexed by code or by place in the segment."""

from typing import Final, NamedTuple

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn.engine.coding import Coding
from dspn.engine.program import Program

_LOST_BELOW: Final = -690.0  # exp of less than this leaves the range of normal numbers


class Tables(NamedTuple):
    """What the kernels read leaf values from.

    Load i of a tabulated factor f has `values[load_start[i] + load_step[i] * code]`; a load with
    `load_factor[i]` = -1 has `dense[load_start[i] + place]`. In linear space each value was divided by the
    largest of its variable; the logarithms of the divisors are in `scales` and `dense_scale`.
    """

    load_start: Ints
    load_step: Ints
    load_factor: Ints
    load_variable: Ints
    values: Floats
    dense: Floats
    scale_start: Ints
    scales: Floats
    dense_scale: Floats


def scaled(log_values: Floats) -> tuple[Floats, Floats, Bools]:
    """exp(log_values) with each row divided by its largest entry; the log divisors; rows that lost an entry."""
    peak = log_values.max(axis=1)
    peak[peak == -np.inf] = 0.0
    relative = log_values - peak[:, None]
    lost = ((relative < _LOST_BELOW) & (relative > -np.inf)).any(axis=1)
    np.exp(relative, out=relative)
    return relative, peak, lost


def log_densities(
    program: Program, bank: int, values: Floats, *, bottom: bool, best: bool
) -> Floats:
    """Log density of each value under each leaf of a bank; with `best` a missing value takes the mode's."""
    family = program.network.template.banks[bank].family
    parameters = program.leaf_parameters(bottom)[bank]
    log_values = family.log_prob(parameters, values)
    if best:
        missing = np.isnan(values)
        if missing.any():
            at_mode = np.diagonal(family.log_prob(parameters, family.mode(parameters)))
            log_values[missing] = at_mode
    return log_values


def tabulate(
    program: Program, coding: Coding, *, bottom: bool, linear: bool, best: bool
) -> tuple[Tables, bool]:
    """Tables of all tabulated variables; also whether an entry was too small to be kept in linear space."""
    layout = program.template
    pieces: list[Floats] = []
    scales: list[Floats] = []
    start_of: dict[int, int] = {}
    size = 0
    lossy = False
    for bank, factor in enumerate(coding.factor_of):
        if factor < 0:
            continue
        table = log_densities(program, bank, coding.values[factor], bottom=bottom, best=best)
        if linear:
            table, peak, lost = scaled(table)
            lossy = lossy or bool(lost.any())
            scales.append(peak)
        else:
            scales.append(np.zeros(len(table)))
        start_of[bank] = size
        pieces.append(np.ascontiguousarray(table.T).ravel())
        size += table.size
    factor = np.array([coding.factor_of[bank] for bank in layout.load_bank], dtype=np.int64)
    width = np.array([values.size for values in coding.values] or [1], dtype=np.int64)
    starts = np.array([start_of.get(int(bank), 0) for bank in layout.load_bank], dtype=np.int64)
    starts += np.where(factor >= 0, layout.load_member * width[factor], 0)
    lengths = [scale.size for scale in scales]
    return (
        Tables(
            starts,
            np.ones(factor.size, dtype=np.int64),
            factor,
            layout.load_bank,
            np.concatenate(pieces) if pieces else np.empty(0),
            np.empty(0),
            np.cumsum([0, *lengths[:-1]], dtype=np.int64)
            if lengths
            else np.empty(0, dtype=np.int64),
            np.concatenate(scales) if scales else np.empty(0),
            np.empty(0),
        ),
        lossy,
    )


class DenseTables(NamedTuple):
    """Tables with the values of one segment's places; places that lost an entry; log divisors by variable."""

    tables: Tables
    lossy: Bools
    divisors: dict[int, Floats]


def with_dense(
    tables: Tables,
    program: Program,
    coding: Coding,
    columns: Floats,
    *,
    bottom: bool,
    linear: bool,
    best: bool,
) -> DenseTables:
    """The tables with the values of the variables that are not tabulated.

    `columns[v]` holds variable v's values, place by place.
    """
    num_places = columns.shape[1]
    starts = tables.load_start.copy()
    pieces: list[Floats] = []
    size = 0
    lossy = np.zeros(num_places, dtype=np.bool_)
    divisors: dict[int, Floats] = {}
    layout = program.template
    for bank, factor in enumerate(coding.factor_of):
        if factor >= 0:
            continue
        table = log_densities(program, bank, columns[bank], bottom=bottom, best=best)
        if linear:
            table, divisors[bank], lost = scaled(table)
            lossy |= lost
        own = layout.load_bank == bank
        starts[own] = size + layout.load_member[own] * num_places
        pieces.append(np.ascontiguousarray(table.T).ravel())
        size += table.size
    scale = sum(divisors.values(), start=np.zeros(num_places))
    dense = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
    return DenseTables(
        tables._replace(load_start=starts, dense=dense, dense_scale=scale), lossy, divisors
    )

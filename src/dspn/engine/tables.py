"""Leaf densities as tables, indexed by code or by place."""

from typing import Final, NamedTuple

import numpy as np

from dspn._arrays import Bools, Floats
from dspn.engine.coding import Coding
from dspn.engine.program import Program
from dspn.engine.records import LeafTables

_LOST_BELOW: Final = -690.0  # exp of less than this leaves the range of normal numbers


def _divided(log_values: Floats) -> tuple[Floats, Floats, Bools]:
    """exp(log_values), each row over its largest; the log divisors; which rows lost an entry."""
    peak = log_values.max(axis=1)
    peak[peak == -np.inf] = 0.0
    relative = log_values - peak[:, None]
    lost = ((relative < _LOST_BELOW) & (relative > -np.inf)).any(axis=1)
    np.exp(relative, out=relative)
    return relative, peak, lost


def _log_densities(
    program: Program, bank: int, values: Floats, *, bottom: bool, best: bool
) -> Floats:
    """Log density of each value under each leaf; with `best` a missing value takes the mode's."""
    family = program.network.template.banks[bank].family
    parameters = program.leaf_parameters(bottom)[bank]
    log_values = family.log_prob(parameters, values)
    missing = np.isnan(values)
    if best and missing.any():
        log_values[missing] = np.diagonal(family.log_prob(parameters, family.mode(parameters)))
    return log_values


def tabulate(
    program: Program, coding: Coding, *, bottom: bool, linear: bool, best: bool
) -> tuple[LeafTables, bool]:
    """Tables of all tabulated variables, and whether one lost an entry to the range of numbers."""
    layout = program.template
    pieces: list[Floats] = []
    divisors: list[Floats] = []
    start_of = np.zeros(len(coding.factor_of), dtype=np.int64)
    width_of = np.zeros(len(coding.factor_of), dtype=np.int64)
    size = 0
    lossy = False
    for bank, factor in enumerate(coding.factor_of):
        if factor < 0:
            continue
        table = _log_densities(program, bank, coding.values[factor], bottom=bottom, best=best)
        peak = np.zeros(len(table))
        if linear:
            table, peak, lost = _divided(table)
            lossy = lossy or bool(lost.any())
        divisors.append(peak)
        start_of[bank], width_of[bank] = size, len(table)
        pieces.append(np.ascontiguousarray(table.T).ravel())
        size += table.size
    banks = layout.load_bank
    none = np.empty(0)
    lengths = [peak.size for peak in divisors]
    tables = LeafTables(
        start=start_of[banks] + layout.load_member * width_of[banks],
        factor=np.array(coding.factor_of, dtype=np.int64)[banks],
        variable=banks,
        values=np.concatenate(pieces) if pieces else none,
        dense=none,
        divisor_start=np.cumsum([0, *lengths], dtype=np.int64)[:-1],
        divisors=np.concatenate(divisors) if divisors else none,
        dense_divisor=none,
    )
    return tables, lossy


class DenseTables(NamedTuple):
    """Tables with the dense values at given places, and the log divisors of the dense variables.

    `lossy` says whether an entry was lost to the range of numbers.
    """

    tables: LeafTables
    lossy: bool
    divisors: dict[int, Floats]


def with_dense(
    tables: LeafTables,
    program: Program,
    coding: Coding,
    columns: Floats,
    *,
    bottom: bool,
    linear: bool,
    best: bool,
) -> DenseTables:
    """The tables with the dense variables, those that are not tabulated, added.

    `columns[v]` holds variable v's values by place.
    """
    num_places = columns.shape[1]
    layout = program.template
    starts = tables.start.copy()
    pieces: list[Floats] = []
    divisors: dict[int, Floats] = {}
    size = 0
    lossy = False
    for bank, factor in enumerate(coding.factor_of):
        if factor >= 0:
            continue
        table = _log_densities(program, bank, columns[bank], bottom=bottom, best=best)
        if linear:
            table, divisors[bank], lost = _divided(table)
            lossy = lossy or bool(lost.any())
        own = layout.load_bank == bank
        starts[own] = size + layout.load_member[own] * num_places
        pieces.append(np.ascontiguousarray(table.T).ravel())
        size += table.size
    total = sum(divisors.values(), start=np.zeros(num_places))
    dense = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
    return DenseTables(
        tables._replace(start=starts, dense=dense, dense_divisor=total), lossy, divisors
    )

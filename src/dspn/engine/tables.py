"""Leaf densities as tables, indexed by code or by place."""

from typing import Final, NamedTuple

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine.coding import Coding
from dspn.engine.program import Program
from dspn.engine.records import LeafTables
from dspn.engine.totals import two_sum
from dspn.leaves import Categorical, Family

_DEEP: Final = -1024.0  # differences of larger logarithms lose less than 1e-13 to rounding
_LOST_BELOW: Final = -690.0  # exp of less than this leaves the range of normal numbers


def _divided(log_values: Floats, starts: Ints, *, linear: bool) -> tuple[Floats, Floats, bool]:
    """Densities over the largest of each row and bank, the log divisors, and a loss.

    Banks are columns side by side, each from its start on. The densities are logarithms unless
    `linear`; the divisors of deep ones are rounded so that no difference to them is. The last
    result says whether an entry was lost to the range of numbers.
    """
    peak = np.maximum.reduceat(log_values, starts, axis=1)
    peak[peak == -np.inf] = 0.0
    sizes = np.diff(np.append(starts, log_values.shape[1]))
    if not linear:
        deep = (log_values < _DEEP).any(axis=1)
        if deep.any():
            sized = np.where(np.isfinite(log_values[deep]), np.abs(log_values[deep]), 0.0)
            step = np.spacing(np.maximum.reduceat(sized, starts, axis=1))
            peak[deep] = np.rint(peak[deep] / step) * step
        return log_values - np.repeat(peak, sizes, axis=1), peak, False
    relative = log_values - np.repeat(peak, sizes, axis=1)
    lost = bool(((relative < _LOST_BELOW) & (relative > -np.inf)).any())
    np.exp(relative, out=relative)
    return relative, peak, lost


def _log_densities(family: Family, parameters: Floats, values: Floats, *, best: bool) -> Floats:
    """Log density of each value under each leaf; with `best` a missing value takes the mode's."""
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
    parameters = program.leaf_parameters(bottom)
    pieces: list[Floats] = []
    divisors: dict[int, Floats] = {}
    start_of = np.zeros(len(coding.factor_of), dtype=np.int64)
    width_of = np.zeros(len(coding.factor_of), dtype=np.int64)
    size = 0
    lossy = False
    for family, banks in alike_banks(program, coding):
        values = coding.values[coding.factor_of[banks[0]]]
        ends = np.cumsum([len(parameters[bank]) for bank in banks])
        starts = np.append(0, ends[:-1])
        rows = np.concatenate([parameters[bank] for bank in banks])
        table = _log_densities(family, rows, values, best=best)
        table, peak, lost = _divided(table, starts, linear=linear)
        lossy = lossy or lost
        divisors |= zip(banks, peak.T, strict=True)
        start_of[banks], width_of[banks] = size + starts * values.size, values.size
        pieces.append(np.ascontiguousarray(table.T).ravel())
        size += table.size
    banks_of_loads = layout.load_bank
    none = np.empty(0)
    by_factor = [divisors[bank] for bank in sorted(divisors)]
    lengths = [peak.size for peak in by_factor]
    tables = LeafTables(
        start=start_of[banks_of_loads] + layout.load_member * width_of[banks_of_loads],
        factor=np.array(coding.factor_of, dtype=np.int64)[banks_of_loads],
        variable=banks_of_loads,
        values=np.concatenate(pieces) if pieces else none,
        dense=none,
        divisor_start=np.cumsum([0, *lengths], dtype=np.int64)[:-1],
        divisors=np.concatenate(by_factor) if by_factor else none,
        dense_divisor=np.empty((0, 0)),
    )
    return tables, lossy


def alike_banks(program: Program, coding: Coding) -> list[tuple[Family, list[int]]]:
    """The tabulated banks, those with the same family and values together.

    The values of categorical variables follow from their family, and others are tabulated alone.
    """
    found: dict[tuple[Family, int], list[int]] = {}
    for number, (bank, factor) in enumerate(
        zip(program.network.template.banks, coding.factor_of, strict=True)
    ):
        if factor >= 0:
            own = -1 if isinstance(bank.family, Categorical) else number
            found.setdefault((bank.family, own), []).append(number)
    return [(family, banks) for (family, _), banks in found.items()]


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
        family = program.network.template.banks[bank].family
        rows = program.leaf_parameters(bottom)[bank]
        table = _log_densities(family, rows, columns[bank], best=best)
        table, peak, lost = _divided(table, np.zeros(1, dtype=np.int64), linear=linear)
        divisors[bank] = peak[:, 0]
        lossy = lossy or lost
        own = layout.load_bank == bank
        starts[own] = size + layout.load_member[own] * num_places
        pieces.append(np.ascontiguousarray(table.T).ravel())
        size += table.size
    total = np.zeros((2, num_places))
    for own_divisors in divisors.values():
        total[0], rest = two_sum(total[0], own_divisors)
        total[1] += rest
    dense = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
    return DenseTables(
        tables._replace(start=starts, dense=dense, dense_divisor=total), lossy, divisors
    )

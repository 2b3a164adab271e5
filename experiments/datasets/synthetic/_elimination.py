"""Sums of products of tables, one variable summed out after the other.

A table has an axis for each variable of its scope and one more, the last, for the sequences of a
block: `lanes` of them, or a single one where all sequences share the table. The work is that of the
largest table met on the way, so the order matters; `elimination_order` chooses it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, final

import numpy as np

from dspn._arguments import Floats

Scope = tuple[int, ...]
"""Variables by number, in rising order."""


@final
@dataclass(frozen=True)
class Table:
    """A non-negative function of the variables of a scope, for every lane."""

    scope: Scope
    values: Floats


@final
@dataclass(frozen=True)
class Arithmetic:
    """What stands for multiplying and adding two tables entry by entry."""

    times: np.ufunc
    plus: np.ufunc
    one: float
    zero: float


LINEAR: Final = Arithmetic(np.multiply, np.add, 1.0, 0.0)
LOGARITHMIC: Final = Arithmetic(np.add, np.logaddexp, 0.0, -np.inf)


def _united(scopes: Iterable[Scope]) -> Scope:
    return tuple(sorted(set().union(*scopes)))


def elimination_order(
    scopes: Iterable[Scope], kept: Iterable[int], sizes: Sequence[int]
) -> tuple[tuple[int, ...], int]:
    """Every variable that is not kept, each time the one that needs the smallest table.

    Also the number of entries, without lanes, of the largest table that is met.
    """
    remaining = list(scopes)
    waiting = set(_united(remaining)) - set(kept)
    order = []
    largest = prod(sizes[variable] for variable in kept)
    while waiting:
        entries, chosen = min(
            (prod(sizes[v] for v in _united(s for s in remaining if variable in s)), variable)
            for variable in waiting
        )
        merged = _united(scope for scope in remaining if chosen in scope)
        remaining = [scope for scope in remaining if chosen not in scope]
        remaining.append(tuple(variable for variable in merged if variable != chosen))
        waiting.remove(chosen)
        order.append(chosen)
        largest = max(largest, entries)
    return tuple(order), largest


def _aligned(table: Table, scope: Scope) -> Floats:
    """The values with an axis of length one for each variable of `scope` the table lacks."""
    lengths = iter(table.values.shape)
    shape = [next(lengths) if variable in table.scope else 1 for variable in scope]
    return table.values.reshape(*shape, next(lengths))


def multiplied(tables: Iterable[Table], arithmetic: Arithmetic) -> Table:
    """The product, small tables first."""
    ordered = sorted(tables, key=lambda table: table.values.size)
    found = ordered[0]
    for table in ordered[1:]:
        scope = _united((found.scope, table.scope))
        found = Table(scope, arithmetic.times(_aligned(found, scope), _aligned(table, scope)))
    return found


def _summed_out(tables: Sequence[Table], variable: int, arithmetic: Arithmetic) -> Table:
    """The product of the tables, summed over one variable without ever holding the whole of it."""
    ordered = sorted(tables, key=lambda table: table.values.size)
    scope = _united(table.scope for table in tables)
    axis = scope.index(variable)
    left = tuple(other for other in scope if other != variable)
    if len(ordered) == 1:
        return Table(left, arithmetic.plus.reduce(ordered[0].values, axis=axis))
    small = np.moveaxis(_aligned(multiplied(ordered[:-1], arithmetic), scope), axis, 0)
    large = np.moveaxis(_aligned(ordered[-1], scope), axis, 0)
    total = arithmetic.times(small[0], large[0])
    for value in range(1, len(large)):
        arithmetic.plus(total, arithmetic.times(small[value], large[value]), out=total)
    return Table(left, total)


def eliminated(
    tables: Iterable[Table], order: Iterable[int], arithmetic: Arithmetic = LINEAR
) -> Table:
    """The product of all tables, summed over the variables of `order`."""
    remaining = list(tables)
    for variable in order:
        touched = [table for table in remaining if variable in table.scope]
        remaining = [table for table in remaining if variable not in table.scope]
        remaining.append(_summed_out(touched, variable, arithmetic))
    return multiplied(remaining, arithmetic)

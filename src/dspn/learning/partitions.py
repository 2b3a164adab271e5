"""Algorithm 3: the next partition of the scope of a product node.

Partitions are numbered by restricted growth strings, in lexicographic order. Entry j of a string is
the block of item j. The first entry is 0, and an entry is at most one more than the largest before
it, so every partition has exactly one string: blocks are numbered in the order of their first
items. (0, 0, 0) is one block, (0, 1, 2) is three.

A scope is a set of item numbers: variable v is item v, the input interface of group g is item
num_variables + g. The numbers of groups do not change from neighbour to neighbour, so that a place
in the order of partitions can be remembered by scope.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import lgamma, log
from types import MappingProxyType
from typing import NamedTuple, TypeVar, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints, checked_rng, indices, require_type, whole_number
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.learning.dependence import DEFAULT_ALPHA, Column, components, dependent_pairs
from dspn.options import Options, number_field, whole_field

GrowthString = tuple[int, ...]
Item = TypeVar("Item")

# k^n / k! has fallen below 1e-30 of its sum at k = n + 30, for every n.
_BEYOND = 30


def checked_string(string: Sequence[int]) -> GrowthString:
    """The string as a tuple; raises unless it is a restricted growth string."""
    labels = indices(string, "string", StructureError)
    if not labels or min(labels) < 0 or string_of(labels) != labels:
        raise StructureError(
            f"`string` must be a restricted growth string of at least one entry, in which an entry "
            f"is at most one more than the largest before it, but is {labels}; number the blocks "
            "in the order of their first items."
        )
    return labels


def first(num_items: int) -> GrowthString:
    """0 0 ... 0: all items in one block."""
    return (0,) * whole_number(num_items, "num_items", StructureError)


def successor(string: Sequence[int]) -> GrowthString:
    """The next string of the same length in lexicographic order; the first after the last."""
    labels = checked_string(string)
    for place in range(len(labels) - 1, 0, -1):
        if labels[place] <= max(labels[:place]):
            return (*labels[:place], labels[place] + 1, *(0,) * (len(labels) - place - 1))
    return first(len(labels))


def all_strings(num_items: int) -> Iterator[GrowthString]:
    """Every string of a length once, in lexicographic order; there are Bell(num_items)."""
    string = first(num_items)
    yield string
    while any(string := successor(string)):
        yield string


def string_of(labels: Sequence[int] | Ints) -> GrowthString:
    """The string of the partition in which two items share a block when their labels are equal."""
    number: dict[int, int] = {}
    return tuple(number.setdefault(int(label), len(number)) for label in labels)


def random_string(num_items: int, rng: np.random.Generator) -> GrowthString:
    """A string drawn uniformly from all Bell(num_items).

    Items are thrown into k urns, with P(k) proportional to k^n / k!; the urns that are not empty
    are the blocks. A partition into b blocks is met k! / (k - b)! k^-n of the time, so it has
    sum_k 1 / (k - b)! over e Bell(n), the same for every b (Stam's method).
    """
    checked_rng(rng, StructureError)
    count = whole_number(num_items, "num_items", StructureError)
    logs = np.array([count * log(k) - lgamma(k + 1) for k in range(1, count + _BEYOND)])
    shares = np.cumsum(np.exp(logs - logs.max()))
    num_urns = 1 + int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))
    return string_of(rng.integers(num_urns, size=count))


def blocks(string: Sequence[int], items: Sequence[Item]) -> tuple[tuple[Item, ...], ...]:
    """The items of each block, block after block."""
    labels = checked_string(string)
    if len(labels) != len(items):
        raise StructureError(
            f"`string` must have an entry for each of the {len(items)} items, but has "
            f"{len(labels)}: {labels}."
        )
    found: list[list[Item]] = [[] for _ in range(max(labels) + 1)]
    for label, item in zip(labels, items, strict=True):
        found[label].append(item)
    return tuple(tuple(block) for block in found)


Scope = tuple[int, ...]
Partition = tuple[Scope, ...]


@final
@dataclass(frozen=True)
class PartitionOptions(Options):
    """The largest scope that is searched in order, and the level of the independence tests."""

    threshold: int = whole_field(6)
    alpha: float = number_field(DEFAULT_ALPHA, above=0, below=1)


def checked_scope(scope: Sequence[int]) -> Scope:
    """The items in rising order; raises unless there is one and none occurs twice."""
    items = tuple(sorted(indices(scope, "scope", StructureError)))
    if not items or len(set(items)) != len(items):
        raise StructureError(
            f"`scope` must hold at least one item and none of them twice, but is {tuple(scope)}."
        )
    return items


@final
@dataclass(frozen=True)
class Positions:
    """The growth string at which each scope was left, over its items in rising order."""

    strings: Mapping[Scope, GrowthString] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_type(self.strings, Mapping, "strings", StructureError)
        checked = {}
        for scope, string in self.strings.items():
            items = checked_scope(scope)
            blocks(string, items)
            checked[items] = string_of(string)
        object.__setattr__(self, "strings", MappingProxyType(checked))

    def after(self, scope: Scope) -> "Positions":
        """The positions with the next string of a scope; the first where it was never visited."""
        last = self.strings.get(scope)
        string = first(len(scope)) if last is None else successor(last)
        return Positions({**self.strings, scope: string})

    def to_json(self) -> list[list[list[int]]]:
        """Pairs of scope and string, in the order of the scopes."""
        return [[list(scope), list(self.strings[scope])] for scope in sorted(self.strings)]

    @classmethod
    def from_json(cls, pairs: object) -> "Positions":
        """The positions that `to_json` wrote."""
        try:
            if not isinstance(pairs, list):
                raise TypeError(f"found {type(pairs).__name__}")
            return cls({tuple(scope): tuple(string) for scope, string in pairs})
        except (TypeError, ValueError) as reason:
            raise ModelFileError(
                f"positions must be a list of pairs of scope and growth string: {reason}"
            ) from reason


class NextPartition(NamedTuple):
    """A partition, and the positions to go on from."""

    partition: Partition
    positions: Positions


def _split(
    scope: Scope,
    linked: Bools,
    positions: Positions,
    options: PartitionOptions,
    rng: np.random.Generator,
) -> NextPartition:
    """Algorithm 3 as printed, given which pairs of items are dependent."""
    if len(scope) <= options.threshold:
        positions = positions.after(scope)
        return NextPartition(blocks(positions.strings[scope], scope), positions)
    subsets = components(linked)
    if len(subsets) == 1:
        return NextPartition(blocks(random_string(len(scope), rng), scope), positions)
    found: list[Scope] = []
    for subset in subsets:
        part = tuple(scope[place] for place in subset)
        own, positions = _split(part, linked[np.ix_(subset, subset)], positions, options, rng)
        found.extend(own)
    return NextPartition(tuple(found), positions)


def next_partition(
    scope: Sequence[int],
    columns: Sequence[Column],
    weights: Floats | None,
    positions: Positions,
    options: PartitionOptions,
    rng: np.random.Generator,
) -> NextPartition:
    """Algorithm 3: independent subsets of a large scope, the next partition of a small one.

    A scope of more than `threshold` items is split into the connected components of its dependent
    pairs, and each is partitioned by itself; a single component gets a partition drawn uniformly
    from all. At or below the threshold the next partition in lexicographic order is taken, from
    where the scope was left; the last is followed by the first. `columns[i]` holds the rows of
    item `scope[i]`; neither columns nor weights are looked at where no test is needed.
    """
    require_type(positions, Positions, "positions", StructureError)
    require_type(options, PartitionOptions, "options", StructureError)
    checked_rng(rng, StructureError)
    items = checked_scope(scope)
    linked = np.zeros((0, 0), dtype=np.bool_)
    if len(items) > options.threshold:
        if len(columns) != len(items):
            raise DataError(
                f"`columns` must have one for each of the {len(items)} items of the scope, but has "
                f"{len(columns)}."
            )
        rising = np.argsort(scope)
        linked = dependent_pairs([columns[place] for place in rising], weights, options.alpha)
    return _split(items, linked, positions, options, rng)

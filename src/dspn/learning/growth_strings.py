"""Restricted growth strings: the partitions of a set, written down in lexicographic order.

Entry j of a string is the block of item j. The first entry is 0, and an entry is at most one more
than the largest before it, so every partition has exactly one string: blocks are numbered in the
order of their first items. (0, 0, 0) is one block, (0, 1, 2) is three.
"""

from collections.abc import Iterator, Sequence
from math import lgamma, log
from typing import TypeVar

import numpy as np

from dspn._arrays import Ints
from dspn._checks import checked_rng, indices, whole_number
from dspn.errors import StructureError

GrowthString = tuple[int, ...]
Item = TypeVar("Item")

# k^n / k! has fallen below 1e-30 of its sum at k = n + 30, for every n.
_BEYOND = 30


def checked_string(string: Sequence[int]) -> GrowthString:
    """The string as a tuple; raises unless it is a restricted growth string."""
    labels = indices(string, "string", StructureError)
    if not labels:
        raise StructureError(
            "`string` must have an entry for each item, but is empty; there must be at least one."
        )
    largest = -1
    for place, label in enumerate(labels):
        if not 0 <= label <= largest + 1:
            raise StructureError(
                f"`string` must be a restricted growth string, in which an entry is at most one "
                f"more than the largest before it, but entry {place} of {labels} is {label}; "
                "number the blocks in the order of their first items."
            )
        largest = max(largest, label)
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
    start = first(num_items)
    string = start
    while True:
        yield string
        string = successor(string)
        if string == start:
            return


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

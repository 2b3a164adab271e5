"""Algorithm 3: the next partition of the scope of a product node.

A scope is a set of item numbers: variable v is item v, the input interface of group g is item
num_variables + g. The numbers of groups do not change from neighbour to neighbour, so that a place
in the order of partitions can be remembered by scope.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, final

import numpy as np

from dspn._arrays import Bools, Floats
from dspn._checks import checked_rng, indices, require_type
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.learning.growth_strings import (
    GrowthString,
    blocks,
    checked_string,
    first,
    random_string,
    successor,
)
from dspn.learning.independence import (
    DEFAULT_ALPHA,
    Column,
    components,
    dependent_pairs,
)
from dspn.options import Options, number_field, whole_field

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
            items, labels = checked_scope(scope), checked_string(string)
            if len(items) != len(labels):
                raise StructureError(
                    f"`strings` must have a label for each item, but scope {items} has the string "
                    f"{labels}."
                )
            checked[items] = labels
        object.__setattr__(self, "strings", MappingProxyType(checked))

    def following(self, scope: Scope) -> GrowthString:
        """The string after the one remembered; the first where the scope was never visited."""
        last = self.strings.get(scope)
        return first(len(scope)) if last is None else successor(last)

    def at(self, scope: Scope, string: GrowthString) -> "Positions":
        """The positions with that of one scope replaced."""
        # Both come from `following`, and the rest has been checked before.
        other = object.__new__(Positions)
        object.__setattr__(
            other, "strings", MappingProxyType({**self.strings, tuple(scope): string})
        )
        return other

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
        string = positions.following(scope)
        return NextPartition(blocks(string, scope), positions.at(scope, string))
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

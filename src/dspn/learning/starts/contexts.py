"""Markov chains of variable order: interface nodes that remember the slices before them."""

import numpy as np

from dspn._arguments import Floats, Ints, require_type, whole_number
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.errors import DataError, StructureError
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts.clusters import label_leaves
from dspn.leaves import family_for
from dspn.structure.build import NetworkBuilder, assemble
from dspn.structure.network import DynamicNetwork

Run = tuple[int, ...]

# Weights that are learned begin above zero.
_LEAST_COUNT = 1e-6


def count_runs(data: Sequences, order: int) -> int:
    """The different runs of up to `order` slices that occur; a missing entry ends a run."""
    return sum(int(own.max(initial=-1)) + 1 for own in _run_numbers(data, order))


def context_network(
    data: Sequences, num_interfaces: int, order: int, *, priors: Priors = DEFAULT_PRIORS
) -> DynamicNetwork:
    """A chain whose nodes are the most frequent runs of up to `order` slices in the data.

    All different slices are nodes, and as many longer runs as there is room for. A node leads to
    what its run becomes with one more slice: the longest end of it that is a node. Its leaves are
    the last slice of the run. The root is at the first slice.

    Args:
        data: The training set, of categorical variables.
        num_interfaces: The number of nodes, at least that of different slices.
        order: The slices of the longest run.
        priors: Pseudo-observations of weights and leaves.
    """
    require_type(data, Sequences, "data", DataError)
    require_type(priors, Priors, "priors", StructureError)
    size = whole_number(num_interfaces, "num_interfaces", StructureError)
    numbers = _run_numbers(data, whole_number(order, "order", StructureError))
    symbols, count = numbers[0], int(numbers[0].max(initial=-1)) + 1
    if any(own.kind is not Kind.CATEGORICAL for own in data.schema) or not 0 < count <= size:
        raise DataError(
            f"`data` must have categorical variables only, and up to {size} different slices, one "
            f"at least, but have {count}; give more nodes, or use `clustered_network`."
        )
    place, labels = _frequent_runs(numbers, size)
    later = np.delete(np.arange(symbols.size), data.offsets[:-1])
    later = later[(labels[later - 1] >= 0) & (symbols[later] >= 0)]
    pairs = labels[later - 1] * count + symbols[later]
    follows = np.bincount(pairs, minlength=len(place) * count).reshape(len(place), count)
    shares = follows + max(priors.sum_pseudo_count, _LEAST_COUNT)
    builder = NetworkBuilder(data.schema)
    inputs, leaves = builder.inputs(len(place)), _leaves(data, labels, len(place), priors)
    outputs = []
    for run, node in place.items():
        after = [inputs[_longest((*run, own)[-order:], place)] for own in range(count)]
        mixed = builder.sum(after, shares[node] / shares[node].sum())
        own_leaves = [builder.leaf(column, rows[node]) for column, rows in enumerate(leaves)]
        outputs.append(builder.product([*own_leaves, mixed]))
    top = NetworkBuilder(data.schema)
    first = symbols[data.offsets[:-1]]
    begins = np.bincount(first[first >= 0], minlength=count) + 1.0
    apex = top.sum(top.inputs(len(place))[:count], begins / begins.sum())
    return assemble(builder.template(outputs), top.top(apex))


def _run_numbers(data: Sequences, order: int) -> list[Ints]:
    """For each length up to the order the run that ends at a slice, by number; -1 for none."""
    counts = [variable.num_categories for variable in data.schema]
    radix = np.cumprod([1, *counts[:-1]])
    symbols = _numbered(np.nan_to_num(data.values @ radix, nan=-1.0).astype(np.int64))
    found = [symbols]
    for _ in range(order - 1):
        before = np.roll(found[-1], 1)
        before[data.offsets[:-1]] = -1
        pairs = before * data.total_slices + symbols
        found.append(_numbered(np.where((before >= 0) & (symbols >= 0), pairs, -1)))
    return found


def _numbered(codes: Ints) -> Ints:
    """Codes as numbers from 0 on, without gaps; -1 stays."""
    known, found = codes >= 0, np.full(codes.size, -1)
    found[known] = np.unique(codes[known], return_inverse=True)[1]
    return found


def _frequent_runs(numbers: list[Ints], size: int) -> tuple[dict[Run, int], Ints]:
    """The runs that are nodes, by number, and the longest of them that ends at each slice.

    A run is as frequent as its beginning and its end at the most, and comes after them.
    """
    symbols = numbers[0]
    counts = [np.bincount(own[own >= 0]) for own in numbers]
    lengths = np.repeat(np.arange(1, len(counts) + 1), [own.size for own in counts])
    # All single slices as they are numbered, then longer runs by frequency; of equals the shorter.
    frequency = np.where(lengths > 1, np.concatenate(counts), np.inf)
    order = np.lexsort((lengths, -frequency))[:size]
    node = np.full(lengths.size, -1)
    node[order] = np.arange(order.size)
    place, labels = dict[Run, int](), np.full(symbols.size, -1)
    for length, (own, begin) in enumerate(
        zip(numbers, np.cumsum([0, *(own.size for own in counts)]), strict=False), 1
    ):
        known = np.flatnonzero(own >= 0)
        nodes = node[begin + own[known]]
        known, nodes = known[nodes >= 0], nodes[nodes >= 0]
        labels[known] = nodes
        for row in known[np.unique(nodes, return_index=True)[1]].tolist():
            place[tuple(symbols[row - length + 1 : row + 1].tolist())] = int(labels[row])
    return dict(sorted(place.items(), key=lambda item: item[1])), labels


def _leaves(data: Sequences, labels: Ints, size: int, priors: Priors) -> list[Floats]:
    """For each variable the leaf of each node."""
    found = []
    for column, variable in enumerate(data.schema):
        family = family_for(variable)
        values = data.values[labels >= 0, column]
        prior = priors.leaf(family, column)
        found.append(label_leaves(labels[labels >= 0], size, family, values, prior))
    return found


def _longest(run: Run, place: dict[Run, int]) -> int:
    """The node of the longest end of a run that is one."""
    return next(place[run[n:]] for n in range(len(run)) if run[n:] in place)

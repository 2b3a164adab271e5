"""Markov chains of variable order: interface nodes that remember the slices before them."""

from typing import Final

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from dspn._arguments import Floats, Ints, require_type, whole_number
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.engine import check_time
from dspn.errors import DataError, StructureError
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts.clusters import label_leaves
from dspn.leaves import family_for
from dspn.structure.build import NetworkBuilder, assemble
from dspn.structure.network import DynamicNetwork

Run = tuple[int, ...]

# Weights that are learned begin above zero.
_LEAST_COUNT: Final = 1e-6
# Numbers of kinds of rows that are compared until so many in a row are no better, those below one
# for each symbol not counted; steps that find them, and the observations that the mean of a kind
# may be worth.
_KINDS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_KINDS_PATIENCE: Final = 3
_KIND_STEPS: Final = 30
_STRENGTHS: Final = tuple(2.0**n for n in range(-4, 13))


def count_runs(data: Sequences, order: int) -> int:
    """The different runs of up to `order` slices that occur; a missing entry ends a run."""
    return sum(int(own.max(initial=-1)) + 1 for own in _run_numbers(data, order))


def context_network(
    data: Sequences,
    num_interfaces: int,
    order: int,
    *,
    priors: Priors = DEFAULT_PRIORS,
    pooled: bool = False,
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
        pooled: Whether nodes share what the nodes of their kind have in common, see `pooled_rows`.
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
    pseudo_count = max(priors.sum_pseudo_count, _LEAST_COUNT)
    shares = pooled_rows(follows, pseudo_count) if pooled else follows + pseudo_count
    builder = NetworkBuilder(data.schema)
    inputs, leaves = builder.inputs(len(place)), _leaves(data, symbols, count, priors)
    outputs = []
    for run, node in place.items():
        after = [inputs[_longest((*run, own)[-order:], place)] for own in range(count)]
        mixed = builder.sum(after, shares[node] / shares[node].sum())
        own_leaves = [builder.leaf(column, rows[run[-1]]) for column, rows in enumerate(leaves)]
        outputs.append(builder.product([*own_leaves, mixed]))
    top = NetworkBuilder(data.schema)
    first = symbols[data.offsets[:-1]]
    begins = np.bincount(first[first >= 0], minlength=count) + 1.0
    apex = top.sum(top.inputs(len(place))[:count], begins / begins.sum())
    return assemble(builder.template(outputs), top.top(apex))


def pooled_rows(counts: Floats | Ints, pseudo_count: float) -> Floats:
    """Distributions of rows of counts, each drawn to what the rows of its kind have in common.

    Rows are a mixture of Dirichlet-multinomials: of every kind the mean is learned and how many
    observations it is worth to a row, so that rows of one kind that differ keep what they are. The
    number of kinds is that of the greatest evidence less half a log of all counts for a parameter.

    Args:
        counts: How often each symbol was seen in each row, (rows, symbols).
        pseudo_count: Observations of each symbol that a mean has besides.
    """
    table = np.asarray(counts, dtype=np.float64)
    penalty = 0.5 * (table.shape[1] + 1) * np.log(max(2.0, table.sum()))
    numbers = [number for number in _KINDS if number <= len(table)]
    starts = _far_rows(table, numbers[-1], pseudo_count)
    best, rows, vain = -np.inf, table, 0
    for number in numbers:
        check_time()
        evidence, found = _with_kinds(table, _kind_means(table, starts[:number], pseudo_count))
        evidence -= number * penalty
        vain = 0 if evidence > best or number < table.shape[1] else vain + 1
        if evidence > best:
            best, rows = evidence, found
        if vain == _KINDS_PATIENCE:
            break
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _far_rows(table: Floats, number: int, pseudo_count: float) -> Floats:
    """Means that kinds begin with: that of all rows, then the row farthest from those before."""
    total = table.sum(axis=0) + pseudo_count
    usual = table + total / total.sum()
    usual /= usual.sum(axis=1, keepdims=True)
    means, lost = [total / total.sum()], np.full(len(table), np.inf)
    for _ in range(number - 1):
        lost = np.minimum(lost, xlogy(table, usual / means[-1]).sum(axis=1))
        means.append(usual[int(lost.argmax())])
    return np.stack(means)


def _kind_means(table: Floats, means: Floats, pseudo_count: float) -> Floats:
    """The means of kinds: a mixture of multinomials that begins with these."""
    number = len(means)
    log_shares = np.full(number, -np.log(number))
    for _ in range(_KIND_STEPS):
        joint = log_shares + table @ np.log(means).T
        shares = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        means = shares.T @ table + pseudo_count
        means /= means.sum(axis=1, keepdims=True)
        log_shares = np.log((shares.sum(axis=0) + 1.0 / number) / (len(table) + 1.0))
    return means


def _with_kinds(table: Floats, means: Floats) -> tuple[float, Floats]:
    """The log evidence of rows of kinds with these means, and the rows that are expected."""
    row, symbol = np.nonzero(table)
    seen, totals = table[row, symbol], table.sum(axis=1)
    kind = (table @ np.log(means).T).argmax(axis=1)
    # Of each kind the strength that its rows make most likely.
    own, tried = means[kind[row], symbol], np.array(_STRENGTHS)[:, None]
    gains = gammaln(tried * own + seen) - gammaln(tried * own)
    losses = gammaln(tried) - gammaln(tried + totals)
    evidences = [
        np.bincount(kind[row], gain, len(means)) + np.bincount(kind, loss, len(means))
        for gain, loss in zip(gains, losses, strict=True)
    ]
    strength = tried[np.argmax(evidences, axis=0), 0]
    pseudo = strength[:, None] * means
    each = gammaln(pseudo[:, symbol] + seen) - gammaln(pseudo[:, symbol])
    log_rows = np.zeros((len(table), len(means)))
    for number, gain in enumerate(each):
        log_rows[:, number] += np.bincount(row, gain, len(table))
    log_rows += gammaln(strength) - gammaln(strength + totals[:, None])
    weights = (np.bincount(kind, minlength=len(means)) + 1.0) / (len(table) + len(means))
    joint = np.log(weights) + log_rows
    evidence = logsumexp(joint, axis=1)
    shares = np.exp(joint - evidence[:, None]) / (strength + totals[:, None])
    return float(evidence.sum()), shares.sum(axis=1, keepdims=True) * table + shares @ pseudo


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
    """For each variable the leaf of each different slice."""
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

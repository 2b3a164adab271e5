"""Reference in log space for sequences of any length: slow, straightforward, never out of range.

Values of a slice are divided by their largest in each interface group (the root is linear in each
group), which keeps the logarithms small and so their rounding; nothing ever leaves log space.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from math import fsum

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dspn.leaves import Family
from dspn.structure import DynamicNetwork, Input, Leaf, Product, Sum
from oracles import has_leaf_below, leaf_rows, stack_order, sum_weights

Floats = NDArray[np.float64]
MINUS_INFINITY = -np.inf


def log_sum(rows: Floats) -> Floats:
    """Log of the sum of exp along the first axis; -inf rows count as nothing."""
    largest = rows.max(axis=0)
    safe = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        total: Floats = safe + np.log(np.exp(rows - safe).sum(axis=0))
    return total


def log_sum_of(terms: list[float]) -> float:
    """`log_sum` of plain numbers: nodes of a single slice have few children."""
    largest = max(terms)
    if largest == MINUS_INFINITY:
        return largest
    return largest + math.log(fsum([math.exp(term - largest) for term in terms]))


def log_max(rows: Floats) -> Floats:
    """The largest along the first axis, in place of the sum."""
    largest: Floats = rows.max(axis=0)
    return largest


def log_density(family: Family, row: Floats, column: Floats, *, modes: bool) -> Floats:
    """Log p(value | leaf) for a column of values; missing ones have 0, or the mode's."""
    missing = np.isnan(column)
    at = np.where(missing, 0.0, column)
    with np.errstate(divide="ignore"):
        logs = np.log(row) if family.name == "categorical" else None
    if logs is not None:
        found, mode = logs[at.astype(int)], logs.max()
    elif family.name == "gaussian":
        height = -0.5 * np.log(2 * np.pi * row[1])
        found, mode = height - (at - row[0]) ** 2 / (2 * row[1]), height
    elif row[0] == 0:
        found, mode = np.where(at == 0, 0.0, MINUS_INFINITY), 0.0
    else:

        def pmf(x: Floats) -> Floats:
            return np.asarray(x * np.log(row[0]) - row[0] - gammaln(x + 1))

        found, mode = pmf(at), float(pmf(np.floor(row[:1]))[0])
    return np.where(missing, mode if modes else 0.0, found)


@dataclass(frozen=True)
class Upward:
    """Log values of template nodes (nodes, T) in stack order, of interfaces (T, k), of the top."""

    nodes: Floats
    interfaces: Floats
    scales: Floats
    top: Floats
    root: float
    log_value: float


class LogSpace:
    """Log-likelihood, posteriors, mixtures and best completion of one sequence."""

    def __init__(self, network: DynamicNetwork, values: Floats) -> None:
        template, parameters = network.template, network.parameters
        self.network, self.values = network, np.asarray(values, dtype=float)
        self.stack = stack_order(network, len(values))
        bottom = parameters.bottom or parameters.template
        self.weights = [self._log_weights(own.weights) for own in (bottom, parameters.template)]
        self.edges = [
            {index: row[:, 0].tolist() for index, row in own.items()} for own in self.weights
        ]
        self.rows = [leaf_rows(template, own) for own in (bottom, parameters.template)]
        self.kept = has_leaf_below(template)
        self.reads = [False] * len(template.nodes)
        for index in template.order:
            node = template.nodes[index]
            children = node.children if isinstance(node, Sum | Product) else ()
            self.reads[index] = isinstance(node, Input) or any(self.reads[c] for c in children)

    def _log_weights(self, flat: Floats) -> dict[int, Floats]:
        with np.errstate(divide="ignore"):
            return {
                index: np.log(np.array(row))[:, None]
                for index, row in sum_weights(self.network.template.nodes, flat).items()
            }

    @cached_property
    def log_likelihood(self) -> float:
        return self._up.log_value

    @cached_property
    def _up(self) -> Upward:
        return self.upward()

    @cached_property
    def best_completion(self) -> float:
        """Log of the largest joint density of latent choices and missing values."""
        return self.upward(maximise=True).log_value

    def _combine(self, node: Sum | Product, logs: Floats | None, children: Floats, add) -> Floats:  # type: ignore[no-untyped-def]
        return children.sum(axis=0) if isinstance(node, Product) else add(children + logs)

    def _slice_part(self, *, maximise: bool) -> Floats:
        """Values of all nodes that read no input, for all slices at once."""
        template = self.network.template
        add = log_max if maximise else log_sum
        found = np.zeros((len(template.nodes), len(self.values)))
        stacked = self.values[self.stack]
        for index in template.order:
            node = template.nodes[index]
            if self.reads[index]:
                continue
            for own, columns in enumerate((slice(0, 1), slice(1, None))):
                if isinstance(node, Leaf):
                    column, row = stacked[columns, node.variable], self.rows[own][index]
                    found[index, columns] = log_density(node.family, row, column, modes=maximise)
                else:
                    assert isinstance(node, Sum | Product)
                    below = found[list(node.children), columns]
                    found[index, columns] = self._combine(
                        node, self.weights[own].get(index), below, add
                    )
        return found

    def upward(self, *, maximise: bool = False, chosen: NDArray[np.bool_] | None = None) -> Upward:
        """The upward pass; `chosen` (T, k), by slice number, says which interfaces are allowed."""
        template, top = self.network.template, self.network.top
        add = max if maximise else log_sum_of
        found = self._slice_part(maximise=maximise)
        num_slices, k = len(self.values), template.num_interfaces
        interfaces = np.zeros((num_slices, k))
        scales = np.zeros((num_slices, k))
        mixing = [(index, template.nodes[index]) for index in template.order if self.reads[index]]
        for height in range(num_slices):
            now, edges = found[:, height].tolist(), self.edges[min(height, 1)]
            for index, node in mixing:
                if height == 0 and not self.kept[index]:
                    now[index] = 0.0
                elif isinstance(node, Input):
                    now[index] = interfaces[height - 1, node.position].item()
                elif isinstance(node, Product):
                    now[index] = sum([now[child] for child in node.children])
                else:
                    pairs = zip(edges[index], node.children, strict=True)  # type: ignore[union-attr]
                    now[index] = add([log + now[child] for log, child in pairs])
            found[:, height] = now
            outputs = found[list(template.outputs), height]
            if chosen is not None:
                outputs = np.where(chosen[self.stack[height]], outputs, MINUS_INFINITY)
            for group in self.network.groups:
                largest = outputs[list(group)].max()
                scales[height, list(group)] = largest if np.isfinite(largest) else 0.0
            interfaces[height] = outputs - scales[height]
        top_values, _ = self._top(interfaces[-1], log_max if maximise else log_sum)
        root = float(top_values[top.root])
        firsts = [group[0] for group in self.network.groups]
        total = fsum([root, *scales[:, firsts].reshape(-1).tolist()])
        return Upward(found, interfaces, scales, top_values, root, total)

    def _top(self, inputs: Floats, add) -> tuple[Floats, dict[int, Floats]]:  # type: ignore[no-untyped-def]
        top = self.network.top
        with np.errstate(divide="ignore"):
            logs = {
                index: np.log(np.array(row))[:, None]
                for index, row in sum_weights(
                    top.nodes, self.network.parameters.top.weights
                ).items()
            }
        found = np.zeros((len(top.nodes), 1))
        for index in top.order:
            node = top.nodes[index]
            if isinstance(node, Input):
                found[index] = inputs[node.position]
            else:
                assert isinstance(node, Sum | Product)
                found[index] = self._combine(node, logs.get(index), found[list(node.children)], add)
        return found[:, 0], logs

    @cached_property
    def posteriors(self) -> tuple[Floats, Floats]:
        """Posteriors of interfaces (T, k) and of leaf nodes (T, nodes; 0 for others), by slice."""
        template, top = self.network.template, self.network.top
        up = self._up
        num_slices = len(self.values)
        reading = [index for index in reversed(template.order) if self.reads[index]]
        down = np.full((len(template.nodes), num_slices), MINUS_INFINITY)
        chosen = np.zeros((num_slices, template.num_interfaces))
        at_top = np.full((len(top.nodes), 1), MINUS_INFINITY)
        at_top[top.root] = 0.0
        logs = self._top(up.interfaces[-1], log_sum)[1]
        for index in reversed(top.order):
            _push(top.nodes[index], index, logs.get(index), up.top[:, None], at_top)
        above = at_top[list(top.inputs), 0]
        for height in reversed(range(num_slices)):
            chosen[height] = np.exp(above + up.interfaces[height] - up.root)
            down[list(template.outputs), height] = above - up.scales[height]
            now, values = down[:, height].tolist(), up.nodes[:, height].tolist()
            for index in reading:
                logs_here = self.edges[min(height, 1)].get(index)
                _push_one(template.nodes[index], index, logs_here, values, now, self.reads)
            down[:, height] = now
            above = down[list(template.inputs), height]
        self._push_slice_part(up, down)
        is_leaf = np.array([isinstance(node, Leaf) for node in template.nodes])
        leaves = np.where(is_leaf[:, None], np.exp(down + up.nodes - up.root), 0.0).T
        back = np.argsort(self.stack)
        return chosen[back], leaves[back]

    def _push_slice_part(self, up: Upward, down: Floats) -> None:
        template = self.network.template
        wanted = [not reads for reads in self.reads]
        for index in reversed(template.order):
            for own, columns in enumerate((slice(0, 1), slice(1, None))):
                logs = self.weights[own].get(index)
                _push(
                    template.nodes[index],
                    index,
                    logs,
                    up.nodes[:, columns],
                    down[:, columns],
                    wanted,
                )

    def log_conditional(self, t: int, v: int, category: int) -> float:
        """Log P(entry (t, v) = category | observed), by two upward passes."""
        values = self.values.copy()
        values[t, v] = category
        return LogSpace(self.network, values).log_likelihood - self.log_likelihood

    def mixture(self, t: int, v: int, leaves: Floats) -> tuple[Floats, Floats]:
        """Weights and parameter rows of the conditional mixture of a missing entry."""
        template = self.network.template
        own = 0 if self.stack[0] == t else 1
        nodes = [i for i, n in enumerate(template.nodes) if isinstance(n, Leaf) and n.variable == v]
        return leaves[t, nodes], np.stack([self.rows[own][node] for node in nodes])


def _push(node, index, logs, values, down, wanted=None) -> None:  # type: ignore[no-untyped-def]
    """Adds a node's derivative to those of its children (the wanted ones)."""
    if not isinstance(node, Sum | Product):
        return
    for place, child in enumerate(node.children):
        if wanted is not None and not wanted[child]:
            continue
        if isinstance(node, Product):
            others = [c for c in node.children if c != child]
            share = down[index] + values[others].sum(axis=0)
        else:
            share = down[index] + logs[place]
        down[child] = np.logaddexp(down[child], share)


def _push_one(node, index, logs, values, down, wanted) -> None:  # type: ignore[no-untyped-def]
    """`_push` in plain numbers, for one slice."""
    if not isinstance(node, Sum | Product) or down[index] == MINUS_INFINITY:
        return
    for place, child in enumerate(node.children):
        if wanted[child]:
            if isinstance(node, Product):
                others = [values[c] for c in node.children if c != child]
                share = down[index] + sum(others)
            else:
                share = down[index] + logs[place]
            down[child] = log_sum_of([down[child], share])


@dataclass(frozen=True)
class HmmReference:
    """Forward-backward and Viterbi of a hidden Markov model in log space."""

    log_likelihood: float
    posteriors: Floats
    viterbi: float


def hmm_reference(start: Floats, transition: Floats, log_emissions: Floats) -> HmmReference:
    """Textbook recursions on log emissions of shape (T, k), normalised at every slice."""
    with np.errstate(divide="ignore"):
        log_start, log_transition = np.log(start), np.log(transition)
    num_slices, k = log_emissions.shape
    forward, backward = np.zeros((num_slices, k)), np.zeros((num_slices, k))
    scales = np.zeros(num_slices)
    best, best_scales = log_start + log_emissions[0], np.zeros(num_slices)
    for t in range(num_slices):
        before = log_start if t == 0 else log_sum(forward[t - 1][:, None] + log_transition)
        forward[t] = before + log_emissions[t]
        scales[t] = log_sum(forward[t])
        forward[t] -= scales[t]
        if t:
            best = (best[:, None] + log_transition).max(axis=0) + log_emissions[t]
        best_scales[t] = best.max()
        best = best - best_scales[t]
    for t in range(num_slices - 2, -1, -1):
        after = backward[t + 1] + log_emissions[t + 1]
        backward[t] = log_sum(after[:, None] + log_transition.T) - scales[t + 1]
    with np.errstate(under="ignore"):
        posteriors = np.exp(forward + backward)
    return HmmReference(fsum(scales.tolist()), posteriors, fsum(best_scales.tolist()))

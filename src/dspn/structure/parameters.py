"""Weights and leaf parameters as plain arrays, kept apart from the structure they belong to."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dspn._arguments import Floats, Ints, float_array, read_only, require_type
from dspn.errors import StructureError
from dspn.structure.nodes import Sum, children_of

if TYPE_CHECKING:
    from dspn.structure.template import Template, Top

WEIGHT_TOLERANCE = 1e-9


@final
@dataclass(frozen=True, eq=False)
class NetworkParameters:
    """Sum weights in the order of `edge_offsets`, and one (leaves, width) array for each bank."""

    weights: Floats
    leaves: tuple[Floats, ...] = ()

    def __post_init__(self) -> None:
        weights = float_array(self.weights, "weights", StructureError)
        leaves = (float_array(array, "leaves", StructureError) for array in self.leaves)
        object.__setattr__(self, "weights", read_only(weights))
        object.__setattr__(self, "leaves", tuple(map(read_only, leaves)))


@final
@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters of the template, of the top, and of the bottom where it has its own."""

    template: NetworkParameters
    top: NetworkParameters
    bottom: NetworkParameters | None = None

    def __post_init__(self) -> None:
        for name in ("template", "top", *(() if self.bottom is None else ("bottom",))):
            require_type(getattr(self, name), NetworkParameters, name, StructureError)

    @property
    def tied(self) -> bool:
        """Whether the bottom network shares the template's parameters."""
        return self.bottom is None


def check_distributions(table: Floats, argument: str) -> None:
    """Raises unless the entries along the last axis are not negative and add up to 1."""
    rows = table.reshape(-1, table.shape[-1])
    allowed = np.isfinite(rows) & (rows >= 0)
    sums = np.where(allowed, rows, 0.0).sum(axis=1)
    wrong = ~allowed.all(axis=1) | (np.abs(sums - 1.0) > WEIGHT_TOLERANCE)
    if wrong.any():
        index = int(np.argmax(wrong))
        what = "a distribution" if table.ndim == 1 else "distributions along its last axis"
        place = "it" if table.ndim == 1 else f"row {index}"
        found = (
            f"sums to {sums[index]:.12g}; divide it by its sum"
            if allowed[index].all()
            else f"has the entry {rows[index][np.argmin(allowed[index])]:g}; correct it"
        )
        raise StructureError(
            f"`{argument}` must hold {what}, finite entries that are not negative and add up to "
            f"1, but {place} {found}."
        )


def checked_shares(weights: Any, count: int, members: str) -> Floats:
    """The weights of the members of a mixture; raises unless they are a distribution."""
    shares = float_array(weights, "weights", StructureError)
    if shares.shape != (count,):
        raise StructureError(
            f"`weights` must have one number for each of the {count} {members}, but has shape "
            f"{shares.shape}."
        )
    check_distributions(shares, "weights")
    return shares


def sum_starts(network: Template | Top) -> Ints:
    """Where each table of weights begins in the flat weight vector, in the order of the sums."""
    offsets = network.edge_offsets
    first = np.fromiter(offsets.values(), dtype=np.int64, count=len(offsets))
    if not network.has_tables:
        return first
    widths = np.array([len(children_of(network.nodes[index])) for index in offsets])
    counts = np.diff(np.append(first, network.num_weights)) // widths
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts: Ints = np.repeat(first, counts) + within * np.repeat(widths, counts)
    return starts


def sum_of_edge(network: Template | Top, edge: int) -> int:
    """The sum that a place in the flat weight vector belongs to."""
    first = np.fromiter(network.edge_offsets.values(), dtype=np.int64)
    return list(network.edge_offsets)[int(np.searchsorted(first, edge, side="right")) - 1]


def pooled_weights(network: Template | Top, flat: Floats, node: int) -> Floats:
    """What a sum has in a flat vector of weights or flows, added up over its tables."""
    start, width = network.edge_offsets[node], len(children_of(network.nodes[node]))
    tables = network.num_tables(network.nodes[node])
    pooled: Floats = flat[start : start + tables * width].reshape(tables, width).sum(axis=0)
    return pooled


def _check_weights(part: Template | Top, weights: Floats, network: str) -> None:
    if weights.shape != (part.num_weights,):
        raise StructureError(
            f"the {network} network needs a weight for each of its {part.num_weights} sum edges, "
            f"but `weights` has shape {weights.shape}."
        )
    starts = sum_starts(part)
    allowed = np.isfinite(weights) & (weights >= 0)
    with np.errstate(over="ignore"):
        totals = np.add.reduceat(np.where(allowed, weights, -np.inf), starts)
    wrong = np.flatnonzero(~(np.abs(totals - 1.0) <= WEIGHT_TOLERANCE))
    if wrong.size:
        index = sum_of_edge(part, int(starts[wrong[0]]))
        own = weights[starts[wrong[0]] :][: len(children_of(part.nodes[index]))].tolist()
        finding = f"that sum to {totals[wrong[0]]:.12g}; divide them by their sum to add up to 1"
        if totals[wrong[0]] == -np.inf:
            finding = f"{reprlib.repr(own)}; weights are finite and not negative"
        node = part.nodes[index]
        table = ""
        if isinstance(node, Sum) and node.by is not None:
            before = int(starts[wrong[0]]) - part.edge_offsets[index]
            table = f" for value {before // len(node.children)} of its input"
        raise StructureError(f"sum {index} of the {network} network has weights{table} {finding}.")


def _check_leaves(template: Template, parameters: NetworkParameters, network: str) -> None:
    if len(parameters.leaves) != len(template.banks):
        raise StructureError(
            f"the {network} network needs {len(template.banks)} arrays of leaf parameters, one for "
            f"each variable and family, but has {len(parameters.leaves)}."
        )
    for bank, rows in zip(template.banks, parameters.leaves, strict=True):
        shape = (len(bank.nodes), bank.family.num_parameters)
        finding = ""
        if rows.shape != shape:
            finding = f"need parameters of shape {shape}, but have {rows.shape}"
        elif breaches := bank.family.violations(rows):
            finding = f"have parameters that are not allowed: {'; '.join(breaches[:5])}"
        if finding:
            raise StructureError(
                f"the {bank.family.name} leaves of variable "
                f"{template.schema[bank.variable].name!r} in the {network} network {finding}."
            )


def check_parameters(template: Template, top: Top, parameters: Parameters) -> None:
    """Raises unless shapes fit, weights are a distribution at each sum, and leaves are allowed."""
    for name, own in (("template", parameters.template), ("bottom", parameters.bottom)):
        if own is not None:
            _check_weights(template, own.weights, name)
            _check_leaves(template, own, name)
    _check_weights(top, parameters.top.weights, "top")

"""Weights and leaf parameters as plain arrays, kept apart from the structure they belong to."""

import reprlib
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints, read_only
from dspn._checks import float_array, require_type
from dspn.errors import StructureError
from dspn.structure.nodes import children_of
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
        require_type(self.template, NetworkParameters, "template", StructureError)
        require_type(self.top, NetworkParameters, "top", StructureError)
        if self.bottom is not None:
            require_type(self.bottom, NetworkParameters, "bottom", StructureError)

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


def sum_starts(network: Template | Top) -> Ints:
    """Where the weights of each sum begin in the flat weight vector, in the order of the sums."""
    offsets = network.edge_offsets
    return np.fromiter(offsets.values(), dtype=np.int64, count=len(offsets))


def _check_weights(part: Template | Top, weights: Floats, network: str) -> None:
    if weights.shape != (part.num_weights,):
        raise StructureError(
            f"the {network} network needs a weight for each of its {part.num_weights} sum edges, "
            f"but `weights` has shape {weights.shape}."
        )
    starts = sum_starts(part)
    if not starts.size:
        return
    allowed = np.isfinite(weights) & (weights >= 0)
    with np.errstate(over="ignore"):
        totals = np.add.reduceat(np.where(allowed, weights, 0.0), starts)
    improper = ~np.logical_and.reduceat(allowed, starts)
    wrong = improper | (np.abs(totals - 1.0) > WEIGHT_TOLERANCE)
    if not wrong.any():
        return
    first = int(np.argmax(wrong))
    index = list(part.edge_offsets)[first]
    if improper[first]:
        own = weights[starts[first] : starts[first] + len(children_of(part.nodes[index]))]
        raise StructureError(
            f"sum {index} of the {network} network has weights "
            f"{reprlib.repr(own.tolist())}; "
            "weights are finite and not negative."
        )
    raise StructureError(
        f"sum {index} of the {network} network has weights that sum to {totals[first]:.12g}; "
        "divide them by their sum so that they add up to 1."
    )


def _check_leaves(template: Template, parameters: NetworkParameters, network: str) -> None:
    if len(parameters.leaves) != len(template.banks):
        raise StructureError(
            f"the {network} network needs {len(template.banks)} arrays of leaf parameters, one for "
            f"each variable and family, but has {len(parameters.leaves)}."
        )
    for bank, rows in zip(template.banks, parameters.leaves, strict=True):
        name = template.schema[bank.variable].name
        shape = (len(bank.nodes), bank.family.num_parameters)
        if rows.shape != shape:
            raise StructureError(
                f"the {bank.family.name} leaves of variable {name!r} in the {network} network need "
                f"parameters of shape {shape}, but have {rows.shape}."
            )
        found = bank.family.violations(rows)
        if found:
            raise StructureError(
                f"the {bank.family.name} leaves of variable {name!r} in the {network} network have "
                f"parameters that are not allowed: {'; '.join(found[:5])}."
            )


def check_parameters(template: Template, top: Top, parameters: Parameters) -> None:
    """Raises unless shapes fit, weights are a distribution at each sum, and leaves are allowed."""
    _check_weights(template, parameters.template.weights, "template")
    _check_leaves(template, parameters.template, "template")
    _check_weights(top, parameters.top.weights, "top")
    if parameters.bottom is not None:
        _check_weights(template, parameters.bottom.weights, "bottom")
        _check_leaves(template, parameters.bottom, "bottom")

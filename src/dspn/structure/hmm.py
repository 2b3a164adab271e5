"""Hidden Markov models as templates: one interface node for each state."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dspn._arguments import Floats, float_array, require_type
from dspn.data.schema import Schema
from dspn.errors import StructureError
from dspn.structure.build import NetworkBuilder, assemble, mixture_top
from dspn.structure.network import DynamicNetwork, Root, checked_root
from dspn.structure.parameters import check_distributions

_STATIONARY_TOLERANCE = 1e-9


def _chain(start: ArrayLike, transition: ArrayLike) -> tuple[Floats, Floats]:
    """Start vector and transition matrix, whose rows are distributions."""
    first = float_array(start, "start", StructureError)
    k = first.size
    if first.ndim != 1 or k == 0:
        raise StructureError(
            f"`start` must be a vector of state probabilities, but has shape {first.shape}."
        )
    matrix = float_array(transition, "transition", StructureError)
    if matrix.shape != (k, k):
        raise StructureError(
            f"`transition` must be {k} x {k}, as `start` has {k} states, but has shape "
            f"{matrix.shape}."
        )
    check_distributions(first, "start")
    check_distributions(matrix, "transition")
    return first, matrix


def _leaf_rows(
    emissions: Mapping[str, ArrayLike], schema: Schema, num_states: int
) -> dict[str, Floats]:
    """Leaf parameters of each variable, a row for each state."""
    require_type(emissions, Mapping, "emissions", StructureError)
    silent = [own.name for own in schema if getattr(own.leaf, "is_silent", False)]
    emissions = {name: np.empty((num_states, 0)) for name in silent} | dict(emissions)
    if set(emissions) != set(schema.names):
        raise StructureError(
            f"`emissions` must have exactly the variables {list(schema.names)}, but has "
            f"{list(emissions)}."
        )
    rows = {}
    for name in schema.names:
        argument = f"emissions[{name!r}]"
        rows[name] = float_array(emissions[name], argument, StructureError)
        if rows[name].ndim != 2 or rows[name].shape[0] != num_states:
            raise StructureError(
                f"`{argument}` must have a row for each of the {num_states} states, but has shape "
                f"{rows[name].shape}."
            )
    return rows


def _reversed_transition(start: Floats, transition: Floats) -> Floats:
    """Transition of the reversed chain, which is homogeneous only when `start` is stationary."""
    if not np.allclose(start @ transition, start, rtol=0, atol=_STATIONARY_TOLERANCE):
        raise StructureError(
            "`root='last'` reads the chain backwards, which is the same HMM only if `start` is the "
            "stationary distribution of `transition`; it is not. Use `root='first'`."
        )
    if np.any(start <= 0):
        raise StructureError(
            "`root='last'` needs every state to have a positive start probability."
        )
    joint = start[:, None] * transition
    backwards: Floats = (joint / joint.sum(axis=0)).T
    return backwards


def from_hmm(
    start: Sequence[float] | Floats,
    transition: Sequence[Sequence[float]] | Floats,
    emissions: Mapping[str, ArrayLike],
    *,
    schema: Schema,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """An HMM with independent emissions: output i is the product of e_i(x) and sum_j a_ij input_j.

    `emissions` maps each variable's name to a (states, width) array of leaf parameters: category
    probabilities, (mean, variance) or (rate,). A block with a covariance has those of all its
    variables at the first (`GaussianBlock.from_moments`).
    """
    require_type(schema, Schema, "schema", StructureError)
    first, matrix = _chain(start, transition)
    rows = _leaf_rows(emissions, schema, first.size)
    if checked_root(root) == Root.LAST:
        matrix = _reversed_transition(first, matrix)
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(first.size)
    outputs = [
        builder.product(
            [
                *(builder.leaf(name, rows[name][state]) for name in schema.names),
                builder.sum(inputs, matrix[state]),
            ]
        )
        for state in range(first.size)
    ]
    return assemble(builder.template(outputs), mixture_top(schema, first), root=root)

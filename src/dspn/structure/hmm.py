"""Hidden Markov models as templates: one interface node for each state."""

from collections.abc import Mapping, Sequence

import numpy as np

from dspn._arrays import Floats
from dspn.errors import StructureError
from dspn.sequences import Schema
from dspn.structure.build import mixture_top
from dspn.structure.builder import NetworkBuilder, assemble
from dspn.structure.network import DynamicNetwork, Root

_STATIONARY_TOLERANCE = 1e-9


def _check(start: Floats, transition: Floats) -> None:
    k = start.size
    if start.ndim != 1 or k == 0:
        raise StructureError(
            f"`start` must be a vector of state probabilities, but has shape {start.shape}."
        )
    if transition.shape != (k, k):
        raise StructureError(
            f"`transition` must be {k} x {k}, as `start` has {k} states, but has shape {transition.shape}."
        )


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
    emissions: Mapping[str, Floats],
    *,
    schema: Schema,
    root: Root | str = Root.FIRST,
) -> DynamicNetwork:
    """An HMM with independent emissions: output i is the product of e_i(x) and sum_j a_ij input_j.

    `emissions` maps each variable's name to a (states, width) array of leaf parameters: category
    probabilities, (mean, variance) or (rate,).
    """
    first = np.asarray(start, dtype=np.float64)
    matrix = np.asarray(transition, dtype=np.float64)
    _check(first, matrix)
    if set(emissions) != set(schema.names):
        raise StructureError(
            f"`emissions` must have exactly the variables {list(schema.names)}, but has {sorted(emissions)}."
        )
    rows = {name: np.asarray(emissions[name], dtype=np.float64) for name in schema.names}
    for name, array in rows.items():
        if array.ndim != 2 or array.shape[0] != first.size:
            raise StructureError(
                f"`emissions[{name!r}]` must have a row for each of the {first.size} states, "
                f"but has shape {array.shape}."
            )
    if Root(root) == Root.LAST:
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

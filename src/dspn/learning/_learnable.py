"""Which parameters of a template may change: those of the nodes named."""

from collections.abc import Collection

import numpy as np

from dspn._arrays import Bools
from dspn._checks import indices
from dspn.errors import StructureError
from dspn.structure import Template
from dspn.structure.parameters import sum_starts


def checked_learnable(
    template: Template, learnable: Collection[int] | None
) -> frozenset[int] | None:
    """The nodes as a set of ints; products and inputs may be among them and have no parameters."""
    if learnable is None:
        return None
    nodes = frozenset(indices(learnable, "learnable", StructureError))
    wrong = [node for node in sorted(nodes) if not 0 <= node < len(template.nodes)]
    if wrong:
        raise StructureError(
            f"`learnable` must name nodes of the template (0 to {len(template.nodes) - 1}), but "
            f"has {wrong[0]}; give nodes of this template, or None for all of them."
        )
    return nodes


def learnable_edges(template: Template, learnable: frozenset[int]) -> Bools:
    """Whether each sum edge of the template belongs to one of the nodes."""
    starts = sum_starts(template)
    widths = np.diff(np.append(starts, template.num_weights))
    return np.repeat([node in learnable for node in template.edge_offsets], widths).astype(np.bool_)


def learnable_leaves(template: Template, learnable: frozenset[int]) -> tuple[Bools, ...]:
    """Whether each leaf is one of the nodes, bank by bank."""
    return tuple(
        np.array([node in learnable for node in bank.nodes], dtype=np.bool_)
        for bank in template.banks
    )

"""What can be tried for a block of variables: moves, and recipes that say how far each goes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import final


class Move(StrEnum):
    """How a candidate comes about.

    CLUSTERS: anew, from clusters of slices with their context. SPLIT: interface nodes split in two,
    after edges that are hardly used were taken away. SHARED: the leaves below the interface
    replaced by a mixture that all interface nodes share. TREE: by a hidden Chow-Liu tree. PRIOR:
    trained on with other priors. MERGE: similar interface nodes put together. REGROW: transitions
    added that the data ask for. REGROUP: new blocks of variables, begun from clusters.
    """

    CLUSTERS = "clusters"
    SPLIT = "split"
    SHARED = "shared mixture"
    TREE = "hidden tree"
    PRIOR = "prior"
    MERGE = "merge"
    REGROW = "regrow"
    REGROUP = "regroup"


@final
@dataclass(frozen=True)
class Recipe:
    """What a try does; the same recipe is not tried twice for a block.

    `amount` is the number of interface nodes, of nodes that are split or merged, of states of a
    latent, or of edges added, as the move has it. `concentration` is the number of
    pseudo-observations of each sum, `width` that of slices before and after that clusters see, and
    `parent` the number of the candidate that the try starts from.
    """

    move: Move
    amount: int
    concentration: float
    width: int = 2
    parent: int | None = None

    def __str__(self) -> str:
        said = {
            Move.CLUSTERS: f"{self.amount} clusters of {2 * self.width + 1} slices",
            Move.REGROUP: f"{self.amount} clusters of {2 * self.width + 1} slices, regrouped",
            Move.SPLIT: f"{self.amount} nodes split",
            Move.SHARED: f"mixture of {self.amount} shared",
            Move.TREE: f"hidden tree of {self.amount} states",
            Move.PRIOR: f"{self.concentration:g} pseudo-observations",
            Move.MERGE: f"{self.amount} pairs of nodes merged",
            Move.REGROW: f"{self.amount} edges added",
        }[self.move]
        return said if self.parent is None else f"{said}, from model {self.parent}"

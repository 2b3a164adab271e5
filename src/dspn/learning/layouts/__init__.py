"""Which variables belong to one interface group: how they depend, and ways to share them out."""

from dspn.learning.layouts.dependence import dependence
from dspn.learning.layouts.grouping import (
    BlockPair,
    Layout,
    Linkage,
    layout_neighbours,
    layout_of,
    layouts_by_dependence,
    merge_candidates,
    one_block,
    singletons,
    with_merged,
    with_moved,
    with_split,
)

__all__ = [
    "BlockPair",
    "Layout",
    "Linkage",
    "dependence",
    "layout_neighbours",
    "layout_of",
    "layouts_by_dependence",
    "merge_candidates",
    "one_block",
    "singletons",
    "with_merged",
    "with_moved",
    "with_split",
]

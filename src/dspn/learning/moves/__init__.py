"""Changes of a template that keep what was learned and still makes sense."""

from dspn.learning.moves.merging import merged_interfaces
from dspn.learning.moves.pruning import pruned
from dspn.learning.moves.regrowing import regrown
from dspn.learning.moves.similarity import SimilarInterfaces, similar_interfaces

__all__ = [
    "SimilarInterfaces",
    "merged_interfaces",
    "pruned",
    "regrown",
    "similar_interfaces",
]

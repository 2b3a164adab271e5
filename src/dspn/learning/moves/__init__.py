"""Changes of a template that keep what was learned and still makes sense."""

from dspn.learning.moves.edges import pruned, regrown
from dspn.learning.moves.merge import SimilarInterfaces, merged_interfaces, similar_interfaces

__all__ = [
    "SimilarInterfaces",
    "merged_interfaces",
    "pruned",
    "regrown",
    "similar_interfaces",
]

"""Where learning begins: random parameters, clusters, hidden variables, nodes split in two."""

from dspn.learning.starts.clusters import (
    clustered_network,
    random_weights,
    randomised,
    slice_clusters,
)
from dspn.learning.starts.hidden_trees import hidden_tree, shared_mixture
from dspn.learning.starts.informed import informed_split
from dspn.learning.starts.splits import interface_use, split_interface, split_interfaces

__all__ = [
    "clustered_network",
    "hidden_tree",
    "informed_split",
    "interface_use",
    "random_weights",
    "randomised",
    "shared_mixture",
    "slice_clusters",
    "split_interface",
    "split_interfaces",
]

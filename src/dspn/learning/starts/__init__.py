"""Where learning begins: random parameters, clusters of slices, and nodes split in two."""

from dspn.learning.starts.clusters import clustered_network
from dspn.learning.starts.informed import informed_split
from dspn.learning.starts.random import random_weights, randomised
from dspn.learning.starts.splitting import interface_use, split_interface, split_interfaces
from dspn.learning.starts.windows import slice_clusters

__all__ = [
    "clustered_network",
    "informed_split",
    "interface_use",
    "random_weights",
    "randomised",
    "slice_clusters",
    "split_interface",
    "split_interfaces",
]

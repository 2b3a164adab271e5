"""Where learning begins: random parameters, clusters, hidden variables, nodes split in two."""

from dspn.learning.starts.clusters import clustered_network as clustered_network
from dspn.learning.starts.clusters import random_weights as random_weights
from dspn.learning.starts.clusters import randomised as randomised
from dspn.learning.starts.clusters import slice_clusters as slice_clusters
from dspn.learning.starts.hidden_trees import hidden_tree as hidden_tree
from dspn.learning.starts.hidden_trees import shared_mixture as shared_mixture
from dspn.learning.starts.informed import informed_split as informed_split
from dspn.learning.starts.splits import interface_use as interface_use
from dspn.learning.starts.splits import split_interface as split_interface
from dspn.learning.starts.splits import split_interfaces as split_interfaces

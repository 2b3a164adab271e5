"""Model files: one model in one `*.dspn` file, written atomically and read with suspicion."""

from dspn.io.atomic import write_atomically
from dspn.io.decode import LoadedMixture, LoadedNetwork
from dspn.io.files import load_mixture, load_network, save_mixture, save_network
from dspn.io.json_values import JSON

__all__ = [
    "JSON",
    "LoadedMixture",
    "LoadedNetwork",
    "load_mixture",
    "load_network",
    "save_mixture",
    "save_network",
    "write_atomically",
]

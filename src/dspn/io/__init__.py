"""Model files: one network in one `*.dspn` file, written atomically and read with suspicion."""

from dspn.io.atomic import write_atomically
from dspn.io.decode import LoadedNetwork
from dspn.io.files import load_network, save_network
from dspn.io.json_values import JSON

__all__ = ["JSON", "LoadedNetwork", "load_network", "save_network", "write_atomically"]

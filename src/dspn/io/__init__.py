"""Model files: one model in one `*.dspn` file, written atomically and checked when it is read."""

from dspn.atomic import path_text, write_atomically
from dspn.io.codec import LoadedClassifier, LoadedMixture
from dspn.io.files import (
    Path,
    load_any,
    load_classifier,
    load_mixture,
    load_network,
    save_classifier,
    save_mixture,
    save_network,
)
from dspn.io.json_values import JSON

__all__ = [
    "JSON", "LoadedClassifier", "LoadedMixture", "Path", "load_any", "load_classifier",
    "load_mixture", "load_network", "path_text", "save_classifier", "save_mixture",
    "save_network", "write_atomically",
]  # fmt: skip

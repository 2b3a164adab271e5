"""Mixtures and single networks to and from `*.dspn` files."""

import os
import stat
from collections.abc import Callable, Mapping
from typing import TypeVar

from dspn.errors import ModelFileError, printable
from dspn.io.atomic import write_atomically
from dspn.io.container import Contents, pack, read
from dspn.io.decode import LoadedMixture, LoadedNetwork, decode
from dspn.io.encode import encode
from dspn.io.json_values import JSON
from dspn.io.paths import path_text
from dspn.structure import DynamicNetwork, Mixture

T = TypeVar("T")


def save_mixture(
    mixture: Mixture,
    path: str | bytes | os.PathLike[str],
    *,
    provenance: Mapping[str, JSON] | None = None,
) -> None:
    """Writes the mixture, all parameters bit for bit; the same mixture gives the same bytes.

    A failure leaves what was at `path` as it was. `provenance` is kept beside it, as JSON.
    """
    name = path_text(path)
    try:
        data = pack(encode(mixture, provenance))
    except ModelFileError as error:
        raise ModelFileError(f"cannot write {name!r}: {error}.") from error
    write_atomically(name, data)


def save_network(
    network: DynamicNetwork,
    path: str | bytes | os.PathLike[str],
    *,
    provenance: Mapping[str, JSON] | None = None,
) -> None:
    """Writes one network, as `save_mixture` writes a mixture of one."""
    save_mixture(Mixture.of(network), path, provenance=provenance)


def load_mixture(path: str | bytes | os.PathLike[str]) -> LoadedMixture:
    """What `save_mixture` or `save_network` wrote; anything else is refused with the reason.

    Nothing of the file is executed. Every byte is under its checksum, and a file that was made to
    fit its checksum still has to pass the checks of any network.
    """
    return load_by(path, decode)


def load_by(path: str | bytes | os.PathLike[str], decoded: Callable[[Contents], T]) -> T:
    """What a file holds, by a function of its contents; how every model file is opened.

    An error gives the reason alone, in a text that can be printed: its causes may quote the file.
    """
    name = path_text(path)
    try:
        return decoded(_read(name))
    except ModelFileError as error:
        reason = printable(str(error)).rstrip(".")
    raise ModelFileError(f"cannot load {name!r}: {reason}.")


def load_network(path: str | bytes | os.PathLike[str]) -> LoadedNetwork:
    """The network that `save_network` wrote; a mixture of several is refused, as anything else."""
    found = load_mixture(path)
    if len(found.mixture) > 1:
        raise ModelFileError(
            f"cannot load {path_text(path)!r} as one network: it holds a mixture of "
            f"{len(found.mixture)}; use `dspn.load` or `dspn.io.load_mixture`."
        )
    return LoadedNetwork(found.mixture.only, found.provenance)


def _read(path: str) -> Contents:
    _check_is_file(path)
    try:
        with open(path, "rb") as file:
            return read(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise ModelFileError(f"it cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise ModelFileError("it does not fit into memory") from error


def _check_is_file(path: str) -> None:
    """Raises unless there is a regular file; a pipe would keep whoever opens it waiting."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelFileError("there is no such file") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"it cannot be opened ({error})") from error
    if stat.S_ISDIR(mode):
        raise ModelFileError("it is a directory; give the name of a model file")
    if not stat.S_ISREG(mode):
        raise ModelFileError("it is a device, a pipe or a socket; give the name of a model file")

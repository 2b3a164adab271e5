"""Models and classifiers to and from `*.dspn` files.

Wherever `families` can be given, they are the leaf families from outside the library that a model
may have, each as a class or as any value of it: a file names a family and does not contain it.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from dspn._arguments import Floats
from dspn.errors import ModelFileError, printable
from dspn.io import codec
from dspn.io.atomic import path_text, write_atomically
from dspn.io.codec import Label, LoadedClassifier, LoadedMixture
from dspn.io.container import Contents, pack, read
from dspn.io.json_values import JSON, refuse_if
from dspn.leaves import Families
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork

T = TypeVar("T")
Path = str | bytes | os.PathLike[str]


def save_mixture(
    mixture: Mixture | DynamicNetwork,
    path: Path,
    *,
    provenance: Mapping[str, JSON] | None = None,
    online: Mapping[str, Floats] | None = None,
) -> None:
    """Writes a mixture or one network; the same mixture gives the same bytes.

    A failure leaves what was at `path` as it was. `provenance` is kept beside it, as JSON, and so
    are the arrays of `online` learning.
    """
    own = mixture if isinstance(mixture, Mixture) else Mixture.of(mixture)
    _save(path, lambda: codec.encode(own, provenance, online))


save_network = save_mixture


def save_classifier(
    path: Path,
    classes: Sequence[Label],
    logits: Floats,
    models: Sequence[tuple[Mixture, Mapping[str, JSON]]],
    *,
    provenance: Mapping[str, JSON] | None = None,
    online: Sequence[Mapping[str, Floats]] = (),
) -> None:
    """Writes a classifier; a failure leaves what was at `path` as it was.

    Args:
        path: Where it is written.
        classes: The labels.
        logits: Log P(class), up to a constant.
        models: The model of each class, with its own provenance.
        provenance: Kept beside it, as JSON.
        online: The arrays of online learning of each model; by default there are none.
    """
    _save(path, lambda: codec.encode_classifier(classes, logits, models, provenance or {}, online))


def _save(path: Path, contents: Callable[[], Contents]) -> None:
    name = path_text(path)
    try:
        data = pack(contents())
    except ModelFileError as error:
        raise ModelFileError(f"cannot write {name!r}: {error}.") from error
    write_atomically(name, data)


def load_mixture(path: Path, *, families: Families = ()) -> LoadedMixture:
    """What `save_mixture` wrote; anything else is refused with the reason.

    Nothing of the file is executed. Every byte is under its checksum, and a file that was made to
    fit its checksum still has to pass the checks of any network.
    """
    return _load(path, families, codec.decode)


def load_network(path: Path, *, families: Families = ()) -> LoadedMixture:
    """What `save_network` wrote; a mixture of several is refused, as anything else."""
    found = load_mixture(path, families=families)
    if len(found.mixture) > 1:
        raise ModelFileError(
            f"cannot load {path_text(path)!r} as one network: it holds a mixture of "
            f"{len(found.mixture)}; use `dspn.load` or `dspn.io.load_mixture`."
        )
    return found


def load_classifier(path: Path, *, families: Families = ()) -> LoadedClassifier:
    """What `save_classifier` wrote; anything else is refused with the reason."""
    return _load(path, families, codec.decode_classifier)


def load_any(path: Path, *, families: Families = ()) -> LoadedMixture | LoadedClassifier:
    """A model or a classifier, whichever a file says that it holds."""
    return _load(path, families, codec.decode_any)


def _load(path: Path, families: Families, decode: Callable[[Contents, Families], T]) -> T:
    """What a file holds.

    An error gives the reason alone, in a text that can be printed: its causes may quote the file.
    """
    name = path_text(path)
    try:
        return decode(_read(name), families)
    except ModelFileError as error:
        reason = printable(str(error)).rstrip(".")
    raise ModelFileError(f"cannot load {name!r}: {reason}.")


def _read(path: str) -> Contents:
    """The contents of a regular file; a pipe would keep whoever opens it waiting."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelFileError("there is no such file") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"it cannot be opened ({error})") from error
    remedy = "give the name of a model file"
    refuse_if(stat.S_ISDIR(mode), f"it is a directory; {remedy}")
    refuse_if(not stat.S_ISREG(mode), f"it is a device, a pipe or a socket; {remedy}")
    try:
        with open(path, "rb") as file:
            return read(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise ModelFileError(f"it cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise ModelFileError("it does not fit into memory") from error

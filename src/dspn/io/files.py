"""Models and classifiers to and from `*.dspn` files: safetensors files under a checksum.

The metadata of a file has the single entry "dspn" (the safetensors library writes several in an
order that changes from run to run), a JSON object whose first entry is the SHA-256 of the whole
file, taken with zeros in the place of its own 64 digits. So no byte can change unseen, be it of a
tensor, of the header or of its padding.

Wherever `families` can be given, they are the leaf families from outside the library that a model
may have, each as a class or as any value of it: a file names a family and does not contain it.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import BinaryIO, TypeVar

from safetensors import SafetensorError
from safetensors.numpy import load, save

from dspn._arguments import Floats
from dspn.atomic import path_text, write_atomically
from dspn.errors import ModelFileError, printable
from dspn.io import codec
from dspn.io.codec import Contents, Label, LoadedClassifier, LoadedMixture
from dspn.io.json_values import JSON, compact, fields, items, parse, plain, refuse_if, text, whole
from dspn.leaves import Families
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork

T = TypeVar("T")
Path = str | bytes | os.PathLike[str]

FORMAT = "dspn"
# What files are written with says how much a reader has to know: 1 for one network, 2 for several,
# 3 for leaf families other than the usual ones, 4 for statistics from which learning goes on.
FORMAT_VERSION = 5
MAX_HEADER_BYTES = 32 * 2**20
MAX_FILE_BYTES = 2**30

_LENGTH_BYTES, _DIGITS = 8, 64
_NO_CHECKSUM = "0" * _DIGITS
_TENSORS_UNREADABLE = "its tensors cannot be read"
# As it stands in the file: JSON within a JSON text.
_MARK = rb"{\"checksum\":\""


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


def pack(contents: Contents) -> bytes:
    """The bytes of the file; equal contents give equal bytes."""
    own: dict[str, JSON] = {"format": FORMAT, "format_version": contents.version}
    metadata = contents.metadata | own | {"checksum": _NO_CHECKSUM}
    data: bytes = save(contents.tensors, {FORMAT: compact(metadata)})
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    refuse_if(
        length > MAX_HEADER_BYTES,
        f"the description of the model takes {length} bytes, but {MAX_HEADER_BYTES} are allowed; "
        "shorten `provenance` or the names of categories",
    )
    refuse_if(
        len(data) > MAX_FILE_BYTES,
        f"the model takes {len(data)} bytes, but {MAX_FILE_BYTES} are allowed; learn one with "
        "fewer interface nodes",
    )
    place = data.index(_MARK) + len(_MARK)
    return data[:place] + _checksum(data, place).encode() + data[place + _DIGITS :]


def unpack(data: bytes) -> Contents:
    """What `pack` was given; raises unless every byte is as it was written."""
    return read(BytesIO(data), len(data))


def read(file: BinaryIO, size: int) -> Contents:
    """What `pack` has written to a file of `size` bytes.

    No more than the header is read before that is known to announce a file of this size.
    """
    header, length = _header(file, size)
    metadata, version = _metadata(header)
    stored = text(metadata.pop("checksum", None), "the checksum")
    _check_size(header, size - _LENGTH_BYTES - length)
    file.seek(0)
    data = file.read()
    place = data.find(_MARK) + len(_MARK)
    refuse_if(
        stored != _checksum(data, place) or data[place : place + _DIGITS] != stored.encode(),
        "its checksum does not match its contents; it was cut short or changed after it was saved",
    )
    try:
        return Contents(load(data), metadata, version)
    # KeyError: a type that NumPy does not have; ValueError: a shape that it does not have.
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelFileError(f"{_TENSORS_UNREADABLE} ({error})") from error


def _checksum(data: bytes, place: int) -> str:
    """SHA-256 of the data with zeros as the digits at `place`."""
    digest = hashlib.sha256(data[:place] + _NO_CHECKSUM.encode())
    digest.update(memoryview(data)[place + _DIGITS :])
    return digest.hexdigest()


def _header(file: BinaryIO, size: int) -> tuple[dict[str, JSON], int]:
    """The header, once the first 9 bytes announce one that fits, and its length in bytes."""
    start = file.read(_LENGTH_BYTES + 1)
    length, rest = int.from_bytes(start[:_LENGTH_BYTES], "little"), size - _LENGTH_BYTES
    refuse_if(size == 0, "it is empty")
    refuse_if(rest <= 0, f"it has {size} bytes only; it was cut short or is not a model")
    begins_well = start[_LENGTH_BYTES:] == b"{"
    refuse_if(not begins_well, "it is not a model: it does not begin with the header of one")
    refuse_if(
        length > MAX_HEADER_BYTES,
        f"it announces a header of {length} bytes, but {MAX_HEADER_BYTES} are allowed; it is "
        "damaged or not a model",
    )
    refuse_if(
        length > rest,
        f"it was cut short: it announces a header of {length} bytes, but {rest} follow",
    )
    refuse_if(
        size > MAX_FILE_BYTES,
        f"it has {size} bytes, but {MAX_FILE_BYTES} are allowed; it is damaged or not a model",
    )
    try:
        header = (start[_LENGTH_BYTES:] + file.read(length - 1)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError("its header is not readable text; it is damaged") from error
    return fields(parse(header), "its header"), length


def _metadata(header: Mapping[str, JSON]) -> tuple[dict[str, JSON], int]:
    """The entry of the header that is about the model, and its format version."""
    entries = header.get("__metadata__")
    if not isinstance(entries, dict) or not isinstance(entries.get(FORMAT), str):
        raise ModelFileError(
            f"it is not a model: a safetensors file, but without the metadata entry {FORMAT!r}"
        )
    fields(entries, "the metadata of its header", (FORMAT,))
    # The provenance, which may be as deep as any value, stands a few levels down.
    metadata = fields(plain(parse(entries[FORMAT]), "its metadata", -8), "its metadata")
    is_ours = metadata.pop("format", None) == FORMAT
    refuse_if(not is_ours, f"it is not a model: its metadata is not of the format {FORMAT!r}")
    version = whole(metadata.pop("format_version", None), "its format version")
    refuse_if(
        version > FORMAT_VERSION,
        f"it has format version {version}, newer than version {FORMAT_VERSION}, the newest that "
        "this release of dspn reads; update dspn",
    )
    refuse_if(version < 1, f"it has format version {version}, which does not exist; it is damaged")
    return metadata, version


def _check_size(header: Mapping[str, JSON], size: int) -> None:
    """Raises unless the tensors that are announced end where the file ends."""
    where = f"{_TENSORS_UNREADABLE}: the `data_offsets` of one"
    tensors = [fields(own, "a tensor") for name, own in header.items() if name != "__metadata__"]
    offsets = [items(own.get("data_offsets"), where) for own in tensors]
    announced = max((whole(offset, where) for own in offsets for offset in own), default=0)
    refuse_if(
        announced != size,
        f"{_TENSORS_UNREADABLE}: its header announces {announced} bytes of them, but {size} "
        "follow, so that its checksum does not match; it was cut short or changed after it was "
        "saved",
    )

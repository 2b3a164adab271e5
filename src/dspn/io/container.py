"""The bytes of a `*.dspn` file: a safetensors file with a checksum over everything.

The metadata of the file has the single entry "dspn" (the safetensors library writes several in an
order that changes from run to run), a JSON object whose first entry is the SHA-256 of the whole
file, taken with zeros in the place of its own 64 digits. So no byte can change unseen, be it of a
tensor, of the header or of its padding.
"""

import hashlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any, BinaryIO, NamedTuple

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from dspn.errors import ModelFileError
from dspn.io.json_values import JSON, compact, fields, items, parse, plain, refuse_if, text, whole

FORMAT = "dspn"
# What files are written with says how much a reader has to know: 1 for one network, 2 for several,
# 3 for leaf families from outside the library, 4 for statistics from which learning goes on.
FORMAT_VERSION = 4
MAX_HEADER_BYTES = 32 * 2**20
MAX_FILE_BYTES = 2**30

_LENGTH_BYTES = 8
_DIGITS = 64
_NO_CHECKSUM = "0" * _DIGITS
_TENSORS_UNREADABLE = "its tensors cannot be read"
# As it stands in the file: JSON within a JSON text.
_MARK = rb"{\"checksum\":\""

Tensors = dict[str, NDArray[Any]]


class Contents(NamedTuple):
    """What a file holds: arrays by name, and the JSON object that says what they mean.

    `version` is the least format version that has everything in it.
    """

    tensors: Tensors
    metadata: dict[str, JSON]
    version: int = 1


def pack(contents: Contents) -> bytes:
    """The bytes of the file; equal contents give equal bytes."""
    own: dict[str, JSON] = {
        "format": FORMAT,
        "format_version": contents.version,
        "checksum": _NO_CHECKSUM,
    }
    data: bytes = save(contents.tensors, {FORMAT: compact(contents.metadata | own)})
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
    metadata = _metadata(header)
    stored = text(metadata.pop("checksum", None), "the checksum")
    _check_size(header, size - _LENGTH_BYTES - length)
    file.seek(0)
    data = file.read()
    place = data.find(_MARK) + len(_MARK)
    refuse_if(
        stored != _checksum(data, place) or data[place : place + _DIGITS] != stored.encode(),
        "its checksum does not match its contents; it was cut short or changed after it was saved",
    )
    del metadata["format"]
    version = whole(metadata.pop("format_version"), "its format version")
    try:
        return Contents(load(data), metadata, version)
    # KeyError: a type that NumPy does not have; ValueError: a shape that it does not have.
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelFileError(f"{_TENSORS_UNREADABLE} ({error})") from error


def _checksum(data: bytes, place: int) -> str:
    """SHA-256 of the data with zeros as the digits at `place`."""
    digest = hashlib.sha256(data[:place])
    digest.update(_NO_CHECKSUM.encode())
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


def _metadata(header: Mapping[str, JSON]) -> dict[str, JSON]:
    """The entry of the header that is about the model, of a format version that can be read."""
    entries = header.get("__metadata__")
    if not isinstance(entries, dict) or not isinstance(entries.get(FORMAT), str):
        raise ModelFileError(
            f"it is not a model: a safetensors file, but without the metadata entry {FORMAT!r}"
        )
    fields(entries, "the metadata of its header", (FORMAT,))
    # The provenance, which may be as deep as any value, stands a few levels down.
    metadata = fields(plain(parse(entries[FORMAT]), "its metadata", -8), "its metadata")
    is_ours = metadata.get("format") == FORMAT
    refuse_if(not is_ours, f"it is not a model: its metadata is not of the format {FORMAT!r}")
    version = whole(metadata.get("format_version"), "its format version")
    refuse_if(
        version > FORMAT_VERSION,
        f"it has format version {version}, newer than version {FORMAT_VERSION}, the newest that "
        "this release of dspn reads; update dspn",
    )
    refuse_if(version < 1, f"it has format version {version}, which does not exist; it is damaged")
    return metadata


def _check_size(header: Mapping[str, JSON], size: int) -> None:
    """Raises unless the tensors that are announced end where the file ends."""
    announced = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            where = f"{_TENSORS_UNREADABLE}: the `data_offsets` of one"
            offsets = items(fields(tensor, "a tensor").get("data_offsets"), where)
            announced = max([announced, *(whole(offset, where) for offset in offsets)])
    refuse_if(
        announced != size,
        f"{_TENSORS_UNREADABLE}: its header announces {announced} bytes of them, but {size} "
        "follow, so that its checksum does not match; it was cut short or changed after it was "
        "saved",
    )

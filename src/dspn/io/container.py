"""The bytes of a `*.dspn` file: a safetensors file with a checksum over everything.

The metadata of the file has the single entry "dspn" (the safetensors library writes several in an
order that changes from run to run), a JSON object whose first entry is the SHA-256 of the whole
file, taken with zeros in the place of its own 64 digits. So no byte can change unseen, be it of a
tensor, of the header or of its padding.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, final

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from dspn.errors import ModelFileError
from dspn.io.json_values import JSON, compact, fields, items, parse, plain, text, whole

FORMAT = "dspn"
# What files are written with says how much a reader has to know: 1 for one network, 2 for several,
# 3 for leaf families from outside the library.
FORMAT_VERSION = 3
MAX_HEADER_BYTES = 32 * 2**20
MAX_FILE_BYTES = 2**30

_LENGTH_BYTES = 8
_CHECKSUM = "checksum"
_DIGITS = 64
_NO_CHECKSUM = "0" * _DIGITS
_TENSORS_UNREADABLE = "its tensors cannot be read"
# As it stands in the file: JSON within a JSON text.
_MARK = rb"{\"checksum\":\""

Tensors = dict[str, NDArray[Any]]


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds: arrays by name, and the JSON object that says what they mean.

    `version` is the least format version that has everything in it.
    """

    tensors: Tensors
    metadata: dict[str, JSON]
    version: int = 1


def pack(contents: Contents) -> bytes:
    """The bytes of the file; equal contents give equal bytes."""
    described = {
        **contents.metadata,
        "format": FORMAT,
        "format_version": contents.version,
        _CHECKSUM: _NO_CHECKSUM,
    }
    data: bytes = save(contents.tensors, {FORMAT: compact(described)})
    length = _header_length(data)
    if length > MAX_HEADER_BYTES:
        raise ModelFileError(
            f"the description of the model takes {length} bytes, but {MAX_HEADER_BYTES} are "
            "allowed; shorten `provenance` or the names of categories"
        )
    if len(data) > MAX_FILE_BYTES:
        raise ModelFileError(
            f"the model takes {len(data)} bytes, but {MAX_FILE_BYTES} are allowed; learn one with "
            "fewer interface nodes"
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
    start = file.read(_LENGTH_BYTES + 1)
    _check_start(start, size)
    length = _header_length(start)
    header = _header(start[_LENGTH_BYTES:] + file.read(length - 1))
    metadata = _metadata(header)
    version = _checked_version(metadata)
    stored = text(metadata.pop(_CHECKSUM, None), "the checksum")
    _check_size(header, size - _LENGTH_BYTES - length)
    file.seek(0)
    data = file.read()
    place = data.find(_MARK) + len(_MARK)
    if stored != _checksum(data, place) or data[place : place + _DIGITS] != stored.encode():
        raise ModelFileError(
            "its checksum does not match its contents; it was cut short or changed after it was "
            "saved"
        )
    del metadata["format"], metadata["format_version"]
    return Contents(_tensors(data), metadata, version)


def _check_start(start: bytes, size: int) -> None:
    """Raises unless the first 9 bytes of a file of `size` bytes announce a header that fits."""
    if size == 0:
        raise ModelFileError("it is empty")
    if size <= _LENGTH_BYTES:
        raise ModelFileError(f"it has {size} bytes only; it was cut short or is not a model")
    if start[_LENGTH_BYTES:] != b"{":
        raise ModelFileError("it is not a model: it does not begin with the header of one")
    length = _header_length(start)
    if length > MAX_HEADER_BYTES:
        raise ModelFileError(
            f"it announces a header of {length} bytes, but {MAX_HEADER_BYTES} are allowed; "
            "it is damaged or not a model"
        )
    if length > size - _LENGTH_BYTES:
        raise ModelFileError(
            f"it was cut short: it announces a header of {length} bytes, "
            f"but {size - _LENGTH_BYTES} follow"
        )
    if size > MAX_FILE_BYTES:
        raise ModelFileError(
            f"it has {size} bytes, but {MAX_FILE_BYTES} are allowed; it is damaged or not a model"
        )


def _header_length(data: bytes) -> int:
    return int.from_bytes(data[:_LENGTH_BYTES], "little")


def _checksum(data: bytes, place: int) -> str:
    """SHA-256 of the data with zeros as the digits at `place`."""
    digest = hashlib.sha256(data[:place])
    digest.update(_NO_CHECKSUM.encode())
    digest.update(memoryview(data)[place + _DIGITS :])
    return digest.hexdigest()


def _header(header: bytes) -> dict[str, JSON]:
    try:
        return fields(parse(header.decode("utf-8")), "its header")
    except UnicodeDecodeError as error:
        raise ModelFileError("its header is not readable text; it is damaged") from error


def _metadata(header: Mapping[str, JSON]) -> dict[str, JSON]:
    entries = header.get("__metadata__")
    if not isinstance(entries, dict) or not isinstance(entries.get(FORMAT), str):
        raise ModelFileError(
            f"it is not a model: a safetensors file, but without the metadata entry {FORMAT!r}"
        )
    fields(entries, "the metadata of its header", (FORMAT,))
    # The provenance, which may be as deep as any value, stands a few levels down.
    metadata = fields(plain(parse(entries[FORMAT]), "its metadata", -8), "its metadata")
    if metadata.get("format") != FORMAT:
        raise ModelFileError(f"it is not a model: its metadata is not of the format {FORMAT!r}")
    return metadata


def _check_size(header: Mapping[str, JSON], found: int) -> None:
    """Raises unless the tensors that are announced end where the file ends."""
    announced = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            where = f"{_TENSORS_UNREADABLE}: the `data_offsets` of one"
            offsets = items(fields(tensor, "a tensor").get("data_offsets"), where)
            announced = max([announced, *(whole(offset, where) for offset in offsets)])
    if announced != found:
        raise ModelFileError(
            f"{_TENSORS_UNREADABLE}: its header announces {announced} bytes of them, but {found} "
            "follow, so that its checksum does not match; it was cut short or changed after it "
            "was saved"
        )


def _checked_version(metadata: Mapping[str, JSON]) -> int:
    version = whole(metadata.get("format_version"), "its format version")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"it has format version {version}, newer than version {FORMAT_VERSION}, the newest "
            "that this release of dspn reads; update dspn"
        )
    if version < 1:
        raise ModelFileError(
            f"it has format version {version}, which does not exist; it is damaged"
        )
    return version


def _tensors(data: bytes) -> Tensors:
    try:
        tensors: Tensors = load(data)
    # KeyError: a type that NumPy does not have; ValueError: a shape that it does not have.
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelFileError(f"{_TENSORS_UNREADABLE} ({error})") from error
    return tensors

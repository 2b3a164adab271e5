import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from dspn.errors import ModelFileError
from dspn.io import files
from dspn.io.files import Contents, pack, unpack

METADATA: dict[str, Any] = {"schema": ["a", "ä"], "provenance": {"zeros": "0" * 64, "seed": 1}}


def small_contents() -> Contents:
    tensors: dict[str, Any] = {
        "weights": np.array([0.25, -0.0, 5e-324, 0.75]),
        "empty": np.zeros(0),
        "rows": np.arange(6, dtype=np.int32).reshape(3, 2),
        "kinds": np.array([3, 1, 2], dtype=np.uint8),
    }
    return Contents(tensors, METADATA)


def described(**changes: object) -> bytes:
    """A safetensors file whose model entry says what `pack` writes, but for the changes."""
    entries = {"format": "dspn", "format_version": 1, "checksum": "0" * 64, **changes}
    return save({"weights": np.zeros(3)}, {"dspn": json.dumps(entries, separators=(",", ":"))})


def test_unpack_gives_back_what_was_packed() -> None:
    contents = small_contents()
    read = unpack(pack(contents))
    assert read.metadata == contents.metadata
    assert read.tensors.keys() == contents.tensors.keys()
    for name, array in contents.tensors.items():
        assert read.tensors[name].dtype == array.dtype
        assert read.tensors[name].shape == array.shape
        assert read.tensors[name].tobytes() == array.tobytes()


def test_safetensors_reads_what_was_packed() -> None:
    contents = small_contents()
    read = load(pack(contents))
    assert read.keys() == contents.tensors.keys()
    np.testing.assert_array_equal(read["rows"], contents.tensors["rows"])


def test_bytes_do_not_depend_on_order_of_entries() -> None:
    contents = small_contents()
    turned = Contents(
        dict(reversed(contents.tensors.items())), dict(reversed(contents.metadata.items()))
    )
    assert pack(turned) == pack(contents)


def test_bytes_are_the_same_in_another_process() -> None:
    # Seeds of hash tables differ between processes, in Python and in the safetensors library.
    code = (
        "import sys, numpy as np\n"
        "from dspn.io.files import Contents, pack\n"
        "tensors = {f't{i}': np.arange(float(i)) for i in range(8)}\n"
        "metadata = {f'm{i}': i for i in range(8)}\n"
        "sys.stdout.buffer.write(pack(Contents(tensors, metadata)))\n"
    )
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    tensors = {f"t{number}": np.arange(float(number)) for number in range(8)}
    assert other == pack(Contents(tensors, {f"m{number}": number for number in range(8)}))
    assert unpack(other).metadata["m3"] == 3


@given(st.binary(max_size=300))
def test_bytes_that_are_no_model_are_refused(data: bytes) -> None:
    with pytest.raises(ModelFileError):
        unpack(data)


@given(st.binary(max_size=300))
def test_header_that_is_no_model_is_refused(rest: bytes) -> None:
    header = b"{" + rest
    with pytest.raises(ModelFileError):
        unpack(len(header).to_bytes(8, "little") + header)


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(ModelFileError, match="checksum"):
        unpack(pack(small_contents()) + b"\0")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format_version": 6}, "version 6, newer than version 5.*update dspn"),
        ({"format_version": 0}, "version 0, which does not exist"),
        ({"format_version": "1"}, "format version must be a whole number"),
        ({"format_version": True}, "format version must be a whole number"),
        ({"format": "gguf"}, "not of the format 'dspn'"),
        ({"checksum": None}, "checksum must be text"),
        ({"checksum": "0" * 64}, "checksum does not match"),
        ({"checksum": "\ud800" * 64}, "checksum does not match"),
    ],
)
def test_entry_that_does_not_fit_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        unpack(described(**changes))


def test_type_that_models_do_not_have_is_refused() -> None:
    header = b'{"__metadata__":{"dspn":"{\\"checksum\\":\\"' + b"0" * 64
    header += b'\\",\\"format\\":\\"dspn\\",\\"format_version\\":1}"},'
    header += b'"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    data = len(header).to_bytes(8, "little") + header + b"\0\0"
    place = data.index(b"0" * 64)
    sealed = data[:place] + files._checksum(data, place).encode() + data[place + 64 :]
    with pytest.raises(ModelFileError, match="tensors cannot be read"):
        unpack(sealed)


@pytest.mark.parametrize(
    "offsets", [[0, 99], [8, 0], [0, 4], [-1, 8], [0, 2**64], [2**63, 2**63 + 8], "all", []]
)
def test_tensor_outside_of_the_data_is_refused(offsets: object) -> None:
    inner = '{"checksum":"' + "0" * 64 + '","format":"dspn","format_version":1}'
    tensor = {"dtype": "F64", "shape": [1], "data_offsets": offsets}
    header = json.dumps(
        {"__metadata__": {"dspn": inner}, "a": tensor}, separators=(",", ":")
    ).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(8)
    place = data.index(b"0" * 64)
    sealed = data[:place] + files._checksum(data, place).encode() + data[place + 64 :]
    with pytest.raises(ModelFileError, match="tensors cannot be read"):
        unpack(sealed)


def test_description_above_the_limit_is_not_written() -> None:
    long = Contents({}, {"provenance": "x" * files.MAX_HEADER_BYTES})
    with pytest.raises(ModelFileError, match=r"bytes, but 33554432 are allowed; shorten `prov"):
        pack(long)

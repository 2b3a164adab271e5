"""Model files as a user meets them: saved, loaded, damaged, or not models at all."""

import errno
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save, save_file

import dspn
import mutated_files
from dspn._arguments import Floats
from dspn.data import Schema, Variable
from dspn.errors import ModelFileError, StructureError
from dspn.io import load_network, save_network
from dspn.io.codec import decode, encode
from dspn.io.files import pack, unpack
from dspn.leaves import Gaussian, Poisson
from dspn.structure import (
    DynamicNetwork,
    Mixture,
    NetworkBuilder,
    Parameters,
    Product,
    Template,
    assemble,
    from_hmm,
    grouped_network,
    initial_network,
    mixture_top,
)
from mutated_files import LARGE, decided, small_files, written

PROVENANCE: dict[str, Any] = {
    "seed": 2**127 + 1,
    "data": {"fingerprint": "9f3c", "sequences": 40},
    "scores": [-12.5, 0.1 + 0.2, 1, True, None],
    "note": 'ä "quoted" \\ \ud800 line\nbreak',
}
MIXED = Schema(
    (
        Variable.categorical("weather", ("dry", "wet", "snow")),
        Variable.continuous("water level"),
        Variable.count("calls"),
    )
)


def arrays_of(network: DynamicNetwork) -> list[Floats]:
    parameters = network.parameters
    parts = [parameters.template, parameters.top, *filter(None, [parameters.bottom])]
    return [array for part in parts for array in (part.weights, *part.leaves)]


def assert_same(found: DynamicNetwork, expected: DynamicNetwork) -> None:
    assert found.template == expected.template
    assert repr(found.schema) == repr(expected.schema)  # tells 1, 1.0 and True apart
    assert found.top == expected.top
    assert found.root is expected.root
    assert found.parameters.tied == expected.parameters.tied
    pairs = zip(arrays_of(found), arrays_of(expected), strict=True)
    for array, other in pairs:
        assert array.shape == other.shape
        assert array.tobytes() == other.tobytes()


def saved_bytes(
    network: DynamicNetwork, path: Path, provenance: Mapping[str, Any] | None = None
) -> bytes:
    save_network(network, path, provenance=provenance)
    return path.read_bytes()


def packed(network: DynamicNetwork, provenance: Mapping[str, Any] | None = None) -> bytes:
    return pack(encode(Mixture.of(network), provenance))


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        load_network(path)
    message = str(caught.value)
    assert message.startswith(f"cannot load '{path}': ")
    assert message.endswith(".")
    return message


variables = st.one_of(
    st.builds(
        Variable.categorical,
        st.just("x"),
        st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3, unique=True)
        | st.sampled_from([(0, 1), (False, True), (0.0, 1.0), (1, 0.5, -0.0), ("0", "1")]),
    ),
    st.builds(Variable.continuous, st.just("x")),
    st.builds(Variable.count, st.just("x")),
)


@st.composite
def networks(draw: st.DrawFn) -> DynamicNetwork:
    kinds = draw(st.lists(variables, min_size=1, max_size=3))
    schema = Schema(tuple(Variable(f"x{i} é", v.kind, v.categories) for i, v in enumerate(kinds)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    split = draw(st.integers(0, len(schema) - 1))
    groups = [g for g in (range(split), range(split, len(schema))) if len(g)]
    size = draw(st.integers(1, 3))
    products = draw(st.integers(1, 2))
    root = draw(st.sampled_from(["first", "last"]))
    network, other = (
        grouped_network(schema, groups, size, num_products=products, rng=rng, root=root)
        for _ in range(2)
    )
    if draw(st.booleans()):
        return network
    template, top = network.parameters.template, network.parameters.top
    return network.with_parameters(Parameters(template, top, other.parameters.template))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A name to write to, shared by the examples of a property."""
    return tmp_path_factory.mktemp("models") / "model.dspn"


@pytest.fixture(scope="module")
def small() -> DynamicNetwork:
    return initial_network(MIXED, 2, rng=np.random.default_rng(1))


@pytest.fixture(scope="module")
def least() -> DynamicNetwork:
    """The network of the smallest file."""
    return initial_network(Schema((Variable.count("x"),)), 1, rng=np.random.default_rng(1))


# --- what is saved is what is loaded -------------------------------------------------------------


@given(network=networks())
def test_load_gives_back_the_network_bit_for_bit(network: DynamicNetwork) -> None:
    first = packed(network, PROVENANCE)
    loaded = decode(unpack(first))
    assert_same(loaded.network, network)
    assert packed(network, PROVENANCE) == first
    assert packed(loaded.network, loaded.provenance) == first


def test_provenance_is_kept(small: DynamicNetwork, file: Path) -> None:
    save_network(small, file, provenance=PROVENANCE)
    assert load_network(file).provenance == PROVENANCE
    save_network(small, file)
    assert load_network(file).provenance == {}


def test_provenance_order_does_not_change_the_file(small: DynamicNetwork, file: Path) -> None:
    turned = dict(reversed(PROVENANCE.items()))
    assert saved_bytes(small, file, turned) == saved_bytes(small, file, PROVENANCE)


@pytest.mark.parametrize(
    "categories",
    [
        ("0", "1"),
        (0, 1),
        (0.0, 1.0),
        (False, True),
        (1, 2.0, 3),
        ("ä", "\ud800", ""),
        (-0.0, 5e-324),
    ],
)
def test_categories_keep_their_types(categories: tuple[Any, ...], file: Path) -> None:
    schema = Schema((Variable.categorical("x", categories),))
    save_network(initial_network(schema, 1, rng=np.random.default_rng(0)), file)
    found = load_network(file).network.schema[0].categories
    assert [(type(c), repr(c)) for c in found] == [(type(c), repr(c)) for c in categories]


def test_extreme_parameters_are_kept_bit_for_bit(file: Path) -> None:
    schema = Schema((Variable.binary("a"), Variable.continuous("b"), Variable.count("c")))
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(2)
    tiny = np.finfo(np.float64).smallest_subnormal
    outputs = [
        builder.product(
            [
                builder.leaf("a", [tiny, 1.0]),
                builder.leaf("b", [-0.0, 1.7e308], Gaussian(location=1e6, scale=0.1)),
                builder.leaf("c", [tiny], Poisson(reference_rate=1 / 3)),
                builder.sum(inputs, [1.0, -0.0]),
            ]
        )
        for _ in inputs
    ]
    network = assemble(builder.template(outputs), mixture_top(schema, [1.0 - 2**-53, tiny]))
    save_network(network, file)
    assert_same(load_network(file).network, network)


def test_network_whose_top_has_no_weights_is_kept(file: Path) -> None:
    schema = Schema((Variable.binary("x"),))
    builder = NetworkBuilder(schema)
    (below,) = builder.inputs(1)
    template = builder.template([builder.product([builder.leaf("x", [0.5, 0.5]), below])])
    top = NetworkBuilder(schema)
    network = assemble(template, top.top(top.input()))
    assert network.parameters.top.weights.size == 0
    save_network(network, file)
    assert_same(load_network(file).network, network)


def test_loaded_parameters_cannot_be_written_to(small: DynamicNetwork, file: Path) -> None:
    save_network(small, file)
    for array in arrays_of(load_network(file).network):
        assert not array.flags.writeable


def test_safetensors_library_reads_the_file(small: DynamicNetwork, file: Path) -> None:
    save_network(small, file, provenance={"seed": 1})
    with safe_open(file, framework="np") as opened:
        metadata = json.loads(opened.metadata()["dspn"])
        weights = opened.get_tensor("0.template.weights")
    np.testing.assert_array_equal(weights, small.parameters.template.weights)
    assert (metadata["format"], metadata["format_version"]) == ("dspn", 1)
    assert metadata["provenance"] == {"seed": 1}
    assert [variable["name"] for variable in metadata["schema"]] == list(MIXED.names)


def test_large_network_is_saved_and_loaded_quickly_and_compactly(file: Path) -> None:
    rng = np.random.default_rng(0)
    k = 256
    schema = Schema(tuple(Variable.binary(f"x{i}") for i in range(13)))
    emissions = {name: rng.dirichlet([1.0, 1.0], size=k) for name in schema.names}
    transition = rng.dirichlet(np.ones(k), size=k)
    network = from_hmm(rng.dirichlet(np.ones(k)), transition, emissions, schema=schema)
    started = time.process_time()
    save_network(network, file)
    loaded = load_network(file).network
    assert time.process_time() - started < 1.0
    assert_same(loaded, network)
    parameters = sum(array.nbytes for array in arrays_of(network))
    assert file.stat().st_size < 2 * parameters


# --- damage --------------------------------------------------------------------------------------


def test_any_flipped_bit_is_noticed(least: DynamicNetwork) -> None:
    whole = packed(least)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        for bit in range(8):
            damaged[place] = whole[place] ^ 1 << bit
            with pytest.raises(ModelFileError):
                unpack(bytes(damaged))


def test_any_truncation_is_noticed(least: DynamicNetwork, file: Path) -> None:
    whole = packed(least)
    for length in range(len(whole)):
        with pytest.raises(ModelFileError, match=r"empty|cut short"):
            unpack(whole[:length])
    file.write_bytes(whole[:-1])
    assert "cut short" in refusal(file)


@given(network=networks(), data=st.data())
def test_any_changed_bytes_are_noticed(network: DynamicNetwork, data: st.DataObject) -> None:
    whole = packed(network, {"note": "x"})
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start, min(start + 40, len(whole))))
    damaged = whole[:start] + data.draw(st.binary(max_size=40)) + whole[end:]
    if damaged == whole:
        assert_same(decode(unpack(damaged)).network, network)
        return
    with pytest.raises(ModelFileError):
        unpack(damaged)


def test_two_files_one_after_the_other_are_refused(small: DynamicNetwork, file: Path) -> None:
    whole = saved_bytes(small, file)
    file.write_bytes(whole + whole)
    assert "checksum" in refusal(file)


# --- not a model ---------------------------------------------------------------------------------

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"dspn", "it has 4 bytes only"),
        (PNG, "it is not a model"),
        (b"a,b\n1,2\n" * 50, "it is not a model"),
        (b'{"format": "dspn"}', "it is not a model"),
        (b"PK\x03\x04" + bytes(40), "it is not a model"),
        (pickle.dumps({"weights": [1.0]}), "it is not a model"),
        (bytes(100), "it is not a model"),
        (save({"w": np.zeros(3)}), "without the metadata entry 'dspn'"),
        (save({"w": np.zeros(3)}, {"dspn": "not json"}), "not readable JSON"),
        (save({"w": np.zeros(3)}, {"dspn": "[]"}), "its metadata must be an object"),
        (save({"w": np.zeros(3)}, {"dspn": "{}"}), "it is not a model"),
    ],
)
def test_file_that_is_no_model_is_refused(content: bytes, said: str, file: Path) -> None:
    file.write_bytes(content)
    assert said in refusal(file)


def test_weights_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bert.safetensors"
    save_file({"layer.0": np.zeros((2, 2), dtype=np.float32)}, path, {"format": "pt"})
    assert "a safetensors file, but without the metadata entry 'dspn'" in refusal(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "none.dspn")
    assert "there is no such file" in refusal(tmp_path / "none" / "none.dspn")


def test_directory_is_refused(tmp_path: Path) -> None:
    assert "it is a directory" in refusal(tmp_path)


def test_name_with_a_null_is_refused() -> None:
    with pytest.raises(ModelFileError, match="null"):
        load_network("a\0b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe" in refusal(tmp_path / "pipe")
    for load in (dspn.load, dspn.Model.load, dspn.HMM.load, dspn.DSPNClassifier.load):
        with pytest.raises(ModelFileError, match="a pipe or a socket; give the name of a model"):
            load(tmp_path / "pipe")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="this user may read anything")
def test_file_that_may_not_be_read_is_refused(small: DynamicNetwork, tmp_path: Path) -> None:
    path = tmp_path / "secret.dspn"
    save_network(small, path)
    path.chmod(0)
    assert "it cannot be read (Permission denied)" in refusal(path)


def test_failing_disk_is_reported(
    small: DynamicNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.dspn"
    save_network(small, path)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("dspn.io.files.open", fail, raising=False)
    assert "it cannot be read" in refusal(path)


def test_file_that_does_not_fit_into_memory_is_refused(
    small: DynamicNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.dspn"
    save_network(small, path)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dspn.io.files.open", fail, raising=False)
    assert "it does not fit into memory" in refusal(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40, 100_000_000, 32 * 2**20 + 1])
def test_huge_header_is_refused_before_it_is_read(length: int, file: Path) -> None:
    with file.open("wb") as opened:
        opened.write(length.to_bytes(8, "little") + b"{")
        opened.truncate(min(length + 8, 2**33))  # a sparse file: nothing of it is stored
    tracemalloc.start()
    said = refusal(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert f"header of {length} bytes, but {32 * 2**20} are allowed" in said


def test_newer_version_is_said_to_be_newer(file: Path) -> None:
    metadata = {"format": "dspn", "format_version": 12, "unheard": "of"}
    file.write_bytes(save({"x": np.zeros(1)}, {"dspn": json.dumps(metadata)}))
    said = refusal(file)
    assert "format version 12, newer than version 5" in said
    assert "update dspn" in said


@pytest.mark.parametrize("size", [2**32, 2**29])
def test_bytes_that_no_header_announces_are_not_read(
    small: DynamicNetwork, file: Path, size: int
) -> None:
    save_network(small, file)
    os.truncate(file, size)  # a sparse file: nothing more is stored
    tracemalloc.start()
    said = refusal(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert f"it has {size} bytes" in said or "its header announces" in said


def test_second_entry_of_a_name_is_refused(small: DynamicNetwork, file: Path) -> None:
    data = saved_bytes(small, file)
    twice = data[:9] + b'"a":1,"a":2,' + data[9:]
    file.write_bytes((int.from_bytes(data[:8], "little") + 12).to_bytes(8, "little") + twice[8:])
    assert "two entries of one name" in refusal(file)


# --- much work, and anything at all --------------------------------------------------------------


def test_files_of_a_megabyte_are_decided_in_two_seconds_and_300_mb_and_short_words(
    tmp_path: Path,
) -> None:
    for number, (size, make) in enumerate(LARGE.values()):
        (tmp_path / f"{number}.dspn").write_bytes(make(size))
    code = (
        "import json, pathlib, sys, time, dspn\n"
        "from mutated_files import peak_bytes\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    begun, said = time.process_time(), None\n"
        "    try:\n"
        "        dspn.load(path)\n"
        "    except dspn.ModelFileError as error:\n"
        "        said = str(error)\n"
        "        assert error.__cause__ is None and error.__context__ is None\n"
        "    print(json.dumps([path.name, time.process_time() - begun, said]))\n"
        "print(json.dumps(['memory', peak_bytes(), None]))\n"
    )
    places = [Path(dspn.__file__).parents[1], Path(mutated_files.__file__).parent]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = {name: number for name, number, _ in rows}
    assert len(found) == len(LARGE) + 1
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 1.1 * 2**20
    # Memory is that of all files together, and the first also pays for the imports.
    assert found.pop("memory") < 300e6
    assert all(seconds < 2.0 for name, seconds in found.items() if name != "0.dspn")
    messages = [said for _, _, said in rows if said is not None]
    assert len(messages) > 5
    for said in messages:
        assert len(said) < 2500 and said.replace("\n", "").isprintable()


def test_cycle_is_told_by_its_ends() -> None:
    nodes = tuple(Product(((i + 1) % 1000,)) for i in range(1000))
    with pytest.raises(
        StructureError, match=r"0 -> 1 -> .* -> \.\.\. -> .* -> 999 -> 0; a"
    ) as said:
        Template(MIXED, nodes, (0,))
    assert len(str(said.value)) < 200


def test_changed_files_load_or_are_refused_by_name(tmp_path: Path) -> None:
    """The beginning of the campaign that `python -m tests.mutated_files` is."""
    files = small_files(tmp_path)
    ends: set[str] = set()
    for number in range(350):
        if number % 100 != 99:
            written(tmp_path / "changed.dspn", 1, number, files)
            ends.add(decided(tmp_path / "changed.dspn")[0])
    assert not [end for end in ends if "FAILED" in end]
    assert {"ModelFileError", "loaded as Model"} <= ends


# --- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("provenance", [{"score": float("nan")}, {"rng": object()}, {"a": {1: 2}}])
def test_provenance_that_is_no_json_keeps_the_old_file(
    small: DynamicNetwork, tmp_path: Path, provenance: Any
) -> None:
    path = tmp_path / "model.dspn"
    before = saved_bytes(small, path)
    with pytest.raises(ModelFileError, match=r"cannot write '.*model.dspn': `provenance` must"):
        save_network(small, path, provenance=provenance)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.dspn"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_full_disk_keeps_the_old_model(
    small: DynamicNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "model.dspn"
    save_network(small, path)
    other = initial_network(MIXED, 3, rng=np.random.default_rng(2))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(ModelFileError, match="no space left"):
            save_network(other, path)
    assert_same(load_network(path).network, small)
    assert os.listdir(tmp_path) == ["model.dspn"]


def test_missing_directory_is_named(small: DynamicNetwork, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"directory .*none' does not exist; create it first"):
        save_network(small, tmp_path / "none" / "model.dspn")


def test_directory_is_not_overwritten(small: DynamicNetwork, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="it is a directory"):
        save_network(small, tmp_path)
    assert os.listdir(tmp_path) == []

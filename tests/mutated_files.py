"""Model files that somebody has changed: each is a valid model, or is refused by a named error.

    python -m tests.mutated_files 10000 [--seed 0] [FILE.dspn ...]

makes that many files out of small models of every kind, or out of the files that are given, loads
each, and shows what has loaded by `dspn inspect`. It ends with status 1 where a file gave an error
without a name, a signal, or a message that is long or cannot be printed, or where it took more than
10 s or 1 GiB.
"""

import argparse
import hashlib
import io
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

import dspn
from dspn.io import save_classifier
from dspn.io.files import Contents, pack
from dspn.structure import Mixture, Parameters, grouped_network, initial_network

MOST_SECONDS, MOST_BYTES = 10.0, 2**30
MARK = rb"{\"checksum\":\""
SCHEMA = dspn.Schema(
    (
        dspn.Variable.categorical("sky", ("dry", "wet", "snow")),
        dspn.Variable.continuous("level"),
        dspn.Variable.count("calls"),
    )
)


# --- the files that are changed ------------------------------------------------------------------


def small_files(folder: Path) -> list[bytes]:
    """A network, one of groups that is not tied, a mixture, an estimator's model, a classifier."""
    rng = np.random.default_rng(0)
    network = initial_network(SCHEMA, 2, rng=rng)
    one, other = (
        grouped_network(SCHEMA, [[0, 2], [1]], [2, 1], num_products=2, rng=rng) for _ in range(2)
    )
    own = Parameters(one.parameters.template, one.parameters.top, other.parameters.template)
    mixture = Mixture((network, one, other), np.array([0.5, 0.25, 0.25]))
    told: dict[str, Any] = {
        "estimator": "HMM",
        "parameters": {"n_states": 2, "em": {"class": "EmOptions", "max_steps": 3}},
        "seed": 3,
        "validation_score": -1.5,
        "ending": "converged",
    }
    kept: dict[str, Any] = {"fitted": {"columns": True, "validation_scores_": {"2": -1.5}}}
    dspn.Model(network, provenance=told).save(folder / "0.dspn")
    dspn.Model(one.with_parameters(own)).save(folder / "1.dspn")
    dspn.Model(mixture, provenance={"a": [1, {"b": None}]}).save(folder / "2.dspn")
    dspn.Model(network, provenance=told | kept).save(folder / "3.dspn")
    models = [(Mixture.of(network), told), (mixture, {})]
    save_classifier(folder / "4.dspn", ["a", "b"], np.log([0.25, 0.75]), models)
    return [(folder / f"{number}.dspn").read_bytes() for number in range(5)]


Nodes = list[tuple[int, tuple[int, ...]]]
INPUT, LEAF, PRODUCT, SUM = range(4)


def crafted(
    num_variables: int, nodes: Nodes, outputs: Sequence[int], names: Sequence[str] = ()
) -> bytes:
    """A file with a right checksum that has these nodes, whether they are a template or not."""
    count = len(outputs)
    top: Nodes = [(INPUT, (i,)) for i in range(count)] + [(PRODUCT, tuple(range(count)))]
    tensors: dict[str, Any] = {"0.template.outputs": np.array(outputs, dtype=np.int32)}
    for network, own in (("template", nodes), ("top", top)):
        kinds, references = zip(*own, strict=True)
        degrees = [len(given) for given in references]
        sums = [np.full(n, 1 / n) for kind, n in zip(kinds, degrees, strict=True) if kind == SUM]
        tensors |= {
            f"0.{network}.kinds": np.array(kinds, dtype=np.uint8),
            f"0.{network}.degrees": np.array(degrees, dtype=np.int32),
            f"0.{network}.references": np.array(
                [reference for given in references for reference in given], dtype=np.int32
            ),
            f"0.{network}.weights": np.concatenate([np.zeros(0), *sums]),
        }
    leaves = Counter(given[0] for kind, given in nodes if kind == LEAF)
    for variable in range(num_variables):
        tensors[f"0.template.leaves.{variable}"] = np.ones((leaves[variable], 1))
    component = {
        "bottom": "tied",
        "families": [{"name": "poisson"}] * num_variables,
        "groups": list(range(count)),
        "root": "first",
        "top_root": count,
    }
    names = names or [f"x{i}" for i in range(num_variables)]
    schema = [{"categories": [], "kind": "count", "name": name} for name in names]
    metadata: Any = {"components": [component], "provenance": {}, "schema": schema}
    return pack(Contents(tensors, metadata))


def groups_of_one(k: int, links: Callable[[int], tuple[int, ...]] = lambda i: ()) -> bytes:
    """Every variable has an interface of its own, which multiplies `links` besides."""
    nodes: Nodes = [(INPUT, (i,)) for i in range(k)] + [(LEAF, (i,)) for i in range(k)]
    nodes += [(PRODUCT, (i, k + i, *links(i))) for i in range(k)]
    return crafted(k, nodes, range(2 * k, 3 * k))


def one_group(v: int, more: Callable[[int], Nodes], names: Sequence[str] = ()) -> bytes:
    """One interface over all variables, and `more(whole)` nodes of which the last is its output."""
    nodes: Nodes = [(INPUT, (0,)), *((LEAF, (i,)) for i in range(v))]
    nodes.append((PRODUCT, tuple(range(v + 1))))
    nodes += more(v + 1)
    return crafted(v, nodes, [len(nodes) - 1], names)


# Files that ask for much work, and the size at which each has about a megabyte.
LARGE: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "groups of one variable": (4500, groups_of_one),
    "groups of which the last breaks a rule": (
        4500,
        lambda n: groups_of_one(n, lambda i: (n + i - 1,) * (i == n - 1)),
    ),
    "groups that overlap in a ring": (
        4300,
        lambda n: groups_of_one(n, lambda i: (n + (i + 1) % n,)),
    ),
    "groups that all share a variable": (
        4300,
        lambda n: groups_of_one(n, lambda i: (n,) * (i > 0)),
    ),
    "groups that all read one": (4300, lambda n: groups_of_one(n, lambda i: (0,) * (i > 0))),
    "children that share": (
        50000,
        lambda n: one_group(1, lambda _: [(LEAF, (0,))] * n + [(PRODUCT, tuple(range(1, n)))]),
    ),
    "sums that are not complete": (
        17000,
        lambda n: one_group(n // 10, lambda whole: [(SUM, (whole, 1))] * n + [(SUM, (whole,))]),
    ),
    "a deep network": (
        29000,
        lambda n: one_group(n // 10, lambda whole: [(SUM, (whole + i,)) for i in range(n)]),
    ),
    "a wide sum of many variables": (
        29000,
        lambda n: one_group(
            n // 20,
            lambda whole: (
                [(SUM, (whole,))] * (n // 4) + [(SUM, tuple(range(whole + 1, n // 4)))] * 9
            ),
        ),
    ),
    "a cycle": (
        58000,
        lambda n: one_group(1, lambda at: [(SUM, (at + 1 + (i + 1) % n,)) for i in range(n)]),
    ),
    "long names": (
        2800,
        lambda n: one_group(
            20,
            lambda whole: [(SUM, (whole, 1))] * 40,
            [f"{i}" + "\x1b[31m\ud800" * n for i in range(20)],
        ),
    ),
    "many variables": (5500, lambda n: one_group(n, lambda whole: [(SUM, (whole,))])),
    "names that occur twice": (
        5500,
        lambda n: one_group(n, lambda whole: [(SUM, (whole,))], [f"x{i // 2}" for i in range(n)]),
    ),
}


# --- changes -------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 255, 2**31, -(2**63), 2**63, 2**64, 10**400, 10**4000,
    0.5, -0.0, 1e308, 5e-324, 1e-320, float("nan"), float("inf"), -float("inf"),
    "", "0", "a\0", "tied", "own", "last", "count", "categorical", "gaussian", "poisson", "HMM",
    "DSPN", "F64", "I32", "U8", "BF16", "F8_E4M3", "BOOL", "dspn", "\ud800", "\udc80\ud800",
    "\x1b[2J\x1b[31m", "\u202e", "\r\n", "ä", "x" * 5000, [], {}, [[]], [0], [0] * 5000,
    [0, "0"], [0, False], ["a", "a\0"], [1, 1.0], ["\ud800", "\x1b[31m"], [2**63, -1, 2**64],
    {"class": "EmOptions"}, {"class": "EmOptions", "max_steps": "many"}, {"class": []},
    {"": {"": {}}}, "@deep 70@", "@deep 900@", "@deep 50000@", "@digits@",
]  # fmt: skip


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: Any = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [here, *(path for key, item in inner for path in paths(item, (*here, key)))]


def choose(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def change_json(rng: np.random.Generator, value: Any) -> None:
    """Replaces, removes, renames, doubles or adds something within an object."""
    path = choose(rng, paths(value)[1:])
    place = value
    for key in path[:-1]:
        place = place[key]
    key, how = path[-1], int(rng.integers(6))
    if how == 0 and isinstance(place, dict):
        place[choose(rng, [str(v) for v in VALUES[:60] if not isinstance(v, int)])] = place.pop(key)
    elif how == 0:
        place.insert(key, choose(rng, VALUES))
    elif how == 1:
        del place[key]
    elif how == 2:
        other: Any = value
        for step in choose(rng, paths(value)[1:]):
            other = other[step]
        place[key] = json.loads(json.dumps(other))
    else:
        place[key] = choose(rng, VALUES)


def change_header(rng: np.random.Generator, header: dict[str, Any]) -> None:
    """Changes what is said of a tensor, or which tensors there are."""
    name, how = choose(rng, list(header)), int(rng.integers(5))
    if how == 0:
        field = choose(rng, ["dtype", "shape", "data_offsets"])
        header[name][field] = choose(rng, VALUES)
    elif how == 1:
        header[name]["shape"] = choose(
            rng, [[0, 2**62], [2**62, 2**62, 4], [1] * 70, [-1], [1.5], [0], [], [10**9]]
        )
    elif how == 2:
        header[name]["data_offsets"] = [int(v) for v in rng.integers(-9, 99, size=2)]
    elif how == 3:
        header[choose(rng, ["class.9.weights", "1.x", "", name + "0", "weights"])] = header.pop(
            name
        )
    else:
        header[f"{name}.{rng.integers(9)}"] = dict(header[name])


def change_numbers(rng: np.random.Generator, header: dict[str, Any], body: bytearray) -> None:
    """Writes other numbers into a tensor."""
    tensor = header[choose(rng, list(header))]
    kind = {"F64": "<f8", "I32": "<i4", "U8": "u1"}[tensor["dtype"]]
    start, end = tensor["data_offsets"]
    array = np.frombuffer(bytes(body[start:end]), dtype=kind).copy()
    for _ in range(int(rng.integers(1, 4)) if array.size else 0):
        near = [-1, 0, 1, 2, 3, int(rng.integers(30))]
        far = [np.nan, np.inf, -np.inf, 1e308, 5e-324, 0.5] if kind == "<f8" else [2**31 - 1]
        number = choose(rng, near + far)
        array[rng.integers(array.size)] = number % 256 if kind == "u1" else number
    body[start:end] = array.tobytes()


def change_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """Flips, cuts, repeats or fills bytes anywhere."""
    changed, how = bytearray(data), int(rng.integers(6))
    start = int(rng.integers(len(data)))
    if how == 0:
        return bytes(changed[:start])
    if how == 1:
        return bytes(changed + changed[start:])
    if how == 2:
        changed[:8] = int(rng.integers(2**40)).to_bytes(8, "little")
    elif how == 3:
        changed[start : start + int(rng.integers(64))] = rng.bytes(int(rng.integers(64)))
    else:
        for place in rng.integers(len(data), size=int(rng.integers(1, 9))):
            changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def sealed(data: bytes) -> bytes:
    """The data with the checksum that belongs to them, where they have the place for one."""
    place = data.find(MARK) + len(MARK)
    if place < len(MARK) or len(data) < place + 64:
        return data
    empty = data[:place] + b"0" * 64 + data[place + 64 :]
    return data[:place] + hashlib.sha256(empty).hexdigest().encode() + data[place + 64 :]


def joined(header: dict[str, Any], metadata: dict[str, Any], body: bytes) -> bytes:
    rest = {name: value for name, value in metadata.items() if name != "checksum"}
    inner = json.dumps({"checksum": "0" * 64, **rest}, separators=(",", ":"))
    text = json.dumps({"__metadata__": {"dspn": inner}, **header}, separators=(",", ":"))
    for depth in (70, 900, 50000):
        for quote in ('\\"', '"'):
            text = text.replace(f"{quote}@deep {depth}@{quote}", "[" * depth + "]" * depth)
    text = text.replace('\\"@digits@\\"', "7" * 20000).replace('"@digits@"', "7" * 20000)
    return sealed(len(text).to_bytes(8, "little") + text.encode() + body)


def mutated(rng: np.random.Generator, files: Sequence[bytes]) -> bytes:
    """One of the files, changed; four of five times with the checksum that belongs to it."""
    data = choose(rng, files)
    if rng.random() < 0.2:
        return change_bytes(rng, data)
    if rng.random() < 0.1:
        return sealed(change_bytes(rng, data))
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = json.loads(header.pop("__metadata__")["dspn"])
    before = json.loads(json.dumps(header))
    body = bytearray(data[8 + length :])
    for _ in range(int(rng.integers(1, 3))):
        how = rng.random()
        if how < 0.3:
            change_numbers(rng, before, body)
        elif how < 0.5 and header:
            change_header(rng, header)
        elif len(paths(metadata)) > 1:
            change_json(rng, metadata)
    return joined(header, metadata, bytes(body))


def written(path: Path, seed: int, number: int, files: Sequence[bytes]) -> str:
    """Writes file `number` of a campaign, and says what it is."""
    rng = np.random.default_rng([seed, number])
    if number % 100 == 99:
        name = list(LARGE)[number // 100 % len(LARGE)]
        size, make = LARGE[name]
        path.write_bytes(make(int(size * rng.uniform(0.2, 1.0))))
        return name
    path.write_bytes(mutated(rng, files))
    if number % 500 == 250:
        with path.open("r+b") as file:  # a sparse file: nothing more is stored
            file.truncate(int(rng.integers(2**31, 2**33)))
        return "sparse"
    return "mutated"


# --- what has to come of them --------------------------------------------------------------------


def decided(path: Path) -> tuple[str, float, int]:
    """How a file ends, the seconds that it took to load it, and the most memory meanwhile."""
    found: Any = None
    peak_bytes(reset=True)
    begun = time.perf_counter()
    try:
        found = dspn.load(path)
    except Exception as error:
        found = error
    seconds, peak = time.perf_counter() - begun, peak_bytes()
    try:
        return outcome(path, found), seconds, peak
    except Exception as error:
        return f"FAILED: {type(error).__name__}: {ascii(str(error))[:300]}", seconds, peak


def outcome(path: Path, found: Any) -> str:
    """What was loaded, or the name of the error; raises where a file ended otherwise."""
    if isinstance(found, dspn.DspnError):
        error = found
        said = str(error).replace("\n", "")
        assert said.isprintable() and len(said) < 3000, said[:200]
        assert error.__cause__ is None and error.__context__ is None
        return type(error).__name__
    if isinstance(found, Exception):
        raise found
    models = getattr(found, "models_", None) or [getattr(found, "model_", found)]
    for model in models:
        assert isinstance(model, dspn.Model) and pack_again(model)
    from dspn.cli.app import run

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(["inspect", str(path)])
        out.flush()
    shown = out.buffer.getvalue().decode() + err.getvalue()  # type: ignore[attr-defined]
    assert status == 0 and shown.replace("\n", "").isprintable(), shown[-300:]
    return f"loaded as {type(found).__name__}"


def pack_again(model: dspn.Model) -> bool:
    from dspn.io.codec import encode

    return bool(pack(encode(model.mixture, model.provenance)))


def peak_bytes(reset: bool = False) -> int:
    """The highest resident memory since the last reset, where the system tells."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0


def work(start: int, stop: int, seed: int, given: Sequence[str]) -> None:
    """Makes and loads files; a line of JSON for each."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(name).read_bytes() for name in given] or small_files(Path(folder))
        path = Path(folder) / "changed.dspn"
        for data in files:  # so that no changed file pays for imports
            path.write_bytes(data)
            dspn.load(path)
        for number in range(start, stop):
            what = written(path, seed, number, files)
            size = path.stat().st_size
            print(json.dumps([number, what, size, *decided(path)]), flush=True)


def campaign(count: int, seed: int = 0, given: Sequence[str] = ()) -> list[list[Any]]:
    """[number, what, bytes, outcome, seconds, peak] of each file; a signal is an outcome, too."""
    found: list[list[Any]] = []
    while len(found) < count:
        arguments = ["--work", str(len(found)), "--seed", str(seed), str(count), *given]
        worker = subprocess.Popen(
            [sys.executable, os.fspath(__file__), *arguments], stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        patience = 120.0  # to import, and to make the first file
        while select.select([worker.stdout], [], [], patience)[0]:
            line = worker.stdout.readline()
            if not line:
                break
            found.append(json.loads(line))
            patience = 4 * MOST_SECONDS
        else:
            worker.kill()
        status = worker.wait()
        if len(found) < count:
            found.append([len(found), "?", 0, f"FAILED: ended with {status}", patience, 0])
    return found


def breaches(found: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    return [
        row for row in found if "FAILED" in row[3] or row[4] > MOST_SECONDS or row[5] > MOST_BYTES
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Loads model files that were changed.")
    parser.add_argument("count", type=int)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work is not None:
        work(asked.work, asked.count, asked.seed, asked.files)
        return 0
    found = campaign(asked.count, asked.seed, asked.files)
    for said, times in Counter(row[3][:60] for row in found).most_common():
        print(f"{times:7,}  {said}")
    slowest, largest = max(found, key=lambda row: row[4]), max(found, key=lambda row: row[5])
    print(f"slowest: {slowest[4]:.2f} s, file {slowest[0]} ({slowest[1]}, {slowest[2]:,} bytes)")
    print(f"most memory: {largest[5] / 2**20:.0f} MiB, file {largest[0]} ({largest[1]})")
    wrong = breaches(found)
    for row in wrong[:20]:
        print(*row)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

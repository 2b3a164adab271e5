"""Damaged tables by the thousand: each is read, or refused in a sentence.

`python tests/mutated_tables.py --count 20000` makes them from their numbers, the same ones in every
run, and gives each to a door of the library in a worker process. A case fails where anything but an
error of the library comes out, where the process dies, or above 10 s of processor time or 1 GiB of
memory.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import resource
import selectors
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

MOST_SECONDS = 10.0
PATIENCE = 60.0
MOST_BYTES = 2**30
COMMAND_EVERY = 64
WORDS = [
    "clear",
    "rain",
    "",
    "NA",
    "1",
    "-3.5",
    "1e400",
    "0x1F",
    "2024-01-31",
    "q\"'",
    "é\0ß",
    "a,b\n",
]
NUMBERS = [0.0, -0.0, 1.5, -7.0, 1e308, np.inf, -np.inf, np.nan, 2.0**53, 2.0**63, 5e-324]
WHOLES = [0, 1, -1, 255, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63)]
NAMES = [
    "",
    " ",
    "day",
    "x\0y",
    "a,b",
    'q"',
    "é" * 300,
    "n\nm",
    "\u202e",
    "x" * 70_000,
    "None",
    "slice",
]


class Case(NamedTuple):
    """A table in a file, and the door it is given to."""

    name: str
    data: bytes
    door: str


# Tables


def _weather(rng: np.random.Generator) -> dict[str, Any]:
    rows = int(rng.choice([0, 1, 2, 7, 30, 300], p=[0.03, 0.07, 0.1, 0.3, 0.4, 0.1]))
    days = np.arange(rows) // 5
    return {
        "day": pa.array([f"d{day}" for day in days]),
        "hour": pa.array(np.arange(rows) % 5),
        "sky": pa.array(rng.choice(["clear", "rain"], rows), mask=rng.random(rows) < 0.2),
        "celsius": pa.array(rng.normal(15, 5, rows).round(2), mask=rng.random(rows) < 0.2),
        "visitors": pa.array(rng.poisson(5, rows), mask=rng.random(rows) < 0.2),
        "note": pa.array(rng.choice(["a", "b, c", 'd"'], rows)),
    }


def _cells(rng: np.random.Generator, rows: int) -> Any:
    """A column of some type, with values at the edges of it."""
    kinds: list[Callable[[], Any]] = [
        lambda: pa.array(rng.choice(WORDS, rows)),
        lambda: pa.array(rng.choice(WORDS, rows), pa.large_string()),
        lambda: pa.array(rng.choice(WORDS, rows), pa.string_view()),
        lambda: pa.array(rng.choice(WORDS, rows)).dictionary_encode(),
        lambda: pa.array(rng.choice(NUMBERS, rows)),
        lambda: pa.array(rng.choice(NUMBERS, rows)).dictionary_encode(),
        lambda: pa.array(rng.choice([0.5, np.nan, np.inf], rows).astype(np.float16)),
        lambda: pa.array(rng.choice(np.array(WHOLES), rows)),
        lambda: pa.array(rng.integers(0, 2**64 - 1, rows, np.uint64)),
        lambda: pa.array(rng.integers(-128, 127, rows).astype(np.int8)),
        lambda: pa.array(rng.random(rows) < 0.5),
        lambda: pa.nulls(rows),
        lambda: pa.nulls(rows, pa.string()),
        lambda: pa.array([Decimal("1.5")] * rows, pa.decimal128(38, 10)),
        lambda: pa.array([Decimal("-" + "9" * 30)] * rows, pa.decimal256(70, 2)),
        lambda: pa.array([b"a\xff"] * rows),
        lambda: pa.array([b"ab"] * rows, pa.binary(2)),
        lambda: pa.array([b"ab"] * rows, pa.binary_view()),
        lambda: pa.array([[1, None]] * rows),
        lambda: pa.array([["x"]] * rows, pa.large_list(pa.string())),
        lambda: pa.array([[1, 2]] * rows, pa.list_(pa.int8(), 2)),
        lambda: pa.array([[1]] * rows, pa.list_view(pa.int64())),
        lambda: pa.array(
            [{"a": 1, "b": [2]}] * rows, pa.struct({"a": "int64", "b": pa.list_(pa.int8())})
        ),
        lambda: pa.array([[("k", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([pa.MonthDayNano([1, 2, 3])] * rows, pa.month_day_nano_interval()),
        lambda: pa.array([b"a" * 16] * rows, pa.uuid()),
        lambda: pa.RunEndEncodedArray.from_arrays([max(rows, 1)], ["x"])[:rows],
        lambda: pa.UnionArray.from_sparse(
            pa.array([0] * rows, pa.int8()), [pa.array([1.5] * rows)]
        ),
        lambda: pa.DictionaryArray.from_arrays(
            pa.array([0] * rows, pa.int8()), pa.array([[1, 2]], pa.list_(pa.int64()))
        ),
    ]
    units = ["s", "ms", "us", "ns"]
    unit, zone = (
        str(rng.choice(units)),
        rng.choice([None, "UTC", "Europe/Berlin", "Mars/Base", "+99:99"]),
    )
    ticks = rng.choice(np.array(WHOLES), rows)
    kinds += [
        lambda: pa.array(ticks).view(pa.timestamp(unit, None if zone is None else str(zone))),
        lambda: pa.array(ticks).view(pa.duration(unit)),
        lambda: pa.array(ticks).view(pa.date64()),
        lambda: pa.array(ticks).view(pa.time64("ns")),
        lambda: pa.array(ticks.astype(np.int32)).view(pa.date32()),
        lambda: pa.array(ticks.astype(np.int32)).view(pa.time32("s")),
    ]
    return kinds[rng.integers(len(kinds))]()


def _damaged(rng: np.random.Generator, rows: int) -> Any:
    """A column whose buffers contradict each other."""
    wild = rng.choice(np.array([0, 1, -1, 5, 2**20, 2**31 - 1, -(2**31)]), rows + 1).astype(
        np.int32
    )
    offsets = np.arange(rows + 1, dtype=np.int32)
    wild[0], wild[-1] = 0, rows  # which the writer trusts
    text, bad = pa.py_buffer(b"a" * rows), pa.py_buffer(rng.bytes(rows))
    small = pa.array(["a", "b"])

    def texts(offset: Any, data: Any, kind: Any = None) -> Any:
        return pa.Array.from_buffers(kind or pa.string(), rows, [None, pa.py_buffer(offset), data])

    def lists(offset: Any, child: Any) -> Any:
        kind = pa.list_(child.type)
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offset)], children=[child])

    def indexed(places: Any, words: Any) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(places), words, safe=False)

    kinds: list[Callable[[], Any]] = [
        lambda: texts(wild, text),
        lambda: texts(offsets, bad),
        lambda: texts(wild.astype(np.int64), text, pa.large_string()),
        lambda: texts(wild, text, pa.binary()),
        lambda: lists(wild, pa.array(np.arange(rows))),
        lambda: lists(offsets, texts(wild, text)),
        lambda: indexed(wild[:rows], small),
        lambda: indexed(np.zeros(rows, np.int8), texts(wild, text)),
        lambda: indexed(np.zeros(rows, np.int8), texts(offsets, bad)),
        lambda: pa.Array.from_buffers(
            pa.string_view(), rows, [None, pa.py_buffer(rng.bytes(16 * rows))]
        ),
        lambda: pa.Array.from_buffers(
            pa.decimal128(3, 1), rows, [None, pa.py_buffer(rng.bytes(16 * rows))]
        ),
        lambda: pa.Array.from_buffers(pa.date64(), rows, [None, pa.py_buffer(rng.bytes(8 * rows))]),
    ]
    return kinds[rng.integers(len(kinds))]()


def _table(rng: np.random.Generator, *, damage: bool) -> tuple[list[str], list[Any]]:
    """Names and columns: the weather, some of them changed, renamed, repeated or left out."""
    table = _weather(rng)
    names, columns = list(table), list(table.values())
    rows = len(columns[0])
    for _ in range(rng.integers(0, 4)):
        place = int(rng.integers(len(names)))
        kind = columns[place].type
        match int(rng.integers(16)):
            case 0:
                names.append(names[place])
                columns.append(columns[place])
            case 1 if len(names) > 1:
                del names[place], columns[place]
            case 2 | 3:
                names[place] = str(rng.choice(NAMES))
            case 4 | 5 if pa.types.is_primitive(kind) or pa.types.is_string(kind):
                order = rng.permutation(rows) if rng.random() < 0.5 else np.zeros(rows, np.int64)
                columns[place] = columns[place].take(pa.array(order))
            case _:
                columns[place] = _cells(rng, rows)
    if damage and rows:
        columns[int(rng.integers(len(columns)))] = _damaged(rng, rows)
    if rng.random() < 0.01:
        names += [f"w{number}" for number in range(300)]
        columns += [columns[-1]] * 300
    return names, columns


def _packed(rng: np.random.Generator, form: str) -> bytes:
    damaged = form != "parquet" and rng.random() < 0.3
    names, columns = _table(rng, damage=damaged)
    table = pa.Table.from_arrays(columns, names)
    out = io.BytesIO()
    if form == "parquet":
        how = {"compression": str(rng.choice(["none", "snappy", "gzip", "zstd"]))}
        pq.write_table(
            table,
            out,
            row_group_size=int(rng.choice([3, 1000])),
            data_page_version=str(rng.choice(["1.0", "2.0"])),
            use_dictionary=bool(rng.random() < 0.5),
            **how,
        )
        return out.getvalue()
    squeezed = rng.choice([None, None, "lz4", "zstd"])
    options = ipc.IpcWriteOptions(
        compression=None if squeezed is None else str(squeezed),
        emit_dictionary_deltas=True,
        unify_dictionaries=form == "arrow",
    )
    make = ipc.new_file if form == "arrow" else ipc.new_stream
    with make(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=1000 if damaged else int(rng.choice([3, 1000])))
    return out.getvalue()


def _text(rng: np.random.Generator, mark: str) -> bytes:
    """A table as text, with odd cells, lines and encodings."""
    names, columns = _table(rng, damage=False)
    cells = []
    for column in columns:
        try:
            found = column.cast(pa.string()).to_pylist()
        except (pa.ArrowException, ValueError):
            found = [str(column.type)] * len(column)
        cells.append(["" if cell is None else cell for cell in found])
    lines = [names, *zip(*cells, strict=True)]
    quote = rng.random() < 0.7
    text = [
        mark.join(
            '"' + cell.replace('"', '""') + '"' if quote and set(cell) & {mark, '"', "\n"} else cell
            for cell in line
        )
        for line in lines
    ]
    for _ in range(rng.integers(0, 3)):
        place = int(rng.integers(len(text)))
        match int(rng.integers(8)):
            case 0:
                text[place] += mark + "more"
            case 1:
                text[place] = text[place].rpartition(mark)[0]
            case 2:
                text[place] = ""
            case 3:
                text[place] += '"'
            case 4:
                text[place] = '"' + text[place]
            case 5:
                text[place] = text[place].replace(
                    mark, str(rng.choice([";", "|", "\t", "\0", "  "]))
                )
            case 6:
                text[place] += "x" * int(rng.choice([200, 140_000, 6_000_000], p=[0.8, 0.19, 0.01]))
            case 7:
                text[place] = str(rng.choice(WORDS))
    end = str(rng.choice(["\n", "\r\n", "\r", "\n\n", "\x0b"], p=[0.8, 0.05, 0.05, 0.05, 0.05]))
    code = "utf-8"
    if rng.random() < 0.1:
        code = str(
            rng.choice(
                ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "utf-7"]
            )
        )
    return end.join([*text, ""]).encode(code, "replace")


def _struck(rng: np.random.Generator, data: bytes) -> bytes:
    """The bytes after accidents: flips, cuts, holes, pieces twice, numbers at the edges."""
    found = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 2, 4, 8]))):
        if not found:
            break
        place = int(rng.integers(len(found)))
        size = int(rng.choice([1, 4, 16, 300]))
        match int(rng.integers(8)):
            case 0 | 1:
                found[place] ^= 1 << int(rng.integers(8))
            case 2:
                found[place] = int(rng.integers(256))
            case 3:
                number = int(rng.choice([0, 1, -1, 2**31 - 1, -(2**31), 2**24, len(found)]))
                place &= ~3
                found[place : place + 4] = (number % 2**32).to_bytes(4, "little")
            case 4:
                del found[place:]
            case 5:
                del found[place : place + size]
            case 6:
                found[place:place] = rng.bytes(size)
            case 7:
                found[place:place] = found[:size] if rng.random() < 0.5 else bytes(size)
    return bytes(found)


_FORMS = {
    "csv": ["x.csv", "x.txt", "-"],
    "tsv": ["x.tsv"],
    "csv.gz": ["x.csv.gz"],
    "arrow": ["x.arrow", "x.feather", "x.arrow.gz", "-"],
    "stream": ["x.arrow", "x.ipc"],
    "parquet": ["x.parquet", "x.pq", "-"],
}


def case(number: int, seed: int = 0) -> Case:
    """The case of this number."""
    rng = np.random.default_rng([seed, number])
    form = str(rng.choice(list(_FORMS)))
    if form in ("arrow", "stream", "parquet"):
        data = b""
        while not data:
            with contextlib.suppress(pa.ArrowException, OverflowError):  # Parquet lacks some types
                data = _packed(rng, form)
    else:
        data = _text(rng, "\t" if form == "tsv" else ",")
        if rng.random() < 0.3:
            data = _struck(rng, data)
        if form == "csv.gz":
            data = gzip.compress(data, mtime=0)
    if form not in ("csv", "tsv") and rng.random() < 0.5:
        data = _struck(rng, data)
    name = str(rng.choice(_FORMS[form]))
    if rng.random() < 0.01:
        name = str(rng.choice([name for names in _FORMS.values() for name in names]))
    if name.endswith(".arrow.gz"):
        data = gzip.compress(data, mtime=0)
    doors = [
        "fit",
        "score",
        "impute",
        "validate",
        "watch" if form in ("csv", "tsv") else "from_table",
    ]
    door = str(rng.choice(doors[:4] if form == "csv.gz" else doors))
    if number % COMMAND_EVERY == 0:
        door = "command " + str(rng.choice(sorted(_COMMANDS)))
    return Case(name, data, door)


# Doors


_COMMANDS = {
    "score": ["score", "weather.dspn", "DATA"],
    "impute": ["impute", "weather.dspn", "DATA"],
    "impute json": ["impute", "weather.dspn", "DATA", "--json"],
    "impute parquet": ["impute", "weather.dspn", "DATA", "-o", "out.parquet"],
    "complete arrow": ["complete", "weather.dspn", "DATA", "-o", "out.arrow",
                       "--unknown", "missing"],
    "forecast": ["forecast", "weather.dspn", "DATA", "--steps", "2"],
    "surprise": ["surprise", "weather.dspn", "DATA", "--digits", "3"],
    "surprise ranked": ["surprise", "weather.dspn", "DATA", "--by", "sequence", "--sort"],
    "validate": ["validate", "DATA", "-s", "day"],
    "validate model": ["validate", "DATA", "--model", "weather.dspn"],
    "classify": ["classify", "predict", "classes.dspn", "DATA"],
    "fit": ["fit", "DATA", "-s", "day", "-t", "hour", "--learner", "em", "--interfaces", "2",
            "--time-limit", "1", "-o", "out.dspn"],
    "plot": ["plot", "imputed", "weather.dspn", "DATA", "-o", "out.png"],
    "watch": ["watch", "weather.dspn"],
}  # fmt: skip


def _prepare() -> None:
    """Models in the working directory."""
    import dspn

    schema = dspn.Schema(
        (
            dspn.Variable.categorical("sky", ["clear", "rain"]),
            dspn.Variable.continuous("celsius"),
            dspn.Variable.count("visitors"),
        )
    )
    emissions = {
        "sky": [[0.9, 0.1], [0.3, 0.7]],
        "celsius": [[20.0, 9.0], [14.0, 4.0]],
        "visitors": [[9.0], [4.0]],
    }
    known = dspn.Model.from_hmm([0.6, 0.4], [[0.9, 0.1], [0.3, 0.7]], emissions, schema=schema)
    keys = {"table": {"sequence": "day", "order": "hour"}}
    dspn.Model(known.mixture, provenance=keys).save("weather.dspn")
    rows = known.sample(8, 4, rng=np.random.default_rng(0))
    classifier = dspn.DSPNClassifier(dspn.HMM(1), random_state=0).fit(rows, np.arange(8) % 2)
    classifier.save("classes.dspn", provenance={**keys, "label": "note"})


def _command(words: list[str], one: Case) -> str:
    """How a command ended: 'read' or 'refused', or what it said instead."""
    from dspn.cli.app import run

    piped = io.BytesIO(one.data if one.name == "-" or words[0] == "watch" else b"")
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    before, sys.stdin = sys.stdin, io.TextIOWrapper(piped, "utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run([one.name if word == "DATA" else word for word in words])
    finally:
        sys.stdin = before
    if status == 0:
        return "read"
    said = err.getvalue().splitlines() or ["validate says what is wrong on standard output"]
    if status not in (1, 2) or "(--debug shows where)" in said[-1]:
        return f"status {status}: {said[-1][:300]}"
    return "refused"


def _from_table(one: Case) -> str:
    """The bytes as Arrow reads them, unchecked, and as a table of Python."""
    import dspn

    try:
        data = gzip.decompress(one.data) if one.name.endswith(".gz") else one.data
        if data[:4] == b"PAR1":
            table = pq.read_table(io.BytesIO(data), use_threads=False)
        else:
            open_table = ipc.open_file if data[:6] == b"ARROW1" else ipc.open_stream
            table = open_table(data).read_all()
    except (pa.ArrowException, OSError, ValueError, EOFError, zlib.error):
        return "refused by Arrow"
    dspn.Sequences.from_table(table, sequence="day", order="hour")
    return "read"


def tried(one: Case) -> str:
    """How a case ends: 'read', 'refused' or 'refused by Arrow', or what is wrong."""
    from dspn.cli.fit import read_training_data
    from dspn.cli.inspect import validate
    from dspn.cli.options import Reading, Table
    from dspn.errors import DspnError

    if one.name != "-":
        Path(one.name).write_bytes(one.data)
    door, _, command = one.door.partition(" ")
    try:
        if door == "command":
            return _command(_COMMANDS[command], one)
        if door in ("score", "impute", "watch"):
            return _command(_COMMANDS[door], one)
        if door == "from_table":
            return _from_table(one)
        if one.name == "-":
            return _command(_COMMANDS["validate"], one)
        if door == "validate":
            words = (one.name, Path("weather.dspn"), Reading())
            with contextlib.redirect_stdout(io.StringIO()):
                return "read" if validate(*words, as_json=False, quiet=True) else "refused"
        read_training_data(Table(data=one.name, read=Reading("day", "hour")), quiet=True)
    except DspnError:
        return "refused"
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return "read"


def _peak() -> int:
    """The most memory that this process has held since it was last asked to forget."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024


def _work(seed: int) -> None:
    """Tries the cases whose numbers come on standard input, in a directory of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (32 * 2**30,) * 2)
    answers, questions = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        _prepare()
        for door in ("command fit", "command plot", "score"):  # what is imported and compiled once
            tried(Case("x.csv", b"day,hour,sky,celsius,visitors\na,1,rain,1.5,2\n", door))
        print("ready", file=answers, flush=True)
        for line in questions:
            one = case(int(line), seed)
            print(one.door, file=answers, flush=True)
            Path("/proc/self/clear_refs").write_text("5")
            begun = time.process_time()
            outcome = tried(one)
            seconds = time.process_time() - begun
            for left in set(os.listdir()) - {"weather.dspn", "classes.dspn"}:
                os.remove(left)
            told = {"outcome": outcome, "seconds": seconds, "bytes": _peak()}
            print(json.dumps(told), file=answers, flush=True)


class Found(NamedTuple):
    """How one case ended."""

    number: int
    door: str
    outcome: str
    seconds: float
    bytes: int

    @property
    def is_failure(self) -> bool:
        named = self.outcome in ("read", "refused", "refused by Arrow")
        return not named or self.seconds > MOST_SECONDS or self.bytes > MOST_BYTES


def campaign(numbers: list[int], seed: int = 0) -> Iterator[Found]:
    """Every case in a worker process, which is started again after a case that ended it."""
    left = list(reversed(numbers))
    while left:
        with subprocess.Popen(
            [sys.executable, __file__, "--worker", "--seed", str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        ) as worker:
            assert worker.stdin is not None and worker.stdout is not None
            selector = selectors.DefaultSelector()
            selector.register(worker.stdout, selectors.EVENT_READ)
            assert worker.stdout.readline() == b"ready\n"
            while left:
                number = left.pop()
                worker.stdin.write(b"%d\n" % number)
                door = worker.stdout.readline().decode().strip()
                ends = bool(selector.select(PATIENCE))
                line = worker.stdout.readline() if ends else b""
                if not line:
                    if not ends:
                        worker.kill()
                    said = f"signal {-worker.wait()}" if ends else "no end"
                    yield Found(number, door, said, PATIENCE, 0)
                    break
                yield Found(number, door, **json.loads(line))
            worker.stdin.close()


def main() -> int:
    """Runs the cases and says how they ended; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="number of cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep", metavar="NUMBER", type=int, help="write this case's file, run none"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.worker:
        _work(told.seed)
        return 0
    if told.keep is not None:
        one = case(told.keep, told.seed)
        name = "piped" if one.name == "-" else one.name
        Path(name).write_bytes(one.data)
        print(f"{one.door}: wrote {name}, {len(one.data):,} bytes")
        return 0
    found = []
    for one in campaign(list(range(told.first, told.first + told.count)), told.seed):
        found.append(one)
        if one.is_failure:
            print(*one, flush=True)
    for (door, outcome), count in sorted(
        Counter((own.door.partition(" ")[0], own.outcome[:40]) for own in found).items()
    ):
        print(f"{door:12} {outcome:42} {count:6,}")
    failures = sum(own.is_failure for own in found)
    slowest, largest = max(found, key=lambda o: o.seconds), max(found, key=lambda o: o.bytes)
    print(
        f"{len(found):,} cases, {failures:,} failures; at most {slowest.seconds:.2f} s (case "
        f"{slowest.number}) and {largest.bytes / 2**20:.0f} MiB (case {largest.number})"
    )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())

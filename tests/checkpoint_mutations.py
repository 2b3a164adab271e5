"""Checkpoints that were damaged or made up: each ends in a resumed run or in a named error.

`python tests/checkpoint_mutations.py 10000 [SEED]` makes as many directories of the automatic
learner and files of the paper's, opens each as a resumed run does, and goes on with every 50th.
"""

import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from dspn import EmOptions, Schema, Sequences, Variable
from dspn.errors import DspnError
from dspn.executors import Serial
from dspn.io.files import Contents, pack, unpack
from dspn.learning.auto import Auto, learn_auto
from dspn.learning.auto.base import AutoTask, Try
from dspn.learning.auto.journal import Journal
from dspn.learning.growth import GrowthOptions
from dspn.learning.learner import Plan, _Run, learn
from dspn.learning.run import CheckpointFile, Clock, describe_run
from dspn.learning.search import SearchOptions
from dspn.structure import Root

MOST_SECONDS: Final = 10.0
MOST_MEBIBYTES: Final = 1 << 10
_EVERY: Final = 50  # of the checkpoints are gone on from, too

SCHEMA = Schema((Variable.binary("x"), Variable.continuous("y")))
EM = EmOptions(max_steps=1)
OPTIONS = Auto(effort=1e3, patience=1, em=EM, refit=EM)
PLAN = Plan(
    growth=GrowthOptions(max_interfaces=2, num_starts=1, num_random=0, em=EM),
    search=SearchOptions(max_neighbours=2, round_size=1, new_part=EM, whole=EM),
    refit=None,
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 7, 10**400, -(10**30), 0.5, -0.5, 1e300, "", "x", "\x1b[31m"),
    *([], [[]], [None], {}, {"": None}, {"class": "x"}, [1, 2, 3], "1" * 5000, "\ud800"),
)


def drawn(count: int, seed: int) -> Sequences:
    rng = np.random.default_rng(seed)
    arrays = [
        np.stack([rng.random(4) < 0.5, rng.normal(size=4)], axis=1).astype(np.float64)
        for _ in range(count)
    ]
    return Sequences.from_arrays(arrays, schema=SCHEMA)


TRAIN, VALIDATION = drawn(12, 0), drawn(5, 1)


def task_of(seed: int) -> AutoTask:
    return AutoTask(TRAIN, VALIDATION, OPTIONS, None, seed, Root.FIRST, True, Serial(), Clock())


@final
@dataclass(frozen=True)
class Originals:
    """A whole directory and a whole file, those of another seed, and the tries of the first."""

    directory: Path
    file: Path
    tries: tuple[Try, ...]

    @classmethod
    def made(cls, place: Path) -> "Originals":
        tries: tuple[Try, ...] = ()
        for seed in (1, 0):
            found = learn_auto(
                TRAIN, VALIDATION, seed=seed, options=OPTIONS, checkpoint=place / f"auto{seed}"
            )
            learn(TRAIN, VALIDATION, seed=seed, plan=PLAN, checkpoint=place / f"paper{seed}.dspn")
            own = (item.candidate for item in found.tried)
            tries = tuple(Try(one.number, one.block, one.recipe) for one in own)
        return cls(place / "auto0", place / "paper0.dspn", tries)


# Changes.


def _flipped(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for place in rng.integers(0, max(1, len(data)), rng.integers(1, 4)).tolist():
        if changed:
            changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: int(rng.integers(0, len(data) + 1))]


def _spliced(data: bytes, rng: np.random.Generator) -> bytes:
    first, last = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    middle = [b"", bytes(64), b"[" * 5000, data[first:last] * 2, b"\xff\xfe"]
    return data[:first] + middle[int(rng.integers(len(middle)))] + data[last:]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in JSON; the way to each."""
    yield path
    if isinstance(value, dict):
        for key, own in value.items():
            yield from _places(own, (*path, key))
    elif isinstance(value, list):
        for key, own in enumerate(value):
            yield from _places(own, (*path, key))


def _changed_json(value: Any, rng: np.random.Generator) -> Any:
    """JSON with one to three entries replaced, left out, doubled or nested."""
    for _ in range(int(rng.integers(1, 4))):
        ways = list(_places(value))
        way = ways[int(rng.integers(len(ways)))]
        new = deepcopy(VALUES[int(rng.integers(len(VALUES)))])
        if not way:
            if rng.random() < 0.1:
                value = new
            continue
        owner = value
        for key in way[:-1]:
            owner = owner[key]
        last = way[-1]
        match int(rng.integers(5)):
            case 0:
                del owner[last]
            case 1 if isinstance(owner, dict):
                owner[f"{last}x"] = owner.pop(last)
            case 1:
                owner.append(owner[last])
            case 2:
                for _ in range(int(rng.choice([1, 70, 900]))):
                    owner[last] = [owner[last]]
            case 3 if isinstance(owner[last], int | float):
                owner[last] = owner[last] * int(rng.choice([-1, 2, 10**9])) + 1
            case _:
                owner[last] = new
    return value


def _rewritten(data: bytes, rng: np.random.Generator) -> bytes:
    """A file with other words, whole and with the right checksum."""
    try:
        contents = unpack(data)
        metadata = json.loads(json.dumps(contents.metadata))
        whole = rng.random() < 0.3
        if whole:
            metadata = _changed_json(metadata, rng)
        else:
            metadata["provenance"] = _changed_json(metadata["provenance"], rng)
        tensors = dict(contents.tensors)
        if rng.random() < 0.2:
            name = sorted(tensors)[int(rng.integers(len(tensors)))]
            tensors[name] = rng.permutation(tensors[name])
        return pack(Contents(tensors, metadata, contents.version))
    except (DspnError, LookupError, RecursionError, TypeError, ValueError):
        # What cannot be written is not met either.
        return _flipped(data, rng)


def _rewritten_json(data: bytes, rng: np.random.Generator) -> bytes:
    try:
        return json.dumps(_changed_json(json.loads(data), rng)).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"[" * 100_000


def mutated(path: Path, others: Path, rng: np.random.Generator) -> str:
    """Changes one file, in a way that is told."""
    data = path.read_bytes()
    foreign = sorted(others.rglob("*.dspn"))
    structured = _rewritten if path.suffix == ".dspn" else _rewritten_json
    ways: dict[str, Callable[[], object]] = {
        "flipped": lambda: path.write_bytes(_flipped(data, rng)),
        "cut": lambda: path.write_bytes(_cut(data, rng)),
        "spliced": lambda: path.write_bytes(_spliced(data, rng)),
        "rewritten": lambda: path.write_bytes(structured(data, rng)),
        "rewritten twice": lambda: path.write_bytes(structured(structured(data, rng), rng)),
        "missing": path.unlink,
        "swapped": lambda: shutil.copyfile(foreign[int(rng.integers(len(foreign)))], path),
        "directory": lambda: (path.unlink(), path.mkdir()),
        "link": lambda: (path.unlink(), path.symlink_to(foreign[0])),
        "pipe": lambda: (path.unlink(), os.mkfifo(path)),
    }
    shares = np.array([3, 2, 2, 6, 3, 1, 2, 0.3, 0.3, 0.3])
    way = str(rng.choice(list(ways), p=shares / shares.sum()))
    ways[way]()
    return way


# Outcomes.


def _opened_directory(path: Path, originals: Originals, goes_on: bool) -> None:
    task = task_of(0)
    if goes_on:
        learn_auto(TRAIN, VALIDATION, seed=0, options=OPTIONS, checkpoint=path, resume=True)
        return
    with Journal.held(path, task, resume=True) as journal:
        for attempt in originals.tries:
            journal.recall(attempt, task)


def _opened_file(path: Path, goes_on: bool) -> None:
    if goes_on:
        learn(TRAIN, VALIDATION, seed=0, plan=PLAN, checkpoint=path, resume=True)
        return
    run = _Run(TRAIN, VALIDATION, PLAN, 0, Serial(), Clock())
    description = describe_run(TRAIN, VALIDATION, 0, plan=PLAN.to_json())
    file = CheckpointFile(path, description, 60.0)
    with file.hold():
        file.load(run.read_state)


def outcome_of(number: int, seed: int, originals: Originals, place: Path) -> tuple[str, str]:
    """What was changed, and how a run ends that is to go on from it."""
    rng = np.random.default_rng([seed, number])
    goes_on = number % _EVERY == 0
    own = place / f"run{number}"
    own.mkdir()
    others = originals.directory.parent
    try:
        if rng.random() < 0.65:
            shutil.copytree(originals.directory, own, dirs_exist_ok=True)
            files = sorted(own.iterdir())
            first = rng.random() < 0.4
            path = own / "run.json" if first else files[int(rng.integers(len(files)))]
            way = mutated(path, others, rng)
            _opened_directory(own, originals, goes_on)
        else:
            path = own / "run.dspn"
            shutil.copyfile(originals.file, path)
            way = mutated(path, others, rng)
            _opened_file(path, goes_on)
    except DspnError as error:
        assert len(str(error)) < 5_000, f"a message of {len(str(error))} characters"
        str(error).encode()
        return way, type(error).__name__
    finally:
        shutil.rmtree(own)
    return way, "resumed"


def campaign(count: int, seed: int = 0) -> tuple[Counter[tuple[str, str]], list[str], float]:
    """How many ended how; what was wrong; and the longest time."""
    found: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    longest = 0.0
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        originals = Originals.made(Path(place) / "originals")
        for number in range(count):
            begun = time.monotonic()
            try:
                found[outcome_of(number, seed, originals, Path(place))] += 1
            except Exception:
                wrong.append(f"{number}: {traceback.format_exc(limit=-3)}")
            took = time.monotonic() - begun
            longest = max(longest, took)
            if took > MOST_SECONDS:
                wrong.append(f"{number}: {took:.1f} s")
    return found, wrong, longest


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]] or [10_000]
    found, wrong, longest = campaign(*asked)
    for (way, ending), times in sorted(found.items()):
        print(f"{way:16} {ending:16} {times:6}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    if peak > MOST_MEBIBYTES:
        wrong.append(f"{peak} MiB")
    print(f"{sum(found.values())} ended as they should, {len(wrong)} did not; {longest:.2f} s the")
    print(f"longest, {peak} MiB at most")
    print(*wrong[:5], sep="\n")
    sys.exit(bool(wrong))

"""Data sets larger than memory, measured: preparation, one step of learning, Ray, lost nodes.

    python -m benchmarks.scale step FOLDER --slices 1e8    shards of that many slices, one EM step
    python -m benchmarks.scale unsorted FOLDER --slices 1e8    an unsorted CSV into shards
    python -m benchmarks.scale nodes FOLDER    the same model file with 1, 2, 3 nodes and lost ones
    python -m benchmarks.scale overhead    Ray against processes, tasks of half a second

Every command prints what it measures. Data are made where the folder does not have them yet.
"""

import argparse
import hashlib
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import dspn
from dspn.data.dataset import Dataset
from dspn.data.prepare import prepare
from dspn.engine import compile_program
from dspn.executors import Executor, Processes, Ray, Serial
from dspn.learning.em import EmOptions
from dspn.learning.shards import ShardedPart
from dspn.structure.build import initial_network

NUM_BITS: Final = 13
LENGTH: Final = 64
FILE_ROWS: Final = 2_000_000
STATES: Final = 32


def rows(places: Any, rng: np.random.Generator) -> Any:
    """Slices of the sequences at these places, with bits that depend on the sequence."""
    ids, slices = places // LENGTH, places % LENGTH
    odds = np.where((ids % 3)[:, None] == np.arange(NUM_BITS) % 3, 200, 60)
    bits = rng.integers(0, 256, (places.size, NUM_BITS), dtype=np.uint8) < odds
    columns = {"id": ids, "t": slices.astype(np.int32)}
    columns |= {f"b{j}": bits[:, j].astype(np.uint8) for j in range(NUM_BITS)}
    return pa.table(columns)


def process_tree(root: int) -> list[int]:
    """A process and all that it has started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [root]
    for process in found:
        found += [own for own, parent in parents.items() if parent == process]
    return found


def held_bytes(process: int) -> int:
    """Memory of a process, without pages of files that the system can drop."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return 1024 * sum(int(sizes[name].split()[0]) for name in ("RssAnon", "RssShmem"))
    return 0


@contextmanager
def watched(title: str, count: int) -> Iterator[None]:
    """Prints the time, the rows a second, and the highest memory of any process of the work."""
    highest, is_over = 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not is_over.wait(0.2):
            highest = max([highest, *map(held_bytes, process_tree(os.getpid()))])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    begun = time.perf_counter()
    yield
    seconds = time.perf_counter() - begun
    is_over.set()
    watcher.join()
    print(
        f"{title}: {seconds:.1f} s, {count / seconds / 1e6:.3f} million rows a second, "
        f"{1e6 * seconds / count:.3f} us a row; highest memory of a process "
        f"{highest / 2**30:.2f} GiB",
        flush=True,
    )


def step(folder: Path, slices: int, jobs: int) -> None:
    """Shards of sorted Parquet files, and one EM step of 32 states on them, beside memory."""
    source, shards = folder / f"parquet-{slices}", folder / f"shards-{slices}"
    if not source.exists():
        source.mkdir(parents=True)
        for number, start in enumerate(range(0, slices, FILE_ROWS)):
            places = np.arange(start, min(start + FILE_ROWS, slices))
            table = rows(places, np.random.default_rng([1, number]))
            pa.parquet.write_table(table, source / f"{number:05d}.parquet")
    executor: Executor = Processes(jobs) if jobs > 1 else Serial()
    if jobs > 1:
        executor.share(0)
    if not (shards / "dataset.json").exists():
        with watched(f"prepare {slices:,} rows of Parquet", slices):
            prepare(source, shards, sequence="id", order="t", executor=executor)
    data = Dataset.open(shards)
    network = initial_network(data.schema, STATES, rng=np.random.default_rng(0))
    program = compile_program(network)
    some = data.shards[0].load()
    assert some is not None
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        program.expected_flows(some)
        times.append(time.perf_counter() - begun)
    memory = min(times) / some.total_slices
    print(f"in memory, {os.cpu_count()} threads: {1e6 * memory:.3f} us a slice", flush=True)
    part = ShardedPart.of(data, executor)
    begun = time.perf_counter()
    with watched(f"one EM step on {len(data.shards)} shards", slices):
        found = part.flows(program)
    ratio = (time.perf_counter() - begun) / slices / memory
    print(f"{ratio:.2f} times the time in memory; {part.mean(found.log_likelihood):.4f} nats")
    begun = time.perf_counter()
    program.expected_flows(some)
    again = (time.perf_counter() - begun) / some.total_slices
    print(f"in memory afterwards: {1e6 * again:.3f} us a slice", flush=True)


def unsorted(folder: Path, slices: int, jobs: int, files: int) -> None:
    """CSV files whose rows lie anywhere, into shards."""
    source, shards = folder / f"csv-{slices}", folder / f"shards-of-csv-{slices}"
    if not source.exists():
        source.mkdir(parents=True)
        factor = next(own for own in range(int(0.618 * slices), slices) if np.gcd(own, slices) == 1)
        for number in range(files):
            first, last = number * slices // files, (number + 1) * slices // files
            options = pa.csv.WriteOptions(quoting_style="none")
            rng = np.random.default_rng([2, number])
            with open(source / f"{number:03d}.csv", "wb") as file:
                for start in range(first, last, FILE_ROWS):
                    places = np.arange(start, min(start + FILE_ROWS, last)) * factor % slices
                    options.include_header = start == first
                    pa.csv.write_csv(rows(places, rng), file, options)
    size = sum(own.stat().st_size for own in source.iterdir())
    print(f"{size / 1e9:.2f} GB of CSV in {files} files", flush=True)
    shutil.rmtree(shards, ignore_errors=True)
    executor: Executor = Processes(jobs) if jobs > 1 else Serial()
    if jobs > 1:
        executor.share(0)
    with watched(f"unsorted CSV of {slices:,} rows", slices):
        data = prepare(source, shards, sequence="id", order="t", executor=executor)
    assert data.total_slices == slices
    own = [shard.chunk(data.keys) for shard in data.shards[:2]]
    assert all(
        np.array_equal(chunk.table["t"].cast(pa.int64()), np.tile(np.arange(LENGTH), len(found)))
        for chunk, found in own
    )


def learned(data: Dataset, executor: Executor, path: Path) -> str:
    """The SHA-256 of the model file that the executor learns."""
    em = EmOptions(max_steps=6, tolerance=0)
    dspn.HMM(16, em=em, random_state=0, executor=executor).fit(data).save(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def nodes(folder: Path) -> None:
    """Model files of 1, 2 and 3 nodes, and of 3 nodes of which one is killed at a random moment."""
    import ray
    from ray.cluster_utils import Cluster

    from dspn.executors import _connected_ray

    folder.mkdir(parents=True, exist_ok=True)
    table, shards = folder / "nodes.parquet", folder / "nodes-shards"
    if not shards.exists():
        pa.parquet.write_table(rows(np.arange(1_000_000), np.random.default_rng(3)), table)
        prepare(table, shards, sequence="id", order="t", shard_slices=20_000)
    data = Dataset.open(shards)
    begun = time.perf_counter()
    print("one process:", learned(data, Serial(), folder / "a.dspn"), flush=True)
    alone = time.perf_counter() - begun
    arguments = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
    cluster = Cluster(
        initialize_head=True, head_node_args={**arguments, "include_dashboard": False}
    )
    executor = Ray(cluster.address)
    for count in (1, 2, 3):
        if count > 1:
            cluster.add_node(**arguments)
            cluster.wait_for_nodes()
        begun = time.perf_counter()
        found = learned(data, executor, folder / "b.dspn")
        print(f"{count} nodes: {found}, {time.perf_counter() - begun:.1f} s", flush=True)
    draw = random.Random(0)
    for run in range(5):
        moment = draw.uniform(0.1, 0.6) * alone
        victim = sorted(cluster.worker_nodes, key=lambda own: own.node_id)[0]
        timer = threading.Timer(moment, cluster.remove_node, (victim, False))
        timer.start()
        found = learned(data, executor, folder / "c.dspn")
        timer.join()
        print(f"run {run}, a node killed after {moment:.1f} s: {found}", flush=True)
        cluster.add_node(**arguments)
        cluster.wait_for_nodes()
    ray.shutdown()
    _connected_ray.cache_clear()
    cluster.shutdown()


def busy(seconds: float) -> float:
    """Work of one core for about so long."""
    until, total = time.process_time() + seconds, 0.0
    while time.process_time() < until:
        total += float(np.square(np.arange(1000.0)).sum())
    return total


def overhead(count: int = 40) -> None:
    """Tasks of half a second by processes and by Ray, in turns."""
    cores = os.cpu_count() or 1
    executors: dict[str, Executor] = {"processes": Processes(cores), "Ray": Ray("local")}
    times: dict[str, list[float]] = {name: [] for name in executors}
    for executor in executors.values():
        executor.map(busy, [0.01] * cores)
    time.sleep(5)
    for _ in range(3):
        for name, executor in executors.items():
            begun = time.perf_counter()
            executor.map(busy, [0.5] * count)
            times[name].append(time.perf_counter() - begun)
    least = {name: min(own) for name, own in times.items()}
    print(
        f"{count} tasks of 0.5 s on {cores} cores: {least}, ratio "
        f"{least['Ray'] / least['processes']:.3f}"
    )


def main() -> None:
    """Runs one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["step", "unsorted", "nodes", "overhead"])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("out/scale"))
    parser.add_argument("--slices", type=float, default=1e7)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--files", type=int, default=8)
    given = parser.parse_args()
    slices = int(given.slices)
    commands: dict[str, Callable[[], None]] = {
        "step": lambda: step(given.folder, slices, given.jobs),
        "unsorted": lambda: unsorted(given.folder, slices, given.jobs, given.files),
        "nodes": lambda: nodes(given.folder),
        "overhead": overhead,
    }
    commands[given.command]()


if __name__ == "__main__":
    main()

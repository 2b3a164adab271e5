"""The GPU engine against JAX, dynamax, PyTorch and PyJuice on one card: `make bench-gpu`.

Every size runs in a process of its own, ours first and last in it, so that what fails loses nothing
but itself. Times are medians in milliseconds: of whole calls, which end with the results in the
machine's memory, and of the passes alone between two events of the card. Every line is printed and
kept as it is measured, and the tables of docs/speed.md follow at the end; `--tables FILE` prints
those of an earlier run. A peer that is not installed or fails says so in its place.

Jobs: A and B are hidden Markov models, C is an irregular template, L a chain of 4,096 nodes, M a
Monarch template of 16,384 nodes beside a dense one, P the CPU engine where Numba is installed. With
`--dry` everything runs with tiny sizes and NumPy in the place of a card.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import gpu_peers
from dspn import Schema, Sequences, Variable
from dspn.engine import Engine, compile_program
from dspn.engine.gpu import ENGINE, GpuEngine
from dspn.engine.gpu.device import HOPPER
from dspn.engine.gpu.flows import sums_there, used
from dspn.engine.gpu.passes import ChainRun
from dspn.structure import NetworkBuilder, assemble, from_hmm, initial_network

# Job, sequences, slices, variables, interface nodes; in a dry run the second line.
SIZES: Final = {
    "A": [("A 8,192 x 64", 8192, 64, 13, k) for k in (32, 128, 512, 2048)],
    "B": [("B 200 x 3,026", 200, 3026, 27, k) for k in (8, 32, 128)],
    "L": [("L 16,384 x 16", 16384, 16, 7, 4096)],
    "C": [("C1 8,192 x 64", 8192, 64, 13, 16), ("C2 200 x 3,026", 200, 3026, 13, 16)],
    "M": [("M 2,048 x 16", 2048, 16, 7, 16384)],
    "P": [("A 8,192 x 64", 8192, 64, 13, 128)],
}
_DENSE: Final = 4096  # nodes of the dense chain that stands beside the Monarch template
_SECONDS: Final = 400  # of one size


class Run:
    """What is measured in one process, and how."""

    def __init__(self, out: Path | None, *, dry: bool, peers: bool) -> None:
        self.out, self.dry, self.peers = out, dry, peers
        self.engine = GpuEngine("numpy") if dry else ENGINE

    def show(self, job: str, k: int, who: str, found: float | str) -> None:
        text = found if isinstance(found, str) else f"{found:.4f} ms"
        print(f"{job:32s} k={k:<6d} {who:36s} {text}", flush=True)
        if self.out is not None:
            with self.out.open("a") as file:
                file.write(json.dumps({"job": job, "k": k, "who": who, "ms": found}) + "\n")

    def guarded(self, job: str, k: int, who: str, measure: Callable[[], float | None]) -> None:
        """Shows what was measured, or why it was not."""
        try:
            found = measure()
            if found is not None:
                self.show(job, k, who, found)
        except ImportError as error:
            self.show(job, k, who, f"not installed ({error.name})")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{type(error).__name__}: {str(error)[:160]} ({last.name})"
            self.show(job, k, who, f"failed: {words}")

    def wait(self) -> None:
        """Until the card has done everything."""
        if not self.dry:
            import cupy

            cupy.cuda.Device().synchronize()

    def whole(self, call: Callable[[], Any]) -> float:
        """Median milliseconds of a call of ours on the clock."""
        return gpu_peers.median_time(call, self.wait, 0.0 if self.dry else 1.0)

    def passes(self, call: Callable[[], Any]) -> float:
        """Median milliseconds between two events of the card around a call."""
        if self.dry:
            return gpu_peers.median_time(call, self.wait, 0.0)
        import cupy

        for _ in range(3):
            call()
        found = []
        for _ in range(30):
            before, after = cupy.cuda.Event(), cupy.cuda.Event()
            before.record()
            call()
            after.record()
            after.synchronize()
            found.append(cupy.cuda.get_elapsed_time(before, after))
        return float(np.median(found))


class Case:
    """A dense hidden Markov model of binary variables, and random data."""

    def __init__(self, name: str, count: int, length: int, variables: int, k: int) -> None:
        rng = np.random.default_rng(0)
        self.name, self.count, self.length, self.k = name, count, length, k
        self.start = rng.dirichlet(np.ones(k))
        self.transition = rng.dirichlet(np.ones(k), size=k)
        self.p = rng.uniform(0.1, 0.9, size=(k, variables))
        self.values = (rng.random((count, length, variables)) < 0.5).astype(np.float64)
        schema = Schema(tuple(Variable.binary(f"x{v}") for v in range(variables)))
        emissions = {
            f"x{v}": np.stack([1 - self.p[:, v], self.p[:, v]], axis=1) for v in range(variables)
        }
        self.network = from_hmm(self.start, self.transition, emissions, schema=schema)
        offsets = np.arange(count + 1) * length
        self.data = Sequences.from_codes(self.values.reshape(-1, variables), offsets, schema)


class Irregular:
    """16 interface nodes, 64 dense sums, 85 mixtures of two products of leaves, as `Case`."""

    def __init__(self, name: str, count: int, length: int) -> None:
        rng = np.random.default_rng(1)
        variables, k = 13, 16
        self.name, self.count, self.length, self.k = name, count, length, k
        schema = Schema(tuple(Variable.binary(f"x{v}") for v in range(variables)))
        builder = NetworkBuilder(schema)
        inputs = builder.inputs(k)

        def leaves(own: range) -> int:
            made = []
            for v in own:
                p = rng.uniform(0.1, 0.9)
                made.append(builder.leaf(v, [1 - p, p]))
            return builder.product(made)

        halves = [range(7), range(7, variables)]
        pools = [
            [builder.sum([leaves(own), leaves(own)], rng.dirichlet([1, 1])) for _ in range(size)]
            for own, size in zip(halves, (42, 43), strict=True)
        ]
        outputs = []
        for _ in range(k):
            parts = [
                builder.product(
                    [
                        builder.sum(inputs, rng.dirichlet(np.ones(k))),
                        *(int(rng.choice(pool)) for pool in pools),
                    ]
                )
                for _ in range(4)
            ]
            outputs.append(builder.sum(parts, rng.dirichlet(np.ones(4))))
        top = NetworkBuilder(schema)
        root = top.sum(top.inputs(k), rng.dirichlet(np.ones(k)))
        self.network = assemble(builder.template(outputs), top.top(root))
        values = (rng.random((count * length, variables)) < 0.5).astype(np.float64)
        self.data = Sequences.from_codes(values, np.arange(count + 1) * length, schema)
        self.values = values.reshape(count, length, variables)


def ours(
    run: Run, case: Case, precision: str, which: str, note: str, engine: Engine | None = None
) -> None:
    """Whole calls, and the passes alone."""
    job, k = f"{case.name} {which}", case.k
    program = compile_program(case.network, engine=engine or run.engine, precision=precision)
    own: Any = program.components[0]

    def call() -> Any:
        if which == "likelihood":
            return program.log_likelihood(case.data)
        return program.rebind(case.network).expected_flows(case.data)

    run.guarded(job, k, f"dspn {precision}{note}, whole call", lambda: run.whole(call))

    def passes() -> float:
        bound: ChainRun = own.chain.run(own.device.batch(case.data))
        if which == "likelihood":
            return run.passes(lambda: bound.upward(0.0, keep=False))
        share = np.ones(case.count)
        return run.passes(lambda: bound.repeated("sums", sums_there, [share]))

    run.guarded(job, k, f"dspn {precision}{note}, passes", passes)


def stages(run: Run, case: Case) -> None:
    """Where the time of an EM step goes."""
    program: Any = compile_program(case.network, engine=run.engine, precision="single")
    own = program.components[0]
    bound: ChainRun = own.chain.run(own.device.batch(case.data))
    share = own.device.there(np.ones(case.count), bound.dtype)
    up = bound.upward(bound.range.under, keep=True)
    _, uses, _ = bound.downward(up, share)
    for name, once in {
        "binding": lambda: (
            ChainRun(
                bound.general, bound.layout, bound.batch, bound.dtype, tensor_cores=True
            ).tables
        ),
        "upward, kept": lambda: bound.upward(bound.range.under, keep=True),
        "downward": lambda: bound.downward(up, share),
        "flows of edges": lambda: used(bound, uses, up.vectors),
    }.items():
        run.guarded(f"{case.name} stages", case.k, name, lambda once=once: run.passes(once))


def chain(run: Run, case: Case) -> None:
    """Jobs A, B and L."""
    for which in ("likelihood", "EM"):
        ours(run, case, "single", which, "")
        if case.k <= 64:
            ours(run, case, "double", which, "")
        if run.peers:
            peers(run, case, which, [who for who in gpu_peers.CHAINS if who != "PyJuice"])
            ours(run, case, "single", which, " (again)")
    run.guarded(f"{case.name} stages", case.k, "stages", lambda: stages(run, case))
    if run.peers:
        for which in ("likelihood", "EM"):
            peers(run, case, which, ["PyJuice"])


def peers(run: Run, case: Case, which: str, names: list[str]) -> None:
    """Some of the others; PyTorch has no flows."""
    for who in names:
        if which == "likelihood" or not who.startswith("PyTorch"):
            peer = gpu_peers.CHAINS[who]
            run.guarded(f"{case.name} {which}", case.k, who, partial(peer, case, which))


def irregular(run: Run, case: Irregular) -> None:
    """Job C."""
    program = compile_program(case.network, engine=run.engine)
    own: Any = program.components[0]
    job = f"{case.name} likelihood"
    batch, every = own.device.batch(case.data), np.arange(case.count)
    whole = partial(run.whole, partial(program.log_likelihood, case.data))
    passes = partial(run.passes, partial(own.climb.run, batch, every, logs=False))
    for note in ("", " (again)"):
        run.guarded(job, case.k, f"dspn double{note}, whole call", whole)
        if own.climb.applies:
            run.guarded(job, case.k, f"dspn double{note}, passes", passes)
        if not note and run.peers:
            layers = partial(gpu_peers.torch_layers, case, program.log_likelihood(case.data))
            run.guarded(job, case.k, "PyTorch layers in a CUDA graph", layers)


def monarch(run: Run, name: str, count: int, length: int, variables: int, k: int) -> None:
    """Job M: one EM step, beside that of a dense chain whose time grows with the square of k."""
    small = Case(name, count, length, variables, min(_DENSE, k // 4))
    dense: list[float] = []

    def step(network: Any) -> Callable[[], Any]:
        program = compile_program(network, engine=run.engine, precision="single")
        return lambda: program.rebind(network).expected_flows(small.data)

    def measure_dense() -> float:
        dense.append(run.whole(step(small.network)))
        return dense[0]

    run.guarded(f"{name} EM", small.k, "dspn single, dense, whole call", measure_dense)
    run.guarded(
        f"{name} EM", k, "dense, extrapolated",
        lambda: dense[0] * (k / small.k) ** 2,
    )  # fmt: skip

    def measure() -> float:
        rng = np.random.default_rng(0)
        network = initial_network(small.network.schema, k, rng=rng, transitions="monarch")
        return run.whole(step(network))

    run.guarded(f"{name} EM", k, "dspn single, Monarch, whole call", measure)


def processor(run: Run, case: Case) -> None:
    """Job P: the CPU engine, which may be on another machine than the card."""

    def measure() -> float:
        import numba

        numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
        program = compile_program(case.network, engine="cpu", precision="single")
        call = lambda: program.rebind(case.network).expected_flows(case.data)  # noqa: E731
        return gpu_peers.median_time(call, lambda: None, 0.0)

    run.guarded(f"{case.name} EM", case.k, "CPU engine, two threads", measure)


def resources(run: Run) -> None:
    """Registers and local memory of every kernel that was used."""
    for (source, name, options), kernel in run.engine.device.kernels.items():  # type: ignore[attr-defined]
        given: Any = kernel
        if HOPPER in options:  # a plain function of CuPy, without these attributes
            continue
        print(
            f"# {source} {name} {' '.join(options)}: {given.num_regs} registers, "
            f"{given.local_size_bytes} bytes local, {given.shared_size_bytes} shared"
        )


def measure(run: Run, job: str, size: tuple[str, int, int, int, int]) -> None:
    """One size of one job, in this process."""
    before = time.perf_counter()
    if job == "M":
        monarch(run, *size)
    elif job == "C":
        irregular(run, Irregular(*size[:3]))
    elif job == "P":
        processor(run, Case(*size))
    else:
        chain(run, Case(*size))
    resources(run)
    print(f"# {size} took {time.perf_counter() - before:.1f} s", flush=True)


def tables(results: list[dict[str, Any]]) -> str:
    """The results as tables, a row for each number of nodes and a column for each that ran."""
    lines: list[str] = []
    for job in dict.fromkeys(own["job"] for own in results):
        rows = [own for own in results if own["job"] == job]
        columns = list(dict.fromkeys(own["who"] for own in rows))
        lines += ["", f"{job}, milliseconds", "", "| nodes | " + " | ".join(columns) + " |"]
        lines.append("|---" * (1 + len(columns)) + "|")
        for k in dict.fromkeys(own["k"] for own in rows):
            found = {own["who"]: own["ms"] for own in rows if own["k"] == k}
            cells = (found.get(who, "") for who in columns)
            texts = (own if isinstance(own, str) else f"{own:.3g}" for own in cells)
            lines.append(f"| {k:,} | " + " | ".join(texts) + " |")
        lines += ["", *_ratios(rows)]
    return "\n".join(lines)


def _ratios(rows: list[dict[str, Any]]) -> list[str]:
    """How many times as long the others took as the passes and the whole calls of ours."""
    lines = []
    for k in dict.fromkeys(own["k"] for own in rows):
        times = {own["who"]: own["ms"] for own in rows if own["k"] == k}
        times = {who: own for who, own in times.items() if not isinstance(own, str)}
        mine = [who for who in times if who.startswith("dspn ") and "again" not in who]
        for who in (who for who in times if not who.startswith("dspn ")):
            shares = ", ".join(f"{times[who] / times[own]:.1f}x {own}" for own in mine)
            if shares:
                lines.append(f"- {k:,} nodes: {who} takes {shares}")
    return lines


def read(path: Path) -> list[dict[str, Any]]:
    """Results that processes have kept, one in a line."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", default="A,B,C,L,M,P")
    parser.add_argument("--ours", action="store_true", help="leave the peers out")
    parser.add_argument("--out", type=Path, default=Path("out/gpu.jsonl"))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no size after these")
    parser.add_argument("--tables", type=Path, help="print the tables of these results")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, without a card")
    parser.add_argument("--one", help="a job and a number of its sizes, in this process")
    own = parser.parse_args(given)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if own.tables:
        print(tables(read(own.tables)))
        return
    run = Run(own.out, dry=own.dry, peers=not own.ours)
    own.out.parent.mkdir(parents=True, exist_ok=True)
    if own.one:
        job, number = own.one.split(":")
        measure(run, job, SIZES[job][int(number)])
        return
    own.out.unlink(missing_ok=True)
    start = time.perf_counter()
    for job in own.jobs.split(","):
        for number, (name, count, length, variables, k) in enumerate(SIZES[job]):
            if own.dry:
                tiny = (name, min(count, 6), min(length, 5), min(variables, 4), min(k, 16))
                measure(run, job, tiny)
                continue
            if time.perf_counter() - start > own.seconds:
                print(f"# not begun: {job}:{number}")
                continue
            command = [sys.executable, "-m", "benchmarks.gpu", "--one", f"{job}:{number}",
                       "--out", str(own.out), *(["--ours"] if own.ours else [])]  # fmt: skip
            try:
                code = subprocess.run(command, timeout=_SECONDS, check=False).returncode
            except subprocess.TimeoutExpired:
                code = 124
            if code:
                run.show(name, k, "process", f"failed: ended with {code}")
    print(tables(read(own.out)))


if __name__ == "__main__":
    main()

"""The GPU engine against scans in JAX and layers in PyTorch on one card: `make bench-gpu`.

Ours runs first and last in the same process; times are medians of repeated calls that end with the
results in the machine's memory, and of the kernels alone. Every line is printed as it is measured,
and a peer that is not installed or fails says so in its place.
"""

import argparse
import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dspn import Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.engine.gpu.chain import ChainRun
from dspn.structure import from_hmm

RESULTS: list[dict[str, Any]] = []


def show(job: str, who: str, milliseconds: float | str) -> None:
    text = milliseconds if isinstance(milliseconds, str) else f"{milliseconds:.4f} ms"
    print(f"{job:42s} {who:34s} {text}", flush=True)
    RESULTS.append({"job": job, "who": who, "ms": milliseconds})


def median_time(run: Callable[[], Any], sync: Callable[[], Any], seconds: float = 1.0) -> float:
    """Median milliseconds of a call, after two to warm up."""
    for _ in range(2):
        run()
    sync()
    found: list[float] = []
    start = time.perf_counter()
    while len(found) < 5 or (time.perf_counter() - start < seconds and len(found) < 100):
        before = time.perf_counter()
        run()
        sync()
        found.append(1e3 * (time.perf_counter() - before))
    return float(np.median(found))


def guarded(job: str, who: str, measure: Callable[[], float]) -> None:
    try:
        show(job, who, measure())
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        show(job, who, f"failed: {type(error).__name__}: {str(error)[:160]} ({last.name})")


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


def ours(case: Case, precision: str, which: str, note: str) -> None:
    import cupy

    sync = cupy.cuda.Device().synchronize
    program = compile_program(case.network, engine="gpu", precision=precision)
    own: Any = program.components[0]
    if which == "likelihood":
        guarded(
            f"{case.name} likelihood k={case.k}",
            f"dspn {precision}{note}, whole call",
            lambda: median_time(lambda: program.log_likelihood(case.data), sync),
        )

        def kernels() -> float:
            run: ChainRun = own.chain.run(own.device.batch(case.data))
            return median_time(lambda: run.upward(0.0, keep=False), sync)

        guarded(f"{case.name} likelihood k={case.k}", f"dspn {precision}{note}, passes", kernels)
        return
    guarded(
        f"{case.name} EM k={case.k}",
        f"dspn {precision}{note}, whole call",
        lambda: median_time(
            lambda: program.rebind(case.network).expected_flows(case.data), sync
        ),
    )

    def flows() -> float:
        run: ChainRun = own.chain.run(own.device.batch(case.data))
        share = cupy.ones(case.count, dtype=run.dtype)

        def once() -> None:
            up = run.upward(run.range.under, keep=True)
            posteriors, uses, _ = run.downward(up, share)
            run.used(uses, up.vectors)
            run.counts(posteriors, "all")

        return median_time(once, sync)

    guarded(f"{case.name} EM k={case.k}", f"dspn {precision}{note}, passes", flows)


def stages(case: Case) -> None:
    """Where the time of our EM goes."""
    import cupy

    sync = cupy.cuda.Device().synchronize
    program: Any = compile_program(case.network, engine="gpu", precision="single").components[0]
    run = program.chain.run(program.device.batch(case.data))
    share = cupy.ones(case.count, dtype=run.dtype)
    up = run.upward(run.range.under, keep=True)
    posteriors, uses, _ = run.downward(up, share)
    for name, once in {
        "coefficients": lambda: run._joined(run.table) if not run.chunks.is_one else None,
        "upward kept": lambda: run.upward(run.range.under, keep=True),
        "downward": lambda: run.downward(up, share),
        "used": lambda: run.used(uses, up.vectors),
        "counts": lambda: run.counts(posteriors, "all"),
        "binding": lambda: ChainRun(
            run.general, run.layout, run.batch, run.dtype, tensor_cores=True
        ),
    }.items():
        guarded(f"{case.name} stage k={case.k}", name, lambda once=once: median_time(once, sync, 0.3))


def jax_scan(case: Case, which: str) -> None:
    """A scan of normalised forward vectors, as one writes it by hand; EM is value and gradient."""
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(case.values, jnp.float32).transpose(1, 0, 2)
    given = [
        jnp.asarray(a, jnp.float32)
        for a in (case.start, case.transition, np.log(case.p), np.log1p(-case.p))
    ]

    def log_likelihood(start: Any, transition: Any, log_p: Any, log_q: Any) -> Any:
        logs = jnp.einsum("tbv,kv->tbk", x, log_p - log_q) + log_q.sum(axis=1)
        top = logs.max(axis=2, keepdims=True)
        c = jnp.exp(logs - top)

        def step(v: Any, coefficients: Any) -> Any:
            v = (v @ transition) * coefficients
            total = v.sum(axis=1, keepdims=True)
            return v / total, jnp.log(total)[:, 0]

        first = start * c[0]
        total = first.sum(axis=1, keepdims=True)
        _, found = jax.lax.scan(step, first / total, c[1:])
        return found.sum(axis=0) + jnp.log(total)[:, 0] + top.sum(axis=(0, 2))

    if which == "likelihood":
        run = jax.jit(log_likelihood)
    else:
        run = jax.jit(
            jax.value_and_grad(lambda *own: log_likelihood(*own).sum(), argnums=(0, 1, 2, 3))
        )
    guarded(
        f"{case.name} {which} k={case.k}",
        "JAX scan",
        lambda: median_time(lambda: jax.block_until_ready(run(*given)), lambda: None),
    )


def torch_graph(case: Case) -> None:
    """A loop of torch operations captured in a CUDA graph."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device("cuda")
    x = torch.tensor(case.values, dtype=torch.float32, device=device).transpose(0, 1).contiguous()
    start, transition = (
        torch.tensor(a, dtype=torch.float32, device=device)
        for a in (case.start, case.transition)
    )
    log_p = torch.tensor(np.log(case.p), dtype=torch.float32, device=device)
    log_q = torch.tensor(np.log1p(-case.p), dtype=torch.float32, device=device)

    def once() -> Any:
        logs = x @ (log_p - log_q).T + log_q.sum(dim=1)
        top = logs.amax(dim=2, keepdim=True)
        c = torch.exp(logs - top)
        v = start * c[0]
        total = torch.zeros(case.count, device=device)
        for t in range(case.length):
            if t:
                v = (v @ transition) * c[t]
            s = v.sum(dim=1, keepdim=True)
            v = v / s
            total = total + torch.log(s)[:, 0]
        return total + top.sum(dim=(0, 2))

    def measure() -> float:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            once()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            once()
        return median_time(graph.replay, torch.cuda.synchronize)

    guarded(f"{case.name} likelihood k={case.k}", "torch in a CUDA graph", measure)
    torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", default="A,B")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ours", action="store_true", help="leave the peers out")
    parser.add_argument("--out", type=Path)
    own = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sizes = {
        "A": [("A 8192x64", 8192, 64, 13, k) for k in (32, 128, 512, 2048)],
        "B": [("B 200x3026", 200, 3026, 27, k) for k in (8, 32, 128)],
        "L": [("L 16384x16", 16384, 16, 7, 4096)],
    }
    for job in own.jobs.split(","):
        for size in sizes[job]:
            before = time.perf_counter()
            case = Case(*size)
            print(f"# {size}, made in {time.perf_counter() - before:.1f} s", flush=True)
            for which in ("likelihood", "EM"):
                ours(case, "single", which, "")
                if case.k <= 512:
                    ours(case, "double", which, "")
                if not own.ours:
                    guarded_peer = [lambda: jax_scan(case, which)]
                    if which == "likelihood" and job == "A":
                        guarded_peer.append(lambda: torch_graph(case))
                    for peer in guarded_peer:
                        try:
                            peer()
                        except Exception as error:
                            show(case.name, "peer", f"failed: {error!r:.200}")
                    ours(case, "single", which, " (again)")
            try:
                stages(case)
            except Exception as error:
                show(case.name, "stages", f"failed: {error!r:.300}")
            if own.out:
                own.out.write_text(json.dumps(RESULTS, indent=1))


if __name__ == "__main__":
    main()

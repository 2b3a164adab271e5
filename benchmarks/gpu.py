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
from dspn.engine.gpu.layout import bare_nodes, part_of
from dspn.structure import NetworkBuilder, assemble, from_hmm

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


def device_time(run: Callable[[], Any]) -> float:
    """Median milliseconds between two events of the card around a call."""
    import cupy

    for _ in range(3):
        run()
    found = []
    for _ in range(30):
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record()
        run()
        after.record()
        after.synchronize()
        found.append(cupy.cuda.get_elapsed_time(before, after))
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
            return device_time(lambda: run.upward(0.0, keep=False))

        guarded(f"{case.name} likelihood k={case.k}", f"dspn {precision}{note}, passes", kernels)
        return
    guarded(
        f"{case.name} EM k={case.k}",
        f"dspn {precision}{note}, whole call",
        lambda: median_time(lambda: program.rebind(case.network).expected_flows(case.data), sync),
    )

    def flows() -> float:
        run: ChainRun = own.chain.run(own.device.batch(case.data))
        share = cupy.ones(case.count, dtype=run.dtype)

        def once() -> None:
            up = run.upward(run.range.under, keep=True)
            posteriors, uses, _ = run.downward(up, share)
            run.used(uses, up.vectors)
            run.counts(posteriors, "all")

        return device_time(once)

    guarded(f"{case.name} EM k={case.k}", f"dspn {precision}{note}, passes", flows)


def stages(case: Case) -> None:
    """Where the time of our EM goes."""
    import cupy

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
        guarded(f"{case.name} stage k={case.k}", name, lambda once=once: device_time(once))


def jax_scan(case: Case, which: str) -> None:
    """A scan of normalised forward vectors, as one writes it by hand; EM is value and gradient."""
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(case.values, jnp.float32).transpose(1, 0, 2)
    given = [
        jnp.asarray(a, jnp.float32)
        for a in (case.start, case.transition, np.log(case.p), np.log1p(-case.p))
    ]

    def log_likelihood(start: Any, transition: Any, log_p: Any, log_q: Any, x: Any) -> Any:
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
        lambda: median_time(lambda: jax.block_until_ready(run(*given, x)), lambda: None),
    )


def torch_graph(case: Case) -> None:
    """A loop of torch operations captured in a CUDA graph."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device("cuda")
    x = torch.tensor(case.values, dtype=torch.float32, device=device).transpose(0, 1).contiguous()
    start, transition = (
        torch.tensor(a, dtype=torch.float32, device=device) for a in (case.start, case.transition)
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


def torch_layers(case: Irregular) -> None:
    """The steps of a slice as gathers and sums of torch tensors, in a CUDA graph."""
    import torch

    device = torch.device("cuda")
    part = part_of(case.network.template)
    bottom = part_of(case.network.template, without=bare_nodes(case.network.template))
    own = case.network.parameters
    x = torch.tensor(case.values, dtype=torch.float32, device=device)

    def bound(steps: Any) -> list[Any]:
        found = []
        for step in steps:
            children = np.broadcast_to(step.children, (step.nodes.size, step.width))
            weights = own.template.weights[step.places] if step.is_sum else None
            found.append(
                (
                    torch.tensor(step.nodes, device=device),
                    torch.tensor(children.copy(), device=device),
                    None
                    if weights is None
                    else torch.tensor(weights, dtype=torch.float32, device=device),
                )
            )
        return found

    steps, bottom_steps = bound(part.steps), bound(bottom.steps)
    tables = [torch.tensor(t, dtype=torch.float32, device=device) for t in own.template.leaves]
    banks = [torch.tensor(b.nodes, device=device) for b in case.network.template.banks]
    outputs = torch.tensor(case.network.template.outputs, device=device)
    inputs = torch.tensor(part.inputs, device=device)
    top = torch.tensor(own.top.weights, dtype=torch.float32, device=device)

    def once() -> Any:
        total = torch.zeros(case.count, device=device)
        vector = torch.ones((case.k, case.count), device=device)
        for t in reversed(range(case.length)):
            nodes_now = torch.ones((part.num_nodes, case.count), device=device)
            for v, (nodes, table) in enumerate(zip(banks, tables, strict=True)):
                nodes_now[nodes] = torch.where(x[:, t, v] > 0, table[:, 1:], table[:, :1])
            first = t == case.length - 1
            if not first:
                nodes_now[inputs] = vector
            for nodes, children, weights in bottom_steps if first else steps:
                terms = nodes_now[children]
                nodes_now[nodes] = (
                    terms.prod(dim=1)
                    if weights is None
                    else torch.einsum("mc,mcb->mb", weights, terms)
                )
            vector = nodes_now[outputs]
            s = vector.sum(dim=0)
            vector = vector / s
            total = total + torch.log(s)
        return total + torch.log(top @ vector)

    def measure() -> float:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            once()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = once()
        graph.replay()
        torch.cuda.synchronize()
        ours = compile_program(case.network, engine="gpu").log_likelihood(case.data)
        error = np.abs(found.cpu().numpy() - ours).max()
        print(f"# largest difference to dspn: {error:.2e} nats", flush=True)
        return median_time(graph.replay, torch.cuda.synchronize)

    guarded(f"{case.name} likelihood", "torch layers in a CUDA graph", measure)
    torch.cuda.empty_cache()


def irregular(case: Irregular, peers: bool) -> None:
    import cupy

    sync = cupy.cuda.Device().synchronize
    program = compile_program(case.network, engine="gpu")
    own: Any = program.components[0]
    batch, every = own.device.batch(case.data), np.arange(case.count)
    for note in ("", " (again)"):
        guarded(
            f"{case.name} likelihood",
            f"dspn double{note}, whole call",
            lambda: median_time(lambda: program.log_likelihood(case.data), sync),
        )
        if not note and peers:
            torch_layers(case)
    guarded(
        f"{case.name} likelihood",
        "dspn double, pass",
        lambda: device_time(lambda: own.climb.run(batch, every, logs=False)),
    )


def resources() -> None:
    """Registers and local memory of every kernel that was compiled."""
    from dspn.engine.gpu import ENGINE

    for (source, options), module in ENGINE.device._modules.items():  # type: ignore[attr-defined]
        for name in ("forward", "backward", "outer", "rise", "fall", "climb"):
            try:
                kernel = module.get_function(name)
            except Exception:
                continue
            print(
                f"# {source} {name} {' '.join(options)}: {kernel.num_regs} registers, "
                f"{kernel.local_size_bytes} bytes local, {kernel.shared_size_bytes} shared"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", default="A,B,C,L")
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
        if job == "C":
            irregular(Irregular("C1 8192x64", 8192, 64), not own.ours)
            irregular(Irregular("C2 200x3026", 200, 3026), False)
            continue
        for size in sizes[job]:
            before = time.perf_counter()
            case = Case(*size)
            print(f"# {size}, made in {time.perf_counter() - before:.1f} s", flush=True)
            for which in ("likelihood", "EM"):
                ours(case, "single", which, "")
                if case.k <= 64:
                    ours(case, "double", which, "")
                if not own.ours:
                    try:
                        jax_scan(case, which)
                        if which == "likelihood" and job == "A":
                            torch_graph(case)
                    except Exception as error:
                        show(case.name, "peer", f"failed: {error!r:.200}")
                    ours(case, "single", which, " (again)")
            try:
                stages(case)
            except Exception as error:
                show(case.name, "stages", f"failed: {error!r:.300}")
            if own.out:
                own.out.write_text(json.dumps(RESULTS, indent=1))
    resources()


if __name__ == "__main__":
    main()

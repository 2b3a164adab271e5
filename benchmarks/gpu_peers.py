"""What `benchmarks.gpu` measures beside the GPU engine, in milliseconds."""

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from dspn.engine.gpu.layout import bare_nodes, part_of


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


def _given(case: Any) -> tuple[Any, list[Any]]:
    import jax.numpy as jnp

    x = jnp.asarray(case.values, jnp.float32)
    arrays = (case.start, case.transition, np.log(case.p), np.log1p(-case.p))
    return x, [jnp.asarray(array, jnp.float32) for array in arrays]


def jax_scan(case: Any, which: str) -> float:
    """A scan of normalised forward vectors, as one writes it by hand; EM is value and gradient."""
    import jax
    import jax.numpy as jnp

    x, given = _given(case)
    x = x.transpose(1, 0, 2)

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
    return median_time(lambda: jax.block_until_ready(run(*given, x)), lambda: None)


def dynamax(case: Any, which: str) -> float:
    """Its filter, or its smoother with expected counts of transitions, over a batch."""
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import hmm_filter, hmm_smoother

    # Its import asks for products in full float32; TF32, JAX's choice, is several times as fast.
    jax.config.update("jax_default_matmul_precision", None)
    x, given = _given(case)

    def of_one(start: Any, transition: Any, log_p: Any, log_q: Any, own: Any) -> Any:
        logs = own @ (log_p - log_q).T + log_q.sum(axis=1)
        if which == "likelihood":
            return hmm_filter(start, transition, logs).marginal_loglik
        found = hmm_smoother(start, transition, logs)
        return found.marginal_loglik, found.trans_probs, found.smoothed_probs

    def of_all(start: Any, transition: Any, log_p: Any, log_q: Any, x: Any) -> Any:
        found = jax.vmap(of_one, (None, None, None, None, 0))(start, transition, log_p, log_q, x)
        if which == "likelihood":
            return found
        logs, transitions, states = found
        return logs, transitions.sum(axis=0), jnp.einsum("btk,btv->kv", states, x)

    run = jax.jit(of_all)
    return median_time(lambda: jax.block_until_ready(run(*given, x)), lambda: None)


def _in_a_graph(once: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of a replay of PyTorch operations captured in a CUDA graph, and its result."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = once()
    milliseconds = median_time(graph.replay, torch.cuda.synchronize)
    torch.cuda.empty_cache()
    return milliseconds, found


def torch_graph(case: Any, _: str) -> float:
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

    return _in_a_graph(once)[0]


def torch_layers(case: Any, ours: Any) -> float:
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

    milliseconds, found = _in_a_graph(once)
    error = np.abs(found.cpu().numpy() - ours).max()
    print(f"# largest difference to dspn: {error:.2e} nats", flush=True)
    return milliseconds


def pyjuice(case: Any, which: str) -> float:
    """Its hidden Markov model, whose emissions are all variables as one category."""
    import pyjuice as juice
    import torch

    device, variables = torch.device("cuda"), case.values.shape[2]
    if variables > 16:
        raise ValueError("too many combinations of values for one category")
    codes = (case.values @ 2.0 ** np.arange(variables)).astype(np.int64)
    x = torch.tensor(codes, device=device)
    network = juice.structures.HMM(
        seq_length=case.length, num_latents=case.k, num_emits=2**variables, homogeneous=True
    )
    circuit = juice.compile(network)
    circuit.to(device)

    def once() -> None:
        circuit(x, propagation_alg="LL")
        if which == "EM":
            circuit.backward(x, flows_memory=0.0, allow_modify_flows=False, logspace_flows=True)
            circuit.mini_batch_em(step_size=1.0, pseudocount=0.1)

    return median_time(once, torch.cuda.synchronize)


CHAINS: Final[dict[str, Callable[[Any, str], float]]] = {
    "JAX scan": jax_scan,
    "dynamax": dynamax,
    "PyTorch in a CUDA graph": torch_graph,
    "PyJuice": pyjuice,
}

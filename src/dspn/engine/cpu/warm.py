"""Compiles every kernel into Numba's cache: `python -m dspn.engine.cpu.warm`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from dspn.data.schema import Schema, Variable
from dspn.data.sequences import Sequences
from dspn.engine.base import Want
from dspn.engine.cpu import CpuEngine, Paths
from dspn.structure.build import NetworkBuilder, assemble, grouped_network, mixture_top
from dspn.structure.hmm import from_hmm
from dspn.structure.network import DynamicNetwork, Root

_RING: Final = 32


def _branching(schema: Schema) -> DynamicNetwork:
    """A template that is no chain: an output that is a sum of products."""
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(2)
    mixed = builder.sum(inputs, [0.5, 0.5])
    parts = [
        builder.product([builder.leaf(0, row), builder.leaf(1, row), mixed])
        for row in ([0.3, 0.7], [0.6, 0.4])
    ]
    outputs = [builder.sum(parts, [0.5, 0.5]), builder.sum(parts, [0.1, 0.9])]
    return assemble(builder.template(outputs), mixture_top(schema, [0.5, 0.5]))


def _reversing(schema: Schema) -> DynamicNetwork:
    """Two chains that never meet: long evidence for one and then the other needs logarithms."""
    rows = np.array([[0.999, 0.001], [0.001, 0.999]])
    emissions = {name: rows for name in schema.names}
    return from_hmm([0.5, 0.5], np.eye(2), emissions, schema=schema)


def _ring(schema: Schema) -> DynamicNetwork:
    """A chain with sparse transitions, in which a node leads to itself and to the next."""
    builder = NetworkBuilder(schema)
    inputs = builder.inputs(_RING)
    outputs = []
    for state in range(_RING):
        row = [0.3, 0.7] if state % 2 else [0.6, 0.4]
        mixed = builder.sum([inputs[state], inputs[state - 1]], [0.5, 0.5])
        outputs.append(builder.product([builder.leaf(0, row), builder.leaf(1, row), mixed]))
    return assemble(builder.template(outputs), mixture_top(schema, np.full(_RING, 1 / _RING)))


def _passes(network: DynamicNetwork, data: Sequences) -> list[Callable[[], object]]:
    """Every pass over the data; each compiles what it needs."""
    program = CpuEngine().compile(network, precision="double")
    # The automatic learner trains in single precision.
    single = CpuEngine(Paths(fewest_single=1)).compile(network, precision="single")
    ones, everything = np.ones(len(data)), np.ones(data.values.shape, dtype=np.bool_)
    return [
        lambda: program.log_totals(data),
        lambda: program.posteriors(data, Want(leaves=everything, interfaces=True)),
        lambda: program.posteriors(data, Want(surprises=True)),
        lambda: program.best(data),
        lambda: program.draw(data, np.zeros(len(data), dtype=np.uint64)),
        lambda: program.prefixes(data),
        lambda: program.expected_flows(data, ones),
        lambda: single.log_totals(data),
        lambda: single.expected_flows(data, ones),
    ]


def warm(*, backwards: bool = False) -> None:
    """Runs every pass once on tiny models, from the first to the last or the other way round."""
    binary = Schema((Variable.binary("a"), Variable.binary("b")))
    mixed = Schema((Variable.binary("a"), Variable.continuous("b")))
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (12, 2)).astype(float)
    bits[0, 0] = np.nan
    short = Sequences.from_codes(bits, [0, 4, 12], binary)
    turn = np.repeat([[0.0, 0.0], [1.0, 1.0]], [400, 400], axis=0)
    turning = Sequences.from_codes(turn, [0, 800], binary)
    floats = Sequences.from_codes(rng.integers(0, 2, (12, 2)).astype(float), [0, 4, 12], mixed)
    passes = [
        *_passes(_branching(binary), short),
        *_passes(_reversing(binary), turning),
        *_passes(_ring(binary), short),
        *_passes(grouped_network(mixed, [[0], [1]], 2, rng=rng, root=Root.LAST), floats),
    ]
    for run in reversed(passes) if backwards else passes:
        run()


def main() -> None:
    """Two processes begin at either end; each loads what the other has compiled."""
    backwards = "backwards" in sys.argv
    begin, other = time.perf_counter(), None
    if not backwards and (os.cpu_count() or 1) > 1:
        call = [sys.executable, "-m", "dspn.engine.cpu.warm", "backwards"]
        other = subprocess.Popen(call, stderr=subprocess.DEVNULL)  # this process says all there is
    try:
        warm(backwards=backwards)
    finally:
        if other is not None:
            other.terminate()
            other.wait()
    if not backwards:
        print(f"kernels compiled and cached in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()

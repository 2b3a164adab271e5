"""Dense, block-sparse and Monarch transitions compared: `python -m benchmarks.transitions`.

The first table has the time of one EM step on 500 x 32 slices of 13 random binary variables: the
least of some repeats, in which the kinds take turns. The second table has PenDigits as experiments
prepare it, the first of its ten folds: log-likelihood of a sequence after the same number of EM
steps from clusters, and the time of learning. Times are those of the processor, all threads
together. PenDigits are read from the folder that DSPN_DATA names.
"""

import argparse
import time
import warnings
from typing import Final

import numpy as np
from rich.console import Console

from dspn import HMM, EmOptions, Priors, Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.errors import ConvergenceWarning
from dspn.learning.em import maximise
from dspn.structure import DynamicNetwork, Transitions, initial_network
from experiments.cases import TABLE_CASES, folds_for, prepared
from experiments.tables import show_table

_REPEATS: Final = 3
# The usual pseudo-count of 0.1 is for each edge: a dense row of 1,024 edges would have 102 of them,
# almost as many as it has transitions in the data, and a row of 64 edges 6.
_PRIORS: Final = Priors(sum_pseudo_count=0.001)


def random_bits(
    num_sequences: int = 500, num_slices: int = 32, num_variables: int = 13
) -> Sequences:
    """Sequences of one length of binary variables."""
    schema = Schema(tuple(Variable.binary(f"x{number}") for number in range(num_variables)))
    shape = (num_sequences * num_slices, num_variables)
    values = np.random.default_rng(0).integers(0, 2, shape).astype(np.float64)
    return Sequences.from_codes(values, np.arange(num_sequences + 1) * num_slices, schema)


def seconds_of_step(network: DynamicNetwork, data: Sequences) -> float:
    """The time of one E-step and one M-step, the program's preparation included."""
    begun = time.process_time()
    maximise(network, compile_program(network).expected_flows(data).components[0])
    return time.process_time() - begun


def step_rows(sizes: list[int]) -> list[list[str]]:
    """A row for each size and kind: edges, milliseconds, and how many times faster than dense."""
    data, found = random_bits(), []
    for size in sizes:
        networks = {
            kind: initial_network(data.schema, size, transitions=kind, rng=np.random.default_rng(0))
            for kind in Transitions
        }
        least = dict.fromkeys(networks, np.inf)
        for _ in range(_REPEATS):
            for kind, network in networks.items():
                least[kind] = min(least[kind], seconds_of_step(network, data))
        for kind, network in networks.items():
            edges, gain = network.template.num_weights, least[Transitions.DENSE] / least[kind]
            found.append(
                [str(size), kind.value, f"{edges:,}", f"{1000 * least[kind]:,.0f}", f"{gain:.1f}x"]
            )
    return found


def pen_rows(sizes: list[int], num_steps: int) -> list[list[str]]:
    """A row for each size and kind: log-likelihood of training and test sequences, and seconds."""
    case = TABLE_CASES["pen"]
    data = case.read(None)
    fold = prepared(case, data, folds_for(data)[0])
    em, found = EmOptions(max_steps=num_steps, tolerance=0.0), []
    for size in sizes:
        for kind in Transitions:
            model = HMM(
                size,
                transitions=kind.value,
                em=em,
                priors=_PRIORS,
                validation_fraction=0,
                random_state=0,
            )
            begun = time.process_time()
            model.fit(fold.train)
            seconds = time.process_time() - begun
            scores = f"{model.score(fold.train):.2f}", f"{model.score(fold.test):.2f}"
            found.append([str(size), kind.value, *scores, f"{seconds:,.0f}"])
    return found


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transitions", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024], help="nodes")
    parser.add_argument("--pen", type=int, nargs="*", default=[64, 256, 1024], help="for PenDigits")
    parser.add_argument("--steps", type=int, default=10, help="EM steps for PenDigits")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    console = Console(width=None if Console().is_terminal else 120)
    headings = ["k", "transitions", "edges", "ms of an EM step", "against dense"]
    show_table("one EM step", headings, step_rows(given.sizes), console, num_words=0)
    headings = ["k", "transitions", "training", "test", "seconds"]
    title = f"PenDigits after {given.steps} EM steps"
    show_table(title, headings, pen_rows(given.pen, given.steps), console, num_words=0)


if __name__ == "__main__":
    main()

"""How long learning takes on JapaneseVowels: `python -m benchmarks.learning`.

The template has about fifty nodes, as at the beginning of a search. One neighbour is one pass
through the loop of Algorithm 2: a partition, the new template, its training and its score.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("DSPN_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.table import Table

from dspn.learning.em import EmOptions, em_step, fit_em
from dspn.learning.priors import Priors
from dspn.learning.scores import Likelihood
from dspn.learning.search import SearchOptions, SearchState, SearchTask, next_round
from dspn.structure import initial_network
from experiments import folds_of
from experiments.datasets import MEDIAN_BITS, read_japanese_vowels

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
_REPEATS = 5
_TRIES = 12


def _best_s(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Prints the table."""
    found = read_japanese_vowels(_SHARED if _SHARED.exists() else None).sequences
    data = MEDIAN_BITS.fit(found).apply(found)
    fold = folds_of(len(data), rng=np.random.default_rng(0))[0]
    train, validation = data[fold.train], data[fold.validation]
    rng = np.random.default_rng(0)
    network = fit_em(
        initial_network(data.schema, 3, rng=rng),
        train,
        validation=validation,
        options=EmOptions(max_steps=50),
    ).network
    options = SearchOptions(round_size=1, max_neighbours=_TRIES)
    task = SearchTask(train, validation, Likelihood(), Priors(), options)

    def search() -> SearchState:
        state = SearchState(network, -1e9, seed=0)
        while not state.is_over(options):
            # From the same template at every try.
            after = next_round(state, task)
            assert after is not None
            state = SearchState(network, -1e9, seed=0, tried=after.tried)
        return state

    table = Table(title=f"{len(train)} sequences of JapaneseVowels, {train.total_slices:,} slices")
    for heading in ("job", "nodes", "one core"):
        table.add_column(heading, justify="left" if heading == "job" else "right")
    nodes = str(len(network.template.nodes))
    table.add_row("EM iteration", nodes, f"{_best_s(lambda: em_step(network, train)) * 1e3:.1f} ms")
    table.add_row("one neighbour", nodes, f"{_best_s(search) / _TRIES * 1e3:.0f} ms")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

"""Learning from a stream of batches against a fit to all of them: `python -m benchmarks.online`.

Each seed plants a hidden Markov model and draws 50 batches from it, for two streams: one in which
nothing changes, and one in which the last state shows up in batch 30. `HMM.partial_fit` sees one
batch after the other, without those before; `HMM.fit` sees all at once, from four starts, and knows
the number of states. Scores are in nats per slice, on sequences that neither has seen.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from rich.console import Console

from dspn import HMM, Model, OnlineOptions, Schema, Sequences, Variable
from dspn.data.sequences import joined
from dspn.errors import ConvergenceWarning
from experiments.tables import show_table

_CATEGORIES: Final = 6
_SCHEMA: Final = Schema(
    (
        Variable.categorical("a", range(_CATEGORIES)),
        Variable.continuous("b"),
        Variable.count("c"),
    )
)
_HELD_OUT: Final = 400
_STARTS: Final = 4


@final
@dataclass(frozen=True)
class Stream:
    """The size of a stream; the last state shows up in batch `new`, and from the start without."""

    num_batches: int = 50
    batch_size: int = 20
    length: int = 30
    num_states: int = 4
    new: int | None = None


@final
@dataclass(frozen=True)
class Result:
    """Scores of the stream, and of the fit to all batches, on data like those of the end.

    `fixed` is the score of a stream without growth, and `early` and `fit_early` are scores on data
    like those of the beginning.
    """

    seed: int
    online: float
    fixed: float
    fit: float
    early: float
    fit_early: float
    num_states: int
    added: tuple[int, ...]
    seconds_per_batch: float


def planted(rng: np.random.Generator, size: int) -> tuple[Model, Model]:
    """A hidden Markov model of random parts, and the same without its last state."""
    transition = 0.4 * rng.dirichlet(np.full(size, 0.5), size) + 0.6 * np.eye(size)
    start = rng.dirichlet(np.full(size, 5.0))
    emissions = {
        "a": rng.dirichlet(np.full(_CATEGORIES, 0.4), size),
        "b": np.stack([rng.normal(0, 3, size), rng.uniform(0.3, 1.5, size)], axis=1),
        "c": rng.uniform(1, 15, (size, 1)),
    }

    def made(count: int) -> Model:
        rows = transition[:count, :count]
        return Model.from_hmm(
            start[:count] / start[:count].sum(),
            rows / rows.sum(axis=1, keepdims=True),
            {name: own[:count] for name, own in emissions.items()},
            schema=_SCHEMA,
        )

    return made(size), made(size - 1)


def score(model: Any, data: Sequences) -> float:
    """Log-likelihood in nats per slice."""
    return float(model.score_samples(data).sum()) / data.total_slices


def run(seed: int, stream: Stream) -> Result:
    """One stream, and the fit to all of it."""
    rng = np.random.default_rng(seed)
    whole, without = planted(rng, stream.num_states)
    first = whole if stream.new is None else without
    batches = [
        (first if stream.new is None or number < stream.new else whole).sample(
            stream.batch_size, stream.length, rng=rng
        )
        for number in range(1, stream.num_batches + 1)
    ]
    late, early = (own.sample(_HELD_OUT, stream.length, rng=rng) for own in (whole, first))
    known = stream.num_states - (stream.new is not None)
    online = HMM(known, random_state=seed)
    fixed = HMM(known, online=OnlineOptions(growth=False), random_state=seed)
    begun = time.perf_counter()
    for batch in batches:
        online.partial_fit(batch)
    seconds = time.perf_counter() - begun
    for batch in batches:
        fixed.partial_fit(batch)
    fit = HMM(stream.num_states, n_starts=_STARTS, random_state=seed).fit(joined(batches))
    return Result(
        seed,
        score(online, late),
        score(fixed, late),
        score(fit, late),
        score(online, early),
        score(fit, early),
        online.n_states_,
        tuple(record.batch for record in online.batches_ for _ in range(record.added)),
        seconds / len(batches),
    )


def rows(results: list[Result]) -> Iterator[list[str]]:
    """A row for each seed."""
    for own in results:
        yield [
            str(own.seed),
            f"{own.online:.3f}",
            f"{own.fixed:.3f}",
            f"{own.fit:.3f}",
            f"{own.online - own.fit:+.3f}",
            f"{own.early - own.fit_early:+.3f}",
            str(own.num_states),
            ", ".join(map(str, own.added)),
            f"{1000 * own.seconds_per_batch:.0f}",
        ]


def main() -> None:
    """Prints a table for each of the two streams."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online", description=__doc__)
    parser.add_argument("--seeds", type=int, default=8, help="how many planted models")
    parser.add_argument("--first-seed", type=int, default=0, help="the seed of the first")
    parser.add_argument("--batches", type=int, default=50, help="batches of a stream")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    console = Console(width=None if Console().is_terminal else 120)
    headings = ["seed", "online", "no growth", "fit to all", "gap", "gap, early data", "states"]
    headings += ["added in batch", "ms per batch"]
    for title, new in (
        ("nothing changes", None),
        (f"a state shows up in batch {3 * given.batches // 5}", 3 * given.batches // 5),
    ):
        stream = Stream(num_batches=given.batches, new=new)
        seeds = range(given.first_seed, given.first_seed + given.seeds)
        results = [run(seed, stream) for seed in seeds]
        show_table(title, headings, list(rows(results)), console, num_words=0)
        worst = min(own.online - own.fit for own in results)
        console.print(f"largest loss against the fit to all: {max(-worst, 0.0):.3f} nats per slice")


if __name__ == "__main__":
    main()

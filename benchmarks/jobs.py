"""What is measured against the peers, and on which data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from benchmarks.cases import Case, hmm_case

_SINGLE: Final = ("log_likelihood_single", "em_single")
TASK_NAMES: Final = {
    "log_likelihood": "log-likelihood",
    "one_shot": "one-shot log-likelihood",
    "em": "EM iteration",
    "viterbi": "Viterbi (Model.complete)",
    "viterbi_engine": "Viterbi (engine only)",
    "log_likelihood_single": "log-likelihood (float32)",
    "em_single": "EM iteration (float32)",
}


@final
@dataclass(frozen=True)
class Scale:
    """How much is measured: everything, or little of it to try the harness itself."""

    quick: bool

    @property
    def num_sequences(self) -> int:
        return 200 if self.quick else 2000

    @property
    def states(self) -> tuple[int, ...]:
        return (8, 32) if self.quick else (8, 32, 128)

    @property
    def long_slices(self) -> int:
        return 300 if self.quick else 3000

    @property
    def num_long(self) -> int:
        return 20 if self.quick else 200

    def short_lengths(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Uniform in 20..60; tens only for a quick run, as dynamax compiles for every length."""
        if self.quick:
            return 10 * rng.integers(2, 7, size=self.num_sequences)
        return rng.integers(20, 61, size=self.num_sequences)

    def long_lengths(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """About 3,000, in eleven different lengths, for peers that need several of equal length."""
        step = self.long_slices // 50
        return self.long_slices + step * rng.integers(-5, 6, size=self.num_long)


@final
@dataclass(frozen=True)
class Job:
    """Tasks on one case."""

    group: str
    title: str
    num_states: int
    make: Callable[[], Case]
    tasks: tuple[str, ...]


def _short(
    group: str, title: str, num_variables: int, num_categories: int, scale: Scale
) -> list[Job]:
    def make(k: int) -> Callable[[], Case]:
        def case() -> Case:
            rng = np.random.default_rng([ord(group), k])
            return hmm_case(num_variables, num_categories, scale.short_lengths(rng), k, rng=rng)

        return case

    every = ("log_likelihood", "em", "viterbi", "viterbi_engine")
    # A one-shot call is measured where packing weighs most, float32 where it is faster.
    return [
        Job(group, title, k, make(k), (*every, *(("one_shot",) if k == 8 else _SINGLE)))
        for k in scale.states
    ]


def _few(scale: Scale) -> list[Job]:
    def make(count: int) -> Callable[[], Case]:
        def case() -> Case:
            rng = np.random.default_rng([3, count])
            return hmm_case(27, 2, np.full(count, scale.long_slices), 32, rng=rng)

        return case

    return [
        Job("few", f"{n} x {scale.long_slices:,}, 27 binary", 32, make(n), ("log_likelihood",))
        for n in (1, 4, 16)
    ]


def _long(scale: Scale) -> list[Job]:
    def make(k: int) -> Callable[[], Case]:
        def case() -> Case:
            rng = np.random.default_rng([4, k])
            return hmm_case(27, 2, scale.long_lengths(rng), k, rng=rng)

        return case

    title = f"{scale.num_long} x ~{scale.long_slices:,}, 27 binary"
    return [Job("d", title, k, make(k), ("log_likelihood", "em")) for k in (8, 32)]


def _smoke() -> list[Job]:
    def case() -> Case:
        rng = np.random.default_rng(5)
        return hmm_case(3, 2, rng.integers(5, 9, size=20), 3, rng=rng)

    tasks = ("log_likelihood", "one_shot", "em", "viterbi", "viterbi_engine")
    return [Job("smoke", "20 x 5..8, 3 binary", 3, case, tasks)]


def comparisons(scale: Scale) -> list[Job]:
    """Every job that peers share."""
    size = f"{scale.num_sequences:,} x 20..60"
    return [
        *_short("a", f"{size}, 13 binary", 13, 2, scale),
        *_short("b", f"{size}, one of 20", 1, 20, scale),
        *_few(scale),
        *_long(scale),
        *_smoke(),
    ]


def multiply_adds(task: str, num_states: int) -> int:
    """Useful multiply-adds (for Viterbi: additions with a maximum) of one slice of one sequence.

    EM needs the upward pass, the downward pass and the sum of the edges' counts.
    """
    passes = 3 if task in ("em", "em_single") else 1
    return passes * num_states * num_states

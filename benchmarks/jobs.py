"""What is measured against the peers, on which data, and the floors that are to be reached."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from benchmarks.cases import Case, hmm_case

# Times as fast as (hmmlearn, pomegranate, dynamax); None is only reported.
Floors = tuple[float | None, float | None, float | None]

_REPORT: Final[Floors] = (None, None, None)
_LIKELIHOOD: Final = {8: (14.0, 50.0, 12.0), 32: (10.0, 25.0, 7.0), 128: (17.0, 10.0, 12.0)}
_EM: Final = {8: (12.0, 45.0, 6.0), 32: (9.0, 45.0, 5.0), 128: (11.0, 45.0, 6.0)}
_VITERBI: Final = {8: (7.0, 35.0, 5.0), 32: (6.0, 35.0, 15.0), 128: (12.0, 35.0, 20.0)}
_ONE_SHOT: Final[Floors] = (8.0, 30.0, None)
_FEW: Final = {1: (1.5, None, None), 4: (4.0, None, None), 16: (10.0, None, None)}

TWO_THREADS_FLOOR: Final = 1.7
WARM_START_CEILING_S: Final = 1.5
COLD_START_CEILING_S: Final = 12.0
EM_MEMORY_CEILING_MIB: Final = 200.0

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
    """Tasks on one case. `floors` holds, for each task, what is to be reached against each peer."""

    group: str
    title: str
    num_states: int
    make: Callable[[], Case]
    floors: Mapping[str, Floors] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.floors)


def _single(k: int) -> dict[str, Floors]:
    """The tasks that float32 is faster at."""
    return {"log_likelihood_single": _LIKELIHOOD[k], "em_single": _EM[k]}


def _short(
    group: str, title: str, num_variables: int, num_categories: int, scale: Scale
) -> list[Job]:
    def make(k: int) -> Callable[[], Case]:
        def case() -> Case:
            rng = np.random.default_rng([ord(group), k])
            return hmm_case(num_variables, num_categories, scale.short_lengths(rng), k, rng=rng)

        return case

    return [
        Job(
            group,
            title,
            k,
            make(k),
            {
                "log_likelihood": _LIKELIHOOD[k],
                "em": _EM[k],
                "viterbi": _VITERBI[k],
                "viterbi_engine": _VITERBI[k],
                **({"one_shot": _ONE_SHOT} if k == 8 else {}),
                **(
                    {} if k == 8 else {"log_likelihood_single": _LIKELIHOOD[k], "em_single": _EM[k]}
                ),
            },
        )
        for k in scale.states
    ]


def _few(scale: Scale) -> list[Job]:
    def make(count: int) -> Callable[[], Case]:
        def case() -> Case:
            rng = np.random.default_rng([3, count])
            return hmm_case(27, 2, np.full(count, scale.long_slices), 32, rng=rng)

        return case

    return [
        Job("few", f"{n} x {scale.long_slices:,}, 27 binary", 32, make(n), {"log_likelihood": own})
        for n, own in _FEW.items()
    ]


def _long(scale: Scale) -> list[Job]:
    def make(k: int) -> Callable[[], Case]:
        def case() -> Case:
            rng = np.random.default_rng([4, k])
            return hmm_case(27, 2, scale.long_lengths(rng), k, rng=rng)

        return case

    title = f"{scale.num_long} x ~{scale.long_slices:,}, 27 binary"
    tasks = {"log_likelihood": _REPORT, "em": _REPORT}
    return [Job("d", title, k, make(k), tasks) for k in (8, 32)]


def _smoke() -> list[Job]:
    def case() -> Case:
        rng = np.random.default_rng(5)
        return hmm_case(3, 2, rng.integers(5, 9, size=20), 3, rng=rng)

    tasks = ("log_likelihood", "one_shot", "em", "viterbi", "viterbi_engine")
    floors = {task: _REPORT for task in tasks}
    return [Job("smoke", "20 x 5..8, 3 binary", 3, case, floors)]


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

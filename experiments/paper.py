"""The figures that the paper prints, to be shown beside those that are measured.

Melibari, Poupart, Doshi, Trimponias: Dynamic Sum Product Networks for Tractable Inference on
Sequence Data. Likelihoods are negative, in nats per sequence, with the standard error; times are in
seconds.
"""

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(frozen=True)
class Figure:
    """A mean, and its standard error where there is one."""

    mean: float
    error: float | None = None

    def __str__(self) -> str:
        # Four digits at the least, as the paper has them.
        places = 0 if abs(self.mean) >= 10_000 else 1
        shown = f"{self.mean:,.{places}f}"
        return shown if self.error is None else f"{shown} ± {self.error:,.{places}f}"


SYNTHETIC: Final = {
    "HMM-samples": {
        "true": Figure(62.2, 0.8),
        "learnspn": Figure(65.4, 0.7),
        "dspn": Figure(62.5, 0.7),
    },
    "Water": {
        "true": Figure(249.6, 1.0),
        "learnspn": Figure(270.4, 0.9),
        "dspn": Figure(252.4, 0.9),
    },
    "BAT": {
        "true": Figure(628.2, 2.0),
        "learnspn": Figure(684.4, 1.3),
        "dspn": Figure(641.6, 1.1),
    },
}
"""Table 1: data sets by name, models by name."""

REAL: Final = {
    "ozone": {
        "hmm": Figure(56.7, 1.1),
        "hmm-spn": Figure(49.8, 0.9),
        "rnn": Figure(16.2, 0.7),
        "search-score": Figure(40.2, 4.7),
        "reveal": Figure(52.4, 2.5),
        "dspn": Figure(33.0, 1.0),
    },
    "pen": {
        "hmm": Figure(74.2, 0.1),
        "hmm-spn": Figure(67.7, 0.6),
        "rnn": Figure(68.7, 1.3),
        "search-score": Figure(67.3, 2.3),
        "reveal": Figure(74.4, 0.2),
        "dspn": Figure(63.5, 0.3),
    },
    "arabic": {
        "hmm": Figure(327.5, 0.4),
        "hmm-spn": Figure(305.8, 1.8),
        "rnn": Figure(303.6, 6.4),
        "search-score": Figure(263.7, 4.6),
        "reveal": Figure(260.2, 1.0),
        "dspn": Figure(257.9, 0.5),
    },
    "vowels": {
        "hmm": Figure(94.3, 0.3),
        "hmm-spn": Figure(89.8, 1.2),
        "rnn": Figure(78.8, 2.3),
        "search-score": Figure(75.6, 2.5),
        "reveal": Figure(71.3, 1.2),
        "dspn": Figure(68.8, 0.3),
    },
    "vicon": {
        "hmm": Figure(40_862, 369),
        "hmm-spn": Figure(38_410, 440),
        "rnn": Figure(57_217, 873),
        "dspn": Figure(36_385, 682),
    },
}
"""Table 2: data sets in the paper's order, models by name."""

LEARNING_SECONDS: Final = {
    "ozone": {"reveal": 952.0, "rnn": 56.0, "search-score": 108.0, "dspn": 54.0},
    "pen": {"reveal": 3977.0, "rnn": 558.0, "search-score": 1463.0, "dspn": 475.0},
    "arabic": {"reveal": 16549.0, "rnn": 2572.0, "search-score": 14911.0, "dspn": 2909.0},
    "vowels": {"reveal": 516.0, "rnn": 55.0, "search-score": 363.0, "dspn": 51.0},
    "vicon": {"rnn": 4705.0, "dspn": 6734.0},
}
"""Table 3, left: in all for Reveal, for one iteration otherwise."""

INFERENCE_SECONDS: Final = {
    "ozone": {"reveal": 6.3, "rnn": 0.1, "search-score": 15.6, "dspn": 0.1},
    "pen": {"reveal": 15.0, "rnn": 0.2, "search-score": 30.7, "dspn": 0.1},
    "arabic": {"reveal": 53.6, "rnn": 2.5, "search-score": 465.8, "dspn": 2.9},
    "vowels": {"reveal": 15.2, "rnn": 0.2, "search-score": 69.2, "dspn": 0.5},
    "vicon": {"rnn": 2274.0, "dspn": 1825.0},
}
"""Table 3, right: all sequences of a data set, one variable observed."""

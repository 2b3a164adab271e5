"""The models of the tables, by name, with the options that they are compared at."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final, final

from dspn.learning.distill import Distilled
from dspn.learning.lstm import Lstms
from experiments.baselines import (
    Baseline,
    HmmBaseline,
    HmmOptions,
    HmmSpnBaseline,
    HmmSpnOptions,
    LearnSpnBaseline,
    RevealBaseline,
    SearchScoreBaseline,
)
from experiments.dspns import AutomaticDspn, DistilledDspn, SearchedDspn

_STATES: Final = (2, 4, 8, 16, 32, 64, 128)
LADDER: Final = (2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of states that the second bench has an HMM of each for."""
_NETWORK_STATES: Final = (2, 4, 8, 16, 32)


@final
@dataclass(frozen=True)
class Setting:
    """What a fold may spend: effort of the automatic learner, seconds of others, processes.

    Nets are trained on the device of that name.
    """

    effort: float | None = None
    time_limit: float | None = None
    num_jobs: int = 1
    device: str = "cpu"


@final
@dataclass(frozen=True)
class Contender:
    """A model of the tables.

    One that is `limited` ends with the time limit, the others by their own rules. `step` is what an
    iteration is.
    """

    title: str
    make: Callable[[Setting], Baseline[Any]]
    step: str
    limited: bool = True
    needs_torch: bool = False

    @property
    def is_available(self) -> bool:
        """Whether what it needs is installed."""
        return not self.needs_torch or find_spec("torch") is not None


def _hmm(*states: int) -> Callable[[Setting], Baseline[Any]]:
    return lambda _: HmmBaseline(HmmOptions(states=states))


def _hmm_spn(_: Setting) -> Baseline[Any]:
    return HmmSpnBaseline(HmmSpnOptions(hmm=HmmOptions(states=_NETWORK_STATES)))


def _rnn(setting: Setting) -> Baseline[Any]:
    from experiments.baselines.lstm import BitLstm, BitLstmOptions

    return BitLstm(BitLstmOptions(device=setting.device))


def _lstm(setting: Setting) -> Baseline[Any]:
    from experiments.baselines.lstm import SliceLstm, SliceLstmOptions

    return SliceLstm(SliceLstmOptions(device=setting.device))


def _distilled(setting: Setting) -> Baseline[Any]:
    em = replace(Distilled().em, max_steps=3, min_steps=3)
    teacher = Lstms(device=setting.device)
    return DistilledDspn(Distilled(teacher, n_interfaces=256, num_draws=240_000, em=em))


CONTENDERS: Final = {
    "iid": Contender("i.i.d.", _hmm(1), "step of EM"),
    "learnspn": Contender("LearnSPN", lambda _: LearnSpnBaseline(), "all of it"),
    **{f"hmm-{k}": Contender(f"HMM, {k} states", _hmm(k), "step of EM") for k in LADDER},
    "hmm": Contender("HMM, chosen", _hmm(*_STATES), "step of EM"),
    "hmm-spn": Contender("HMM-SPN", _hmm_spn, "step of EM"),
    "rnn": Contender("LSTM, the paper's", _rnn, "pass over the data", needs_torch=True),
    "lstm": Contender("LSTM, modern", _lstm, "pass over the data", needs_torch=True),
    "search-score": Contender(
        "Search-Score DBN", lambda _: SearchScoreBaseline(), "change of structure"
    ),
    "reveal": Contender("Reveal DBN", lambda _: RevealBaseline(), "all of it"),
    "dspn-search": Contender(
        "DSPN, Algorithms 1-3",
        lambda setting: SearchedDspn(num_jobs=setting.num_jobs),
        "neighbour",
    ),
    "dspn": Contender(
        "DSPN",
        lambda setting: AutomaticDspn(setting.effort, setting.num_jobs),
        "try",
        limited=False,
    ),
    "distilled": Contender(
        "DSPN, distilled", _distilled, "step of EM", limited=False, needs_torch=True
    ),
}

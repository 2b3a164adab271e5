"""The part of the demo in which models are learned and compared."""

import sys
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dspn.demo._house import House
from dspn.demo._printing import bar, heading, table
from dspn.learning import Auto
from dspn.learning.learner import Ending
from dspn.models import DSPN, HMM, Model
from dspn.structure.validity import network_scopes

_EFFORT: Final = 1.5
_STATES: Final = (4, 8, 16, 32, 64)
_LONGEST_BAR: Final = 24


@final
@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned from the recordings: a DSPN, and two models to compare it with."""

    dspn: DSPN
    hmm: HMM
    independent: Model

    @property
    def model(self) -> Model:
        """The model that is asked."""
        return self.dspn.model_


def learned(console: Console, house: House) -> Learned:
    """Learns from the recordings as they were seen; a terminal shows a bar, on standard error."""
    heading(
        console,
        "Learn",
        f"model = dspn.DSPN(dspn.Auto(effort={_EFFORT}), random_state=0).fit(recordings)",
    )
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    watched = Console(file=sys.stderr)
    with Progress(*columns, console=watched, transient=True, disable=not watched.is_terminal) as on:
        task = on.add_task("trying models, keeping what pays", total=None)
        network = DSPN(Auto(effort=_EFFORT), n_jobs=2, random_state=0).fit(house.training)
        on.update(task, description="a hidden Markov model, to compare")
        hmm = HMM(_STATES, random_state=0).fit(house.training)
        independent = HMM(1, random_state=0).fit(house.training).model_
    if network.ending_ == Ending.INTERRUPTED:
        console.print("Interrupted: what follows is about the best model so far.\n")
    return Learned(network, hmm, independent)


def _per_hour(model: Model, house: House) -> float:
    seen = house.new.seen
    return float(model.log_likelihood(seen).sum()) / seen.total_slices


def show_scores(console: Console, house: House, found: Learned) -> None:
    """How near each model comes to the true one on recordings that none has seen."""
    scores = {
        "true model": _per_hour(house.model, house),
        "DSPN": _per_hour(found.model, house),
        f"HMM, {found.hmm.n_states_} states": _per_hour(found.hmm.model_, house),
        "independent": _per_hour(found.independent, house),
    }
    worst, best = scores["independent"], scores["true model"]
    shown = table(f"{len(house.new.seen)} new recordings", "nats an hour", "of the way")
    shown.add_column("", justify="left", no_wrap=True)
    for name, score in scores.items():
        share = (score - worst) / (best - worst)
        style = "bold green" if name == "DSPN" else None
        shown.add_row(
            name, f"{score:.2f}", f"{share:.0%}", bar(console, _LONGEST_BAR * share), style=style
        )
    console.print(shown)


def blocks(model: Model) -> list[list[str]]:
    """Sensors that share interface nodes, in the component of the largest weight."""
    network = model.components[int(np.argmax(model.weights))]
    template = network.template
    scopes = network_scopes(template.nodes, template.order, [0] * network.num_interfaces)
    found = [scopes[template.outputs[group[0]]] for group in network.groups]
    return [
        [name for number, name in enumerate(model.schema.names) if scope >> number & 1]
        for scope in found
    ]


def show_blocks(console: Console, model: Model) -> None:
    """Which sensors the learner has put together."""
    found = blocks(model)
    console.print("\nNobody said which sensors belong together. It chose these blocks:\n")
    console.print("  " + "  |  ".join(", ".join(block) for block in found), soft_wrap=True)

"""The learners of DSPNs behind the protocol of the baselines."""

import time
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from dspn._arguments import Floats
from dspn.data import Sequences
from dspn.data.sequences import sequences_of
from dspn.inputs import Position
from dspn.learning.auto import Auto, AutoLearned, learn_auto
from dspn.learning.auto.planner import AutoState
from dspn.learning.distill import Distilled, distil
from dspn.learning.learner import DEFAULT_PLAN, Learned, Plan, learn
from dspn.learning.priors import DEFAULT_PRIORS
from dspn.learning.tables import learn_tables
from dspn.models import Model
from experiments.baselines.base import Baseline, FittedBaseline, Task


@final
@dataclass(frozen=True, eq=False)
class FittedDspn(FittedBaseline):
    """A learned DSPN; `details` says how it came about."""

    model: Model
    details: dict[str, Any] = field(default_factory=dict)

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P(observed entries) of each sequence, (N,)."""
        return self.model.log_likelihood(data)


@final
class AutomaticDspn(Baseline[FittedDspn]):
    """The automatic learner at some effort; an iteration is a try."""

    def __init__(self, effort: float | None = None, num_jobs: int = 1) -> None:
        self.options = Auto(effort=effort)
        self.num_jobs = num_jobs

    @property
    def name(self) -> str:
        """What tables call it."""
        return "DSPN"

    def _fitted(self, task: Task) -> FittedDspn:
        """Learned to the end of its effort, or of the time limit."""
        curve: list[list[float]] = []
        start = time.perf_counter()

        def on_state(state: AutoState) -> None:
            curve.append([time.perf_counter() - start, state.choice.score, state.pool.work])

        found = learn_auto(
            task.train,
            task.validation,
            seed=task.seed,
            options=self.options,
            num_jobs=self.num_jobs,
            time_limit=task.clock.limit,
            on_state=on_state,
        )
        details = {"curve": curve, **described(found)}
        mixture = found.mixture
        if any(own.num_categories for own in task.train.schema.inputs):
            mixture, score, tables = learn_tables(
                mixture,
                found.choice.validation,
                task.train,
                task.validation,
                priors=DEFAULT_PRIORS,
                rng=np.random.default_rng([task.seed, 7]),
                deadline=task.clock.is_due,
            )
            details |= {"validation": score, "tables": [own._asdict() for own in tables]}
        tries = max(1, len(found.tried))
        return FittedDspn(task.clock.seconds, tries, found.ending, Model(mixture), details)


def described(found: AutoLearned) -> dict[str, Any]:
    """What was chosen, and what each move has brought: tries, successes, gain and work."""
    moves: dict[str, list[float]] = {}
    for item in found.tried:
        own = moves.setdefault(item.move.name, [0, 0, 0.0, 0.0])
        own[0] += 1
        own[1] += item.gain > 0
        own[2] += item.gain
        own[3] += item.candidate.work
    layouts = [
        {"weight": weight, "blocks": [list(block) for block in layout]}
        for layout, weight in zip(found.choice.layouts, found.choice.weights.tolist(), strict=True)
    ]
    members = [
        member.recipe.move.name
        for model in found.choice.models.values()
        for member in model.members
    ]
    return {
        "validation": found.score,
        "work": found.work,
        "moves": moves,
        "layouts": layouts,
        "members": members,
        "edges": sum(network.template.num_edges for network in found.mixture),
    }


@final
class DistilledDspn(Baseline[FittedDspn]):
    """A DSPN distilled from LSTMs; an iteration is a step of EM on real data.

    Sequences of one length have tables by position.
    """

    def __init__(self, options: Distilled) -> None:
        self.options = options

    @property
    def name(self) -> str:
        """What tables call it."""
        return "DSPN, distilled"

    def _fitted(self, task: Task) -> FittedDspn:
        """Learned from the draws of LSTMs, then from the data."""
        sets, lengths = [task.train, task.validation], task.train.lengths
        if lengths.min() == lengths.max() > 1:
            place = Position(int(lengths[0])).named()
            schema = task.schema.with_inputs([place])
            sets = [sequences_of(own, schema, "data") for own in sets]
        found = distil(*sets, options=self.options, seed=task.seed, clock=task.clock)
        details = {
            "validation": found.score,
            "worth": found.worth,
            "interfaces": found.mixture.num_interfaces,
        }
        steps = max(1, found.history[-1].step)
        return FittedDspn(task.clock.seconds, steps, found.ending, Model(found.mixture), details)


@final
class SearchedDspn(Baseline[FittedDspn]):
    """Algorithms 1 to 3 of the paper; an iteration is an interface node grown or a neighbour."""

    def __init__(self, plan: Plan = DEFAULT_PLAN, num_jobs: int = 1) -> None:
        self.plan = plan
        self.num_jobs = num_jobs

    @property
    def name(self) -> str:
        """What tables call it."""
        return "DSPN, Algorithms 1-3"

    def _fitted(self, task: Task) -> FittedDspn:
        """Learned until the search ends, or the time limit."""
        found = learn(
            task.train,
            task.validation,
            seed=task.seed,
            plan=self.plan,
            num_jobs=self.num_jobs,
            time_limit=task.clock.limit,
        )
        details = {
            "validation": found.score,
            "interfaces": found.network.num_interfaces,
            "edges": found.network.template.num_edges,
        }
        return FittedDspn(
            task.clock.seconds, _iterations(found), found.ending, Model(found.network), details
        )


def _iterations(found: Learned) -> int:
    return max(1, len(found.growth) + found.tried)

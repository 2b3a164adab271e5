"""Dynamic sum-product networks whose structure is learned."""

import os
import sys
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, final

import numpy as np

from dspn._checks import require_type, whole_number
from dspn.data import Schema
from dspn.engine import TimeUpError
from dspn.errors import DataError, StructureError
from dspn.learning.auto import DEFAULT_AUTO, AutoOptions, learn_auto
from dspn.learning.em import EmOptions
from dspn.learning.growth import DEFAULT_GROWTH, GrowthOptions
from dspn.learning.learner import DEFAULT_PLAN, Plan, learn
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.run import Clock, Ending, limited, reporter
from dspn.learning.scores import LIKELIHOOD, Score
from dspn.learning.search import DEFAULT_SEARCH, SearchOptions
from dspn.models._estimator import Outcome, SequenceEstimator, outcome_of, warn_of_time
from dspn.models._factored import DEFAULT_EM, FactoredOptions, fit_factored
from dspn.models._training import TrainingData
from dspn.structure import Root
from dspn.structure.network import checked_root

# What is learned from where time is up before a single pass over all data, and the share of the
# time limit that this may take.
_FEW_SLICES: Final = 5_000
_GRACE: Final = 0.1
_MAX_INTERFACES: Final = DEFAULT_GROWTH.max_interfaces


class Learner(StrEnum):
    """How a model is learned.

    AUTO: blocks of variables that share an interface, templates that are grown and enriched, and
    mixtures of them, as far as an effort goes. PAPER: growth by Algorithm 1, then search by
    Algorithm 2. EM: the structure is the paper's initial template of `n_interfaces` nodes, and only
    its parameters are learned.
    """

    AUTO = "auto"
    PAPER = "paper"
    EM = "em"


_OPTIONS_OF: Final = {
    "effort": Learner.AUTO,
    "auto": Learner.AUTO,
    "growth": Learner.PAPER,
    "search": Learner.PAPER,
    "em": Learner.EM,
}


def _num_jobs(n_jobs: int | None) -> int:
    """Jobs as scikit-learn counts them: None is one, -1 as many as there are cores."""
    if n_jobs is None:
        return 1
    if n_jobs == -1:
        return os.cpu_count() or 1
    return whole_number(n_jobs, "n_jobs", StructureError)


@final
class DSPN(SequenceEstimator):
    """A dynamic sum-product network whose structure is learned from data.

    Args:
        effort: How much the automatic learner may do, counted in work, so that it does not depend
            on the machine; a unit is of the order of a third of a second where data are many.
            Without it the effort follows the amount of data, up to 50 units.
        n_interfaces: Number of interface nodes of the initial template, for `learner="paper"`,
            which without it finds it by growth, and `learner="em"`, which needs it.
        max_interfaces: Where growth ends at the latest: by default at 32 interface nodes for the
            paper's learner. For the automatic one it bounds each of the models that are mixed, by
            default at 1024.
        root: "first" or "last": the slice that carries the root. With "first" the models of all
            lengths agree; "last" is the placement of the paper.
        tied: Whether the bottom network shares the template's parameters.
        learner: "auto" for the best model that the effort buys, "paper" for growth and search by
            the algorithms of the paper, "em" for a template that is not changed.
        auto: More options of the automatic learner.
        growth: How Algorithm 1 grows; for the paper's learner.
        search: How Algorithm 2 searches; False for growth alone.
        em: When expectation maximisation stops; for `learner="em"`.
        priors: Pseudo-observations of weights and leaves. The automatic learner chooses among
            several where none are given.
        scoring: What chooses among models on the validation set, the likelihood by default.
        schema: The variables, where they should not be inferred from X.
        validation_fraction: Share of the sequences that is held out to choose among models.
        refit: Whether what was held out is learned from in the end, where models are chosen by
            their likelihood.
        time_limit: Seconds, from the beginning of `fit`, after which the best model so far is
            taken. One that is not worth it yet is taken with a warning; large data that leave no
            time for a model of all are learned from in part.
        n_jobs: Models that are trained side by side; -1 for as many as there are cores.
        checkpoint: What learning goes on from after an interruption, with `resume=True`: a file
            for the paper's learner, a directory for the automatic one.
        checkpoint_every: Seconds between two writings of that file.
        resume: Whether to go on from the checkpoint where there is one.
        random_state: Seed of everything random.
        verbose: Whether to show how learning goes on.

    Attributes:
        tried_: Number of models or neighbours that were tried, and `accepted_` of those that made
            the model better.
        explanation_: What the automatic learner has tried and chosen, in words.
        trail_: Every try of the automatic learner.
        growth_: The score of every number of interface nodes that the paper's learner has tried.
    """

    _KEPT = ("accepted_", "explanation_", "tried_")

    def __init__(
        self,
        *,
        effort: float | None = None,
        n_interfaces: int | None = None,
        max_interfaces: int | None = None,
        root: str = "first",
        tied: bool = True,
        learner: str = "auto",
        auto: AutoOptions | None = None,
        growth: GrowthOptions | None = None,
        search: SearchOptions | bool | None = None,
        em: EmOptions | None = None,
        priors: Priors | None = None,
        scoring: Score | None = None,
        schema: Schema | None = None,
        validation_fraction: float = 0.1,
        refit: bool = True,
        time_limit: float | None = None,
        n_jobs: int | None = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.effort = effort
        self.n_interfaces = n_interfaces
        self.max_interfaces = max_interfaces
        self.root = root
        self.tied = tied
        self.learner = learner
        self.auto = auto
        self.growth = growth
        self.search = search
        self.em = em
        self.priors = priors
        self.scoring = scoring
        self.schema = schema
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.random_state = random_state
        self.verbose = verbose

    def _check(self, schema: Schema, *, weighted: bool, validated: bool) -> None:
        learner = self._learner()
        if self.n_interfaces is not None:
            whole_number(self.n_interfaces, "n_interfaces", StructureError)
        Clock(self.time_limit)
        _num_jobs(self.n_jobs)
        self._check_options_of(learner)
        self._plan().score.check(schema)
        if self.resume and self.checkpoint is None:
            raise StructureError(
                "`resume` needs the `checkpoint` to go on from, but there is none; give its path."
            )
        if learner is Learner.EM:
            self._check_em()
            return
        if learner is Learner.AUTO:
            self._check_auto()
        self._check_structure_data(learner, weighted=weighted, validated=validated)

    def _check_options_of(self, learner: Learner) -> None:
        """Raises where an option of another learner is given."""
        for name, owner in _OPTIONS_OF.items():
            if owner is not learner and getattr(self, name) not in (None, False):
                own = ""
                if name == "em":
                    holder = "auto" if learner is Learner.AUTO else "growth"
                    own = f" Steps of EM are options of `{holder}`, as `{holder}.em`."
                raise StructureError(
                    f"`{name}` is for `learner='{owner}'` and must be left out with "
                    f"`learner='{learner}'`.{own}"
                )

    def _check_structure_data(self, learner: Learner, *, weighted: bool, validated: bool) -> None:
        """Raises where structure cannot be learned from the data that are given."""
        if not validated:
            raise DataError(
                f"`learner='{learner}'` chooses structure by a validation set; set "
                "`validation_fraction` above 0, or give `validation`."
            )
        if weighted:
            raise DataError(
                f"`sample_weight` must be left out with `learner='{learner}'`, which counts all "
                "sequences alike; repeat sequences instead, or use `learner='em'`."
            )
        if self.checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise StructureError(
                "`random_state` must be a whole number where there is a `checkpoint`, so that the "
                f"run can be taken up again, but is {self.random_state!r}."
            )

    def _check_em(self) -> None:
        """Raises where an option of EM is missing, or one is given that it has no use for."""
        if self.n_interfaces is None:
            raise StructureError(
                "`n_interfaces` must be given with `learner='em'`, which does not look for it."
            )
        if self.checkpoint is not None:
            raise StructureError(
                "`checkpoint` is for learners of structure and must be left out with "
                "`learner='em'`."
            )
        if self.em is not None:
            require_type(self.em, EmOptions, "em", StructureError)

    def _check_auto(self) -> None:
        """Raises where the automatic learner is asked for what it does not do."""
        self._auto()
        if self.n_interfaces is not None:
            raise StructureError(
                "`n_interfaces` must be left out with `learner='auto'`, which finds it; use "
                "`learner='paper'` or `learner='em'` for a given number."
            )
        if self.scoring is not None and self.scoring != LIKELIHOOD:
            raise StructureError(
                "`scoring` must be the likelihood with `learner='auto'`; use `learner='paper'` to "
                "choose models by another score."
            )

    def _auto(self) -> AutoOptions:
        """The options of the automatic learner, with what the estimator's own arguments set."""
        auto = DEFAULT_AUTO if self.auto is None else self.auto
        require_type(auto, AutoOptions, "auto", StructureError)
        if self.effort is not None:
            if self.auto is not None:
                raise StructureError("`effort` must be set in one place only; leave it to `auto`.")
            auto = replace(auto, effort=self.effort)
        if self.max_interfaces is not None:
            most = whole_number(self.max_interfaces, "max_interfaces", StructureError)
            if self.auto is not None:
                raise StructureError(
                    "`max_interfaces` must be set in one place only; leave it to `auto`."
                )
            auto = replace(auto, max_interfaces=most)
        return auto

    def _learner(self) -> Learner:
        try:
            return Learner(self.learner)
        except ValueError:
            raise StructureError(
                f"`learner` must be 'auto', 'paper' or 'em', but is {self.learner!r}; choose one."
            ) from None

    def _growth(self) -> GrowthOptions:
        """The options of growth, with the bounds that the estimator's own arguments set."""
        growth = DEFAULT_GROWTH if self.growth is None else self.growth
        require_type(growth, GrowthOptions, "growth", StructureError)
        given = _MAX_INTERFACES if self.max_interfaces is None else self.max_interfaces
        most = whole_number(given, "max_interfaces", StructureError)
        if self.growth is not None and most not in (_MAX_INTERFACES, growth.max_interfaces):
            raise StructureError(
                f"`max_interfaces` is {most}, but `growth` has {growth.max_interfaces}; set it in "
                "one place only."
            )
        if self.growth is None:
            growth = replace(growth, max_interfaces=most)
        if self.n_interfaces is None:
            return growth
        size = whole_number(self.n_interfaces, "n_interfaces", StructureError)
        bounds = (growth.min_interfaces, growth.max_interfaces)
        if bounds not in ((1, _MAX_INTERFACES), (size, size)):
            raise StructureError(
                f"`n_interfaces` is {size}, but growth is told to stay between {bounds[0]} and "
                f"{bounds[1]} interface nodes; leave one of them out."
            )
        return replace(growth, min_interfaces=size, max_interfaces=size)

    def _plan(self) -> Plan:
        """Everything that decides the result, apart from data and seed."""
        search = DEFAULT_SEARCH if self.search is None or self.search is True else self.search
        score = LIKELIHOOD if self.scoring is None else self.scoring
        require_type(score, Score, "scoring", StructureError)
        return Plan(
            growth=self._growth(),
            search=None if search is False else search,
            refit=DEFAULT_PLAN.refit if self.refit and score == LIKELIHOOD else None,
            priors=DEFAULT_PRIORS if self.priors is None else self.priors,
            score=score,
            root=checked_root(self.root),
            tied=self.tied,
        )

    def _learned(self, data: TrainingData) -> Outcome:
        plan = self._plan()
        learner = self._learner()
        if learner is Learner.EM:
            return self._learned_by_em(data, plan)
        if learner is Learner.AUTO:
            return self._learned_automatically(data, plan)
        assert data.validation is not None
        with reporter(quiet=not self.verbose) as report:
            found = learn(
                data.train,
                data.validation,
                seed=data.seed,
                plan=plan if data.is_held_out else replace(plan, refit=None),
                num_jobs=_num_jobs(self.n_jobs),
                clock=data.clock,
                checkpoint=self.checkpoint,
                checkpoint_every=self.checkpoint_every,
                resume=self.resume,
                report=report,
            )
        if found.ending == Ending.TIME_LIMIT and len(found.growth) == 1:
            warn_of_time(data, "growth before there were two interface nodes")
        self.growth_ = found.growth
        self.tried_, self.accepted_ = found.tried, found.accepted
        return Outcome(found.network, found.score, found.history, found.ending)

    def _learned_automatically(self, data: TrainingData, plan: Plan) -> Outcome:
        assert data.validation is not None
        with reporter(quiet=not self.verbose) as report:
            found = learn_auto(
                data.train,
                data.validation,
                seed=data.seed,
                options=self._auto(),
                priors=self.priors,
                root=plan.root,
                tied=plan.tied,
                refit=self.refit and data.is_held_out,
                num_jobs=_num_jobs(self.n_jobs),
                clock=data.clock,
                checkpoint=self.checkpoint,
                resume=self.resume,
                report=report,
            )
        if found.ending == Ending.TIME_LIMIT and not found.history:
            member = found.tried[0].candidate
            nodes = "1 node" if member.size == 1 else f"{member.size} nodes"
            done = f"{nodes} after {member.steps} steps of expectation maximisation"
            warn_of_time(data, f"learning before the first model was trained: it has {done}")
        self.trail_, self.explanation_ = found.tried, found.explanation()
        self.tried_, self.accepted_ = len(found.tried), sum(item.gain > 0 for item in found.tried)
        if self.verbose:
            print(self.explanation_, file=sys.stderr)
        return Outcome(found.mixture, found.score, found.history, found.ending)

    def _learned_by_em(self, data: TrainingData, plan: Plan) -> Outcome:
        assert self.n_interfaces is not None
        options = FactoredOptions(
            1, self.em or DEFAULT_EM, plan.priors, plan.score, Root(plan.root), plan.tied
        )
        sizes = (self.n_interfaces,)
        try:
            with limited(data.clock, data.train):
                fit, _ = fit_factored(data, sizes, options, data.clock.is_due)
        except TimeUpError:  # before a single pass over all data
            few = data.sampled(_FEW_SLICES, data.clock.grace(_GRACE, data.train))
            fit, _ = fit_factored(few, sizes, options, few.clock.is_due)
        return outcome_of(fit, data, plan.priors, refit=plan.refit is not None)

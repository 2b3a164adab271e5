"""Dynamic sum-product networks with learned structure."""

import os
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, final

import numpy as np

from dspn._checks import require_type, whole_number
from dspn.errors import DataError, StructureError
from dspn.learning.clock import Clock
from dspn.learning.fitting import EmOptions
from dspn.learning.growth import DEFAULT_GROWTH, GrowthOptions
from dspn.learning.learner import learn
from dspn.learning.plan import DEFAULT_PLAN, Plan
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.progress import reporter
from dspn.learning.scores import LIKELIHOOD, Score
from dspn.learning.search import DEFAULT_SEARCH, SearchOptions
from dspn.models._estimator import Outcome, SequenceEstimator, outcome_of
from dspn.models._factored import DEFAULT_EM, FactoredOptions, fit_factored
from dspn.models._training import TrainingData
from dspn.sequences import Schema
from dspn.structure import Root
from dspn.structure.network import checked_root

_MAX_INTERFACES: Final = DEFAULT_GROWTH.max_interfaces


class Learner(StrEnum):
    """How a template is learned.

    PAPER: growth by Algorithm 1, then search by Algorithm 2. EM: the structure is the paper's
    initial template of `n_interfaces` nodes, and only its parameters are learned.
    """

    PAPER = "paper"
    EM = "em"


def _num_jobs(n_jobs: int | None) -> int:
    """Jobs as scikit-learn counts them: None is one, -1 as many as there are cores."""
    if n_jobs is None:
        return 1
    if n_jobs == -1:
        return os.cpu_count() or 1
    return whole_number(n_jobs, "n_jobs", StructureError)


@final
class DSPN(SequenceEstimator):
    """A dynamic sum-product network whose template is learned from data.

    Args:
        n_interfaces: Number of interface nodes of the initial template. Without it the paper's
            learner finds it by growth; `learner="em"` needs it.
        max_interfaces: Where growth ends at the latest.
        root: "first" or "last": the slice that carries the root. With "first" the models of all
            lengths agree; "last" is the placement of the paper.
        tied: Whether the bottom network shares the template's parameters.
        learner: "paper" for growth and search, "em" for a template that is not changed.
        growth: How Algorithm 1 grows; for the paper's learner.
        search: How Algorithm 2 searches; False for growth alone.
        em: When expectation maximisation stops; for `learner="em"`.
        priors: Pseudo-observations of weights and leaves.
        scoring: What chooses among models on the validation set, the likelihood by default.
        schema: The variables, where they should not be inferred from X.
        validation_fraction: Share of the sequences that is held out to choose among models.
        refit: Whether what was held out is learned from in the end, where models are chosen by
            their likelihood.
        time_limit: Seconds after which the best model so far is taken.
        n_jobs: Neighbours that are trained side by side; -1 for as many as there are cores.
        checkpoint: File that learning goes on from after an interruption, with `resume=True`.
        checkpoint_every: Seconds between two writings of that file.
        resume: Whether to go on from the checkpoint where there is one.
        random_state: Seed of everything random.
        verbose: Whether to show how learning goes on.

    Attributes:
        growth_: The score of every number of interface nodes that was tried.
        tried_: Number of neighbours that were tried, and `accepted_` of those that were kept.
    """

    def __init__(
        self,
        *,
        n_interfaces: int | None = None,
        max_interfaces: int = _MAX_INTERFACES,
        root: str = "first",
        tied: bool = True,
        learner: str = "paper",
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
        self.n_interfaces = n_interfaces
        self.max_interfaces = max_interfaces
        self.root = root
        self.tied = tied
        self.learner = learner
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
        self._plan().score.check(schema)
        if self.n_interfaces is not None:
            whole_number(self.n_interfaces, "n_interfaces", StructureError)
        Clock(self.time_limit)
        _num_jobs(self.n_jobs)
        if self.resume and self.checkpoint is None:
            raise StructureError(
                "`resume` needs the `checkpoint` to go on from, but there is none; name the file."
            )
        if learner is Learner.EM:
            self._check_em()
            return
        if self.em is not None:
            raise StructureError(
                "`em` is for `learner='em'`; the paper's learner takes `growth.em`, as in "
                "growth=GrowthOptions(em=...)."
            )
        if not validated:
            raise DataError(
                "`learner='paper'` chooses structure by a validation set; set "
                "`validation_fraction` above 0, or give `validation`."
            )
        if weighted:
            raise DataError(
                "`sample_weight` must be left out with `learner='paper'`, which counts all "
                "sequences alike; repeat sequences instead, or use `learner='em'`."
            )
        if self.checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise StructureError(
                "`random_state` must be a whole number where there is a `checkpoint`, so that the "
                f"run can be taken up again, but is {self.random_state!r}."
            )

    def _check_em(self) -> None:
        """Raises where options of the paper's learner are given, or one of EM's is missing."""
        if self.n_interfaces is None:
            raise StructureError(
                "`n_interfaces` must be given with `learner='em'`, which does not look for it."
            )
        for name in ("growth", "search", "checkpoint"):
            if getattr(self, name) not in (None, False):
                raise StructureError(
                    f"`{name}` is for `learner='paper'` and must be left out with `learner='em'`."
                )
        if self.em is not None:
            require_type(self.em, EmOptions, "em", StructureError)

    def _learner(self) -> Learner:
        try:
            return Learner(self.learner)
        except ValueError:
            raise StructureError(
                f"`learner` must be 'paper' or 'em', but is {self.learner!r}; choose one."
            ) from None

    def _growth(self) -> GrowthOptions:
        """The options of growth, with the bounds that the estimator's own arguments set."""
        growth = DEFAULT_GROWTH if self.growth is None else self.growth
        require_type(growth, GrowthOptions, "growth", StructureError)
        most = whole_number(self.max_interfaces, "max_interfaces", StructureError)
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
        if self._learner() is Learner.EM:
            return self._learned_by_em(data, plan)
        assert data.validation is not None
        with reporter(quiet=not self.verbose) as report:
            found = learn(
                data.train,
                data.validation,
                seed=data.seed,
                plan=plan if data.is_held_out else replace(plan, refit=None),
                num_jobs=_num_jobs(self.n_jobs),
                time_limit=self.time_limit,
                checkpoint=self.checkpoint,
                checkpoint_every=self.checkpoint_every,
                resume=self.resume,
                report=report,
            )
        self.growth_ = found.growth
        self.tried_, self.accepted_ = found.tried, found.accepted
        return Outcome(found.network, found.score, found.history, found.ending)

    def _learned_by_em(self, data: TrainingData, plan: Plan) -> Outcome:
        assert self.n_interfaces is not None
        options = FactoredOptions(
            1, self.em or DEFAULT_EM, plan.priors, plan.score, Root(plan.root), plan.tied
        )
        clock = Clock(self.time_limit)
        fit, _ = fit_factored(data, (self.n_interfaces,), options, clock.is_due)
        return outcome_of(fit, data, plan.priors, refit=plan.refit is not None)

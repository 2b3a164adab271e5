"""Dynamic sum-product networks whose structure is learned."""

import os
import sys
from dataclasses import KW_ONLY, dataclass, fields
from functools import wraps
from typing import Any, Final, TypeVar, final

import numpy as np

from dspn._arguments import require_type, whole_number
from dspn.data.schema import near_misses
from dspn.data.sequences import Sequences
from dspn.engine.base import TimeUpError
from dspn.errors import DataError, StructureError
from dspn.learning.auto.base import Auto
from dspn.learning.auto.learner import AutoLearned, learn_auto
from dspn.learning.distill import Distilled, distil
from dspn.learning.em import EmOptions
from dspn.learning.growth import DEFAULT_GROWTH, GrowthOptions
from dspn.learning.learner import DEFAULT_PLAN, Learned, Plan, learn
from dspn.learning.priors import DEFAULT_PRIORS
from dspn.learning.run import Clock, Ending, limited, reporter
from dspn.learning.scores import LIKELIHOOD, Score
from dspn.learning.search import DEFAULT_SEARCH, SearchOptions
from dspn.learning.tables import TriedTables, learn_tables
from dspn.models.estimator import SequenceEstimator
from dspn.models.hmm import DEFAULT_EM, fit_factored
from dspn.models.training import Outcome, TrainingData, outcome_of_em, warn_of_time
from dspn.options import Options, choice_field, number_field, part_field, whole_field
from dspn.structure.network import Root, checked_root
from dspn.structure.transitions import Transitions

# What is learned from where time is up before a single pass over all data, and the share of the
# time limit that this may take.
_FEW_SLICES: Final = 5_000
_GRACE: Final = 0.1


@final
@dataclass(frozen=True)
class Paper(Options):
    """The learner of the paper: growth by Algorithm 1, then search by Algorithm 2.

    Attributes:
        growth: How the number of interface nodes is found, and within which bounds.
        search: How neighbours are searched; None for growth alone.
        scoring: What chooses among models on the validation set.
        checkpoint_every: Seconds between two writings of the checkpoint.
    """

    growth: GrowthOptions = part_field(DEFAULT_GROWTH)
    search: SearchOptions | None = part_field(DEFAULT_SEARCH, optional=True)
    scoring: Score = part_field(LIKELIHOOD, Score)
    checkpoint_every: float = number_field(60.0, least=0)


@final
@dataclass(frozen=True)
class Em(Options):
    """Expectation maximisation of the paper's initial template, whose structure is not changed.

    Attributes:
        n_interfaces: Number of interface nodes.
        em: When expectation maximisation stops.
        scoring: What chooses among the steps on the validation set.
        transitions: Which inputs an output reads: "dense" for all; "block" and "monarch" have fewer
            edges, for hundreds of nodes and more; see `dspn.structure.transitions`.
    """

    n_interfaces: int = whole_field(8)
    em: EmOptions = part_field(DEFAULT_EM)
    scoring: Score = part_field(LIKELIHOOD, Score)
    transitions: Transitions | str = choice_field(Transitions.DENSE)


_Class = TypeVar("_Class", bound=type[Any])

Learner = Auto | Paper | Em | Distilled
_LEARNERS: Final[dict[str, type[Learner]]] = {
    "auto": Auto,
    "paper": Paper,
    "em": Em,
    "distilled": Distilled,
}


def _naming_learners(cls: _Class) -> _Class:
    """The class, with a constructor that says of which learner an unknown parameter is."""
    construct: Any = cls.__init__
    known = [own.name for own in fields(cls)]

    @wraps(construct)
    def checked(self: Any, *given: Any, **parameters: Any) -> None:
        for name in parameters:
            if name not in known:
                learners = [kind for kind in _LEARNERS.values() if name in kind().get_params()]
                remedy = near_misses(name, known)
                if learners:
                    remedy = f"; it is one of the learner: DSPN({learners[0].__name__}({name}=...))"
                raise TypeError(f"DSPN has no parameter {name!r}{remedy}.")
        construct(self, *given, **parameters)

    cls.__init__ = checked
    return cls


@final
@_naming_learners
@dataclass(eq=False, repr=False)
class DSPN(SequenceEstimator):
    """A dynamic sum-product network whose structure is learned from data.

    Args:
        learner: `Auto(...)` for the best model that an effort buys, `Paper(...)` for growth and
            search by the algorithms of the paper, `Em(...)` for a template that is not changed,
            `Distilled(...)` for one that learns from a teacher. "auto", "paper", "em" and
            "distilled" are short for those with the usual options.
        root: "first" or "last": the slice that carries the root. With "first" the models of all
            lengths agree; "last" is the placement of the paper.
        tied: Whether the bottom network shares the template's parameters.
        priors: Pseudo-observations of weights and leaves. The automatic learner chooses among
            several where none are given.
        schema: The variables, where they should not be inferred from X.
        families: "auto" to choose the leaf family of each variable of numbers by what is held out;
            by default that of the schema, or the usual one of its kind.
        validation_fraction: Share of the sequences that is held out to choose among models.
        refit: Whether what was held out is learned from in the end, where models are chosen by
            their likelihood.
        time_limit: Seconds, from the beginning of `fit`, after which the best model so far is
            taken, with a warning where it could have become much better. Large data that leave no
            time for a model of all are learned from in part.
        n_jobs: Models that are trained, or shards that are worked on side by side; -1 for as many
            as there are cores.
        engine: "cpu", or "gpu" for an NVIDIA GPU, on which expectation maximisation runs then.
        executor: Who does that work, in place of `n_jobs` processes: one of `dspn.executors`, such
            as `Ray(address)` for a cluster. The model is the same with every executor.
        checkpoint: Where the state of learning is saved, to go on after an interruption: a file
            for the paper's learner, a directory for the automatic one.
        resume: Whether to go on from the checkpoint where there is one.
        random_state: Seed of everything random.
        lags: Number of earlier slices whose values the leaves are told, or a list such as
            (1, 2, 24); "auto" to choose lags, `lags_of` and `within` by what is held out.
        lags_of: "own" for values of the same variable, "all" for those of all variables.
        within: Whether leaves are told the values of the variables before them in the slice.
        leaf_inputs: Whether leaves are told the inputs of the slice.
        covariance: "full" for Gaussian leaves with a covariance of all continuous variables, or a
            list of blocks of names such as [("x", "y")]; "diag" for independent ones. With "auto"
            the automatic learner chooses blocks by what is held out; others have none.
        verbose: Whether to show how learning goes on.

    Attributes:
        tried_: Number of models or neighbours that were tried, and `accepted_` of those that made
            the model better.
        explanation_: What the automatic learner or distillation has tried and chosen, in words.
        trail_: Every try of the automatic learner.
        tables_: What transitions by each categorical input of the data were worth, and which was
            kept.
        growth_: The score of every number of interface nodes that the paper's learner has tried.
    """

    learner: str | Learner = "auto"
    _: KW_ONLY
    root: str = "first"
    tied: bool = True
    time_limit: float | None = None
    n_jobs: int | None = 1
    engine: str = "cpu"
    covariance: Any = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    verbose: int = 0

    _KEPT = ("accepted_", "explanation_", "tried_")

    def set_params(self, **params: Any) -> "DSPN":
        """Sets parameters; options of the learner as `learner__field`, whichever it is."""
        if "learner" in params:
            self.learner = params.pop("learner")
        if isinstance(self.learner, str) and any(path.startswith("learner__") for path in params):
            self.learner = self._options()
        return super().set_params(**params)

    @property
    def by(self) -> Any:
        """The input that distilled models have tables for; see `Distilled`."""
        return getattr(self.learner, "by", None)

    def _options(self) -> Learner:
        """The learner, in words or as it is, with its options."""
        options = self.learner
        if isinstance(options, str) and options in _LEARNERS:
            options = _LEARNERS[options]()
        if isinstance(options, Auto | Paper | Em | Distilled):
            if self.engine == "cpu":
                return options
            paths = [path for path in options.get_params(deep=True) if path.endswith("__engine")]
            return options.with_params(**dict.fromkeys(paths, self.engine))
        raise StructureError(
            "`learner` must be 'auto', 'paper', 'em' or 'distilled', or one of the options "
            "Auto(...), Paper(...), Em(...) and Distilled(...), but is "
            f"{self.learner!r}; choose one."
        )

    def _num_jobs(self) -> int:
        """Jobs as scikit-learn counts them: None is one, -1 as many as there are cores."""
        if self.n_jobs is None:
            return 1
        if self.n_jobs == -1:
            return os.cpu_count() or 1
        return whole_number(self.n_jobs, "n_jobs", StructureError)

    def _divides(self) -> bool:
        return isinstance(self._options(), Auto)

    def _em_options(self) -> EmOptions:
        options = self._options()
        usual = EmOptions(max_steps=30).with_params(engine=self.engine)
        return options.em if isinstance(options, Em) else usual

    def _check(self, data: TrainingData) -> None:
        options = self._options()
        name = type(options).__name__
        Clock(self.time_limit)
        self._num_jobs()
        checked_root(self.root)
        require_type(self.tied, bool, "tied", StructureError)
        if isinstance(options, Paper | Em):
            options.scoring.check(data.train.schema)
        if self.resume and self.checkpoint is None:
            raise StructureError(
                "`resume` needs the `checkpoint` to go on from, but there is none; give its path."
            )
        has_file = self.checkpoint is not None and not data.is_sample
        if has_file and isinstance(options, Em | Distilled):
            raise StructureError(
                "`checkpoint` is for learners of structure and for data sets in shards, and must "
                f"be left out with {name}."
            )
        if isinstance(options, Em):
            return
        if data.validation is None:
            raise DataError(
                f"{name} chooses structure by a validation set; set `validation_fraction` above 0, "
                "or give `validation`."
            )
        if data.weights is not None:
            raise DataError(
                f"`sample_weight` must be left out with {name}, which counts all sequences alike; "
                "repeat sequences instead, or use `learner='em'`."
            )
        if self.checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise StructureError(
                "`random_state` must be a whole number where there is a `checkpoint`, so that the "
                f"run can be taken up again, but is {self.random_state!r}."
            )

    def _learned(self, data: TrainingData) -> Outcome:
        options = self._options()
        if isinstance(options, Em):
            return self._learned_by_em(data, options)
        assert data.validation is not None
        if isinstance(options, Distilled):
            return self._learned_from_teacher(data, data.validation, options)
        sets, refit = (data.train, data.validation), self.refit and data.is_held_out
        with reporter(quiet=not self.verbose) as report:
            shared: dict[str, Any] = {
                "seed": data.seed,
                "num_jobs": self._num_jobs(),
                "executor": self._executor(),
                "clock": data.clock,
                "checkpoint": self.checkpoint,
                "resume": self.resume,
                "report": report,
            }
            if isinstance(options, Auto):
                shared |= {"root": checked_root(self.root), "tied": self.tied, "refit": refit}
                shared["covariances"] = self.covariance == "auto"
                auto = learn_auto(*sets, options=options, priors=self.priors, **shared)
            else:
                plan = Plan(
                    growth=options.growth,
                    search=options.search,
                    refit=DEFAULT_PLAN.refit if refit and options.scoring == LIKELIHOOD else None,
                    priors=self.priors or DEFAULT_PRIORS,
                    score=options.scoring,
                    root=self.root,
                    tied=self.tied,
                )
                paper = learn(*sets, plan=plan, checkpoint_every=options.checkpoint_every, **shared)
        if isinstance(options, Paper):
            return self._outcome_of_paper(data, paper)
        return self._with_tables(data, auto, options)

    def _with_tables(self, data: TrainingData, auto: AutoLearned, options: Auto) -> Outcome:
        """The outcome with tables of transitions by a categorical input, where that pays."""
        outcome = self._outcome_of_auto(data, auto)
        self.tables_: tuple[TriedTables, ...] = ()
        inputs = [own for own in data.train.schema.inputs if own.num_categories]
        scores, held = auto.choice.validation, auto.validation
        # Where time was up at once, the scores are those of some of the sequences.
        is_cut = auto.ending is Ending.INTERRUPTED or scores.size < len(held)
        if not inputs or data.validation is None or is_cut:
            return outcome
        try:
            found, score, self.tables_ = learn_tables(
                auto.mixture,
                scores,
                auto.train,
                held,
                priors=self.priors or DEFAULT_PRIORS,
                rng=data.rng(7),
                most=options.max_interfaces,
                refit=self.refit and data.is_held_out,
                deadline=data.clock.is_due,
            )
        except KeyboardInterrupt:
            return outcome._replace(ending=Ending.INTERRUPTED)
        return outcome._replace(network=found, score=score)

    def _outcome_of_paper(self, data: TrainingData, learned: Learned) -> Outcome:
        if learned.ending == Ending.TIME_LIMIT and len(learned.growth) == 1:
            warn_of_time(data, "growth before there were two interface nodes")
        self.growth_ = learned.growth
        self.tried_, self.accepted_ = learned.tried, learned.accepted
        return Outcome(learned.network, learned.score, learned.history, learned.ending)

    def _outcome_of_auto(self, data: TrainingData, learned: AutoLearned) -> Outcome:
        if learned.ending == Ending.TIME_LIMIT and not learned.history:
            member = learned.tried[0].candidate
            nodes = "1 node" if member.size == 1 else f"{member.size} nodes"
            done = f"{nodes} after {member.steps} steps of expectation maximisation"
            warn_of_time(data, f"learning before the first model was trained: it has {done}")
        self.trail_, self.explanation_ = learned.tried, learned.explanation()
        self.tried_, self.accepted_ = len(self.trail_), sum(item.gain > 0 for item in self.trail_)
        if self.verbose:
            print(self.explanation_, file=sys.stderr)
        return Outcome(learned.mixture, learned.score, learned.history, learned.ending)

    def _learned_from_teacher(
        self, data: TrainingData, validation: Sequences, options: Distilled
    ) -> Outcome:
        learned = distil(
            data.train,
            validation,
            options=options,
            priors=self.priors,
            seed=data.seed,
            root=checked_root(self.root),
            tied=self.tied,
            refit=self.refit and data.is_held_out,
            clock=data.clock,
        )
        if learned.ending == Ending.TIME_LIMIT:
            warn_of_time(data, "distillation")
        self.explanation_ = learned.explanation()
        self.tried_, self.accepted_ = len(learned.scores), int(learned.worth < np.inf)
        if self.verbose:
            print(self.explanation_, file=sys.stderr)
        return Outcome(learned.mixture, learned.score, learned.history, learned.ending)

    def _learned_by_em(self, data: TrainingData, options: Em) -> Outcome:
        priors = self.priors or DEFAULT_PRIORS

        def fitted(part: TrainingData) -> Any:
            return fit_factored(
                part,
                (options.n_interfaces,),
                em=options.em,
                priors=priors,
                score=options.scoring,
                root=Root(self.root),
                tied=self.tied,
                transitions=options.transitions,
                is_due=part.clock.is_due,
                quiet=not self.verbose,
            )[0]

        try:
            with limited(data.clock, data.train):
                fit = fitted(data)
        except TimeUpError:  # before a single pass over all data
            fit = fitted(data.sampled(_FEW_SLICES, data.clock.grace(_GRACE, data.train)))
        refit = self.refit and options.scoring == LIKELIHOOD
        return outcome_of_em(fit, data, priors, refit=refit)

    @classmethod
    def _current_parameters(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters of a file; older ones have the options of the learner one by one."""
        name = parameters.get("learner")
        if not isinstance(name, str) or not {"growth", "auto", "em"} & parameters.keys():
            return parameters
        given = {key: value for key, value in parameters.items() if value is not None}
        size, most, scoring = map(given.get, ("n_interfaces", "max_interfaces", "scoring"))
        learner: Learner
        if name == "auto":
            own = {"effort": given.get("effort"), "max_interfaces": most}
            learner = given.get("auto", Auto())
        elif name == "paper":
            bounds = {"min_interfaces": size, "max_interfaces": size or most}
            growth = _changed(given.get("growth", DEFAULT_GROWTH), bounds)
            search = given.get("search", True)
            learner = Paper(growth, {True: DEFAULT_SEARCH, False: None}.get(search, search))
            own = {"scoring": scoring, "checkpoint_every": given.get("checkpoint_every")}
        else:
            own = {"n_interfaces": size, "em": given.get("em"), "scoring": scoring}
            learner = Em()
        return {**parameters, "learner": _changed(learner, own)}


def _changed(options: Any, values: dict[str, Any]) -> Any:
    """The options with those of the values that are given."""
    return options.with_params(**{key: own for key, own in values.items() if own is not None})

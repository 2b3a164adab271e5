"""Hidden Markov models with emissions of two kinds, and the paper's initial template."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, whole_number
from dspn.data.inputs import Rule
from dspn.data.sequences import drawn_places
from dspn.engine import compile_program
from dspn.errors import DataError, StructureError
from dspn.inference.marginals import interface_posteriors
from dspn.learning.em import EmFit, EmOptions, best_of, fit_em, restarts, scaled_families
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.scores import LIKELIHOOD, FitRecord, Score, StopReason
from dspn.learning.slice_spn import DEFAULT_SLICE_SPN, SliceSpnOptions, spn_emissions
from dspn.learning.starts.clusters import clustered_network, randomised
from dspn.leaves.block import GaussianBlock
from dspn.models.estimator import SequenceEstimator
from dspn.models.training import Outcome, TrainingData, outcome_of_em
from dspn.progress import Tell, show_progress
from dspn.structure.build import initial_network
from dspn.structure.edit import with_tables_by
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Sum, children_of
from dspn.structure.template import Template, Top
from dspn.structure.transitions import Transitions, checked_transitions

DEFAULT_EM: Final = EmOptions(max_steps=200)

# Clusters of as many slices as this to a node start a network as well as those of all slices do.
_SLICES_PER_NODE: Final = 100


def fit_factored(
    data: TrainingData,
    sizes: Sequence[int],
    *,
    num_starts: int = 1,
    em: EmOptions = DEFAULT_EM,
    priors: Priors = DEFAULT_PRIORS,
    score: Score = LIKELIHOOD,
    root: Root = Root.FIRST,
    tied: bool = True,
    transitions: Transitions | str = Transitions.DENSE,
    by: str | None = None,
    is_due: Callable[[], bool] | None = None,
    quiet: bool = True,
) -> tuple[EmFit, dict[int, float]]:
    """The best of the paper's initial templates, trained by EM, and the score of each size.

    Args:
        data: What is learned from.
        sizes: Numbers of interface nodes to choose from.
        num_starts: Starting points for each size: clusters of slices, then random ones.
        em: When expectation maximisation stops.
        priors: Pseudo-observations of weights and leaves.
        score: What chooses on the validation set.
        root: The slice that carries the root.
        tied: Whether the bottom network shares the template's parameters.
        transitions: Which inputs the outputs read.
        by: The input of the schema that their weights depend on.
        is_due: Once it says yes, the fit at hand ends and no other start is made.
        quiet: Show no progress.
    """
    begun = 0

    def on_step(tell: Tell, record: FitRecord) -> None:
        done = (begun - 1) * em.max_steps + record.step
        words = f"step {record.step} of expectation maximisation"
        share = done / (len(sizes) * num_starts * em.max_steps)
        tell(f"{words}, {record.train:.6g} nats per sequence", share)

    def start(size: int, number: int) -> DynamicNetwork:
        nonlocal begun
        begun += 1
        rng = data.rng(1, size, number)
        if number == 0:
            sample = data.train[drawn_places(data.train, _SLICES_PER_NODE * size, rng)]
            network = clustered_network(
                sample, size, transitions=transitions, priors=priors, rng=rng, root=root
            )
            network = scaled_families(network, data.train)
        else:
            plain = initial_network(
                data.train.schema, size, transitions=transitions, rng=rng, root=root
            )
            network = randomised(plain, data.train, rng)
        network = network if by is None else with_tables_by(network, by)
        return network if tied else network.untied()

    fits: dict[int, EmFit] = {}
    with show_progress("learning", quiet=quiet, is_bound=True) as tell:
        for size in sizes:
            fits[size] = restarts(
                (start(size, number) for number in range(num_starts)),
                data.train,
                validation=data.validation,
                score=score,
                options=em,
                priors=priors,
                sample_weights=data.weights,
                rng=data.rng(2, size),
                deadline=is_due,
                on_step=partial(on_step, tell),
                keeps_interrupted=True,
            )
            if fits[size].stopped is StopReason.INTERRUPTED:
                break
    return best_of(fits.values()), {size: fit.score for size, fit in fits.items()}


def _tables(network: Template | Top, node: int, weights: Floats) -> Floats:
    """The weights of a sum, (tables, children)."""
    start, width = network.edge_offsets[node], len(children_of(network.nodes[node]))
    count = network.num_tables(network.nodes[node])
    return np.asarray(weights[start : start + count * width].reshape(count, width))


def _by_state(network: Template | Top, node: int, weights: Floats) -> Floats:
    """The weights of a sum over inputs by their positions; zero where there is no edge."""
    position = {n: p for p, n in enumerate(network.inputs)}
    places = [position[child] for child in children_of(network.nodes[node])]
    own = np.zeros((network.num_tables(network.nodes[node]), len(position)))
    own[:, places] = _tables(network, node, weights)
    return own


def start_probabilities(network: DynamicNetwork) -> Floats:
    """P(first state) of a chain with the root at the first slice, (states,)."""
    own = _by_state(network.top, network.top.root, network.parameters.top.weights)
    return np.asarray(own[0])


def transition_matrix(network: DynamicNetwork) -> Floats:
    """P(next state | state) of such a chain, a row for each state.

    Where sums read sums this is the product of their matrices. Where weights depend on an input it
    has a matrix for each value of that input, (values, states, states).
    """
    template, weights = network.template, network.parameters.template.weights
    inputs, rows = set(template.inputs), dict[int, Floats]()
    for node in template.order:
        below = children_of(template.nodes[node])
        if not isinstance(template.nodes[node], Sum):
            continue
        if below[0] in inputs:
            rows[node] = _by_state(template, node, weights)
        elif below[0] in rows:
            own = np.stack(np.broadcast_arrays(*(rows[i] for i in below)), axis=1)
            rows[node] = np.einsum("tc,tcs->ts", _tables(template, node, weights), own)
    factors = (children_of(template.nodes[output]) for output in template.outputs)
    found = [rows[child] for own in factors for child in own if child in rows]
    every = np.stack(np.broadcast_arrays(*found), axis=1)
    return every if template.has_tables else every[0]


@dataclass(eq=False, repr=False)
class Chain(SequenceEstimator):
    """What hidden Markov models have in common, whatever their emissions."""

    n_states: int | Sequence[int] = 8
    _: KW_ONLY
    n_starts: int = 1
    em: EmOptions | None = None
    verbose: int = 0

    @property
    def start_probabilities_(self) -> Floats:
        """P(first state), (states,)."""
        return start_probabilities(self.network_)

    @property
    def transition_matrix_(self) -> Floats:
        """P(next state | state), a row for each state."""
        return transition_matrix(self.network_)

    def _fit_plain(
        self, data: TrainingData, transitions: str = "dense", by: str | None = None
    ) -> tuple[EmFit, dict[int, float]]:
        """The model with independent emissions, and the score of each number of states."""
        em, priors = self.em or DEFAULT_EM, self.priors or DEFAULT_PRIORS
        settings: dict[str, Any] = {"em": em, "priors": priors, "transitions": transitions}
        settings |= {"by": by, "quiet": not self.verbose}
        return fit_factored(data, self._sizes(), num_starts=self.n_starts, **settings)

    def _sizes(self) -> tuple[int, ...]:
        """The numbers of states to choose from, each once."""
        given: Any = self.n_states
        given = (given,) if np.ndim(given) == 0 else tuple(given)
        if not given:
            raise StructureError("`n_states` must hold at least one number, but is empty.")
        sizes = (whole_number(size, "n_states", StructureError) for size in given)
        return tuple(dict.fromkeys(sizes))

    def _check(self, data: TrainingData) -> None:
        whole_number(self.n_starts, "n_starts", StructureError)
        sizes = self._sizes()
        if len(sizes) > 1 and data.validation is None:
            raise DataError(
                f"`n_states` lists {len(sizes)} numbers to choose from, which needs sequences that "
                "choose; set `validation_fraction` above 0, give `validation`, or one number."
            )


@final
@dataclass(eq=False, repr=False)
class HMM(Chain):
    """A hidden Markov model: x_t given its state is a product over the variables.

    It is learned by expectation maximisation, first from clusters of slices and then from
    `n_starts - 1` random starts; the best on the validation set is taken. Where `n_states` lists
    several numbers, that set chooses among them too.

    Args:
        n_states: Number of states, or a list of numbers to choose from.
        n_starts: Number of starting points for each number of states.
        transitions: "dense" for a transition matrix of which every entry is a parameter; "monarch"
            for a product of two block-diagonal matrices and "block" for a sparse one, which are
            for hundreds of states; see `dspn.structure.transitions`.
        by: Where transitions depend on an input: the name of a categorical input of the data, or a
            rule such as `dspn.inputs.Position(24)`. There is a transition matrix for each of its
            values, and they are drawn towards each other (see `Priors`).
        em: When expectation maximisation stops.
        verbose: Whether to show how learning goes on.
        priors: Pseudo-observations of weights and leaves.
        schema: The variables, where they should not be inferred from X.
        families: "auto" to choose the leaf family of each variable of numbers by what is held out;
            by default that of the schema, or the usual one of its kind.
        validation_fraction: Share of the sequences that is held out; 0 for none.
        refit: Whether what was held out is learned from in the end.
        random_state: Seed of everything random.
        lags: Number of earlier slices whose values the leaves are told, or a list such as
            (1, 2, 24); "auto" to choose lags, `lags_of` and `within` by what is held out.
        lags_of: "own" for values of the same variable, "all" for those of all variables.
        within: Whether leaves are told the values of the variables before them in the slice.
        leaf_inputs: Whether leaves are told the inputs of the slice.
        covariance: "full" for Gaussian leaves with a covariance of all continuous variables, or a
            list of blocks of names such as [("x", "y")]; "diag" for independent ones.
    """

    _: KW_ONLY
    transitions: str = "dense"
    by: Any = None

    _KEPT = ("validation_scores_",)

    @property
    def n_states_(self) -> int:
        """The number of states."""
        return self.network_.num_interfaces

    @property
    def emissions_(self) -> dict[str, Floats]:
        """Leaf parameters of each variable, a row for each state; see `dspn.leaves`.

        A variable of a block (`covariance`) has its mean and variance.
        """
        found = {}
        for variable, rows in zip(self.network_.schema, self._leaf_rows(), strict=True):
            leaf = variable.leaf
            if isinstance(leaf, GaussianBlock):
                rows = leaf.restricted_rows(self._leaf_rows()[leaf.carrier], [leaf.member])
            found[variable.name] = rows
        return found

    @property
    def covariances_(self) -> dict[tuple[str, ...], Floats]:
        """Covariances (states, m, m) of each block of m variables, by their names."""
        rows, names = self._leaf_rows(), self.network_.schema.names
        return {
            tuple(names[column] for column in leaf.columns): leaf.moments(rows[leaf.carrier])[1]
            for leaf in (variable.leaf for variable in self.network_.schema)
            if isinstance(leaf, GaussianBlock) and not leaf.is_silent
        }

    def _leaf_rows(self) -> list[Floats]:
        """Leaf parameters of each variable as they are, a row for each state."""
        template, leaves = self.network_.template, self.network_.parameters.template.leaves
        found = []
        for bank, rows in zip(template.banks, leaves, strict=True):
            place = {node: row for row, node in enumerate(bank.nodes)}
            order = [
                place[child]
                for output in template.outputs
                for child in children_of(template.nodes[output])
                if child in place
            ]
            found.append(rows[order])
        return found

    def _learned(self, data: TrainingData) -> Outcome:
        by, inputs = self.by, data.train.schema.inputs
        if isinstance(by, Rule):
            by = next(own.name for own in inputs if own.rule == by)
        transitions = checked_transitions(self.transitions)
        fit, self.validation_scores_ = self._fit_plain(data, transitions, by)
        return outcome_of_em(fit, data, self.priors or DEFAULT_PRIORS, refit=self.refit)


@final
@dataclass(eq=False, repr=False)
class HMMSPN(Chain):
    """A hidden Markov model in which x_t given its state is a learned sum-product network.

    As in Peharz et al. (2014): an `HMM` is learned first, the slices are weighted by the posterior
    of each state under it, and a network is learned for each state from these; then all weights and
    leaves are learned together by expectation maximisation.

    Args:
        n_states: Number of states.
        n_starts: Number of starting points of the first HMM; see `HMM`.
        emission: How the networks of the states are learned.
        em: When expectation maximisation stops.
        verbose: Whether to show how learning goes on.
        priors: Pseudo-observations of weights and leaves.
        schema: The variables, where they should not be inferred from X.
        families: "auto" to choose the leaf family of each variable of numbers by what is held out;
            by default that of the schema, or the usual one of its kind.
        validation_fraction: Share of the sequences that is held out; 0 for none.
        refit: Whether what was held out is learned from in the end.
        random_state: Seed of everything random.
        lags: Number of earlier slices whose values the leaves are told, or a list such as
            (1, 2, 24); "auto" to choose lags, `lags_of` and `within` by what is held out.
        lags_of: "own" for values of the same variable, "all" for those of all variables.
        within: Whether leaves are told the values of the variables before them in the slice.
        leaf_inputs: Whether leaves are told the inputs of the slice.
        covariance: "full" for Gaussian leaves with a covariance of all continuous variables, or a
            list of blocks of names such as [("x", "y")]; "diag" for independent ones.
    """

    _: KW_ONLY
    emission: SliceSpnOptions | None = None

    def _sizes(self) -> tuple[int, ...]:
        return (whole_number(self.n_states, "n_states", StructureError),)

    def _learned(self, data: TrainingData) -> Outcome:
        priors = self.priors or DEFAULT_PRIORS
        plain = self._fit_plain(data)[0].network
        posteriors = interface_posteriors(compile_program(plain), data.train)
        if data.weights is not None:
            posteriors *= np.repeat(data.weights, data.train.lengths)[:, None]
        started = spn_emissions(
            data.train,
            [bank.family for bank in plain.template.banks],
            start_probabilities(plain),
            transition_matrix(plain),
            posteriors,
            options=self.emission or DEFAULT_SLICE_SPN,
            priors=priors,
            rng=data.rng(3),
        )
        fit = fit_em(
            started,
            data.train,
            validation=data.validation,
            options=self.em or DEFAULT_EM,
            priors=priors,
            sample_weights=data.weights,
            rng=data.rng(4),
        )
        return outcome_of_em(fit, data, priors, refit=self.refit)

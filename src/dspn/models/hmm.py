"""Hidden Markov models."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from dspn._arrays import Floats
from dspn._checks import require_type, whole_number
from dspn.data import Schema
from dspn.errors import DataError, StructureError
from dspn.learning.em import EmOptions
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.scores import LIKELIHOOD
from dspn.models._estimator import Outcome, SequenceEstimator, outcome_of
from dspn.models._factored import DEFAULT_EM, FactoredOptions, fit_factored
from dspn.models._training import TrainingData
from dspn.structure import DynamicNetwork, Root, Template, Top
from dspn.structure.nodes import children_of


def checked_sizes(sizes: Any, argument: str) -> tuple[int, ...]:
    """One number of nodes, or several different ones to choose from."""
    if np.ndim(sizes) == 0:
        return (whole_number(sizes, argument, StructureError),)
    found = tuple(whole_number(size, argument, StructureError) for size in sizes)
    if not found:
        raise StructureError(f"`{argument}` must hold at least one number, but is empty.")
    return tuple(dict.fromkeys(found))


def _by_state(network: Template | Top, node: int, weights: Floats) -> Floats:
    """The weights of a sum over all inputs, in the order of their positions."""
    start = network.edge_offsets[node]
    places = [network.inputs.index(child) for child in children_of(network.nodes[node])]
    own = np.empty(len(places))
    own[places] = weights[start : start + len(places)]
    return own


def start_probabilities(network: DynamicNetwork) -> Floats:
    """P(first state) of a chain with the root at the first slice, (states,)."""
    return _by_state(network.top, network.top.root, network.parameters.top.weights)


def transition_matrix(network: DynamicNetwork) -> Floats:
    """P(next state | state) of such a chain, a row for each state."""
    template, weights = network.template, network.parameters.template.weights
    rows = [
        _by_state(template, child, weights)
        for output in template.outputs
        for child in children_of(template.nodes[output])
        if set(children_of(template.nodes[child])) == set(template.inputs)
    ]
    return np.stack(rows)


@final
class HMM(SequenceEstimator):
    """A hidden Markov model: x_t given its state is a product over the variables.

    It is learned by expectation maximisation, first from clusters of slices and then from
    `n_starts - 1` random starts; the best on the validation set is kept. Where `n_states` lists
    several numbers, that set chooses among them too.

    Args:
        n_states: Number of states, or a list of numbers to choose from.
        n_starts: Number of starting points for each number of states.
        em: When expectation maximisation stops.
        priors: Pseudo-observations of weights and leaves.
        schema: The variables, where they should not be inferred from X.
        validation_fraction: Share of the sequences that is held out; 0 for none.
        refit: Whether what was held out is learned from in the end.
        random_state: Seed of everything random.
    """

    def __init__(
        self,
        n_states: int | Sequence[int] = 8,
        *,
        n_starts: int = 1,
        em: EmOptions | None = None,
        priors: Priors | None = None,
        schema: Schema | None = None,
        validation_fraction: float = 0.1,
        refit: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_states = n_states
        self.n_starts = n_starts
        self.em = em
        self.priors = priors
        self.schema = schema
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.random_state = random_state

    _KEPT = ("validation_scores_",)

    @property
    def n_states_(self) -> int:
        """The number of states."""
        return self.network_.num_interfaces

    @property
    def start_probabilities_(self) -> Floats:
        """P(first state), (states,)."""
        return start_probabilities(self.network_)

    @property
    def transition_matrix_(self) -> Floats:
        """P(next state | state), a row for each state."""
        return transition_matrix(self.network_)

    @property
    def emissions_(self) -> dict[str, Floats]:
        """Leaf parameters of each variable, a row for each state; see `dspn.leaves`."""
        template, leaves = self.network_.template, self.network_.parameters.template.leaves
        found = {}
        for bank, rows in zip(template.banks, leaves, strict=True):
            place = {node: row for row, node in enumerate(bank.nodes)}
            order = [
                place[child]
                for output in template.outputs
                for child in children_of(template.nodes[output])
                if child in place
            ]
            found[template.schema[bank.variable].name] = rows[order]
        return found

    def _check(self, schema: Schema, *, weighted: bool, validated: bool) -> None:
        sizes = checked_sizes(self.n_states, "n_states")
        if len(sizes) > 1 and not validated:
            raise DataError(
                f"`n_states` lists {len(sizes)} numbers to choose from, which needs sequences that "
                "choose; set `validation_fraction` above 0, give `validation`, or one number."
            )
        self._options()

    def _options(self) -> FactoredOptions:
        count = whole_number(self.n_starts, "n_starts", StructureError)
        em = DEFAULT_EM if self.em is None else self.em
        priors = DEFAULT_PRIORS if self.priors is None else self.priors
        require_type(em, EmOptions, "em", StructureError)
        require_type(priors, Priors, "priors", StructureError)
        return FactoredOptions(count, em, priors, LIKELIHOOD, Root.FIRST)

    def _learned(self, data: TrainingData) -> Outcome:
        sizes = checked_sizes(self.n_states, "n_states")
        options = self._options()
        fit, self.validation_scores_ = fit_factored(data, sizes, options)
        return outcome_of(fit, data, options.priors, refit=self.refit)

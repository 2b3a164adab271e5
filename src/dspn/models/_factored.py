"""The paper's initial template, trained by expectation maximisation from several starts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from dspn.data.sequences import drawn_places
from dspn.learning.em import EmFit, EmOptions, best_of, restarts, scaled_families
from dspn.learning.priors import Priors
from dspn.learning.scores import Score
from dspn.learning.starts.clusters import clustered_network, randomised
from dspn.models._training import TrainingData
from dspn.structure import DynamicNetwork, Root, initial_network

DEFAULT_EM: Final = EmOptions(max_steps=200)

# Clusters of as many slices as this to a node start a network as well as those of all slices do.
_SLICES_PER_NODE: Final = 100


@final
@dataclass(frozen=True)
class FactoredOptions:
    """How factored templates are started and trained.

    The first start is from clusters of slices, the others are random.
    """

    n_starts: int
    em: EmOptions
    priors: Priors
    score: Score
    root: Root
    tied: bool = True


def _start(data: TrainingData, size: int, number: int, options: FactoredOptions) -> DynamicNetwork:
    """A network to begin from; the first one from clusters, the others at random."""
    rng, root = data.rng(1, size, number), options.root
    if number == 0:
        sample = data.train[drawn_places(data.train, _SLICES_PER_NODE * size, rng)]
        network = clustered_network(sample, size, priors=options.priors, rng=rng, root=root)
        network = scaled_families(network, data.train)
    else:
        plain = initial_network(data.schema, size, rng=rng, root=root)
        network = randomised(plain, data.train, rng)
    return network if options.tied else network.untied()


def fit_factored(
    data: TrainingData,
    sizes: Sequence[int],
    options: FactoredOptions,
    is_due: Callable[[], bool] | None = None,
) -> tuple[EmFit, dict[int, float]]:
    """The best factored template of the given sizes, and the score of each size.

    Once `is_due` says yes, the fit at hand ends and no other start is made.
    """

    def starts(size: int) -> Iterator[DynamicNetwork]:
        return (_start(data, size, number, options) for number in range(options.n_starts))

    fits = {
        size: restarts(
            starts(size),
            data.train,
            validation=data.validation,
            score=options.score,
            options=options.em,
            priors=options.priors,
            sample_weights=data.weights,
            rng=data.rng(2, size),
            deadline=is_due,
        )
        for size in sizes
    }
    return best_of(fits.values()), {size: fit.score for size, fit in fits.items()}

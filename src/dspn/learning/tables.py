"""Tables by inputs for a model that is learned: tried at the end, kept where they pay.

A categorical input is tried by giving every transition of the model a table of weights for each of
its values, all alike at first, and some steps of expectation maximisation, beside as many steps of
the model as it is. What is held out decides. A model may have few states because the input is what
makes states tell: so a second model is given tables as well, one that begins with clusters.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats
from dspn.data.sequences import Sequences
from dspn.engine import compile_program
from dspn.learning.em import EmOptions, fit_em
from dspn.learning.priors import Priors
from dspn.learning.starts.clusters import clustered_network
from dspn.structure.edit import with_tables_by
from dspn.structure.mixture import Mixture

_STEPS: Final = EmOptions(max_steps=30)
_CLUSTERS: Final = 8
# How strongly tables are drawn towards each other, in observations.
_STRENGTHS: Final = (5.0, 50.0)


@final
class TriedTables(NamedTuple):
    """What an input was worth: nats per sequence held out that it gained, and their error."""

    name: str
    gain: float
    error: float
    kept: bool


def learn_tables(
    model: Mixture,
    train: Sequences,
    validation: Sequences,
    *,
    priors: Priors,
    rng: np.random.Generator,
    most: int = _CLUSTERS,
    weights: Floats | None = None,
    deadline: Callable[[], bool] | None = None,
) -> tuple[Mixture, tuple[TriedTables, ...]]:
    """The model with tables by the input that gains most, if one gains more than its error.

    Args:
        model: What was learned without them.
        train: What is learned from.
        validation: What decides.
        priors: Pseudo-observations of weights and leaves.
        rng: Draws the clusters of the second model.
        most: The interface nodes that it may have.
        weights: How often each sequence of `train` counts.
        deadline: Once it says yes, no other input is tried.
    """
    if any(network.template.has_tables for network in model):
        return model, ()
    inputs = [own.name for own in train.schema.inputs if own.num_categories]

    def fitted(start: Mixture, own: Priors) -> tuple[Mixture, Floats]:
        options = {"options": _STEPS, "priors": own, "sample_weights": weights}
        fit = fit_em(start, train, validation=validation, deadline=deadline, **options)  # type: ignore[arg-type]
        return fit.mixture, compile_program(fit.mixture).log_likelihood(validation)

    clusters = clustered_network(
        train, min(_CLUSTERS, most), priors=priors, rng=rng, root=model.root
    )
    starts = (model, Mixture.of(clusters))
    tried: list[TriedTables] = []
    best, plain = model, None
    for name in inputs:
        if deadline is not None and deadline():
            break
        if plain is None:
            plain = fitted(model, priors)[1]
        begun = [
            Mixture(tuple(with_tables_by(network, name) for network in own), own.weights)
            for own in starts
        ]
        settings = [priors.with_params(table_pseudo_count=own) for own in _STRENGTHS]
        fits = [fitted(start, own) for start in begun for own in settings]
        found, scores = max(fits, key=lambda fit: float(fit[1].mean()))
        gains = scores - plain
        gain, error = float(gains.mean()), float(gains.std() / np.sqrt(gains.size))
        before = max((own.gain for own in tried if own.kept), default=0.0)
        keeps = gain > max(error, before)
        if keeps:
            tried = [own._replace(kept=False) for own in tried]
            best = found
        tried.append(TriedTables(name, gain, error, keeps))
    return best, tuple(tried)

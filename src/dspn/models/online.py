"""Models that learn from one batch after the other, without the batches before."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from dspn._arguments import Floats, is_number
from dspn.data.sequences import Sequences
from dspn.io.json_values import JSON
from dspn.learning.online import (
    DEFAULT_ONLINE,
    OnlineOptions,
    OnlineRecord,
    OnlineState,
    OnlineUpdate,
    update,
)
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.unlagged import learn_unlagged
from dspn.leaves.told import has_lags
from dspn.models.model import Model
from dspn.structure.mixture import Mixture

# The entries of a model's provenance with the number of sequences and slices that it was fitted to,
# and with what it has learned since.
TRAINED_ON: Final = "trained_on"
_ONLINE: Final = "online"


def sequences_seen(model: Model) -> float | None:
    """The number of sequences that a model was learned from; None where it is not known."""
    if model.online:
        return OnlineState.from_arrays(model.mixture, model.online).num_sequences
    told = _trained_on(model)
    return None if told is None else told[0]


def _trained_on(model: Model) -> tuple[float, float] | None:
    """The numbers of sequences and slices that a model was fitted to, where they are known."""
    told: Any = model.provenance.get(TRAINED_ON)
    counts: list[Any] = []
    if isinstance(told, dict):
        counts = [told.get(name) for name in ("sequences", "slices")]
    if not counts or not all(is_number(count) and count > 0 for count in counts):
        return None
    return float(counts[0]), float(max(counts))


def online_state(model: Model, data: Sequences, weights: Floats | None = None) -> OnlineState:
    """What a model goes on from with a batch.

    A model that has learned batches before goes on from its statistics. One that was fitted to all
    data at once has the weight of the sequences that it was fitted to. One of unknown origin has
    the weight of the batch.
    """
    if model.online:
        return OnlineState.from_arrays(model.mixture, model.online)
    own = np.ones(len(data)) if weights is None else weights
    count, slices = _trained_on(model) or (float(own.sum()), float(own @ data.lengths))
    return OnlineState.of_model(model.mixture, count, slices / count, data)


def with_batch(
    model: Model,
    data: Sequences,
    *,
    weights: Floats | None = None,
    options: OnlineOptions | None = None,
    priors: Priors | None = None,
    seed: int | None = None,
) -> tuple[Model, OnlineRecord]:
    """The model after one more batch, and what the batch did; see `dspn.learning.online.update`.

    Args:
        model: The model before; it stays as it is.
        data: The batch.
        weights: How often each sequence counts.
        options: How much the batch counts, and when interface nodes are added.
        priors: Pseudo-observations of weights and leaves.
        seed: Seed of everything random; by default that of the model's own learning, or 0.
    """
    told = model.provenance.get("seed")
    if seed is None:
        seed = told if isinstance(told, int) else 0
    chosen = priors or DEFAULT_PRIORS
    found = update(
        online_state(model, data, weights),
        data,
        weights=weights,
        options=options or DEFAULT_ONLINE,
        priors=chosen,
        seed=seed,
    )
    if has_lags(model.schema):
        rng = np.random.default_rng([seed, 6, found.state.num_batches])
        unlagged = learn_unlagged(found.state.mixture, data, chosen, rng)
        assert isinstance(unlagged, Mixture)
        found = found._replace(state=replace(found.state, mixture=unlagged))
    return with_state(model, found), found.record


def with_state(model: Model, found: OnlineUpdate) -> Model:
    """The model of a state, with the origin of the model before it."""
    before: Any = model.provenance.get(_ONLINE)
    added = int(before["interfaces_added"]) if isinstance(before, dict) else 0
    learned: dict[str, JSON] = {
        "batches": found.state.num_batches,
        "sequences": found.state.num_sequences,
        "interfaces_added": added + found.record.added,
    }
    # The score of a model that is no more says nothing of this one.
    told = {**model.provenance, "validation_score": None, _ONLINE: learned}
    return Model(found.state.mixture, provenance=told, online=found.state.arrays())

"""Tables by inputs for the automatic learner: a ladder of models with tables, kept where it pays.

What an input explains need not be held in states, so models with a table of transition weights for
each value of an input want other sizes and other blocks of variables than models without. They
climb a ladder of their own: more and more interface nodes, for all variables in one block, in the
blocks of the model without tables, and in a block for each variable. The best are mixed with each
other and with the model without tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats
from dspn.data.sequences import Sequences, joined
from dspn.engine import compile_program
from dspn.learning.auto.choice import mix, mixture_weights, worthy_members
from dspn.learning.em import EmFit, EmOptions, fit_em
from dspn.learning.priors import Priors
from dspn.learning.starts.clusters import clustered_network
from dspn.structure.edit import with_tables_by
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork

_SIZES: Final = (8, 32, 64, 128, 256)
# Windows of slices that clusters see, and how strongly tables are drawn towards each other, in
# observations. Those of a size that pays are tried beside the first.
_WIDTHS: Final = (2, 6)
_STRENGTHS: Final = (5.0, 30.0)
# Multiplications of a pass over the data, above which a size is not tried.
_MOST_WORK: Final = 1e10
# Variables that have blocks of their own where the model has no blocks.
_FEW_VARIABLES: Final = 4
# Batches of a pass, and the sequences of a batch: small batches learn as much in fewer passes.
_BATCHES: Final = 8
_BATCH: Final = (64, 512)
_MEMBERS: Final = 5
_LEAST_WEIGHT: Final = 0.03

Layout = tuple[tuple[int, ...], ...]


@final
class TriedTables(NamedTuple):
    """What an input was worth: nats per sequence held out that it gained, and their error."""

    name: str
    gain: float
    error: float
    kept: bool
    words: str = ""


class _Recipe(NamedTuple):
    """How a model with tables is made."""

    name: str
    layout: Layout
    size: int
    width: int
    strength: float

    def __str__(self) -> str:
        return " + ".join([str(self.size)] * len(self.layout)) + " nodes"


class _Made(NamedTuple):
    recipe: _Recipe
    network: DynamicNetwork
    scores: Floats
    steps: int

    @property
    def score(self) -> float:
        return float(self.scores.mean())


@final
class _Maker(NamedTuple):
    """Trains what recipes say, from clusters."""

    train: Sequences
    validation: Sequences
    model: Mixture
    priors: Priors
    seed: int
    deadline: Callable[[], bool] | None

    def fit(self, recipe: _Recipe, data: Sequences, steps: int | None = None) -> EmFit:
        """The model of a recipe; with a number of steps it does not look at what is held out."""
        priors = self.priors.with_params(table_pseudo_count=recipe.strength)
        network = clustered_network(
            data,
            [recipe.size] * len(recipe.layout),
            groups=recipe.layout,
            width=recipe.width,
            priors=priors,
            rng=np.random.default_rng(self.seed),
            root=self.model.root,
        )
        network = with_tables_by(network, recipe.name)
        if self.model.components[0].parameters.bottom is not None:
            network = network.untied()
        batch = int(np.clip(len(data) // _BATCHES, *_BATCH))
        options = EmOptions(max_steps=20, patience=3, single_precision=True)
        options = replace(options, batch_size=batch if len(data) >= 2 * batch else None)
        if steps is not None:
            options = replace(options, max_steps=steps, min_steps=steps)
        return fit_em(
            network,
            data,
            validation=self.validation if steps is None else None,
            options=options,
            priors=priors,
            rng=np.random.default_rng(self.seed),
            deadline=self.deadline,
        )

    def make(self, recipe: _Recipe) -> _Made:
        """The model of a recipe with its scores on what is held out."""
        fit = self.fit(recipe, self.train)
        scores = compile_program(fit.mixture).log_likelihood(self.validation)
        best = max(fit.history, key=lambda record: record.validation or -np.inf)
        return _Made(recipe, fit.network, scores, best.step)

    def climb(self, name: str, layouts: Iterable[Layout], most: int) -> list[_Made]:
        """Models of all sizes that pay, and those that other settings make of each layout's best.

        After every size, layouts whose models are clearly behind the best one are left out.
        """
        found: list[_Made] = []
        best: dict[Layout, _Made] = {}
        climbing = list(layouts)
        for size in _SIZES:
            work = size**2 * self.train.total_slices
            if size > max(most, _SIZES[0]) or work > _MOST_WORK or not climbing:
                break
            size = min(size, most)
            for layout in list(climbing):
                if self.deadline is not None and self.deadline():
                    return found
                made = self.make(_Recipe(name, layout, size, _WIDTHS[0], _STRENGTHS[0]))
                found.append(made)
                if layout in best and made.score <= best[layout].score:
                    climbing.remove(layout)
                else:
                    best[layout] = made
            first = max(best.values(), key=lambda own: own.score)
            for layout, own in list(best.items()):
                behind = first.scores - own.scores
                if behind.mean() > 3 * behind.std() / np.sqrt(behind.size):
                    climbing = [one for one in climbing if one != layout]
                    del best[layout]
        for own in best.values():
            larger = min(2 * own.recipe.size, most)
            changes = {"width": _WIDTHS[1]}, {"strength": _STRENGTHS[1]}, {"size": larger}
            for change in changes:
                recipe = own.recipe._replace(**change)
                is_known = any(item.recipe == recipe for item in found)
                work = recipe.size**2 * self.train.total_slices
                if is_known or work > _MOST_WORK or (self.deadline and self.deadline()):
                    continue
                found.append(self.make(recipe))
                own = max(own, found[-1], key=lambda item: item.score)
        return found


def learn_tables(
    model: Mixture,
    scores: Floats,
    train: Sequences,
    validation: Sequences,
    *,
    priors: Priors,
    rng: np.random.Generator,
    most: int = _SIZES[-1],
    refit: bool = True,
    deadline: Callable[[], bool] | None = None,
) -> tuple[Mixture, float, tuple[TriedTables, ...]]:
    """The model mixed with models that have tables by one input, if that gains more than its error.

    Members and weights are chosen on what is held out. What an input gains is estimated with
    weights from one half of it for the sequences of the other half.

    Args:
        model: What was learned without tables.
        scores: Its log-likelihood of each validation sequence, before these were learned from.
        train: What is learned from.
        validation: What decides.
        priors: Pseudo-observations of weights and leaves.
        rng: Draws the clusters.
        most: The interface nodes that a block may have.
        refit: Whether the members that are kept are trained again with what was held out.
        deadline: Once it says yes, no others are tried.

    Returns:
        The mixture, its mean score on what is held out, and what was tried.
    """
    before = float(scores.mean())
    if any(network.template.has_tables for network in model):
        return model, before, ()
    maker = _Maker(train, validation, model, priors, int(rng.integers(2**32)), deadline)
    layouts = _layouts(model, train.num_variables)
    tried: list[TriedTables] = []
    best: tuple[float, list[_Made], Floats] | None = None
    for own in train.schema.inputs:
        if not own.num_categories or (deadline is not None and deadline()):
            continue
        made = maker.climb(own.name, layouts, most)
        if not made:
            continue
        kept, weights, gains, score = _mixed(scores, made)
        gain, error = float(gains.mean()), float(gains.std() / np.sqrt(gains.size))
        keeps = bool(kept) and gain > error and (best is None or score > best[0])
        if keeps:
            tried = [item._replace(kept=False) for item in tried]
            best = (score, kept, weights)
        words = ", ".join(
            f"{item.recipe} at {weight:.2f}" for item, weight in zip(kept, weights[1:], strict=True)
        )
        tried.append(TriedTables(own.name, gain, error, keeps, words))
    if best is None:
        return model, before, tuple(tried)
    score, kept, weights = best
    networks = [item.network for item in kept]
    if refit and not (deadline is not None and deadline()):
        every = joined([train, validation])
        networks = [maker.fit(item.recipe, every, item.steps).network for item in kept]
    if weights[0] == 0:
        return Mixture(tuple(networks), weights[1:]), score, tuple(tried)
    shares = np.concatenate([weights[0] * model.weights, weights[1:]])
    return Mixture((*model.components, *networks), shares), score, tuple(tried)


def _layouts(model: Mixture, count: int) -> list[Layout]:
    """Blocks of variables: all together, those of the model, and each variable by itself."""
    found: list[Layout] = [(tuple(range(count)),)]
    for network in model:
        blocks = [own for own in network.group_variables if own]
        if sorted(v for own in blocks for v in own) == list(range(count)):
            found.append(tuple(sorted(blocks)))
    if 1 < count <= _FEW_VARIABLES:
        found.append(tuple((v,) for v in range(count)))
    return list(dict.fromkeys(found))


def _mixed(scores: Floats, made: list[_Made]) -> tuple[list[_Made], Floats, Floats, float]:
    """The members that are worth it, weights of the model before and of these, gains, the score."""
    table = np.stack([scores, *(own.scores for own in made)], axis=1)

    def chosen(rows: Floats) -> Floats:
        """Weights of all columns, zero where one is not worth it."""
        kept = worthy_members(mixture_weights(rows), _LEAST_WEIGHT, _MEMBERS)
        weights = np.zeros(rows.shape[1])
        weights[kept] = mixture_weights(rows[:, kept])
        return weights

    half = np.arange(len(table)) % 2 == 0
    gains = np.empty(len(table))
    for part in (half, ~half) if len(table) > 1 else (half | ~half,):
        learned = chosen(table[~part]) if len(table) > 1 else chosen(table)
        gains[part] = mix(table[part], learned) - scores[part]
    weights = chosen(table)
    members = [own for own, weight in zip(made, weights[1:], strict=True) if weight > 0]
    kept = np.flatnonzero(weights)
    score = float(mix(table[:, kept], weights[kept]).mean())
    shares = np.concatenate([weights[:1], weights[1:][weights[1:] > 0]])
    return members, shares, gains, score

"""What is proposed for a block: new, within bounds, and from candidates that are there."""

from collections.abc import Sequence

import numpy as np
import pytest

from dspn import EmOptions, Model, Schema, Sequences, Variable
from dspn.executors import Serial
from dspn.learning import Priors
from dspn.learning.auto import Auto
from dspn.learning.auto.base import AutoTask, Block, BlockRecord, Candidate, Recipe, Try
from dspn.learning.auto.moves import (
    CLUSTERS,
    CONTEXTS,
    DEFAULT_MOVES,
    REGROUP,
    Merge,
    OtherPrior,
    Split,
    first_recipe,
    of_size,
    other_windows,
)
from dspn.learning.auto.training import attempted
from dspn.learning.run import Clock
from dspn.structure import Root

SCHEMA = Schema(tuple(Variable.categorical(f"x{i}", ("a", "b", "c")) for i in range(3)))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.8, 0.2], [0.3, 0.7]],
    {name: [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]] for name in SCHEMA.names},
    schema=SCHEMA,
)
BLOCKS: list[Block] = [(0,), (0, 2), (0, 1, 2)]


def drawn(num_sequences: int, length: int, seed: int) -> Sequences:
    return PLANTED.sample(num_sequences, length, rng=np.random.default_rng(seed))


def task(
    *, most: int = 1024, priors: Priors | None = None, num_sequences: int = 30, length: int = 16
) -> AutoTask:
    options = Auto(max_interfaces=most, em=EmOptions(max_steps=0))
    train, validation = drawn(num_sequences, length, 0), drawn(6, 4, 1)
    return AutoTask(train, validation, options, priors, 0, Root.FIRST, True, Serial(), Clock())


def made(own: AutoTask, block: Block, recipe: Recipe, known: Sequence[Candidate]) -> Candidate:
    parent = next((own for own in known if own.number == recipe.parent), None)
    found = attempted(Try(len(known), block, recipe, parent), own)
    assert found is not None
    return found


def proposals(own: AutoTask, block: Block, rounds: int = 4) -> list[tuple[Recipe, list[Candidate]]]:
    """Recipes that are proposed one after another, each with the candidates that were known."""
    known = [made(own, block, first_recipe(own, block), [])]
    found = []
    for _ in range(rounds):
        for move in DEFAULT_MOVES:
            if move == REGROUP:
                continue
            recipe = BlockRecord(own, block, tuple(known)).next_recipe(move)
            if recipe is not None:
                found.append((recipe, list(known)))
                known.append(made(own, block, recipe, known))
    return found


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("most", [1, 2, 9, 1024])
def test_recipes_are_new_and_within_bounds(block: Block, most: int) -> None:
    own = task(most=most)
    found = proposals(own, block)
    assert len({recipe for recipe, _ in found}) == len(found)
    for recipe, known in found:
        assert recipe not in {candidate.recipe for candidate in known}
        assert recipe.amount >= 1 and recipe.concentration > 0 and recipe.width >= 0
        parents = {candidate.number: candidate for candidate in known}
        assert recipe.parent is None or recipe.parent in parents
        if recipe.move in (CLUSTERS, CONTEXTS):
            assert recipe.parent is None and recipe.amount <= most
        else:
            assert recipe.parent is not None
            size = parents[recipe.parent].size
            if recipe.move == Split():
                assert recipe.amount <= size and size + recipe.amount <= most
            if recipe.move == Merge():
                assert 2 * recipe.amount <= size


@pytest.mark.parametrize("most", [1, 3, 9])
def test_no_candidate_has_more_interface_nodes_than_allowed(most: int) -> None:
    own = task(most=most)
    for _, known in proposals(own, (0, 1)):
        assert all(candidate.size <= most for candidate in known)


def test_positions_have_nodes_where_sequences_are_short_and_nodes_many() -> None:
    def has_positions(length: int, amount: int) -> bool:
        own = task(num_sequences=200, length=length)
        found = [recipe.by_position for recipe in other_windows(own, Recipe(CLUSTERS, amount, 1.0))]
        return any(found)

    assert has_positions(4, 16) and has_positions(64, 256)
    assert not has_positions(4, 15) and not has_positions(65, 1024) and not has_positions(1, 64)
    own, recipe = task(length=4), Recipe(CLUSTERS, 32, 1.0, by_position=True)
    assert of_size(own, recipe, 16).by_position
    assert not of_size(own, recipe, 8).by_position
    assert not first_recipe(own, (0, 1, 2), like=of_size(own, recipe, 8)).by_position
    assert "32 clusters of 5 slices by position" in str(recipe)


def test_proposals_are_decided_by_the_candidates() -> None:
    one, other = (proposals(task(most=12), (0, 1, 2)) for _ in range(2))
    assert [recipe for recipe, _ in one] == [recipe for recipe, _ in other]


def test_other_priors_are_not_tried_where_priors_are_given() -> None:
    given = task(priors=Priors(sum_pseudo_count=1.0))
    first = (made(given, (0, 1), first_recipe(given, (0, 1)), []),)
    assert BlockRecord(given, (0, 1), first).next_recipe(OtherPrior()) is None
    free = task()
    assert BlockRecord(free, (0, 1), first).next_recipe(OtherPrior()) is not None


def test_the_best_candidate_is_the_first_among_equals() -> None:
    own = task(most=4)
    first = made(own, (0,), Recipe(CLUSTERS, 2, 0.3), [])
    again = made(own, (0,), Recipe(CLUSTERS, 2, 0.3, width=1), [])
    twin = Candidate(9, (0,), first.network, again.recipe, first.validation, 0, 0.0)
    assert BlockRecord(own, (0,), (first, twin)).best is first


@pytest.mark.parametrize("num_sequences", [1, 3, 200])
@pytest.mark.parametrize("most", [1, 5, 1024])
def test_blocks_begin_within_bounds_whatever_the_data(num_sequences: int, most: int) -> None:
    own = task(most=most, num_sequences=num_sequences, length=1 if num_sequences < 3 else 20)
    sizes = [first_recipe(own, block).amount for block in BLOCKS]
    assert sizes == sorted(sizes)
    for block, size in zip(BLOCKS, sizes, strict=True):
        assert 1 <= size <= min(most, max(1, own.train.total_slices))
        recipe = first_recipe(own, block, REGROUP)
        assert (recipe.move, recipe.amount, recipe.parent) == (REGROUP, size, None)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_single_slice_has_proposals_that_can_be_made(block: Block) -> None:
    own = task(num_sequences=1, length=1)
    for recipe, known in proposals(own, block, rounds=2):
        assert np.isfinite(made(own, block, recipe, known).validation).all()


def test_recipes_are_told_in_words() -> None:
    for move in DEFAULT_MOVES:
        told = str(Recipe(move, 7, 0.25, parent=3))
        assert told.endswith(", from model 3")
        assert ("0.25" if move == OtherPrior() else "7") in told
    assert "model" not in str(Recipe(CLUSTERS, 7, 0.25))

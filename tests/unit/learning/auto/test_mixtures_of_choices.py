"""The finished model: the formula of the choice, with networks as they were or trained on all."""

from dataclasses import replace

import numpy as np
import pytest

from dspn import EmOptions, Model, Schema, Sequences, Variable
from dspn.data.sequences import joined
from dspn.executors import Serial
from dspn.learning import NO_PRIORS
from dspn.learning.auto import Auto, learn_auto
from dspn.learning.auto.base import AutoTask, Candidate, Recipe, Try
from dspn.learning.auto.choice import BlockModel, Choice
from dspn.learning.auto.learner import build_mixture
from dspn.learning.auto.moves import CLUSTERS
from dspn.learning.auto.training import attempted
from dspn.learning.run import Clock, Ending
from dspn.structure import Root
from dspn.structure.validity import violations
from oracles import likelihood as enumerated
from oracles import slice_by_slice

SCHEMA = Schema(
    (Variable.binary("x"), Variable.continuous("y"), Variable.categorical("z", ("a", "b", "c")))
)
LAYOUTS = (((0, 1, 2),), ((0, 2), (1,)), ((0,), (1,), (2,)))
SIZES = {(0, 1, 2): (3, 2), (0, 2): (2,), (1,): (2, 1), (0,): (1,), (2,): (2, 2)}
REFIT = EmOptions(max_steps=3, tolerance=0.0)


def drawn(num_sequences: int, seed: int) -> Sequences:
    rng = np.random.default_rng(seed)
    arrays = []
    for _ in range(num_sequences):
        state = rng.integers(0, 2, size=int(rng.integers(1, 5)))
        rows = np.column_stack([state, rng.normal(3.0 * state), state + rng.integers(0, 2)])
        rows[rng.random(rows.shape) < 0.1] = np.nan
        arrays.append(rows)
    offsets = np.cumsum([0, *map(len, arrays)])
    return Sequences.from_codes(np.concatenate(arrays), offsets, SCHEMA)


def task(**settings: object) -> AutoTask:
    options = Auto(em=EmOptions(max_steps=1), refit=REFIT)
    own = AutoTask(drawn(20, 0), drawn(8, 1), options, None, 0, Root.FIRST, True, Serial(), Clock())
    return replace(own, _restricted={}, **settings)  # type: ignore[arg-type]


def chosen(own: AutoTask) -> Choice:
    """Three layouts; blocks of one and of two members; validation likelihoods left aside."""
    models: dict[tuple[int, ...], BlockModel] = {}
    number = 0
    for block, sizes in SIZES.items():
        members: list[Candidate] = []
        for size in sizes:
            found = attempted(Try(number, block, Recipe(CLUSTERS, size, 0.3)), own)
            assert found is not None
            members.append(found)
            number += 1
        weights = np.array([0.7, 0.3]) if len(sizes) == 2 else np.ones(1)
        models[block] = BlockModel(tuple(members), weights, np.zeros(8))
    return Choice(LAYOUTS, np.array([0.5, 0.3, 0.2]), models, np.zeros(8))


def by_the_formula(choice: Choice, values: np.ndarray) -> float:
    """Sum over layouts of weight times product over blocks of the mixture of their members."""
    total = 0.0
    for layout, weight in zip(choice.layouts, choice.weights.tolist(), strict=True):
        for block in layout:
            model = choice.models[block]
            own = np.ascontiguousarray(values[:, list(block)])
            weight *= sum(
                share * slice_by_slice(member.network, own)
                for share, member in zip(model.weights.tolist(), model.members, strict=True)
            )
        total += weight
    return total


def cut(data: Sequences) -> list[np.ndarray]:
    return [
        data.values[start:end]
        for start, end in zip(data.offsets[:-1], data.offsets[1:], strict=True)
    ]


@pytest.mark.parametrize(("root", "tied"), [("first", True), ("last", False)])
def test_a_finished_mixture_is_the_formula_of_the_choice(root: str, tied: bool) -> None:
    own = task(root=Root(root), tied=tied)
    choice = chosen(own)
    mixture = build_mixture(choice, own, refit=False)
    assert len(mixture) == 3 and mixture.schema == SCHEMA and mixture.root == root
    np.testing.assert_array_equal(mixture.weights, choice.weights)
    for network in mixture:
        assert violations(network.template, network.top) == ()
        assert network.parameters.tied is tied
    sequences = cut(own.validation)
    expected = [by_the_formula(choice, values) for values in sequences]
    unrolled = [
        sum(
            weight * enumerated(network, values)
            for weight, network in zip(mixture.weights.tolist(), mixture, strict=True)
        )
        for values in sequences
    ]
    np.testing.assert_allclose(unrolled, expected, rtol=1e-9)
    np.testing.assert_allclose(
        Model(mixture).log_likelihood(own.validation), np.log(expected), rtol=1e-9, atol=1e-12
    )


def test_refitting_trains_every_member_on_all_data_and_keeps_weights_of_mixtures() -> None:
    own = task()
    choice = chosen(own)
    before, after = (build_mixture(choice, own, refit=refit) for refit in (False, True))
    everything = joined([own.train, own.validation])
    scores = [Model(mixture).log_likelihood(everything).mean() for mixture in (before, after)]
    assert scores[1] > scores[0]
    np.testing.assert_array_equal(after.weights, before.weights)
    for one, other in zip(before, after, strict=True):
        assert one.num_interfaces == other.num_interfaces
        assert one.fingerprint != other.fingerprint
    assert build_mixture(choice, own, refit=True).fingerprint == after.fingerprint


def test_no_steps_of_refitting_leave_the_networks() -> None:
    own = task(options=Auto(em=EmOptions(max_steps=1), refit=EmOptions(max_steps=0)))
    choice = chosen(own)
    one, other = (build_mixture(choice, own, refit=refit) for refit in (False, True))
    assert one.fingerprint == other.fingerprint


def test_refitting_in_batches() -> None:
    own = task(options=Auto(refit=EmOptions(max_steps=1, batch_size=5)))
    choice = chosen(own)
    found = build_mixture(choice, own, refit=True)
    assert found.fingerprint == build_mixture(choice, own, refit=True).fingerprint
    assert np.isfinite(Model(found).log_likelihood(own.validation)).all()


def test_a_layout_of_one_block_and_one_member_is_the_network_itself() -> None:
    own = task()
    choice = chosen(own)
    member = choice.models[(0, 1, 2)].members[0]
    alone = BlockModel((member,), np.ones(1), member.validation)
    single = Choice(LAYOUTS[:1], np.ones(1), {(0, 1, 2): alone}, member.validation)
    assert build_mixture(single, own, refit=False).only is member.network


def test_impossible_validation_sequences_are_not_learned_from_and_do_not_end_the_run() -> None:
    schema = Schema(tuple(Variable.categorical(f"x{i}", (0, 1, 2)) for i in range(2)))
    rng = np.random.default_rng(0)
    train = [rng.integers(0, 2, size=(4, 2)).astype(float) for _ in range(8)]
    unseen = [rng.integers(0, 3, size=(4, 2)).astype(float) for _ in range(4)]
    found = learn_auto(
        Sequences.from_arrays(train, schema=schema),
        Sequences.from_arrays(unseen, schema=schema),
        seed=0,
        options=Auto(effort=1e-3, em=EmOptions(max_steps=2), refit=REFIT),
        priors=NO_PRIORS,
    )
    assert found.score == -np.inf
    assert found.ending is Ending.FINISHED
    assert np.isfinite(Model(found.mixture).log_likelihood(train)).all()

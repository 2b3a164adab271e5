"""Covariances that the automatic learner chooses, and layouts of variables that leaves are told."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dspn import DSPN, HMM, Auto, DSPNClassifier, Model, Schema, Sequences, Variable
from dspn.data.sequences import sequences_of
from dspn.errors import DataError
from dspn.executors import Serial
from dspn.learning.auto.base import AutoTask
from dspn.learning.auto.covariances import choose_covariances
from dspn.learning.dependence import joins_by_dependence
from dspn.learning.run import Clock
from dspn.leaves import with_blocks, with_context
from dspn.structure.edit import side_by_side
from dspn.structure.network import Root

NAMES = ("a", "b", "c")


def drawn(count: int, correlation: float, seed: int = 0) -> list[NDArray[np.float64]]:
    """Two numbers whose noise is correlated and a third, all with the same two regimes."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        noise = rng.normal(size=(40, 3))
        noise[:, 1] = correlation * noise[:, 0] + np.sqrt(1 - correlation**2) * noise[:, 1]
        regime = np.cumsum(rng.random(40) < 0.1) % 2
        found.append(noise + 3.0 * regime[:, None] * np.array([1.0, 0.0, -1.0]))
    return found


def data_of(arrays: list[NDArray[np.float64]], **leaves: Any) -> Sequences:
    schema = Schema(tuple(Variable.continuous(own, leaf=leaves.get(own)) for own in NAMES))
    return Sequences.from_arrays(arrays, schema=schema)


def task_of(train: Sequences, validation: Sequences, **options: Any) -> AutoTask:
    own = Auto(**options)
    return AutoTask(train, validation, own, None, 0, Root.FIRST, True, Serial(), Clock())


def test_a_covariance_is_chosen_where_numbers_move_together() -> None:
    train, validation = data_of(drawn(60, 0.95)), data_of(drawn(30, 0.95, 1))
    given = task_of(train, validation)
    timed, tried, work = begun = choose_covariances(given)
    task = begun.of(given)
    assert task.timed == timed == math.inf
    assert task.units == ((0, 1), (2,))
    assert [own.names for own in tried if own.kept] == [("a", "b")]
    best = next(own for own in tried if own.kept)
    assert best.gain > 5 * best.error > 0
    assert "covariance of a, b: +" in str(best)
    assert 0 < work < 0.15 * task.effort
    again = choose_covariances(task_of(train, validation))
    assert again == begun and again.of(given).schema == task.schema


@pytest.mark.parametrize(
    ("correlation", "leaves", "options"),
    [(0.0, {}, {}), (0.95, {"a": "student_t"}, {}), (0.95, {}, {"effort": 0.01})],
)
def test_leaves_stay_independent_without_a_reason(
    correlation: float, leaves: dict[str, str], options: dict[str, Any]
) -> None:
    train = data_of(drawn(60, correlation), **leaves)
    validation = data_of(drawn(30, correlation, 1), **leaves)
    task = task_of(train, validation, **options)
    begun = choose_covariances(task)
    assert begun.of(task).units == ((0,), (1,), (2,))
    assert not any(own.kept for own in begun.tried)


def test_the_default_learner_has_them() -> None:
    train, test = drawn(60, 0.95), drawn(40, 0.95, 2)
    own = DSPN(Auto(effort=5.0), random_state=0).fit(train)
    diag = DSPN(Auto(effort=5.0), random_state=0, covariance="diag").fit(train)
    assert own.score(test) > diag.score(test) + 2.0
    assert "covariance of x0, x1" in own.explanation_
    assert "covariance" not in diag.explanation_
    # What is known of one says much about the other.
    hidden = [np.where(np.arange(3) == 1, np.nan, one) for one in test]
    errors = [
        float(np.mean((model.impute(hidden).values[:, 1] - np.concatenate(test)[:, 1]) ** 2))
        for model in (own, diag)
    ]
    assert errors[0] < errors[1]
    own.partial_fit(drawn(10, 0.95, 3))
    labels = np.repeat(["x", "y"], 30)
    both = DSPNClassifier(DSPN(Auto(effort=0.1), random_state=0)).fit(
        train[:30] + drawn(30, 0.0, 4), labels
    )
    assert both.predict(test).shape == (40,)


def test_selected_leaves_are_told_the_same_variables() -> None:
    data = data_of(drawn(3, 0.5))
    own = with_context(data.schema, lags=1)
    chosen = sequences_of(data, own, "X").select(["c", "a"])
    assert [source.column for variable in chosen.schema for source in variable.leaf.sources] == [
        0,
        1,
    ]
    block = with_blocks(data.schema, [["a", "c"]])
    assert block.select(["c", "b", "a"]) == with_blocks(
        Schema(tuple(data.schema[i] for i in (2, 1, 0))), [["a", "c"]]
    )
    for schema in (block, with_context(data.schema, lags=1, lags_of="all")):
        with pytest.raises(DataError, match="which the leaves of 'a' are told"):
            schema.select(["a", "b"])


def test_factors_with_covariances_are_one_network() -> None:
    data = data_of(drawn(20, 0.8))
    told = sequences_of(data, with_blocks(data.schema, [["c", "a"]]), "X")
    parts = [told.select(["a", "c"]), told.select(["b"])]
    models = [HMM(2, random_state=0).fit(part) for part in parts]
    joint = side_by_side(told.schema, [own.network_ for own in models], [(0, 2), (1,)])
    wanted = sum(own.score_samples(part) for own, part in zip(models, parts, strict=True))
    assert_allclose(Model(joint).score_samples(told), wanted, rtol=1e-12)


def test_units_are_moved_and_joined_whole() -> None:
    data = data_of(drawn(3, 0.5))
    told = sequences_of(data, with_blocks(data.schema, [["a", "c"]]), "X")
    task = task_of(told, told)
    assert task.units == ((0, 2), (1,))
    assert set(task.neighbours(((0, 2), (1,)))) == {((0, 1, 2),)}
    assert set(task.neighbours(((0, 1, 2),))) == {((0, 2), (1,))}
    strength = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    assert joins_by_dependence(strength, task.units) == [((0, 1, 2), (0, 2), (1,))]
    singles = joins_by_dependence(strength, [(0,), (1,), (2,)])
    assert singles[0] == ((1, 2), (1,), (2,))

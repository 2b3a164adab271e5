import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn._arguments import Floats
from dspn.data import Schema, Sequences, Variable
from dspn.engine import Program, compile_program
from dspn.engine.base import total_of
from dspn.errors import DataError, StructureError
from dspn.learning.ascent import (
    AscentOptions,
    LabelledSequences,
    _Discrimination,
    class_likelihoods,
    class_posteriors,
    discriminate,
)
from dspn.learning.gradient import coordinates_of
from dspn.learning.priors import NO_PRIORS, Priors
from dspn.learning.scores import StopReason
from dspn.structure import DynamicNetwork, from_hmm, initial_network
from strategies import random_case

SCHEMA = Schema((Variable.categorical("a", (0, 1, 2)), Variable.continuous("b")))


def networks(count: int, size: int = 2) -> list[DynamicNetwork]:
    return [initial_network(SCHEMA, size, rng=np.random.default_rng(seed)) for seed in range(count)]


def labelled(num_sequences: int, num_classes: int, seed: int) -> LabelledSequences:
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num_sequences)
    lengths = rng.integers(1, 5, size=num_sequences)
    rows = np.repeat(labels, lengths)
    values = np.stack([rng.integers(3, size=rows.size), rng.normal(rows)], axis=1).astype(float)
    values[rng.random(values.shape) < 0.2] = np.nan
    data = Sequences.from_codes(values, np.concatenate([[0], np.cumsum(lengths)]), SCHEMA)
    return LabelledSequences(data, labels, rng.random(num_sequences) + 0.5)


def task_at(
    programs: tuple[Program, ...], logits: list[float], train: LabelledSequences, priors: Priors
) -> tuple[_Discrimination, Floats]:
    """What is climbed, and the vector of the start."""
    parts = tuple(coordinates_of(program.network) for program in programs)
    task = _Discrimination(programs, parts, train, priors)
    return task, np.concatenate([logits, *(part.vector for part in parts)])


def test_gradient_is_that_of_central_differences() -> None:
    train = labelled(12, 3, 0)
    start = tuple(compile_program(network) for network in networks(3))
    task, vector = task_at(start, [0.1, -0.2, 0.3], train, Priors(0.3))
    found = task.at(vector).gradient
    step = 1e-6
    for place in range(vector.size):
        moved = np.zeros(vector.size)
        moved[place] = step
        rise = task.at(vector + moved).penalised - task.at(vector - moved).penalised
        assert_allclose(found[place], rise / (2 * step), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_gradient_is_right_on_random_templates(seed: int) -> None:
    first, _, data = random_case(seed)
    labels = np.arange(len(data)) % 2
    train = LabelledSequences(data, labels, np.ones(len(data)))
    programs = (compile_program(first), compile_program(first))
    known = class_likelihoods(programs, data)
    if np.any(known == -np.inf):
        pytest.skip("the random evidence is impossible")
    task, start = task_at(programs, [0.3, -0.3], train, NO_PRIORS)
    # Away from the start, where both models are the same and pull in opposite directions.
    rng = np.random.default_rng(seed)
    vector = start + rng.normal(scale=0.1, size=start.size)
    found = task.at(vector).gradient
    direction = rng.normal(size=vector.size)
    step = 1e-6
    rise = task.at(vector + step * direction).train - task.at(vector - step * direction).train
    assert_allclose(found @ direction, rise / (2 * step), rtol=1e-4, atol=1e-6)


def test_posteriors_are_those_of_bayes_and_the_logits_where_nothing_is_possible() -> None:
    with np.errstate(divide="ignore"):
        known = np.log([[0.2, 0.1], [0.0, 0.3], [0.0, 0.0]])
    found = np.exp(class_posteriors(total_of(known), np.log([0.25, 0.75])))
    assert_allclose(found, [[0.4, 0.6], [0.0, 1.0], [0.25, 0.75]], rtol=1e-12)


def test_every_step_raises_the_penalised_score() -> None:
    train = labelled(40, 2, 1)
    fit = discriminate(networks(2), np.zeros(2), train, options=AscentOptions(max_steps=10))
    assert len(fit.history) == 11 and fit.stopped is StopReason.MAX_STEPS
    assert np.all(np.diff([record.penalised for record in fit.history]) > 0)
    assert fit.history[-1].train > fit.history[0].train + 0.1
    programs = [compile_program(network) for network in fit.networks]
    found = class_posteriors(class_likelihoods(programs, train.data), fit.logits)
    assert_allclose(train.mean(found), fit.score, rtol=1e-10)


def test_the_best_models_of_the_validation_set_are_kept() -> None:
    train, held = labelled(20, 2, 2), labelled(20, 2, 3)
    options = AscentOptions(max_steps=60, patience=4)
    fit = discriminate(networks(2, 4), np.zeros(2), train, validation=held, options=options)
    assert fit.score == max(record.validation for record in fit.history)
    assert fit.stopped in (StopReason.PATIENCE, StopReason.MAX_STEPS, StopReason.CONVERGED)


def test_no_steps_leave_the_models_as_they_are() -> None:
    own = networks(2)
    fit = discriminate(own, np.zeros(2), labelled(5, 2, 4), options=AscentOptions(max_steps=0))
    assert [network.fingerprint for network in fit.networks] == [n.fingerprint for n in own]
    assert_allclose(np.exp(fit.logits), [0.5, 0.5], rtol=1e-12)


def test_weights_that_are_zero_stay_zero() -> None:
    emissions = {"a": [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], "b": [[0.0, 1.0], [1.0, 1.0]]}
    own = [
        from_hmm(start, [[0.5, 0.5], [0.0, 1.0]], emissions, schema=SCHEMA)
        for start in ([0.5, 0.5], [0.9, 0.1])
    ]
    values = np.array([[0.0, 0.1], [1.0, 0.9], [2.0, 1.1], [0.0, -0.3]])
    data = Sequences.from_codes(values, [0, 3, 4], SCHEMA)
    train = LabelledSequences(data, np.array([0, 1]), np.ones(2))
    fit = discriminate(own, np.zeros(2), train, options=AscentOptions(max_steps=3))
    for network, before in zip(fit.networks, own, strict=True):
        zero = before.parameters.template.weights == 0
        assert_array_equal(network.parameters.template.weights[zero], 0.0)


def test_a_sequence_that_its_own_class_cannot_make_is_named() -> None:
    emissions = {"a": [[1.0, 0.0, 0.0]], "b": [[0.0, 1.0]]}
    own = [from_hmm([1.0], [[1.0]], emissions, schema=SCHEMA)] * 2
    data = Sequences.from_codes([[0.0, 0.0], [1.0, 0.0]], [0, 1, 2], SCHEMA)
    train = LabelledSequences(data, np.array([0, 1]), np.ones(2))
    with pytest.raises(DataError, match="sequence 1 of `train` has probability zero"):
        discriminate(own, np.zeros(2), train)


def test_one_class_or_labels_out_of_range_are_refused() -> None:
    train = labelled(6, 3, 5)
    with pytest.raises(StructureError, match="two classes or more"):
        discriminate(networks(1), np.zeros(1), train)
    with pytest.raises(DataError, match="from 0 to 1"):
        discriminate(networks(2), np.zeros(2), train)

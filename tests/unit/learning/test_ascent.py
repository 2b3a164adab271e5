import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn.data import Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.errors import DataError, StructureError
from dspn.learning.ascent import AscentFit, AscentOptions, FitRecord, ascend
from dspn.learning.em import EmOptions, fit_em, scaled_families
from dspn.learning.priors import NO_PRIORS, Priors, log_prior
from dspn.learning.scores import ConditionalLikelihood, StopReason
from dspn.leaves import Gaussian, GaussianPrior
from dspn.structure import DynamicNetwork, Root, Sum, from_hmm, initial_network

SCHEMA = Schema(
    (
        Variable.categorical("label", ("a", "b")),
        Variable.continuous("x"),
        Variable.categorical("y", (0, 1, 2)),
        Variable.count("n"),
    )
)
CLASS = ConditionalLikelihood(("label",))
BATCHES = ["every slice", "last slice"]


def labelled(num_sequences: int, seed: int, labels: str) -> Sequences:
    """Two classes that differ a little in y and n, beside a strong nuisance in x; some gaps."""
    rng = np.random.default_rng(seed)
    arrays = []
    for _ in range(num_sequences):
        num_slices = int(rng.integers(1, 7))
        switches = rng.random(num_slices) < (0.3 if labels == "every slice" else 0.0)
        label = (rng.integers(2) + np.cumsum(switches)) % 2
        values = np.empty((num_slices, 4))
        values[:, 0] = label
        values[:, 1] = rng.normal(6.0 * rng.integers(2), 2.0, size=num_slices)
        levels = np.array([[0.5, 0.8], [0.3, 0.6]])[label]
        values[:, 2] = (rng.random((num_slices, 1)) > levels).sum(axis=1)
        values[:, 3] = rng.poisson(3.0 + label)
        values[:, 1:][rng.random((num_slices, 3)) < 0.15] = math.nan
        if labels == "last slice":
            values[:-1, 0] = math.nan
        arrays.append(values)
    offsets = np.cumsum([0, *map(len, arrays)])
    return Sequences.from_codes(np.concatenate(arrays), offsets, SCHEMA)


def generative(train: Sequences, root: str = "first") -> DynamicNetwork:
    """The solution of expectation maximisation."""
    rng = np.random.default_rng(0)
    start = scaled_families(initial_network(SCHEMA, 3, rng=rng, root=Root(root)), train)
    return fit_em(start, train, options=EmOptions(max_steps=40)).network


def validations(fit: AscentFit) -> list[float]:
    found = [record.validation for record in fit.history]
    assert None not in found
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("labels", BATCHES)
def test_conditional_ascent_improves_the_classifier_that_em_found(labels: str, root: str) -> None:
    train = labelled(80, 1, labels)
    start = generative(train, root)
    before = CLASS.mean(compile_program(start), train)
    fit = ascend(start, train, score=CLASS, options=AscentOptions(max_steps=30))
    after = CLASS.mean(compile_program(fit.network), train)
    assert after > before + 0.05
    assert_allclose(fit.score, after, rtol=1e-10)
    assert_allclose([fit.history[0].train, fit.history[-1].train], [before, after], rtol=1e-10)
    assert [record.step for record in fit.history] == list(range(len(fit.history)))
    assert np.all(np.diff([record.penalised for record in fit.history]) > 0)
    assert all(record.validation is None for record in fit.history)


@pytest.mark.parametrize("labels", BATCHES)
def test_best_network_on_the_validation_set_is_kept(labels: str) -> None:
    train, validation = labelled(60, 1, labels), labelled(60, 2, labels)
    start = generative(train)
    options = AscentOptions(max_steps=60, patience=4)
    fit = ascend(start, train, validation=validation, score=CLASS, options=options)
    scores = validations(fit)
    assert fit.score == max(scores)
    assert fit.score > scores[0]
    assert_allclose(CLASS.mean(compile_program(fit.network), validation), fit.score, rtol=1e-12)
    assert fit.stopped is StopReason.PATIENCE
    assert len(scores) - 1 - int(np.argmax(scores)) == 4


def test_start_is_kept_where_every_step_is_worse_on_the_validation_set() -> None:
    train, validation = labelled(40, 1, "last slice"), labelled(40, 2, "last slice")
    # From the best network for the validation set, every way leads down.
    options = AscentOptions(max_steps=200, tolerance=0.0, patience=2)
    start = ascend(
        generative(validation), validation, score=CLASS, options=options, priors=Priors(3.0)
    ).network
    fit = ascend(start, train, validation=validation, score=CLASS, options=options)
    assert fit.network is start
    assert fit.stopped is StopReason.PATIENCE
    assert fit.score == fit.history[0].validation


def test_likelihood_ascent_gets_as_far_as_expectation_maximisation() -> None:
    train = labelled(40, 1, "every slice")
    start = scaled_families(initial_network(SCHEMA, 1, rng=np.random.default_rng(4)), train)
    # One interface node has no local maxima, and its penalised maximum is found in one EM step.
    best = fit_em(start, train, options=EmOptions(max_steps=2)).history[-1].penalised
    fit = ascend(start, train, options=AscentOptions(max_steps=300, tolerance=1e-13))
    assert_allclose(fit.history[-1].penalised, best, rtol=1e-9)
    assert fit.stopped is StopReason.CONVERGED


def test_variance_floor_is_never_crossed_and_reached_where_it_binds() -> None:
    schema = Schema((Variable.continuous("x"), Variable.binary("b")))
    values = np.array([[3.0, 0.0], [3.0, 1.0], [3.0, 1.0], [3.0, 0.0]])
    train = Sequences.from_codes(values, np.array([0, 2, 4]), schema)
    prior = GaussianPrior(3.0, 1.0, 0.0, min_variance=0.25)
    priors = Priors(0.1, (prior,))
    start = initial_network(schema, 2, rng=np.random.default_rng(1))
    fit = ascend(start, train, priors=priors, options=AscentOptions(tolerance=0.0))
    variances = fit.network.parameters.template.leaves[0][:, 1]
    assert_allclose(variances, 0.25, rtol=1e-6)
    assert math.isfinite(log_prior(fit.network, priors))


def test_start_below_the_variance_floor_is_lifted() -> None:
    schema = Schema((Variable.continuous("x"), Variable.binary("b")))
    network = from_hmm([1.0], [[1.0]], {"x": [[0.0, 1e-9]], "b": [[0.5, 0.5]]}, schema=schema)
    values = np.array([[0.1, 0.0], [-0.1, 1.0]])
    train = Sequences.from_codes(values, np.array([0, 2]), schema)
    fit = ascend(network, train)
    floor = Gaussian().default_prior.min_variance
    assert fit.history[0].penalised == -math.inf
    assert math.isfinite(fit.history[1].penalised)
    assert fit.network.parameters.template.leaves[0][0, 1] >= floor


def test_records_are_told_as_they_come_and_the_ascent_ends_at_the_deadline() -> None:
    train = labelled(30, 1, "every slice")
    told: list[FitRecord] = []
    fit = ascend(
        generative(train),
        train,
        score=CLASS,
        on_step=told.append,
        deadline=lambda: len(told) > 3,
    )
    assert tuple(told) == fit.history
    assert len(told) == 4
    assert fit.stopped is StopReason.DEADLINE


def test_ascent_ends_after_max_steps_and_repeats_itself() -> None:
    train = labelled(30, 1, "last slice")
    start = generative(train)
    options = AscentOptions(max_steps=3)
    fits = [ascend(start, train, score=CLASS, options=options) for _ in range(2)]
    assert [len(fit.history) for fit in fits] == [4, 4]
    assert fits[0].stopped is StopReason.MAX_STEPS
    assert fits[0].history == fits[1].history
    assert fits[0].network.fingerprint == fits[1].network.fingerprint
    none = ascend(start, train, score=CLASS, options=AscentOptions(max_steps=0))
    assert none.network is start
    assert len(none.history) == 1


def test_min_steps_hold_off_the_other_rules() -> None:
    train = labelled(30, 1, "every slice")
    start = generative(train)
    early = ascend(start, train, score=CLASS, options=AscentOptions(tolerance=10.0))
    late = ascend(start, train, score=CLASS, options=AscentOptions(tolerance=10.0, min_steps=6))
    assert (len(early.history), len(late.history)) == (2, 7)
    assert early.stopped is late.stopped is StopReason.CONVERGED


def test_only_learnable_nodes_change() -> None:
    train = labelled(30, 1, "every slice")
    start = generative(train)
    template = start.template
    sums = [index for index, node in enumerate(template.nodes) if isinstance(node, Sum)]
    options = AscentOptions(max_steps=5)
    fit = ascend(start, train, score=CLASS, options=options, learnable=sums)
    assert fit.score > fit.history[0].train
    own, old = fit.network.parameters, start.parameters
    assert not np.array_equal(own.template.weights, old.template.weights)
    for after, before in zip(own.template.leaves, old.template.leaves, strict=True):
        assert_array_equal(after, before)
    assert_array_equal(own.top.weights, old.top.weights)
    fixed = ascend(start, train, score=CLASS, learnable=[])
    assert fixed.network is start
    assert fixed.stopped is StopReason.CONVERGED


def test_sequences_of_weight_zero_change_nothing() -> None:
    train = labelled(20, 1, "every slice")
    start = generative(train)
    weights = np.r_[np.full(12, 1.5), np.zeros(8)]
    options = AscentOptions(max_steps=4)
    one = ascend(start, train, score=CLASS, options=options, sample_weights=weights)
    other = ascend(
        start, train[np.arange(12)], score=CLASS, options=options, sample_weights=weights[:12]
    )
    assert one.history == other.history


def test_separable_classes_and_no_priors_leave_finite_parameters() -> None:
    schema = Schema((Variable.binary("label"), Variable.binary("x")))
    values = np.array([[0.0, 0.0], [1.0, 1.0]] * 3)
    train = Sequences.from_codes(values, np.arange(7), schema)
    start = initial_network(schema, 2, rng=np.random.default_rng(2))
    options = AscentOptions(max_steps=500, tolerance=0.0)
    fit = ascend(start, train, score=CLASS, options=options, priors=NO_PRIORS)
    assert_allclose(fit.score, 0.0, atol=1e-6)
    assert np.all(fit.network.parameters.template.leaves[0] > 0)


def test_impossible_training_sequence_is_named() -> None:
    schema = Schema((Variable.binary("label"), Variable.binary("x")))
    network = from_hmm([1.0], [[1.0]], {"label": [[1.0, 0.0]], "x": [[0.5, 0.5]]}, schema=schema)
    train = Sequences.from_codes(np.array([[0.0, 0.0], [1.0, 0.0]]), np.arange(3), schema)
    with pytest.raises(DataError, match="sequence 1 of `train` has probability zero"):
        ascend(network, train, score=CLASS)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_steps", -1), ("patience", 0), ("memory", 2.5), ("tolerance", -1.0), ("min_steps", "2")],
)
def test_options_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(StructureError, match=f"`{name}`"):
        AscentOptions(**{name: value})  # type: ignore[arg-type]

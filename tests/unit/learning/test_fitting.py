"""Fits: what they record, when they stop, and what they keep."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from dspn import Model, Schema, Sequences, Variable
from dspn.engine import Program, compile_program
from dspn.errors import DataError, StructureError
from dspn.learning import (
    NO_PRIORS,
    ConditionalLikelihood,
    EmFit,
    EmOptions,
    FitRecord,
    StopReason,
    best_of,
    em,
    em_step,
    fit_em,
    restarts,
    scaled_families,
)
from dspn.structure import DynamicNetwork, from_hmm, initial_network
from strategies import as_sequences, random_case

SCHEMA = Schema((Variable.binary("x"), Variable.binary("y")))
PLANTED = Model.from_hmm(
    [0.6, 0.4],
    [[0.9, 0.1], [0.2, 0.8]],
    {"x": [[0.9, 0.1], [0.2, 0.8]], "y": [[0.7, 0.3], [0.1, 0.9]]},
    schema=SCHEMA,
)


def start(seed: int, size: int = 2) -> DynamicNetwork:
    return initial_network(SCHEMA, size, rng=np.random.default_rng([1, seed]))


def drawn(seed: int, count: int = 40, length: int = 20) -> Sequences:
    return PLANTED.sample(count, length, rng=np.random.default_rng([2, seed]))


def assert_same_network(one: DynamicNetwork, other: DynamicNetwork, rtol: float = 0.0) -> None:
    for part in ("template", "top"):
        a, b = getattr(one.parameters, part), getattr(other.parameters, part)
        for x, y in zip((a.weights, *a.leaves), (b.weights, *b.leaves), strict=True):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def exactly(steps: int, **others: object) -> EmOptions:
    return EmOptions(max_steps=steps, min_steps=steps, **others)  # type: ignore[arg-type]


# Options.


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("max_steps", -1),
        ("max_steps", 2.5),
        ("min_steps", -1),
        ("patience", 0),
        ("batch_size", 0),
        ("batch_size", "4"),
        ("tolerance", -1e-3),
        ("tolerance", np.nan),
        ("step_delay", -1.0),
        ("step_power", 0.5),
        ("step_power", 1.1),
    ],
)
def test_option_out_of_range_is_refused(name: str, bad: object) -> None:
    with pytest.raises(StructureError, match=f"`{name}`.* must be"):
        EmOptions(**{name: bad})  # type: ignore[arg-type]


def test_options_are_values() -> None:
    assert EmOptions(max_steps=np.int64(3)) == EmOptions(max_steps=3)  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        EmOptions().max_steps = 3  # type: ignore[misc]


# Steps and what is recorded of them.


def test_fit_is_a_chain_of_steps_with_a_record_for_every_network() -> None:
    network, data = start(0), drawn(0)
    seen: list[FitRecord] = []
    fit = fit_em(network, data, options=exactly(5), on_step=seen.append)
    for record in fit.history:
        own = Model(network).log_likelihood(data).mean()
        np.testing.assert_allclose(record.train, own, rtol=1e-12)
        expected = network
        network = em_step(network, data).network
    assert_same_network(fit.network, expected)
    assert [record.step for record in fit.history] == [0, 1, 2, 3, 4, 5]
    assert tuple(seen) == fit.history
    assert fit.score == fit.history[-1].train
    assert fit.stopped is StopReason.MAX_STEPS


def test_structure_is_compiled_once_and_every_step_is_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, data = start(0), drawn(0)
    others = [em_step(network, data).network, network, start(1)]
    calls = {"compile": 0, "flows": 0, "likelihood": 0}

    def counted(name: str, function):  # type: ignore[no-untyped-def]
        def call(*arguments: object, **options: object) -> object:
            calls[name] += 1
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(em, "compile_program", counted("compile", compile_program))
    monkeypatch.setattr(Program, "expected_flows", counted("flows", Program.expected_flows))
    monkeypatch.setattr(Program, "log_likelihood", counted("likelihood", Program.log_likelihood))
    fit_em(network, data, options=exactly(6))
    assert calls == {"compile": 1, "flows": 6, "likelihood": 1}
    fit_em(network, data, options=exactly(2), program=compile_program(network))
    assert calls["compile"] == 1
    restarts(others, data, options=exactly(1))
    assert calls["compile"] == 3


def test_no_step_at_all_gives_the_network_back() -> None:
    network, data = start(0), drawn(0)
    for batch_size in (None, 7):
        options = EmOptions(max_steps=0, batch_size=batch_size)
        fit = fit_em(network, data, options=options, rng=np.random.default_rng(0))
        assert_same_network(fit.network, network)
        assert len(fit.history) == 1
        np.testing.assert_allclose(fit.score, Model(network).log_likelihood(data).mean())
        assert fit.stopped is StopReason.MAX_STEPS


def test_fit_is_the_same_every_time() -> None:
    options = EmOptions(max_steps=4, batch_size=8)
    fits = [
        fit_em(start(0), drawn(0), options=options, rng=np.random.default_rng(3)) for _ in range(2)
    ]
    assert fits[0].history == fits[1].history
    assert_same_network(fits[0].network, fits[1].network)


def test_only_learnable_nodes_are_fitted() -> None:
    network, data = start(0, 3), drawn(0)
    leaves = frozenset(network.template.banks[0].nodes)
    fit = fit_em(network, data, options=exactly(4), learnable=leaves)
    own, old = fit.network.parameters, network.parameters
    np.testing.assert_array_equal(own.template.weights, old.template.weights)
    np.testing.assert_array_equal(own.template.leaves[1], old.template.leaves[1])
    np.testing.assert_array_equal(own.top.weights, old.top.weights)
    assert np.abs(own.template.leaves[0] - old.template.leaves[0]).min() > 0
    assert np.all(np.diff([record.penalised for record in fit.history]) > 0)


def test_dead_nodes_are_named() -> None:
    emissions = {"x": [[0.5, 0.5], [0.9, 0.1]], "y": [[0.5, 0.5], [0.1, 0.9]]}
    network = from_hmm([1.0, 0.0], [[1.0, 0.0], [0.5, 0.5]], emissions, schema=SCHEMA)
    fit = fit_em(network, drawn(0), options=exactly(3), priors=NO_PRIORS)
    assert fit.dead[0].what == "interface 1"
    assert len(fit.dead) == 4
    assert fit_em(start(0), drawn(0), options=exactly(3)).dead == ()


# Stopping.


def test_fit_stops_when_a_step_gains_too_little() -> None:
    options = EmOptions(max_steps=500, tolerance=1e-4)
    fit = fit_em(start(0), drawn(0), options=options)
    assert fit.stopped is StopReason.CONVERGED
    values = np.array([record.penalised for record in fit.history])
    enough = np.diff(values) > 1e-4 * np.maximum(1, np.abs(values[1:]))
    assert enough[:-1].all()
    assert not enough[-1]


def test_fit_takes_the_least_number_of_steps() -> None:
    free = fit_em(start(0), drawn(0), options=EmOptions(tolerance=1e-2))
    more = len(free.history) + 3
    held = fit_em(start(0), drawn(0), options=EmOptions(tolerance=1e-2, min_steps=more))
    assert held.history[-1].step >= more
    assert held.history[: len(free.history)] == free.history
    assert held.stopped is StopReason.CONVERGED


def test_fit_ends_after_the_step_at_which_time_is_up() -> None:
    asked: list[int] = []

    def deadline() -> bool:
        asked.append(1)
        return len(asked) == 3

    fit = fit_em(start(0), drawn(0), options=exactly(50), deadline=deadline)
    assert fit.stopped is StopReason.DEADLINE
    assert fit.history[-1].step == 2
    np.testing.assert_allclose(fit.score, Model(fit.network).log_likelihood(drawn(0)).mean())


def test_pass_over_batches_ends_with_the_batch_at_which_time_is_up() -> None:
    asked: list[int] = []

    def deadline() -> bool:
        asked.append(1)
        return len(asked) >= 3

    options = exactly(50, batch_size=4)
    fit = fit_em(
        start(0), drawn(0), options=options, rng=np.random.default_rng(0), deadline=deadline
    )
    assert fit.stopped is StopReason.DEADLINE
    assert fit.history[-1].step == 1
    assert len(asked) == 4  # after the start, after two batches, after the step


def test_interruption_is_not_held_back() -> None:
    def interrupt(record: FitRecord) -> None:
        if record.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_em(start(0), drawn(0), on_step=interrupt)


# Validation.


def test_best_network_on_the_validation_set_is_kept() -> None:
    few, validation = drawn(3, 4, 8), drawn(4, 50, 8)
    network = start(0, 8)
    options = EmOptions(max_steps=200, tolerance=0.0, patience=4)
    fit = fit_em(network, few, validation=validation, options=options, priors=NO_PRIORS)
    assert fit.stopped is StopReason.PATIENCE
    scores = [record.validation for record in fit.history]
    best = int(np.argmax(scores))
    assert len(scores) - 1 == best + 4
    assert best > 0
    assert fit.score == max(scores)
    for _ in range(best):
        network = em_step(network, few, priors=NO_PRIORS).network
    assert_same_network(fit.network, network)
    assert Model(fit.network).log_likelihood(validation).mean() == fit.score


def test_network_before_the_first_step_may_be_the_best() -> None:
    few, validation = drawn(3, 2, 3), drawn(4, 50, 30)
    options = EmOptions(max_steps=30, tolerance=0.0, patience=3)
    fit = fit_em(PLANTED.network, few, validation=validation, options=options, priors=NO_PRIORS)
    assert_same_network(fit.network, PLANTED.network)
    assert fit.history[-1].step == 3
    assert fit.score == fit.history[0].validation


def test_patience_waits_for_the_least_number_of_steps() -> None:
    few, validation = drawn(3, 2, 3), drawn(4, 50, 30)
    options = EmOptions(max_steps=30, min_steps=9, tolerance=0.0, patience=3)
    fit = fit_em(PLANTED.network, few, validation=validation, options=options, priors=NO_PRIORS)
    assert fit.history[-1].step == 9
    assert_same_network(fit.network, PLANTED.network)


def test_last_network_is_kept_where_the_validation_set_is_impossible_throughout() -> None:
    train = as_sequences(SCHEMA, [np.zeros((5, 2))])
    validation = as_sequences(SCHEMA, [np.ones((5, 2))])
    emissions = {"x": [[1.0, 0.0]], "y": [[0.5, 0.5]]}
    network = from_hmm([1.0], [[1.0]], emissions, schema=SCHEMA)
    fit = fit_em(network, train, validation=validation, options=exactly(8), priors=NO_PRIORS)
    assert fit.score == -np.inf
    np.testing.assert_allclose(fit.network.parameters.template.leaves[1], [[1.0, 0.0]])


def test_conditional_likelihood_chooses_the_network() -> None:
    few, validation = drawn(3, 4, 8), drawn(4, 50, 8)
    score = ConditionalLikelihood(("y",))
    options = EmOptions(max_steps=20, min_steps=20)
    fit = fit_em(start(1, 6), few, validation=validation, score=score, options=options)
    program = compile_program(fit.network)
    assert fit.score == max(r.validation for r in fit.history)  # type: ignore[type-var]
    np.testing.assert_allclose(fit.score, score.mean(program, validation), rtol=1e-12)
    alone = fit_em(start(1, 6), few, score=score, options=exactly(2))
    expected = score.mean(compile_program(alone.network), few)
    np.testing.assert_allclose(alone.score, expected, rtol=1e-12)
    with pytest.raises(DataError, match="'z' is none"):
        fit_em(start(1), few, score=ConditionalLikelihood(("z",)))


# Weights of sequences.


def test_sample_weights_count_sequences_several_times() -> None:
    data = drawn(0, 6, 9)
    counts = np.array([1, 0, 3, 2, 0, 1])
    repeated = data[np.repeat(np.arange(6), counts)]
    for batch in (None, 100):  # one batch of all sequences
        options = exactly(5, batch_size=batch)
        rng = [np.random.default_rng(0) for _ in range(2)]
        one = fit_em(start(0), data, sample_weights=counts, options=options, rng=rng[0])  # type: ignore[arg-type]
        other = fit_em(start(0), repeated, options=options, rng=rng[1])
        assert_same_network(one.network, other.network, rtol=1e-9)
        for a, b in zip(one.history, other.history, strict=True):
            np.testing.assert_allclose([a.train, a.penalised], [b.train, b.penalised], rtol=1e-10)
        np.testing.assert_allclose(one.score, other.score, rtol=1e-10)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([1.0], r"one number for each of the 3 sequences, but has shape \(1,\)"),
        ([1.0, -1.0, 1.0], "finite and not negative, but entry 1 is -1.0"),
        ([1.0, 1.0, np.nan], "finite and not negative, but entry 2 is nan"),
        ([0.0, 0.0, 0.0], "not be zero for all"),
        (["a", "b", "c"], "must be numbers"),
    ],
)
def test_sample_weights_that_are_no_weights_are_refused(bad: list[object], said: str) -> None:
    with pytest.raises(DataError, match=f"`sample_weights`.*{said}"):
        fit_em(start(0), drawn(0, 3, 2), sample_weights=bad)  # type: ignore[arg-type]


# Mini-batches.


def test_mini_batches_come_near_the_full_batch() -> None:
    data, held_out = drawn(0, 300, 20), drawn(1, 500, 20)
    network = start(0, 2)
    full = fit_em(network, data, options=EmOptions(max_steps=200))
    options = EmOptions(max_steps=20, batch_size=20)
    mini = fit_em(network, data, options=options, rng=np.random.default_rng(0))
    assert abs(full.score - mini.score) < 0.05
    scores = [Model(fit.network).log_likelihood(held_out).mean() for fit in (full, mini)]
    assert abs(scores[0] - scores[1]) < 0.05
    np.testing.assert_allclose(
        mini.score, Model(mini.network).log_likelihood(data).mean(), rtol=1e-12
    )


def test_mini_batches_learn_faster_than_full_batches_at_first() -> None:
    data, network = drawn(0, 300, 20), start(0, 2)
    full = fit_em(network, data, options=exactly(3))
    rng = np.random.default_rng(0)
    mini = fit_em(network, data, options=exactly(3, batch_size=20), rng=rng)
    assert mini.history[-1].train > full.history[-1].train
    assert mini.history[0] == full.history[0]


def test_one_batch_of_everything_blends_the_flows_of_all_sequences() -> None:
    data, network = drawn(0, 10, 5), start(0, 2)
    rng = np.random.default_rng(0)
    fit = fit_em(network, data, options=exactly(1, batch_size=10), rng=rng)
    flows = []
    own = network
    for _ in range(2):
        flows.append(fitting_flows(own, data))
        own = em_step(own, data).network
    share = 3.0**-0.6
    counts = (1 - share) * flows[0] + share * flows[1] + 0.1
    np.testing.assert_allclose(
        fit.network.parameters.top.weights, counts / counts.sum(), rtol=1e-10
    )


def fitting_flows(network: DynamicNetwork, data: Sequences) -> np.ndarray:
    flows: np.ndarray = compile_program(network).expected_flows(data).flows.top.weights
    return flows


def test_untied_networks_learn_from_batches() -> None:
    network, _, _ = random_case(2, kinds=("binary", "continuous"), tied=False, zeros=0.0)
    data = Model(network).sample(20, 6, rng=np.random.default_rng(0))
    rng = np.random.default_rng(1)
    fit = fit_em(network, data, options=exactly(3, batch_size=6), rng=rng)
    assert fit.network.parameters.bottom is not None
    assert fit.score > fit.history[0].train


def test_mini_batches_need_a_generator() -> None:
    with pytest.raises(StructureError, match=r"`rng` must be a numpy.random.Generator"):
        fit_em(start(0), drawn(0), options=EmOptions(batch_size=3))


# Data that do not fit.


def impossible(ids: list[str] | None) -> tuple[DynamicNetwork, Sequences]:
    emissions = {"x": [[1.0, 0.0]], "y": [[0.5, 0.5]]}
    network = from_hmm([1.0], [[1.0]], emissions, schema=SCHEMA)
    rows = [np.zeros((3, 2)), np.zeros((2, 2)), np.ones((2, 2)), np.ones((4, 2))]
    return network, as_sequences(SCHEMA, rows).with_ids(ids)


def test_impossible_sequence_is_named_before_any_step() -> None:
    network, data = impossible(None)
    seen: list[FitRecord] = []
    with pytest.raises(DataError, match=r"sequence 2 of `train` .* zero .*as have 1 others"):
        fit_em(network, data, on_step=seen.append)
    assert seen == []
    network, data = impossible(["p", "q", "r", "s"])
    with pytest.raises(DataError, match=r"sequence 2 \(id 'r'\) of `train`"):
        fit_em(network, data, options=EmOptions(batch_size=2), rng=np.random.default_rng(0))


def test_sequence_is_named_by_its_place_among_all_and_may_be_left_out() -> None:
    network, data = impossible(None)
    with pytest.raises(DataError, match=r"sequence 3 of `train` has probability zero under"):
        fit_em(network, data, sample_weights=np.array([0.0, 1.0, 0.0, 1.0]))
    fit = fit_em(network, data, sample_weights=np.array([1.0, 1.0, 0.0, 0.0]))
    expected = compile_program(fit.network).log_likelihood(data[:2]).mean()
    np.testing.assert_allclose(fit.score, expected, rtol=1e-12)


def test_data_of_another_schema_are_refused() -> None:
    network, other = start(0), random_case(0, kinds=("ternary", "binary"))[2]
    with pytest.raises(DataError, match="`train` must have the variables of the model"):
        fit_em(network, other)
    with pytest.raises(DataError, match="`validation` must have the variables of the model"):
        fit_em(network, drawn(0), validation=other)
    with pytest.raises(StructureError, match="`network` must be a DynamicNetwork"):
        fit_em(Model(network), drawn(0))  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="`learnable` must name nodes"):
        fit_em(network, drawn(0), learnable=[1000])


def test_one_sequence_of_one_missing_slice_can_be_fitted() -> None:
    data = as_sequences(SCHEMA, [np.full((1, 2), np.nan)])
    fit = fit_em(start(0), data, options=exactly(2), validation=data)
    np.testing.assert_allclose([fit.score, fit.history[1].train], 0.0, atol=1e-12)


# Restarts.


def test_restarts_keep_the_best_fit() -> None:
    data, validation = drawn(0), drawn(1)
    networks = [start(seed) for seed in range(4)]
    options = exactly(3)
    fits = [fit_em(n, data, validation=validation, options=options) for n in networks]
    found = restarts(iter(networks), data, validation=validation, options=options)
    best = int(np.argmax([fit.score for fit in fits]))
    assert found.score == fits[best].score
    assert_same_network(found.network, fits[best].network)


def test_no_restart_is_begun_when_time_is_up() -> None:
    begun: list[int] = []

    def networks():  # type: ignore[no-untyped-def]
        for seed in range(5):
            begun.append(seed)
            yield start(seed)

    fit = restarts(networks(), drawn(0), options=exactly(2), deadline=lambda: True)
    assert begun == [0]
    assert fit.stopped is StopReason.DEADLINE


def test_first_of_equal_fits_is_the_best() -> None:
    fit = fit_em(start(0), drawn(0), options=exactly(1))
    same, worse = replace(fit, dead=()), replace(fit, score=fit.score - 1)
    assert best_of([worse, fit, same]) is fit
    lost: list[EmFit] = [replace(fit, score=-np.inf), replace(fit, score=-np.inf)]
    assert best_of(lost) is lost[0]
    with pytest.raises(StructureError, match="at least one network"):
        restarts([], drawn(0))


# Families.


def test_scaled_families_keep_the_distribution() -> None:
    network, _, data = random_case(0, kinds=("binary", "continuous", "count"), tied=False)
    scaled = scaled_families(network, data)
    for bank in scaled.template.banks:
        assert bank.family == bank.family.scaled_to(data.values[:, bank.variable])
    assert scaled.template.banks[1].family != network.template.banks[1].family
    expected = Model(network).log_likelihood(data)
    np.testing.assert_array_equal(Model(scaled).log_likelihood(data), expected)
    assert scaled.root == network.root
    assert scaled_families(scaled, data) is scaled


def test_networks_of_categories_have_nothing_to_scale() -> None:
    network = start(0)
    assert scaled_families(network, drawn(0)) is network


def test_single_precision_ends_near_double_precision() -> None:
    schema = Schema(tuple(Variable.binary(f"x{i}") for i in range(4)))
    rng = np.random.default_rng(0)
    data = Model(initial_network(schema, 6, rng=rng)).sample(40, 20, rng=rng)
    start = initial_network(schema, 20, rng=rng)
    double = fit_em(start, data, options=EmOptions(max_steps=15))
    single = fit_em(start, data, options=EmOptions(max_steps=15, single_precision=True))
    assert len(single.history) == len(double.history)
    assert single.score == pytest.approx(double.score, rel=1e-5)
    assert single.score != double.score

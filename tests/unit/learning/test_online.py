"""Stepwise EM against its formula, growth, and models that go on without their data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dspn
from dspn import DynamicNetwork, Mixture, Model, Root, Schema, Sequences, Variable
from dspn.data.sequences import joined
from dspn.engine import ExpectedFlows, compile_program
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.learning import NO_PRIORS, Priors, em_step, maximise
from dspn.learning.em import scaled_families
from dspn.learning.online import OnlineOptions, OnlineState, expected_of_itself, update
from dspn.learning.starts.clusters import randomised
from dspn.leaves import Gaussian, Poisson, with_blocks, with_context
from dspn.leaves.told import told_values
from dspn.models import HMM
from dspn.structure.build import grouped_network, initial_network
from tests.strategies import random_network

SCHEMA = Schema(
    (
        Variable.categorical("a", range(4)),
        Variable.continuous("b"),
        Variable.count("c"),
    )
)
PLAIN = OnlineOptions(growth=False, inner_steps=1)


def planted(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """The parts of an HMM whose states stay for a while."""
    transition = 0.4 * rng.dirichlet(np.ones(size), size) + 0.6 * np.eye(size)
    return {
        "start": rng.dirichlet(np.full(size, 5.0)),
        "transition": transition,
        "emissions": {
            "a": rng.dirichlet(np.full(4, 0.4), size),
            "b": np.stack([rng.normal(0, 3, size), rng.uniform(0.3, 1.5, size)], axis=1),
            "c": rng.uniform(1, 15, (size, 1)),
        },
        "schema": SCHEMA,
    }


def without_last(parts: dict[str, Any]) -> dict[str, Any]:
    """The same HMM without its last state."""
    start, transition = parts["start"][:-1], parts["transition"][:-1, :-1]
    return {
        "start": start / start.sum(),
        "transition": transition / transition.sum(axis=1, keepdims=True),
        "emissions": {name: rows[:-1] for name, rows in parts["emissions"].items()},
        "schema": SCHEMA,
    }


def drawn(model: Model, count: int, rng: np.random.Generator, missing: float = 0.2) -> Sequences:
    data = model.sample(count, rng.integers(3, 9, count), rng=rng)
    lost = rng.random(data.values.shape) < missing
    return data.with_values(np.where(lost, np.nan, data.values))


@pytest.fixture
def model() -> Model:
    return Model.from_hmm(**planted(np.random.default_rng(3), 3))


def arrays_of(flows: ExpectedFlows) -> list[Any]:
    parts = [own for own in (flows.template, flows.top, flows.bottom) if own is not None]
    return [array for own in parts for array in (own.weights, *own.leaves)]


def parameters_of(mixture: Mixture) -> list[Any]:
    found = [mixture.weights]
    for network in mixture:
        own = network.parameters
        for part in (own.template, own.top, own.bottom):
            found += [] if part is None else [part.weights, *part.leaves]
    return found


def test_one_batch_with_step_one_and_no_prior_is_a_step_of_em(model: Model) -> None:
    data = drawn(model, 12, np.random.default_rng(0))
    start = Model.from_hmm(**planted(np.random.default_rng(8), 3)).mixture
    state = OnlineState.of_model(start, 0.0)
    found, record = update(state, data, options=PLAIN, priors=NO_PRIORS)
    wanted = em_step(start.only, data, priors=NO_PRIORS)
    assert found.mixture.only.fingerprint == wanted.network.fingerprint
    assert record.share == 1.0 and found.num_sequences == 12 and found.num_batches == 1
    assert_allclose(record.before, np.mean(wanted.log_likelihood / data.lengths), rtol=1e-12)


@pytest.mark.parametrize("sizes", [(6, 6, 6, 6), (9, 2, 14, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_after_batches_are_those_of_the_formula(
    model: Model, sizes: tuple[int, ...], weighted: bool
) -> None:
    rng = np.random.default_rng(1)
    power, delay, priors = 0.8, 1.5, Priors(sum_pseudo_count=0.3)
    options = OnlineOptions(power, delay, inner_steps=1, growth=False)
    batches = [drawn(model, size, rng) for size in sizes]
    weights = [rng.uniform(0.5, 2.0, size) if weighted else np.ones(size) for size in sizes]
    network = Model.from_hmm(**planted(np.random.default_rng(8), 3)).network
    state = OnlineState.of_data(Mixture.of(network), batches[0], weights[0])
    average = [
        array / weights[0].sum()
        for array in arrays_of(
            compile_program(network).expected_flows(batches[0], weights[0]).flows
        )
    ]
    seen = weights[0].sum()
    for data, own in zip(batches[1:], weights[1:], strict=True):
        state = update(state, data, weights=own, options=options, priors=priors).state
        flows = compile_program(network).expected_flows(data, own).flows
        seen += own.sum()
        share = (seen / own.sum() + delay) ** -power
        average = [
            (1 - share) * old + share * new / own.sum()
            for old, new in zip(average, arrays_of(flows), strict=True)
        ]
        for found, wanted in zip(arrays_of(state.statistics[0]), average, strict=True):
            assert_allclose(found, seen * wanted, rtol=1e-10, atol=1e-12)
        network = maximise(network, state.statistics[0], priors)
        assert state.mixture.only.fingerprint == network.fingerprint
    assert_allclose(state.num_sequences, seen, rtol=1e-14)


def test_the_share_of_equal_batches_is_that_of_their_number() -> None:
    options = OnlineOptions(step_power=0.6, step_delay=2.0)
    for number in range(2, 9):
        assert_allclose(options.share(7.0 * (number - 1), 7.0), (number + 2) ** -0.6, rtol=1e-14)


def test_inner_steps_begin_from_the_same_old_statistics(model: Model) -> None:
    rng = np.random.default_rng(2)
    first, second = drawn(model, 8, rng), drawn(model, 8, rng)
    state = OnlineState.of_data(model.mixture, first)
    once = update(state, second, options=PLAIN).state
    twice = update(state, second, options=PLAIN.with_params(inner_steps=2)).state
    share = PLAIN.share(8, 8)
    flows = compile_program(once.mixture).expected_flows(second).flows
    pairs = zip(
        arrays_of(twice.statistics[0]),
        arrays_of(state.statistics[0]),
        arrays_of(flows),
        strict=True,
    )
    for found, old, new in pairs:
        assert_allclose(found, 2 * ((1 - share) * old + share * new), rtol=1e-10, atol=1e-12)


def test_a_mixture_learns_its_weights_too(model: Model) -> None:
    rng = np.random.default_rng(4)
    other = Model.from_hmm(**planted(np.random.default_rng(5), 2)).network
    mixture = Mixture((model.network, other), np.array([0.5, 0.5]))
    state = OnlineState.of_model(mixture, 1.0, 6.0)
    for _ in range(3):
        state = update(state, drawn(model, 30, rng), options=PLAIN).state
    assert state.mixture.weights[0] > 0.8
    assert_allclose(state.counts.sum(), state.num_sequences, rtol=1e-12)


@pytest.mark.parametrize("length", [1.0, 5.0, 6.3])
@pytest.mark.parametrize("root", list(Root))
@pytest.mark.parametrize("tied", [True, False])
def test_what_a_network_expects_of_itself_leads_back_to_it(
    length: float, root: Root, tied: bool
) -> None:
    rng = np.random.default_rng(6)
    network = grouped_network(SCHEMA, [[0, 2], [1]], [3, 2], rng=rng, root=root)
    network = network if tied else network.untied()
    flows = expected_of_itself(network, 10.0, length)
    again = maximise(network, flows, NO_PRIORS)
    visits = sum(rows[:, 0].sum() for rows in flows.template.leaves)
    if flows.bottom is not None:
        visits += sum(rows[:, 0].sum() for rows in flows.bottom.leaves)
    assert_allclose(visits, 3 * 10.0 * length, rtol=1e-9)
    if length > 1.0:
        pairs = zip(
            parameters_of(Mixture.of(again)), parameters_of(Mixture.of(network)), strict=True
        )
        for found, wanted in pairs:
            assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_templates_of_any_shape_expect_what_they_draw(seed: int) -> None:
    network, rng = random_network(seed), np.random.default_rng(seed)
    data = Model(network).sample(4000, 4, rng=rng)
    drawn_flows = compile_program(network).expected_flows(data).flows
    expected = expected_of_itself(network, 4000.0, 4.0)
    for found, wanted in zip(arrays_of(expected), arrays_of(drawn_flows), strict=True):
        # Of leaves the visits, of which each sequence has four at most.
        found, wanted = (own if own.ndim == 1 else own[:, 0] for own in (found, wanted))
        assert_allclose(found / 4000, wanted / 4000, rtol=0, atol=0.15)


@pytest.mark.parametrize(
    ("family", "rows", "wanted"),
    [
        (Gaussian(1.0, 2.0), [[5.0, 9.0]], [[1.0, 2.0, 4.0 + 9.0 / 4.0]]),
        (Poisson(), [[3.5], [0.0], [1e9]], [[1.0, 3.5], [1.0, 0.0], [1.0, 1e9]]),
    ],
)
def test_the_mean_statistics_of_leaves_are_exact(
    family: Any, rows: list[list[float]], wanted: list[list[float]]
) -> None:
    from dspn.learning.online import _mean_statistics

    assert_allclose(_mean_statistics(family, np.array(rows)), wanted, rtol=1e-9)


def test_a_fitted_model_keeps_what_it_knows(model: Model) -> None:
    """One small batch of other data changes a model of many sequences little."""
    rng = np.random.default_rng(7)
    held = drawn(model, 100, rng)
    other = Model.from_hmm(**planted(np.random.default_rng(5), 3))
    before = model.score(held)
    for count, loss in ((10_000.0, 0.3), (10.0, 3.0)):
        state = OnlineState.of_model(model.mixture, count, 6.0)
        found = update(state, drawn(other, 10, rng), options=PLAIN).state
        assert before - loss < Model(found.mixture).score(held) < before


def per_slice(mixture: Mixture, data: Sequences) -> float:
    return float(Model(mixture).log_likelihood(data).sum() / data.total_slices)


def stream(
    seed: int, size: int, is_new: Callable[[int], bool], num_batches: int
) -> tuple[list[Sequences], Model]:
    rng = np.random.default_rng(seed)
    parts = planted(rng, size)
    full, fewer = Model.from_hmm(**parts), Model.from_hmm(**without_last(parts))
    batches = [
        (full if is_new(batch) else fewer).sample(20, 20, rng=rng) for batch in range(num_batches)
    ]
    return batches, full


@pytest.mark.parametrize("seed", [0, 1])
def test_a_stream_ends_near_the_fit_to_all_batches(seed: int) -> None:
    batches, full = stream(seed, 3, lambda _: True, 20)
    held = full.sample(200, 20, rng=np.random.default_rng(9))
    online = HMM(3, random_state=seed)
    for batch in batches:
        online.partial_fit(batch)
    whole = HMM(3, n_starts=3, random_state=seed).fit(joined(batches))
    assert per_slice(online.mixture_, held) > per_slice(whole.mixture_, held) - 0.05


@pytest.mark.parametrize("seed", [2, 5])
def test_a_state_that_shows_up_later_is_learned(seed: int) -> None:
    batches, full = stream(seed, 4, lambda batch: batch >= 10, 18)
    held = full.sample(200, 20, rng=np.random.default_rng(9))
    fixed = HMM(3, online=OnlineOptions(growth=False), random_state=seed)
    online = HMM(3, random_state=seed)
    for batch in batches:
        online.partial_fit(batch)
        fixed.partial_fit(batch)
    added = [record.batch for record in online.batches_ if record.added]
    assert max(added) > 10 and online.n_states_ >= 4
    assert fixed.n_states_ == 3 and not any(record.tested for record in fixed.batches_)
    whole = HMM(4, n_starts=3, random_state=seed).fit(joined(batches))
    assert per_slice(online.mixture_, held) > per_slice(whole.mixture_, held) - 0.05
    assert per_slice(online.mixture_, held) > per_slice(fixed.mixture_, held)


def test_old_statistics_keep_their_meaning_when_a_node_is_added() -> None:
    batches, _ = stream(5, 4, lambda batch: batch >= 1, 2)
    state = OnlineState.of_data(HMM(3, random_state=0).fit(batches[0]).mixture_, batches[0])
    # With so much weight on the old data the new batch changes next to nothing of them.
    heavy = OnlineState.of_model(state.mixture, 1e6, 20.0)
    heavy = OnlineState(
        heavy.mixture, heavy.statistics, heavy.counts, 1e6, 1, 0.0, state.score, state.spread
    )
    found, record = update(heavy, batches[1], seed=0)
    assert record.added == 1
    old, new = state.mixture.only, found.mixture.only
    for one, other in zip(
        old.parameters.template.leaves, new.parameters.template.leaves, strict=True
    ):
        assert len(other) == len(one) + 1
        assert_allclose(other[: len(one)], one, rtol=0.05, atol=0.01)


def test_the_first_batch_after_a_fit_is_tested_however_small_it_is() -> None:
    batches, _ = stream(5, 4, lambda batch: batch >= 10, 11)
    fitted = HMM(3, random_state=0).fit(joined(batches[:10]))
    fitted.partial_fit(batches[10])
    (record,) = fitted.batches_
    assert record.tested and record.added and record.share < 0.2


def test_a_component_that_excludes_some_sequences_grows_for_the_others() -> None:
    parts = [planted(np.random.default_rng(seed), 2) for seed in (3, 5)]
    for own, codes in zip(parts, ([0, 1], [2, 3]), strict=True):
        own["emissions"]["a"] = np.eye(4)[codes]
    networks = [Model.from_hmm(**own).network for own in parts]
    mixture = Mixture(tuple(networks), np.array([0.5, 0.5]))
    data = Model(mixture).sample(30, 8, rng=np.random.default_rng(0))
    state = OnlineState.of_model(mixture, 10.0, 8.0)
    eager = OnlineOptions(caution=0.0)
    record = update(state, data, options=eager, priors=NO_PRIORS).record
    assert record.tested and record.after > record.before


@pytest.mark.parametrize("seed", range(8))
def test_templates_of_any_shape_learn_on(seed: int) -> None:
    network = random_network(seed)
    data = Model(network).sample(12, 5, rng=np.random.default_rng(1))
    state = OnlineState.of_model(Mixture.of(network), 12.0, 5.0)
    eager = OnlineOptions(caution=0.0, surprise=0.0)
    for _ in range(2):
        state = update(state, data, options=eager).state
    assert state.num_batches == 2


def test_arrays_and_back(model: Model) -> None:
    rng = np.random.default_rng(1)
    state = OnlineState.of_data(model.mixture, drawn(model, 10, rng))
    new = drawn(model, 10, rng)
    for own in (state, OnlineState.of_model(model.mixture, 4.0, 3.0)):
        again = OnlineState.from_arrays(own.mixture, own.arrays())
        one, other = update(own, new).state, update(again, new).state
        assert one.mixture.fingerprint == other.mixture.fingerprint
        assert one.arrays().keys() == other.arrays().keys()
        for name, array in one.arrays().items():
            assert_array_equal(array, other.arrays()[name])


@pytest.mark.parametrize("name", ["counts", "progress", "0.top.weights", "0.template.leaves.1"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_arrays_of_another_model_are_refused(model: Model, name: str, is_missing: bool) -> None:
    arrays = OnlineState.of_model(model.mixture, 4.0, 3.0).arrays()
    arrays[name] = arrays[name][:-1]
    if is_missing:
        del arrays[name]
    with pytest.raises(ModelFileError, match="do not fit"):
        OnlineState.from_arrays(model.mixture, arrays)


@pytest.mark.parametrize(
    "options", [{"step_power": 0.5}, {"step_delay": -1}, {"inner_steps": 0}, {"growth": "yes"}]
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(StructureError, match=next(iter(options))):
        OnlineOptions(**options)


def test_bad_batches_are_refused(model: Model) -> None:
    state = OnlineState.of_model(model.mixture, 4.0, 3.0)
    data = drawn(model, 5, np.random.default_rng(0))
    with pytest.raises(DataError, match="`data`"):
        update(state, data.select(["a", "b"]))
    with pytest.raises(DataError, match="sample_weights"):
        update(state, data, weights=np.ones(4))
    with pytest.raises(StructureError, match="options"):
        update(state, data, options=3)  # type: ignore[arg-type]
    certain = planted(np.random.default_rng(3), 3)
    certain["emissions"]["a"] = np.eye(4)[:3]
    closed = OnlineState.of_model(Model.from_hmm(**certain).mixture, 4.0, 3.0)
    impossible = Sequences.from_codes([[3.0, np.nan, np.nan]], [0, 1], SCHEMA)
    with pytest.raises(DataError, match="probability zero"):
        update(closed, impossible)


def context_network(seed: int) -> tuple[DynamicNetwork, Sequences]:
    """A network whose leaves are told lags and inputs, or have a covariance, and data."""
    rng = np.random.default_rng(seed)
    plain = Schema(
        (
            Variable.continuous("x"),
            Variable.count("n"),
            Variable.categorical("c", tuple("abc")),
            Variable.continuous("y", leaf="student_t:3" if seed == 4 else None),
        )
    ).with_inputs((Variable.continuous("u"),))
    schema = with_context(plain, lags=1, leaf_inputs=True)
    if seed % 2:
        schema = with_blocks(plain, "full")
    values = np.column_stack(
        [
            rng.normal(size=400),
            rng.poisson(3.0, size=400),
            rng.integers(3, size=400),
            rng.normal(size=400),
        ]
    )
    inputs = rng.normal(size=(400, 1))
    data = Sequences.from_codes(values, np.arange(0, 401, 20), schema, inputs=inputs)
    network = randomised(initial_network(schema, 2, rng=rng), data, rng)
    return scaled_families(network, data), data


@pytest.mark.parametrize("seed", range(5))
def test_what_a_model_expects_in_contexts_leads_back_to_it(seed: int) -> None:
    network, data = context_network(seed)
    state = OnlineState.of_model(Mixture.of(network), 1000.0, data=data)
    again = maximise(network, state.statistics[0], NO_PRIORS)
    for bank, old, new in zip(
        network.template.banks,
        network.parameters.template.leaves,
        again.parameters.template.leaves,
        strict=True,
    ):
        if getattr(bank.family, "is_silent", False):
            continue
        values = told_values(data, bank.variable)
        expected = bank.family.log_prob(old, values)
        assert_allclose(bank.family.log_prob(new, values), expected, atol=2e-3)
    weights = network.parameters.template.weights
    assert_allclose(again.parameters.template.weights, weights, atol=1e-8)
    assert_allclose(state.statistics[0].template.leaves[0][:, 0].sum(), 20_000.0, rtol=1e-8)


@pytest.mark.parametrize("options", [{"lags": 1}, {"covariance": "full"}, {"leaf_inputs": True}])
def test_batches_are_learned_with_contexts(options: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    u, X = rng.normal(size=(48, 12, 1)), rng.normal(size=(48, 12, 2))
    X[..., 1] = 0.8 * X[..., 0] + 0.3 * X[..., 1] + u[..., 0]
    for t in range(1, 12):
        X[:, t, 0] += 0.9 * X[:, t - 1, 0]

    def batch(begin: int, end: int) -> tuple[list[Any], dict[str, Any]]:
        inputs = {"inputs": list(u[begin:end])} if "leaf_inputs" in options else {}
        return list(X[begin:end]), inputs

    online = OnlineOptions(growth="leaf_inputs" in options)
    model, whole = (HMM(1, random_state=0, online=online, **options) for _ in range(2))
    for start in range(0, 36, 12):
        own, inputs = batch(start, start + 12)
        model.partial_fit(own, **inputs)
    own, inputs = batch(0, 36)
    whole.fit(own, **inputs)
    test, inputs = batch(36, 48)
    score = whole.score(test, **inputs)
    assert model.score(test, **inputs) > score - 0.03 * abs(score)
    model.save(tmp_path / "model.dspn")
    again = dspn.load(tmp_path / "model.dspn")
    learned = [own.partial_fit(test, **inputs).score(test, **inputs) for own in (again, model)]
    assert learned[0] == learned[1]
    assert whole.partial_fit(test, **inputs).score(test, **inputs) > score

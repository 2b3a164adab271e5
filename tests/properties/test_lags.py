"""Models whose leaves are told inputs, lags and earlier variables, against the static network."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.base import clone

import dspn
from dspn import DynamicNetwork, Model, Schema, Sequences, Variable
from dspn.data.sequences import sequences_of
from dspn.engine import Engine, compile_program
from dspn.engine.cpu import CpuEngine, Paths
from dspn.engine.gpu import GpuEngine
from dspn.errors import DataError, StructureError
from dspn.inference.gaps import draw_gaps
from dspn.learning.em import em_step, scaled_families
from dspn.learning.priors import DEFAULT_PRIORS, log_prior
from dspn.learning.starts.clusters import randomised
from dspn.leaves.told import Told, told_values, with_context
from dspn.models import DSPN, HMM
from dspn.structure import NetworkParameters, Parameters, initial_network
from dspn.structure.nodes import Leaf
from dspn.structure.template import Template
from oracles import density, evaluate, mode_density, static_network
from strategies import arbitrary_sequence, hide, random_network

ENGINES: dict[str, Engine | str] = {
    "reference": "reference",
    "plain": "cpu",
    "general": CpuEngine(Paths(chains=False, lanes=2, segment_bytes=1, cached_bytes=1)),
    "log space": CpuEngine(Paths(doubt=True)),
    "gpu": GpuEngine("numpy"),
}
INPUTS = (Variable.categorical("u", ("p", "q", "r")), Variable.continuous("w"))


def told_network(seed: int) -> DynamicNetwork:
    """A random network whose leaves are told some of everything."""
    rng = np.random.default_rng([5, seed])
    plain = random_network(seed)
    choices = {
        "lags": int(rng.integers(0, 3)),
        "lags_of": ("own", "all")[seed % 2],
        "within": bool(rng.integers(2)),
        "leaf_inputs": bool(rng.integers(2)),
    }
    if not (choices["lags"] or choices["within"]):
        choices["leaf_inputs"] = True
    schema = with_context(plain.schema.with_inputs(INPUTS), **choices)  # type: ignore[arg-type]
    nodes = tuple(
        Leaf(node.variable, schema[node.variable].leaf or node.family)
        if isinstance(node, Leaf)
        else node
        for node in plain.template.nodes
    )
    template = Template(schema, nodes, plain.template.outputs)

    def made(own: NetworkParameters) -> NetworkParameters:
        rows = (bank.family.random(len(bank.nodes), rng) for bank in template.banks)
        return NetworkParameters(own.weights, tuple(rows))

    own = plain.parameters
    bottom = None if own.bottom is None else made(own.bottom)
    parameters = Parameters(made(own.template), own.top, bottom)
    return DynamicNetwork(template, plain.top, parameters, plain.root)


def told_case(seed: int) -> tuple[DynamicNetwork, Sequences]:
    network = told_network(seed)
    rng = np.random.default_rng([6, seed])
    schema = network.schema
    arrays = [
        hide(arbitrary_sequence(schema, int(rng.integers(1, 5)), rng), rng, share)
        for share in (0.0, 0.3, 0.6)
    ]
    total = sum(map(len, arrays))
    inputs = np.column_stack([rng.integers(3, size=total), rng.normal(size=total)])
    offsets = np.concatenate([[0], np.cumsum(list(map(len, arrays)))])
    return network, Sequences.from_codes(np.concatenate(arrays), offsets, schema, inputs=inputs)


def told_value(
    network: DynamicNetwork, data: Sequences, index: int, *, best: bool = False
) -> float:
    """P of one sequence, or the best of all choices, with leaves in their contexts."""
    length, n = int(data.lengths[index]), len(network.schema)
    static = static_network(network, length)
    rows = data.offsets[index] + np.arange(length)
    columns = [told_values(data, v, rows) for v in range(n)]
    leaves = [math.nan] * len(static.nodes)
    for number, node in enumerate(static.nodes):
        if not isinstance(node, Leaf):
            continue
        t, v = divmod(node.variable, n)
        family, row = node.family, static.leaf_parameters[number]
        value = columns[v][t] if columns[v].ndim == 1 else columns[v][t, 0]
        if isinstance(family, Told):
            row, family = family.resolve(row, columns[v][t, 1:]), family.plain
        if math.isnan(value) and best:
            leaves[number] = mode_density(family, row)
        else:
            leaves[number] = density(family, row, float(value))
    return evaluate(static, leaves, add=max) if best else evaluate(static, leaves)


@pytest.mark.parametrize("part", range(2))
def test_engines_agree_with_the_static_network(part: int) -> None:
    others = sorted(set(ENGINES) - {"plain"})
    for seed in range(100 * part, 100 * part + 100):
        network, data = told_case(seed)
        expected = [math.log(told_value(network, data, i)) for i in range(len(data))]
        for name in ("plain", others[seed % len(others)]):
            engine = ENGINES[name]
            program = compile_program(network, engine=engine)
            found = program.log_likelihood(data)
            assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=f"{seed} {name}")
            if seed % 5 == 0:
                best = [math.log(told_value(network, data, i, best=True)) for i in range(len(data))]
                completed = dspn.inference.complete(program, data)
                assert_allclose(completed.log_prob, best, rtol=1e-9, atol=1e-9)
                assert not np.isnan(completed.sequences.values).any()


def test_engines_give_the_same_flows() -> None:
    for seed in range(0, 100, 4):
        network, data = told_case(seed)
        scaled = scaled_families(network, data)
        weights = np.ones(len(data))
        expected = compile_program(scaled, engine="reference").expected_flows(data, weights)
        for engine in ("cpu", ENGINES["general"], ENGINES["gpu"]):
            found = compile_program(scaled, engine=engine).expected_flows(data, weights)
            for one, other in zip(
                found.flows.template.leaves, expected.flows.template.leaves, strict=True
            ):
                assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("within", [False, True])
def test_likelihoods_sum_to_one_for_every_pattern_of_gaps(within: bool) -> None:
    rng = np.random.default_rng(1)
    plain = Schema((Variable.binary("a"), Variable.categorical("b", (0, 1, 2))))
    schema = with_context(plain, lags=2, lags_of="all", within=within)
    network = initial_network(schema, 3, rng=rng)
    program = compile_program(network)
    for pattern in itertools.product([True, False], repeat=6):
        seen = np.array(pattern).reshape(3, 2)
        choices = [
            range(size) if here else [np.nan]
            for here, size in zip(seen.ravel(), [2, 3] * 3, strict=True)
        ]
        values = np.array(list(itertools.product(*choices)), dtype=float).reshape(-1, 2)
        data = Sequences.from_codes(values, np.arange(0, len(values) + 1, 3), schema)
        assert_allclose(np.exp(program.log_likelihood(data)).sum(), 1.0, rtol=1e-12)


def ar_chain(k: int, seed: int) -> tuple[Model, dict[str, np.ndarray]]:
    """A chain whose states are regressions on two lags of two variables, and its numbers."""
    rng = np.random.default_rng(seed)
    plain = Schema((Variable.continuous("x"), Variable.continuous("y")))
    schema = with_context(plain, lags=2, lags_of="all")
    own = {
        "start": rng.dirichlet(np.ones(k)),
        "transition": rng.dirichlet(np.ones(k), size=k),
        "free": rng.normal(size=(k, 2, 2)) ** 2 + 0.1,
        "coefficients": rng.normal(0, 0.3, size=(k, 2, 5)),
        "variance": rng.gamma(2.0, size=(k, 2)),
    }
    # Branches of the latest own value and of both own values, before the one of all values.
    own |= {f"own {n}": rng.normal(0, 0.3, size=(k, 2, n + 2)) ** 2 + 0.1 for n in (1, 2)}
    branches = ("free", "own 1", "own 2", "coefficients", "variance")
    emissions = {
        name: np.column_stack([own[branch][:, v] for branch in branches])
        for v, name in enumerate(schema.names)
    }
    return Model.from_hmm(own["start"], own["transition"], emissions, schema=schema), own


def forward_by_hand(own: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    """Log p(values, last state) of the chain, with the branch that every entry's lags allow."""
    log_b = np.zeros((len(values), len(own["start"])))
    for t, v in itertools.product(range(len(values)), range(2)):
        if np.isnan(values[t, v]):
            continue
        past = np.full((2, 2), np.nan)
        for lag in (1, 2):
            if t >= lag:
                past[lag - 1] = values[t - lag]
        told = np.concatenate([past[:, v], past[:, 1 - v]])
        if not np.isnan(told).any():
            mean = own["coefficients"][:, v] @ np.append(1.0, told)
            variance = own["variance"][:, v]
        else:
            count = int(np.argmax(np.append(np.isnan(told[:2]), True)))
            rows = own[f"own {count}" if count else "free"][:, v]
            mean, variance = rows[:, :-1] @ np.append(1.0, told[:count]), rows[:, -1]
        squares = (values[t, v] - mean) ** 2 / variance
        log_b[t] -= 0.5 * (np.log(2 * np.pi * variance) + squares)
    alpha = np.log(own["start"]) + log_b[0]
    for own_b in log_b[1:]:
        alpha = logsumexp(alpha[:, None] + np.log(own["transition"]), axis=0) + own_b
    return np.asarray(alpha)


def test_an_autoregressive_hmm_is_the_forward_pass_by_hand() -> None:
    model, own = ar_chain(3, 0)
    values = model.sample(1, 40, rng=np.random.default_rng(2)).values
    holed = values.copy()
    holed[[7, 12, 13, 20, 30], [0, 1, 1, 0, 1]] = np.nan
    log_alpha = forward_by_hand(own, holed)
    assert_allclose(model.log_likelihood([holed]), logsumexp(log_alpha), rtol=1e-12)
    alpha = forward_by_hand(own, values)
    assert_allclose(model.log_likelihood([values]), logsumexp(alpha), rtol=1e-12)
    steps = model.surprise([values])
    assert not steps.exact
    assert_allclose(-steps.slices.sum(), logsumexp(alpha), rtol=1e-10)
    stream = model.filter()
    for t, x in enumerate(values):
        ahead = stream.predict(quantiles=(0.5,))
        if t == 20:
            told = np.concatenate([values[:20], [[np.nan, np.nan]]])
            marginals = model.marginals([told], quantiles=(0.5,))
            for v in range(2):
                assert_allclose(ahead[v].mean, marginals[v].mean, rtol=1e-10)
                assert_allclose(ahead[v].quantiles, marginals[v].quantiles, rtol=1e-10)
        assert_allclose(stream.update(x).surprise, steps.slices[t], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(28))
def test_em_never_falls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    number = Variable.continuous("x", leaf="student_t" if seed >= 24 else None)
    plain = [
        Schema((number, Variable.binary("b"))),
        Schema((Variable.count("n"),)),
        Schema((Variable.categorical("c", tuple("abc")), number)),
    ][seed % 3].with_inputs(INPUTS)
    options = {"lags": 1 + seed % 2, "lags_of": ("own", "all")[seed % 2], "within": seed % 4 == 3}
    schema = with_context(plain, leaf_inputs=seed % 4 < 2, **options)  # type: ignore[arg-type]
    arrays = [hide(arbitrary_sequence(schema, 20, rng), rng, 0.1) for _ in range(6)]
    inputs = np.column_stack([rng.integers(3, size=120), rng.normal(size=120)])
    data = Sequences.from_codes(
        np.concatenate(arrays), np.arange(0, 121, 20), schema, inputs=inputs
    )
    network = randomised(initial_network(schema, 2, rng=rng), data, rng)
    last = -np.inf
    for _ in range(12):
        score = compile_program(network).log_likelihood(data).sum()
        score += log_prior(network, DEFAULT_PRIORS)
        assert score >= last - 1e-9 * abs(score)
        last = score
        network = em_step(network, data, priors=DEFAULT_PRIORS).network


def test_forecasts_of_an_autoregression_have_its_moments() -> None:
    schema = with_context(Schema((Variable.continuous("x"),)), lags=1)
    row = [[0.0, 1.0, 1.0, 0.8, 0.25]]
    model = Model.from_hmm([1.0], [[1.0]], {"x": row}, schema=schema)
    past = np.array([[0.0], [3.0]])
    found = model.forecast([past], 4, num_paths=20_000, quantiles=(0.1, 0.5, 0.9))
    own = found.marginals["x"]
    mean, variance = 3.0, 0.0
    for step in range(4):
        mean, variance = 1.0 + 0.8 * mean, 0.25 + 0.64 * variance
        assert abs(own.mean[step] - mean) < 5 * own.error[step]
        assert_allclose(own.variance[step], variance, rtol=0.05)
        width = own.quantiles[step, 2] - own.quantiles[step, 0]
        assert_allclose(width, 2 * 1.2816 * math.sqrt(variance), rtol=0.05)
    assert found.num_paths == 20_000 and not found.marginals.exact
    again = model.forecast([past], 4, num_paths=20_000, quantiles=(0.1, 0.5, 0.9))
    assert_array_equal(again.marginals["x"].mean, own.mean)


def test_draws_follow_the_lags() -> None:
    plain = Schema((Variable.categorical("c", ("a", "b", "c")),))
    schema = with_context(plain, lags=1)
    cycle = np.array([[0.9, 0.1, 0.0], [0.0, 0.1, 0.9], [0.8, 0.0, 0.2]])
    row = np.concatenate([[0.2, 0.3, 0.5], cycle.ravel()])[None]
    model = Model.from_hmm([1.0], [[1.0]], {"c": row}, schema=schema)
    drawn = model.sample(400, 60, rng=np.random.default_rng(0)).values.reshape(400, 60)
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (drawn[:, :-1].astype(int), drawn[:, 1:].astype(int)), 1)
    assert_allclose(pairs / pairs.sum(axis=1, keepdims=True), cycle, atol=0.02)


def ar2(rng: np.random.Generator, number: int, length: int) -> list[np.ndarray]:
    x = np.zeros((number, length + 50))
    for t in range(2, length + 50):
        x[:, t] = 1.2 * x[:, t - 1] - 0.5 * x[:, t - 2] + 0.7 * rng.normal(size=number)
    return list(x[:, 50:, None])


def test_models_with_lags_find_an_autoregression(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    train, test = ar2(rng, 40, 100), ar2(rng, 20, 100)
    model = HMM(1, lags=2, random_state=0).fit(train)
    left = np.concatenate([x[2:] - 1.2 * x[1:-1] + 0.5 * x[:-2] for x in test])
    truth = -0.5 * math.log(2 * math.pi * 0.49) - (left**2).mean() / 0.98
    surprise = -model.surprise(test).slices.reshape(20, 100)[:, 2:].mean()
    assert truth - surprise < 0.01
    model.save(tmp_path / "m.dspn")
    again = dspn.load(tmp_path / "m.dspn")
    assert_array_equal(again.score_samples(test), model.score_samples(test))
    assert again.lags == 2 and clone(model).get_params()["lags"] == 2
    assert clone(model).set_params(lags=1).lags == 1
    hidden = [x.copy() for x in test]
    hidden[0][50] = np.nan
    assert not model.marginals(hidden).exact
    assert not model.complete(hidden).exact
    assert np.isfinite(model.impute(hidden).values).all()
    short = HMM(2, lags=2, random_state=0, validation_fraction=0.5)
    short.fit([x[: 1 + 20 * (i > 0)] for i, x in enumerate(train)])
    with pytest.raises(DataError, match="look back 2 slices"):
        HMM(1, lags=2).fit([x[:2] for x in train])
    with pytest.raises(StructureError, match="must be all variables"):
        Model(ar_chain(2, 1)[0].network).over(["x"])


def test_inputs_of_leaves_are_learned() -> None:
    rng = np.random.default_rng(4)
    u = [rng.normal(size=(50, 1)) for _ in range(20)]
    x = [1.0 + 2.0 * own + 0.1 * rng.normal(size=own.shape) for own in u]
    data = Sequences.from_arrays(x, inputs=u)
    model = HMM(1, leaf_inputs=True, random_state=0).fit(data)
    row = model.emissions_[data.schema.names[0]][0]
    assert_allclose(row, [1.0, 2.0, 0.01], atol=0.02)
    for lags in (0, 1):
        model = HMM(2, leaf_inputs=True, lags=lags, random_state=0).fit(data)
        stream, steps = model.filter(), model.surprise(data[:1])
        for t in range(3):
            tails = stream.tails(x[0][t], inputs=u[0][t])
            assert 0 < tails[0] <= 1
            assert abs(stream.predict(inputs=u[0][t])[0].mean[0] - x[0][t, 0]) < 0.5
            step = stream.update(x[0][t], inputs=u[0][t])
            assert_allclose(step.surprise, steps.slices[t], rtol=1e-9)
        ahead = model.forecast(data[:1], 2, inputs=[u[1][:2]]).marginals[0].mean
        assert_allclose(ahead, 1.0 + 2.0 * u[1][:2, 0], atol=0.05)


@pytest.mark.parametrize("learner", ["em", "paper", "auto"])
def test_every_learner_takes_lags(learner: str) -> None:
    rng = np.random.default_rng(1)
    data = ar2(rng, 12, 30)
    options = {"auto": dspn.Auto(effort=0.2), "em": dspn.Em(n_interfaces=2), "paper": "paper"}
    model = DSPN(options[learner], lags=2, random_state=0, time_limit=3)  # type: ignore[arg-type]
    model.fit(data)
    plain = HMM(4, random_state=0).fit(data)
    assert model.score(data) > plain.score(data)
    assert sequences_of(data, model.schema_, "X").schema == model.schema_


@pytest.mark.filterwarnings("ignore:variables x0 have the same value")
def test_the_automatic_learner_keeps_variables_together_that_are_told_each_other() -> None:
    rng = np.random.default_rng(1)
    data = []
    for _ in range(16):
        x = rng.normal(size=31)
        y = x[:-1] + 0.1 * rng.normal(size=30)
        data.append(np.stack([np.zeros(30), x[1:], y], axis=1))
    told: dict[str, Any] = {"lags": 1, "lags_of": "all", "within": True, "random_state": 0}
    model = DSPN(dspn.Auto(effort=0.5), **told).fit(data)
    assert model.score(data) > HMM(1, **told).fit(data).score(data) - 0.5


def test_gaps_fit_both_sides() -> None:
    rng = np.random.default_rng(0)
    schema = with_context(Schema((Variable.continuous("x"),)), lags=1)
    slope, constant, variance = 0.9, 0.3, 0.25
    mean, spread = constant / (1 - slope), variance / (1 - slope**2)
    row = [[mean, spread, constant, slope, variance]]
    model = Model.from_hmm([1.0], [[1.0]], {"x": row}, schema=schema)
    x = model.sample(2, 40, rng=rng).values.copy()
    times = np.arange(40)
    covariance = spread * slope ** np.abs(np.subtract.outer(times, times))
    gap, seen = times[15:25], np.delete(times, times[15:25])
    gain = covariance[np.ix_(gap, seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    hidden = x.copy()
    hidden[gap] = np.nan
    found = model.marginals([hidden[:40], hidden[40:]], quantiles=(0.1, 0.9))["x"]
    assert_allclose(found.mean, mean + gain @ (x[seen, 0] - mean), rtol=1e-9)
    left = np.diag(covariance[np.ix_(gap, gap)] - gain @ covariance[np.ix_(seen, gap)])
    assert_allclose(found.variance, left, rtol=0.5)
    assert_array_equal(found.error < 1e-9, True)
    filled = model.impute([hidden[:40], hidden[40:]]).values
    assert_allclose(filled[gap, 0], found.mean, rtol=1e-12)


def test_gaps_of_several_states_follow_the_model_of_complete_sequences() -> None:
    model, _ = ar_chain(2, 3)
    x = model.sample(1, 9, rng=np.random.default_rng(5)).values.copy()
    hidden = x.copy()
    hidden[4, 0] = np.nan
    grid = np.linspace(-15, 15, 1501)
    many = np.tile(x, (len(grid), 1, 1))
    many[:, 4, 0] = grid
    logs = model.log_likelihood(list(many))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = float(weights @ grid)
    deviation = math.sqrt(float(weights @ (grid - mean) ** 2))
    found = model.marginals([hidden], quantiles=(0.5,))
    own = found["x"]
    assert not found.exact
    assert abs(own.mean[0] - mean) < 6 * own.error[0] + 0.02 * deviation
    assert_allclose(math.sqrt(own.variance[0]), deviation, rtol=0.25)


def test_gaps_of_student_t_noise_follow_the_model_of_complete_sequences() -> None:
    schema = with_context(Schema((Variable.continuous("x", leaf="student_t:3"),)), lags=1)
    rows = [[0.0, 4.0, 0.5, 0.9, 0.2], [1.0, 4.0, -1.0, 0.2, 1.5]]
    chances = [[0.9, 0.1], [0.2, 0.8]]
    model = Model.from_hmm([0.6, 0.4], chances, {"x": rows}, schema=schema)
    data = model.sample(1, 9, rng=np.random.default_rng(5))
    grid = np.linspace(-20, 20, 4001)
    many = np.tile(data.values, (len(grid), 1, 1))
    many[:, 4, 0] = grid
    logs = model.log_likelihood(list(many))
    below = np.cumsum(np.exp(logs - logs.max()))
    below /= below[-1]
    hidden = data.values.copy()
    hidden[4] = np.nan
    copies = data.with_values(hidden)[np.zeros(100, dtype=np.int64)]
    draws = draw_gaps(compile_program(model.mixture), copies, num_draws=50).draws
    levels = np.array([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98])
    points = np.interp(levels, below, grid)
    assert_allclose([np.mean(draws <= own) for own in points], levels, atol=0.03)


def test_student_t_noise_is_not_bent_by_wrong_readings() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(600, 1))
    x = 1.0 + 2.0 * u + rng.normal(0, 0.5, (600, 1))
    x[:30] += 30.0 * np.sign(u[:30])
    found = {}
    for leaf in ("student_t", None):
        schema = Schema((Variable.continuous("x", leaf=leaf),), (Variable.continuous("u"),))
        data = Sequences.from_codes(x, np.arange(0, 601, 60), schema, inputs=u)
        model = HMM(1, leaf_inputs=True, random_state=0).fit(data)
        found[leaf] = model.model_.mixture.components[0].parameters.template.leaves[0][0]
    assert_allclose(found["student_t"][:2], [1.0, 2.0], atol=0.05)
    assert 0.1 < found["student_t"][2] < 0.3
    assert found[None][1] > 2.4 and found[None][2] > 10.0


def test_other_families_cannot_be_told_lags() -> None:
    with pytest.raises(DataError, match="name 'student_t', or leave the lags out"):
        with_context(Schema((Variable.continuous("x", leaf="gamma"),)), lags=1)

"""Gaussian leaves over blocks of variables, against scipy, hmmlearn and the static network."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hmmlearn.hmm import GaussianHMM
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

import dspn
from dspn import DynamicNetwork, Model, Schema, Sequences, Variable
from dspn.data.sequences import sequences_of
from dspn.engine import Engine, compile_program
from dspn.engine.cpu import CpuEngine, Paths
from dspn.engine.gpu import GpuEngine
from dspn.errors import DataError, StructureError
from dspn.learning.em import em_step, scaled_families
from dspn.learning.priors import DEFAULT_PRIORS, NO_PRIORS, log_prior
from dspn.leaves import GaussianBlock, GaussianBlockPrior, StudentT, with_blocks
from dspn.models import DSPN, HMM, DSPNClassifier
from dspn.structure import NetworkParameters, Parameters
from dspn.structure.edit import marginal
from dspn.structure.nodes import Leaf, Product, Sum
from dspn.structure.template import Template
from oracles import density, mode_density, static_network
from strategies import arbitrary_sequence, hide, random_network, random_recipe

Floats = NDArray[np.float64]
ENGINES: dict[str, Engine | str] = {
    "reference": "reference",
    "cpu": "cpu",
    "general": CpuEngine(Paths(chains=False, lanes=2, segment_bytes=1, cached_bytes=1)),
    "log space": CpuEngine(Paths(doubt=True)),
    "gpu": GpuEngine("numpy"),
}


def random_rows(block: GaussianBlock, count: int, rng: np.random.Generator) -> Floats:
    """Rows of parameters with means and covariances of their own."""
    if block.is_silent:
        return np.empty((count, 0))
    roots = rng.normal(size=(count, block.size, block.size))
    covariances = roots @ np.swapaxes(roots, 1, 2) + 0.2 * np.eye(block.size)
    return block.from_moments(2.0 * rng.normal(size=(count, block.size)), covariances)


def block_case(seed: int) -> tuple[DynamicNetwork, Sequences]:
    """A random network with a block of two or three variables, in any order, and evidence."""
    rng = np.random.default_rng([8, seed])
    kinds = tuple(rng.permutation(["continuous", "continuous", "continuous", "binary"]).tolist())
    plain = random_network(random_recipe(seed, kinds=kinds, zeros=0.0))
    names = [own.name for own in plain.schema if own.kind == "continuous"]
    chosen = rng.permutation(names)[: 2 + seed % 2].tolist()
    schema = with_blocks(plain.schema, [chosen])
    nodes = tuple(
        Leaf(node.variable, schema[node.variable].leaf or node.family)
        if isinstance(node, Leaf)
        else node
        for node in plain.template.nodes
    )
    template = Template(schema, nodes, plain.template.outputs)

    def made(own: NetworkParameters) -> NetworkParameters:
        rows = [
            random_rows(bank.family, len(bank.nodes), rng)
            if isinstance(bank.family, GaussianBlock)
            else old
            for bank, old in zip(template.banks, own.leaves, strict=True)
        ]
        return NetworkParameters(own.weights, tuple(rows))

    own = plain.parameters
    bottom = None if own.bottom is None else made(own.bottom)
    parameters = Parameters(made(own.template), own.top, bottom)
    network = DynamicNetwork(template, plain.top, parameters, plain.root)
    arrays = [
        hide(arbitrary_sequence(schema, int(rng.integers(1, 4)), rng), rng, share)
        for share in (0.0, 0.3, 0.6)
    ]
    offsets = np.concatenate([[0], np.cumsum(list(map(len, arrays)))])
    return network, Sequences.from_codes(np.concatenate(arrays), offsets, schema)


def block_density(family: GaussianBlock, row: Floats, values: Floats, *, best: bool) -> Floats:
    """N(observed; mean, covariance), times the largest density of the rest, for slices (G, n)."""
    (mean,), (covariance,) = family.moments(row[None])
    seen = np.flatnonzero(~np.isnan(values[0, list(family.columns)]))
    gone = np.delete(np.arange(family.size), seen)
    found = np.ones(len(values))
    if seen.size:
        own = multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)])
        found = np.atleast_1d(own.pdf(values[:, np.array(family.columns)[seen]]))
    if best and gone.size:
        across = covariance[np.ix_(gone, seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
        left = covariance[np.ix_(gone, gone)] - across @ covariance[np.ix_(seen, gone)]
        found = found / np.sqrt(np.linalg.det(2 * np.pi * left))
    return found


def oracle(network: DynamicNetwork, values: Floats, *, best: bool = False) -> Floats:
    """P of sequences (G, slices, variables) that have the same entries missing, one by one."""
    static, n = static_network(network, values.shape[1]), len(network.schema)
    found: list[Floats] = []
    for number, node in enumerate(static.nodes):
        if isinstance(node, Leaf):
            t, v = divmod(node.variable, n)
            family, row = node.family, np.array(static.leaf_parameters[number])
            if isinstance(family, GaussianBlock):
                silent = np.ones(len(values))
                own = (family, row, values[:, t])
                found.append(silent if family.is_silent else block_density(*own, best=best))
            elif best and np.isnan(values[0, t, v]):
                found.append(np.full(len(values), mode_density(family, row)))
            else:
                places, where = np.unique(values[:, t, v], return_inverse=True)
                found.append(np.array([density(family, row, x) for x in places])[where])
        elif isinstance(node, Product):
            found.append(np.prod([found[child] for child in node.children], axis=0))
        else:
            assert isinstance(node, Sum)
            terms = np.array([found[child] for child in node.children])
            terms = terms * np.array(static.weights[number])[:, None]
            found.append(terms.max(axis=0) if best else terms.sum(axis=0))
    return found[static.root]


@pytest.mark.parametrize("name", ENGINES)
def test_likelihoods_and_completions_are_those_of_the_static_network(name: str) -> None:
    for seed in range(20):
        network, data = block_case(seed)
        program = compile_program(network, engine=ENGINES[name])
        parts = [part[None] for part in np.split(data.values, data.offsets[1:-1])]
        expected = [np.log(oracle(network, part))[0] for part in parts]
        assert_allclose(program.log_likelihood(data), expected, rtol=1e-9, atol=1e-9)
        best = [np.log(oracle(network, part, best=True))[0] for part in parts]
        completed = dspn.inference.complete(program, data)
        assert_allclose(completed.log_prob, best, rtol=1e-9, atol=1e-9)
        again = dspn.inference.complete(program, completed.sequences)
        assert np.all(again.log_prob >= completed.log_prob - 1e-9)


@pytest.mark.parametrize("seed", range(15))
def test_conditionals_and_surprises_are_those_of_the_static_network(seed: int) -> None:
    network, data = block_case(seed)
    engine = ENGINES[sorted(ENGINES)[seed % len(ENGINES)]]
    program = compile_program(network, engine=engine)
    levels = (0.1, 0.5)
    marginals = dspn.inference.marginals(program, data, quantiles=levels)
    assert marginals.exact
    surprise = dspn.inference.surprise(program, data)
    grid = np.linspace(-30, 30, 4001)
    for i in range(len(data)):
        values = data[[i]].values
        for t, v in itertools.product(range(len(values)), range(len(data.schema))):
            if not isinstance(data.schema[v].leaf, GaussianBlock):
                continue
            row = data.offsets[i] + t
            many = np.tile(values, (len(grid), 1, 1))
            many[:, t, v] = grid
            chances = oracle(network, many)
            without = values[None].copy()
            without[0, t, v] = np.nan
            total = oracle(network, without)[0]
            assert_allclose(trapezoid(chances, grid), total, rtol=1e-7)
            chances /= total
            if np.isnan(values[t, v]):
                own = marginals[v]
                (entry,) = np.flatnonzero(own.slices == row)
                mean = trapezoid(grid * chances, grid)
                assert_allclose(own.mean[entry], mean, rtol=1e-6, atol=1e-6)
                spread = trapezoid((grid - mean) ** 2 * chances, grid)
                assert_allclose(own.variance[entry], spread, rtol=1e-6)
                below = np.interp(own.quantiles[entry], grid, np.cumsum(chances) * (60 / 4000))
                assert_allclose(below, levels, atol=0.03)
                continue
            here = oracle(network, values[None])[0] / total
            assert_allclose(surprise.variables[row, v], -np.log(here), rtol=1e-8, atol=1e-8)
            lower = trapezoid(chances[grid <= values[t, v]], grid[grid <= values[t, v]])
            assert_allclose(surprise.tails[row, v], 2 * min(lower, 1 - lower), atol=0.05)


def test_smaller_networks_sum_out_members_of_a_block() -> None:
    checked = 0
    for seed in range(40):
        network, data = block_case(seed)
        rng = np.random.default_rng(seed)
        kept = np.sort(rng.permutation(4)[: 1 + seed % 3])
        hidden = np.full(data.values.shape, np.nan)
        hidden[:, kept] = data.values[:, kept]
        try:
            small = marginal(network, kept.tolist())
        except StructureError:
            continue
        own = Sequences.from_codes(data.values[:, kept], data.offsets, small.schema)
        expected = compile_program(network).log_likelihood(data.with_values(hidden))
        found = compile_program(small).log_likelihood(own)
        assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("seed", range(8))
def test_streams_are_marginals_of_longer_sequences(seed: int) -> None:
    network, data = block_case(seed)
    model = Model(network)
    stream = model.filter()
    values = data[[1]].values
    for t, row in enumerate(values):
        blank = np.concatenate([values[:t], np.full((1, values.shape[1]), np.nan)])
        longer = Sequences.from_codes(blank, np.array([0, t + 1]), data.schema)
        ahead = stream.predict(quantiles=(0.2,))
        known = dspn.inference.marginals(model.compiled, longer, quantiles=(0.2,))
        seen = Sequences.from_codes(values[: t + 1], np.array([0, t + 1]), data.schema)
        told = [
            None if np.isnan(x) else (v.categories[int(x)] if v.categories else x)
            for v, x in zip(data.schema, row, strict=True)
        ]
        tails = stream.tails(told)
        whole = dspn.inference.surprise(model.compiled, seen)
        for v, variable in enumerate(data.schema):
            if isinstance(variable.leaf, GaussianBlock):
                assert_allclose(ahead[v].mean[0], known[v].mean[-1], rtol=1e-8, atol=1e-8)
                assert_allclose(ahead[v].quantiles[0], known[v].quantiles[-1], rtol=1e-8, atol=1e-8)
                assert_allclose(tails[v], whole.tails[t, v], rtol=1e-7, atol=1e-9)
        step = stream.update(told)
        assert_allclose(step.surprise, whole.slices[t], rtol=1e-8, atol=1e-8)


def test_engines_give_the_same_flows() -> None:
    for seed in range(0, 40, 4):
        network, data = block_case(seed)
        scaled = scaled_families(network, data)
        weights = np.ones(len(data))
        expected = compile_program(scaled, engine="reference").expected_flows(data, weights)
        for engine in ("cpu", ENGINES["general"], ENGINES["gpu"]):
            found = compile_program(scaled, engine=engine).expected_flows(data, weights)
            pairs = zip(found.flows.template.leaves, expected.flows.template.leaves, strict=True)
            for one, other in pairs:
                assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_em_never_falls_with_entries_missing(seed: int) -> None:
    network, _ = block_case(seed)
    rng = np.random.default_rng(seed)
    schema = network.schema
    arrays = [hide(arbitrary_sequence(schema, 12, rng), rng, 0.3) for _ in range(8)]
    data = Sequences.from_codes(np.concatenate(arrays), np.arange(0, 97, 12), schema)
    network, last = scaled_families(network, data), -np.inf
    for _ in range(8):
        score = compile_program(network).log_likelihood(data).sum()
        score += log_prior(network, DEFAULT_PRIORS)
        assert score >= last - 1e-9 * abs(score)
        last = score
        network = em_step(network, data, priors=DEFAULT_PRIORS).network


def drawn_chain(k: int, m: int, seed: int) -> tuple[Model, GaussianHMM, Floats, list[int]]:
    """A chain with full covariances here and in hmmlearn, and draws from it."""
    rng = np.random.default_rng(seed)
    schema = with_blocks(Schema(tuple(Variable.continuous(f"x{v}") for v in range(m))), "full")
    block = schema[0].leaf
    assert isinstance(block, GaussianBlock)
    rows = random_rows(block, k, rng)
    other = GaussianHMM(k, covariance_type="full", init_params="", n_iter=1, tol=-np.inf)
    other.startprob_ = rng.dirichlet(np.ones(k))
    other.transmat_ = rng.dirichlet(np.ones(k), size=k)
    other.means_, other.covars_ = block.moments(rows)
    other.covars_prior, other.covars_weight, other.means_weight = 0.0, 0.0, 0.0
    lengths = [30, 50, 20]
    values = np.concatenate([other.sample(n, random_state=i)[0] for i, n in enumerate(lengths)])
    model = Model.from_hmm(other.startprob_, other.transmat_, {"x0": rows}, schema=schema)
    return model, other, values, lengths


def test_a_chain_is_that_of_hmmlearn() -> None:
    model, other, values, lengths = drawn_chain(3, 4, 0)
    data = Sequences.from_codes(values, np.append(0, np.cumsum(lengths)), model.schema)
    program = model.compiled
    score, posteriors = other.score_samples(values, lengths)
    assert_allclose(program.log_likelihood(data).sum(), score, rtol=1e-10)
    found = dspn.inference.interface_posteriors(program, data)
    assert_allclose(found, posteriors, atol=1e-8)
    other.fit(values, lengths)
    network = em_step(scaled_families(model.components[0], data), data, priors=NO_PRIORS).network
    block = network.template.banks[0].family
    assert isinstance(block, GaussianBlock)
    means, covariances = block.moments(network.parameters.template.leaves[0])
    assert_allclose(means, other.means_, rtol=1e-8)
    assert_allclose(covariances, other.covars_, rtol=1e-8)


def test_draws_of_missing_entries_have_their_covariance() -> None:
    schema = with_blocks(Schema(tuple(map(Variable.continuous, "abc"))), [("c", "a", "b")])
    covariance = np.array([[2.0, 1.2, -0.5], [1.2, 1.5, 0.3], [-0.5, 0.3, 1.0]])
    rows = GaussianBlock((2, 0, 1)).from_moments(np.array([[1.0, -1.0, 5.0]]), covariance[None])
    model = Model.from_hmm([1.0], [[1.0]], {"c": rows}, schema=schema)
    drawn = model.sample(1, 40_000, rng=np.random.default_rng(0)).values[:, [2, 0, 1]]
    assert_allclose(drawn.mean(axis=0), [1.0, -1.0, 5.0], atol=0.03)
    assert_allclose(np.cov(drawn.T), covariance, atol=0.05)
    hidden = np.full((40_000, 3), np.nan)
    hidden[:, 1] = 7.0  # b
    some = model.sample_given([hidden], rng=np.random.default_rng(1)).values[:, [2, 0]]
    slope = covariance[:2, 2] / covariance[2, 2]
    assert_allclose(some.mean(axis=0), np.array([1.0, -1.0]) + slope * 2.0, atol=0.03)
    left = covariance[:2, :2] - np.outer(slope, covariance[2, :2])
    assert_allclose(np.cov(some.T), left, atol=0.05)
    ahead = model.forecast([hidden[:3]], 2)
    assert ahead.num_paths is None and ahead.marginals.exact
    assert_allclose(ahead.marginals["a"].variance, 1.5, rtol=1e-10)


def test_the_leaf_is_that_of_scipy_and_its_coordinates_are_free() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3)) * [1.0, 30.0, 0.01] + [0, 1e3, 5]
    values[rng.random(values.shape) < 0.3] = np.nan
    block = GaussianBlock((0, 1, 2)).scaled_to(values)
    counts = rng.random((2, 200))
    rows = block.random(2, rng, values)
    for _ in range(3):
        rows = block.maximise(block.expected_statistics(rows, values, counts))
    assert not block.violations(rows)
    means, covariances = block.moments(rows)
    logs = block.log_prob(rows, values)
    for i, leaf in itertools.product(range(30), range(2)):
        seen = np.flatnonzero(~np.isnan(values[i]))
        expected = 0.0
        if seen.size:
            own = means[leaf][seen], covariances[leaf][np.ix_(seen, seen)]
            expected = multivariate_normal(*own).logpdf(values[i, seen])
        assert_allclose(logs[i, leaf], expected, rtol=1e-9, atol=1e-9)
    free = block.free(rows)
    assert_allclose(block.from_free(free), rows, rtol=1e-9)

    def total(flat: Floats) -> float:
        own = block.from_free(flat.reshape(free.shape))
        return float((counts.T * block.log_prob(own, values)).sum()) + block.log_prior(own)

    slope = block.free_gradient(rows, block.expected_statistics(rows, values, counts))
    slope = slope + block.free_log_prior(rows)[1]
    assert_allclose(slope.ravel(), approx_fprime(free.ravel(), total, 1e-6), rtol=2e-4, atol=2e-2)
    assert block.log_prior(rows) > -np.inf
    flat = np.repeat(values[:, :1], 3, axis=1)  # of no spread but in one direction
    floored = block.maximise(block.scaled_to(flat).statistics(flat).sum(axis=0, keepdims=True))
    assert not block.violations(floored)


def test_estimators_fit_save_and_restrict_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    state = np.repeat(rng.integers(0, 2, size=(30, 4)), 5, axis=1)
    roots = rng.normal(size=(2, 3, 3))
    X = np.einsum("ntij,ntj->nti", roots[state], rng.normal(size=(30, 20, 3)))
    X += 3 * state[..., None]
    X[rng.random(X.shape) < 0.1] = np.nan
    full = HMM(2, covariance="full", random_state=0).fit(X)
    diagonal = HMM(2, random_state=0).fit(X)
    assert full.score(X) > diagonal.score(X) + 5
    means, variances = full.emissions_["x1"].T
    ((names, covariances),) = full.covariances_.items()
    assert names == ("x0", "x1", "x2") and covariances.shape == (2, 3, 3)
    assert_allclose(variances, covariances[:, 1, 1], rtol=1e-12)
    assert np.isfinite(means).all() and diagonal.covariances_ == {}
    full.save(tmp_path / "model.dspn")
    again = dspn.load(tmp_path / "model.dspn")
    data = sequences_of(X, again.schema, "X")
    assert_allclose(again.log_likelihood(data), full.score_samples(X), rtol=1e-12)
    for kept in (["x0", "x2"], ["x1", "x2"], ["x1"]):
        hidden = X.copy()
        hidden[:, :, [v for v in range(3) if f"x{v}" not in kept]] = np.nan
        small = full.model_.over(kept)
        chosen = [int(name[1]) for name in kept]
        expected = full.score_samples(hidden)
        assert_allclose(small.log_likelihood(X[:, :, chosen]), expected, rtol=1e-10)
    wide = DSPN(learner="em", covariance=[("x0", "x2")], random_state=0).fit(X)
    assert wide.score(X) > diagonal.score(X)


@pytest.mark.parametrize("mode", ["generative", "discriminative"])
@pytest.mark.parametrize("options", [{"covariance": "full"}, {"lags": 1}])
def test_classes_may_differ_in_what_leaves_are_told(mode: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(24, 12, 2))
    X[12:, :, 1] += X[12:, :, 0]
    X[12:, 1:, 0] += X[12:, :-1, 0]
    y = np.repeat(["apart", "together"], 12)
    base = HMM(1, random_state=0, **options)
    found = DSPNClassifier(base, mode=mode, random_state=0).fit(list(X), y)
    assert found.score(list(X), y) > 0.8


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"covariance": "tied"}, DataError, "'diag', 'full' or a list of blocks"),
        ({"covariance": [("x0",)]}, DataError, "two or more different names"),
        ({"covariance": [("x0", "x1"), ("x1", "x2")]}, DataError, "in two blocks"),
        ({"covariance": [("x0", "k")]}, DataError, "must be a variable of the schema"),
        ({"covariance": "full", "lags": 1}, DataError, "lags"),
        ({"covariance": "full", "families": "auto"}, StructureError, "`families`"),
    ],
)
def test_bad_blocks_are_refused(
    change: dict[str, object], error: type[Exception], match: str
) -> None:
    X = np.random.default_rng(0).normal(size=(4, 6, 3))
    with pytest.raises(error, match=match):
        HMM(2, **change).fit(X)  # type: ignore[arg-type]


def test_bad_schemas_and_parameters_of_blocks_are_refused() -> None:
    schema = Schema((Variable.continuous("a", leaf=StudentT()), Variable.continuous("b")))
    with pytest.raises(DataError, match="must have Gaussian leaves"):
        with_blocks(schema, [("a", "b")])
    with pytest.raises(DataError, match="needs two or more continuous variables"):
        with_blocks(schema, "full")
    with pytest.raises(StructureError, match="`columns`"):
        GaussianBlock((1, 1))
    block = GaussianBlock((0, 1))
    wrong = block.from_moments(np.zeros((1, 2)), np.array([[[1.0, 2.0], [2.0, 1.0]]]))
    assert "positive definite" in block.violations(wrong)[0]
    assert GaussianBlockPrior().pseudo_count == 0.01

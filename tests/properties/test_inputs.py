"""Sums with a table of weights for each value of an input: every engine against enumeration.

The enumeration of a case is computed once, for all engines and paths.
"""

import math
from functools import cache

import numba
import numpy as np
import pytest

from dspn import DynamicNetwork, Model, Sequences, inference
from dspn.data.layout import offsets_of
from dspn.engine import Engine, Program, Want, compile_program
from dspn.engine.base import rounded, without_values
from dspn.engine.cpu import CpuEngine, Paths
from dspn.engine.cpu.batch import Job
from dspn.engine.gpu import GpuEngine
from dspn.io.codec import decode, encode
from dspn.learning import em
from dspn.learning.moves import pruned
from dspn.learning.priors import NO_PRIORS, Priors, log_prior
from dspn.learning.starts.splits import split_interfaces
from dspn.structure import (
    Mixture,
    NetworkParameters,
    Parameters,
    initial_network,
    marginal,
    side_by_side,
)
from dspn.structure.edit import with_tables_by
from dspn.structure.nodes import Sum
from oracles import best_completion, conditional, likelihood
from strategies import arbitrary_sequence, hide, random_network, random_recipe, with_tables

ENGINES: dict[str, Engine | str] = {
    "reference": "reference",
    "cpu": "cpu",
    "small blocks": CpuEngine(Paths(lanes=2, segment_bytes=1, cached_bytes=1)),
    "general kernels": CpuEngine(Paths(chains=False)),
    "no distinct slices": CpuEngine(Paths(distinct_slices=False)),
    "log space": CpuEngine(Paths(doubt=True)),
    "sparse chains": CpuEngine(Paths(fewest_sparse=1, sparse_share=2.0)),
    "gpu": GpuEngine("numpy"),
}
CASES = range(200)
CHAINS = range(24)


def _batch(network: DynamicNetwork, seed: int) -> Sequences:
    """Ragged sequences, each twice, with gaps and inputs; some may be impossible."""
    rng = np.random.default_rng([19, seed])
    lengths = np.array([3, 1, 2, 4] * 2)
    arrays = [
        hide(arbitrary_sequence(network.schema, length, rng), rng, [0.0, 0.4, 0.7][i % 3])
        for i, length in enumerate(lengths.tolist())
    ]
    sizes = [own.num_categories for own in network.schema.inputs]
    inputs = np.stack([rng.integers(size, size=lengths.sum()) for size in sizes], axis=1)
    values, offsets = np.concatenate(arrays), offsets_of(lengths)
    data = Sequences.from_codes(values, offsets, network.schema, inputs=inputs.astype(float))
    possible = [likelihood(network, *own) > 1e-30 for own in _sequences(data)]
    if not any(possible):
        return without_values(data)
    kept = np.flatnonzero(possible)
    return data[np.concatenate([kept, kept])]


def _sequences(data: Sequences) -> list[tuple[np.ndarray, np.ndarray]]:
    bounds = zip(data.offsets[:-1], data.offsets[1:], strict=True)
    return [(data.values[a:b], data.inputs[a:b]) for a, b in bounds]


@cache
def _case(seed: int) -> tuple[DynamicNetwork, Sequences]:
    network = with_tables(random_network(random_recipe(seed)), seed)
    return network, _batch(network, seed)


@cache
def _chain(seed: int) -> tuple[DynamicNetwork, Sequences]:
    rng = np.random.default_rng([23, seed])
    plain = random_network(random_recipe(seed, kinds=("binary", "ternary"), num_groups=1))
    root = "first" if seed % 2 else "last"
    size = int(rng.integers(1, 20))
    network = initial_network(plain.schema, size, rng=rng, root=root)
    network = network.untied() if seed % 3 == 0 else network
    if seed % 4 == 3:  # by several inputs, or by none
        network = with_tables(network, seed, 0.5)
        return network, _batch(network, seed)
    own = with_tables(network, seed, 0.0).schema
    network = with_tables_by(network, "u" if seed % 2 else "w", own)

    def drawn(part: NetworkParameters) -> NetworkParameters:
        weights = part.weights.copy()
        for places in network.template.table_places:
            weights[places] = rng.dirichlet(np.ones(places.shape[2]), places.shape[:2])
        return NetworkParameters(weights, part.leaves)

    kept = network.parameters
    bottom = None if kept.bottom is None else drawn(kept.bottom)
    network = network.with_parameters(Parameters(drawn(kept.template), kept.top, bottom))
    return network, _batch(network, seed)


def _cases() -> list[tuple[DynamicNetwork, Sequences]]:
    return [_case(seed) for seed in CASES] + [_chain(seed) for seed in CHAINS]


@cache
def _expected() -> list[tuple[list[float], list[float], list[list[float]]]]:
    """Likelihoods, densities of best completions, and conditionals of one missing entry each."""
    out = []
    for network, data in _cases():
        own = _sequences(data[: len(data) // 2])
        likely = [math.log(likelihood(network, *pair)) for pair in own]
        best = [math.log(best_completion(network, *pair)) for pair in own]
        weights = []
        for values, inputs in own[:2]:
            for t, v in np.argwhere(np.isnan(values)).tolist()[:2]:
                weights.append([t, v, *conditional(network, values, t, v, inputs).weights])
        out.append((likely, best, weights))
    return out


@pytest.fixture(params=ENGINES, ids=lambda name: name.replace(" ", "-"))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _compile(network: DynamicNetwork, engine: str) -> Program:
    return compile_program(network, engine=ENGINES[engine])


def _flat(flows: object) -> np.ndarray:
    parts = [flows.template, flows.top, *([flows.bottom] if flows.bottom else [])]  # type: ignore[attr-defined]
    return np.concatenate([a.ravel() for part in parts for a in (part.weights, *part.leaves)])


@cache
def _reference(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Flows, interface posteriors and prefixes of the reference engine, which is tested itself."""
    network, data = _cases()[number]
    program = compile_program(network, engine="reference")
    prefixes = np.empty(0)
    if number < 60 or number >= len(CASES):  # they take long
        half = data[: len(data) // 2]  # every sequence is there twice
        found = program.components[0].prefixes(half)
        prefixes = np.tile(np.stack([rounded(found.log_seen), rounded(found.log_unseen)]), 2)
    return (
        _flat(program.expected_flows(data).flows),
        inference.interface_posteriors(program, data),
        prefixes,
    )


def test_kernels_are_compiled_once_however_many_inputs_weights_depend_on() -> None:
    engine, types, numbers = CpuEngine(), set(), set()
    for network, data in map(_case, CASES[:8]):
        program = engine.compile(network, precision="double")
        types.add(numba.typeof(Job(program, data).inputs))
        numbers.add(len(program.by_inputs))
    assert len(types) == 1
    assert len(numbers) > 1


def test_every_query_agrees_with_enumeration(engine: str) -> None:
    for number, ((network, data), expected) in enumerate(zip(_cases(), _expected(), strict=True)):
        likely, best, weights = expected
        program = _compile(network, engine)
        where = {"err_msg": f"case {number}"}
        found = program.log_likelihood(data)
        np.testing.assert_allclose(found, likely * 2, rtol=1e-9, atol=1e-11, **where)
        found = inference.complete(program, data).log_prob
        np.testing.assert_allclose(found, best * 2, rtol=1e-9, atol=1e-11, **where)
        asked = np.isnan(data.values)
        leaves = program.posteriors(data, Want(leaves=asked)).leaves
        told = iter(weights)
        for index in range(min(2, len(data) // 2)):
            first, values = data.offsets[index], data[index]
            for t, v in np.argwhere(np.isnan(values)).tolist()[:2]:
                row = int(asked[: first + t, v].sum())
                own = next(told)
                assert own[:2] == [t, v]
                # The static network has its leaves in another order.
                used, mass = leaves[v][row], np.array(own[2:])
                used, mass = np.sort(used[used > 1e-12]), np.sort(mass[mass > 1e-12])
                np.testing.assert_allclose(used, mass, rtol=1e-7, atol=1e-12, **where)
        flows, interfaces, prefixes = _reference(number)
        if engine == "reference":
            continue
        found = _flat(program.expected_flows(data).flows)
        np.testing.assert_allclose(found, flows, rtol=1e-8, atol=1e-10, **where)
        found = inference.interface_posteriors(program, data)
        np.testing.assert_allclose(found, interfaces, rtol=1e-8, atol=1e-11, **where)
        if number >= 60 and number < len(CASES):
            continue
        own = program.components[0].prefixes(data)
        both = np.stack([rounded(own.log_seen), rounded(own.log_unseen)])
        np.testing.assert_allclose(both, prefixes, rtol=1e-9, atol=1e-11, **where)


def _with_weights(network: DynamicNetwork, name: str, weights: np.ndarray) -> DynamicNetwork:
    own = network.parameters
    parts = {"template": own.template, "top": own.top, "bottom": own.bottom}
    parts[name] = NetworkParameters(weights, parts[name].leaves)  # type: ignore[union-attr]
    return network.with_parameters(Parameters(**parts))  # type: ignore[arg-type]


def test_flows_are_derivatives_of_the_likelihood() -> None:
    """A shift of weight from edge to edge changes log P by (f_a / w_a - f_b / w_b) as much."""
    checked = 0
    for seed in CASES[:60]:
        network, data = _case(seed)
        template, weights = network.template, network.parameters.template.weights
        program = compile_program(network, engine="reference")
        flows = program.expected_flows(data).flows.template.weights
        sums = [
            (start + table * len(node.children), len(node.children))
            for index, start in template.edge_offsets.items()
            if isinstance(node := template.nodes[index], Sum) and node.by is not None
            for table in range(template.num_tables(node))
        ]
        rng = np.random.default_rng(seed)
        for start, width in (sums[i] for i in rng.permutation(len(sums))[:3]):
            a, b = start + int(weights[start : start + width].argmax()), start
            if a == b or weights[b] < 1e-3:
                continue
            step, moved = 1e-5 * weights[b], []
            for sign in (1.0, -1.0):
                other = weights.copy()
                other[[a, b]] += [sign * step, -sign * step]
                own = compile_program(_with_weights(network, "template", other), engine="reference")
                moved.append(own.log_likelihood(data).sum())
            slope = (moved[0] - moved[1]) / (2 * step)
            exact = flows[a] / weights[a] - flows[b] / weights[b]
            np.testing.assert_allclose(exact, slope, rtol=1e-4, atol=1e-4)
            checked += 1
    assert checked > 20


def test_draws_follow_the_posterior(engine: str) -> None:
    for seed in range(4):
        network, data = _chain(seed)
        copies = data[np.repeat([0], 4000)]
        seeds = np.random.default_rng(seed).integers(2**63, size=4000).astype(np.uint64)
        program = _compile(network, engine)
        if engine == "reference":
            copies, seeds = copies[:300], seeds[:300]
        drawn = program.components[0].draw(copies, seeds).interfaces[:, 0]
        length = int(data.lengths[0])
        share = np.stack([np.bincount(drawn[t::length], minlength=network.num_interfaces)
                          for t in range(length)]) / len(seeds)  # fmt: skip
        expected = inference.interface_posteriors(program, data[:1])
        np.testing.assert_allclose(share, expected, atol=4.5 * np.sqrt(0.25 / len(seeds)))


@pytest.mark.parametrize(
    "priors", [NO_PRIORS, Priors(), Priors(sum_pseudo_count=1)], ids=["none", "default", "whole"]
)
def test_em_never_falls(priors: Priors) -> None:
    for seed in range(24):
        network, data = _chain(seed) if seed % 2 else _case(seed)
        before = -np.inf
        for _ in range(6):
            program = compile_program(network)
            step = em.em_step(network, data, priors=priors, program=program)
            now = float(step.log_likelihood.sum()) + log_prior(network, priors)
            if np.isfinite(now) and np.isfinite(before):
                assert now >= before - 1e-7 * max(1.0, abs(before)), seed
            network, before = step.network, now


def test_streams_and_forecasts_take_inputs() -> None:
    for seed in range(6):
        network, data = _chain(seed)
        model = Model(network)
        expected = _reference(len(CASES) + seed)[2]
        first = data[[0]]
        stream = model.filter()
        decoded = first.to_arrays(decode=True)[0]
        words = [own.categories for own in network.schema.inputs]
        total = 0.0
        for t, (values, told) in enumerate(zip(decoded, first.inputs, strict=True)):
            inputs = [own[int(code)] for own, code in zip(words, told, strict=True)]
            stream.predict(inputs=inputs)
            total += stream.update(values, inputs=inputs).surprise
            assert total == pytest.approx(
                float((expected[1] - expected[0])[: t + 1].sum()), rel=1e-8, abs=1e-9
            )


def test_edits_keep_the_tables() -> None:
    for seed in range(30):
        network, data = _case(seed) if seed % 2 else _chain(seed)
        again = decode(encode(Mixture.of(network))).mixture.only
        assert again.fingerprint == network.fingerprint
        program = compile_program(network)
        before = program.log_likelihood(data)
        same = {"rtol": 1e-9, "atol": 1e-12}
        halves = split_interfaces(network, [0], np.random.default_rng(0), 0.0)
        assert halves.template.has_tables == network.template.has_tables
        np.testing.assert_allclose(compile_program(halves).log_likelihood(data), before, **same)
        flows = program.expected_flows(data).flows
        thinner = pruned(network, flows, 1e-12)
        found = compile_program(thinner).log_likelihood(data).sum()
        assert found >= before.sum() - 1e-6
        kept = {own.by for own in thinner.template.nodes if isinstance(own, Sum)}
        assert kept <= {own.by for own in network.template.nodes if isinstance(own, Sum)}
        both = side_by_side(network.schema, [network], [range(len(network.schema))])
        assert both.template.has_tables == network.template.has_tables
        part = marginal(network, [0]) if len(network.groups) == 1 else network
        own = data.select(part.schema.names)
        rest = data.values.copy()
        rest[:, len(part.schema) :] = np.nan
        expected = program.log_likelihood(data.with_values(rest))
        np.testing.assert_allclose(compile_program(part).log_likelihood(own), expected, **same)


def test_tables_begin_alike_and_an_unseen_value_takes_what_others_share() -> None:
    network, _ = _chain(1)
    plain = random_network(random_recipe(3, kinds=("binary",), num_groups=1))
    schema = plain.schema.with_inputs(network.schema.inputs)
    start = initial_network(schema, 4, by="u", rng=np.random.default_rng(0))
    same = initial_network(schema, 4, rng=np.random.default_rng(0))
    values = np.array([0.0, 1.0, 1.0, 0.0])[:, None]
    told = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    own = Sequences.from_codes(values, [0, 4], schema, inputs=told)
    found = compile_program(start).log_likelihood(own)
    np.testing.assert_allclose(found, compile_program(same).log_likelihood(own), rtol=1e-12)
    priors = Priors(sum_pseudo_count=0.0, table_pseudo_count=2.0)
    for _ in range(4):
        places = start.template.table_places[0]
        common = np.exp(np.log(start.parameters.template.weights[places]).mean(axis=1))
        start = em.em_step(start, own, priors=priors).network
        tables = start.parameters.template.weights[places]
        np.testing.assert_allclose(tables[:, 2], common / common.sum(axis=1, keepdims=True))
        assert not np.allclose(tables[:, 0], tables[:, 1])

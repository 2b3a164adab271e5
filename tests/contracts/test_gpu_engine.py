"""The GPU engine keeps the contract: on a card with CuPy, elsewhere with NumPy in its place.

Without a card its kernels run too, on the processor (`emulator`). That is slow: by default they get
some of the cases, and with DSPN_KERNELS=all (`make test-kernels`) all of them, every launch in
several orders of its threads.

Everything here but learning runs without what machines with GPUs may lack, such as Numba;
`engine.reference` and enumeration are what answers are compared with.
"""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emulator
from benchmarks import gpu
from dspn import DynamicNetwork, Schema, Sequences, Variable, inference
from dspn.engine import Engine, ExpectedFlows, Program, Want, compile_program
from dspn.engine.base import rounded, without_values
from dspn.engine.gpu import GpuEngine, large, passes, queries, transition
from dspn.engine.gpu.chain import ChainProgram
from dspn.engine.gpu.climb import Climb
from dspn.engine.gpu.device import HOPPER, Device
from dspn.engine.gpu.general import General, Structure
from dspn.engine.gpu.program import GpuProgram
from dspn.engine.gpu.stream import LaneStream
from dspn.engine.gpu.transition import ChainLayout
from dspn.errors import EvidenceError, NumericalError, StructureError
from dspn.learning.moves import pruned
from dspn.leaves.told import with_context
from dspn.structure import Mixture, initial_network
from networks import bits, has_gpu
from oracles import best_completion, interface_posteriors, log_likelihood, surprise_of_slice
from properties.extreme_cases import CASES as EXTREMES
from properties.log_space import LogSpace
from strategies import as_sequences, random_case, random_network, random_recipe, with_tables

# With NumPy there is one path, in logarithms and double precision; the others are those of a card.
ENGINES: dict[str, tuple[Engine | str, str]] = {"numpy": (GpuEngine("numpy"), "double")}
EVERY_CASE = has_gpu() or os.environ.get("DSPN_KERNELS") == "all"
# In which the threads of an emulated kernel run.
ORDERS = (0, 1, 2) if EVERY_CASE else (0,)
WIDTHS = [3, 8, 20, 50, 100, 150, 260] if EVERY_CASE else [3, 20, 50]
# Nodes and sequences for passes in one kernel: on a card enough work for all of it.
FUSED = [(256, 9000), (420, 4400), (1024, 2200)] if has_gpu() else [(256, 520), (420, 270)]
CASES = [*range(24), 61, 77, 102]
if has_gpu():
    ENGINES |= {"gpu": ("gpu", "double"), "gpu in single precision": ("gpu", "single")}
elif emulator.why_not() is None:
    # With many multiprocessors few sequences share a block.
    ENGINES |= {
        "kernels": (emulator.engine(processors=50, orders=ORDERS), "double"),
        "kernels in single precision": (emulator.engine(processors=1, orders=ORDERS), "single"),
    }
NAMES = list(ENGINES) if has_gpu() else ["numpy", "kernels", "kernels in single precision"]


@pytest.fixture(params=NAMES, ids=lambda name: name.replace(" ", "-"))
def engine(request: pytest.FixtureRequest) -> str:
    if request.param not in ENGINES:
        pytest.skip(str(emulator.why_not()))
    return str(request.param)


def _compile(model: DynamicNetwork | Mixture, engine: str) -> Program:
    own, precision = ENGINES[engine]
    return compile_program(model, engine=own, precision=precision)


def _tolerance(engine: str) -> float:
    return 1e-5 if engine.endswith("single precision") else 1e-9


def _close(engine: str, found: object, expected: object, **more: float) -> None:
    least = _tolerance(engine)
    np.testing.assert_allclose(found, expected, **{"rtol": least, "atol": least / 10, **more})


@cache
def _repeated(seed: int) -> tuple[DynamicNetwork, list[np.ndarray], Sequences]:
    network, arrays, _ = random_case(seed)
    arrays = arrays * 3
    return network, arrays, as_sequences(network.schema, arrays)


@cache
def _chain_case(seed: int, nodes: int = 0) -> tuple[DynamicNetwork, list[np.ndarray], Sequences]:
    """A chain of any kind of leaf, with its own bottom or not, and ragged sequences with gaps."""
    rng = np.random.default_rng(seed)
    made = [Variable.binary("a"), Variable.categorical("b", (0, 1, 2))]
    if seed % 3 == 1:
        made.append(Variable.continuous("c"))
    if seed % 3 == 2:
        made.append(Variable.count("d"))
    schema = Schema(tuple(made))
    root = "first" if seed % 2 else "last"
    network = initial_network(schema, nodes or 1 + seed % 5, rng=rng, root=root)
    if seed % 4 > 1:
        other = initial_network(schema, nodes or 1 + seed % 5, rng=rng, root=root).parameters
        own = network.parameters
        network = network.with_parameters(type(own)(own.template, own.top, other.template))
    lengths = [1, 2, 3, 4, 5, 5] if not nodes else rng.integers(1, 8, 40).tolist()
    program = compile_program(network, engine="reference")
    blank = np.full((sum(lengths), len(schema)), np.nan)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = inference.sample_given(program, Sequences.from_codes(blank, offsets, schema), rng=rng)
    values = data.values.copy()
    values[rng.random(values.shape) < 0.3] = np.nan
    data = Sequences.from_codes(values, offsets, schema)
    return network, data.to_arrays(), data


@cache
def _tabled_case(seed: int, nodes: int) -> tuple[DynamicNetwork, list[np.ndarray], Sequences]:
    """The same with sums by one of two inputs, or by none."""
    plain, arrays, data = _chain_case(seed, nodes)
    network, rng = with_tables(plain, seed), np.random.default_rng(seed)
    inputs = np.stack([rng.integers(n, size=data.total_slices) for n in (3, 2)], axis=1)
    known = inputs.astype(np.float64)
    made = Sequences.from_codes(data.values, data.offsets, network.schema, inputs=known)
    return network, arrays, made


def _cases(engine: str) -> list[tuple[DynamicNetwork, list[np.ndarray], Sequences]]:
    found = [_repeated(seed) for seed in CASES] + [_chain_case(seed) for seed in range(12)]
    if EVERY_CASE or engine == "numpy":
        return found
    return found[:: 9 if "single" in engine else 8] + found[-3:]


def test_likelihood_agrees_with_enumeration(engine: str) -> None:
    for network, arrays, data in _cases(engine):
        expected = [log_likelihood(network, values) for values in arrays]
        _close(engine, _compile(network, engine).log_likelihood(data), expected)


def test_interface_posteriors_agree_with_enumeration(engine: str) -> None:
    for network, arrays, data in _cases(engine):
        expected = np.concatenate([interface_posteriors(network, values) for values in arrays])
        found = inference.interface_posteriors(_compile(network, engine), data)
        _close(engine, found, expected)


def test_completion_agrees_with_enumeration(engine: str) -> None:
    for network, arrays, data in _cases(engine):
        expected = np.log([best_completion(network, values) for values in arrays])
        found = inference.complete(_compile(network, engine), data)
        _close(engine, found.log_prob, expected)
        again = inference.complete(_compile(network, engine), found.sequences)
        _close(engine, again.log_prob, expected)


def test_surprises_agree_with_enumeration(engine: str) -> None:
    for network, arrays, data in _cases(engine):
        expected = [
            surprise_of_slice(network, values, t) for values in arrays for t in range(len(values))
        ]
        _close(engine, inference.surprise(_compile(network, engine), data).slices, expected)


def _all_flows(program: Program, data: Sequences, weights: np.ndarray) -> list[np.ndarray]:
    found = program.expected_flows(data, weights).flows
    parts = [found.template, found.top, *([] if found.bottom is None else [found.bottom])]
    return [array for part in parts for array in (part.weights, *part.leaves)]


def test_expected_flows_agree_with_the_reference(engine: str) -> None:
    for network, _, data in _cases(engine):
        weights = np.random.default_rng(0).uniform(0.5, 2.0, len(data))
        program, reference = (
            _compile(network, engine),
            compile_program(network, engine="reference"),
        )
        found, expected = (_all_flows(own, data, weights) for own in (program, reference))
        for own, other in zip(found, expected, strict=True):
            _close(engine, own, other)


@pytest.mark.parametrize("seed", [0, 3, 5, 8, 11, 14])
def test_mixtures_agree_with_the_reference(engine: str, seed: int) -> None:
    fixed = {"kinds": ("binary", "ternary", "binary"), "root": ("first", "last")[seed % 2]}
    first, _, data = random_case(seed, **fixed)
    second = random_network(random_recipe(seed + 100, **fixed))
    mixture = Mixture((first, second), [0.25, 0.75])
    program, reference = _compile(mixture, engine), compile_program(mixture, engine="reference")
    want = Want(leaves=np.ones(data.values.shape, dtype=np.bool_), interfaces=True)
    found, expected = program.posteriors(data, want), reference.posteriors(data, want)
    for mine, theirs in zip(found.leaves, expected.leaves, strict=True):
        _close(engine, mine, theirs)
    _close(engine, found.interfaces, expected.interfaces)
    _close(engine, found.shares, expected.shares)
    _close(engine, program.log_likelihood(data), rounded(expected.log_values))
    flows, others = program.expected_flows(data), reference.expected_flows(data)
    _close(engine, flows.counts, others.counts)
    for one, two in zip(flows.components, others.components, strict=True):
        _close(engine, one.template.weights, two.template.weights)
        _close(engine, one.top.weights, two.top.weights)
    best, other_best = program.best(data), reference.best(data)
    _close(engine, best.log_values, other_best.log_values)
    np.testing.assert_array_equal(best.component, other_best.component)


@pytest.mark.parametrize("seed", [0, 2, 5, 7])
def test_streams_agree_with_the_reference(engine: str, seed: int) -> None:
    """Those of a batch too, each with its own past, and after they were saved."""
    network, arrays, _ = random_case(seed)
    own, precision = ENGINES[engine]
    program = compile_program(network, engine=own, precision=precision).components[0]
    reference = compile_program(network, engine="reference").components[0]
    stream = program.stream()
    count = 3 if isinstance(stream, LaneStream) else 1
    length = min(map(len, arrays[:count]))
    others = [reference.stream() for _ in range(count)]
    for t in range(length):
        slices = [values[t : t + 1] for values in arrays[:count]]
        singles = [as_sequences(network.schema, [values]) for values in slices]
        data = as_sequences(network.schema, slices)
        for given in (False, True):
            asked = data if given else without_values(data)
            found = stream.predict(t == 0, asked, given=given)
            predicted = [
                other.predict(t == 0, one if given else without_values(one), given=given)
                for other, one in zip(others, singles, strict=True)
            ]
            logs = np.stack([rounded(one.log_values) for one in predicted])
            _close(engine, rounded(found.log_values).reshape(-1), logs)
            for v, mine in enumerate(found.leaves):
                _close(engine, mine, np.concatenate([one.leaves[v] for one in predicted]))
            if given:
                expected = np.concatenate([one.surprises for one in predicted])
                observed = ~np.isnan(data.values)
                _close(engine, found.surprises[observed], expected[observed])
        after = stream.advance(data, t == 0)
        advanced = [other.advance(one, t == 0) for other, one in zip(others, singles, strict=True)]
        for name in ("log_seen", "log_unseen"):
            mine = rounded(getattr(after, name)).reshape(-1)
            _close(engine, mine, [rounded(getattr(one, name)) for one in advanced])
        stream = program.stream(after.stream.arrays(), t + 1)
        others = [one.stream for one in advanced]
    if count > 1:
        with pytest.raises(EvidenceError, match="one slice for each of the 3 streams"):
            stream.advance(singles[0], False)


def test_prefixes_agree_with_the_reference(engine: str) -> None:
    for network, _, data in _cases(engine)[::3]:
        found = _compile(network, engine).components[0].prefixes(data)
        expected = compile_program(network, engine="reference").components[0].prefixes(data)
        for own, other in zip(found, expected, strict=True):
            _close(engine, rounded(own), rounded(other))


def test_draws_follow_the_seed_of_their_sequence_alone(engine: str) -> None:
    for network, _, data in (_repeated(5), _repeated(11), _chain_case(3)):
        program = _compile(network, engine).components[0]
        seeds = np.random.default_rng(0).integers(2**63, size=len(data), dtype=np.uint64)
        whole = program.draw(data, seeds)
        order = np.random.default_rng(1).permutation(len(data))
        part = program.draw(data[order], seeds[order])
        rows = np.concatenate([np.arange(data.offsets[i], data.offsets[i + 1]) for i in order])
        np.testing.assert_array_equal(part.interfaces, whole.interfaces[rows])
        np.testing.assert_array_equal(part.leaves, whole.leaves[rows])


def test_draws_have_the_frequencies_of_the_posterior(engine: str) -> None:
    network, arrays, _ = _chain_case(2)
    one = arrays[3]
    data = as_sequences(network.schema, [one] * 4000)
    program = _compile(network, engine)
    seeds = np.random.default_rng(0).integers(2**63, size=len(data), dtype=np.uint64)
    found = program.components[0].draw(data, seeds).interfaces[:, 0].reshape(4000, len(one))
    expected = interface_posteriors(network, one)
    shares = np.stack([(found == i).mean(axis=0) for i in range(network.num_interfaces)], axis=1)
    np.testing.assert_allclose(shares, expected, atol=0.04)


@cache
def _reference_of_chain(seed: int, nodes: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    network, _, data = _chain_case(seed, nodes)
    reference = compile_program(network, engine="reference")
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(data))
    return reference.log_likelihood(data), _all_flows(reference, data, weights), weights


@pytest.mark.parametrize("nodes", WIDTHS)
def test_chains_of_any_width_agree_with_the_reference(engine: str, nodes: int) -> None:
    """Scan kernels of every width, and matrix products beyond them."""
    for seed in (4, 7) if nodes < 100 else (7,):
        network, _, data = _chain_case(seed, nodes)
        program = _compile(network, engine)
        expected_logs, expected, weights = _reference_of_chain(seed, nodes)
        # Beyond the scan kernels matrix products round to ten fraction bits.
        loose = {"rtol": 3e-4, "atol": 3e-3} if nodes > 255 and "single" in engine else {}
        _close(engine, program.log_likelihood(data), expected_logs, **loose)
        found = _all_flows(program, data, weights)
        for own, other in zip(found, expected, strict=True):
            _close(engine, own, other, **{"rtol": 1e-4 if "single" in engine else 1e-9, **loose})


@pytest.mark.parametrize("nodes", [5, 40, 150] if EVERY_CASE else [40])
@pytest.mark.parametrize("seed", [4, 7, "by inputs", "by inputs, root last"])
def test_paths_of_chains_agree_with_array_operations(
    engine: str, seed: int | str, nodes: int
) -> None:
    """Draws too: both ways take the same random numbers."""
    if isinstance(seed, str):
        network, _, data = _tabled_case(6 if "last" in seed else 5, nodes)
    else:
        network, _, data = _chain_case(seed, nodes)
    own = _compile(network, engine).components[0]
    if engine != "numpy":
        assert isinstance(own, GpuProgram) and own.chain is not None
    device = Device("numpy")
    other, batch = General(device, network, Structure(network)), device.batch(data)
    want = Want(leaves=np.isnan(data.values), interfaces=True)
    seeds = np.random.default_rng(0).integers(2**63, size=len(data), dtype=np.uint64)
    with device.running():
        expected = queries.posteriors(other, batch, want)
        best = queries.choices(other, batch, None, data.num_variables)
        drawn = queries.choices(other, batch, seeds, data.num_variables)
        flows, _ = queries.expected_flows(other, batch, np.ones(len(data)))
    mine, _ = own.expected_flows(data, np.ones(len(data)))
    loose = {"rtol": 1e-4, "atol": 1e-4} if "single" in engine else {}
    _close(engine, mine.template.weights, flows.template.weights, **loose)
    _close(engine, mine.top.weights, flows.top.weights, **loose)
    found = own.posteriors(data, want)
    _close(engine, rounded(found.log_values), rounded(expected.log_values))
    least = {"rtol": 1e-4, "atol": 1e-5} if "single" in engine else {}
    _close(engine, found.interfaces, expected.interfaces, **least)
    for mine, theirs in zip(found.leaves, expected.leaves, strict=True):
        _close(engine, mine, theirs, **least)
    want = Want(leaves=np.ones(data.values.shape, dtype=np.bool_), surprises=True)
    with device.running():
        expected = queries.posteriors(other, batch, want)
    found = own.posteriors(data, want)
    np.testing.assert_allclose(found.surprises, expected.surprises, rtol=1e-9, atol=1e-10)
    for mine, theirs in zip(found.leaves, expected.leaves, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)
    for mine, theirs in ((own.best(data), best), (own.draw(data, seeds), drawn)):
        np.testing.assert_array_equal(mine.interfaces, theirs.interfaces)
        np.testing.assert_array_equal(mine.leaves, theirs.leaves)
        _close(engine, mine.log_values, theirs.log_values)


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("inputs", ["none", "alike at a height", "any"])
def test_large_chains_agree_with_the_reference(
    engine: str, inputs: str, ragged: bool, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix product for each slice; of lanes of one length it reads the vectors in place."""
    for dtype in list(passes._WIDEST_SCAN):
        monkeypatch.setitem(passes._WIDEST_SCAN, dtype, 4)
    monkeypatch.setattr(passes, "_FEWEST_NARROW", 16)
    rng = np.random.default_rng(0)
    network = initial_network(bits(3), 20, rng=rng, root=root)
    values = rng.integers(0, 2, (15, 3)).astype(np.float64)
    values[4, 1] = np.nan
    lengths = np.array([4, 5, 6] if ragged else [5, 5, 5])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    known = None
    if inputs != "none":
        network = with_tables(network, 0)
        height = np.arange(15) - np.repeat(offsets[:-1], lengths)
        height = height if root == "last" else np.repeat(lengths, lengths) - 1 - height
        every = np.stack([rng.integers(n, size=15) for n in (3, 2)], axis=1).astype(np.float64)
        known = every[height] if "alike" in inputs else every
        if "alike" in inputs:  # the bottom has no weights by inputs
            known[height == 0] = every[:3]
    data = Sequences.from_codes(values, offsets, network.schema, inputs=known)
    weights = np.array([1e-12, 3.0, 2e-12])
    program, reference = _compile(network, engine), compile_program(network, engine="reference")
    own = program.components[0]
    assert isinstance(own, GpuProgram) and own.chain is not None
    run = own.chain.run(own.device.batch(data))
    assert not run.is_scan and (large.tables_of_heights(run) is None) == (inputs == "any")
    loose = {"rtol": 3e-4, "atol": 3e-3} if "single" in engine else {}
    _close(engine, program.log_likelihood(data), reference.log_likelihood(data), **loose)
    found, expected = (_all_flows(own, data, weights) for own in (program, reference))
    for own, other in zip(found, expected, strict=True):
        _close(engine, own, other, **{"rtol": 1e-4 if "single" in engine else 1e-9, **loose})


@cache
def _wide_answers(seed: int, nodes: int) -> tuple[Any, ...]:
    network, _, data = _tabled_case(seed, nodes)
    reference = compile_program(network, engine="reference")
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(data))
    want = Want(leaves=np.isnan(data.values), interfaces=True)
    return (
        reference.log_likelihood(data), _all_flows(reference, data, weights), weights,
        reference.posteriors(data, want), want, inference.complete(reference, data).log_prob,
        reference.components[0].prefixes(data),
    )  # fmt: skip


@pytest.mark.parametrize("nodes", [70, 100, 150])
@pytest.mark.parametrize("seed", [5, 6])
def test_chains_too_wide_for_a_scan_by_inputs_agree_with_the_reference(
    engine: str, seed: int, nodes: int
) -> None:
    """With the root first, or last and a bottom of its own; slices at a height differ in inputs."""
    network, _, data = _tabled_case(seed, nodes)
    logs, flows, weights, posteriors, want, best, prefixes = _wide_answers(seed, nodes)
    program = _compile(network, engine)
    own = program.components[0]
    assert isinstance(own, GpuProgram) and own.chain is not None and own.chain.layout.by
    _close(engine, program.log_likelihood(data), logs)
    loose = {"rtol": 1e-4, "atol": 1e-5} if "single" in engine else {}
    for mine, theirs in zip(_all_flows(program, data, weights), flows, strict=True):
        _close(engine, mine, theirs, **loose)
    # The same data with the root at the other end: what is kept of a batch is not written to.
    turned = replace(network, root="first" if network.root == "last" else "last")
    expected = compile_program(turned, engine="reference").log_likelihood(data)
    _close(engine, _compile(turned, engine).log_likelihood(data), expected)
    found = program.posteriors(data, want)
    _close(engine, found.interfaces, posteriors.interfaces, **loose)
    for mine, theirs in zip(found.leaves, posteriors.leaves, strict=True):
        _close(engine, mine, theirs, **loose)
    _close(engine, inference.complete(program, data).log_prob, best)
    for mine, theirs in zip(own.prefixes(data), prefixes, strict=True):
        _close(engine, rounded(mine), rounded(theirs))
    device = Device("numpy")
    general, batch = General(device, network, Structure(network)), device.batch(data)
    seeds = np.random.default_rng(0).integers(2**63, size=len(data), dtype=np.uint64)
    with device.running():
        drawn = queries.choices(general, batch, seeds, data.num_variables)
    np.testing.assert_array_equal(own.draw(data, seeds).interfaces, drawn.interfaces)


def _unreachable(nodes: int, least: float, count: int) -> tuple[DynamicNetwork, Sequences]:
    """All values of a slice are about as small as what passes add to each of them.

    A half of the nodes hardly ever have a 1. The others always have, but no sequence reaches them.
    """
    network = initial_network(bits(1), nodes, rng=np.random.default_rng(0), root="last")
    half, own = nodes // 2, network.parameters
    share = np.concatenate([least * (1 + np.arange(half) % 2), np.ones(half)])
    leaves = (np.stack([1 - share, share], axis=1),)
    weights = np.kron(np.eye(2), np.full((half, half), 1 / half)).ravel()
    top = replace(own.top, weights=np.repeat([1 / half, 0.0], half))
    network = network.with_parameters(type(own)(type(own.template)(weights, leaves), top))
    return network, as_sequences(network.schema, [np.array([[0.0], [1.0]])] * count)


def test_flows_of_large_chains_are_in_doubt_where_likely_nodes_cannot_be_reached(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dtype in list(passes._WIDEST_SCAN):
        monkeypatch.setitem(passes._WIDEST_SCAN, dtype, 1)
    network, data = _unreachable(4, 2.0 ** (-110 if "single" in engine else -988), 1)
    program, reference = _compile(network, engine), compile_program(network, engine="reference")
    _close(engine, program.log_likelihood(data), reference.log_likelihood(data))
    expected = inference.interface_posteriors(reference, data)
    _close(engine, inference.interface_posteriors(program, data), expected)
    flows = (_all_flows(own, data, np.ones(1)) for own in (program, reference))
    for mine, theirs in zip(*flows, strict=True):
        _close(engine, mine, theirs)


def _engine_of_hopper(*, processors: int = 6, orders: tuple[int, ...] = (0,)) -> GpuEngine:
    """The engine of such a card, or of one on the processor where there is none at all."""
    if not has_gpu():
        if emulator.why_not() is not None:
            pytest.skip(str(emulator.why_not()))
        return emulator.engine(processors=processors, orders=orders)
    found = GpuEngine()
    if not found.device.is_hopper:
        pytest.skip("passes in one kernel need a card of compute capability 9.0")
    return found


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize(("nodes", "count"), FUSED)
def test_passes_in_one_kernel_agree_with_those_slice_by_slice(
    nodes: int, count: int, ragged: bool, inputs: bool
) -> None:
    rng = np.random.default_rng(nodes)
    root = "last" if ragged == inputs else "first"
    network = initial_network(bits(3), nodes, rng=rng, root=root)
    if nodes == 420:  # a bottom of its own
        own, other = network.parameters, initial_network(bits(3), nodes, rng=rng, root=root)
        network = network.with_parameters(replace(own, bottom=other.parameters.template))
    lengths = rng.integers(1, 5, count) if ragged else np.full(count, 3)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = rng.integers(0, 2, (offsets[-1], 3)).astype(np.float64)
    values[rng.random(values.shape) < 0.2] = np.nan
    known = None
    if inputs:
        network = with_tables(network, 0)
        height = np.arange(len(values)) - np.repeat(offsets[:-1], lengths)
        height = height if root == "last" else np.repeat(lengths, lengths) - 1 - height
        known = np.array([[0, 1], [2, 0], [2, 0], [1, 1]], dtype=np.float64)[height]
    data = Sequences.from_codes(values, offsets, network.schema, inputs=known)
    weights = rng.uniform(0.5, 2.0, count)
    hopper, older = _engine_of_hopper(orders=ORDERS), _engine_of_hopper()
    older.device.is_hopper = False
    fused, plain = (
        compile_program(network, engine=own, precision="single") for own in (hopper, older)
    )
    own, other = fused.components[0], plain.components[0]
    assert isinstance(own, GpuProgram) and isinstance(other, GpuProgram)
    assert own.chain is not None and own.chain.run(own.device.batch(data)).fused is not None
    assert other.chain is not None and other.chain.run(other.device.batch(data)).fused is None
    # Sums in another order, and then rounded to ten fraction bits.
    close = {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(fused.log_likelihood(data), plain.log_likelihood(data), **close)
    pairs = zip(*(_all_flows(one, data, weights) for one in (fused, plain)), strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, **close)
    found, expected = (inference.interface_posteriors(one, data) for one in (fused, plain))
    np.testing.assert_allclose(found, expected, rtol=3e-3, atol=1e-4)
    some = data[np.array([0, count // 2, count - 1])]
    rows = np.concatenate([np.arange(*offsets[i : i + 2]) for i in (0, count // 2, count - 1)])
    reference = compile_program(network, engine="reference")
    exact = reference.log_likelihood(some)
    np.testing.assert_allclose(
        fused.log_likelihood(data)[[0, count // 2, count - 1]], exact, rtol=3e-4, atol=3e-3
    )
    exact = inference.interface_posteriors(reference, some)
    np.testing.assert_allclose(found[rows], exact, rtol=3e-3, atol=3e-4)


def test_passes_in_one_kernel_are_in_doubt_where_others_are() -> None:
    network, data = _unreachable(256, 2.0**-110, FUSED[0][1])
    program = compile_program(network, engine=_engine_of_hopper(orders=ORDERS), precision="single")
    own, reference = program.components[0], compile_program(network, engine="reference")
    assert isinstance(own, GpuProgram) and own.chain is not None
    run = own.chain.run(own.device.batch(data))
    assert run.fused is not None
    expected = reference.log_likelihood(data)
    np.testing.assert_allclose(program.log_likelihood(data), expected, rtol=1e-5)
    expected = inference.interface_posteriors(reference, data)
    found = inference.interface_posteriors(program, data)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("is_hopper", [True, False])
@pytest.mark.parametrize("nodes", [100, 128])
def test_scans_of_hopper_and_of_older_cards_agree_with_the_reference(
    nodes: int, is_hopper: bool
) -> None:
    times = 60 if has_gpu() else 1
    network, arrays, _ = _chain_case(7, nodes)
    data = as_sequences(network.schema, arrays * times)
    own = _engine_of_hopper(processors=1)
    own.device.is_hopper = is_hopper
    program = compile_program(network, engine=own, precision="single")
    run = program.components[0].chain.run(own.device.batch(data))  # type: ignore[attr-defined]
    assert run.together
    expected_logs, expected, weights = _reference_of_chain(7, nodes)
    found = program.log_likelihood(data)
    np.testing.assert_allclose(found, np.tile(expected_logs, times), rtol=1e-5, atol=1e-6)
    for mine, other in zip(
        _all_flows(program, data, np.tile(weights, times)), expected, strict=True
    ):
        np.testing.assert_allclose(mine, times * other, rtol=1e-4, atol=1e-5 * times)


def test_kernels_of_hopper_are_compiled_once_and_again_where_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if emulator.why_not() is not None:
        pytest.skip(str(emulator.why_not()))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kept"))
    asked = ("hopper", "arrange", ("-DREAL=float", HOPPER))
    made: list[object] = []

    def device() -> Device:
        found = emulator.engine().device
        nvrtc = found.xp.cuda.nvrtc
        compiled = nvrtc.getCUBIN
        nvrtc.getCUBIN = lambda program: made.append(program) or compiled(program)
        return found

    for expected in (1, 1):
        device().kernel(*asked)
        assert len(made) == expected
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    device().kernel(*asked)
    device().kernel(*asked)
    assert len(made) == 2
    monkeypatch.setenv("CUPY_CACHE_DIR", str(file))  # no directory
    device().kernel(*asked)
    assert len(made) == 3


@pytest.mark.parametrize("nodes", [20, 50, 100] if EVERY_CASE else [50])
def test_many_sequences_agree_with_few(engine: str, nodes: int) -> None:
    """Enough of them for the kernels that take several sequences to a block."""
    network, arrays, _ = _chain_case(7, nodes)
    times = 60 if has_gpu() else 2
    data = as_sequences(network.schema, arrays * times)
    program = _compile(network, engine)
    expected_logs, expected, weights = _reference_of_chain(7, nodes)
    _close(engine, program.log_likelihood(data), np.tile(expected_logs, times))
    found = _all_flows(program, data, np.tile(weights, times))
    least = 1e-4 if "single" in engine else 1e-9
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, times * other, rtol=least, atol=least)


@pytest.mark.parametrize("seed", [1, 4])
def test_told_leaves_of_chains_agree_with_the_reference(engine: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = (Variable.categorical("u", ("p", "q", "r")), Variable.continuous("w"))
    plain = Schema((Variable.binary("a"), Variable.continuous("b"), Variable.count("c")))
    schema = with_context(
        plain.with_inputs(inputs), lags=1, lags_of="all", within=seed > 2, leaf_inputs=True
    )
    network = initial_network(schema, 4, rng=rng, root=("first", "last")[seed % 2])
    columns = (rng.integers(2, size=15), rng.normal(size=15), rng.poisson(2, size=15))
    values = np.column_stack(columns).astype(np.float64)
    values[rng.random(values.shape) < 0.25] = np.nan
    known = np.column_stack([rng.integers(3, size=15), rng.normal(size=15)])
    data = Sequences.from_codes(values, [0, 5, 8, 15], schema, inputs=known)
    own, other = _compile(network, engine), compile_program(network, engine="reference")
    for query in (own.log_likelihood, own.best):
        with pytest.raises(EvidenceError, match="do not tell"):
            query(Sequences.from_codes(values, [0, 5, 8, 15], plain))
    _close(engine, own.log_likelihood(data), other.log_likelihood(data))
    best = inference.complete(other, data).log_prob
    _close(engine, inference.complete(own, data).log_prob, best)
    expected = inference.interface_posteriors(other, data)
    _close(engine, inference.interface_posteriors(own, data), expected, atol=1e-6)
    weights = np.ones(len(data))
    pairs = zip(_all_flows(own, data, weights), _all_flows(other, data, weights), strict=True)
    for mine, theirs in pairs:
        _close(engine, mine, theirs, atol=10 * _tolerance(engine))


def test_joined_tables_lose_no_range(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 sure variables every chunk has another best node: the product is small at all nodes."""
    rng, schema = np.random.default_rng(0), bits(30)
    network = initial_network(schema, 8, rng=rng)
    own = network.parameters
    sure = np.where(rng.random((30, 8)) < 0.5, 0.001, 0.999)
    leaves = tuple(np.stack([1 - share, share], axis=1) for share in sure)
    template = type(own.template)(own.template.weights, leaves)
    network = network.with_parameters(type(own)(template, own.top))
    values = (rng.random((120, 30)) < 0.5).astype(np.float64)
    data = Sequences.from_codes(values, [0, 70, 120], schema)
    reference = compile_program(network, engine="reference")
    expected = _all_flows(reference, data, np.ones(2))
    expected_logs = reference.log_likelihood(data)
    if engine != "numpy":
        monkeypatch.setattr(queries, "expected_flows", None)
    program = _compile(network, engine)
    _close(engine, program.log_likelihood(data), expected_logs)
    least = 1e-4 if "single" in engine else 1e-9
    for mine, theirs in zip(_all_flows(program, data, np.ones(2)), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=least, atol=least)


@cache
def _extreme(name: str, root: str) -> tuple[DynamicNetwork, Sequences, LogSpace]:
    network, values = EXTREMES[name](root)
    return network, as_sequences(network.schema, [values]), LogSpace(network, values)


# These need few kernels: sequences in doubt go the way of all templates.
_DOUBTED = NAMES if EVERY_CASE else ["numpy", "kernels in single precision"]


@pytest.mark.parametrize("engine", _DOUBTED, indirect=True)
@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_likelihoods_equal_the_log_space_reference(
    engine: str, name: str, root: str
) -> None:
    network, data, reference = _extreme(name, root)
    found = _compile(network, engine).log_likelihood(data)
    _close(engine, found, [reference.log_likelihood], atol=0.0)


_SOME = [("far_outliers", "first"), ("narrow_bridge", "last")]
_EVERY = [(name, root) for name in EXTREMES for root in ("first", "last")]


@cache
def _extreme_answers(name: str, root: str) -> tuple[np.ndarray, float, list[np.ndarray]]:
    network, data, reference = _extreme(name, root)
    flows = _all_flows(compile_program(network, engine="reference"), data, np.ones(1))
    return reference.posteriors[0], reference.best_completion, flows


@pytest.mark.slow
@pytest.mark.parametrize("engine", _DOUBTED, indirect=True)
@pytest.mark.parametrize(("name", "root"), _EVERY if has_gpu() else _SOME)
def test_extreme_cases_equal_the_log_space_reference(engine: str, name: str, root: str) -> None:
    network, data, _ = _extreme(name, root)
    posteriors, best, expected = _extreme_answers(name, root)
    program = _compile(network, engine)
    _close(engine, inference.interface_posteriors(program, data), posteriors, atol=1e-7)
    _close(engine, inference.complete(program, data).log_prob, [best], atol=0.0)
    for mine, theirs in zip(_all_flows(program, data, np.ones(1)), expected, strict=True):
        _close(engine, mine, theirs, atol=1e-4 if "single" in engine else 1e-8)


def test_the_same_batch_gives_the_same_flows_bit_for_bit(engine: str) -> None:
    network, _, data = _chain_case(7, 20)
    weights = np.ones(len(data))
    first, second = (_all_flows(_compile(network, engine), data, weights) for _ in range(2))
    for own, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_a_machine_without_a_gpu_gets_one_sentence() -> None:
    network, _, _ = _chain_case(0)
    with pytest.raises(StructureError, match=r"`engine='gpu'` needs"):
        compile_program(network, engine="gpu")


@pytest.mark.skipif(emulator.why_not() is not None, reason=str(emulator.why_not()))
@pytest.mark.parametrize("fault", ["driver", "no card", "old card", "no room"])
def test_a_card_that_does_not_serve_is_described_in_one_sentence(fault: str) -> None:
    network, _, data = _chain_case(0)
    card = emulator.Card()
    runtime = card.cuda.runtime

    def fail(*_: object, **__: object) -> None:
        if fault == "driver":
            raise runtime.CUDARuntimeError("CUDA driver version is insufficient for CUDA runtime")
        raise card.cuda.memory.OutOfMemoryError("Out of memory allocating 1 bytes.")

    if fault in ("driver", "no card"):
        runtime.getDeviceCount = fail if fault == "driver" else lambda: 0
    if fault == "old card":
        card.cuda.Device().compute_capability = "75"
    if fault == "no room":
        program = compile_program(network, engine=emulator.engine(card))
        card.RawModule = fail  # type: ignore[method-assign, assignment]
        with pytest.raises(NumericalError, match=r"no room for this pass: .* use engine='cpu'"):
            program.log_likelihood(data)
        return
    words = {"driver": "driver that", "no card": "there is none", "old card": "has 7.5"}
    with pytest.raises(StructureError, match=f"`engine='gpu'` needs .*{words[fault]}"):
        emulator.engine(card)


@pytest.mark.parametrize("kind", ["block", "monarch"])
@pytest.mark.parametrize(("layered", "nodes"), [(True, 40), (False, 40), (True, 270)])
def test_wide_templates_of_few_edges_need_no_square_matrix(
    engine: str, kind: str, layered: bool, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    root = "first" if kind == "block" else "last"
    network = initial_network(bits(3), nodes, rng=rng, transitions=kind, root=root)
    values = rng.integers(0, 2, (12, 3)).astype(np.float64)
    data = Sequences.from_codes(values, [0, 7, 12], network.schema)
    for name in ("_FEWEST_SPARSE", "_FEWEST_LAYERED"):
        monkeypatch.setattr(transition, name, 40)
    monkeypatch.setattr(transition, "_DENSITY", 0.9)
    monkeypatch.setattr(transition, "_WIDEST", nodes if layered else nodes - 1)
    layout = ChainLayout.of(network)
    assert (layout is not None and len(layout.layers) == 1 + (kind == "monarch")) == layered
    program, reference = _compile(network, engine), compile_program(network, engine="reference")
    # From 256 nodes on products of float32 have ten fraction bits.
    rough = {40: {"rtol": 1e-4, "atol": 1e-5}, 270: {"rtol": 1e-3, "atol": 1e-4}}[nodes]
    least = rough if "single" in engine else {}
    weights = np.array([1.0, 0.3])
    pairs = zip(*(_all_flows(own, data, weights) for own in (program, reference)), strict=True)
    for own, other in pairs:
        _close(engine, own, other, **least)
    _close(engine, program.log_likelihood(data), reference.log_likelihood(data), **least)
    expected = inference.interface_posteriors(reference, data)
    _close(engine, inference.interface_posteriors(program, data), expected, **least)
    best = inference.complete(reference, data).log_prob
    _close(engine, inference.complete(program, data).log_prob, best)


@pytest.mark.parametrize(("seed", "least"), [(0, 0.05), (3, 0.15), (4, 0.2)])
def test_layers_without_some_edges_agree_with_the_reference(
    engine: str, seed: int, least: float
) -> None:
    """Some of their blocks have a single row or column."""
    rng = np.random.default_rng(seed)
    network = initial_network(bits(3), 64, rng=rng, transitions="monarch")
    data = Sequences.from_codes(
        rng.integers(0, 2, (60, 3)).astype(np.float64), np.arange(0, 61, 5), network.schema
    )
    flows = compile_program(network, engine="reference").expected_flows(data).flows
    network = pruned(network, flows, least)
    layout = ChainLayout.of(network)
    assert layout is not None and len(layout.layers) == 2
    shapes = {own.children.shape[1] for layer in layout.layers for own in layer.blocks}
    assert min(shapes) < 8
    program, reference = _compile(network, engine), compile_program(network, engine="reference")
    weights = rng.uniform(0.5, 2.0, len(data))
    loose = {"rtol": 1e-4, "atol": 1e-5} if "single" in engine else {}
    pairs = zip(*(_all_flows(own, data, weights) for own in (program, reference)), strict=True)
    for own, other in pairs:
        _close(engine, own, other, **loose)


def test_batches_are_cut_to_the_room_there_is() -> None:
    network, _, data = _chain_case(7, 20)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(data))
    device = Device("numpy")
    structure = Structure(network)
    layout = ChainLayout.of(network)
    assert layout is not None
    own = General(device, network, structure)
    batch = device.batch(data)
    program = ChainProgram(own, layout, Climb(own), np.float64, tensor_cores=False)
    whole = program.expected_flows(batch, weights)
    flows, logs = ExpectedFlows.nothing(network), np.empty(len(data))
    parts = batch.cut(40)
    assert len(parts) > 2
    for part, members in parts:
        found, logs[members] = program.expected_flows(part, weights[members])
        flows = flows + found
    np.testing.assert_allclose(logs, whole[1], rtol=1e-12)
    np.testing.assert_allclose(flows.template.weights, whole[0].template.weights, rtol=1e-9)


@pytest.mark.parametrize("seed", [1, 5])
def test_expectation_maximisation_takes_the_same_steps(engine: str, seed: int) -> None:
    network, _, data = _repeated(seed)
    em = pytest.importorskip("dspn.learning.em")
    options = em.EmOptions(max_steps=3, tolerance=0)
    found, expected = (
        em.fit_em(network, data, options=options, program=program)
        for program in (_compile(network, engine), compile_program(network, engine="reference"))
    )
    for own, other in zip(found.history, expected.history, strict=True):
        _close(engine, own.train, other.train)


def test_gradient_ascent_takes_the_same_steps(engine: str) -> None:
    network, _, data = _chain_case(5)
    ascent = pytest.importorskip("dspn.learning.ascent")
    options = ascent.AscentOptions(max_steps=3, tolerance=0)
    found, expected = (
        ascent.ascend(network, data, options=options, program=program)
        for program in (_compile(network, engine), compile_program(network, engine="reference"))
    )
    for own, other in zip(found.history, expected.history, strict=True):
        _close(engine, own.train, other.train, rtol=1e-4 if "single" in engine else 1e-8)


@pytest.mark.filterwarnings("ignore::dspn.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["em", "auto"])
@pytest.mark.parametrize("engine", [own for own in NAMES if "single" not in own], indirect=True)
def test_estimators_learn_with_the_engine_as_on_the_processor(
    engine: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In double precision every choice of the learner is the same."""
    for name in ("numba", "safetensors"):
        pytest.importorskip(name)
    from dspn import DSPN, Auto, Em, EmOptions

    own, counted = ENGINES[engine][0], []
    if not isinstance(own, str):
        monkeypatch.setattr("dspn.engine.gpu.ENGINE", own)
    expected_flows = GpuProgram.expected_flows

    def count(*given: Any) -> Any:
        counted.append(1)
        return expected_flows(*given)

    monkeypatch.setattr(GpuProgram, "expected_flows", count)
    em = EmOptions(max_steps=4)
    learner = Em(em=em) if kind == "em" else Auto(effort=1e-6, em=em, refit=em)
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 2, (6, 2)).astype(np.float64) for _ in range(12)]
    found, expected = (DSPN(learner, engine=name, random_state=0).fit(X) for name in ("gpu", "cpu"))
    assert counted
    np.testing.assert_allclose(found.score_samples(X), expected.score_samples(X), rtol=1e-7)


def test_the_benchmark_runs_with_tiny_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--dry", "--ours", "--jobs", "A,B,C,L,M", "--out", str(tmp_path / "found")]
    gpu.main(given)
    found = gpu.read(tmp_path / "found")
    assert {own["job"][0] for own in found} == set("ABCLM")
    assert all(isinstance(own["ms"], float) for own in found), found
    printed = capsys.readouterr().out
    assert "| nodes | dspn single, whole call | dspn single, passes |" in printed


_SCANS = (("float", 8, 0), ("float", 32, 0), ("float", 32, 1), ("float", 128, 0), ("double", 64, 1))
_COMPILED = [
    *(("scan", f"-DREAL={real} -DK={k} -DTHREADS={128 if k < 64 else k} -DTABLES={tables}")
      for real, k, tables in _SCANS),
    *(("tensor", f"-DREAL=float -DK={k} -DTHREADS=128 -DWHOLE={whole}")
      for k in (32, 64, 128) for whole in (0, 1)),
    *(("large", f"-DREAL={real} -DVECTOR={vector} -DTHREADS={threads} -DMOST={most}")
      for real, vector in (("float", 4), ("double", 2)) for threads, most in ((32, 4), (1024, 8))),
    *(("rows", f"-DREAL={real} -DVECTOR=4") for real in ("float", "double")),
    *(("arrays", f"-DREAL={real}") for real in ("float", "double")),
    *(("climb", f"-DREAL=double -DLOGS={logs}") for logs in (0, 1)),
    ("paths", "-DREAL=double"),
    ("tensor", f"-DREAL=float -DK=128 -DTHREADS=128 -DWHOLE=1 -DGROUP=1 {HOPPER}"),
    ("hopper", f"-DREAL=float {HOPPER}"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "options"), _COMPILED if EVERY_CASE and shutil.which("nvcc") else []
)
def test_kernels_compile_for_a_card_and_keep_to_its_registers(
    source: str, options: str, tmp_path: Path
) -> None:
    folder = Path(passes.__file__).with_name("kernels")
    text = tmp_path / "text.cu"
    parts = ("common", "warpgroup", source) if HOPPER in options else ("common", source)
    text.write_text("".join((folder / f"{name}.cu").read_text() for name in parts))
    kind = () if HOPPER in options else ("-arch=sm_90",)
    command = ["nvcc", *kind, "-std=c++17", "-ftz=true", "-Xptxas", "-v", "-cubin"]
    given = [*command, *options.split(), "-o", str(tmp_path / "out"), str(text)]
    found = subprocess.run(given, check=False, capture_output=True, text=True)
    assert not found.returncode, found.stderr
    spilled = [
        int(count)
        for name, count in re.findall(
            r"Compiling entry function '(\w+)'[\s\S]*?(\d+) bytes spill stores", found.stderr
        )
        if (source, name) != ("scan", "outer")  # not used where it would spill
    ]
    assert spilled and max(spilled) <= 8, found.stderr


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_repeated_with_other_parameters_answers_for_those(engine: str, seed: int) -> None:
    network, _, data = _chain_case(seed, 20)
    rng = np.random.default_rng(seed)
    program = _compile(network, engine)
    for step in range(4):
        made = initial_network(network.schema, 20, rng=rng, root=network.root).parameters
        own = network.with_parameters(replace(made, bottom=network.parameters.bottom))
        weights = rng.random(len(data)) if step % 2 else np.ones(len(data))
        mine, reference = program.rebind(own), compile_program(own, engine="reference")
        flows = zip(
            _all_flows(mine, data, weights), _all_flows(reference, data, weights), strict=True
        )
        for found, expected in flows:  # some are sums of numbers of both signs
            _close(engine, found, expected, atol=_tolerance(engine))
        _close(engine, mine.log_likelihood(data), reference.log_likelihood(data))

"""Coefficients of slices with numbers: sums of logarithms, group by group."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dspn import Schema, Sequences, Variable
from dspn._arguments import Floats
from dspn.engine import compile_program
from dspn.engine.cpu import CpuEngine, Paths
from dspn.engine.cpu.kernels.densities import multiply_leaves
from dspn.engine.cpu.records import LogLeaves
from dspn.learning.starts.clusters import randomised
from dspn.structure import from_hmm
from dspn.structure.build import grouped_network, initial_network
from oracles import slice_by_slice

SCHEMA = Schema(
    (
        Variable.continuous("level"),
        Variable.categorical("mode", ("a", "b", "c")),
        Variable.continuous("load", leaf="student_t"),
        Variable.count("calls"),
        Variable.continuous("drift"),
    )
)


def drawn(rng: np.random.Generator, count: int, length: int, missing: float) -> Floats:
    values = rng.normal(size=(count, length, len(SCHEMA)))
    values[:, :, 1] = rng.integers(0, 3, (count, length))
    values[:, :, 3] = rng.poisson(3.0, (count, length))
    values[rng.random(values.shape) < missing] = np.nan
    return values


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_chains_of_several_families_agree_with_log_space(precision: str, missing: float) -> None:
    rng = np.random.default_rng(3)
    lengths = [1, 2, 40, 17, 33, 8]
    values = drawn(rng, 1, sum(lengths), missing)[0]
    data = Sequences.from_codes(values, np.cumsum([0, *lengths]), SCHEMA)
    network = randomised(initial_network(SCHEMA, 5, rng=rng), data, rng)
    ones, tolerance = np.ones(len(data)), {"double": 1e-10, "single": 2e-5}[precision]
    exact, totals = (
        CpuEngine(Paths(doubt=True)).compile(network, precision="double").expected_flows(data, ones)
    )
    program = CpuEngine(Paths(fewest_single=1)).compile(network, precision=precision)
    flows, found = program.expected_flows(data, ones)
    assert_allclose(found, totals, rtol=tolerance)
    likelihoods = compile_program(network, precision=precision).log_likelihood(data)
    assert_allclose(likelihoods, totals, rtol=1e-10)
    pairs = zip(
        [flows.template.weights, *flows.template.leaves],
        [exact.template.weights, *exact.template.leaves],
        strict=True,
    )
    for own, expected in pairs:
        assert_allclose(own, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_a_far_value_does_not_hide_what_others_say() -> None:
    """All states have the same leaf of the first variable, which is 1e9 deviations away."""
    schema = Schema((Variable.continuous("far"), Variable.continuous("near")))
    leaves = {"far": [[0.0, 1e-4]] * 2, "near": [[-0.5, 1.0], [0.5, 1.0]]}
    network = from_hmm([0.5, 0.5], [[0.7, 0.3], [0.2, 0.8]], leaves, schema=schema)
    values = np.random.default_rng(0).normal(size=(30, 2))
    without = values.copy()
    without[:, 0] = np.nan
    values[::2, 0] = 1e7
    program = compile_program(network)
    told, apart = (
        program.expected_flows(Sequences.from_arrays([own], schema=schema)).flows
        for own in (values, without)
    )
    assert_allclose(told.template.weights, apart.template.weights, rtol=1e-9)
    assert_allclose(told.template.leaves[1], apart.template.leaves[1], rtol=1e-9)


@pytest.mark.parametrize("root", ["first", "last"])
def test_groups_have_divisors_of_their_own(root: str) -> None:
    rng = np.random.default_rng(1)
    arrays = list(drawn(rng, 4, 3, 0.2))
    schema = Schema(tuple(replace(own, leaf=None) for own in SCHEMA))
    data = Sequences.from_codes(np.concatenate(arrays), np.arange(0, 13, 3), schema)
    network = grouped_network(schema, [[0, 1], [2, 3], [4]], 3, rng=rng, root=root)
    network = randomised(network, data, rng)
    expected = [math.log(slice_by_slice(network, values)) for values in arrays]
    assert_allclose(compile_program(network).log_likelihood(data), expected, rtol=1e-10)
    for precision, tolerance in (("double", 1e-10), ("single", 2e-5)):
        program = CpuEngine(Paths(fewest_single=1)).compile(network, precision=precision)
        flows, totals = program.expected_flows(data, np.ones(len(data)))
        assert_allclose(totals, expected, rtol=tolerance)
        seen = [np.sum(~np.isnan(own)) for own in data.values.T]
        counts = [own[:, 0].sum() for own in flows.template.leaves]
        assert_allclose(np.array(counts)[[0, 4]], np.array(seen)[[0, 4]], rtol=tolerance)


def test_exponentials_are_those_of_numpy_and_what_is_lost_is_counted() -> None:
    rng = np.random.default_rng(2)
    logs = -np.sort(rng.gamma(1.0, 60.0, size=(50, 9)), axis=1)
    logs[:, 0] = 0.0
    logs[0, 5:] = -np.inf
    logs = (logs - 7.0) + 7.0
    none = np.empty((0, 9))
    leaves = LogLeaves(
        np.empty((50, 0)), np.empty(0, np.int64), none, none, none, logs - 7.0, *np.empty((2, 0))
    )
    numbers, rows = np.arange(50)[:, None], np.arange(50)
    for least, dtype in ((-708.0, np.float64), (-87.0, np.float32)):
        out, scale = np.empty((50, 9), dtype), np.empty((2, 50))
        lost = multiply_leaves(leaves, rows, numbers, least, 0.0, 0, out, scale)
        kept = logs >= least
        assert lost == np.sum(~kept & np.isfinite(logs))
        assert_allclose(out[kept], np.exp(logs[kept]), rtol=4 * np.finfo(dtype).eps)
        assert not out[~kept].any()
        assert_allclose(scale.sum(axis=0), -7.0, rtol=1e-15)

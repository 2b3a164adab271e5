"""The HMM, Water and BAT networks: their structure and what their likelihood costs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspn.structure import DbnStructure
from experiments.datasets import BAT, WATER, DbnProcess, bat_process, hmm_process, water_model


@pytest.mark.parametrize(("name", "structure"), [("water", WATER), ("bat", BAT)])
def test_structure_is_that_of_the_published_facts(
    name: str, structure: DbnStructure, data_directory: Path
) -> None:
    path = data_directory / "dbn" / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"needs the published structure {path.name} in ../shared/data/dbn: not there")
    facts = json.loads(path.read_text(encoding="utf-8"))
    assert dict(structure.sizes) == facts["node_sizes"]
    assert list(structure.observed) == facts["observed"]
    for edges, published in (
        (structure.within, facts["intra_slice_edges"]),
        (structure.between, facts["inter_slice_edges"]),
    ):
        assert sorted(edges) == sorted(map(tuple, published))


def test_bat_has_eighteen_hidden_nodes_of_which_ten_persist() -> None:
    assert len(BAT.sizes) == 28
    assert len(BAT.observed) == 10
    assert set(BAT.sizes.values()) == {2}
    assert len({parent for parent, _ in BAT.between}) == 10


def unrolled_likelihood(process: DbnProcess, values: np.ndarray) -> float:
    """One einsum over the conditional tables of every slice, observed values put in."""
    structure = process.structure
    number: dict[tuple[int, str], int] = {}
    operands: list[Any] = []
    for t, row in enumerate(values):
        seen = dict(zip(structure.observed, row.astype(int).tolist(), strict=True))
        for node in structure.sizes:
            between = structure.parents_between(node) if t else ()
            table = process.tables.later[node] if between else process.tables.first[node]
            parents = [(t - 1, p) for p in between] + [
                (t, p) for p in structure.parents_within(node)
            ]
            axes = [number.setdefault(parent, len(number)) for parent in parents]
            if node in seen:
                operands += [table[..., seen[node]], axes]
            else:
                operands += [table, [*axes, number.setdefault((t, node), len(number))]]
    return float(np.einsum(*operands, [], optimize="greedy"))


@pytest.mark.parametrize("concentration", [None, 0.3])
@pytest.mark.parametrize("num_slices", [1, 2])
def test_likelihood_of_bat_is_that_of_the_unrolled_network(
    num_slices: int, concentration: float | None
) -> None:
    process = bat_process(np.random.default_rng(3), concentration=concentration)
    data = process.sample(3, num_slices, rng=np.random.default_rng(4))
    expected = [math.log(unrolled_likelihood(process, values)) for values in data]
    np.testing.assert_allclose(process.log_likelihood(data), expected, rtol=1e-11)


def test_likelihood_of_bat_needs_tables_of_two_thousand_entries() -> None:
    process = bat_process(np.random.default_rng(0))
    assert process._plan.first.largest <= 2**11
    assert process._plan.later.largest == 2**11


def test_prefixes_of_bat_add_up() -> None:
    """Later slices summed over leave the likelihood of the earlier ones."""
    process = bat_process(np.random.default_rng(0), concentration=0.3)
    data = process.sample(4, 12, rng=np.random.default_rng(1))
    gap = data.values.copy().reshape(4, 12, -1)
    gap[:, 7:] = np.nan
    np.testing.assert_allclose(
        process.log_likelihood(data.with_values(gap.reshape(48, -1))),
        process.log_likelihood(data.slices(None, 7)),
        rtol=1e-12,
    )


def test_the_true_process_beats_one_with_other_tables() -> None:
    true, other = (bat_process(np.random.default_rng(seed), concentration=0.3) for seed in (0, 1))
    data = true.sample(20, 30, rng=np.random.default_rng(2))
    assert true.log_likelihood(data).mean() > other.log_likelihood(data).mean() + 10


def test_water_model_is_made_of_the_tables_of_its_generator() -> None:
    once, again = (water_model(np.random.default_rng(5), 0.3) for _ in range(2))
    np.testing.assert_array_equal(
        once.network.parameters.template.weights, again.network.parameters.template.weights
    )
    assert once.network.template.num_interfaces == 256


def test_hmm_process_has_one_hidden_and_one_observed_variable() -> None:
    process = hmm_process(np.random.default_rng(0), num_states=3, num_values=4)
    assert dict(process.structure.sizes) == {"state": 3, "x": 4}
    assert process.schema.names == ("x",)
    data = process.sample(5, 100, rng=np.random.default_rng(1))
    assert data.values.max() <= 3
    assert np.all(process.log_likelihood(data) < 0)


def test_water_structure_is_that_of_the_published_facts(data_directory: Path) -> None:
    facts = json.loads(data_directory.joinpath("dbn", "water.json").read_text(encoding="utf-8"))
    assert list(WATER.sizes) == facts["slice_nodes"]
    assert dict(WATER.sizes) == facts["node_sizes"]
    assert list(WATER.observed) == facts["observed"]
    assert [list(edge) for edge in WATER.within] == facts["intra_slice_edges"]
    assert [list(edge) for edge in WATER.between] == facts["inter_slice_edges"]


def test_water_model_has_one_interface_for_each_hidden_state() -> None:
    network = water_model(np.random.default_rng(0)).network
    assert network.num_interfaces == 256
    assert network.schema.names == ("obs_C_NI", "obs_CBODD", "obs_CNOD", "obs_CKNN")


def test_water_model_is_sharper_with_a_low_concentration() -> None:
    flat = water_model(np.random.default_rng(0)).network.parameters.template.leaves
    sharp = water_model(np.random.default_rng(0), 0.05).network.parameters.template.leaves
    assert np.mean([leaf.max(axis=1) for leaf in sharp]) > 0.9
    assert np.mean([leaf.max(axis=1) for leaf in flat]) < 0.9

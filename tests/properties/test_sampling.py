"""Frequencies of samples against the enumerated probabilities of the cells of a table."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

from dspn import DataError, EvidenceError, Model, Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.leaves import Family
from dspn.structure import DynamicNetwork, Leaf
from oracles import cdf, density, evaluate, leaf_values, static_network
from strategies import as_sequences, draw_sequence, random_network, random_recipe

CUTS = {"gaussian": (0.0,), "poisson": (0.0, 2.0)}
MAX_CELLS = 150


def num_cells(family: Family) -> int:
    return family.num_parameters if family.name == "categorical" else len(CUTS[family.name]) + 1


def cell_of(family: Family, value: float) -> int:
    return (
        int(value)
        if family.name == "categorical"
        else sum(value > cut for cut in CUTS[family.name])
    )


def cell_probability(family: Family, row: list[float], cell: int) -> float:
    """P(value lies in the cell | leaf)."""
    if family.name == "categorical":
        return density(family, row, cell)
    cuts = CUTS[family.name]
    upper = cdf(family, row, cuts[cell]) if cell < len(cuts) else 1.0
    return upper - (cdf(family, row, cuts[cell - 1]) if cell else 0.0)


def table(
    network: DynamicNetwork, values: np.ndarray
) -> tuple[list[int], dict[tuple[int, ...], float]]:
    """The entries left open, and the probability of every combination of their cells."""
    static = static_network(network, len(values))
    leaves = leaf_values(static, values)
    own: dict[int, list[int]] = {}
    for index, node in enumerate(static.nodes):
        if isinstance(node, Leaf):
            own.setdefault(node.variable, []).append(index)
    opened = np.flatnonzero(np.isnan(values.reshape(-1))).tolist()
    families = [static.nodes[own[entry][0]].family for entry in opened]  # type: ignore[union-attr]
    total = evaluate(static, leaves)
    found = {}
    for cells in product(*(range(num_cells(family)) for family in families)):
        for entry, family, cell in zip(opened, families, cells, strict=True):
            for index in own[entry]:
                row = static.leaf_parameters[index].tolist()  # type: ignore[union-attr]
                leaves[index] = cell_probability(family, row, cell)
        found[cells] = evaluate(static, leaves) / total
    return opened, found


def chi_square(
    network: DynamicNetwork, evidence: np.ndarray, samples: list[np.ndarray]
) -> tuple[float, int]:
    """Statistic and degrees of freedom; cells of expected count below 5 are taken together."""
    opened, expected = table(network, evidence)
    assert math.isclose(math.fsum(expected.values()), 1.0, rel_tol=1e-9)
    n = len(network.schema)
    families = [network.template.banks[entry % n].family for entry in opened]
    counts = dict.fromkeys(expected, 0)
    for sample in samples:
        flat = sample.reshape(-1)
        counts[tuple(cell_of(f, flat[e]) for f, e in zip(families, opened, strict=True))] += 1
    size = len(samples)
    assert all(counts[cell] == 0 for cell, p in expected.items() if p == 0), "an impossible sample"
    large = [(counts[cell], p * size) for cell, p in expected.items() if p * size >= 5]
    rest = (size - sum(c for c, _ in large), size - math.fsum(e for _, e in large))
    pairs = [*large, rest] if rest[1] >= 1 else large
    return math.fsum((c - e) ** 2 / e for c, e in pairs), max(len(pairs) - 1, 0)


def small_length(network: DynamicNetwork) -> int:
    """The longest length of up to 5 slices whose table is small."""
    cells = math.prod(num_cells(bank.family) for bank in network.template.banks)
    return max([t for t in range(1, 6) if cells**t <= MAX_CELLS] or [1])


def assert_frequencies(statistics: list[tuple[float, int]]) -> None:
    for statistic, freedom in statistics:
        assert freedom == 0 or chi2.sf(statistic, freedom) > 1e-7
    total, freedom = (sum(column) for column in zip(*statistics, strict=True))
    assert chi2.sf(total, freedom) > 1e-4
    # Samples that are too even are no samples either.
    assert chi2.cdf(total, freedom) > 1e-4


@pytest.mark.parametrize("first", range(0, 300, 30))
def test_sample_frequencies_agree_with_enumeration(first: int) -> None:
    statistics = []
    for seed in range(first, first + 30):
        network = random_network(seed)
        length = small_length(network)
        samples = Model(network).sample(600, length, rng=np.random.default_rng(seed))
        assert samples.lengths.tolist() == [length] * 600
        assert not np.isnan(samples.values).any()
        statistics.append(
            chi_square(network, np.full((length, len(network.schema)), np.nan), list(samples))
        )
    assert_frequencies(statistics)


@pytest.mark.parametrize("first", range(0, 300, 30))
def test_conditional_sample_frequencies_agree_with_enumeration(first: int) -> None:
    statistics = []
    for seed in range(first, first + 30):
        network = random_network(seed)
        rng = np.random.default_rng([19, seed])
        evidence = draw_sequence(network, int(rng.integers(1, 5)), rng)
        flat = evidence.reshape(-1)
        cells = 1
        for entry in rng.permutation(flat.size).tolist():
            cells *= num_cells(network.template.banks[entry % len(network.schema)].family)
            if cells > MAX_CELLS:
                break
            flat[entry] = np.nan
        data = as_sequences(network.schema, [evidence] * 600)
        samples = Model(network).sample_given(data, rng=rng)
        seen = ~np.isnan(data.values)
        np.testing.assert_array_equal(samples.values[seen], data.values[seen])
        statistics.append(chi_square(network, evidence, list(samples)))
    assert_frequencies(statistics)


def test_continuous_samples_have_the_distribution_of_the_mixture() -> None:
    network = random_network(random_recipe(4, kinds=("continuous", "binary"), num_groups=1))
    samples = Model(network).sample(4000, 2, rng=np.random.default_rng(0))
    values = samples.values.reshape(4000, 2, 2)[:, 1, 0]
    static = static_network(network, 2)
    leaves = leaf_values(static, np.full((2, 2), np.nan))
    cuts = np.linspace(-3, 3, 13)
    below = []
    for cut in cuts:
        for index, node in enumerate(static.nodes):
            if isinstance(node, Leaf) and node.variable == 2:
                leaves[index] = cdf(node.family, static.leaf_parameters[index].tolist(), float(cut))  # type: ignore[union-attr]
        below.append(evaluate(static, leaves))
    expected = np.diff([0.0, *below, 1.0]) * 4000
    counts = np.histogram(values, bins=[-np.inf, *cuts, np.inf])[0]
    large = expected >= 5
    assert (counts[expected < 1e-12] == 0).all()
    statistic = float(((counts - expected) ** 2 / np.maximum(expected, 1e-300))[large].sum())
    assert chi2.sf(statistic, int(large.sum()) - 1) > 1e-5


def test_samples_are_the_same_for_the_same_seed() -> None:
    model = Model(random_network(11))
    one, two, other = (model.sample(20, 7, rng=np.random.default_rng(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.values, two.values)
    assert not np.array_equal(one.values, other.values)


def test_draws_stay_within_declared_bounds() -> None:
    schema = Schema((Variable.continuous("humid"), Variable.binary("rain")))
    rows = {"humid": [[90.0, 100.0], [40.0, 100.0]], "rain": [[0.2, 0.8], [0.9, 0.1]]}
    model = Model.from_hmm([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], rows, schema=schema)
    bounds = {"humid": (0.0, 100.0)}
    drawn = model.sample(200, 10, rng=np.random.default_rng(1), bounds=bounds).values[:, 0]
    assert drawn.min() >= 0.0 and drawn.max() <= 100.0
    free = model.sample(200, 10, rng=np.random.default_rng(1)).values[:, 0]
    assert free.max() > 100.0
    inside = free <= 100.0
    assert inside.mean() > 0.8
    with pytest.raises(EvidenceError, match="too little room"):
        model.sample(1, 2, rng=np.random.default_rng(1), bounds={"humid": (500.0, 501.0)})
    with pytest.raises(DataError, match="`bounds` of 'rain'"):
        model.sample(1, 2, rng=np.random.default_rng(1), bounds={"rain": (0.0, 1.0)})


def test_draws_of_whole_sequences_do_not_depend_on_the_rest_of_the_batch() -> None:
    network = random_network(random_recipe(3, kinds=("continuous", "binary", "count")))
    schema, seeds = network.schema, np.arange(9, dtype=np.uint64)
    program = compile_program(network).components[0]
    blank = Sequences.from_codes(np.full((24, 3), np.nan), np.arange(9) * 3, schema)
    seen = Sequences.from_codes(np.array([[0.5, 1.0, 2.0]]), [0, 1], schema)
    values = np.concatenate([blank.values, seen.values])
    both = Sequences.from_codes(values, [*blank.offsets.tolist(), 25], schema)
    alone, together = program.draw(blank, seeds[:8]), program.draw(both, seeds)
    np.testing.assert_array_equal(together.leaves[:24], alone.leaves)
    np.testing.assert_array_equal(together.interfaces[:24], alone.interfaces)
    np.testing.assert_allclose(alone.log_values, 0.0, rtol=0, atol=1e-12)

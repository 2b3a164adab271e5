import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError, StructureError
from dspn.learning.priors import Priors
from dspn.structure import Product, Sum, unroll
from experiments.baselines import LearnSpnBaseline, LearnSpnOptions
from experiments.baselines._spn_clusters import Instances, clusters
from experiments.baselines.learn_spn import FittedSpn, flat_schema, flattened
from oracles import likelihood

BITS = Schema((Variable.binary("a"), Variable.binary("b")))


def batch(values: np.ndarray, schema: Schema = BITS) -> Sequences:
    """Sequences of one length from an (N, T, n) array."""
    size, length, width = values.shape
    offsets = np.arange(0, size * length + 1, length)
    return Sequences.from_codes(values.reshape(-1, width).astype(float), offsets, schema)


def two_kinds(size: int, seed: int, noise: float = 0.1) -> Sequences:
    """Three slices: a is all zeros or all ones and b its copy at the end, else b is drawn."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=size)
    values = rng.integers(2, size=(size, 3, 2))
    values[:, :, 0] = kind[:, None] ^ (rng.random((size, 3)) < noise)
    values[:, 2, 1] = kind ^ (rng.random(size) < noise)
    return batch(values)


def single(**options: object) -> LearnSpnBaseline:
    """One setting only."""
    chosen: dict = {"alphas": (0.001,), "penalties": (0.5,), **options}
    return LearnSpnBaseline(LearnSpnOptions(**chosen))


def fit(data: Sequences, **options: object) -> FittedSpn:
    return single(**options).fit(data, data[:20], seed=0)


def test_probabilities_of_all_sequences_sum_to_one_and_match_the_network() -> None:
    found = fit(two_kinds(300, 0))
    values = np.array(list(itertools.product([0, 1], repeat=6))).reshape(-1, 3, 2)
    every = batch(values)
    shares = np.exp(found.log_likelihood(every))
    assert_allclose(shares.sum(), 1.0, rtol=1e-10)
    flat = flattened(every, 3, "data")
    by_hand = [likelihood(found.network, row) for row in flat]
    assert_allclose(shares, by_hand, rtol=1e-10)


def test_network_is_complete_and_decomposable() -> None:
    found = fit(two_kinds(400, 1), alphas=(0.05,), penalties=(0.05,))
    static = unroll(found.network, 1)
    scopes = static.scopes()
    assert scopes[static.root] == set(range(6))
    assert any(isinstance(node, Sum) and len(node.children) > 1 for node in static.nodes)
    for index, node in enumerate(static.nodes):
        if isinstance(node, Sum):
            assert {scopes[child] for child in node.children} == {scopes[index]}
        elif isinstance(node, Product):
            assert sum(len(scopes[child]) for child in node.children) == len(scopes[index])


def test_dependent_entries_share_a_sum_and_others_are_leaves() -> None:
    network = fit(two_kinds(500, 2)).network
    static = unroll(network, 1)
    scopes = static.scopes()
    mixed = {scopes[i] for i, node in enumerate(static.nodes) if isinstance(node, Sum)}
    assert frozenset([0, 2, 4, 5]) in mixed
    # b of the first two slices is drawn, whatever the rest.
    root = static.nodes[static.root]
    assert isinstance(root, Sum)
    top = static.nodes[root.children[0]]
    assert isinstance(top, Product)
    assert {frozenset([1]), frozenset([3])} <= {scopes[child] for child in top.children}


def test_distribution_comes_near_the_truth() -> None:
    found = fit(two_kinds(4000, 3))
    values = np.array(list(itertools.product([0, 1], repeat=6))).reshape(-1, 3, 2)
    shares = np.exp(found.log_likelihood(batch(values)))
    shown = np.concatenate([values[:, :, 0], values[:, 2:, 1]], axis=1).sum(axis=1)
    truth = 0.5 * (0.9**shown * 0.1 ** (4 - shown) + 0.1**shown * 0.9 ** (4 - shown)) / 4
    assert_allclose(truth.sum(), 1.0, rtol=1e-12)
    assert float(truth @ np.log(truth / shares)) < 0.01


def test_missing_entries_are_summed_out() -> None:
    found = fit(two_kinds(300, 4))
    values = np.array([[0, 1], [1, math.nan], [math.nan, 0]])
    one = Sequences.from_codes(values, [0, 3], BITS)
    filled = []
    for x, y in itertools.product([0.0, 1.0], repeat=2):
        own = values.copy()
        own[1, 1], own[2, 0] = x, y
        filled.append(own)
    total = np.exp(found.log_likelihood(Sequences.from_arrays(filled, schema=BITS))).sum()
    assert_allclose(found.log_likelihood(one), [math.log(total)], rtol=1e-10)
    blank = Sequences.from_codes(np.full((3, 2), np.nan), [0, 3], BITS)
    assert_allclose(found.log_likelihood(blank), [0.0], atol=1e-12)


def test_training_with_gaps_and_other_kinds_of_variables() -> None:
    rng = np.random.default_rng(5)
    kind = rng.integers(2, size=400)
    schema = Schema((Variable.continuous("x"), Variable.count("k"), Variable.binary("b")))
    values = np.stack(
        [
            rng.normal(5.0 * kind[:, None], size=(400, 2)),
            rng.poisson(1 + 9 * kind[:, None], size=(400, 2)),
            kind[:, None] ^ (rng.random((400, 2)) < 0.1),
        ],
        axis=2,
    ).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    data = batch(values, schema)
    # The two kinds, told apart by numbers alone, are one bit of every sequence.
    mixed, alone = fit(data), fit(data, min_instances=10**6)
    gain = mixed.log_likelihood(data) - alone.log_likelihood(data)
    assert gain.mean() > 2.0


def test_constant_and_missing_entries_are_leaves() -> None:
    values = np.ones((60, 2, 2))
    values[:, 1, 1] = np.nan
    found = fit(batch(values))  # from 60 sequences and the 20 of validation
    assert not any(
        isinstance(node, Sum) and len(node.children) > 1 for node in found.network.template.nodes
    )
    assert_allclose(found.log_likelihood(batch(values[:1])), [3 * math.log(80.5 / 81)], rtol=1e-10)


def test_setting_is_chosen_by_validation() -> None:
    # With such a penalty no cluster pays, and what is left is a product of leaves.
    options = LearnSpnOptions(alphas=(0.001,), penalties=(1e6, 0.5), refit=False)
    found = LearnSpnBaseline(options).fit(two_kinds(300, 6), two_kinds(100, 7), seed=0)
    assert (found.alpha, found.penalty, found.iterations) == (0.001, 0.5, 2)
    alone = fit(two_kinds(300, 6), penalties=(1e6,))
    test = two_kinds(100, 8)
    assert found.log_likelihood(test).mean() > alone.log_likelihood(test).mean() + 0.5


def test_refit_learns_from_the_validation_set_too() -> None:
    train, validation, test = (
        two_kinds(size, seed) for size, seed in ((40, 9), (400, 10), (200, 11))
    )
    after, before = (
        single(refit=refit).fit(train, validation, seed=0).log_likelihood(test).mean()
        for refit in (True, False)
    )
    assert after > before


def test_other_lengths_are_refused() -> None:
    data = two_kinds(30, 12)
    short = data.slices(0, 2)
    with pytest.raises(
        DataError, match=r"`data` must hold sequences of 3 slices.* sequence 0 has 2"
    ):
        fit(data).log_likelihood(short)
    with pytest.raises(DataError, match="`validation` must hold sequences of 3 slices"):
        single().fit(data, short, seed=0)
    ragged = Sequences.from_codes(np.zeros((3, 2)), [0, 1, 3], BITS)
    with pytest.raises(DataError, match=r"`train` must hold sequences of 1 slices.* 1 has 2; cut"):
        single().fit(ragged, ragged, seed=0)


def test_entries_are_variables_slice_by_slice() -> None:
    assert flat_schema(BITS, 2).names == ("0.a", "0.b", "1.a", "1.b")
    flat = flattened(batch(np.arange(4).reshape(1, 2, 2) % 2), 2, "data")
    assert_array_equal(flat.values, [[0, 1, 0, 1]])


def parts(seed: int, size: int = 200) -> tuple[Instances, np.ndarray]:
    """Four bits that show which of two kinds an instance is."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=size)
    values = kind[:, None, None] ^ (rng.random((size, 2, 2)) < 0.05)
    return Instances(flattened(batch(values), 2, "data"), Priors()), kind


def test_clusters_are_the_kinds_of_instances() -> None:
    instances, kind = parts(0)
    part = instances.part(np.arange(200), range(4))
    found = clusters(part, penalty=1.0, max_clusters=8, rng=np.random.default_rng(0))
    assert len(found) == 2
    assert_array_equal(np.sort(np.concatenate(found)), np.arange(200))
    assert all(np.mean(kind[rows]) < 0.05 or np.mean(kind[rows]) > 0.95 for rows in found)


def test_clusters_that_do_not_pay_are_not_made() -> None:
    instances, _ = parts(1)
    rows = np.arange(0, 200, 2)
    part = instances.part(rows, range(4))
    found = clusters(part, penalty=1e4, max_clusters=8, rng=np.random.default_rng(0))
    assert len(found) == 1
    assert_array_equal(found[0], rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphas": ()}, "`alphas` of LearnSpnOptions must be a tuple of at least one number"),
        ({"alphas": 0.5}, r"`alphas` of LearnSpnOptions must be a tuple.* write \(0.5,\)"),
        ({"penalties": (-1.0,)}, "`penalties` of LearnSpnOptions must be a finite number"),
        ({"max_clusters": 1}, "`max_clusters` must be a whole number of at least 2"),
        ({"min_instances": 0}, "`min_instances` must be a whole number of at least 1"),
        ({"leaf_pseudo_count": 0.0}, "`leaf_pseudo_count` of LearnSpnOptions"),
        ({"refit": 1}, "`refit` must be a bool"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(StructureError, match=message):
        LearnSpnOptions(**options)


def test_level_out_of_range_is_refused() -> None:
    with pytest.raises(DataError, match="`alpha` must be a number strictly between 0 and 1"):
        LearnSpnOptions(alphas=(0.0,))

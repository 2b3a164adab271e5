import numpy as np
import pytest

from dspn import Model
from dspn.data import Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.errors import DataError, StructureError
from dspn.learning import NO_PRIORS, EmOptions, Priors, fit_em
from dspn.learning.starts import clustered_network, clusters
from dspn.structure import Root, grouped_network
from dspn.structure.chain import transition_sums
from dspn.structure.nodes import children_of
from strategies import arbitrary_sequence, as_sequences, hide, schema_of

MIXED = schema_of(("binary", "ternary", "continuous", "count", "single"))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mixed_data() -> Sequences:
    arrays = [
        hide(arbitrary_sequence(MIXED, length, rng(length)), rng(length), 0.2)
        for length in (1, 4, 30, 12)
    ]
    return as_sequences(MIXED, [*arrays, np.full((2, 5), np.nan)])


def cycles(count: int = 20, length: int = 9) -> Sequences:
    """Sequences that run 0, 1, 2, 0, ... from the category 0 on."""
    one = (np.arange(length) % 3).astype(float)[:, None]
    return as_sequences(schema_of(("ternary",)), [one] * count)


def states_by_category(network) -> list[int]:  # type: ignore[no-untyped-def]
    """The node of each category of the only variable."""
    return [int(i) for i in np.argmax(network.parameters.template.leaves[0], axis=0)]


@pytest.mark.parametrize("root", ["first", "last"])
def test_weights_are_the_frequencies_of_clusters_from_the_root_down(root: str) -> None:
    network = clustered_network(cycles(length=8), 3, width=0, rng=rng(), root=root)
    node = states_by_category(network)
    weights = network.parameters.template.weights.reshape(3, 3)
    down = 1 if root == "first" else -1
    for category in range(3):
        assert weights[node[category], node[(category + down) % 3]] > 0.9
    # Sequences begin with category 0 and end with category 1.
    top = network.parameters.top.weights
    assert top[node[0 if root == "first" else 1]] > 0.9
    assert network.root == Root(root)


def test_leaves_are_those_that_fit_the_clusters_best() -> None:
    schema = schema_of(("continuous", "binary"))
    kind = np.array([0, 1] * 50)
    values = np.stack([kind * 10 + rng().normal(size=100), kind], axis=1)
    network = clustered_network(
        as_sequences(schema, [values]), 2, width=0, priors=NO_PRIORS, rng=rng()
    )
    leaves = network.parameters.template.leaves
    order = np.argsort(leaves[0][:, 0])
    for state in (0, 1):
        own = values[kind == state, 0]
        np.testing.assert_allclose(leaves[0][order[state]], [own.mean(), own.var()], rtol=1e-9)
        np.testing.assert_allclose(leaves[1][order[state]], np.eye(2)[state], rtol=0, atol=1e-12)


def test_start_from_clusters_is_far_better_than_a_random_one() -> None:
    model = planted()
    data = model.sample(60, 20, rng=rng(1))
    drawn = grouped_network(data.schema, [range(6)], 3, rng=rng())
    truth = model.log_likelihood(data).mean()
    assert compile_program(drawn).log_likelihood(data).mean() < truth - 50
    for width, loss in ((0, 1.0), (2, 25.0)):
        start = clustered_network(data, 3, width=width, rng=rng())
        assert compile_program(start).log_likelihood(data).mean() > truth - loss


def planted() -> Model:
    schema = Schema(tuple(Variable.binary(f"x{i}") for i in range(6)))
    states = np.array([[0, 0, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 1]])
    emissions = {
        f"x{i}": np.where(states[:, [i]] == [0, 1], 0.95, 0.05) for i in range(len(schema))
    }
    transition = [[0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [0.4, 0.0, 0.6]]
    return Model.from_hmm([1.0, 0.0, 0.0], transition, emissions, schema=schema)


def test_trained_start_comes_to_the_true_likelihood() -> None:
    model = planted()
    train, test = (model.sample(200, 20, rng=rng(seed)) for seed in (1, 2))
    fit = fit_em(clustered_network(train, 3, rng=rng()), train, options=EmOptions(max_steps=30))
    gap = model.log_likelihood(test) - compile_program(fit.network).log_likelihood(test)
    assert abs(gap.mean()) < 0.1


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("num_products", [1, 3])
def test_groups_start_from_their_own_variables(root: str, num_products: int) -> None:
    data = mixed_data()
    network = clustered_network(
        data, [3, 2], groups=[[3, 1], [0, 2, 4]], num_products=num_products, rng=rng(), root=root
    )
    assert network.groups == ((0, 1, 2), (3, 4))
    assert [len(rows) for rows in network.parameters.template.leaves] == [2, 3, 2, 3, 2]
    assert np.isfinite(compile_program(network).log_likelihood(data)).all()
    nothing = data.with_values(np.full_like(data.values, np.nan))
    np.testing.assert_allclose(compile_program(network).log_likelihood(nothing), 0.0, atol=1e-12)


def test_products_of_the_top_start_from_clusters_of_root_slices() -> None:
    schema = schema_of(("binary", "binary"))
    arrays = [np.full((3, 2), float(number % 2)) for number in range(40)]
    data = as_sequences(schema, arrays)
    one, two = (
        clustered_network(data, 2, groups=[[0], [1]], num_products=products, width=0, rng=rng())
        for products in (1, 2)
    )
    # Both variables are always equal, which a single product of groups cannot say.
    together = compile_program(two).log_likelihood(data).mean()
    assert together > np.log(0.5) - 0.2
    assert compile_program(one).log_likelihood(data).mean() < 2 * np.log(0.5) + 0.01


def by_hour(lengths: tuple[int, ...] = (5,)) -> Sequences:
    """Bits whose frequency depends on how far they are from the first slice, on nothing else."""
    draw, often = rng(7), np.array([0.1, 0.9, 0.3, 0.8, 0.5])
    arrays = [draw.random((length, 1)) < often[:length, None] for length in 20 * lengths]
    return as_sequences(schema_of(("binary",)), [own.astype(float) for own in arrays])


@pytest.mark.parametrize("root", ["first", "last"])
def test_a_node_for_each_position_has_its_frequencies(root: str) -> None:
    data = by_hour()
    start = clustered_network(data, 5, by_position=True, priors=NO_PRIORS, rng=rng(), root=root)
    options = EmOptions(max_steps=100, tolerance=0.0)
    fit = fit_em(start, data, options=options, priors=NO_PRIORS)
    bits = data.values.reshape(-1, 5)
    ones = bits.mean(axis=0)
    expected = np.log(np.where(bits == 1, ones, 1 - ones)).sum(axis=1)
    program = compile_program(fit.network)
    np.testing.assert_allclose(program.log_likelihood(data), expected, rtol=1e-5)
    # Slices beyond the longest sequence are as those farthest from the root.
    longer = as_sequences(data.schema, [np.ones((7, 1))])
    farthest = ones[-1 if root == "first" else 0]
    expected = np.log(ones).sum() + 2 * np.log(farthest)
    np.testing.assert_allclose(program.log_likelihood(longer), expected, rtol=1e-5)


@pytest.mark.parametrize("root", [Root.FIRST, Root.LAST])
def test_nodes_of_a_position_read_those_of_the_next_one_only(root: Root) -> None:
    data = by_hour(lengths=(1, 3, 5))
    network = clustered_network(data, 13, by_position=True, rng=rng(), root=root)
    sums = transition_sums(network.template).values()
    reads = {frozenset(children_of(network.template.nodes[own])) for own in sums}
    assert len(reads) == 4
    assert sum(map(len, reads)) == len(frozenset.union(*reads)) < 13
    nothing = data.with_values(np.full_like(data.values, np.nan))
    np.testing.assert_allclose(compile_program(network).log_likelihood(nothing), 0.0, atol=1e-12)


def test_each_group_has_nodes_by_position() -> None:
    data = mixed_data()
    groups = [[3, 1], [0, 2, 4]]
    network = clustered_network(data, [40, 31], groups=groups, by_position=True, rng=rng())
    assert [len(own) for own in network.groups] == [40, 31]
    assert network.template.num_weights < 40 * 10 + 31 * 10
    assert np.isfinite(compile_program(network).log_likelihood(data)).all()


@pytest.mark.parametrize("num_interfaces", [1, 5, 40, 60])
def test_more_nodes_than_windows_are_all_alive(num_interfaces: int) -> None:
    data = cycles(count=4, length=5)
    network = clustered_network(data, num_interfaces, width=0, rng=rng())
    assert network.num_interfaces == num_interfaces
    rows = network.parameters.template.leaves[0]
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    assert (network.parameters.template.weights > 0).all()
    if num_interfaces == 5:
        # Twenty slices for five nodes: the three clusters were cut in two where they were largest.
        assert (rows.max(axis=1) > 0.8).all()


def test_spread_cuts_the_largest_cluster_in_two() -> None:
    labels = np.array([0] * 8 + [1] * 3 + [2])
    found = clusters._spread(labels, 5, rng())
    assert sorted(np.bincount(found).tolist()) == [1, 2, 2, 3, 4]
    np.testing.assert_array_equal(found[8:], labels[8:])


def test_data_of_single_slices_have_no_transitions() -> None:
    data = as_sequences(MIXED, [arbitrary_sequence(MIXED, 1, rng(seed)) for seed in range(30)])
    network = clustered_network(data, 4, rng=rng())
    weights = network.parameters.template.weights.reshape(4, 4)
    np.testing.assert_allclose(weights, np.broadcast_to(weights[0], (4, 4)), rtol=1e-12)


def test_nothing_observed_at_all_gives_a_network() -> None:
    data = as_sequences(MIXED, [np.full((3, 5), np.nan)])
    network = clustered_network(data, 3, rng=rng())
    np.testing.assert_allclose(compile_program(network).log_likelihood(data), 0.0, atol=1e-12)


def test_families_are_scaled_to_the_data() -> None:
    values = 1e6 + rng().normal(size=(50, 1))
    data = as_sequences(schema_of(("continuous",)), [values])
    network = clustered_network(data, 2, rng=rng())
    family = network.template.banks[0].family
    assert family == family.scaled_to(values[:, 0])


def test_clustered_network_is_the_same_for_the_same_seed() -> None:
    one, two = (clustered_network(mixed_data(), 4, rng=rng(3)) for _ in range(2))
    assert one.fingerprint == two.fingerprint


def test_priors_smooth_the_counts() -> None:
    sharp, flat = (
        clustered_network(cycles(), 3, width=0, priors=Priors(count), rng=rng())
        for count in (0.0, 1000.0)
    )
    assert sharp.parameters.template.weights.max() > 0.95
    assert flat.parameters.template.weights.max() < 0.4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_interfaces": 0}, "`num_interfaces`"),
        ({"groups": [[0, 1]]}, "`groups`"),
        ({"num_products": 0}, "`num_products`"),
        ({"width": -1}, "`width`"),
        ({"priors": None}, "`priors`"),
        ({"root": "middle"}, "`root`"),
        ({"rng": None}, "`rng`"),
        ({"by_position": True}, "at least the length of the longest sequence"),
    ],
)
def test_clustered_network_refuses(arguments, message: str) -> None:  # type: ignore[no-untyped-def]
    settings = {"num_interfaces": 2, "rng": rng(), **arguments}
    with pytest.raises(StructureError, match=message):
        clustered_network(mixed_data(), **settings)


def test_clustered_network_refuses_what_are_no_sequences() -> None:
    with pytest.raises(DataError, match="`data`"):
        clustered_network([[0.0]], 2, rng=rng())  # type: ignore[arg-type]

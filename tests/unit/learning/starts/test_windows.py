import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dspn.data import Sequences
from dspn.errors import DataError, StructureError
from dspn.learning.starts import clusters, slice_clusters
from strategies import arbitrary_sequence, as_sequences, schema_of

MIXED = schema_of(("binary", "ternary", "continuous", "count", "single"))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def binary(*sequences: list[float]) -> Sequences:
    return as_sequences(schema_of(("binary",)), [np.array([own]).T for own in sequences])


def same_partition(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len(set(one.tolist())) == len(set(other.tolist()))


def test_clusters_are_found_where_there_are_clusters() -> None:
    schema = schema_of(("continuous", "continuous"))
    kind = rng(1).integers(3, size=300)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 900.0]])
    values = centres[kind] + rng(2).normal(size=(300, 2)) * [1.0, 100.0] * 0.3
    found = slice_clusters(as_sequences(schema, [values]), 3, width=0, rng=rng())
    assert same_partition(found, kind)


def test_context_tells_equal_slices_apart() -> None:
    data = binary([0, 0, 1, 1] * 6)
    assert slice_clusters(data, 4, width=0, rng=rng()).max() == 1
    inner = slice_clusters(data, 4, width=1, rng=rng())[2:-2]
    # The four slices of a period differ by their neighbours, and only by them.
    assert same_partition(inner, np.arange(inner.size) % 4)


def test_windows_end_with_the_sequence() -> None:
    data = binary([1, 0], [0, 1])
    alone = slice_clusters(data, 9, width=1, rng=rng())
    assert alone[0] != alone[3]
    features = clusters._features(data, [0])
    found = clusters._windows(features, data, np.arange(4), 1, 1).reshape(4, 3, 1)
    np.testing.assert_array_equal(found[[0, 2], 0], 0.0)
    np.testing.assert_array_equal(found[[1, 3], 2], 0.0)
    np.testing.assert_array_equal(found[1, 0], found[0, 1])


def test_features_have_mean_zero_and_missing_entries_are_the_mean() -> None:
    values = arbitrary_sequence(MIXED, 200, rng())
    values[rng(1).random(values.shape) < 0.3] = np.nan
    found = clusters._features(as_sequences(MIXED, [values]), range(5))
    assert found.shape == (200, 1 + 3 + 1 + 1 + 1)
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_array_equal(found[np.isnan(values[:, 2]), 4], 0.0)
    np.testing.assert_array_equal(found[np.isnan(values[:, 0]), :1], 0.0)


@pytest.mark.parametrize("num_clusters", [1, 2, 7, 50])
def test_labels_have_no_gaps_and_are_at_most_as_many_as_asked_for(num_clusters: int) -> None:
    arrays = [arbitrary_sequence(MIXED, length, rng(length)) for length in (1, 2, 9, 30)]
    arrays.append(np.full((3, 5), np.nan))
    found = slice_clusters(as_sequences(MIXED, arrays), num_clusters, rng=rng())
    assert found.shape == (45,) and found.dtype == np.int64
    assert set(found.tolist()) == set(range(int(found.max()) + 1))
    assert found.max() < num_clusters


def test_fewer_windows_than_clusters_have_a_cluster_each() -> None:
    data = binary([0, 1, 0, 1, 0, 1])
    found = slice_clusters(data, 10, width=0, rng=rng())
    assert same_partition(found, np.arange(6) % 2)


def test_one_slice_with_nothing_observed_is_one_cluster() -> None:
    data = as_sequences(MIXED, [np.full((1, 5), np.nan)])
    np.testing.assert_array_equal(slice_clusters(data, 3, rng=rng()), [0])


def test_some_variables_only() -> None:
    values = np.array([[0, 0, 5.0, 1, 0], [1, 0, 5.0, 1, 0], [0, 1, -5.0, 3, 0]], dtype=float)
    data = as_sequences(MIXED, [values])
    found = slice_clusters(data, 3, width=0, variables=[0], rng=rng())
    assert same_partition(found, np.array([0, 1, 0]))


def test_slices_with_different_numbers_are_in_different_clusters() -> None:
    data, apart = binary([0, 1] * 30), np.repeat([4, 9], [40, 20])
    found = slice_clusters(data, 6, width=0, apart=apart, rng=rng())
    assert same_partition(found, 2 * (apart == 9) + data.values[:, 0])
    wide = slice_clusters(data, 6, width=3, apart=apart, rng=rng())
    assert [np.unique(wide[apart == own]).size for own in (4, 9)] == [4, 2]


def test_many_slices_are_clustered_by_a_sample() -> None:
    labels = [0, 1] * 10_500
    found = slice_clusters(binary(labels), 2, width=0, rng=rng())
    assert same_partition(found, np.array(labels))


def test_clusters_do_not_depend_on_the_number_of_threads() -> None:
    schema = schema_of(("continuous",) * 3)
    data = as_sequences(schema, [rng().normal(size=(3000, 3))])
    found = []
    for threads in (1, 4):
        with threadpool_limits(limits=threads):
            found.append(slice_clusters(data, 20, rng=rng(1)))
    np.testing.assert_array_equal(*found)


def test_an_outlier_has_no_cluster_of_its_own() -> None:
    schema = schema_of(("continuous",))
    values = np.concatenate([rng().normal(size=300) - 2, rng(1).normal(size=300) + 2, [1e9]])
    found = slice_clusters(as_sequences(schema, [values[:, None]]), 2, width=0, rng=rng())
    assert np.bincount(found).min() >= 1
    assert np.isfinite(clusters._features(as_sequences(schema, [values[:, None]]), [0])).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_clusters": 0}, "`num_clusters`"),
        ({"num_clusters": 2.5}, "`num_clusters`"),
        ({"width": -1}, "`width`"),
        ({"variables": [1]}, r"`variables`.*0 to 0"),
        ({"variables": []}, "`variables`"),
        ({"rng": 3}, "`rng`"),
        ({"apart": np.arange(2), "num_clusters": 1}, "at least 2, one for each number in `apart`"),
    ],
)
def test_slice_clusters_refuses(arguments, message: str) -> None:  # type: ignore[no-untyped-def]
    settings = {"num_clusters": 2, "rng": rng(), **arguments}
    with pytest.raises(StructureError, match=message):
        slice_clusters(binary([0, 1]), **settings)


def test_slice_clusters_refuses_what_are_no_sequences() -> None:
    with pytest.raises(DataError, match="`data`"):
        slice_clusters([[0.0]], 2, rng=rng())  # type: ignore[arg-type]

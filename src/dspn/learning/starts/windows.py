"""Clusters of slices, each slice seen together with the slices around it."""

import warnings
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Ints
from dspn._checks import checked_rng, indices, require_type, whole_number
from dspn.engine import check_time
from dspn.errors import DataError, StructureError
from dspn.leaves import Gaussian
from dspn.sequences import Kind, Sequences

Singles = NDArray[np.float32]

# Centres are found on this many windows at most, and windows are made for as many at a time.
_MOST_WINDOWS: Final = 20_000
_MOST_ITERATIONS: Final = 30
# One outlier must not have a cluster of its own.
_FARTHEST: Final = 5.0


def _features(data: Sequences, variables: Sequence[int]) -> Singles:
    """Indicators of categories and standardised numbers, (slices, features), each of mean zero.

    A missing entry is 0, the mean of its columns.
    """
    columns = []
    for variable in variables:
        values = data.values[:, variable]
        seen = ~np.isnan(values)
        if data.schema[variable].kind == Kind.CATEGORICAL:
            own = np.zeros((len(values), data.schema[variable].num_categories), dtype=np.float32)
            own[np.flatnonzero(seen), values[seen].astype(np.int64)] = 1.0
            own[seen] -= own[seen].mean(axis=0) if seen.any() else 0.0
        else:
            reference = Gaussian().scaled_to(values)
            standard = np.where(seen, (values - reference.location) / reference.scale, 0.0)
            own = np.clip(standard, -_FARTHEST, _FARTHEST).astype(np.float32)[:, None]
        columns.append(own)
    return np.concatenate(columns, axis=1)


def _windows(features: Singles, data: Sequences, rows: Ints, width: int) -> Singles:
    """Features of each row and of `width` slices before and after it in its sequence.

    A slice beyond the ends is 0, the mean.
    """
    sequence = np.searchsorted(data.offsets, rows, side="right") - 1
    first, last = data.offsets[sequence], data.offsets[sequence + 1] - 1
    size = features.shape[1]
    found = np.zeros((rows.size, 2 * width + 1, size), dtype=np.float32)
    for place, shift in enumerate(range(-width, width + 1)):
        inside = (rows + shift >= first) & (rows + shift <= last)
        found[inside, place] = features[rows[inside] + shift]
    return found.reshape(rows.size, -1)


def _centres(windows: Singles, num_clusters: int, rng: np.random.Generator) -> Singles:
    """Centres of k-means; fewer where there are fewer different windows."""
    # Both take a while to import and serve this function alone.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    different = np.unique(windows, axis=0)
    if len(different) <= num_clusters:
        return different
    means = KMeans(
        num_clusters,
        n_init=1,
        max_iter=_MOST_ITERATIONS,
        random_state=int(rng.integers(2**31)),
    )
    # Threads add up in any order, and the last bits with them: one thread, one result.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found: Singles = means.fit(windows).cluster_centers_
    return found


def nearest_centres(
    windows: Callable[[Ints], Singles], total: int, count: int, rng: np.random.Generator
) -> Ints:
    """The nearest of `count` centres of each of `total` windows, numbered without gaps."""
    sample = np.arange(total)
    if total > _MOST_WINDOWS:
        sample = np.sort(rng.choice(total, _MOST_WINDOWS, replace=False))
    centres = _centres(windows(sample), count, rng)
    runs = np.split(np.arange(total), range(_MOST_WINDOWS, total, _MOST_WINDOWS))
    found = []
    for rows in runs:
        check_time()
        found.append(_nearest(windows(rows), centres))
    nearest = np.concatenate(found)
    return np.unique(nearest, return_inverse=True)[1].astype(np.int64)


def _nearest(windows: Singles, centres: Singles) -> Ints:
    """The centre at the least Euclidean distance, the first among equals."""
    squares = 0.5 * np.einsum("cf,cf->c", centres, centres)
    found: Ints = np.argmin(squares - windows @ centres.T, axis=1)
    return found


def slice_clusters(
    data: Sequences,
    num_clusters: int,
    *,
    width: int = 2,
    variables: Sequence[int] | None = None,
    rng: np.random.Generator,
) -> Ints:
    """The nearest of `num_clusters` k-means centres to the window around each slice, (slices,).

    A window has the slice and `width` slices on either side, with an indicator for each category
    and with numbers standardised; what is missing or beyond the ends counts as the mean. Clusters
    are numbered from 0 without gaps; there are fewer where fewer windows differ.
    """
    require_type(data, Sequences, "data", DataError)
    count = whole_number(num_clusters, "num_clusters", StructureError)
    reach = whole_number(width, "width", StructureError, least=0)
    checked_rng(rng, StructureError)
    every = range(data.num_variables)
    chosen = indices(every if variables is None else variables, "variables", StructureError)
    if not chosen or not all(variable in every for variable in chosen):
        raise StructureError(
            "`variables` must name at least one variable, by numbers from 0 to "
            f"{data.num_variables - 1}, but is {chosen}."
        )
    features = _features(data, chosen)
    return nearest_centres(
        lambda rows: _windows(features, data, rows, reach), data.total_slices, count, rng
    )

"""Folds share out the sequences and keep their three sets apart."""

import numpy as np
import pytest

from dspn.errors import DataError
from experiments import Fold, folds_of


def _folds(count: int, **options: object) -> tuple[Fold, ...]:
    return folds_of(count, rng=np.random.default_rng(0), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [10, 11, 100, 640])
def test_every_sequence_is_tested_once(count: int) -> None:
    tested = np.concatenate([fold.test for fold in _folds(count)])
    np.testing.assert_array_equal(np.sort(tested), np.arange(count))


@pytest.mark.parametrize("count", [3, 10, 57, 640])
def test_sets_of_a_fold_are_disjoint_and_not_empty(count: int) -> None:
    for fold in _folds(count, num_folds=min(10, count)):
        parts = (fold.train, fold.validation, fold.test)
        assert all(part.size for part in parts)
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(count))


def test_folds_follow_from_the_seed() -> None:
    for one, other in zip(_folds(50), _folds(50), strict=True):
        np.testing.assert_array_equal(one.train, other.train)
        np.testing.assert_array_equal(one.test, other.test)


def test_validation_has_its_share_of_what_is_not_tested() -> None:
    fold = _folds(100, validation_share=0.2)[0]
    assert (fold.train.size, fold.validation.size, fold.test.size) == (72, 18, 10)


def test_fewer_sequences_than_folds_are_refused() -> None:
    with pytest.raises(DataError, match="at least 10 for 10 folds"):
        _folds(9)
    with pytest.raises(DataError, match="at least 3 for 2 folds"):
        _folds(2, num_folds=2)


def test_share_out_of_range_is_refused() -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        _folds(20, validation_share=1.0)

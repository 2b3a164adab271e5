"""Which fields of options, priors and families are numbers, and how they are kept."""

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.leaves import Gaussian, GaussianPrior, family_from_json


@pytest.mark.parametrize(
    "value", [2, 2.5, np.int64(2), np.uint8(2), np.float32(2.5), np.float64(2.5)]
)
def test_numbers_of_numpy_are_kept_as_those_of_python(value: Any) -> None:
    prior = GaussianPrior(mean=value, variance=value)
    assert prior.mean == value and prior.variance == value
    assert type(prior.mean) in (int, float) and type(prior.variance) in (int, float)


@pytest.mark.parametrize(
    "value",
    [
        True,
        np.bool_(True),
        "2",
        None,
        2j,
        np.complex128(2),
        np.array([2]),
        Fraction(2),
        Decimal(2),
        float("nan"),
        np.float32("inf"),
        np.int64(0),
    ],
)
def test_what_is_no_finite_number_above_the_bound_is_refused(value: Any) -> None:
    with pytest.raises(StructureError, match="`variance` of GaussianPrior must be a finite number"):
        GaussianPrior(variance=value)


def test_small_numbers_of_numpy_do_not_overflow() -> None:
    family = Gaussian(location=np.float32(0.5), scale=np.uint8(20))
    assert family.default_prior == Gaussian(0.5, 20.0).default_prior
    assert family_from_json(json.loads(json.dumps(family.to_json()))) == Gaussian(0.5, 20.0)

"""Options that are given as numbers of NumPy."""

from typing import Any

import numpy as np
import pytest

from dspn.learning import EmOptions, GrowthOptions, Priors, SearchOptions
from dspn.learning.auto import Auto
from dspn.learning.run import describe_options


@pytest.mark.parametrize(
    ("own", "plain"),
    [
        (Auto(effort=np.int64(2)), Auto(effort=2)),
        (EmOptions(tolerance=np.float32(0.5)), EmOptions(tolerance=0.5)),
        (Priors(np.int64(1), leaf_pseudo_count=np.int32(2)), Priors(1, leaf_pseudo_count=2)),
        (GrowthOptions(caution=np.uint8(2)), GrowthOptions(caution=2)),
        (SearchOptions(caution=np.int64(2)), SearchOptions(caution=2)),
    ],
)
def test_options_are_described_as_plain_numbers(own: Any, plain: Any) -> None:
    assert repr(describe_options(own)) == repr(describe_options(plain))

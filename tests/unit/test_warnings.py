"""A warning points at the line of whoever called the library."""

import warnings
from types import FunctionType

import numpy as np
import pytest

from dspn import HMM, ConvergenceWarning
from dspn.errors import warn


def within_library(depth: int) -> None:
    """Warns from `depth` calls deep in a module of the library."""
    names = {"warn": warn, "__name__": "dspn.somewhere"}
    code = compile(
        "def nested(left):\n    nested(left - 1) if left else warn('said', UserWarning)",
        "somewhere.py",
        "exec",
    )
    exec(code, names)
    nested = names["nested"]
    assert isinstance(nested, FunctionType)
    nested(depth)


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_a_warning_points_outside_of_the_library(depth: int) -> None:
    with pytest.warns(UserWarning, match="said") as caught:
        within_library(depth)

    assert caught[0].filename == __file__


def test_a_fit_warns_at_the_line_that_asked_for_it() -> None:
    with pytest.warns(ConvergenceWarning, match="from_table") as caught:
        HMM(1).fit([np.array([[0.0], [1.0], [0.0]])])

    single = next(each for each in caught if "single sequence" in str(each.message))
    assert single.filename == __file__


def test_what_is_said_twice_from_one_line_is_shown_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            within_library(1)

    assert len(caught) == 1

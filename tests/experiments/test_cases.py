"""What a fold's preparation may learn from, and the folds that all models share."""

from dataclasses import dataclass

import numpy as np
import pytest

from dspn.data import Schema, Sequences, Variable
from experiments.cases import RealCase, folds_for, prepared
from experiments.datasets import FittedPreparation, Preparation, RealData


@dataclass(frozen=True)
class Shift(FittedPreparation):
    amount: float

    def apply(self, data: Sequences) -> Sequences:
        return data.with_values(data.values + self.amount)


class BySum(Preparation):
    """Adds the sum of all that it may see."""

    def fit(self, data: Sequences) -> Shift:
        return Shift(float(data.values.sum()))


@pytest.mark.parametrize("number", range(10))
def test_a_preparation_sees_training_and_validation_and_prepares_every_part(number: int) -> None:
    # Sequence i holds the power 2^i alone, so that a sum says which sequences were seen.
    powers = 2.0 ** np.arange(30)
    schema = Schema((Variable.continuous("x"),))
    data = RealData("powers", Sequences.from_arrays(powers[:, None, None], schema=schema))
    fold = folds_for(data)[number]

    case = RealCase("powers", lambda _: data, BySum(), "shifted", 1, 1)
    found = prepared(case, data, fold)

    seen = float(2**30 - 1 - powers[fold.test].sum())
    for name in ("train", "validation", "test"):
        expected = powers[getattr(fold, name)] + seen
        np.testing.assert_array_equal(getattr(found, name).values[:, 0], expected)


def test_folds_are_those_of_results_that_were_kept_before() -> None:
    schema = Schema((Variable.continuous("x"),))
    data = RealData("zeros", Sequences.from_arrays(np.zeros((30, 1, 1)), schema=schema))
    first = folds_for(data)[0]
    assert (first.validation.tolist(), first.test.tolist()) == ([8, 13, 20], [2, 11, 26])

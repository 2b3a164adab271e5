"""The slice blamed for impossible evidence is the first without which the rest is possible."""

import re
import warnings

import numpy as np
import pytest

from dspn import Model
from dspn.errors import EvidenceError, ImpossibleEvidenceWarning
from oracles import log_likelihood
from strategies import arbitrary_sequence, as_sequences, hide, random_network, random_recipe


def impossible_sequences(seed: int) -> tuple[Model, list[np.ndarray]]:
    """A model with many zeros, and sequences that it holds impossible."""
    network = random_network(random_recipe(seed, zeros=0.4, kinds=("binary", "ternary", "binary")))
    rng = np.random.default_rng(seed)
    drawn = [hide(arbitrary_sequence(network.schema, 5, rng), rng, 0.3) for _ in range(12)]
    return Model(network), [one for one in drawn if log_likelihood(network, one) == -np.inf]


@pytest.mark.parametrize("seed", range(40))
def test_the_slice_blamed_is_the_first_that_cannot_be(seed: int) -> None:
    model, arrays = impossible_sequences(seed)
    for values in arrays:
        with pytest.warns(ImpossibleEvidenceWarning) as caught:
            model.log_likelihood(as_sequences(model.schema, [values]))
        found = re.search(r"sequence 0 at slice (\d+)\.", str(caught[0].message))
        assert found is not None
        at = int(found[1])
        seen = values.copy()
        seen[at + 1 :] = np.nan
        assert log_likelihood(model.network, seen) == -np.inf
        seen[at] = np.nan
        assert log_likelihood(model.network, seen) > -np.inf
        with pytest.raises(EvidenceError, match=f"sequence 0 at slice {at}"):
            model.marginals(as_sequences(model.schema, [values]))


def test_there_are_impossible_sequences_to_test_with() -> None:
    assert sum(len(impossible_sequences(seed)[1]) for seed in range(40)) > 40


def test_five_of_many_impossible_sequences_are_named() -> None:
    model, arrays = next(
        found for found in map(impossible_sequences, range(40)) if len(found[1]) >= 2
    )
    data = as_sequences(model.schema, arrays * 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.log_likelihood(data)
    said = str(caught[0].message)
    assert said.count(" at slice ") == 5
    assert said.endswith(f"and {len(arrays) * 4 - 5} more.")

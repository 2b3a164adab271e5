import numpy as np
import pytest

from dspn import Model
from oracles import log_likelihood
from properties.exact_mixtures import assert_marginals, assert_quantile, mixtures
from strategies import random_case

LEVELS = (0.05, 0.5, 0.9)


@pytest.mark.parametrize("seed", range(150))
def test_marginals_agree_with_enumeration(seed: int) -> None:
    network, arrays, data = random_case(seed)
    marginals = Model(network).marginals(data, quantiles=LEVELS)
    expected = [log_likelihood(network, values) for values in arrays]
    np.testing.assert_allclose(marginals.log_likelihood, expected, rtol=1e-9, atol=1e-12)
    assert_marginals(network, data, marginals)


def test_marginals_are_found_by_name_and_by_number() -> None:
    network, _, data = random_case(7)
    marginals = Model(network).marginals(data)
    for v, name in enumerate(network.schema.names):
        np.testing.assert_array_equal(marginals[v].slices, marginals[name].slices)


@pytest.mark.parametrize("seed", range(150))
def test_imputed_entry_is_mode_median_or_mean_of_its_distribution(seed: int) -> None:
    network, _, data = random_case(seed)
    imputed = Model(network).impute(data)
    assert not np.isnan(imputed.values).any()
    np.testing.assert_array_equal(imputed.offsets, data.offsets)
    seen = ~np.isnan(data.values)
    np.testing.assert_array_equal(imputed.values[seen], data.values[seen])
    for v, variable in enumerate(network.schema):
        for row, mixture in mixtures(network, data, v).items():
            value = float(imputed.values[row, v])
            if variable.num_categories:
                probabilities = mixture.probabilities()
                assert probabilities[int(value)] >= max(probabilities) - 1e-12
            elif variable.kind == "continuous":
                np.testing.assert_allclose(value, mixture.mean(), rtol=1e-9, atol=1e-12)
            else:
                assert_quantile(mixture, value, 0.5)

"""Marginals as the queries return them, checked entry by entry against the exact mixtures."""

from collections.abc import Callable

import numpy as np

from dspn import Sequences
from dspn.structure import DynamicNetwork
from oracles import Mixture, conditional

Conditional = Callable[..., Mixture]


def mixtures(
    network: DynamicNetwork, data: Sequences, v: int, conditional: Conditional = conditional
) -> dict[int, Mixture]:
    """The conditional distribution of every missing entry of a variable, by row of the batch."""
    found = {}
    for start, values in zip(data.offsets.tolist(), data, strict=False):
        for t in np.flatnonzero(np.isnan(values[:, v])).tolist():
            found[start + t] = conditional(network, np.array(values), t, v)
    return found


def assert_quantile(mixture: Mixture, value: float, level: float) -> None:
    """The smallest value at which the mixture's cdf reaches the level."""
    if mixture.family.name == "gaussian":
        np.testing.assert_allclose(mixture.cdf(value), level, rtol=1e-9)
    else:
        assert value == int(value) >= 0
        assert mixture.cdf(value) >= level - 1e-9
        assert value == 0 or mixture.cdf(value - 1) < level + 1e-9


def assert_marginals(  # type: ignore[no-untyped-def]
    network: DynamicNetwork,
    data: Sequences,
    marginals,
    rows=None,
    conditional: Conditional = conditional,
) -> None:
    """Every entry's distribution, mean, variance and quantiles are those of the exact mixture."""
    for v, variable in enumerate(network.schema):
        own = marginals[variable.name]
        expected = mixtures(network, data, v, conditional)
        if rows is not None:
            expected = {row: mixture for row, mixture in expected.items() if row in rows}
        assert own.variable == variable
        assert own.slices.tolist() == list(expected)
        if variable.num_categories:
            probabilities = [mixture.probabilities() for mixture in expected.values()]
            assert own.probabilities.shape == (len(expected), variable.num_categories)
            if expected:
                np.testing.assert_allclose(own.probabilities, probabilities, rtol=1e-9, atol=1e-13)
            continue
        assert own.probabilities is None
        means = [mixture.mean() for mixture in expected.values()]
        np.testing.assert_allclose(own.mean, means, rtol=1e-9, atol=1e-12)
        variances = [mixture.variance() for mixture in expected.values()]
        np.testing.assert_allclose(own.variance, variances, rtol=1e-9, atol=1e-12)
        assert own.quantiles.shape == (len(expected), len(own.levels))
        for mixture, quantiles in zip(expected.values(), own.quantiles.tolist(), strict=True):
            for value, level in zip(quantiles, own.levels, strict=True):
                assert_quantile(mixture, value, level)

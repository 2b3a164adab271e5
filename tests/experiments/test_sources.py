"""Sources with known truth: likelihoods against other ways to compute them, and fixed draws."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm, poisson

from experiments.sources import SOURCES, Autoregression, DelayedCopy, HiddenChains, draw


def _forward(chain, data):  # type: ignore[no-untyped-def]
    """Log P by the forward algorithm in logarithms, from start, transition and leaves by hand."""
    from dspn.models.hmm import start_probabilities, transition_matrix
    from dspn.structure.nodes import children_of

    network = chain.network
    template = network.template
    log_emission = 0.0
    values = data.select(chain.schema.names).values
    for bank, rows in zip(template.banks, network.parameters.template.leaves, strict=True):
        place = {node: row for row, node in enumerate(bank.nodes)}
        order = [
            place[c] for o in template.outputs for c in children_of(template.nodes[o]) if c in place
        ]
        own, column = rows[order], values[:, bank.variable, None]
        variable = chain.schema[bank.variable]
        if variable.num_categories:
            with np.errstate(divide="ignore"):
                log_emission = log_emission + np.log(own).T[values[:, bank.variable].astype(int)]
        elif variable.kind == "count":
            log_emission = log_emission + poisson.logpmf(column, own[:, 0])
        else:
            log_emission = log_emission + norm.logpdf(column, own[:, 0], np.sqrt(own[:, 1]))
    with np.errstate(divide="ignore"):
        log_start = np.log(start_probabilities(network))
        log_transition = np.log(transition_matrix(network))
    found = []
    for begin, end in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        alpha = log_start + log_emission[begin]
        for t in range(begin + 1, end):
            alpha = logsumexp(alpha[:, None] + log_transition, axis=0) + log_emission[t]
        found.append(logsumexp(alpha))
    return np.array(found)


@pytest.mark.parametrize("name", SOURCES)
def test_the_truth_is_that_of_another_computation(name: str) -> None:
    drawn = draw(name)
    data, process = drawn.test[:3], drawn.process
    if isinstance(process, HiddenChains):
        expected = sum(_forward(chain, data) for chain in process.chains)
    elif isinstance(process, Autoregression):
        # The joint density of all values: noise is a linear map of them.
        length, order = SOURCES[name].num_slices, len(process.coefficients)
        noise_map = np.eye(length)
        for lag, own in enumerate(process.coefficients, 1):
            noise_map -= own * np.eye(length, k=-lag)
        noise_map[:order] = np.eye(length)[:order]
        noise = np.eye(length)
        noise[:order, :order] = process._first
        inverse = np.linalg.inv(noise_map)
        joint = multivariate_normal(np.zeros(length), inverse @ noise @ inverse.T)
        expected = joint.logpdf(data.values.reshape(3, -1))
    else:
        assert isinstance(process, DelayedCopy)
        expected = []
        for values in data:
            total = process.delay * np.log(1 / 6)
            for t in range(process.delay, len(values)):
                copied = values[t, 0] == values[t - process.delay, 0]
                total += np.log(0.9 * copied + 0.1 / 6)
            expected.append(total)
    np.testing.assert_allclose(process.log_likelihood(data), expected, rtol=1e-9)


@pytest.mark.parametrize("name", SOURCES)
def test_draws_have_the_stated_size_and_no_sequence_twice(name: str) -> None:
    first, again = draw(name), draw(name)
    source = SOURCES[name]
    sizes = (source.num_train, source.num_validation, source.num_test)
    for part, size in zip(("train", "validation", "test"), sizes, strict=True):
        own = getattr(first, part)
        assert (len(own), set(own.lengths.tolist())) == (size, {source.num_slices})
        np.testing.assert_array_equal(own.values, getattr(again, part).values)
    assert not np.array_equal(first.train[0], first.test[0])
    assert not np.array_equal(first.test.values, draw(name, seed=1).test.values)


def test_a_stationary_autoregression_keeps_its_variance() -> None:
    process = Autoregression((1.5, -0.75))
    data = process.sample(20_000, 30, np.random.default_rng(0)).values.reshape(20_000, 30)
    np.testing.assert_allclose(data.var(axis=0), process._first[0, 0], rtol=0.05)

"""One entry far from everything: all other answers stay exact, and no probability exceeds 1.

The reference evaluates the unrolled network in decimal logarithms of eighty digits, from the same
leaf densities, so that nothing is rounded away whatever their size.
"""

import math
from decimal import Context, Decimal
from functools import lru_cache

import numpy as np
import pytest

from dspn import Mixture, Model
from dspn.engine import compile_program
from dspn.learning.em import maximise
from dspn.learning.priors import NO_PRIORS
from dspn.structure import DynamicNetwork, Leaf, Product, StaticNetwork, Sum
from oracles import static_network
from strategies import (
    as_sequences,
    draw_sequence,
    hide,
    random_network,
    random_recipe,
    schema_of,
)

DIGITS = Context(prec=80)
NEVER = Decimal("-Infinity")


def log_sum(logs: list[Decimal]) -> Decimal:
    largest = max(logs)
    if largest == NEVER:
        return NEVER
    # What is e^-1000 of the rest has no digit in common with it.
    near = [DIGITS.subtract(log, largest) for log in logs if log > largest - 1000]
    total = sum((DIGITS.exp(log) for log in near), start=Decimal(0))
    return DIGITS.add(largest, DIGITS.ln(total))


def exact(networks: list[DynamicNetwork], values: np.ndarray) -> Decimal:
    """Log P(observed values) of an equal mixture of networks."""
    logs = [exact_of_network(network, values) for network in networks]
    return DIGITS.subtract(log_sum(logs), DIGITS.ln(Decimal(len(logs))))


def exact_of_network(network: DynamicNetwork, values: np.ndarray, *, best: bool = False) -> Decimal:
    """Log P(observed values), or with `best` the log density of the best tree and completion."""
    static, flat = static_network(network, len(values)), values.reshape(-1)
    found: list[Decimal] = []
    for index, node in enumerate(static.nodes):
        if isinstance(node, Leaf):
            found.append(_leaf(static, index, float(flat[node.variable]), best))
        elif isinstance(node, Product):
            total = Decimal(0)
            for child in node.children:
                total = DIGITS.add(total, found[child])
            found.append(total)
        else:
            assert isinstance(node, Sum)
            pairs = zip(_log_weights(static, index), node.children, strict=True)
            logs = [DIGITS.add(log, found[c]) for log, c in pairs if log > NEVER]
            found.append(max(logs) if best else log_sum(logs))
    return found[static.root]


# A test asks for nearly the same entries again and again.
@lru_cache(maxsize=10_000)
def _leaf(static: StaticNetwork, index: int, value: float, best: bool) -> Decimal:
    node, row, values = static.nodes[index], static.leaf_parameters[index], np.array([value])
    assert isinstance(node, Leaf) and row is not None
    if best and math.isnan(value):
        values = node.family.mode(row[None])
    return Decimal(float(node.family.log_prob(row[None], values)[0, 0]))


@lru_cache(maxsize=10_000)
def _log_weights(static: StaticNetwork, index: int) -> list[Decimal]:
    weights = static.weights[index].tolist()  # type: ignore[union-attr]
    return [DIGITS.ln(Decimal(w)) if w > 0 else NEVER for w in weights]


def log_ratio(a: Decimal, b: Decimal) -> float:
    """Exp(a) / exp(b) as the logarithm that an answer is."""
    if b == NEVER:
        return math.nan
    return float(DIGITS.subtract(a, b))


def without(values: np.ndarray, *places: tuple[int, int]) -> np.ndarray:
    hidden = values.copy()
    for place in places:
        hidden[place] = np.nan
    return hidden


def close(found: float, expected: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def outlier_case(seed: int) -> tuple[list[DynamicNetwork], np.ndarray]:
    """One or two networks over the same variables, and a sequence with an outlier."""
    rng = np.random.default_rng([41, seed])
    kinds = ("continuous", *rng.choice(["binary", "continuous", "count"], rng.integers(0, 3)))
    root = str(rng.choice(["first", "last"]))
    count = 1 + seed % 2
    networks = [
        random_network(random_recipe(1000 * c + seed, kinds=kinds, root=root)) for c in range(count)
    ]
    values = hide(draw_sequence(networks[0], int(rng.integers(3, 6)), rng), rng, share=0.2)
    values[rng.integers(len(values)), 0] = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(1, 15)
    return networks, values


@pytest.mark.parametrize("seed", range(60))
def test_answers_around_an_outlier_equal_eighty_digits(seed: int) -> None:
    networks, values = outlier_case(seed)
    model = Model(Mixture(networks, np.full(len(networks), 1 / len(networks))))
    data = as_sequences(model.schema, [values])
    whole = exact(networks, values)
    close(model.log_likelihood(data)[0], float(whole))
    found = model.surprise(data)
    stream, rows = model.filter(), data.to_arrays(decode=True)[0]
    for t in range(len(values)):
        upto = values[: t + 1]
        blank = without(upto, *((t, v) for v in range(values.shape[1])))
        expected = -log_ratio(exact(networks, upto), exact(networks, blank))
        close(found.slices[t], expected)
        if stream is not None:
            close(stream.update(rows[t]).surprise, expected)
        if not math.isfinite(expected):  # impossible in the network of t slices: no stream goes on
            stream = None
    for t, v in np.argwhere(~np.isnan(values)).tolist():
        expected = -log_ratio(whole, exact(networks, without(values, (t, v))))
        close(found.variables[t, v], expected)
        query = np.where(np.isnan(without(values, (t, v))), values, np.nan)
        given = without(values, (t, v))
        close(
            model.log_prob(
                as_sequences(model.schema, [query]), as_sequences(model.schema, [given])
            )[0],
            -expected,
        )
    posteriors = model.interface_posteriors(data)
    assert posteriors.min() >= 0
    sums = np.zeros(len(values))
    start = 0
    for network in networks:
        own = posteriors[:, start + np.array(network.groups[0])]
        sums += own.sum(axis=1)
        start += network.num_interfaces
    np.testing.assert_allclose(sums, 1.0, rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_probabilities_of_categories_near_an_outlier_equal_eighty_digits(seed: int) -> None:
    rng = np.random.default_rng([43, seed])
    network = random_network(random_recipe(seed, kinds=("continuous", "ternary", "binary")))
    values = draw_sequence(network, 4, rng)
    values[rng.integers(4), 0] = 10.0 ** rng.uniform(3, 15)
    hidden = without(values, *((t, v) for t in range(4) for v in (1, 2)))
    model = Model(network)
    marginals = model.marginals(as_sequences(model.schema, [hidden]))
    total = exact([network], hidden)
    for v in (1, 2):
        found = marginals[v].probabilities
        assert found is not None and found.max() <= 1.0 + 1e-15
        for t in range(4):
            for category in range(found.shape[1]):
                seen = hidden.copy()
                seen[t, v] = category
                expected = math.exp(log_ratio(exact([network], seen), total))
                np.testing.assert_allclose(found[t, category], expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_the_best_completion_is_found_behind_an_outlier(seed: int) -> None:
    """What explains the outlier may be out of reach; what is left must still be told apart."""
    rng = np.random.default_rng([47, seed])
    kinds = ("continuous", "binary")
    network = random_network(random_recipe(seed, kinds=kinds, zeros=0.5))
    values = draw_sequence(network, 4, rng)
    values[rng.integers(4), 0] = 10.0 ** rng.uniform(3, 12)
    hidden = without(values, (1, 1), (2, 1), (3, 1))
    model = Model(network)
    done = model.complete(as_sequences(model.schema, [hidden]))
    expected = exact_of_network(network, hidden, best=True)
    close(done.log_prob[0], float(expected))
    attained = exact_of_network(network, done.sequences.values, best=True)
    assert abs(attained - expected) < Decimal("1e-9")


def test_posteriors_do_not_drift_with_length() -> None:
    """Far from its ends, a sequence that repeats itself has the posteriors of a short one."""
    schema = schema_of(("continuous",))
    moves = np.array([[0.9, 0.1], [0.2, 0.8]])
    model = Model.from_hmm(
        [0.5, 0.5], moves, {"x0": np.array([[0.0, 1.0], [1.5, 0.8]])}, schema=schema
    )
    period = np.random.default_rng(0).normal(0.7, 1.5, size=(100, 1))

    def in_the_middle(times: int) -> np.ndarray:
        values = np.tile(period, (times, 1))
        values[3] = 1e4  # so far out that the sequence goes to log space
        middle = times // 2 * len(period)
        found = model.interface_posteriors(as_sequences(schema, [values]))
        return found[middle : middle + len(period)]

    np.testing.assert_allclose(in_the_middle(4000), in_the_middle(20), rtol=1e-12)


@pytest.mark.parametrize("size", [1e6, 1e13, 1e15])
def test_em_does_not_fall_on_huge_counts(size: float) -> None:
    rng = np.random.default_rng(0)
    schema = schema_of(("count",))
    rates = size * np.array([[1.0], [1.3], [2.0]])
    network = Model.from_hmm(
        np.full(3, 1 / 3), np.full((3, 3), 1 / 3), {"x0": rates * 1.1}, schema=schema
    ).network
    arrays = [rng.poisson(rng.choice(rates.ravel(), 12)).astype(float)[:, None] for _ in range(20)]
    data = as_sequences(schema, arrays)
    program, last = compile_program(network), -np.inf
    for _ in range(12):
        found = program.expected_flows(data)
        now = float(found.log_likelihood.sum())
        assert now >= last - 1e-12 * abs(now)
        last = now
        program = program.rebind(maximise(program.network, found.flows, NO_PRIORS))


@pytest.mark.parametrize("seed", range(20))
def test_streams_come_back_from_log_space_with_all_their_scale(seed: int) -> None:
    """An entry so far out that a stream goes to log space, not so far that it has to stay there."""
    rng = np.random.default_rng([53, seed])
    recipes = [
        random_recipe(100 * seed + c, kinds=("continuous", "binary"), root=("first", "last")[c % 2])
        for c in range(4)
    ]
    for pair in (recipes[::2], recipes[1::2]):
        networks = [random_network(recipe) for recipe in pair]
        model = Model(Mixture(networks, [0.5, 0.5]))
        values = draw_sequence(networks[0], 8, rng)
        values[2, 0] = 60.0
        data = as_sequences(model.schema, [values])
        expected = model.surprise(data).slices
        stream = model.filter()
        for row, surprise in zip(data.to_arrays(decode=True)[0], expected, strict=True):
            close(stream.update(row).surprise, surprise)
            if not math.isfinite(surprise):
                break

"""Networks put together from random templates, against the enumeration of their parts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspn.engine import compile_program
from dspn.inference import interface_posteriors
from dspn.sequences import Schema, Variable
from dspn.structure import DynamicNetwork, Template, side_by_side, united, violations
from oracles import conditional, likelihood
from strategies import (
    Floats,
    Recipe,
    arbitrary_sequence,
    as_sequences,
    draw_sequence,
    hide,
    random_network,
    random_recipe,
    recipes,
)

few = settings(max_examples=60)


def renamed(network: DynamicNetwork, prefix: str) -> DynamicNetwork:
    variables = tuple(
        Variable(f"{prefix}{own.name}", own.kind, own.categories) for own in network.schema
    )
    template = Template(Schema(variables), network.template.nodes, network.template.outputs)
    return DynamicNetwork(template, network.top, network.parameters, network.root)


def beside(
    networks: list[DynamicNetwork], rng: np.random.Generator
) -> tuple[DynamicNetwork, list[list[int]]]:
    """The networks over shuffled columns, and these."""
    own = [renamed(network, f"n{i}") for i, network in enumerate(networks)]
    total = sum(len(network.schema) for network in own)
    places = iter(rng.permutation(total).tolist())
    columns = [[next(places) for _ in network.schema] for network in own]
    variables: list[Variable] = [Variable.binary("none")] * total
    for network, chosen in zip(own, columns, strict=True):
        for place, variable in zip(chosen, network.schema, strict=True):
            variables[place] = variable
    return side_by_side(Schema(tuple(variables)), own, columns), columns


def log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def check_product(recipe: Recipe, seed: int) -> None:
    rng = np.random.default_rng([17, seed])
    other = random_recipe(seed, root=recipe.root)
    parts = [random_network(recipe), random_network(other)]
    found, columns = beside(parts, rng)
    assert not violations(found.template, found.top)
    assert len(found.groups) == sum(len(part.groups) for part in parts)
    assert found.parameters.tied == all(part.parameters.tied for part in parts)
    arrays = []
    for length in (1, 1, 3, 4):
        values = np.empty((length, len(found.schema)))
        for part, own in zip(parts, columns, strict=True):
            values[:, own] = draw_sequence(part, length, rng)
        arrays.append(hide(values, rng, [0.0, 0.4, 1.0][int(rng.integers(3))]))
    expected = [
        sum(log(likelihood(part, values[:, own])) for part, own in zip(parts, columns, strict=True))
        for values in arrays
    ]
    assert [log(likelihood(found, values)) for values in arrays] == pytest.approx(
        expected, rel=1e-9, abs=1e-12
    )
    # With the engine, whose posteriors of one part do not depend on the other.
    data = as_sequences(found.schema, arrays)
    program = compile_program(found)
    np.testing.assert_allclose(program.log_likelihood(data), expected, rtol=1e-9, atol=1e-9)
    posteriors = interface_posteriors(program, data)
    start = 0
    for part, own in zip(parts, columns, strict=True):
        mine = as_sequences(part.schema, [values[:, own] for values in arrays])
        alone = interface_posteriors(compile_program(part), mine)
        stop = start + part.num_interfaces
        np.testing.assert_allclose(posteriors[:, start:stop], alone, rtol=1e-8, atol=1e-10)
        start = stop


@pytest.mark.parametrize("seed", range(60))
def test_networks_side_by_side_are_independent(seed: int) -> None:
    check_product(random_recipe(seed + 1000), seed)


@given(recipes(), st.integers(0, 10_000))
@few
def test_any_recipe_side_by_side_is_independent(recipe: Recipe, seed: int) -> None:
    check_product(recipe, seed)


def alike(recipe: Recipe, seed: int, number: int) -> DynamicNetwork:
    """Another network with one group over the variables of the recipe."""
    return random_network(
        random_recipe(seed * 10 + number, kinds=recipe.kinds, num_groups=1, root=recipe.root)
    )


def evidence(parts: list[DynamicNetwork], rng: np.random.Generator) -> list[Floats]:
    arrays = [arbitrary_sequence(parts[0].schema, 2, rng)]
    for part, length in zip(parts * 2, (1, 3, 4, 1, 2, 3), strict=True):
        arrays.append(hide(draw_sequence(part, length, rng), rng, float(rng.choice([0.0, 0.5]))))
    return arrays


def check_union(recipe: Recipe, seed: int) -> None:
    rng = np.random.default_rng([19, seed])
    parts = [alike(recipe, seed, number) for number in range(3)]
    weights = rng.dirichlet(np.ones(3))
    if rng.random() < 0.3:
        weights = np.array([0.3, 0.0, 0.7])
    found = united(parts, weights)
    assert not violations(found.template, found.top)
    assert len(found.groups) == 1
    arrays = evidence(parts, rng)
    expected = [
        log(math.fsum(w * likelihood(p, values) for w, p in zip(weights, parts, strict=True)))
        for values in arrays
    ]
    assert [log(likelihood(found, values)) for values in arrays] == pytest.approx(
        expected, rel=1e-9, abs=1e-12
    )
    data = as_sequences(found.schema, arrays)
    np.testing.assert_allclose(
        compile_program(found).log_likelihood(data), expected, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("seed", range(60))
def test_union_is_the_weighted_sum(seed: int) -> None:
    check_union(random_recipe(seed), seed)


@given(recipes(), st.integers(0, 10_000))
@few
def test_union_of_any_recipes_is_the_weighted_sum(recipe: Recipe, seed: int) -> None:
    check_union(recipe, seed)


@pytest.mark.parametrize("seed", range(20))
def test_conditionals_of_a_union_are_mixed_by_the_posterior_of_its_parts(seed: int) -> None:
    recipe = random_recipe(seed, kinds=("ternary", "binary"))
    rng = np.random.default_rng([23, seed])
    parts = [alike(recipe, seed, number) for number in range(2)]
    weights = rng.dirichlet(np.ones(2))
    values = hide(draw_sequence(parts[seed % 2], 3, rng), rng, 0.3)
    values[1, 0] = np.nan
    shares = [w * likelihood(part, values) for w, part in zip(weights, parts, strict=True)]
    found = conditional(united(parts, weights), values, 1, 0).probabilities()
    expected = sum(
        share / math.fsum(shares) * np.array(conditional(part, values, 1, 0).probabilities())
        for share, part in zip(shares, parts, strict=True)
        if share > 0
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)

"""Some variables of random networks alone, against the whole network with the others missing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspn.engine import compile_program
from dspn.engine.cpu import CpuEngine, CpuProgram, Paths
from dspn.errors import StructureError
from dspn.structure import Mixture, grouped_network, marginal, violations
from dspn.structure.marginal import speaking_groups
from oracles import likelihood
from strategies import (
    Recipe,
    as_sequences,
    draw_sequence,
    hide,
    random_network,
    recipes,
    schema_of,
)

# Leaves out groups without evidence, however little that saves.
EAGER = CpuEngine(Paths(worth_leaving_out=0))


def log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


@given(recipes(), st.integers(0, 2**16))
def test_what_is_left_is_the_whole_with_the_rest_summed_out(recipe: Recipe, seed: int) -> None:
    network = random_network(recipe)
    rng = np.random.default_rng(seed)
    count = len(network.schema)
    kept = np.sort(rng.choice(count, rng.integers(1, count + 1), replace=False))
    own = network.group_variables
    alone = [g for g in speaking_groups(network, kept) if set(own[g]).isdisjoint(kept.tolist())]
    if alone:
        with pytest.raises(StructureError, match="cannot go"):
            marginal(network, kept.tolist())
        return
    left = marginal(network, rng.permutation(kept).tolist())
    assert not violations(left.template, left.top)
    assert left.schema.names == tuple(network.schema.names[v] for v in kept)
    assert left.root == network.root
    assert left.parameters.tied == network.parameters.tied
    for length in (1, 2, 3):
        values = hide(draw_sequence(network, length, rng), rng)
        values[:, np.setdiff1d(np.arange(count), kept)] = np.nan
        expected = log(likelihood(network, values))
        assert log(likelihood(left, values[:, kept])) == pytest.approx(expected, abs=1e-9)
        found = compile_program(left).log_likelihood(as_sequences(left.schema, [values[:, kept]]))
        assert found[0] == pytest.approx(expected, abs=1e-9)


@given(recipes(), st.integers(0, 2**16))
def test_likelihood_leaves_out_groups_of_which_nothing_is_observed(
    recipe: Recipe, seed: int
) -> None:
    network = random_network(recipe)
    rng = np.random.default_rng(seed)
    values = [hide(draw_sequence(network, length, rng), rng) for length in (3, 1, 2)]
    missing = rng.random(len(network.schema)) < 0.5
    for own in values:
        own[:, missing] = np.nan
    data = as_sequences(network.schema, values)
    program = compile_program(network, engine=EAGER)
    found = program.log_likelihood(data)
    np.testing.assert_array_equal(found, program.log_likelihood(data))
    observed = np.flatnonzero(~np.isnan(data.values).all(axis=0)).tolist()
    if 0 < len(observed) < len(network.schema):
        (own_program,) = program.components
        assert isinstance(own_program, CpuProgram)
        part = own_program.speaking_part(observed, data.total_slices)
        assert part.num_groups == len(speaking_groups(network, observed))
    np.testing.assert_allclose(found, compile_program(network).log_likelihood(data), atol=1e-9)
    np.testing.assert_allclose(found, [log(likelihood(network, own)) for own in values], atol=1e-9)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_other_weights_and_precisions_have_parts_of_their_own(precision: str) -> None:
    rng = np.random.default_rng(3)
    schema = schema_of(("binary", "ternary", "continuous"))
    networks = [grouped_network(schema, [[0, 2], [1]], [12, 9], rng=rng) for _ in range(2)]
    values = [draw_sequence(networks[0], 5, rng) for _ in range(4)]
    for own in values:
        own[:, [0, 2]] = np.nan
    data = as_sequences(schema, values)
    program = compile_program(networks[0], precision=precision, engine=EAGER)
    other = networks[0].with_parameters(networks[1].parameters)
    mixed = compile_program(Mixture((networks[0], networks[1]), [0.25, 0.75]), engine=EAGER)
    whole = [compile_program(network).log_likelihood(data) for network in networks]
    close = {"rtol": 1e-12 if precision == "double" else 1e-5}
    np.testing.assert_allclose(program.log_likelihood(data), whole[0], **close)
    np.testing.assert_allclose(program.rebind(other).log_likelihood(data), whole[1], **close)
    expected = np.log(0.25 * np.exp(whole[0]) + 0.75 * np.exp(whole[1]))
    np.testing.assert_allclose(mixed.log_likelihood(data), expected, rtol=1e-12)

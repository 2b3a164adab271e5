"""The check on the template against the definition and against the unrolled network."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspn.errors import StructureError
from dspn.structure import (
    Input,
    Leaf,
    Node,
    Product,
    Rule,
    Sum,
    Template,
    Top,
    unroll,
    violations,
)
from oracles import has_leaf_below
from strategies import Recipe, random_network, random_recipe, recipes

Scope = frozenset[tuple[int, int]]  # (slice, variable)
NOTHING: Scope = frozenset()


def network_scopes(
    nodes: tuple[Node, ...], order: tuple[int, ...], inputs: list[Scope], at: int
) -> list[Scope]:
    found = [NOTHING] * len(nodes)
    for index in order:
        node = nodes[index]
        if isinstance(node, Leaf):
            found[index] = frozenset([(at, node.variable)])
        elif isinstance(node, Input):
            found[index] = inputs[node.position]
        else:
            found[index] = frozenset().union(*(found[child] for child in node.children))
    return found


def sound(nodes: tuple[Node, ...], scopes: list[Scope], kept: list[bool]) -> bool:
    """Whether sums are complete and products decomposable, over the children that are kept."""
    for index, node in enumerate(nodes):
        if not isinstance(node, Sum | Product) or not kept[index]:
            continue
        own = [scopes[child] for child in node.children if kept[child]]
        if isinstance(node, Sum) and len(set(own)) > 1:
            return False
        if isinstance(node, Product) and any(a & b for a, b in combinations(own, 2)):
            return False
    return True


def valid_by_definition(template: Template, top: Top) -> bool:
    """Theorem 1 (a)-(c) with the definition of invariance, and coverage of up to six slices."""
    everything = [True] * len(template.nodes)
    kept = has_leaf_below(template)
    bottom = network_scopes(template.nodes, template.order, [NOTHING] * template.num_interfaces, 0)
    inputs = [bottom[output] for output in template.outputs]
    if not all(inputs) or not sound(template.nodes, bottom, kept):
        return False
    if any(a != b and a & b for a, b in combinations(inputs, 2)):
        return False
    now = network_scopes(template.nodes, template.order, inputs, 1)
    outputs = [now[output] for output in template.outputs]
    for i, j in combinations(range(len(inputs)), 2):
        if (inputs[i] == inputs[j]) != (outputs[i] == outputs[j]):
            return False
        if bool(inputs[i] & inputs[j]) != bool(outputs[i] & outputs[j]):
            return False
    if not sound(template.nodes, now, everything):
        return False
    cap = network_scopes(top.nodes, top.order, inputs, -1)
    return sound(top.nodes, cap, [True] * len(top.nodes)) and all(
        unrolled(template, top, num_slices)[1] for num_slices in range(1, 7)
    )


def unrolled(template: Template, top: Top, num_slices: int) -> tuple[bool, bool]:
    """Whether the stack is complete and decomposable, and whether its root covers everything."""
    below = [NOTHING] * template.num_interfaces
    right = True
    for at in range(num_slices):
        scopes = network_scopes(template.nodes, template.order, below, at)
        kept = has_leaf_below(template) if at == 0 else [True] * len(template.nodes)
        right = right and sound(template.nodes, scopes, kept)
        below = [scopes[output] for output in template.outputs]
    scopes = network_scopes(top.nodes, top.order, below, -1)
    right = right and sound(top.nodes, scopes, [True] * len(top.nodes))
    return right, len(scopes[top.root]) == num_slices * len(template.schema)


def changed(nodes: tuple[Node, ...], rng: np.random.Generator) -> tuple[Node, ...]:
    """One child exchanged, dropped or added, or one leaf moved to another variable."""
    pick = int(rng.integers(len(nodes)))
    node = nodes[pick]
    changed_nodes = list(nodes)
    if isinstance(node, Sum | Product):
        children = list(node.children)
        other = int(rng.integers(len(nodes)))
        how = rng.integers(3)
        if how == 0:
            children[rng.integers(len(children))] = other
        elif how == 1:
            children.append(other)
        elif len(children) > 1:
            children.pop(int(rng.integers(len(children))))
        changed_nodes[pick] = type(node)(tuple(children))
    elif isinstance(node, Leaf):
        variables = [n.variable for n in nodes if isinstance(n, Leaf)]
        changed_nodes[pick] = Leaf(int(rng.choice(variables)), node.family)
    return tuple(changed_nodes)


def mutant(recipe: Recipe, rng: np.random.Generator) -> tuple[Template, Top] | None:
    """A valid network with one or two random changes; None where it is no network any more."""
    network = random_network(recipe)
    template, top = network.template, network.top
    try:
        for _ in range(rng.integers(1, 3)):
            what = rng.random()
            outputs = list(template.outputs)
            if what < 0.6:
                template = Template(template.schema, changed(template.nodes, rng), template.outputs)
            elif what < 0.8:
                outputs[rng.integers(len(outputs))] = int(rng.integers(len(template.nodes)))
                template = Template(template.schema, template.nodes, tuple(outputs))
            else:
                top = Top(top.num_inputs, changed(top.nodes, rng), top.root)
    except StructureError:
        return None
    return template, top


@pytest.mark.parametrize("seed", range(100))
def test_template_that_passes_is_valid_when_unrolled(seed: int) -> None:
    network = random_network(seed)
    assert violations(network.template, network.top) == ()
    for num_slices in range(1, 7):
        assert unrolled(network.template, network.top, num_slices) == (True, True)
        static = unroll(network, num_slices)
        scopes = static.scopes()
        assert scopes[static.root] == frozenset(range(num_slices * len(network.schema)))
        for node in static.nodes:
            if isinstance(node, Sum):
                assert len({scopes[child] for child in node.children}) == 1
            elif isinstance(node, Product):
                assert sum(len(scopes[c]) for c in node.children) == len(
                    frozenset().union(*(scopes[c] for c in node.children))
                )


def test_check_decides_as_the_definition_on_1000_changed_templates() -> None:
    decided = {True: 0, False: 0}
    rules: set[Rule] = set()
    for seed in range(1000):
        rng = np.random.default_rng([3, seed])
        recipe = random_recipe(seed)
        kinds = ("binary",) * len(recipe.kinds)
        made = mutant(random_recipe(seed, kinds=kinds), rng)
        if made is None:
            continue
        found = violations(*made)
        assert (found == ()) == valid_by_definition(*made), f"seed {seed}: {found}"
        if not found:
            assert all(unrolled(*made, num_slices) == (True, True) for num_slices in range(1, 7))
        decided[not found] += 1
        rules |= {violation.rule for violation in found}
    assert min(decided.values()) > 100
    assert rules >= set(Rule) - {Rule.TOP_INPUTS}


@given(recipes(kinds=("binary",)), st.integers(0, 2**32))
def test_changed_template_that_passes_is_valid_when_unrolled(recipe: Recipe, seed: int) -> None:
    made = mutant(recipe, np.random.default_rng(seed))
    if made is not None and violations(*made) == ():
        assert all(unrolled(*made, num_slices) == (True, True) for num_slices in range(1, 7))

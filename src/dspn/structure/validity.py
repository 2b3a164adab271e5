"""Completeness, decomposability and invariance, decided on the template without unrolling.

Scopes are sets of bits: bit v is variable v of the slice at hand, bit n + v is variable v of the
slices below. An input interface node takes the scope of its output in the bottom network (Theorem
1, c), moved to the bits of the slices below, so its scope excludes the slice's own variables by
construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, final

from dspn.errors import printable
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum, reachable

if TYPE_CHECKING:
    from dspn.structure.template import Template, Top

# Breaches that are looked for before the rest is left alone, and names that one of them tells.
_MOST_FOUND: Final = 100
_MOST_NAMED: Final = 8


class Rule(StrEnum):
    """What a valid DSPN must satisfy, by the names of the paper."""

    BOTTOM_COMPLETE = "theorem 1 (a): the bottom network is complete"
    BOTTOM_DECOMPOSABLE = "theorem 1 (a): the bottom network is decomposable"
    BOTTOM_ROOTS = "definition 5: the bottom network has a root for each interface"
    BOTTOM_SCOPES = (
        "theorem 1 (b): scopes of the bottom network's outputs are identical or disjoint"
    )
    INPUT_SCOPES = "invariance (1): scopes of inputs are identical or disjoint"
    SAME_SCOPE = "invariance (2): inputs have the same scope exactly when their outputs have"
    DISJOINT_SCOPE = "invariance (3): inputs have disjoint scopes exactly when their outputs have"
    COMPLETE = "invariance (4): sums are complete"
    DECOMPOSABLE = "invariance (5): products are decomposable"
    TOP_COMPLETE = "theorem 1 (c): the top network is complete"
    TOP_DECOMPOSABLE = "theorem 1 (c): the top network is decomposable"
    TOP_INPUTS = "definition 6: the top network has an input for each interface"
    COVERAGE = "the root covers every variable of every slice"


_BOTTOM_RULES: Final = (Rule.BOTTOM_COMPLETE, Rule.BOTTOM_DECOMPOSABLE)
_TEMPLATE_RULES: Final = (Rule.COMPLETE, Rule.DECOMPOSABLE)
_TOP_RULES: Final = (Rule.TOP_COMPLETE, Rule.TOP_DECOMPOSABLE)


@final
@dataclass(frozen=True)
class Violation:
    """One breach: the rule, the nodes and the variables concerned, and a sentence that says it.

    The sentence names a few of the variables where they are many.
    """

    rule: Rule
    nodes: tuple[int, ...]
    variables: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"[{self.rule}] {self.message}"


def _members(scope: int) -> list[int]:
    return [bit for bit in range(scope.bit_length()) if scope >> bit & 1]


def _breach(
    rule: Rule, nodes: tuple[int, ...], scope: int, names: Sequence[str], sentence: str
) -> Violation:
    """A violation that concerns the variables of a scope, which the sentence names at its {}.

    Variables of the slices below are marked.
    """
    n = len(names)
    variables = tuple(
        names[bit] if bit < n else f"{names[bit - n]} (slices below)" for bit in _members(scope)
    )
    listed = ", ".join(printable(name, 60) for name in variables[:_MOST_NAMED])
    more = f" and {len(variables) - _MOST_NAMED} more" if len(variables) > _MOST_NAMED else ""
    return Violation(rule, nodes, variables, sentence.replace("{}", f"{{{listed}{more}}}"))


def network_scopes(nodes: Sequence[Node], order: Sequence[int], inputs: Sequence[int]) -> list[int]:
    """Scope of every node, given the scope of the input at each position."""
    scopes = [0] * len(nodes)
    for index in order:
        node = nodes[index]
        if isinstance(node, Leaf):
            scopes[index] = 1 << node.variable
        elif isinstance(node, Input):
            scopes[index] = inputs[node.position]
        else:
            scope = 0
            for child in node.children:
                scope |= scopes[child]
            scopes[index] = scope
    return scopes


def _slice_scopes(template: Template) -> list[int]:
    """Scope of every node in the bottom network, which has no inputs."""
    return network_scopes(template.nodes, template.order, [0] * template.num_interfaces)


def bottom_nodes(template: Template) -> tuple[Node, ...]:
    """The bottom network: the template less every node that has no leaf below it.

    Indices are kept; a removed node is an `Input` of position -1 that nothing refers to.
    """
    scopes = _slice_scopes(template)
    kept: list[Node] = []
    for index, node in enumerate(template.nodes):
        if not scopes[index]:
            kept.append(Input(-1))
        elif isinstance(node, Sum | Product):
            below = tuple(child for child in node.children if scopes[child])
            kept.append(replace(node, children=below))
        else:
            kept.append(node)
    return tuple(kept)


def _groups(template: Template) -> dict[int, list[int]]:
    """Positions by the scope of their outputs in the slice, in order of first appearance."""
    scopes = _slice_scopes(template)
    groups: dict[int, list[int]] = {}
    for position, output in enumerate(template.outputs):
        groups.setdefault(scopes[output], []).append(position)
    return groups


def interface_groups(template: Template) -> tuple[tuple[int, ...], ...]:
    """Positions of equal scope, group by group in order of first appearance."""
    return tuple(map(tuple, _groups(template).values()))


def group_variables(template: Template) -> tuple[tuple[int, ...], ...]:
    """For each group, the variables of the slice itself in the scope of its nodes."""
    return tuple(tuple(_members(scope)) for scope in _groups(template))


def group_sources(template: Template) -> tuple[tuple[int, ...], ...]:
    """For each group, the groups whose inputs its outputs read."""
    reads = [scope >> len(template.schema) for scope in group_scopes(template)]
    firsts = (template.outputs[positions[0]] for positions in interface_groups(template))
    return tuple(tuple(_members(reads[output])) for output in firsts)


def group_scopes(template: Template) -> list[int]:
    """Scope of every node, with bit n + g for the inputs of group g, n the number of variables."""
    marks = [0] * template.num_interfaces
    for bit, positions in enumerate(interface_groups(template), start=len(template.schema)):
        for position in positions:
            marks[position] = 1 << bit
    return network_scopes(template.nodes, template.order, marks)


def _node_breaches(
    nodes: Sequence[Node],
    scopes: Sequence[int],
    names: Sequence[str],
    network: str,
    rules: tuple[Rule, Rule],
) -> Iterator[Violation]:
    """Sums whose children differ in scope, and products whose children share variables."""
    complete, decomposable = rules
    for index, node in enumerate(nodes):
        if isinstance(node, Sum):
            first = node.children[0]
            for child in node.children[1:]:
                if scopes[child] != scopes[first]:
                    yield _breach(
                        complete,
                        (index, first, child),
                        scopes[child] ^ scopes[first],
                        names,
                        f"{network} sum {index}: children {first} and {child} differ in {{}}",
                    )
        elif isinstance(node, Product):
            seen = 0
            for place, child in enumerate(node.children):
                common = seen & scopes[child]
                if common:
                    other = next(c for c in node.children[:place] if scopes[c] & common)
                    yield _breach(
                        decomposable,
                        (index, other, child),
                        scopes[other] & scopes[child],
                        names,
                        f"{network} product {index}: children {other} and {child} share {{}}",
                    )
                seen |= scopes[child]


def _meeting(inputs: Sequence[int], outputs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of interfaces that share anything and yet are not alike; each breaks some rule.

    Interfaces are alike where input and output have the same scopes, and one stands for all such.
    Where nothing is shared the time is linear in the interfaces.
    """
    first: dict[tuple[int, int], int] = {}
    for position, pair in enumerate(zip(inputs, outputs, strict=True)):
        first.setdefault(pair, position)
    seen_inputs = seen_outputs = 0
    earlier: list[int] = []
    for (own_input, own_output), j in first.items():
        if not own_input or own_input & seen_inputs or own_output & seen_outputs:
            for i in earlier:
                shared = own_input & inputs[i] or own_output & outputs[i]
                if shared or own_input == inputs[i]:
                    yield i, j
        seen_inputs |= own_input
        seen_outputs |= own_output
        earlier.append(j)


def _pair_breaches(
    template: Template, inputs: Sequence[int], outputs: Sequence[int], names: Sequence[str]
) -> Iterator[Violation]:
    """Breaches of theorem 1 (b) and of (1), (2) and (3), by two interfaces each."""
    for i, j in _meeting(inputs, outputs):
        (in_a, out_a), (in_b, out_b) = (inputs[i], outputs[i]), (inputs[j], outputs[j])
        at_inputs = (template.inputs[i], template.inputs[j])
        at_outputs = (template.outputs[i], template.outputs[j])
        if in_a & in_b and in_a != in_b:
            for rule, who, (a, b) in (
                (Rule.BOTTOM_SCOPES, "bottom outputs", at_outputs),
                (Rule.INPUT_SCOPES, "inputs", at_inputs),
            ):
                sentence = f"{who} {a} and {b} share {{}} but not all of their scopes"
                yield _breach(rule, (a, b), in_a & in_b, names, sentence)
        for rule, at_in, at_out, scope, words in (
            (
                Rule.SAME_SCOPE,
                in_a == in_b,
                out_a == out_b,
                in_a ^ in_b or out_a ^ out_b,
                "have the same scope, the {} differ in",
            ),
            (
                Rule.DISJOINT_SCOPE,
                not in_a & in_b,
                not out_a & out_b,
                in_a & in_b or out_a & out_b,
                "have disjoint scopes, the {} share",
            ),
        ):
            if at_in != at_out:
                who, other = ("inputs", "outputs") if at_in else ("outputs", "inputs")
                sentence = f"interfaces {i} and {j}: the {who} {words.format(other)} {{}}"
                yield _breach(rule, at_inputs + at_outputs, scope, names, sentence)


def _coverage(
    template: Template,
    top: Top,
    inputs: Sequence[int],
    outputs: Sequence[int],
    names: Sequence[str],
) -> Iterator[Violation]:
    """Walks down from the root, slice by slice, until the set of interface scopes repeats."""
    n = len(names)
    everything = (1 << n) - 1
    read = reachable(top.nodes, [top.root])
    current = frozenset(position for position, node in enumerate(top.inputs) if node in read)
    seen: set[frozenset[int]] = set()
    while current not in seen:
        seen.add(current)
        as_bottom = as_slice = below = 0
        for position in current:
            as_bottom |= inputs[position] >> n
            as_slice |= outputs[position] & everything
            below |= outputs[position] >> n << n
        for covered, where in ((as_bottom, "the bottom slice"), (as_slice, "a slice")):
            if covered != everything:
                sentence = (
                    f"root {top.root} misses {{}} of {where}, {len(seen) - 1} slice(s) below the "
                    "top"
                )
                yield _breach(Rule.COVERAGE, (top.root,), everything & ~covered, names, sentence)
                return
        current = frozenset(p for p, scope in enumerate(inputs) if scope & below)


def violations(template: Template, top: Top) -> tuple[Violation, ...]:
    """The breaches of validity, at most 100; none means valid for every number of slices."""
    names = template.schema.names
    if top.num_inputs != template.num_interfaces:
        sentence = (
            f"the top network has {top.num_inputs} inputs, the template "
            f"{template.num_interfaces} interfaces"
        )
        return (Violation(Rule.TOP_INPUTS, top.inputs, (), sentence),)
    bottom = _slice_scopes(template)
    inputs = [bottom[output] << len(names) for output in template.outputs]
    scopes = network_scopes(template.nodes, template.order, inputs)
    outputs = [scopes[output] for output in template.outputs]
    tops = network_scopes(top.nodes, top.order, inputs)
    sentence = "output {} (interface {}) has no leaf below it: it is no root of the bottom network"
    rootless = (
        Violation(Rule.BOTTOM_ROOTS, (output,), (), sentence.format(output, position))
        for position, output in enumerate(template.outputs)
        if not bottom[output]
    )
    breaches = chain(
        _node_breaches(bottom_nodes(template), bottom, names, "bottom", _BOTTOM_RULES),
        rootless,
        _pair_breaches(template, inputs, outputs, names),
        _node_breaches(template.nodes, scopes, names, "template", _TEMPLATE_RULES),
        _node_breaches(top.nodes, tops, names, "top", _TOP_RULES),
    )
    listed = tuple(islice(breaches, _MOST_FOUND))
    return listed or tuple(_coverage(template, top, inputs, outputs, names))

"""Chains: templates in which every output is slice nodes times one sum over its group's inputs.

The sums of a group then make a matrix, and a slice is a matrix product and one coefficient for each
output. Hidden Markov models are chains, and so are any number of them side by side.
"""

from dspn.structure.nodes import Input, Product, Sum, children_of
from dspn.structure.template import Template
from dspn.structure.validity import interface_groups


def reads_inputs(template: Template) -> list[bool]:
    """For each node, whether it is an input or has one below it."""
    found = [False] * len(template.nodes)
    for index in template.order:
        node = template.nodes[index]
        found[index] = isinstance(node, Input) or any(found[child] for child in children_of(node))
    return found


def transition_sums(template: Template) -> dict[int, int]:
    """By position, the sum over inputs of each output that is slice nodes times one such sum."""
    nodes, reads = template.nodes, reads_inputs(template)
    inputs, sums = set(template.inputs), {}
    for position, output in enumerate(template.outputs):
        factors = [child for child in children_of(nodes[output]) if reads[child]]
        if isinstance(nodes[output], Product) and len(factors) == 1:
            factor = nodes[factors[0]]
            if isinstance(factor, Sum) and inputs.issuperset(factor.children):
                sums[position] = factors[0]
    return sums


def is_chain(template: Template) -> bool:
    """Whether every output is slice nodes times one sum over inputs of its own group."""
    sums, nodes = transition_sums(template), template.nodes
    if not 0 < len(sums) == template.num_interfaces:
        return False
    return all(
        len(children_of(nodes[template.outputs[position]])) > 1
        and {template.inputs[other] for other in group}.issuperset(
            children_of(nodes[sums[position]])
        )
        for group in interface_groups(template)
        for position in group
    )

"""Templates whose outputs share a model of the slice, and how often nodes meet a label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.engine import compile_program
from dspn.errors import StructureError
from dspn.leaves import Categorical, Family
from dspn.sequences import Schema, Sequences, Variable
from dspn.structure import (
    DynamicNetwork,
    Leaf,
    NetworkBuilder,
    NetworkParameters,
    Node,
    Parameters,
    Product,
    Sum,
    Template,
)
from dspn.structure.graph import reachable
from dspn.structure.nodes import children_of
from dspn.structure.validity import network_scopes


@final
@dataclass(frozen=True, eq=False)
class Latent:
    """A hidden variable of a slice with its numbers.

    `above` is the place of the hidden variable it depends on and `weights[a, j]` the probability of
    state j below state a of that one; the first has no such (-1), and its rows are those of the
    group's interface nodes. `leaves[v][j]` is the leaf of variable v in state j.
    """

    above: int
    weights: Floats
    leaves: dict[int, Floats]


@final
@dataclass(frozen=True, eq=False)
class SliceModel:
    """The hidden variables of one group, each after the one it depends on."""

    latents: tuple[Latent, ...]
    families: dict[int, Family]

    def lay(self, builder: NetworkBuilder) -> list[int]:
        """Lays down the model; for each interface node its sum over the states of the first."""
        below: list[list[list[int]]] = [[] for _ in self.latents]
        for place in reversed(range(len(self.latents))):
            latent = self.latents[place]
            states = []
            for state in range(latent.weights.shape[1]):
                factors = [
                    builder.leaf(variable, rows[state], self.families[variable])
                    for variable, rows in latent.leaves.items()
                ]
                factors.extend(sums[state] for sums in below[place])
                states.append(factors[0] if len(factors) == 1 else builder.product(factors))
            sums = [builder.sum(states, row) for row in latent.weights]
            if place == 0:
                return sums
            below[latent.above].append(sums)
        raise AssertionError("a model has a hidden variable")


def with_slices(network: DynamicNetwork, models: Sequence[SliceModel]) -> DynamicNetwork:
    """The network with a model of the slice for each group in place of what its outputs say of it.

    What outputs say of their inputs is kept, with the numbers of the template and of an untied
    bottom, which have the models' numbers in common.
    """
    kept = _kept_parts(network)
    old = network.parameters
    template, own = _rebuilt(network, old.template, kept, models)
    bottom = None if old.bottom is None else _rebuilt(network, old.bottom, kept, models)[1]
    return DynamicNetwork(template, network.top, Parameters(own, old.top, bottom), network.root)


def _kept_parts(network: DynamicNetwork) -> list[tuple[int, ...]]:
    """For each output the factors that read inputs; raises where a factor also has variables."""
    template = network.template
    n = len(template.schema)
    scopes = network_scopes(template.nodes, template.order, [1 << n] * template.num_interfaces)
    found: list[tuple[int, ...]] = []
    for position, output in enumerate(template.outputs):
        node = template.nodes[output]
        if not scopes[output] >> n:
            found.append(())
            continue
        if not isinstance(node, Product):
            raise _not_plain(output, position, f"is a {type(node).__name__.lower()}")
        reading = tuple(child for child in children_of(node) if scopes[child] >> n)
        for child in reading:
            if scopes[child] != 1 << n:
                raise _not_plain(output, position, f"has the factor {child} with both in it")
        found.append(reading)
    return found


def _not_plain(output: int, position: int, finding: str) -> StructureError:
    return StructureError(
        f"`network` must have outputs that are products of factors over the slice's variables and "
        f"of factors over inputs, but output {output} (interface {position}) {finding}; give a "
        "network with a plain template, such as `clustered_network` makes."
    )


def _rebuilt(
    network: DynamicNetwork,
    own: NetworkParameters,
    kept: Sequence[tuple[int, ...]],
    models: Sequence[SliceModel],
) -> tuple[Template, NetworkParameters]:
    """The template with one set of parameters: inputs, what reads them, then the slice."""
    template = network.template
    builder = NetworkBuilder(template.schema)
    number = dict(zip(template.inputs, builder.inputs(template.num_interfaces), strict=True))
    needed = reachable(template.nodes, [child for part in kept for child in part])
    for index in template.order:
        node = template.nodes[index]
        if index not in needed or not isinstance(node, Sum | Product):
            continue
        below = [number[child] for child in node.children]
        if isinstance(node, Product):
            number[index] = builder.product(below)
        else:
            start = template.edge_offsets[index]
            number[index] = builder.sum(below, own.weights[start : start + len(below)])
    outputs = [-1] * template.num_interfaces
    for group, model in zip(network.groups, models, strict=True):
        for position, seen in zip(group, model.lay(builder), strict=True):
            factors = [number[child] for child in kept[position]]
            outputs[position] = builder.product([seen, *factors]) if factors else seen
    return builder.template(outputs)


def expected_labels(
    network: DynamicNetwork, data: Sequences, labels: Sequence[Ints]
) -> list[Floats]:
    """Sum over the slices with label j of P(interface node i | evidence), (nodes, labels) by group.

    `labels` has a vector for each group, of whole numbers from 0 without gaps. A label is one more
    variable, of which all nodes think alike, and what is asked for its expected use: posteriors of
    all slices need never be there at once.
    """
    widths = [int(own.max()) + 1 for own in labels]
    template = _labelled(network, widths)
    rows = tuple(
        np.full((len(group), width), 1.0 / width)
        for group, width in zip(network.groups, widths, strict=True)
    )
    old = network.parameters

    def with_rows(part: NetworkParameters) -> NetworkParameters:
        return NetworkParameters(part.weights, (*part.leaves, *rows))

    bottom = None if old.bottom is None else with_rows(old.bottom)
    parameters = Parameters(with_rows(old.template), old.top, bottom)
    labelled = DynamicNetwork(template, network.top, parameters, network.root)
    values = np.concatenate([data.values, np.stack(labels, axis=1)], axis=1)
    seen = Sequences.from_codes(values, data.offsets, template.schema)
    flows = compile_program(labelled).expected_flows(seen, None).flows
    found = [own[:, 1:] for own in flows.template.leaves[-len(widths) :]]
    if flows.bottom is not None:
        ends = flows.bottom.leaves[-len(widths) :]
        found = [own + end[:, 1:] for own, end in zip(found, ends, strict=True)]
    return found


def _labelled(network: DynamicNetwork, widths: Sequence[int]) -> Template:
    """The template with a leaf over its group's label at every output; sums keep their order."""
    template = network.template
    prefix = "label"
    while any(name.startswith(prefix) for name in template.schema.names):
        prefix = f"_{prefix}"
    labels = [
        Variable.categorical(f"{prefix}{group}", tuple(range(width)))
        for group, width in enumerate(widths)
    ]
    first = len(template.schema)
    below = {child for node in template.nodes for child in children_of(node)}
    nodes: list[Node] = list(template.nodes)
    outputs = list(template.outputs)
    for group, positions in enumerate(network.groups):
        for position in positions:
            nodes.append(Leaf(first + group, Categorical(widths[group])))
            leaf, output = len(nodes) - 1, outputs[position]
            own = nodes[output]
            if isinstance(own, Product) and output not in below:
                nodes[output] = Product((*own.children, leaf))
            else:
                nodes.append(Product((output, leaf)))
                outputs[position] = len(nodes) - 1
    return Template(Schema((*template.schema, *labels)), tuple(nodes), tuple(outputs))

"""Splits that the data ask for: which nodes hold two kinds of slices, and which is which.

A node is worth splitting where two classes explain what is seen at its visits better than one: the
slice's own values, and the nodes that were chosen one slice above and one below. A naive Bayes
model of two classes, fitted to the visits of each node, says how much would be gained, and which
visits belong to which half.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Bools, Floats, Ints
from dspn._checks import checked_rng, require_type, whole_number
from dspn.engine import compile_program
from dspn.errors import DataError, StructureError
from dspn.inference import interface_posteriors
from dspn.learning.em import maximise
from dspn.learning.priors import DEFAULT_PRIORS, Priors
from dspn.learning.starts._two_classes import Rows, category_block, number_block, two_classes
from dspn.learning.starts.splitting import split_interfaces
from dspn.leaves import Categorical
from dspn.sequences import Schema, Sequences, Variable
from dspn.structure import (
    DynamicNetwork,
    Leaf,
    NetworkParameters,
    Node,
    Parameters,
    Product,
    Root,
    Template,
)
from dspn.structure.nodes import children_of
from dspn.structure.validity import network_scopes

# Visits are looked at in sequences of about this many slices in all.
_MOST_SLICES: Final = 50_000
# A slice that a node has less of than this tells nothing about the node.
_LEAST_SHARE: Final = 0.05
_TRIES: Final = 2
# How sure the first step is of the half that a slice was given to.
_CERTAINTY: Final = 0.95


@final
@dataclass(frozen=True, eq=False)
class _Division:
    """The visits of a node in two halves: `rows` of the data, and which are of the second half.

    `gain` is the log-likelihood that two classes have over one.
    """

    position: int
    gain: float
    rows: Ints
    second: Bools


@final
@dataclass(frozen=True, eq=False)
class _Visits:
    """Some sequences of the data, and the posteriors of the interface nodes at their slices.

    `rows` has the row of each slice in the whole data.
    """

    network: DynamicNetwork
    data: Sequences
    rows: Ints
    posteriors: Floats
    variables: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, network: DynamicNetwork, data: Sequences, rng: np.random.Generator) -> "_Visits":
        """Sequences drawn at random, or all where they are few."""
        lengths = np.minimum(data.lengths, _MOST_SLICES)
        order = rng.permutation(len(data))
        before = np.cumsum(lengths[order]) - lengths[order]
        members = np.sort(order[before < _MOST_SLICES])
        rows = np.concatenate(
            [np.arange(data.offsets[i], data.offsets[i] + lengths[i]) for i in members]
        )
        offsets = np.concatenate([[0], np.cumsum(lengths[members])])
        part = Sequences.from_codes(data.values[rows], offsets, data.schema)
        posteriors = interface_posteriors(compile_program(network), part)
        return cls(network, part, rows, posteriors, _own_variables(network))

    def division(self, position: int, rng: np.random.Generator) -> _Division:
        """Two classes of the visits of a node, fitted to what is seen there."""
        rows = np.flatnonzero(self.posteriors[:, position] > _LEAST_SHARE)
        second = rng.random(rows.size) < 0.5
        gain = -np.inf
        if rows.size > 1:
            seen = self._seen(position, rows)
            for _ in range(_TRIES):
                found = two_classes(seen, rng)
                if found.gain > gain:
                    gain = found.gain
                    second = found.second if 0 < found.second.sum() < rows.size else second
        return _Division(position, gain, rows, second)

    def _seen(self, position: int, rows: Ints) -> Rows:
        """The values of the slices and the nodes above and below, as far as this node reads them.

        Counts are taken for continuous numbers.
        """
        weights = self.posteriors[rows, position]
        group = next(g for g, own in enumerate(self.network.groups) if position in own)
        sources = self.network.group_sources
        readers = [g for g, read in enumerate(sources) if group in read]
        down = 1 if self.network.root == Root.FIRST else -1
        shares = [self._neighbours(g, rows, down) for g in sources[group]]
        shares.extend(self._neighbours(g, rows, -down) for g in readers)
        numbers = []
        for variable in self.variables[position]:
            values = self.data.values[rows, variable]
            width = self.data.schema[variable].num_categories
            if width:
                shares.append(category_block(values, width))
            else:
                numbers.append(number_block(values, weights))
        return Rows.of(shares, numbers, weights)

    def _neighbours(self, group: int, rows: Ints, shift: int) -> Floats:
        """Posteriors of a group's nodes one slice further up or down, 0 beyond the ends.

        Nodes that are never next to these visits are left out.
        """
        sequence = np.searchsorted(self.data.offsets, rows, side="right") - 1
        there = rows + shift
        inside = (there >= self.data.offsets[sequence]) & (there < self.data.offsets[sequence + 1])
        members = np.array(self.network.groups[group])
        found = np.zeros((rows.size, members.size))
        found[inside] = self.posteriors[there[inside][:, None], members]
        return found[:, found.sum(axis=0) > _LEAST_SHARE]


def _own_variables(network: DynamicNetwork) -> tuple[tuple[int, ...], ...]:
    """The variables of the slice below each output."""
    template = network.template
    scopes = network_scopes(template.nodes, template.order, [0] * template.num_interfaces)
    every = range(len(template.schema))
    return tuple(
        tuple(variable for variable in every if scopes[output] >> variable & 1)
        for output in template.outputs
    )


def _label_schema(schema: Schema, count: int) -> Schema:
    """The variables with one binary label more for each group."""
    prefix = "half"
    while any(name.startswith(prefix) for name in schema.names):
        prefix = f"_{prefix}"
    labels = (Variable.binary(f"{prefix}{group}") for group in range(count))
    return Schema((*schema.variables, *labels))


def _label_template(network: DynamicNetwork) -> Template:
    """The template with a leaf over its group's label at every output.

    Sums keep their order, so the weights of the template fit as they are.
    """
    template, groups = network.template, network.groups
    group_of = {position: g for g, own in enumerate(groups) for position in own}
    first = len(template.schema)
    nodes: list[Node] = list(template.nodes)
    nodes.extend(
        Leaf(first + group_of[position], Categorical(2)) for position in range(len(group_of))
    )
    below = {child for node in template.nodes for child in children_of(node)}
    outputs = []
    for position, output in enumerate(template.outputs):
        own, leaf = template.nodes[output], len(template.nodes) + position
        if isinstance(own, Product) and output not in below:
            nodes[output] = Product((*own.children, leaf))
            outputs.append(output)
        else:
            nodes.append(Product((output, leaf)))
            outputs.append(len(nodes) - 1)
    return Template(_label_schema(template.schema, len(groups)), tuple(nodes), tuple(outputs))


def _label_leaves(network: DynamicNetwork, pairs: Sequence[tuple[int, int]]) -> tuple[Floats, ...]:
    """Two halves are nearly sure of their label; all other nodes leave it open."""
    rows = np.full((network.num_interfaces, 2), 0.5)
    for one, other in pairs:
        rows[one] = _CERTAINTY, 1.0 - _CERTAINTY
        rows[other] = 1.0 - _CERTAINTY, _CERTAINTY
    return tuple(rows[list(own)] for own in network.groups)


def _labelled_step(
    network: DynamicNetwork,
    data: Sequences,
    labels: Floats,
    pairs: Sequence[tuple[int, int]],
    priors: Priors,
) -> DynamicNetwork:
    """One step of EM in which `labels` (slices, groups) say which half a slice belongs to.

    The labels are variables of a network made for this step, so templates of any shape will do.
    """
    template = _label_template(network)
    own = _label_leaves(network, pairs)
    old = network.parameters

    def with_labels(part: NetworkParameters) -> NetworkParameters:
        return NetworkParameters(part.weights, (*part.leaves, *own))

    def without(part: NetworkParameters) -> NetworkParameters:
        return NetworkParameters(part.weights, part.leaves[: -len(own)])

    bottom = None if old.bottom is None else with_labels(old.bottom)
    parameters = Parameters(with_labels(old.template), old.top, bottom)
    labelled = DynamicNetwork(template, network.top, parameters, network.root)
    values = np.concatenate([data.values, labels], axis=1)
    seen = Sequences.from_codes(values, data.offsets, template.schema)
    flows = compile_program(labelled).expected_flows(seen, None).flows
    new = maximise(labelled, flows, priors).parameters
    bottom = None if new.bottom is None else without(new.bottom)
    return network.with_parameters(Parameters(without(new.template), new.top, bottom))


def informed_split(
    network: DynamicNetwork,
    data: Sequences,
    count: int = 1,
    *,
    priors: Priors = DEFAULT_PRIORS,
    rng: np.random.Generator,
) -> DynamicNetwork:
    """The `count` nodes that gain most are split in two, each half with its own kind of visits.

    The structure is that of `split_interfaces`. Parameters come from one step of EM in which the
    slices of a split node are told their half; all other nodes take part as in any other step.
    """
    require_type(network, DynamicNetwork, "network", StructureError)
    require_type(data, Sequences, "data", DataError)
    checked_rng(rng, StructureError)
    size = network.num_interfaces
    wanted = whole_number(count, "count", StructureError)
    if wanted > size:
        raise StructureError(
            f"`count` must be at most {size}, the number of interface nodes, but is {wanted}."
        )
    visits = _Visits.of(network, data, rng)
    found = [visits.division(position, rng) for position in range(size)]
    found.sort(key=lambda division: -division.gain)
    chosen = found[:wanted]
    labels = np.full((data.total_slices, len(network.groups)), np.nan)
    for group, own in enumerate(network.groups):
        best = np.array(own)[np.argmax(visits.posteriors[:, list(own)], axis=1)]
        for division in chosen:
            mine = best[division.rows] == division.position
            rows = visits.rows[division.rows[mine]]
            labels[rows, group] = division.second[mine]
    split = split_interfaces(network, [division.position for division in chosen], rng, 0.0)
    pairs = [(division.position, size + number) for number, division in enumerate(chosen)]
    return _labelled_step(split, data, labels, pairs, priors)

"""Algorithm 2: an anytime search in which neighbours are generated, scored, and the best is kept.

A neighbour of a network has one product of the template replaced by a product of naive Bayes models
over its scope. The input interface of a group counts as one more variable of the scope; its
univariate distribution is a sum over all the group's inputs. The scope of the product does not
change, so neither does that of any node above it, and a valid template stays valid.

A search is a chain of immutable states. The randomness of try number i comes from the seed of the
search and from i alone, and all tries of a round start from the same network, so the chain does not
depend on where its neighbours are trained, and goes on from a saved state as if it had never
stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, final

import numpy as np

from dspn._arguments import Floats, checked_rng, require_type, whole_number
from dspn.data.sequences import Sequences
from dspn.engine import Program, Want, compile_program
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.executors import Executor, Serial, Shared
from dspn.inference import interface_posteriors
from dspn.io.json_values import JSON, fields, whole
from dspn.learning.dependence import Column
from dspn.learning.em import EmFit, EmOptions, Task, best_of
from dspn.learning.partitions import Partition, PartitionOptions, Positions, next_partition
from dspn.learning.run import Clock, limited
from dspn.options import Options, choice_field, number_field, part_field, whole_field
from dspn.structure import edit
from dspn.structure.build import Interface, ScopeItem
from dspn.structure.network import DynamicNetwork, Root
from dspn.structure.nodes import Input, Leaf, Product, Sum, children_of, reachable
from dspn.structure.template import Template
from dspn.structure.validity import group_scopes

# Where the slices go in a network.


@final
@dataclass(frozen=True, eq=False)
class SlicePosteriors:
    """What the independence tests weigh the slices of a data set by, for one network.

    Serves every proposal from that network; each pass runs when it is first needed.
    """

    program: Program
    data: Sequences

    def __post_init__(self) -> None:
        require_type(self.program, Program, "program", StructureError)
        require_type(self.data, Sequences, "data", DataError)

    @property
    def network(self) -> DynamicNetwork:
        """The network of the program."""
        return self.program.network

    @cached_property
    def interface(self) -> Floats:
        """P(interface node on the induced tree at a slice | evidence), (slices, interfaces)."""
        return interface_posteriors(self.program, self.data)

    def below(self, group: int) -> Floats:
        """P(input node of a group | evidence): that of the output one slice below, (slices, size).

        NaN at the slice that is at the bottom, which has no inputs.
        """
        is_first = self.network.root == Root.FIRST
        own = self.interface[:, list(self.network.groups[group])]
        found = np.roll(own, -1 if is_first else 1, axis=0)
        found[self.data.offsets[1:] - 1 if is_first else self.data.offsets[:-1]] = np.nan
        return found

    def product(self, node: int) -> Floats:
        """P(product on the induced tree at a slice | evidence), (slices,).

        For an output without parents that of the interface node, otherwise that of the leaves of a
        variable which stand below this product alone. A product that shares leaves of all its
        variables with others has the posterior of the outputs above it, an upper bound.
        """
        nodes, outputs = self.network.template.nodes, self.network.template.outputs
        # The rest of the network, with the product's own sub-network cut off.
        cut = [Input(-1) if index == node else own for index, own in enumerate(nodes)]
        rest = reachable(cut, outputs)
        if node in outputs and all(node not in children_of(nodes[other]) for other in rest):
            return np.asarray(self.interface[:, outputs.index(node)])
        leaves: dict[int, list[int]] = {}
        for index in reachable(nodes, [node]):
            own = nodes[index]
            if isinstance(own, Leaf):
                leaves.setdefault(own.variable, []).append(index)
        for variable, members in sorted(leaves.items()):
            if rest.isdisjoint(members):
                wanted = np.zeros(self.data.values.shape, dtype=np.bool_)
                wanted[:, variable] = True
                found = self.program.posteriors(self.data, Want(leaves=wanted)).leaves[variable]
                own_leaves = np.isin(self.network.template.banks[variable].nodes, members)
                return np.asarray(found[:, own_leaves].sum(axis=1))
        above = [i for i, output in enumerate(outputs) if node in reachable(nodes, [output])]
        return np.asarray(self.interface[:, above].sum(axis=1).clip(max=1.0))

    def column(self, number: int, weights: Floats) -> Column:
        """The rows of one item of a scope, numbered as in `partitions`."""
        schema = self.data.schema
        if number >= len(schema):
            return Column.of_posterior(self.below(number - len(schema)))
        return Column.of_variable(schema[number], self.data.values[:, number], weights)


# Neighbours.


def product_nodes(template: Template) -> tuple[int, ...]:
    """The products below the outputs with at least two items in scope: those that can be replaced.

    A product over a single item has one partition only, the one that it has.
    """
    require_type(template, Template, "template", StructureError)
    scopes = group_scopes(template)
    used = reachable(template.nodes, template.outputs)
    return tuple(
        index
        for index, node in enumerate(template.nodes)
        if isinstance(node, Product) and index in used and scopes[index].bit_count() > 1
    )


def scope_numbers(network: DynamicNetwork, node: int) -> tuple[int, ...]:
    """Items of a product's scope: v for variable v, num_variables + g for the inputs of group g."""
    require_type(network, DynamicNetwork, "network", StructureError)
    index = whole_number(node, "node", StructureError, least=0)
    nodes = network.template.nodes
    if index >= len(nodes) or not isinstance(nodes[index], Product):
        found = type(nodes[index]).__name__.lower() if index < len(nodes) else "not there"
        raise StructureError(
            f"`node` must be a product of the template, but node {index} is {found}; choose one of "
            "`product_nodes`."
        )
    scope = group_scopes(network.template)[index]
    return tuple(bit for bit in range(scope.bit_length()) if scope >> bit & 1)


def _item(network: DynamicNetwork, number: int) -> ScopeItem:
    n = len(network.schema)
    if number < n:
        return number
    positions = network.groups[number - n]
    return Interface(tuple(network.template.inputs[position] for position in positions))


def scope_items(network: DynamicNetwork, node: int) -> tuple[ScopeItem, ...]:
    """The scope of a product: its variables in rising order, then the interfaces of its groups."""
    return tuple(_item(network, number) for number in scope_numbers(network, node))


@final
@dataclass(frozen=True, eq=False)
class Neighbour:
    """A template with one product replaced.

    `node` is the product in the new numbering, `new_nodes` the new sums and leaves: what has to be
    learned first.
    """

    network: DynamicNetwork
    node: int
    new_nodes: frozenset[int]


def replace_product(
    network: DynamicNetwork,
    node: int,
    partition: Sequence[Sequence[ScopeItem]],
    rng: np.random.Generator,
    values: Floats | None = None,
    *,
    num_classes: int = 2,
) -> Neighbour:
    """The network with a product replaced by a product of naive Bayes models over a partition.

    The node is replaced for all its parents, and as an output if it is one. A block of several
    items becomes a sum of `num_classes` factored distributions, a block of one a univariate
    distribution. Weights start at Dirichlet(1), leaves at `Family.random` of the data's `values`
    (slices, variables), the same in a bottom network with its own parameters. Nodes that nothing
    refers to any more are dropped; all others keep their order and their parameters.
    """
    checked_rng(rng, StructureError)
    classes = whole_number(num_classes, "num_classes", StructureError)
    template, scope = network.template, scope_items(network, node)
    if node not in reachable(template.nodes, template.outputs):
        raise StructureError(
            f"`node` must be in use, but no output of the template reaches node {node}; choose one "
            "of `product_nodes`."
        )
    blocks = [tuple(block) for block in partition]
    flat = [item for block in blocks for item in block]
    if not all(blocks) or len(flat) != len(scope) or set(flat) != set(scope):
        raise StructureError(
            f"`partition` must share out the scope of node {node}, {list(scope)}, into blocks that "
            f"are not empty, but is {blocks}; see `scope_items`."
        )
    families = {bank.variable: bank.family for bank in template.banks}
    if values is not None and (values.ndim != 2 or values.shape[1] != len(families)):
        raise StructureError(
            f"`values` must have a column for each of the {len(families)} variables, but has shape "
            f"{values.shape}; give the `values` of a Sequences."
        )
    entries = edit.template_entries(network)
    first = len(entries)
    leaves: dict[int, list[int]] = {}

    def add_sum(children: Sequence[int]) -> int:
        return edit.add_node(entries, Sum(tuple(children)), rng.dirichlet(np.ones(len(children))))

    def add_univariate(item: ScopeItem) -> int:
        if isinstance(item, Interface):
            return add_sum(item.inputs)
        leaves.setdefault(item, []).append(edit.add_node(entries, Leaf(item, families[item])))
        return leaves[item][-1]

    def add_block(items: Sequence[ScopeItem]) -> int:
        if len(items) == 1:
            return add_univariate(items[0])
        products = (Product(tuple(map(add_univariate, items))) for _ in range(classes))
        return add_sum([edit.add_node(entries, product) for product in products])

    entries[node] = edit.Entry(Product(tuple(map(add_block, blocks))), entries[node].values)
    for variable, new in sorted(leaves.items()):
        seen = None if values is None else values[:, variable]
        for index, row in zip(new, families[variable].random(len(new), rng, seen), strict=True):
            entries[index] = edit.Entry(
                entries[index].node, np.tile(row, (len(entries[0].values), 1))
            )
    kept = reachable([entry.node for entry in entries], template.outputs) | set(template.inputs)
    changed, number = edit.keep_entries(entries, kept)
    outputs = [number[output] for output in template.outputs]
    top = edit.top_entries(network)
    after = edit.build_network(
        network.schema, changed, outputs, top, network.top.root, network.root
    )
    added = enumerate(entries[first:], start=first)
    new_nodes = [number[index] for index, own in added if not isinstance(own.node, Product)]
    return Neighbour(after, number[node], frozenset(new_nodes))


class Proposal(NamedTuple):
    """A neighbour, the partition it was made from, and the positions to go on from."""

    neighbour: Neighbour
    partition: Partition
    positions: Positions


def propose(
    posteriors: SlicePosteriors,
    node: int,
    positions: Positions,
    options: PartitionOptions,
    rng: np.random.Generator,
) -> Proposal:
    """One pass through the loop of Algorithm 2: a partition by Algorithm 3, and its neighbour.

    Independence is tested on the slices of the data, weighted by the posterior of the product; an
    interface takes part with its posterior. Product and interface enter with their marginal
    posteriors, as if independent given the evidence.
    """
    require_type(posteriors, SlicePosteriors, "posteriors", StructureError)
    require_type(options, PartitionOptions, "options", StructureError)
    network = posteriors.network
    scope = scope_numbers(network, node)
    columns: list[Column] = []
    weights = None
    if len(scope) > options.threshold:
        weights = posteriors.product(node)
        columns = [posteriors.column(number, weights) for number in scope]
    partition, positions = next_partition(scope, columns, weights, positions, options, rng)
    blocks = [[_item(network, number) for number in block] for block in partition]
    neighbour = replace_product(network, node, blocks, rng, posteriors.data.values)
    return Proposal(neighbour, partition, positions)


# The search.


class Mode(StrEnum):
    """How a search reads Algorithm 2.

    LITERAL is the loop as printed: one neighbour after another, each taken for as long as it is not
    worse, and the first worse one ends the search. ANYTIME is the search that the text around it
    describes: neighbours are generated by the round, the best of a round is taken where it improves
    on the best so far, and a stopping rule ends the search.
    """

    ANYTIME = "anytime"
    LITERAL = "literal"


_PARTITIONS: Final = PartitionOptions()
_NEW_PART: Final = EmOptions(max_steps=4, tolerance=0.0)
_WHOLE: Final = EmOptions(max_steps=12, patience=3)
_BEGINNING: Final = Positions()
_STREAM: Final = 2
# The numbers of a search that a checkpoint holds.
_COUNTS: Final = ("seed", "tried", "accepted", "failures")


@final
@dataclass(frozen=True)
class SearchOptions(Options):
    """How neighbours are made and trained, and when the search ends.

    It ends after `max_neighbours` tries, or after `max_failures` tries in a row without an
    improvement. A neighbour is trained in two stages: its `new_part` alone, then the `whole` of it.
    It is an improvement where its score is greater by `caution` standard errors
    (`Score.is_better`); the literal reading has no caution.
    """

    mode: Mode | str = choice_field(Mode.ANYTIME)
    max_neighbours: int = whole_field(200, least=0)
    max_failures: int = whole_field(60)
    round_size: int = whole_field(4)
    caution: float = number_field(1.0, least=0)
    partitions: PartitionOptions = part_field(_PARTITIONS)
    new_part: EmOptions = part_field(_NEW_PART)
    whole: EmOptions = part_field(_WHOLE)


DEFAULT_SEARCH: Final = SearchOptions()


@final
@dataclass(frozen=True)
class Try:
    """One neighbour that was tried: the partition it was made from, its score, its fate.

    `partition` numbers the variables, and the interface of group g as num_variables + g.
    """

    partition: Partition
    score: float
    accepted: bool


@final
@dataclass(frozen=True, eq=False)
class SearchState:
    """Where a search stands between two rounds; `network` is the best so far.

    `failures` counts the tries since the last improvement. `last_round` tells what was tried last.
    """

    network: DynamicNetwork
    score: float
    seed: int
    tried: int = 0
    accepted: int = 0
    failures: int = 0
    positions: Positions = _BEGINNING
    last_round: tuple[Try, ...] = ()

    def to_json(self) -> dict[str, JSON]:
        """What has to be kept, besides the network and its score, to go on from here."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, "positions": self.positions.to_json()}

    @classmethod
    def from_json(cls, network: DynamicNetwork, score: float, state: JSON) -> "SearchState":
        """The state of a network with this score that `to_json` wrote."""
        details = fields(state, "its search", (*_COUNTS, "positions"))
        counts = [whole(details[name], f"`{name}` of its search") for name in _COUNTS]
        if min(counts) < 0:
            raise ModelFileError("its search has numbers below zero")
        seed, tried, accepted, failures = counts
        positions = Positions.from_json(details["positions"])
        return cls(network, score, seed, tried, accepted, failures, positions)

    def is_over(self, options: SearchOptions) -> bool:
        """Whether a stopping rule is met, or nothing is left to replace."""
        if options.mode == Mode.LITERAL and self.failures:
            return True
        enough = self.tried >= options.max_neighbours or self.failures >= options.max_failures
        return enough or not product_nodes(self.network.template)


@final
@dataclass(frozen=True, eq=False)
class SearchTask(Task):
    """What a search works on, and where neighbours are trained.

    Once the clock is due the current round is given up.
    """

    options: SearchOptions = DEFAULT_SEARCH
    executor: Executor = field(default_factory=Serial)
    clock: Clock = field(default_factory=Clock)

    @cached_property
    def shared(self) -> "Shared[SearchTask]":
        """The task as workers get it, once."""
        return self.executor.share(replace(self, executor=Serial()))

    def trained(self, neighbour: Neighbour, rng: np.random.Generator) -> EmFit:
        """The neighbour after EM on its new part, then on everything.

        Mini-batches are drawn from `rng`.
        """
        settings: dict[str, Any] = {"rng": rng, "deadline": self.clock.is_due}
        new: dict[str, Any] = {"learnable": neighbour.new_nodes, "validation": None}
        started = self.fit(neighbour.network, self.options.new_part, **new, **settings)
        return self.fit(started.network, self.options.whole, **settings)


def _proposals(state: SearchState, task: SearchTask) -> list[tuple[Proposal, np.random.Generator]]:
    """The neighbours of one round, each with the randomness it was drawn with."""
    options = task.options
    size = 1 if options.mode == Mode.LITERAL else options.round_size
    posteriors = SlicePosteriors(compile_program(state.network), task.train)
    nodes = product_nodes(state.network.template)
    positions = state.positions
    found = []
    for number in range(state.tried, min(state.tried + size, options.max_neighbours)):
        # Apart from the randomness of growth with the same seed.
        rng = np.random.default_rng([state.seed, _STREAM, number])
        node = nodes[int(rng.integers(len(nodes)))]
        proposal = propose(posteriors, node, positions, options.partitions, rng)
        positions = proposal.positions
        found.append((proposal, rng))
    return found


def _fit(
    task: Shared[SearchTask], candidate: tuple[Neighbour, np.random.Generator]
) -> EmFit | None:
    """The neighbour trained; None where time was up before that began."""
    own = task.value
    with limited(own.clock, own.train):
        return None if own.clock.is_due() else own.trained(*candidate)


def next_round(state: SearchState, task: SearchTask) -> SearchState | None:
    """The state after one more round; None where time was up before the round was done."""
    if task.clock.is_due():
        return None
    proposals = _proposals(state, task)
    work = partial(_fit, task.shared)
    candidates = [(proposal.neighbour, rng) for proposal, rng in proposals]
    found = task.executor.map(work, candidates, on_error=task.clock.stop)
    fits = [fit for fit in found if fit is not None]
    if task.clock.is_due() or len(fits) < len(candidates):
        return None
    best = best_of(fits)
    caution = None if task.options.mode == Mode.LITERAL else task.options.caution
    better = task.is_better(best, state.network, state.score, caution)
    tries = tuple(
        Try(proposal.partition, fit.score, better and fit is best)
        for (proposal, _), fit in zip(proposals, fits, strict=True)
    )
    return SearchState(
        best.network if better else state.network,
        best.score if better else state.score,
        state.seed,
        state.tried + len(tries),
        state.accepted + better,
        0 if better else state.failures + len(tries),
        proposals[-1][0].positions,
        tries,
    )

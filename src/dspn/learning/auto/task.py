"""What the automatic learner works on: data by block, options, seed and clock."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, final

import numpy as np

from dspn.learning.auto.candidates import Block
from dspn.learning.auto.options import WORK_UNIT, Auto, usual_effort
from dspn.learning.clock import Clock
from dspn.learning.priors import Priors
from dspn.sequences import Schema, Sequences
from dspn.sequences.joining import drawn_part, drawn_places, joined
from dspn.structure import DynamicNetwork, Root, Sum

_STREAM: Final = 5  # of randomness, apart from those of growth, search and refitting
_SAMPLE: Final = 6
# A model of so many slices tells how long one of all would take, and serves until there is one.
FEW_SLICES: Final = 3_000


@final
@dataclass(frozen=True, eq=False)
class BlockData:
    """The training and validation sequences with the variables of one block only."""

    train: Sequences
    validation: Sequences

    @cached_property
    def everything(self) -> Sequences:
        """Training and validation sequences together."""
        same = self.train is self.validation
        return self.train if same else joined([self.train, self.validation])


def restricted(data: Sequences, block: Block) -> Sequences:
    """The sequences with the variables of a block only, in the block's order."""
    names = [data.schema.names[variable] for variable in block]
    return data if tuple(names) == data.schema.names else data.select(names)


@final
@dataclass(frozen=True, eq=False)
class AutoTask:
    """Data, options, seed and clock of one run; the sets restricted to blocks are made once."""

    train: Sequences
    validation: Sequences
    options: Auto
    priors: Priors | None
    seed: int
    root: Root
    tied: bool
    num_jobs: int
    clock: Clock
    _restricted: dict[Block, BlockData] = field(default_factory=dict)

    @property
    def effort(self) -> float:
        """The effort that is given, or what is usual for such data."""
        given = self.options.effort
        return usual_effort(self.train.values.size) if given is None else given

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.train.schema

    def data(self, block: Block) -> BlockData:
        """The data of a block."""
        if block not in self._restricted:
            train = restricted(self.train, block)
            same = self.train is self.validation
            validation = train if same else restricted(self.validation, block)
            self._restricted[block] = BlockData(train, validation)
        return self._restricted[block]

    def sampled(self, num_slices: int, clock: Clock) -> "AutoTask":
        """The task with as many slices of either set, and another clock."""
        train = drawn_part(self.train, num_slices, np.random.default_rng([self.seed, _SAMPLE, 0]))
        validation = train
        if self.validation is not self.train:
            # Whole ones, so that scores are those of sequences.
            rng = np.random.default_rng([self.seed, _SAMPLE, 1])
            validation = self.validation[drawn_places(self.validation, FEW_SLICES, rng)]
        return replace(self, train=train, validation=validation, clock=clock, _restricted={})

    def rng(self, number: int) -> np.random.Generator:
        """The randomness of one try."""
        return np.random.default_rng([self.seed, _STREAM, number])

    def priors_of(self, concentration: float, size: int) -> Priors:
        """Priors with `concentration` pseudo-observations for each sum over `size` nodes.

        Priors that are given are not changed.
        """
        if self.priors is not None:
            return self.priors
        return Priors(sum_pseudo_count=concentration / size)


# Sums of so many children are products of matrices, whose edges cost this much of others.
_WIDE_SUM: Final = 64
_WIDE_SHARE: Final = 0.4
# What a slice takes whatever the template, in edges.
_PER_SLICE: Final = 100.0


def edges_at_work(widths: Iterable[int], other_edges: int) -> float:
    """The edges of a template as work: of sums by their widths, and all others."""
    sums = sum(width * (_WIDE_SHARE if width >= _WIDE_SUM else 1.0) for width in widths)
    return _PER_SLICE + sums + other_edges


def work_of(network: DynamicNetwork, data: Sequences, steps: int) -> float:
    """Edges evaluated at slices in so many steps of EM, in units of 10^9."""
    template = network.template
    widths = [len(node.children) for node in template.nodes if isinstance(node, Sum)]
    edges = edges_at_work(widths, template.num_edges - sum(widths))
    return edges * data.total_slices * (steps + 1) / WORK_UNIT

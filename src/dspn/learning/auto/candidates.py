"""Trained models of blocks of variables, and what is known of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dspn._arrays import Floats
from dspn.learning.auto.mixing import kept_members, mixed, mixture_weights
from dspn.learning.auto.recipes import Recipe
from dspn.structure import DynamicNetwork

Block = tuple[int, ...]


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A trained model of the variables of one block.

    `validation` has its log-likelihood of the block's variables in every validation sequence,
    `steps` the steps of EM and `work` what it took. One that is not whole was cut short by the
    clock, or trained on a sample, and knows the likelihood of some of the sequences only.
    """

    number: int
    block: Block
    network: DynamicNetwork
    recipe: Recipe
    validation: Floats
    steps: int
    work: float
    is_whole: bool = True

    @property
    def score(self) -> float:
        """Mean log-likelihood of the validation sequences."""
        return float(self.validation.mean())

    @property
    def size(self) -> int:
        """Number of interface nodes."""
        return self.network.num_interfaces


@final
@dataclass(frozen=True, eq=False)
class BlockModel:
    """The candidates of a block that are kept, mixed: their weights and validation likelihoods."""

    members: tuple[Candidate, ...]
    weights: Floats
    validation: Floats

    @property
    def score(self) -> float:
        """Mean log-likelihood of the validation sequences."""
        return float(self.validation.mean())


def block_model(candidates: tuple[Candidate, ...], *, most: int, least: float) -> BlockModel:
    """The mixture of the candidates that are worth it, with weights learned on validation."""
    table = np.stack([candidate.validation for candidate in candidates], axis=1)
    kept = kept_members(mixture_weights(table), least, most)
    weights = mixture_weights(table[:, kept])
    members = tuple(candidates[place] for place in kept)
    return BlockModel(members, weights, mixed(table[:, kept], weights))


@final
@dataclass(frozen=True, eq=False)
class Pool:
    """All candidates by block; a new one makes a new pool."""

    by_block: Mapping[Block, tuple[Candidate, ...]] = field(default_factory=dict)

    def __contains__(self, block: Block) -> bool:
        return block in self.by_block

    def with_candidate(self, candidate: Candidate) -> "Pool":
        """The pool with one more candidate."""
        own = (*self.by_block.get(candidate.block, ()), candidate)
        return Pool({**self.by_block, candidate.block: own})

    @property
    def work(self) -> float:
        """What all candidates took together."""
        return sum(candidate.work for own in self.by_block.values() for candidate in own)

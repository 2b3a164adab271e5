"""A dynamic Bayesian network to draw from, with its exact likelihood."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike

from dspn._arguments import Floats, Ints, checked_rng, require_type
from dspn.data import Schema, Sequences
from dspn.data.sequences import sequences_of
from dspn.errors import DataError, ImpossibleEvidenceWarning, StructureError, warn
from dspn.inference.sampling import sequence_lengths
from dspn.structure import DbnStructure, DbnTables, dbn_schema
from dspn.structure.dbn import check_tables
from experiments.datasets.synthetic._likelihood import FilterPlan, filter_plan, forward
from experiments.datasets.synthetic._sampling import ancestral_sample

_MOST_NAMED: Final = 5


@final
@dataclass(frozen=True, eq=False)
class DbnProcess:
    """A dynamic Bayesian network of which some nodes are observed.

    Unlike `dspn.structure.from_dbn` it is not compiled into a template: what the exact likelihood
    costs depends on the nodes that have children in the next slice, not on all hidden ones.
    """

    structure: DbnStructure
    tables: DbnTables

    def __post_init__(self) -> None:
        require_type(self.structure, DbnStructure, "structure", StructureError)
        require_type(self.tables, DbnTables, "tables", StructureError)
        self.structure.topological()
        check_tables(self.structure, self.tables)

    @cached_property
    def schema(self) -> Schema:
        """The observed nodes as categorical variables."""
        return dbn_schema(self.structure)

    @cached_property
    def _plan(self) -> FilterPlan:
        return filter_plan(self.structure, self.tables)

    def sample(
        self,
        num_sequences: int,
        length: int | Sequence[int] | Ints,
        *,
        rng: np.random.Generator,
    ) -> Sequences:
        """Draws of the observed nodes; `length` is one number, or one for each sequence."""
        lengths = sequence_lengths(num_sequences, length)
        checked_rng(rng, DataError)
        values = ancestral_sample(self.structure, self.tables, lengths, rng)
        return Sequences.from_codes(values, np.cumsum([0, *lengths.tolist()]), self.schema)

    def log_likelihood(self, data: Sequences | Iterable[ArrayLike]) -> Floats:
        """Log P(observed entries) of each sequence, hidden nodes and missing entries summed out.

        Impossible sequences have -inf, with a warning that names the slice.
        """
        sequences = sequences_of(data, self.schema, "data")
        found = forward(self._plan, sequences)
        impossible = np.flatnonzero(found.impossible_at >= 0)
        if impossible.size:
            named = impossible[:_MOST_NAMED].tolist()
            said = ", ".join(f"sequence {i} at slice {found.impossible_at[i]}" for i in named)
            more = f" and {impossible.size - len(named)} more" * (impossible.size > len(named))
            warn(f"probability zero: {said}{more}.", ImpossibleEvidenceWarning)
        return found.log_likelihood

"""A DSPN to ask questions of: every query is a method."""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from dspn import inference
from dspn._arrays import Floats, Ints
from dspn._checks import require_type
from dspn.engine import Program, compile_program
from dspn.errors import StructureError
from dspn.inference import (
    Completion,
    Filter,
    FilterState,
    Forecast,
    Marginals,
    Surprise,
)
from dspn.io import JSON, load_network, save_network
from dspn.sequences import Schema, Sequences
from dspn.sequences.reading import sequences_of
from dspn.structure import DbnStructure, DbnTables, DynamicNetwork, Root, from_dbn, from_hmm

Data = Sequences | Iterable[ArrayLike]


@final
class Model:
    """A checked DSPN with its queries, exact and linear in slices, sequences and template edges.

    `data` is everywhere a `Sequences` of the model's schema, or a list of (T_i, n) arrays with NaN
    or None for what is missing. Randomness comes from the `rng` given, from nowhere else.
    """

    def __init__(
        self, network: DynamicNetwork, *, provenance: Mapping[str, JSON] | None = None
    ) -> None:
        remedy = "`dspn.structure` builds one, and `dspn.load` reads a model from a file"
        require_type(network, DynamicNetwork, "network", StructureError, remedy=remedy)
        self.network = network
        self.provenance: dict[str, JSON] = dict(provenance or {})

    @classmethod
    def from_hmm(
        cls,
        start: Sequence[float] | Floats,
        transition: Sequence[Sequence[float]] | Floats,
        emissions: Mapping[str, ArrayLike],
        *,
        schema: Schema,
        root: Root | str = Root.FIRST,
    ) -> "Model":
        """A hidden Markov model with independent emissions; see `dspn.structure.from_hmm`."""
        return cls(from_hmm(start, transition, emissions, schema=schema, root=root))

    @classmethod
    def from_dbn(cls, structure: DbnStructure, tables: DbnTables) -> "Model":
        """A small discrete dynamic Bayesian network; see `dspn.structure.from_dbn`."""
        return cls(from_dbn(structure, tables))

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.network.schema

    @property
    def root(self) -> Root:
        """Which slice carries the root."""
        return self.network.root

    @cached_property
    def program(self) -> Program:
        """The network compiled for the engine."""
        return compile_program(self.network)

    def __repr__(self) -> str:
        template = self.network.template
        groups = len(self.network.groups)
        return (
            f"Model({len(self.schema)} variables, {template.num_interfaces} interface nodes in "
            f"{groups} group{'s' if groups > 1 else ''}, {len(template.nodes)} nodes, "
            f"{template.num_edges} edges, root={self.root.value!r})"
        )

    def _sequences(self, data: Data, argument: str = "data") -> Sequences:
        return sequences_of(data, self.schema, argument)

    def log_likelihood(self, data: Data) -> Floats:
        """Log P(observed entries) of each sequence; -inf, with a warning, where impossible."""
        return inference.log_likelihood(self.program, self._sequences(data))

    def log_prob(self, query: Data, evidence: Data) -> Floats:
        """Log Pr(query | evidence) of each sequence; NaN marks what a side does not mention."""
        return inference.log_prob(
            self.program, self._sequences(query, "query"), self._sequences(evidence, "evidence")
        )

    def marginals(self, data: Data, *, quantiles: Sequence[float] = ()) -> Marginals:
        """P(entry | evidence) of every missing entry."""
        return inference.marginals(self.program, self._sequences(data), quantiles=quantiles)

    def interface_posteriors(self, data: Data) -> Floats:
        """P(interface node | evidence) for every slice, (slices, interfaces)."""
        return inference.interface_posteriors(self.program, self._sequences(data))

    def impute(self, data: Data) -> Sequences:
        """Missing entries replaced by the mode, median or mean of their marginals."""
        return inference.impute(self.program, self._sequences(data))

    def complete(self, data: Data) -> Completion:
        """The most probable missing entries and latent choices, jointly."""
        return inference.complete(self.program, self._sequences(data))

    def sample(
        self,
        num_sequences: int,
        length: int | Sequence[int] | Ints,
        *,
        rng: np.random.Generator,
    ) -> Sequences:
        """Draws of whole sequences; `length` is one number, or one for each sequence."""
        return inference.sample(self.program, num_sequences, length, rng=rng)

    def sample_given(self, data: Data, *, rng: np.random.Generator) -> Sequences:
        """Missing entries drawn jointly, given the observed ones."""
        return inference.sample_given(self.program, self._sequences(data), rng=rng)

    def forecast(
        self, data: Data, steps: int, *, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> Forecast:
        """Distributions of the next `steps` slices."""
        return inference.forecast(self.program, self._sequences(data), steps, quantiles=quantiles)

    def sample_futures(self, data: Data, steps: int, *, rng: np.random.Generator) -> Sequences:
        """One drawn continuation of each sequence."""
        return inference.sample_futures(self.program, self._sequences(data), steps, rng=rng)

    def filter(self, state: FilterState | None = None) -> Filter:
        """A stream of slices, from its beginning or from a saved state."""
        return Filter(self.program, state)

    def surprise(self, data: Data) -> Surprise:
        """How unexpected each slice is given its past, and each entry given all others."""
        return inference.surprise(self.program, self._sequences(data))

    def save(self, path: str | bytes | os.PathLike[str]) -> None:
        """Writes the model to a `*.dspn` file, whole or not at all."""
        save_network(self.network, path, provenance=self.provenance)


def load(path: str | bytes | os.PathLike[str]) -> Model:
    """The model in a `*.dspn` file."""
    found = load_network(path)
    provenance: dict[str, Any] = dict(found.provenance)
    return Model(found.network, provenance=provenance)

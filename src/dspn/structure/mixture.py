"""Several whole DSPNs under one root sum."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import final

import numpy as np

from dspn._arguments import Floats, read_only, require_type
from dspn.data.schema import Schema
from dspn.errors import StructureError
from dspn.structure.network import DynamicNetwork, Root, check_networks
from dspn.structure.parameters import checked_shares


@final
@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """P(x_1..x_T) = sum_c weights[c] P_c(x_1..x_T), each component a DSPN of its own.

    The root sum is complete, as every component speaks of all variables of all slices. Interface
    nodes of different components never meet below it, so that identical or disjoint scopes are
    asked within a component only, and components may have different groups. All share schema and
    root. A weight may be zero. One component of weight 1 is the paper's case.
    """

    components: tuple[DynamicNetwork, ...]
    weights: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", check_networks(self.components, "components"))
        weights = checked_shares(self.weights, len(self.components), "components")
        object.__setattr__(self, "weights", read_only(weights))

    @classmethod
    def of(cls, network: DynamicNetwork) -> "Mixture":
        """The network by itself, as a mixture of one."""
        require_type(network, DynamicNetwork, "network", StructureError)
        return cls((network,), np.ones(1))

    def __len__(self) -> int:
        return len(self.components)

    def __iter__(self) -> Iterator[DynamicNetwork]:
        return iter(self.components)

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{weight:.3g} x {network.num_interfaces} interface nodes"
            for weight, network in zip(self.weights, self.components, strict=True)
        )
        return f"Mixture({sizes}; {len(self.schema)} variables, root={self.root.value!r})"

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.components[0].schema

    @property
    def root(self) -> Root:
        """Which slice carries the root."""
        return self.components[0].root

    @property
    def num_interfaces(self) -> int:
        """Interface nodes of all components together."""
        return sum(network.num_interfaces for network in self.components)

    @property
    def interface_offsets(self) -> tuple[int, ...]:
        """Where the interface nodes of each component begin, component after component."""
        sizes = (network.num_interfaces for network in self.components[:-1])
        return tuple(accumulate(sizes, initial=0))

    @property
    def only(self) -> DynamicNetwork:
        """The only component; raises where there are several."""
        if len(self.components) > 1:
            raise StructureError(
                f"the model is a mixture of {len(self.components)} components and has no single "
                "network; take model.components[i]."
            )
        return self.components[0]

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of weights and components; that of the network where there is one."""
        if len(self.components) == 1:
            return self.components[0].fingerprint
        digest = hashlib.sha256(b"mixture")
        digest.update(self.weights.astype("<f8").tobytes())
        for network in self.components:
            digest.update(network.fingerprint)
        return digest.digest()

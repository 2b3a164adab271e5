"""A DSPN: template, top and parameters that have passed every check, and where the root sits."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, final

from dspn._arguments import require_type
from dspn.data.schema import Schema
from dspn.errors import StructureError
from dspn.structure.nodes import Leaf, Node, Product, Sum
from dspn.structure.parameters import Parameters, check_parameters
from dspn.structure.template import Template, Top
from dspn.structure.validity import group_sources, group_variables, interface_groups, violations


class Root(StrEnum):
    """Which slice carries the top network; the bottom network is at the other end."""

    FIRST = "first"
    LAST = "last"


def checked_root(root: Root | str) -> Root:
    """The root by its name."""
    try:
        return Root(root)
    except ValueError:
        raise StructureError(f"`root` must be 'first' or 'last', not {root!r}.") from None


@final
@dataclass(frozen=True, eq=False)
class DynamicNetwork:
    """P(x_1..x_T) for every T: T - 1 templates on a bottom network, under a top network.

    With `root="first"` and a tied bottom the networks of all lengths agree: marginalising the last
    slices gives the shorter network. `root="last"` is the placement of the paper.
    """

    template: Template
    top: Top
    parameters: Parameters
    root: Root = Root.FIRST

    def __post_init__(self) -> None:
        for name, kind in (("template", Template), ("top", Top), ("parameters", Parameters)):
            require_type(getattr(self, name), kind, name, StructureError)
        object.__setattr__(self, "root", checked_root(self.root))
        found = violations(self.template, self.top)
        if found:
            listed = "\n".join(f"  - {violation}" for violation in found[:20])
            more = "\n  ... and more" if len(found) > 20 else ""
            raise StructureError(f"the template is not valid:\n{listed}{more}")
        check_parameters(self.template, self.top, self.parameters)

    @property
    def schema(self) -> Schema:
        """The variables of a slice."""
        return self.template.schema

    @property
    def num_interfaces(self) -> int:
        """k, over all groups."""
        return self.template.num_interfaces

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Interface positions of equal scope."""
        return interface_groups(self.template)

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """The number of the group of each interface node."""
        numbered = {position: g for g, own in enumerate(self.groups) for position in own}
        return tuple(numbered[position] for position in range(self.num_interfaces))

    @cached_property
    def group_variables(self) -> tuple[tuple[int, ...], ...]:
        """For each group, the variables of the slice itself that its nodes speak of."""
        return group_variables(self.template)

    @cached_property
    def group_sources(self) -> tuple[tuple[int, ...], ...]:
        """For each group, the groups whose inputs its outputs read."""
        return group_sources(self.template)

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of structure, parameters and root; a network read from a file has the same."""
        structure = (
            [variable.identity() for variable in self.schema],
            *([[own.identity() for own in self.schema.inputs]] if self.schema.inputs else []),
            (_describe(self.template.nodes), tuple(map(int, self.template.outputs))),
            (_describe(self.top.nodes), int(self.top.root)),
            str(self.root),
        )
        digest = hashlib.sha256(repr(structure).encode())
        for part in (self.parameters.template, self.parameters.top, self.parameters.bottom):
            digest.update(b"tied" if part is None else b"own")
            for array in () if part is None else (part.weights, *part.leaves):
                digest.update(repr(array.shape).encode())
                digest.update(array.astype("<f8").tobytes())
        return digest.digest()

    def untied(self) -> "DynamicNetwork":
        """The same distribution, with a bottom network whose parameters are its own."""
        own = self.parameters
        if not own.tied:
            return self
        return self.with_parameters(Parameters(own.template, own.top, own.template))

    def with_parameters(self, parameters: Parameters) -> "DynamicNetwork":
        """The same structure, which is known to be valid, with other parameters."""
        check_parameters(self.template, self.top, parameters)
        other = object.__new__(DynamicNetwork)
        given = {"template": self.template, "top": self.top, "parameters": parameters}
        vars(other).update(given, root=self.root)
        return other


def _describe(nodes: Sequence[Node]) -> list[tuple[str, tuple[int, ...]]]:
    """Kind and references of every node, in plain ints; its variable tells the family of a leaf."""
    described = []
    for node in nodes:
        if isinstance(node, Sum | Product):
            references = node.children
        else:
            references = (node.variable if isinstance(node, Leaf) else node.position,)
        by = node.by if isinstance(node, Sum) else None
        name = type(node).__name__ if by is None else f"Sum by {int(by)}"
        described.append((name, tuple(map(int, references))))
    return described


def check_networks(
    networks: Any, argument: str, *, one_schema: bool = True
) -> tuple[DynamicNetwork, ...]:
    """The networks as a tuple; raises unless there is one and all have the same root and schema."""
    hint = "give a list of DynamicNetwork, also where there is one only"
    require_type(networks, Iterable, argument, StructureError, remedy=hint)
    given: tuple[DynamicNetwork, ...] = tuple(networks)
    if not given:
        raise StructureError(f"`{argument}` must hold at least one DynamicNetwork, but is empty.")
    for index, network in enumerate(given):
        require_type(network, DynamicNetwork, f"{argument}[{index}]", StructureError)
        if network.root != given[0].root:
            raise StructureError(
                f"`{argument}` must share one root, but {argument}[{index}] has root "
                f"{network.root.value!r} where {argument}[0] has {given[0].root.value!r}; build "
                "all with the same root."
            )
        if one_schema and network.schema != given[0].schema:
            raise StructureError(
                f"`{argument}` must share one schema, but {argument}[{index}] has the variables "
                f"{', '.join(network.schema.names)} where {argument}[0] has "
                f"{', '.join(given[0].schema.names)}, or other kinds or categories; build all "
                "with the same schema."
            )
    return given

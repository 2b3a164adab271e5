"""The four kinds of node of a template; a node names its children by their index in the network."""

from dataclasses import dataclass
from typing import final

from dspn.leaves import Family


@final
@dataclass(frozen=True, slots=True)
class Input:
    """Input interface node: takes the value of the output node f(position) one slice below."""

    position: int


@final
@dataclass(frozen=True, slots=True)
class Leaf:
    """Univariate distribution over one variable of the slice; an indicator where degenerate."""

    variable: int
    family: Family


@final
@dataclass(frozen=True, slots=True)
class Product:
    """v = prod_j v_j over the children, whose scopes are disjoint."""

    children: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Sum:
    """v = sum_j w_j v_j over the children, whose scopes are identical."""

    children: tuple[int, ...]


Node = Input | Leaf | Product | Sum


def children_of(node: Node) -> tuple[int, ...]:
    """The children of a sum or product; nothing for a leaf or an input."""
    return node.children if isinstance(node, Sum | Product) else ()

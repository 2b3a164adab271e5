"""The four kinds of node, which name their children by index; order and reachability among them."""

import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from dspn.errors import StructureError
from dspn.leaves.base import Family

_MOST_NAMED: Final = 20


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
    """v = sum_j w_j v_j over the children, whose scopes are identical.

    With `by`, the number of a categorical input of the schema, there is a table of weights for each
    of its values u, and v = sum_j w_j(u) v_j at a slice whose input has the value u.
    """

    children: tuple[int, ...]
    by: int | None = None


Node = Input | Leaf | Product | Sum


def children_of(node: Node) -> tuple[int, ...]:
    """The children of a sum or product; nothing for a leaf or an input."""
    return node.children if isinstance(node, Sum | Product) else ()


def check_children(nodes: Sequence[Node], network: str) -> None:
    """Raises unless every sum and product has children, distinct nodes of the network."""
    for index, node in enumerate(nodes):
        if not isinstance(node, Sum | Product):
            continue
        below, kind = node.children, type(node).__name__.lower()
        finding = ""
        if not below:
            finding = f"has no children; a {kind} needs at least one"
        elif min(below) < 0 or max(below) >= len(nodes):
            child = next(child for child in below if not 0 <= child < len(nodes))
            finding = f"names child {child}, but the network has nodes 0 to {len(nodes) - 1}"
        elif len(set(below)) < len(below):
            finding = f"names a child twice: {reprlib.repr(below)}; merge the repeated edges"
        if finding:
            raise StructureError(f"{kind} {index} of the {network} network {finding}.")


def topological_order(nodes: Sequence[Node], network: str) -> tuple[int, ...]:
    """Node indices, children before parents; ties by index. Raises on a cycle, naming its nodes."""
    state = [0] * len(nodes)  # 0 unseen, 1 on the path, 2 done
    order: list[int] = []
    for start in range(len(nodes)):
        if state[start]:
            continue
        path = [(start, iter(children_of(nodes[start])))]
        state[start] = 1
        while path:
            node, remaining = path[-1]
            child = next(remaining, None)
            if child is None:
                state[node] = 2
                order.append(node)
                path.pop()
            elif state[child] == 1:
                on_path = [index for index, _ in path]
                cycle = list(map(str, [*on_path[on_path.index(child) :], child]))
                if len(cycle) > _MOST_NAMED:
                    cycle[_MOST_NAMED // 2 : -_MOST_NAMED // 2] = ["..."]
                raise StructureError(
                    f"the {network} network has a cycle through nodes {' -> '.join(cycle)}; "
                    "a network is acyclic."
                )
            elif state[child] == 0:
                state[child] = 1
                path.append((child, iter(children_of(nodes[child]))))
    return tuple(order)


def reachable(nodes: Sequence[Node], roots: Iterable[int]) -> frozenset[int]:
    """Every node at or below one of the roots."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(children_of(nodes[node]))
    return frozenset(seen)

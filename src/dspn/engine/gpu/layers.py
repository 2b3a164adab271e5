"""Transitions of few edges: layers of sums, each of which is a set of small dense matrices.

Sums over the same children make a matrix. Matrices of one shape are multiplied together, so that a
Monarch transition of k nodes is two products of sqrt(k) matrices of sqrt(k) rows and columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from dspn._arguments import Ints
from dspn.engine.gpu.device import Array, Device
from dspn.engine.gpu.layout import rounds_of
from dspn.structure.nodes import Sum, children_of
from dspn.structure.template import Template


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """Matrices of one shape: sums `nodes` (count, m) of a layer over `children` (count, c).

    Both are places in the vectors above and below; the weights are (count, m, c), and `start` is
    the first of them.
    """

    nodes: Ints
    children: Ints
    start: int

    def of(self, weights: Array) -> Array:
        """The matrices."""
        shape = (*self.nodes.shape, self.children.shape[1])
        return weights[self.start : self.start + int(np.prod(shape))].reshape(shape)

    @cached_property
    def flat(self) -> tuple[Ints, Ints]:
        """Nodes and children, matrix after matrix."""
        return self.nodes.ravel(), self.children.ravel()

    @cached_property
    def rounds(self) -> tuple[tuple[Ints, Ints], ...]:
        """Places in `flat` and the children there, which are distinct in a round."""
        return rounds_of(self.children.ravel())


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """Sums whose children are all in the layer below."""

    below: int
    above: int
    blocks: tuple[Blocks, ...]


def layers_of(template: Template, sums: list[int]) -> tuple[tuple[Layer, ...], Ints] | None:
    """The layers from the inputs up to some sums, and the places of their weights.

    None where nodes between are not sums, or have children in several layers.
    """
    nodes = template.nodes
    level = dict.fromkeys(template.inputs, 0)
    for index in template.order:
        node, below = nodes[index], {level.get(child) for child in children_of(nodes[index])}
        if isinstance(node, Sum) and node.by is None and len(below) == 1 and None not in below:
            level[index] = 1 + max(own for own in below if own is not None)
    top = {level.get(index) for index in sums}
    if len(top) != 1 or None in top:
        return None
    wanted, found, places, start = list(sums), [], [], 0
    per_level = [wanted]
    for _ in range(max(own for own in top if own is not None) - 1):
        wanted = sorted({child for index in wanted for child in children_of(nodes[index])})
        per_level.append(wanted)
    position = {node: i for i, node in enumerate(template.inputs)}
    for own in reversed(per_level):
        sharing: dict[tuple[int, ...], list[int]] = {}
        for place, index in enumerate(own):
            sharing.setdefault(children_of(nodes[index]), []).append(place)
        shapes: dict[tuple[int, int], list[tuple[tuple[int, ...], list[int]]]] = {}
        for children, members in sharing.items():
            shapes.setdefault((len(members), len(children)), []).append((children, members))
        blocks = []
        for (m, c), same in shapes.items():
            above = np.array([members for _, members in same])
            below_places = np.array([[position[i] for i in children] for children, _ in same])
            first = np.array([template.edge_offsets[own[place]] for place in above.ravel()])
            places.append((first[:, None] + np.arange(c)).ravel())
            blocks.append(Blocks(above, below_places, start))
            start += len(same) * m * c
        found.append(Layer(len(position), len(own), tuple(blocks)))
        position = {node: i for i, node in enumerate(own)}
    return tuple(found), np.concatenate(places)


def _gathered(device: Device, rows: Array, places: Ints, count: int) -> Array:
    """Some columns of rows as (count, rows, columns)."""
    return rows[:, device.keep(places)].reshape(len(rows), count, -1).transpose(1, 0, 2)


def _flat(products: Array) -> Array:
    """Products (count, rows, columns) as (rows, count * columns)."""
    return products.transpose(1, 0, 2).reshape(products.shape[1], -1)


def rise(device: Device, layers: tuple[Layer, ...], weights: Array, rows: Array) -> list[Array]:
    """Values of every layer for rows of values of the inputs, which come first."""
    found, xp = [rows], device.xp
    for layer in layers:
        out = xp.empty((len(rows), layer.above), dtype=rows.dtype)
        for own in layer.blocks:
            nodes, children = own.flat
            below = _gathered(device, found[-1], children, len(own.children))
            product = xp.matmul(below, own.of(weights).transpose(0, 2, 1))
            out[:, device.keep(nodes)] = _flat(product)
        found.append(out)
    return found


def fall(device: Device, layers: tuple[Layer, ...], weights: Array, rows: Array) -> list[Array]:
    """Derivatives at every layer for rows of those at the topmost sums, which come first."""
    found, xp = [rows], device.xp
    for layer in reversed(layers):
        out = xp.zeros((len(rows), layer.below), dtype=rows.dtype)
        for own in layer.blocks:
            above = _gathered(device, found[-1], own.flat[0], len(own.nodes))
            handed = _flat(xp.matmul(above, own.of(weights)))
            for places, children in own.rounds:
                out[:, device.keep(children)] += handed[:, device.keep(places)]
        found.append(out)
    return found


def edge_flows(
    device: Device, layers: tuple[Layer, ...], weights: Array, uses: Array, vectors: Array
) -> Array:
    """Sum over rows of the derivative of each sum times the value of its child, in float64."""
    xp = device.xp
    total = xp.zeros(weights.shape)

    def pieces() -> Iterator[tuple[Any, Any]]:
        widest = max(max(layer.below, layer.above) for layer in layers)
        size = max(1, device.cells // widest)
        for start in range(0, len(uses), size):
            yield uses[start : start + size], vectors[start : start + size]

    for above, below in pieces():
        values = rise(device, layers[:-1], weights, below)
        derivatives = fall(device, layers[1:], weights, above)[::-1]
        for layer, value, derivative in zip(layers, values, derivatives, strict=True):
            for own in layer.blocks:
                one = _gathered(device, derivative, own.flat[0], len(own.nodes))
                other = _gathered(device, value, own.flat[1], len(own.children))
                out = own.of(total)
                out += xp.matmul(one.transpose(0, 2, 1), other)
    return total

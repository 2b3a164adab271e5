"""Transitions of few edges: layers of sums, each of which is a set of small dense matrices.

Sums over the same children make a matrix. Matrices of one shape are multiplied together, so that a
Monarch transition of k nodes is two products of sqrt(k) matrices of sqrt(k) rows and columns.
Between two products columns change their order, in one kernel.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from dspn._arguments import Ints
from dspn.engine.gpu.device import Array, Device, Places
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


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """Sums whose children are all in the layer below, from `below` values to `above`.

    Products take and leave columns matrix after matrix. `read`, `handed`, `taken` and `put` say how
    columns change their order before and after.
    """

    below: int
    above: int
    blocks: tuple[Blocks, ...]

    @cached_property
    def _children(self) -> Ints:
        return np.concatenate([own.children.ravel() for own in self.blocks])

    @property
    def columns(self) -> int:
        """Columns of the matrices below, of which several may be of one child."""
        return len(self._children)

    @cached_property
    def read(self) -> Places:
        """Columns of the matrices from values below."""
        return _reordered(self._children)

    @cached_property
    def handed(self) -> Places:
        """Derivatives below from columns of the matrices, several where children are shared."""
        children = self._children
        if self.read is None and len(children) == self.below:
            return None
        counts = np.bincount(children, minlength=self.below)
        start = np.concatenate([[0], np.cumsum(counts)])
        return start.astype(np.int32), np.argsort(children, kind="stable").astype(np.int32)

    @cached_property
    def taken(self) -> Places:
        """Columns of the matrices from derivatives of the sums."""
        return _reordered(np.concatenate([own.nodes.ravel() for own in self.blocks]))

    @cached_property
    def put(self) -> Places:
        """Values of the sums from columns of the matrices."""
        return None if self.taken is None else _reordered(np.argsort(self.taken[1]))

    def products(self, above: Array, below: Array) -> Iterator[tuple[Blocks, Array, Array]]:
        """The blocks with their columns of rows as stacks (count, rows, columns)."""
        up = down = 0
        for own in self.blocks:
            (count, m), c = own.nodes.shape, own.children.shape[1]
            pair = above[:, up : up + count * m], below[:, down : down + count * c]
            yield own, *(_stack(rows, count) for rows in pair)
            up, down = up + count * m, down + count * c


def _stack(rows: Array, count: int) -> Array:
    return rows.reshape(len(rows), count, -1).transpose(1, 0, 2)


def _reordered(places: Ints) -> Places:
    if np.array_equal(places, np.arange(len(places))):
        return None
    return np.arange(len(places) + 1, dtype=np.int32), places.astype(np.int32)


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


def rise(
    device: Device, layers: tuple[Layer, ...], weights: Array, rows: Array, narrow: bool
) -> tuple[Array, list[Array]]:
    """Values above the layers for rows of values below, and what the matrices of each read.

    With `narrow` what matrices read is rounded for tensor cores, as `rows` are already.
    """
    read = []
    for layer in layers:
        read.append(device.gathered(rows, layer.read))
        out = device.xp.empty((len(rows), layer.above), dtype=rows.dtype)
        for own, above, below in layer.products(out, read[-1]):
            device.multiply(below, own.of(weights).transpose(0, 2, 1), above)
        rows = device.gathered(out, layer.put, narrow and layer is not layers[-1])
    return rows, read


def fall(
    device: Device, layers: tuple[Layer, ...], weights: Array, rows: Array, narrow: bool
) -> tuple[Array, list[Array]]:
    """Derivatives below the layers for rows of those above, and what the matrices of each take.

    As with `rise`, `rows` are rounded already.
    """
    taken = []
    for layer in reversed(layers):
        taken.append(device.gathered(rows, layer.taken, narrow and layer is not layers[-1]))
        out = device.xp.empty((len(rows), layer.columns), dtype=rows.dtype)
        for own, above, below in layer.products(taken[-1], out):
            device.multiply(above, own.of(weights), below)
        rows = device.gathered(out, layer.handed)
    return rows, taken[::-1]


def edge_flows(
    device: Device, layers: tuple[Layer, ...], weights: Array, uses: Array, vectors: Array,
    narrow: bool,
) -> Array:  # fmt: skip
    """Sum over rows of the derivative of each sum times the value of its child, in float64."""
    xp = device.xp
    total = xp.zeros(weights.shape)
    size = max(1, device.cells // max(max(layer.below, layer.above) for layer in layers))
    for start in range(0, len(uses), size):
        rows = slice(start, start + size)
        values, read = rise(device, layers[:-1], weights, vectors[rows], narrow)
        derivatives, taken = fall(device, layers[1:], weights, uses[rows], narrow)
        read = [*read, device.gathered(values, layers[-1].read, narrow)]
        taken = [device.gathered(derivatives, layers[0].taken, narrow), *taken]
        for layer, *pair in zip(layers, taken, read, strict=True):
            for own, above, below in layer.products(*pair):
                out = xp.empty(own.of(total).shape, dtype=weights.dtype)
                device.multiply(above.transpose(0, 2, 1), below, out)
                own.of(total)[...] += out
    return total

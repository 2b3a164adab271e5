"""What tells one network from another, in 32 bytes."""

import hashlib
from collections.abc import Sequence

from dspn.structure.nodes import Input, Leaf, Node
from dspn.structure.parameters import Parameters
from dspn.structure.template import Template, Top


def _described(nodes: Sequence[Node]) -> list[tuple[str, tuple[int, ...]]]:
    """Kind and references of every node, in plain ints; its variable tells the family of a leaf."""
    found = []
    for node in nodes:
        if isinstance(node, Input):
            references: tuple[int, ...] = (node.position,)
        else:
            references = (node.variable,) if isinstance(node, Leaf) else node.children
        found.append((type(node).__name__, tuple(map(int, references))))
    return found


def fingerprint(template: Template, top: Top, parameters: Parameters, root: str) -> bytes:
    """SHA-256 of schema, nodes, root and the bits of every parameter."""
    schema = [v.identity() for v in template.schema]
    outputs = tuple(map(int, template.outputs))
    structure = (
        schema,
        (_described(template.nodes), outputs),
        (_described(top.nodes), int(top.root)),
        str(root),
    )
    digest = hashlib.sha256(repr(structure).encode())
    for part in (parameters.template, parameters.top, parameters.bottom):
        digest.update(b"tied" if part is None else b"own")
        for array in () if part is None else (part.weights, *part.leaves):
            digest.update(repr(array.shape).encode())
            digest.update(array.astype("<f8").tobytes())
    return digest.digest()

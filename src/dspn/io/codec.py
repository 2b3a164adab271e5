"""Mixtures of networks, and classifiers, as named arrays and a JSON object, and back.

The metadata holds what is small and read by people: the schema, the families of the leaves (one for
each variable), the interface groups, the root and the provenance. What grows with the network is a
tensor, structure included: the 65,536 sum edges of an HMM with 256 states take 256 KiB and no
parsing. `0` in the names below is the index of the component.

- `0.template.kinds` (nodes,): 0 for an input, 1 for a leaf, 2 for a product, 3 for a sum;
  `0.template.degrees` (nodes,): how many references it has; `0.template.references`: node after
  node, the children of a sum or product, the variable of a leaf, the position of an input;
  `0.template.outputs` (interfaces,).
- `0.template.tables` (nodes,), only where the weights of a sum depend on an input: the number of
  the input for such a sum, -1 for all other nodes.
- `0.template.weights` (sum edges,): the weights of all sums, node after node and table after table;
  `0.template.leaves.3` (leaves, parameters): the leaves of variable 3, in node order.
- `0.bottom.weights`, `0.bottom.leaves.3`: the same for a bottom network that is not tied.
- `0.top.kinds`, `0.top.degrees`, `0.top.references`, `0.top.weights`: the top network.
- `weights` (components,): the weights of the root sum; absent where there is one component.
- `online.0.template.weights` and the like: what online learning remembers, see
  `dspn.learning.online`; absent in most models.

Any addition raises `FORMAT_VERSION`: a file with an unknown entry is refused. A model of one
component is written as version 1, a mixture of several as version 2, a model in which a variable
has a `leaf`, a family that is not the usual one of its kind, as version 3, one with statistics of
online learning as version 4, and one whose schema has inputs, described by `inputs`, as version 5.

A classifier has the metadata `classes`, `models` (the metadata of the model of each class, with its
version) and `provenance`; tensor `t` of the model of class 2 is called `class.2.t`, and `logits`
has an entry for each class.
"""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats
from dspn.data.inputs import rule_from_json
from dspn.data.schema import Schema, Variable
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.io.json_values import JSON, fields, items, plain, refuse_if, text, whole
from dspn.leaves import Families, Family, family_from_json
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork
from dspn.structure.nodes import Input, Leaf, Node, Product, Sum
from dspn.structure.parameters import NetworkParameters, Parameters
from dspn.structure.template import Template, Top

_STRUCTURE: Final = {"kinds": "u1", "degrees": "i4", "references": "i4"}
_VARIABLE: Final = ("categories", "kind", "name")
_ONLINE: Final = "online."
_TABLES: Final = "template.tables"
_COMPONENT: Final = ("bottom", "families", "groups", "root", "top_root")
# The position of a class is its number in a file.
_NODES: Final = (Input, Leaf, Product, Sum)
# Arrays of text give every entry the room of the longest.
_LONGEST_LABEL: Final = 1000

Label = str | int | float | bool
Tensors = dict[str, NDArray[Any]]


@final
class Contents(NamedTuple):
    """What a file holds: arrays by name, and the JSON object that says what they mean.

    `version` is the least format version that has everything in it.
    """

    tensors: Tensors
    metadata: dict[str, JSON]
    version: int = 1


@final
@dataclass(frozen=True, eq=False)
class LoadedMixture:
    """A mixture that passed every check, and the provenance that was saved with it.

    `online` has the arrays that online learning goes on from; there are none in most models.
    """

    mixture: Mixture
    provenance: dict[str, JSON]
    online: dict[str, Floats] = field(default_factory=dict)

    @property
    def network(self) -> DynamicNetwork:
        """The only component; raises where there are several."""
        return self.mixture.only


@final
@dataclass(frozen=True, eq=False)
class LoadedClassifier:
    """The classes, their logits, their models, and the provenance saved with the classifier."""

    classes: tuple[Label, ...]
    logits: Floats
    models: tuple[LoadedMixture, ...]
    provenance: dict[str, JSON]


def encode(
    mixture: Mixture,
    provenance: Mapping[str, JSON] | None = None,
    online: Mapping[str, Floats] | None = None,
) -> Contents:
    """Everything a file says about the mixture; a function of the arguments only."""
    tensors: Tensors = {}
    for index, network in enumerate(mixture):
        tensors |= {f"{index}.{name}": array for name, array in _tensors(network).items()}
    if len(mixture) > 1:
        tensors["weights"] = mixture.weights
    tensors |= {f"{_ONLINE}{name}": np.ascontiguousarray(a) for name, a in (online or {}).items()}
    schema = [_described(own) for own in mixture.schema]
    metadata: dict[str, JSON] = {
        "components": [_component(network) for network in mixture],
        "provenance": fields(plain(provenance or {}, "`provenance`"), "`provenance`"),
        "schema": schema,
    }
    if mixture.schema.inputs:
        metadata["inputs"] = [_described(own) for own in mixture.schema.inputs]
    version = _version_of(schema, len(mixture), bool(online), "inputs" in metadata)
    return Contents(tensors, metadata, version)


def _described(own: Variable) -> dict[str, Any]:
    """A variable or an input as JSON."""
    out: dict[str, Any] = {
        "categories": list(own.categories),
        "kind": str(own.kind),
        "name": own.name,
    }
    if own.leaf is not None:
        out["leaf"] = plain(own.leaf.to_json(), f"leaf of {own.name}")
    if own.rule is not None:
        out["rule"] = plain(own.rule.to_json(), f"rule of {own.name}")
    return out if own.default is None else out | {"default": own.default}


def _version_of(
    schema: Sequence[Mapping[str, Any]],
    num_components: int,
    has_online: bool = False,
    has_inputs: bool = False,
) -> int:
    if has_inputs:
        return 5
    if has_online:
        return 4
    return 3 if any("leaf" in own for own in schema) else min(num_components, 2)


def _component(network: DynamicNetwork) -> JSON:
    return {
        "bottom": "tied" if network.parameters.tied else "own",
        "families": [dict(bank.family.to_json()) for bank in network.template.banks],
        "groups": list(network.group_of),
        "root": str(network.root),
        "top_root": network.top.root,
    }


def _tensors(network: DynamicNetwork) -> Tensors:
    tensors: Tensors = {"template.outputs": np.array(network.template.outputs, dtype=np.int32)}
    for prefix, nodes in (("template", network.template.nodes), ("top", network.top.nodes)):
        references = [*map(_references, nodes)]
        arrays = [_NODES.index(type(node)) for node in nodes], [*map(len, references)]
        for name, array in zip(_STRUCTURE, (*arrays, [*chain(*references)]), strict=True):
            tensors[f"{prefix}.{name}"] = np.array(array, dtype=_STRUCTURE[name])
    if network.template.has_tables:
        by = (node.by if isinstance(node, Sum) else None for node in network.template.nodes)
        tensors[_TABLES] = np.array([-1 if own is None else own for own in by], dtype=np.int32)
    own = network.parameters
    for prefix, part in (("template", own.template), ("top", own.top), ("bottom", own.bottom)):
        if part is not None:
            tensors[f"{prefix}.weights"] = part.weights
            tensors |= {f"{prefix}.leaves.{bank}": rows for bank, rows in enumerate(part.leaves)}
    return tensors


def _references(node: Node) -> tuple[int, ...]:
    if isinstance(node, Input):
        return (node.position,)
    return (node.variable,) if isinstance(node, Leaf) else node.children


def decode_any(contents: Contents, families: Families = ()) -> "LoadedMixture | LoadedClassifier":
    """The inverse of `encode` or of `encode_classifier`, whichever has made the contents."""
    is_classifier = "classes" in contents.metadata
    return (decode_classifier if is_classifier else decode)(contents, families)


def decode(contents: Contents, families: Families = ()) -> LoadedMixture:
    """The inverse of `encode`; raises with the reason where the contents are no valid model.

    `families` are the leaf families from outside the library that the model may have.
    """
    refuse_if(
        "classes" in contents.metadata,
        "it is a classifier, which has a model for each class; it is for `dspn.load`, `dspn "
        "classify predict` and `dspn inspect`",
    )
    known = ["components", "provenance", "schema", *(["inputs"] if contents.version >= 5 else [])]
    metadata = fields(contents.metadata, "its metadata", sorted(known))
    components = items(metadata["components"], "`components`")
    described, inputs = (
        [
            fields(item, "a variable of the schema")
            for item in items(metadata.get(key, []), f"`{key}`")
        ]
        for key in ("schema", "inputs")
    )
    count, version = len(components), contents.version
    names = [name for name in contents.tensors if name.startswith(_ONLINE)]
    online = {name.removeprefix(_ONLINE): _finite_numbers(contents.tensors, name) for name in names}
    rules = {1: "one", 2: "at least two", 4: "statistics of online learning", 5: "inputs"}
    rule = rules.get(version, "a variable with a leaf family")
    refuse_if(
        count < 1 or version != _version_of(described, count, bool(online), bool(inputs)),
        f"it has {count} components, but format version {version} has {rule}; it is damaged",
    )
    provenance = fields(plain(metadata["provenance"], "`provenance`"), "`provenance`")
    try:
        variables, own = (
            tuple(_variable(variable, families) for variable in part)
            for part in (described, inputs)
        )
        schema = Schema(variables, own)
        tensors = {name: own for name, own in contents.tensors.items() if name not in names}
        mixture = _mixture(schema, components, tensors, families)
    except (StructureError, DataError) as error:
        raise ModelFileError(f"it holds a model that is not valid: {error}") from error
    return LoadedMixture(mixture, provenance, online)


def _variable(described: dict[str, JSON], families: Families) -> Variable:
    more = [name for name in ("default", "leaf", "rule") if name in described]
    fields(described, "a variable of the schema", sorted([*_VARIABLE, *more]))
    name = text(described["name"], "the name of a variable")
    kind: Any = text(described["kind"], f"the kind of variable {name!r}")
    # `Variable` checks what the kind and the categories are.
    categories: list[Any] = items(described["categories"], f"the categories of variable {name!r}")
    leaf = _family(described["leaf"], families) if "leaf" in more else None
    rule = None
    if "rule" in more:
        rule = rule_from_json(fields(described["rule"], f"the rule of input {name!r}"))
    default: Any = described.get("default")
    return Variable(name, kind, tuple(categories), leaf, rule, default)


def _family(value: JSON, families: Families) -> Family:
    return family_from_json(fields(value, "a leaf family"), families)


def _mixture(
    schema: Schema, components: list[JSON], tensors: Tensors, families: Families
) -> Mixture:
    described = [fields(value, "a component", _COMPONENT) for value in components]
    several = len(described) > 1
    expected = {"weights"} if several else set()
    for index, component in enumerate(described):
        bottom = component["bottom"]
        refuse_if(
            bottom not in ("tied", "own"), "the `bottom` of a component must be 'tied' or 'own'"
        )
        names = ["template.outputs", "top.weights"]
        names += [f"{part}.{array}" for part in ("template", "top") for array in _STRUCTURE]
        for part in ("template", "bottom")[: 1 + (bottom == "own")]:
            names += [f"{part}.weights", *(f"{part}.leaves.{i}" for i in range(len(schema)))]
        if schema.inputs and f"{index}.{_TABLES}" in tensors:
            names.append(_TABLES)
        expected |= {f"{index}.{name}" for name in names}
    missing, unknown = sorted(expected - tensors.keys()), sorted(tensors.keys() - expected)
    refuse_if(
        missing or unknown,
        f"its tensors are not those of its schema and structure: {len(missing)} are missing "
        f"{missing[:5]}, {len(unknown)} are unknown {unknown[:5]}",
    )
    networks = []
    for index, component in enumerate(described):
        try:
            networks.append(_network(schema, component, tensors, str(index), families))
        except (StructureError, DataError) as error:
            raise type(error)(f"component {index}: {error}" if several else str(error)) from error
    weights = _finite_numbers(tensors, "weights") if several else np.ones(1)
    return Mixture(tuple(networks), weights)


def _network(
    schema: Schema, component: dict[str, JSON], tensors: Tensors, prefix: str, given: Families
) -> DynamicNetwork:
    described = items(component["families"], "the `families` of a component")
    refuse_if(
        len(described) != len(schema),
        f"it has {len(described)} leaf families, but {len(schema)} variables; each variable has "
        "one",
    )
    families = [_family(family, given) for family in described]
    outputs = _whole_numbers(tensors, f"{prefix}.template.outputs").tolist()
    nodes = _with_tables(_nodes(tensors, f"{prefix}.template", families), tensors, prefix)
    template = Template(schema, nodes, tuple(outputs))
    top_root = whole(component["top_root"], "the `top_root` of a component")
    top = Top(len(outputs), _nodes(tensors, f"{prefix}.top", families), top_root)
    own_bottom = component["bottom"] == "own"
    parameters = Parameters(
        _parameters(tensors, f"{prefix}.template", len(schema)),
        _parameters(tensors, f"{prefix}.top", 0),
        _parameters(tensors, f"{prefix}.bottom", len(schema)) if own_bottom else None,
    )
    root: Any = text(component["root"], "the `root` of a component")
    network = DynamicNetwork(template, top, parameters, root)
    differ = component["groups"] != list(network.group_of)
    refuse_if(differ, "its interface `groups` are not those of its template")
    return network


def _with_tables(nodes: tuple[Node, ...], tensors: Tensors, prefix: str) -> tuple[Node, ...]:
    """The nodes, with the inputs that the weights of sums depend on."""
    if f"{prefix}.{_TABLES}" not in tensors:
        return nodes
    by = _whole_numbers(tensors, f"{prefix}.{_TABLES}")
    is_sum = np.array([isinstance(node, Sum) for node in nodes])
    fits = by.size == len(nodes) and bool(np.all(is_sum | (by == -1)) and np.all(by >= -1))
    refuse_if(not fits, f"tensor '{prefix}.{_TABLES}' does not fit the nodes of the template")
    return tuple(
        Sum(node.children, None if own < 0 else own) if isinstance(node, Sum) else node
        for node, own in zip(nodes, by.tolist(), strict=True)
    )


def _whole_numbers(tensors: Tensors, name: str, dtype: str = "i4") -> NDArray[Any]:
    array = tensors[name]
    refuse_if(
        array.dtype != np.dtype(dtype) or array.ndim != 1,
        f"tensor {name!r} must be a vector of type {np.dtype(dtype).name}, but is of type "
        f"{array.dtype.name} and shape {array.shape}",
    )
    return array


def _finite_numbers(tensors: Tensors, name: str) -> Floats:
    array, kind = tensors[name], tensors[name].dtype
    refuse_if(kind != np.float64, f"tensor {name!r} must be of type float64, but is {kind.name}")
    wrong = np.count_nonzero(~np.isfinite(array))
    refuse_if(
        wrong, f"tensor {name!r} has {wrong} of {array.size} entries that are NaN or infinite"
    )
    return array


def _parameters(tensors: Tensors, prefix: str, num_variables: int) -> NetworkParameters:
    weights = _finite_numbers(tensors, f"{prefix}.weights")
    leaves = [_finite_numbers(tensors, f"{prefix}.leaves.{i}") for i in range(num_variables)]
    return NetworkParameters(weights, tuple(leaves))


def _nodes(tensors: Tensors, prefix: str, families: Sequence[Family]) -> tuple[Node, ...]:
    parts = (_whole_numbers(tensors, f"{prefix}.{name}", _STRUCTURE[name]) for name in _STRUCTURE)
    kinds, degrees, references = parts
    ends = np.cumsum(degrees, dtype=np.int64)
    total = ends[-1] if ends.size else 0
    refuse_if(
        kinds.shape != degrees.shape or np.any(degrees < 0) or total != references.size,
        f"tensors '{prefix}.kinds', '{prefix}.degrees' and '{prefix}.references' do not fit "
        f"together: {kinds.size} kinds, {degrees.size} degrees that must not be negative and sum "
        f"to {total}, {references.size} references",
    )
    for node in np.flatnonzero((kinds > 3) | ((kinds < 2) & (degrees != 1)))[:1]:
        raise ModelFileError(
            f"{prefix} node {node} has kind {kinds[node]} and {degrees[node]} references; kinds "
            "are 0 to 3, and inputs and leaves have one reference"
        )
    leaves = np.flatnonzero(kinds == _NODES.index(Leaf))
    variables = references[ends[leaves] - 1]
    for leaf in np.flatnonzero((variables < 0) | (variables >= len(families)))[:1]:
        raise ModelFileError(
            f"{prefix} node {leaves[leaf]} is a leaf of variable {variables[leaf]}, but variables "
            f"are 0 to {len(families) - 1}"
        )

    def make(kind: int, refers_to: tuple[int, ...]) -> Node:
        if kind < 2:
            (place,) = refers_to
            return Leaf(place, families[place]) if kind else Input(place)
        return Product(refers_to) if kind == 2 else Sum(refers_to)

    flat, stops = references.tolist(), ends.tolist()
    places = zip(kinds.tolist(), [0, *stops], stops, strict=False)
    return tuple(make(kind, tuple(flat[start:stop])) for kind, start, stop in places)


def encode_classifier(
    classes: Sequence[Label],
    logits: Floats,
    models: Sequence[tuple[Mixture, Mapping[str, JSON]]],
    provenance: Mapping[str, JSON],
    online: Sequence[Mapping[str, Floats]] = (),
) -> Contents:
    """A mixture with its own provenance for each class, and the logits of the classes."""
    states = online or [{}] * len(models)
    encoded = [encode(*model, own) for model, own in zip(models, states, strict=True)]
    tensors: Tensors = {"logits": np.ascontiguousarray(logits, dtype=np.float64)}
    for number, own in enumerate(encoded):
        tensors |= {f"class.{number}.{name}": array for name, array in own.tensors.items()}
    metadata: dict[str, JSON] = {
        "classes": plain(list(classes), "`classes`"),
        "models": [{**own.metadata, "version": own.version} for own in encoded],
        "provenance": fields(plain(provenance, "`provenance`"), "`provenance`"),
    }
    _check_classes(metadata, tensors)
    _check_variables([mixture for mixture, _ in models])
    return Contents(tensors, metadata, max(2, *(own.version for own in encoded)))


def decode_classifier(contents: Contents, families: Families = ()) -> LoadedClassifier:
    """The inverse of `encode_classifier`; raises with the reason for anything else."""
    refuse_if(
        "classes" not in contents.metadata,
        "it cannot be read as a classifier: it holds a model, not a classifier; `dspn classify "
        "fit` makes one",
    )
    metadata = fields(contents.metadata, "its metadata", ("classes", "models", "provenance"))
    _check_classes(metadata, contents.tensors)
    described = [fields(value, "a model") for value in items(metadata["models"], "`models`")]
    own: dict[str, Tensors] = {f"class.{number}": {} for number in range(len(described))}
    for name, array in contents.tensors.items():
        owner = ".".join(name.split(".", 2)[:2])
        if owner in own:
            own[owner][name.removeprefix(f"{owner}.")] = array
        elif name != "logits":
            raise ModelFileError(f"it has a tensor {name!r}, which belongs to no class")
    models = []
    for tensors, value in zip(own.values(), described, strict=True):
        version = whole(value.pop("version", None), "the version of a model")
        models.append(decode(Contents(tensors, value, version), families))
    _check_variables([model.mixture for model in models])
    classes: list[Any] = items(metadata["classes"], "`classes`")
    provenance = fields(metadata["provenance"], "`provenance`")
    return LoadedClassifier(tuple(classes), contents.tensors["logits"], tuple(models), provenance)


def _check_classes(metadata: Mapping[str, JSON], tensors: Tensors) -> None:
    """Raises unless there is a model and a finite logit for each of at least two classes."""
    classes = items(metadata["classes"], "`classes`")
    models = items(metadata["models"], "`models`")
    kinds = {float if type(label) is int else type(label) for label in classes}
    too_long = any(isinstance(label, str) and len(label) > _LONGEST_LABEL for label in classes)
    # Different as an array, too, where `a` and `a\0` are one text.
    refuse_if(
        kinds not in ({str}, {bool}, {float})
        or too_long
        or np.unique(np.array(classes)).size < max(2, len(classes)),
        "there must be at least two classes that differ, all numbers, all booleans or all text of "
        f"at most {_LONGEST_LABEL} characters, found {reprlib.repr(classes)}",
    )
    count, logits = len(classes), tensors.get("logits", np.empty(0))
    fits = logits.dtype == np.float64 and logits.shape == (count,)
    refuse_if(not fits, f"there must be a logit for each of the {count} classes")
    refuse_if(not np.isfinite(logits).all(), "the logits of the classes must be finite")
    refuse_if(len(models) != count, f"there are {len(models)} models for {count} classes")


def _check_variables(mixtures: Sequence[Mixture]) -> None:
    several = len({mixture.schema for mixture in mixtures}) > 1
    refuse_if(several, "the models of the classes differ in their variables")

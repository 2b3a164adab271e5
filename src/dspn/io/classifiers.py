"""Classifiers in files: a model for each class, and the logits of the classes, in one file.

The file is of the same kind as a model's, a safetensors file under one checksum. Its metadata has
`classes`, `models` (what a model's file would have as metadata, with its version), `provenance` and
nothing else; tensor `t` of the model of class 2 is called `class.2.t`, and `logits` has an entry
for each class. A reader of models refuses it, as it has other entries.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats
from dspn.errors import ModelFileError
from dspn.io.atomic import write_atomically
from dspn.io.container import FORMAT_VERSION, Contents, Tensors, check_start, pack, unpack
from dspn.io.decode import LoadedMixture, decode
from dspn.io.encode import encode
from dspn.io.json_values import JSON, fields, items, plain, whole
from dspn.io.paths import path_text
from dspn.structure import Mixture

_LOGITS: Final = "logits"
_ENTRIES: Final = ("classes", "models", "provenance")

Label = str | int | float | bool


@final
@dataclass(frozen=True, eq=False)
class LoadedClassifier:
    """The classes, their logits and their models, and what was said of the classifier's origin."""

    classes: tuple[Label, ...]
    logits: Floats
    models: tuple[LoadedMixture, ...]
    provenance: dict[str, JSON]


def save_classifier(
    path: str | bytes | os.PathLike[str],
    classes: Sequence[Label],
    logits: Floats,
    models: Sequence[tuple[Mixture, Mapping[str, JSON]]],
    *,
    provenance: Mapping[str, JSON] | None = None,
) -> None:
    """Writes the model of each class, with its own provenance, and log P(class) but for a constant.

    A failure leaves what was at `path` as it was.
    """
    name = path_text(path)
    try:
        data = pack(_contents(classes, logits, models, provenance or {}))
    except ModelFileError as error:
        raise ModelFileError(f"cannot write {name!r}: {error}.") from error
    write_atomically(name, data)


def _contents(
    classes: Sequence[Label],
    logits: Floats,
    models: Sequence[tuple[Mixture, Mapping[str, JSON]]],
    provenance: Mapping[str, JSON],
) -> Contents:
    tensors: Tensors = {_LOGITS: np.ascontiguousarray(logits, dtype=np.float64)}
    described: list[JSON] = []
    for number, (mixture, origin) in enumerate(models):
        own = encode(mixture, origin)
        tensors |= {f"class.{number}.{name}": array for name, array in own.tensors.items()}
        described.append({**own.metadata, "version": own.version})
    metadata: dict[str, JSON] = {
        "classes": plain(list(classes), "`classes`"),
        "models": described,
        "provenance": fields(plain(provenance, "`provenance`"), "`provenance`"),
    }
    _check(metadata, tensors)
    _check_variables([mixture for mixture, _ in models])
    return Contents(tensors, metadata, FORMAT_VERSION)


def is_classifier(path: str | bytes | os.PathLike[str]) -> bool:
    """Whether a file says that it holds a classifier; what cannot be read does not."""
    try:
        return "classes" in _unpacked(path_text(path)).metadata
    except ModelFileError:
        return False


def load_classifier(path: str | bytes | os.PathLike[str]) -> LoadedClassifier:
    """What `save_classifier` wrote; anything else is refused with the reason."""
    name = path_text(path)
    try:
        return _decoded(_unpacked(name))
    except ModelFileError as error:
        reason = str(error).rstrip(".")
        raise ModelFileError(f"cannot load {name!r} as a classifier: {reason}.") from error


def _unpacked(name: str) -> Contents:
    try:
        with open(name, "rb") as file:
            start = file.read(9)
            check_start(start, os.fstat(file.fileno()).st_size)
            data = start + file.read()
    except FileNotFoundError as error:
        raise ModelFileError("there is no such file") from error
    except OSError as error:
        raise ModelFileError(f"it cannot be read ({error.strerror or error})") from error
    return unpack(data)


def _check(metadata: Mapping[str, JSON], tensors: Tensors) -> None:
    """Raises unless there is a model and a finite logit for each of at least two classes."""
    classes = items(metadata["classes"], "`classes`")
    models = items(metadata["models"], "`models`")
    logits = tensors.get(_LOGITS)
    if not all(isinstance(label, str | int | float) for label in classes):
        raise ModelFileError("the `classes` must be text, numbers or booleans")
    if len(set(map(repr, classes))) < len(classes) or len(classes) < 2:
        raise ModelFileError(f"there must be at least two classes that differ, found {classes}")
    if logits is None or logits.dtype != np.float64 or logits.shape != (len(classes),):
        raise ModelFileError(f"there must be a logit for each of the {len(classes)} classes")
    if not np.isfinite(logits).all():
        raise ModelFileError("the logits of the classes must be finite")
    if len(models) != len(classes):
        raise ModelFileError(f"there are {len(models)} models for {len(classes)} classes")


def _check_variables(mixtures: Sequence[Mixture]) -> None:
    if len({mixture.schema for mixture in mixtures}) > 1:
        raise ModelFileError("the models of the classes differ in their variables")


def _decoded(contents: Contents) -> LoadedClassifier:
    metadata = fields(contents.metadata, "its metadata", _ENTRIES)
    _check(metadata, contents.tensors)
    models = [
        _model(contents.tensors, number, fields(value, "a model"))
        for number, value in enumerate(items(metadata["models"], "`models`"))
    ]
    known = sum(name.startswith("class.") for name in contents.tensors) + 1
    if known != len(contents.tensors):
        raise ModelFileError("it has tensors that belong to no class")
    _check_variables([model.mixture for model in models])
    classes: list[Label] = items(metadata["classes"], "`classes`")  # type: ignore[assignment]
    provenance = fields(metadata["provenance"], "`provenance`")
    logits: Floats = contents.tensors[_LOGITS]
    return LoadedClassifier(tuple(classes), logits, tuple(models), provenance)


def _model(tensors: Tensors, number: int, value: dict[str, JSON]) -> LoadedMixture:
    prefix = f"class.{number}."
    own = {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }
    version = whole(value.get("version"), "the version of a model")
    metadata = {name: item for name, item in value.items() if name != "version"}
    return decode(Contents(own, metadata, version))

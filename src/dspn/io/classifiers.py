"""Classifiers in files: a model for each class, and the logits of the classes, in one file.

The file is of the same kind as a model's, a safetensors file under one checksum. Its metadata has
`classes`, `models` (what a model's file would have as metadata, with its version), `provenance` and
nothing else; tensor `t` of the model of class 2 is called `class.2.t`, and `logits` has an entry
for each class. A reader of models refuses it, as it has other entries.
"""

import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dspn._arrays import Floats
from dspn.errors import ModelFileError
from dspn.io.atomic import write_atomically
from dspn.io.container import FORMAT_VERSION, Contents, Tensors, pack
from dspn.io.decode import LoadedMixture, decode
from dspn.io.encode import encode
from dspn.io.files import load_by
from dspn.io.json_values import JSON, fields, items, plain, whole
from dspn.io.paths import path_text
from dspn.structure import Mixture

_LOGITS: Final = "logits"
# Arrays of text give every entry the room of the longest.
_LONGEST_LABEL: Final = 1000
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


def load_classifier(path: str | bytes | os.PathLike[str]) -> LoadedClassifier:
    """What `save_classifier` wrote; anything else is refused with the reason."""
    return load_by(path, _classifier)


def load_any(path: str | bytes | os.PathLike[str]) -> LoadedMixture | LoadedClassifier:
    """A model or a classifier, whichever a file says that it holds."""
    return load_by(path, _model_or_classifier)


def _model_or_classifier(contents: Contents) -> LoadedMixture | LoadedClassifier:
    return _classifier(contents) if "classes" in contents.metadata else decode(contents)


def _classifier(contents: Contents) -> LoadedClassifier:
    if "classes" not in contents.metadata:
        raise ModelFileError(
            "it cannot be read as a classifier, it holds a model, not a classifier; `dspn classify "
            "fit` makes one"
        )
    return _decoded(contents)


def _check(metadata: Mapping[str, JSON], tensors: Tensors) -> None:
    """Raises unless there is a model and a finite logit for each of at least two classes."""
    classes = items(metadata["classes"], "`classes`")
    models = items(metadata["models"], "`models`")
    logits = tensors.get(_LOGITS)
    kinds = {_kind(label) for label in classes}
    # As an array, where `a` and `a\0` are one text.
    if len(kinds) != 1 or None in kinds or np.unique(np.array(classes)).size < max(2, len(classes)):
        raise ModelFileError(
            "there must be at least two classes that differ, all numbers, all booleans or all text "
            f"of at most {_LONGEST_LABEL} characters, found {reprlib.repr(classes)}"
        )
    if logits is None or logits.dtype != np.float64 or logits.shape != (len(classes),):
        raise ModelFileError(f"there must be a logit for each of the {len(classes)} classes")
    if not np.isfinite(logits).all():
        raise ModelFileError("the logits of the classes must be finite")
    if len(models) != len(classes):
        raise ModelFileError(f"there are {len(models)} models for {len(classes)} classes")


def _kind(label: JSON) -> type | None:
    """What a class is: text, a boolean or a number; None for what no class can be."""
    if isinstance(label, str):
        return str if len(label) <= _LONGEST_LABEL else None
    if isinstance(label, bool):
        return bool
    return float if isinstance(label, int | float) else None


def _check_variables(mixtures: Sequence[Mixture]) -> None:
    if len({mixture.schema for mixture in mixtures}) > 1:
        raise ModelFileError("the models of the classes differ in their variables")


def _decoded(contents: Contents) -> LoadedClassifier:
    metadata = fields(contents.metadata, "its metadata", _ENTRIES)
    _check(metadata, contents.tensors)
    described = [fields(value, "a model") for value in items(metadata["models"], "`models`")]
    own: dict[str, Tensors] = {f"class.{number}": {} for number in range(len(described))}
    for name, array in contents.tensors.items():
        owner = ".".join(name.split(".", 2)[:2])
        if owner in own:
            own[owner][name.removeprefix(f"{owner}.")] = array
        elif name != _LOGITS:
            raise ModelFileError(f"it has a tensor {name!r}, which belongs to no class")
    models = tuple(map(_model, own.values(), described))
    _check_variables([model.mixture for model in models])
    classes: list[Label] = items(metadata["classes"], "`classes`")  # type: ignore[assignment]
    provenance = fields(metadata["provenance"], "`provenance`")
    logits: Floats = contents.tensors[_LOGITS]
    return LoadedClassifier(tuple(classes), logits, models, provenance)


def _model(tensors: Tensors, value: dict[str, JSON]) -> LoadedMixture:
    version = whole(value.get("version"), "the version of a model")
    metadata = {name: item for name, item in value.items() if name != "version"}
    return decode(Contents(tensors, metadata, version))

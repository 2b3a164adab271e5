"""Labels of sequences: one for each, none missing, two classes or more."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dspn._arrays import Floats, Ints
from dspn.data import Schema, Sequences
from dspn.data.sequences import joined, sequences_of
from dspn.errors import DataError
from dspn.learning.ascent import LabelledSequences
from dspn.models._training import TrainingData, training_data


def checked_labels(y: Any, num_sequences: int) -> NDArray[Any]:
    """One label for each sequence, none of them missing."""
    labels = column_or_1d(y, warn=True)
    if labels.size != num_sequences:
        raise DataError(
            f"`y` must have a label for each of the {num_sequences} sequences, but has "
            f"{labels.size}."
        )
    missing = [
        index
        for index, label in enumerate(labels.tolist())
        if label is None or (isinstance(label, float) and not np.isfinite(label))
    ]
    if missing:
        others = f", as are {len(missing) - 1} others" if len(missing) > 1 else ""
        raise DataError(
            f"`y` must have no missing labels, but entry {missing[0]} is "
            f"{labels.tolist()[missing[0]]!r}{others}; leave these sequences out."
        )
    check_classification_targets(labels)
    found: NDArray[Any] = labels
    return found


def coded_labels(labels: NDArray[Any], weights: Floats | None) -> tuple[NDArray[Any], Ints]:
    """The classes that have any weight, at least two, and the number of each label's class.

    Labels of other classes, whose sequences do not count, are numbered -1.
    """
    counted = labels if weights is None else labels[weights > 0]
    classes = np.unique(counted)
    if classes.size < 2:
        raise DataError(
            f"`y` must have at least two classes, but every sequence that counts is of the class "
            f"{classes.tolist()[0]!r}; a model of one class is an `HMM` or a `DSPN`."
        )
    place = np.minimum(np.searchsorted(classes, labels), classes.size - 1)
    return classes, np.where(classes[place] == labels, place, -1)


def labelled(validation: Any, schema: Schema, classes: NDArray[Any]) -> tuple[Sequences, Ints]:
    """The pair (X, y) of a validation set, its labels as numbers of classes."""
    if not (isinstance(validation, tuple) and len(validation) == 2):
        raise DataError(
            "`validation` must be a pair (X, y) of sequences and their labels, but is a "
            f"{type(validation).__name__}; write validation=(X, y)."
        )
    data = sequences_of(validation[0], schema, "validation")
    labels = checked_labels(validation[1], len(data))
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise DataError(
            f"`validation` must have the classes of `y`, {classes.tolist()}, but has "
            f"{labels[unknown].tolist()[0]!r}; leave these sequences out."
        )
    absent = classes[~np.isin(classes, labels)]
    if absent.size:
        raise DataError(
            f"`validation` must have sequences of every class, but has none of "
            f"{absent.tolist()[0]!r}; add some, or leave `validation` out."
        )
    return data, np.searchsorted(classes, labels)


def log_shares(codes: Ints, weights: Floats | None) -> Floats:
    """Log of each class's share of the sequences; those of no class do not count."""
    counted = codes >= 0
    own = None if weights is None else weights[counted]
    counts = np.bincount(codes[counted], weights=own)
    shares: Floats = np.log(counts / counts.sum())
    return shares


def class_parts(
    data: Sequences,
    codes: Ints,
    weights: Floats | None,
    held: tuple[Sequences, Ints] | None,
    fraction: float,
    seed: int,
) -> list[TrainingData]:
    """Training and validation sets of each class, and a seed for each."""
    parts = []
    for code in range(codes.max() + 1):
        own = np.flatnonzero(codes == code)
        chosen = None if held is None else held[0][np.flatnonzero(held[1] == code)]
        share = None if weights is None else weights[own]
        own_seed = int(np.random.SeedSequence([seed, code]).generate_state(1)[0])
        parts.append(training_data(data[own], share, chosen, fraction, own_seed))
    return parts


def together(parts: Sequence[Sequences], weights: Sequence[Floats | None]) -> LabelledSequences:
    """The sequences of all classes; `parts[c]` are those of class c."""
    own = [
        np.ones(len(part)) if weight is None else weight
        for part, weight in zip(parts, weights, strict=True)
    ]
    labels = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return LabelledSequences(joined(parts), labels, np.concatenate(own))

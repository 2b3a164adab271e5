"""Data as scikit-learn's users give them, read as sequences."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from dspn._arrays import Floats
from dspn._checks import require_type, sequence_weights, whole_number
from dspn.data import Schema, Sequences
from dspn.data.sequences import sequences_of
from dspn.errors import DataError

_LARGEST_SEED = 2**32


def seed_of(random_state: Any) -> int:
    """The seed that `random_state` stands for, as scikit-learn takes it, or a NumPy generator.

    A whole number is the seed itself; anything else is asked for one.
    """
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_LARGEST_SEED))
    if random_state is None or isinstance(random_state, np.random.RandomState):
        source = check_random_state(random_state)
        return int(source.randint(0, _LARGEST_SEED, dtype=np.uint32))
    return whole_number(random_state, "random_state", DataError, least=0)


def rng_of(random_state: Any) -> np.random.Generator:
    """The generator that draws are made with: the one given, or one with the seed of the rest."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(seed_of(random_state))


def _is_matrix(X: Any) -> bool:
    """Whether X is one table of numbers, as opposed to a list of sequences."""
    if isinstance(X, list | tuple | Sequences):
        return False
    shape = getattr(X, "shape", None)
    if shape is None and hasattr(X, "__array__"):
        shape = np.shape(np.asarray(X))
    return shape is not None and len(shape) != 3


def read_for_fit(
    estimator: Any, X: Any, lengths: Any, schema: Schema | None, *, by_row: bool = False
) -> Sequences:
    """The sequences of X, whose columns the estimator remembers.

    X is a `Sequences`, a list of (T_i, n) arrays, an (N, T, n) array, or an array of rows: with
    lengths as many rows to a sequence, without them a single sequence, or a sequence of a single
    slice for each row where `by_row` is set.
    """
    if schema is not None:
        require_type(schema, Schema, "schema", DataError)
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    if lengths is not None or _is_matrix(X):
        matrix = _matrix(estimator, X, lengths, reset=True)
        names = getattr(estimator, "feature_names_in_", None)
        if schema is not None and names is not None:
            _check_columns(names.tolist(), schema)
        return _cut(matrix, lengths, schema, names, by_row)
    data = _listed(X, schema)
    remember_columns(estimator, data.schema)
    return data


def remember_columns(estimator: Any, schema: Schema) -> None:
    """Sets what scikit-learn knows of columns: how many, and their names unless x0, x1, ..."""
    estimator.n_features_in_ = len(schema)
    if schema.names != tuple(f"x{i}" for i in range(len(schema))):
        estimator.feature_names_in_ = np.array(schema.names, dtype=object)


def _check_columns(names: list[str], schema: Schema) -> None:
    """Raises unless a table's columns are the variables of the schema, in the same order."""
    if tuple(names) != schema.names:
        raise DataError(
            f"`X` must have the columns of the schema in its order, {list(schema.names)}, but has "
            f"{names}; select them by name, or give an array without names."
        )


def read_for_query(
    estimator: Any, X: Any, lengths: Any, schema: Schema, argument: str, *, by_row: bool = False
) -> Sequences:
    """The sequences of X, in any of the forms that `read_for_fit` takes, for a fitted schema."""
    if lengths is not None or _is_matrix(X):
        return _cut(_matrix(estimator, X, lengths, reset=False), lengths, schema, None, by_row)
    return sequences_of(X, schema, argument)


def _listed(X: Any, schema: Schema | None) -> Sequences:
    if isinstance(X, Sequences):
        return X if schema is None else sequences_of(X, schema, "X")
    return Sequences.from_arrays(X, schema=schema, argument="X")


def _matrix(estimator: Any, X: Any, lengths: Any, *, reset: bool) -> Any:
    """One array of rows, after scikit-learn's checks of its shape and of its columns' names."""
    if isinstance(X, Sequences):
        raise DataError("`lengths` must be left out where X is a Sequences, which knows its own.")
    if lengths is not None and isinstance(X, list | tuple) and np.ndim(X[0] if X else 0) == 2:
        raise DataError(
            "`lengths` must be left out where X is a list of sequences; give them with one array "
            "of all rows only."
        )
    rows = _with_text(_unmasked(X))
    return validate_data(
        estimator, rows, reset=reset, dtype=None, ensure_all_finite=False, accept_sparse=False
    )


def _unmasked(X: Any) -> Any:
    """The rows, with None for masked entries, whose values scikit-learn would bring back."""
    if not isinstance(X, np.ma.MaskedArray):
        return X
    rows = np.ma.getdata(X).astype(object)
    rows[np.ma.getmaskarray(X)] = None
    return rows


def _with_text(X: Any) -> Any:
    """The rows, with the text of a pandas frame's categories in their place.

    scikit-learn turns a frame with nullable numbers into floats, unless it has columns of objects.
    """
    if not hasattr(X, "select_dtypes"):
        return X
    words = [
        name
        for name, column in X.select_dtypes("category").items()
        if column.cat.categories.dtype.kind not in "biuf"
    ]
    return X.astype(dict.fromkeys(words, object)) if words else X


def _cut(matrix: Any, lengths: Any, schema: Schema | None, names: Any, by_row: bool) -> Sequences:
    if lengths is None:
        lengths = np.ones(len(matrix), dtype=np.int64) if by_row else [len(matrix)]
    return Sequences.from_concatenated(matrix, lengths, schema=schema, names=names)


def checked_sample_weight(sample_weight: Any, num_sequences: int) -> Floats | None:
    """A weight for each sequence; None where all count alike."""
    if sample_weight is None:
        return None
    return sequence_weights(sample_weight, "sample_weight", DataError, num_sequences)

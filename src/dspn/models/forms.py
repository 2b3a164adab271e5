"""The forms in which data come to models: tables, lists of frames, arrays of either layout.

What could be meant in two ways is never guessed: an error says what was found, and the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, isfunction, signature
from typing import Any, Final, TypedDict, TypeVar, final

import numpy as np

from dspn.data.layout import TableKeys, looks_like_time
from dspn.data.schema import Schema, list_names, near_misses
from dspn.data.sequences import Sequences
from dspn.errors import DataError

TABLE: Final = "table"
"""The entry of a provenance that says how the table was read that a model was fitted to."""

LAYOUTS: Final = ("slices_first", "channels_first")
_IDS: Final = ("id", "unique_id", "sequence", "series", "case", "subject", "sample", "instance")
_FEWEST_ROWS: Final = 3  # of sequences that a column of ids tells apart
_FEWEST_STEPS: Final = 10  # from which on a counter is no chance

_Class = TypeVar("_Class", bound=type[Any])


class Reading(TypedDict, total=False):
    """How data are read, as far as they do not say it themselves; the same for all queries.

    `lengths` are the slices of each sequence, for X that is one array of rows. `sequence`, `order`,
    `kinds`, `every`, `duplicates` and `dates` are those of `Sequences.from_table`, for X that is a
    data frame. `layout` is for arrays: "slices_first" where a sequence is (slices, variables),
    "channels_first" where it is (variables, slices).
    """

    lengths: Any
    sequence: str | None
    order: str | None
    kinds: Mapping[str, Any] | None
    every: str | float | None
    duplicates: str
    dates: str | None
    layout: str | None


@final
class Given(Reading, total=False):
    """How data are read, and the inputs of their slices, laid out as they are."""

    inputs: Any


def show_arguments(cls: _Class) -> _Class:
    """Names `lengths` and `inputs` in the signatures of methods that take them with the others.

    `help`, and scikit-learn where it passes arguments along, know a method by its signature.
    """
    shown = {"reading": ("lengths",), "given": ("lengths", "inputs")}
    rest = Parameter("reading", Parameter.VAR_KEYWORD, annotation="Unpack[Reading]")
    for method in filter(isfunction, vars(cls).values()):
        known = signature(method)
        *others, last = known.parameters.values()
        if last.kind is Parameter.VAR_KEYWORD and last.name in shown:
            named = [
                Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Any)
                for name in shown[last.name]
            ]
            vars(method)["__signature__"] = known.replace(parameters=[*others, *named, rest])
    return cls


def told_keys(reading: Reading) -> dict[str, Any]:
    """What says how a table or its arrays are laid out, as far as it is told."""
    return {name: v for name, v in reading.items() if name != "lengths" and v is not None}


def is_frame(X: Any) -> bool:
    """Whether X is a data frame, or a table."""
    return not isinstance(X, Sequences | Mapping) and hasattr(X, "columns") and hasattr(X, "shape")


def read_form(
    X: Any,
    schema: Schema | None,
    reading: Reading,
    remembered: Mapping[str, Any],
    inputs: Any = None,
) -> tuple[Any, Any]:
    """X, read where it is a table with keys, and with slices first where it is arrays.

    The inputs come second, None where they were read with X.

    Args:
        X: The data.
        schema: The variables, where they are known.
        reading: How to read X.
        remembered: How the data were read that the model was fitted to.
        inputs: Those of X; of a table, the names of their columns.
    """
    unknown = [name for name in reading if name not in Reading.__annotations__]
    if unknown:
        names = list(Reading.__annotations__)
        raise TypeError(
            f"there is no argument {unknown[0]!r}{near_misses(unknown[0], names)}; how data are "
            f"read is said by {', '.join(names)}, and how to learn where the estimator is made."
        )
    lengths, told = reading.get("lengths"), told_keys(reading)
    layout = told.pop("layout", None)
    if lengths is not None and told:
        raise DataError(f"`lengths` must be left out with `{next(iter(told))}`.")
    if is_frame(X):
        usual = Reading.__annotations__.keys() - {"layout", "lengths"}
        known = {name: own for name, own in remembered.items() if name in usual}
        if not told and schema is not None and lengths is None and _has_keys(X, known):
            told = known
        if told:
            return _read_frame(X, schema, told, inputs), None
        if lengths is None:
            name = known.get("sequence")
            if schema is not None and name and not _has_keys(X, {"sequence": name}):
                raise DataError(
                    f"X has no column {name!r}, which said what sequence a row belongs to in the "
                    "table that the model has learned from; add it, or for one sequence give its "
                    "rows as an array, [X.to_numpy()]."
                )
            _check_frame(X, schema)
        return X, inputs
    if told:
        raise DataError(
            f"`{next(iter(told))}` says how a table is read, but X is a {type(X).__name__}; give a "
            "data frame, or leave it out."
        )
    if isinstance(X, Sequences) or lengths is not None:
        if layout is not None:
            raise DataError("`layout` must be left out with a Sequences, and with `lengths`.")
        return X, inputs
    return _with_layout(X, schema, layout or remembered.get("layout")), inputs


def _read_frame(X: Any, schema: Schema | None, told: dict[str, Any], inputs: Any) -> Sequences:
    if schema is not None:
        told = {name: value for name, value in told.items() if name != "kinds"}
        inputs = inputs if not schema.inputs else None  # the schema names their columns
    return Sequences.from_table(X, schema=schema, inputs=inputs, **told)


def _has_keys(X: Any, known: Mapping[str, Any]) -> bool:
    """Whether a frame has the key columns of the table that a model was fitted to."""
    names = [known[key] for key in ("sequence", "order") if known.get(key) is not None]
    return bool(names) and set(names) <= {*map(str, X.columns), *_index_names(X)}


def _index_names(X: Any) -> list[str]:
    names = getattr(getattr(X, "index", None), "names", None) or ()
    return [str(name) for name in names if name is not None]


def _check_frame(X: Any, schema: Schema | None) -> None:
    """Raise where a frame without `sequence` and `order` seems to have such columns."""
    levels = getattr(getattr(X, "index", None), "nlevels", 1)
    if levels > 1:
        names = [*_index_names(X), *["..."] * levels][:levels]
        raise DataError(
            f"X has an index of {levels} levels ({', '.join(names)}), which would be lost; name "
            f"what they are: sequence={names[0]!r}, order={names[1]!r}."
        )
    names = list(map(str, X.columns))
    if schema is not None:
        more = [name for name in names if name not in schema.names]
        if more and set(schema.names) <= set(names):
            raise DataError(
                f"X has columns that the model does not have: {list_names(more)}; say what they "
                f"are, for example sequence={more[0]!r}, or leave them out."
            )
        return
    ids, times = _find_keys(X, names)
    if ids is None and times is None:
        return
    said = [f"{key}={name!r}" for key, name in (("sequence", ids), ("order", times)) if name]
    what = [f"{name!r} looks like {noun}" for name, noun in ((ids, "ids of sequences"),) if name]
    what += [f"{name!r} looks like their times" for name in (times,) if name]
    raise DataError(
        f"X is a table, in which {' and '.join(what)}; say {', '.join(said)}. If these are "
        "variables, give a `schema`, or an array without names."
    )


def _find_keys(X: Any, names: Sequence[str]) -> tuple[str | None, str | None]:
    """A column of ids, and a column of times, where they are plain to see."""
    columns = {name: np.asarray(X[own]) for name, own in zip(names, X.columns, strict=True)}
    times = [name for name, own in columns.items() if own.dtype.kind in "mM" or _are_times(own)]
    blocks: dict[str, Any] = {}
    for name, own in columns.items():
        if own.dtype.kind in "iuOUT" and len(own) > 1 and not any(map(_is_none, own[:100])):
            same = np.asarray(own[1:] == own[:-1], dtype=np.bool_)
            starts = np.flatnonzero(np.concatenate([[True], ~same]))
            if len(set(own[starts].tolist())) == starts.size > 1:
                blocks[name] = starts
    counters = [name for name, own in columns.items() if own.dtype.kind in "iu"]
    for name, starts in blocks.items():
        many = len(columns[name]) >= _FEWEST_ROWS * starts.size
        counted = [own for own in counters if own != name and _counts(columns[own], starts)]
        if many and (times or counted):
            return name, (times or counted)[0]
        if many and name.lower() in _IDS:
            return name, None
    if times:
        return None, times[0]
    whole = np.zeros(1, dtype=np.int64)
    alone = [name for name in counters if _counts(columns[name], whole)]
    return None, alone[0] if alone else None


def _are_times(values: Any) -> bool:
    """Whether text is times, and not the same few over and over."""
    some = [item for item in values[:100].tolist() if not _is_none(item)]
    is_text = len(some) > 1 and all(isinstance(item, str) for item in some)
    return is_text and 2 * len(set(some)) >= len(some) and all(map(looks_like_time, some))


def _is_none(item: Any) -> bool:
    return item is None or item != item


def _counts(values: Any, starts: Any) -> bool:
    """Whether whole numbers rise by one step in every sequence, and begin anew in the next."""
    steps = np.diff(values.astype(np.float64))
    within = np.delete(steps, starts[1:] - 1)
    rises = within.size >= _FEWEST_STEPS and within[0] > 0 and bool((within == within[0]).all())
    return rises and bool((steps[starts[1:] - 1] != within[0]).all())


def _with_layout(X: Any, schema: Schema | None, layout: str | None) -> Any:
    """Arrays with slices first; raises where they may well have their channels first."""
    if layout is not None and layout not in LAYOUTS:
        raise DataError(f"`layout` must be one of {', '.join(LAYOUTS)}, but is {layout!r}.")
    shape: tuple[int, ...] = getattr(X, "shape", ())
    is_array = len(shape) == 3
    is_list = isinstance(X, list | tuple) and bool(X) and not any(map(is_frame, X))
    if layout == "channels_first":
        if is_array:
            return np.asarray(X).swapaxes(1, 2)
        if is_list:
            return [np.atleast_2d(np.asarray(item)).T for item in X]
    elif layout is None and is_array:
        _check_layout(shape, schema)
    elif layout is None and is_list and len(X) > 1:
        shapes: set[tuple[int, ...]] = {getattr(item, "shape", ()) for item in X[:1000]}
        if all(len(own) == 2 for own in shapes):
            if len(shapes) == 1:
                _check_layout((len(X), *next(iter(shapes))), schema)
            else:
                _check_unequal(shapes, schema)
    return X


def _say_layout(found: str) -> DataError:
    return DataError(
        f"{found}; say layout='channels_first' for sequences of (variables, slices), as aeon and "
        "sktime have them, or layout='slices_first' for (slices, variables)."
    )


def _check_unequal(shapes: set[Any], schema: Schema | None) -> None:
    """Raise where arrays have one number of rows, and numbers of columns that differ."""
    rows, columns = ({own[axis] for own in shapes} for axis in (0, 1))
    if len(rows) == 1 and len(columns) > 1 and (schema is None or len(schema) in rows):
        raise _say_layout(
            f"the sequences of X all have {next(iter(rows))} rows and differ in their columns"
        )


def _check_layout(shape: tuple[int, ...], schema: Schema | None) -> None:
    """Raise where sequences would have many more variables than slices, or others than a model."""
    _, slices, variables = shape
    if schema is None:
        doubtful = variables > 2 * slices
    else:
        doubtful = variables != len(schema) and slices == len(schema)
    if doubtful:
        raise _say_layout(
            f"X of shape {shape} would be sequences of {slices} slices with {variables} "
            "variables each"
        )


def check_unused_labels(y: Any, data: Sequences) -> None:
    """Raise where `y`, which is not used, is not the labels that scikit-learn passes along."""
    if y is None:
        return
    labels = np.asarray(y)
    if labels.ndim > 0 and len(labels) in (len(data), data.total_slices):
        return
    is_total = labels.dtype.kind in "iu" and labels.sum() == data.total_slices
    finding = "these are lengths" if is_total else f"it has the shape {labels.shape}"
    raise DataError(
        "the second argument of this method is `y`, which is not used and would have a label for "
        f"each of the {len(data)} sequences, but {finding}; write lengths=... for the lengths "
        "of sequences."
    )


def _in_rows_of(X: Any, found: Any, keys: TableKeys) -> Any:
    """A pandas table with its rows in the order of those of X, and the index of X."""
    names = [name for name in (keys.sequence, keys.order) if name in X.columns]
    if len(found) != len(X) or not names or X[names].isna().any(axis=None):
        return found
    turn = [] if keys.order in names else ["__turn"]

    def numbered(table: Any) -> Any:
        rows = table[names].reset_index(drop=True)
        return rows.assign(**{name: rows.groupby(names).cumcount() for name in turn})

    own, other = numbered(X), numbered(found)
    if any(own[name].dtype != other[name].dtype for name in names):
        return found
    place = other.assign(__place=range(len(other)))
    places = own.merge(place, how="left", on=[*names, *turn])["__place"]
    if len(places) != len(X) or places.isna().any() or places.duplicated().any():
        return found
    return found.iloc[places.to_numpy(dtype=int)].set_axis(X.index)


def as_given(data: Sequences, X: Any, layout: str | None) -> Any:
    """Sequences in the form of X: as sequences, a table, a list, or an array of its shape."""
    if isinstance(X, Sequences):
        return data
    if is_frame(X) and data.table_keys is not None:
        library = type(X).__module__.partition(".")[0]
        found = data.to_table(library)
        return _in_rows_of(X, found, data.table_keys) if library == "pandas" else found
    if isinstance(X, list | tuple) and np.ndim(X[0]) == 2:
        arrays = data.to_arrays(decode=True)
        return [own.T for own in arrays] if layout == "channels_first" else arrays
    if len(getattr(X, "shape", ())) == 3:
        padded = data.to_padded(decode=True)[0]
        return padded.swapaxes(1, 2) if layout == "channels_first" else padded
    return data.to_concatenated(decode=True)[0]

"""Inputs: what is known at every slice and not modelled, and those that follow from the place.

An input is a `Variable` of `Schema.inputs`. One with a `rule` is computed from the place of a slice
in its sequence, or from its time, wherever data of the schema are read and wherever slices ahead
are forecast; the others are given.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints, is_number, whole_number
from dspn.data import coding
from dspn.data.layout import (
    Column,
    Ragged,
    check_values,
    codes_are_values,
    read_array,
    stack,
    value_bounds,
)
from dspn.data.schema import Kind, Schema, Variable, list_names
from dspn.errors import DataError


class Place(NamedTuple):
    """Where slices lie: in sequences that begin with slice `first`, and at which times."""

    offsets: Ints
    times: Any = None
    first: int = 0

    @property
    def position(self) -> Ints:
        """Number of each slice in its sequence, from 0."""
        lengths = np.diff(self.offsets)
        own = np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], lengths)
        return np.asarray(self.first + own)

    @property
    def left(self) -> Ints:
        """Number of slices behind each slice in its sequence."""
        lengths = np.diff(self.offsets)
        return np.repeat(self.offsets[1:], lengths) - 1 - np.arange(self.offsets[-1])


class Rule(ABC):
    """How the values of an input follow from the place of a slice."""

    name: ClassVar[str]
    needs_times: ClassVar[bool] = False

    @property
    @abstractmethod
    def categories(self) -> range | None:
        """The categories of the input; None where it is continuous."""

    @abstractmethod
    def codes(self, place: Place) -> Floats:
        """The code of every slice."""

    @abstractmethod
    def ahead(self, codes: Floats, offsets: Ints, steps: int) -> Floats:
        """Codes (sequences, steps) of the slices that follow, given those so far."""

    @final
    def named(self, name: str | None = None) -> Variable:
        """The input of this rule, by a name or by its usual one."""
        own = str(name or getattr(self, "field", self.name))
        if self.categories is None:
            return Variable.continuous(own, rule=self)
        return Variable.categorical(own, self.categories, rule=self)

    @final
    def to_json(self) -> dict[str, Any]:
        """The rule and its settings; `rule_from_json` reads them."""
        return {"rule": self.name, **asdict(self)}  # type: ignore[call-overload]


def _require_size(rule: Rule, setting: str) -> None:
    size = whole_number(getattr(rule, setting), setting, DataError, least=2)
    object.__setattr__(rule, setting, size)


@final
@dataclass(frozen=True)
class Position(Rule):
    """Slices since the start: 0, 1, ..., `size - 1`, which also stands for all later ones."""

    size: int
    name = "position"

    def __post_init__(self) -> None:
        _require_size(self, "size")

    @property
    def categories(self) -> range:
        """The positions."""
        return range(self.size)

    def codes(self, place: Place) -> Floats:
        """The position, at most `size - 1`."""
        return np.minimum(place.position, self.size - 1).astype(np.float64)

    def ahead(self, codes: Floats, offsets: Ints, steps: int) -> Floats:
        """Positions go on from the last one."""
        last = codes[offsets[1:] - 1][:, None]
        return np.minimum(last + np.arange(1, steps + 1), float(self.size - 1))


@final
@dataclass(frozen=True)
class ToEnd(Rule):
    """Slices to the end of the sequence: 0 at the last one, at most `size - 1`.

    Where slices ahead are forecast, the last of them is the end.
    """

    size: int
    name = "to_end"

    def __post_init__(self) -> None:
        _require_size(self, "size")

    @property
    def categories(self) -> range:
        """The numbers of slices to the end."""
        return range(self.size)

    def codes(self, place: Place) -> Floats:
        """The slices to the end, at most `size - 1`."""
        return np.minimum(place.left, self.size - 1).astype(np.float64)

    def ahead(self, codes: Floats, offsets: Ints, steps: int) -> Floats:
        """The last slice ahead is the end."""
        own = np.minimum(np.arange(steps - 1, -1, -1.0), self.size - 1)
        return np.tile(own, (offsets.size - 1, 1))


@final
@dataclass(frozen=True)
class Phase(Rule):
    """Slices since the start modulo a period: the categories 0 to `period - 1`."""

    period: int
    name = "phase"

    def __post_init__(self) -> None:
        _require_size(self, "period")

    @property
    def categories(self) -> range:
        """The phases."""
        return range(self.period)

    def codes(self, place: Place) -> Floats:
        """The position modulo the period."""
        return (place.position % self.period).astype(np.float64)

    def ahead(self, codes: Floats, offsets: Ints, steps: int) -> Floats:
        """Phases go on from the last one."""
        last = codes[offsets[1:] - 1][:, None]
        return np.asarray((last + np.arange(1, steps + 1)) % self.period)


@dataclass(frozen=True)
class _Wave(Rule):
    """A wave of the phase of a period."""

    period: float
    categories = None

    _at: ClassVar[np.ufunc]  # the wave at an angle

    def __post_init__(self) -> None:
        if not is_number(self.period) or not 0 < self.period < math.inf:
            raise DataError(f"`period` must be a finite number above 0, found {self.period!r}.")

    @property
    def _angle(self) -> float:
        """The angle of a step."""
        return 2 * math.pi / float(self.period)

    @final
    def codes(self, place: Place) -> Floats:
        """The wave at 2 pi t / period."""
        return np.asarray(self._at(self._angle * place.position))

    @final
    def ahead(self, codes: Floats, offsets: Ints, steps: int) -> Floats:
        """The wave goes on by s(t+1) = 2 cos(angle) s(t) - s(t-1)."""
        lengths, last = np.diff(offsets), codes[offsets[1:] - 1]
        single = lengths == 1
        astray = single & (np.abs(last - self._at(0.0)) > 1e-12)
        if astray.any():
            raise DataError(
                f"sequence {int(np.argmax(astray))} has a single slice, which does not tell where "
                "its wave goes; give the `inputs` of the slices ahead."
            )
        before = np.where(single, self._at(-self._angle), codes[np.maximum(offsets[1:] - 2, 0)])
        out = np.empty((lengths.size, steps))
        for step in range(steps):
            before, last = last, np.clip(2 * math.cos(self._angle) * last - before, -1.0, 1.0)
            out[:, step] = last
        return out


@final
@dataclass(frozen=True)
class Sine(_Wave):
    """The sine of the phase of a period, a continuous input."""

    name = "sine"
    _at = np.sin


@final
@dataclass(frozen=True)
class Cosine(_Wave):
    """The cosine of the phase of a period, a continuous input."""

    name = "cosine"
    _at = np.cos


CALENDAR: Final = {"hour": range(24), "weekday": range(7), "month": range(1, 13)}


@final
@dataclass(frozen=True)
class Calendar(Rule):
    """A field of the time of the slice: "hour" (0-23), "weekday" (Monday 0) or "month" (1-12).

    Times are those of the order column of a table, by the clock of their zone where they have one.
    """

    field: str
    name = "calendar"
    needs_times = True

    def __post_init__(self) -> None:
        if self.field not in CALENDAR:
            raise DataError(f"`field` must be one of {', '.join(CALENDAR)}, found {self.field!r}.")

    @property
    def categories(self) -> range:
        """The hours, weekdays or months."""
        return CALENDAR[self.field]

    def codes(self, place: Place) -> Floats:
        """The field of each time."""
        from dspn.data.times import calendar_field

        return calendar_field(place.times, self.field) - CALENDAR[self.field][0]

    def ahead(self, codes: Floats, offsets: Ints, steps: int) -> Floats:
        """Only from the times ahead; see `codes_ahead`."""
        raise NotImplementedError


@final
@dataclass(frozen=True)
class Elapsed(Rule):
    """Time since the previous slice, 0 at the first: seconds, or the unit of numbers."""

    name = "elapsed"
    needs_times = True
    categories = None

    def codes(self, place: Place) -> Floats:
        """Differences of the times."""
        from dspn.data.times import elapsed

        return elapsed(place.times, place.offsets)

    def ahead(self, codes: Floats, offsets: Ints, steps: int) -> Floats:
        """Only from the times ahead; see `codes_ahead`."""
        raise NotImplementedError


RULES: Final[tuple[type[Rule], ...]] = (Position, ToEnd, Phase, Sine, Cosine, Calendar, Elapsed)


def rule_from_json(described: Mapping[str, Any]) -> Rule:
    """What `Rule.to_json` has written."""
    own = {kind.name: kind for kind in RULES}
    settings = {name: value for name, value in described.items() if name != "rule"}
    try:
        return own[described["rule"]](**settings)
    except (KeyError, TypeError):
        raise DataError(f"there is no rule of inputs {dict(described)!r}.") from None


def declared_inputs(items: Iterable[Any]) -> tuple[Any, ...]:
    """Names of columns, and the inputs that rules and variables are."""
    if isinstance(items, str | Rule | Variable):
        raise DataError(f"`inputs` must be a list; write [{items!r}].")
    out = []
    for item in items:
        if isinstance(item, Rule):
            item = item.named()
        if not isinstance(item, str | Variable):
            raise DataError(
                "`inputs` must be names of columns, rules of `dspn.inputs` or Variable objects, "
                f"found {item!r}."
            )
        out.append(item)
    return tuple(out)


# Coded inputs of a batch


def _times_of(values: NDArray[Any] | None, item: Variable) -> Any:
    from dspn.data.times import NO_TIMES, read_times

    if values is None:
        raise DataError(
            f"input {item.name!r} follows from the times of the slices, which are not known; "
            f"{NO_TIMES}."
        )
    return read_times(values)


def input_codes(
    given: Floats | None, schema: Schema, ragged: Ragged, order: NDArray[Any] | None
) -> Floats:
    """Checked codes (slices, inputs) of a batch.

    Args:
        given: Codes of the inputs without a rule, or of all inputs; None where all have a rule.
        schema: The schema with its inputs.
        ragged: The sequences.
        order: The order values of the slices, where they are known.
    """
    out, filled = _spread(given, schema.inputs, int(ragged.offsets[-1]))
    for column, item in enumerate(schema.inputs):
        if column not in filled:
            times = _times_of(order, item) if item.rule.needs_times else None
            out[:, column] = item.rule.codes(Place(ragged.offsets, times))
    _complete(out, schema.inputs, ragged)
    return out


def slice_inputs(given: Any, schema: Schema, position: int, where: str) -> Floats:
    """Coded inputs of one slice of a stream, (1, inputs), which messages call `where`."""
    ragged, own = Ragged(np.array([0, 1]), None, where), schema.inputs
    matrix = None
    if given is not None:
        row = read_array(given, "`inputs`").reshape(-1)[None]
        matrix, _ = read_inputs(stack([row]), schema, ragged)
    out, filled = _spread(matrix, own, 1)
    for column, item in enumerate(own):
        if column in filled:
            continue
        if item.rule.needs_times or isinstance(item.rule, ToEnd):
            raise DataError(
                f"input {item.name!r} of {where} does not follow from its number; give the "
                "`inputs` of all columns."
            )
        out[:, column] = item.rule.codes(Place(ragged.offsets, None, position))
    _complete(out, own, ragged)
    return out


def _spread(
    given: Floats | None, own: Sequence[Variable], count: int
) -> tuple[Floats, Sequence[int]]:
    """Room for all inputs of some slices, with the given ones in it, and the columns of these."""
    plain = [column for column, item in enumerate(own) if item.rule is None]
    out, found = np.empty((count, len(own))), 0 if given is None else given.shape[1]
    if found and not own:
        raise DataError(
            f"`inputs` has {found} columns, but the schema has no inputs; declare them in "
            "`Schema(variables, inputs=...)`."
        )
    filled: Sequence[int] = range(len(own)) if found == len(own) else plain
    if found != len(filled):
        names = list_names([own[column].name for column in plain]) or "none"
        raise DataError(
            f"`inputs` must have a column for each input that no rule computes ({names}), but "
            f"{'is not given' if given is None else f'has {found} columns'}."
        )
    if given is not None and len(given) != count:
        raise DataError(
            f"`inputs` must have a row for each of the {count} slices, but has {len(given)}."
        )
    if given is not None:
        out[:, list(filled)] = given
    return out, filled


def _complete(codes: Floats, own: Sequence[Variable], ragged: Ragged) -> None:
    """Fills in what is missing, and raises where a code is not one of its input."""
    _fill_missing(codes, own, ragged)
    if own:
        check_values(codes, own, Column("", ragged=ragged, is_input=True), value_bounds(own))


def _fill_missing(codes: Floats, own: Sequence[Variable], ragged: Ragged) -> None:
    """Puts the declared value of an input where its value is missing; raises where none is."""
    missing = np.isnan(codes)
    for column in np.flatnonzero(missing.any(axis=0)).tolist():
        item, rows = own[column], missing[:, column]
        if item.default is None:
            raise DataError(
                f"input {item.name!r} must have a value in every slice, but has none in "
                f"{ragged.place(int(np.argmax(rows)))}; give it, or declare the `default` of the "
                "input."
            )
        is_code = item.kind is Kind.CATEGORICAL
        codes[rows, column] = item.categories.index(item.default) if is_code else item.default


def code_input_columns(
    values: Floats,
    readings: Sequence[coding.Reading],
    own: Sequence[Variable],
    ragged: Ragged,
) -> Floats:
    """Codes of raw columns of inputs; numbers that stand for themselves are left alone."""
    for j, (variable, reading) in enumerate(zip(own, readings, strict=True)):
        if reading.labels or not codes_are_values(variable):
            column = Column(variable.name, ragged=ragged, is_input=True)
            values[:, j] = coding.encode(values[:, j], reading, variable, column)
    return values


def infer_inputs(
    values: Floats, readings: Sequence[coding.Reading], names: Sequence[str]
) -> tuple[Variable, ...]:
    """The inputs that raw columns suggest; counts are continuous."""
    found = (
        coding.infer_variable(name, values[:, j], reading)[0]
        for j, (name, reading) in enumerate(zip(names, readings, strict=True))
    )
    return tuple(Variable.continuous(own.name) if own.kind is Kind.COUNT else own for own in found)


def read_inputs(
    matrix: NDArray[Any] | None, schema: Schema | None, ragged: Ragged
) -> tuple[Floats | None, tuple[Variable, ...]]:
    """Codes of a matrix of inputs, and the inputs: those of the schema, or inferred as u0, u1, ...

    Codes are those of the inputs without rules, or of all; `input_codes` does the rest.
    """
    own: tuple[Variable, ...] = () if schema is None else schema.inputs
    if matrix is None:
        return None, own
    width = matrix.shape[1]
    plain = tuple(item for item in own if item.rule is None)
    filled = own if width == len(own) else plain
    names = tuple(f"u{column}" for column in range(width))
    if len(filled) == width:
        names = tuple(item.name for item in filled)
    values, readings = coding.read_matrix(matrix, names)
    if schema is None:
        own = filled = infer_inputs(values, readings, names)
    if len(filled) == width:
        values = code_input_columns(values.copy(), readings, filled, ragged)
    return values, own


def stack_inputs(given: Any, lengths: Ints, what: str = "slices") -> NDArray[Any]:
    """One matrix of inputs, from a matrix or from a list with an array for each sequence.

    An array (sequences, slices, inputs) is also read, where sequences are of one length.
    """
    if isinstance(given, list | tuple) and len(given) and np.ndim(given[0]) > 0:
        arrays = [_two_dimensions(item) for item in given]
        found = [len(item) for item in arrays]
        if found != lengths.tolist():
            where = next(
                (i for i, (a, b) in enumerate(zip(found, lengths, strict=False)) if a != b), None
            )
            finding = (
                f"has {len(found)} arrays for {lengths.size} sequences"
                if where is None or len(found) != lengths.size
                else f"has {found[where]} rows for sequence {where}, which has {lengths[where]}"
            )
            raise DataError(
                f"`inputs` must have an array with a row for each of the {what} of each sequence, "
                f"but {finding}."
            )
        return stack(arrays)
    array = read_array(given, "`inputs`")
    if array.ndim == 3:
        array = array.reshape(-1, array.shape[2])
    array = _two_dimensions(array)
    if len(array) != lengths.sum():
        are_names = array.dtype == object and all(isinstance(item, str) for item in array.flat)
        remedy = "; names of columns are for a table with `sequence` or `order`"
        raise DataError(
            f"`inputs` must have a row for each of the {int(lengths.sum())} {what}, but has "
            f"{len(array)}{remedy if are_names else ''}."
        )
    return stack([array])


def _two_dimensions(item: Any) -> NDArray[Any]:
    array = read_array(item, "`inputs`")
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise DataError(
            f"`inputs` must have two dimensions, (slices, inputs), but has shape {array.shape}."
        )
    return array


# Slices ahead


def codes_ahead(
    codes: Floats,
    schema: Schema,
    ragged: Ragged,
    order: NDArray[Any] | None,
    steps: int,
    given: Any,
) -> tuple[Floats, Floats]:
    """The inputs of a batch, and those (sequences * steps, inputs) of the slices that follow.

    Args:
        codes: The inputs of the batch.
        schema: Its schema.
        ragged: Its sequences.
        order: Its order values, where they are known.
        steps: Number of slices ahead of each sequence.
        given: Inputs of the slices ahead: a (steps, inputs) matrix for all sequences, or one for
            each; columns are the inputs without a rule, or all.
    """
    own, count = schema.inputs, ragged.offsets.size - 1
    after = Ragged(np.arange(count + 1) * steps, ragged.ids)
    matrix = None
    if given is not None:
        if not isinstance(given, list | tuple):
            shared = read_array(given, "`inputs`")
            if shared.ndim in (1, 2) and len(shared) not in (steps, count * steps):
                raise DataError(
                    f"`inputs` must have a row for each of the {steps} slices ahead, for all "
                    f"{count} sequences together or for one after the other, but has {len(shared)}."
                )
            if shared.ndim in (1, 2) and len(shared) == steps:
                given = np.tile(_two_dimensions(shared), (count, 1))
        raw = stack_inputs(given, np.full(count, steps), "slices ahead")
        matrix, _ = read_inputs(raw, schema, after)
    elif steps and any(item.rule is None for item in own):
        names = list_names([item.name for item in own if item.rule is None])
        raise DataError(
            f"the `inputs` of the {steps} slices ahead must be given ({names}), but are not."
        )
    out, filled = _spread(matrix, own, count * steps) if steps else (codes[:0], range(len(own)))
    ended = codes.copy()
    for column, item in enumerate(own):
        if isinstance(item.rule, ToEnd):
            ended[:, column] = np.minimum(codes[:, column] + steps, item.rule.size - 1)
        if column not in filled:
            out[:, column] = _ahead(item, codes[:, column], ragged, order, steps)
    _complete(out, own, after)
    return ended, out


def _ahead(
    item: Variable, codes: Floats, ragged: Ragged, order: NDArray[Any] | None, steps: int
) -> Floats:
    if not item.rule.needs_times:
        return np.asarray(item.rule.ahead(codes, ragged.offsets, steps)).ravel()
    from dspn.data.times import with_times_ahead

    # The last slice so far comes first, so that differences are those of the slices ahead.
    times = with_times_ahead(_times_of(order, item), ragged.offsets, steps, item.name)
    found = item.rule.codes(Place(np.arange(ragged.offsets.size) * (steps + 1), times))
    return np.asarray(found.reshape(-1, steps + 1)[:, 1:]).ravel()

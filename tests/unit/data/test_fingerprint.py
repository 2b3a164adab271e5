"""What tells one data set from another."""

import numpy as np
import pytest

from dspn.data import Schema, Sequences, Variable
from dspn.data.sequences import data_fingerprint

SCHEMA = Schema((Variable.categorical("x", ("a", "b", "c")), Variable.continuous("y")))
VALUES = np.array([[0.0, 1.5], [1.0, np.nan], [2.0, -0.5], [np.nan, 0.0]])


def batch(
    values: object = VALUES,
    offsets: object = (0, 1, 4),
    schema: Schema = SCHEMA,
    ids: object = None,
) -> Sequences:
    return Sequences.from_codes(values, offsets, schema, ids)  # type: ignore[arg-type]


def test_same_data_have_the_same_fingerprint_however_they_were_read() -> None:
    own = data_fingerprint(batch())
    assert len(own) == 32
    assert data_fingerprint(batch(VALUES.copy())) == own
    read = Sequences.from_arrays(
        [[["a", 1.5]], [["b", None], ["c", -0.5], [None, 0]]], schema=SCHEMA
    )
    assert data_fingerprint(read) == own
    assert data_fingerprint(batch(np.asfortranarray(VALUES))) == own
    both = Sequences.from_codes(np.vstack([VALUES, VALUES]), [0, 1, 4, 5, 8], SCHEMA)
    assert data_fingerprint(both[np.array([2, 3])]) == own


def test_ids_bits_of_missing_entries_and_the_sign_of_zero_do_not_count() -> None:
    own = data_fingerprint(batch())
    assert data_fingerprint(batch(ids=["one", "two"])) == own
    other_nan = np.array([0xFFF8000000000123], dtype=np.uint64).view(np.float64)[0]
    changed = np.where(np.isnan(VALUES), other_nan, np.where(VALUES == 0, -0.0, VALUES))
    assert changed.tobytes() != VALUES.tobytes()
    assert data_fingerprint(batch(changed)) == own


def changed_value(row: int, column: int, value: float) -> Sequences:
    values = VALUES.copy()
    values[row, column] = value
    return batch(values)


def renamed(*variables: Variable) -> Sequences:
    return batch(schema=Schema(variables))


X, Y = SCHEMA[0], SCHEMA[1]


@pytest.mark.parametrize(
    "other",
    [
        changed_value(0, 0, 1.0),
        changed_value(0, 1, np.nextafter(1.5, 2)),
        changed_value(1, 1, 0.0),
        changed_value(0, 1, np.nan),
        batch(offsets=[0, 2, 4]),
        batch(offsets=[0, 4]),
        batch(VALUES[:1], [0, 1]),
        batch(VALUES[::-1].copy(), [0, 3, 4]),
        renamed(Variable.categorical("z", ("a", "b", "c")), Y),
        renamed(Variable.categorical("x", ("a", "c", "b")), Y),
        renamed(Variable.categorical("x", ("a", "b", "c", "d")), Y),
        renamed(Variable.categorical("x", (0, 1, 2)), Y),
        renamed(Variable.continuous("x"), Y),
        renamed(Variable.count("x"), Y),
    ],
)
def test_any_change_of_values_lengths_or_schema_shows(other: Sequences) -> None:
    assert data_fingerprint(other) != data_fingerprint(batch())


def test_categories_of_different_types_are_different_data() -> None:
    values = np.array([[0.0], [1.0]])
    prints = {
        data_fingerprint(batch(values, [0, 2], Schema((Variable.categorical("x", categories),))))
        for categories in ((0, 1), ("0", "1"), (False, True))
    }
    assert len(prints) == 3

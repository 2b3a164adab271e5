"""The ragged batch itself: shape, selection, change."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError

SCHEMA = Schema((Variable.categorical("c", ["u", "v", "w"]), Variable.continuous("x")))


def make_batch() -> Sequences:
    values = np.array([[0, 0.5], [1, np.nan], [2, 2.5], [np.nan, 3.5], [1, 4.5], [0, 5.5]])
    return Sequences.from_codes(values, [0, 1, 4, 6], SCHEMA, ids=["p", "q", "r"])


def test_shape_of_a_batch() -> None:
    batch = make_batch()
    assert len(batch) == batch.num_sequences == 3
    assert (batch.total_slices, batch.num_variables) == (6, 2)
    assert batch.lengths.tolist() == [1, 3, 2]
    assert [array.shape for array in batch] == [(1, 2), (3, 2), (2, 2)]
    assert batch.inference_notes == ()


def test_arrays_are_read_only_copies() -> None:
    values = np.zeros((2, 1))
    offsets = np.array([0, 2])
    batch = Sequences.from_codes(values, offsets, Schema((Variable.binary("b"),)))
    values[:] = 1
    offsets[1] = 7
    assert batch.values.tolist() == [[0], [0]]
    assert batch.offsets.tolist() == [0, 2]
    for array in (batch.values, batch.offsets, batch[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_read_arrays_are_contiguous_float64_copies(order: str) -> None:
    array = np.array([[0.5, 1.5], [2.5, 3.5]], order=order)  # type: ignore[call-overload]
    for batch in (
        Sequences.from_arrays([array]),
        Sequences.from_concatenated(array, [2]),
        Sequences.from_padded(array[None]),
    ):
        assert batch.values.flags.c_contiguous
        assert batch.values.dtype == np.float64
        assert not batch.values.flags.writeable
        assert not np.shares_memory(batch.values, array)


@pytest.mark.parametrize("remake", [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy])
def test_pickled_and_copied_batches_stay_read_only(remake: object) -> None:
    again = remake(make_batch())  # type: ignore[operator]
    np.testing.assert_array_equal(again.values, make_batch().values)
    assert again.ids == ("p", "q", "r")
    assert not again.values.flags.writeable
    assert not again.offsets.flags.writeable


def test_whole_number_picks_one_sequence() -> None:
    batch = make_batch()
    np.testing.assert_array_equal(batch[-1], batch.values[4:])
    np.testing.assert_array_equal(batch[np.int64(0)], batch.values[:1])
    with pytest.raises(IndexError, match="there are 3"):
        batch[3]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (slice(1, None), [1, 2]),
        (slice(None, None, -1), [2, 1, 0]),
        ([2, 0, 0], [2, 0, 0]),
        (np.array([-1, 1]), [2, 1]),
        (np.array([True, False, True]), [0, 2]),
        ([False, True, False], [1]),
    ],
)
def test_selection_picks_whole_sequences_in_the_order_of_the_key(
    key: slice, expected: list[int]
) -> None:
    batch = make_batch()
    picked = batch[key]
    assert picked.ids == tuple("pqr"[index] for index in expected)
    assert picked.lengths.tolist() == batch.lengths[expected].tolist()
    np.testing.assert_array_equal(picked.values, np.concatenate([batch[i] for i in expected]))
    assert picked.values.flags.c_contiguous
    assert not picked.values.flags.writeable


@pytest.mark.parametrize("key", [[], slice(3, 9), np.zeros(3, dtype=bool)])
def test_empty_selection_is_refused(key: slice) -> None:
    with pytest.raises(DataError, match="at least one sequence"):
        make_batch()[key]


@pytest.mark.parametrize("key", [[True, False], [0.5], "p", (0, 1), [[0]]])
def test_selection_by_another_key_is_refused(key: slice) -> None:
    with pytest.raises(DataError, match="mask"):
        make_batch()[key]


def test_with_values_keeps_everything_else() -> None:
    batch = make_batch()
    other = batch.with_values(np.zeros((6, 2)))
    assert other.ids == batch.ids
    assert other.schema is batch.schema
    assert not other.values.any()
    with pytest.raises(DataError, match=r"'c' .* but is 3 in sequence 1 \(id 'q'\), slice 2"):
        batch.with_values([[0, 0], [0, 0], [0, 0], [3, 0], [0, 0], [0, 0]])
    with pytest.raises(DataError, match=r"shape \(6, 2\)"):
        batch.with_values(np.zeros((5, 2)))


def test_extended_appends_missing_slices_to_each_sequence() -> None:
    batch = make_batch()
    longer = batch.extended(2)
    assert longer.lengths.tolist() == [3, 5, 4]
    for before, after in zip(batch, longer, strict=True):
        np.testing.assert_array_equal(after[:-2], before)
        assert np.isnan(after[-2:]).all()
    np.testing.assert_array_equal(batch.extended(0).values, batch.values)


@pytest.mark.parametrize("steps", [-1, 1.5, "2"])
def test_extended_by_no_whole_number_is_refused(steps: int) -> None:
    with pytest.raises(DataError, match="`steps`"):
        make_batch().extended(steps)


@pytest.mark.parametrize(
    ("start", "stop"), [(None, None), (1, None), (None, -1), (-2, None), (0, 99), (-99, 2), (1, -1)]
)
def test_slices_cuts_every_sequence_as_a_python_slice_does(
    start: int | None, stop: int | None
) -> None:
    batch = make_batch()[1:].extended(2)
    found = batch.slices(start, stop)
    for kept, whole in zip(found, batch, strict=True):
        np.testing.assert_array_equal(kept, whole[start:stop])
    assert (found.ids, found.schema) == (("q", "r"), SCHEMA)


@pytest.mark.parametrize(
    ("start", "stop", "text"),
    [
        (None, -1, r"\[None:-1\] leaves nothing of sequence 0 \(id 'p'\), which has 1"),
        (2, None, r"sequence 0 \(id 'p'\)"),
        (1.0, None, "`start` must be a whole number"),
        (None, "1", "`stop` must be a whole number"),
    ],
)
def test_slices_that_cannot_be_cut_are_refused(start: Any, stop: Any, text: str) -> None:
    with pytest.raises(DataError, match=text):
        make_batch().slices(start, stop)


def test_select_keeps_the_named_variables_in_the_order_named() -> None:
    batch = make_batch().select(["x", "c"])
    assert batch.schema.names == ("x", "c")
    np.testing.assert_array_equal(batch.values, make_batch().values[:, ::-1])
    assert batch.values.flags.c_contiguous
    with pytest.raises(DataError, match="found 'z'"):
        batch.select(["z"])
    with pytest.raises(DataError, match=r"write \['x'\]"):
        batch.select("x")


def test_batch_is_not_read_as_a_list_of_arrays() -> None:
    with pytest.raises(DataError, match="Sequences already"):
        Sequences.from_arrays(make_batch())


def test_with_ids_replaces_the_ids() -> None:
    assert make_batch().with_ids([1, 2, 2]).ids == (1, 2, 2)
    assert make_batch().with_ids(None).ids is None


def test_repr_says_shape_missing_entries_and_variables() -> None:
    text = repr(make_batch())
    assert "num_sequences=3 of 1 to 3 slices" in text
    assert "missing entries=2" in text
    assert "c: categorical ('u', 'v', 'w')" in text
    assert "x: continuous" in text


def test_repr_of_many_variables_is_cut_short() -> None:
    text = repr(Sequences.from_arrays([np.full((2, 40), 0.5)]))
    assert "and 28 more variables" in text
    assert len(text.splitlines()) == 14

"""Round trips through every layout, on random schemas and data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspn.data import Kind, Schema, Sequences, Variable

CATEGORIES = st.one_of(
    st.lists(st.text(max_size=4), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(-50, 50), min_size=1, max_size=4, unique=True),
    st.lists(
        st.floats(-1e6, 1e6).map(lambda value: value + 0.0), min_size=1, max_size=4, unique=True
    ),
    st.permutations([False, True]),
)
WHOLE = st.integers(0, 2**53 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def variables(draw: st.DrawFn, name: str) -> Variable:
    kind = draw(st.sampled_from(Kind))
    return Variable(name, kind, tuple(draw(CATEGORIES)) if kind is Kind.CATEGORICAL else ())


def entries(variable: Variable) -> st.SearchStrategy[float]:
    present = {
        Kind.CATEGORICAL: st.integers(0, max(variable.num_categories - 1, 0)).map(float),
        Kind.CONTINUOUS: REAL,
        Kind.COUNT: WHOLE.map(float),
    }
    return st.one_of(present[variable.kind], st.just(np.nan))


IDS = st.one_of(
    st.lists(st.text(max_size=3), min_size=4, max_size=4, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4, unique=True),
)


@st.composite
def batches(draw: st.DrawFn) -> Sequences:
    names = [f"v{index}" for index in range(draw(st.integers(1, 3)))]
    schema = Schema(tuple(draw(variables(name)) for name in names))
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    rows = st.tuples(*(entries(variable) for variable in schema))
    values = draw(st.lists(rows, min_size=sum(lengths), max_size=sum(lengths)))
    ids = draw(st.one_of(st.none(), IDS.map(lambda found: found[: len(lengths)])))
    return Sequences.from_codes(values, np.cumsum([0, *lengths]), schema, ids=ids)


def assert_same(left: Sequences, right: Sequences, *, ids: Any = ...) -> None:
    np.testing.assert_array_equal(left.values, right.values)
    np.testing.assert_array_equal(left.offsets, right.offsets)
    assert left.schema == right.schema
    assert left.ids == (right.ids if ids is ... else ids)


@given(batches())
def test_decoded_arrays_are_read_back_exactly(batch: Sequences) -> None:
    schema, ids = batch.schema, batch.ids
    arrays = batch.to_arrays(decode=True)
    assert_same(Sequences.from_arrays(arrays, schema=schema, ids=ids), batch)
    listed = [array.tolist() for array in arrays]
    assert_same(Sequences.from_arrays(listed, schema=schema, ids=ids), batch)
    concatenated = batch.to_concatenated(decode=True)
    assert_same(Sequences.from_concatenated(*concatenated, schema=schema, ids=ids), batch)
    padded = batch.to_padded(decode=True)
    assert_same(Sequences.from_padded(*padded, schema=schema, ids=ids), batch)


@given(batches())
def test_coded_arrays_are_read_back_exactly(batch: Sequences) -> None:
    values, lengths = batch.to_concatenated()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    assert_same(Sequences.from_codes(values, offsets, batch.schema, batch.ids), batch)
    np.testing.assert_array_equal(np.concatenate(batch.to_arrays()), batch.values)
    padded, _ = batch.to_padded(fill=-1.0)
    mask = np.arange(padded.shape[1]) < lengths[:, None]
    np.testing.assert_array_equal(padded[mask], batch.values)
    assert (padded[~mask] == -1).all()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@settings(deadline=None, max_examples=50)
@given(batch=batches(), seed=st.integers(0, 2**32 - 1))
def test_shuffled_tables_are_read_back_exactly(library: str, batch: Sequences, seed: int) -> None:
    table = batch.to_table(library, sequence="who", order="when")
    rows = np.random.default_rng(seed).permutation(batch.total_slices)
    shuffled = (
        table.iloc[rows]
        if library == "pandas"
        else table[rows.tolist()]
        if library == "polars"
        else table.take(rows)
    )
    again = Sequences.from_table(shuffled, sequence="who", order="when", schema=batch.schema)
    known = batch.ids if batch.ids is not None else tuple(range(len(batch)))
    # Sequences come in the order of first appearance; put them back.
    assert again.ids is not None
    back = again[[again.ids.index(item) for item in known]]
    assert_same(back, batch, ids=known)
    rewritten = Sequences.from_table(
        back.to_table(library), sequence="who", order="when", schema=batch.schema
    )
    assert_same(rewritten, batch, ids=known)


@given(batches(), st.data())
def test_selection_agrees_with_a_list_of_arrays(batch: Sequences, data: st.DataObject) -> None:
    picked = data.draw(st.lists(st.integers(0, len(batch) - 1), min_size=1, max_size=5))
    arrays = list(batch)
    for found, index in zip(batch[picked], picked, strict=True):
        np.testing.assert_array_equal(found, arrays[index])


@given(batches(), st.integers(0, 3))
def test_extended_sequences_begin_with_the_old_ones(batch: Sequences, steps: int) -> None:
    longer = batch.extended(steps)
    for before, after in zip(batch, longer, strict=True):
        np.testing.assert_array_equal(after[: len(before)], before)
        assert np.isnan(after[len(before) :]).all()
        assert len(after) == len(before) + steps


@given(st.lists(st.sampled_from(["u", "v", None, "w"]), min_size=1, max_size=12))
def test_inferred_strings_are_decoded_to_themselves(column: list[str | None]) -> None:
    batch = Sequences.from_arrays([np.array(column, dtype=object)])
    found = batch.to_arrays(decode=True)[0][:, 0].tolist()
    if any(column):
        assert found == column
        assert list(batch.schema[0].categories) == sorted({item for item in column if item})
    else:
        assert np.isnan(np.array(found)).all()

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn.data import Kind, Schema, Sequences, Variable
from dspn.inference import Marginals
from dspn.models import Model
from dspn.report import report_html
from dspn.report._facts import LEVELS, coded_column, packed_record
from dspn.structure import initial_network
from unit.report.cases import mixed_data, mixed_model, mixed_networks, never_back
from unit.report.reading import Reader, Record, numbers_of, readers_of, record_of

STEP = 1 / 65535
SINGLE = 1e-6


def _records(model: Model, data: Sequences, steps: int) -> dict[int, Record]:
    page = report_html(model, data, steps=steps)
    readers = zip(numbers_of(page), readers_of(page), strict=True)
    return {
        i: record_of(reader, model, int(data.lengths[i]), steps, possible=True)
        for i, reader in readers
    }


@pytest.mark.parametrize("model", [mixed_model(), *map(Model, mixed_networks())])
def test_surprises_and_values_are_those_of_the_model(model: Model) -> None:
    data = mixed_data(model)
    found = model.surprise(data)
    for i, record in _records(model, data, 2).items():
        rows = slice(data.offsets[i], data.offsets[i + 1])
        assert_allclose(record.slices, found.slices[rows], rtol=SINGLE, atol=1e-6)
        assert_allclose(record.entries, found.variables[rows], rtol=SINGLE, atol=1e-6)
        assert_allclose(np.column_stack(record.columns), data.values[rows], rtol=SINGLE)


def _assert_answers(answers: list[Any], asked: Marginals, bounds: tuple[int, int]) -> None:
    for found, own in zip(answers, asked.variables, strict=True):
        here = (own.slices >= bounds[0]) & (own.slices < bounds[1])
        if own.variable.kind == Kind.CATEGORICAL:
            assert own.probabilities is not None
            codes, shares = found
            assert_array_equal(codes, np.tile(np.arange(codes.shape[1]), (here.sum(), 1)))
            assert_allclose(shares, own.probabilities[here], rtol=0, atol=STEP)
        else:
            expected = np.column_stack([own.mean[here], own.quantiles[here]])
            assert_allclose(found, expected, rtol=SINGLE, atol=1e-6)


def test_missing_and_future_entries_have_their_exact_marginals() -> None:
    model = mixed_model()
    data = mixed_data(model)
    missing = model.marginals(data, quantiles=LEVELS)
    ahead = model.forecast(data, 3, quantiles=LEVELS)
    later = ahead.sequences.offsets
    for i, record in _records(model, data, 3).items():
        _assert_answers(record.missing, missing, (data.offsets[i], data.offsets[i + 1]))
        _assert_answers(record.future, ahead.marginals, (later[i], later[i + 1]))


def test_no_steps_give_no_forecast() -> None:
    model = mixed_model()
    records = _records(model, mixed_data(model), 0)
    assert all(len(record.future[1]) == 0 for record in records.values())


def test_interface_rows_are_the_posterior_of_the_likeliest_component() -> None:
    model = mixed_model()
    data = mixed_data(model)
    shares = model.component_posteriors(data)
    posteriors = model.interface_posteriors(data)
    starts = model.mixture.interface_offsets
    for i, record in _records(model, data, 1).items():
        rows = slice(data.offsets[i], data.offsets[i + 1])
        assert record.rows is not None and record.shares is not None
        assert_allclose(record.shares, shares[i], rtol=0, atol=STEP)
        assert record.component == np.argmax(shares[i])
        columns = starts[record.component] + record.rows[:, 1].astype(int)
        expected = posteriors[rows][:, columns] / shares[i, record.component]
        assert record.probabilities is not None
        assert_allclose(record.probabilities, expected, rtol=0, atol=STEP)


def test_an_impossible_sequence_has_surprises_and_values_alone() -> None:
    model, data = never_back()
    readers = readers_of(report_html(model, data, steps=2))
    record = record_of(readers[0], model, 3, 2, possible=False)
    assert record.slices[1] == np.inf and np.isnan(record.slices[2])
    assert np.isnan(record.entries).all()
    assert_array_equal(record.columns[0], [0, 1, 0])
    other = record_of(readers[1], model, 2, 2, possible=True)
    assert other.component == 0


def test_nothing_but_impossible_sequences_can_be_shown() -> None:
    model, data = never_back()
    page = report_html(model, data[:1])
    assert "1 sequence has probability zero" in page


def test_many_categories_keep_the_most_probable_of_each_entry() -> None:
    names = [f"c{code}" for code in range(300)]
    schema = Schema((Variable.categorical("word", names),))
    model = Model(initial_network(schema, 2, rng=np.random.default_rng(0)))
    data = Sequences.from_arrays([[["c299"], [None]]], schema=schema)
    record = _records(model, data, 1)[0]
    own = model.marginals(data)["word"].probabilities
    assert own is not None
    codes, shares = record.missing[0]
    assert_array_equal(codes[0], np.sort(np.argsort(-own[0], kind="stable")[:6]))
    assert_allclose(shares[0], own[0, codes[0]], rtol=0, atol=STEP)
    assert record.columns[0][0] == 299 and np.isnan(record.columns[0][1])


def test_a_single_category_and_a_single_node_are_no_exception() -> None:
    schema = Schema((Variable.categorical("only", ["it"]),))
    model = Model(initial_network(schema, 1, rng=np.random.default_rng(0)))
    data = Sequences.from_arrays([[["it"]], [[None], [None]]], schema=schema)
    records = _records(model, data, 2)
    assert records[1].future[0][1].tolist() == [[1.0], [1.0]]


def test_codes_have_room_for_what_is_missing() -> None:
    for count, kind in ((254, "<u1"), (255, "<u2"), (3, "<u1")):
        variable = Variable.categorical("x", list(range(count)))
        found = coded_column(variable, np.array([count - 1.0, np.nan]))
        assert found.dtype == np.dtype(kind)
        assert found.tolist() == [count - 1, np.iinfo(found.dtype).max]


def test_a_number_beyond_four_bytes_is_infinite_without_a_warning() -> None:
    found = coded_column(Variable.continuous("x"), np.array([1e300, -1e300, 1e-300]))
    assert found.tolist() == [np.inf, -np.inf, 0.0]


def test_a_record_gives_back_its_arrays_by_width() -> None:
    arrays = [
        np.array([1.5, np.nan], dtype="<f4"),
        np.array([7], dtype="<u2"),
        np.array([1, 2, 3], dtype="u1"),
        np.array([[2.5]], dtype="<f4"),
        np.array([65535, 0], dtype="<u2"),
    ]
    reader = Reader.of(packed_record(arrays))
    assert_array_equal(reader.take("f4", 3), np.array([1.5, np.nan, 2.5], dtype="<f4"))
    assert reader.take("u2", 3).tolist() == [7, 65535, 0]
    assert reader.take("u1", 3).tolist() == [1, 2, 3]
    assert reader.at_end()

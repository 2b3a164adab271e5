"""Bits, bins and filled gaps; what is learned comes from the training part alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError
from experiments.datasets import (
    FILLED_BINS,
    MEDIAN_BITS,
    OVERALL_BITS,
    RAW,
    SEVEN_BITS,
    Chain,
    EqualWidthBins,
    Fixed,
    HourMeans,
    QuantileBins,
    integer_bits,
    median_bits,
    unchanged,
)

NAN = float("nan")
XY = Schema((Variable.continuous("x"), Variable.continuous("y")))


def sequences(*values: Any, schema: Schema = XY) -> Sequences:
    return Sequences.from_arrays([np.array(v, dtype=float) for v in values], schema=schema)


# Medians


def test_median_bits_say_which_values_lie_above_the_median_of_their_sequence() -> None:
    data = sequences([[1, 10], [2, 30], [3, 20]], [[5, 5], [7, 5]], [[4, 4]])
    bits = median_bits(data)
    np.testing.assert_array_equal(bits.values, [[0, 0], [0, 1], [1, 0], [0, 0], [1, 0], [0, 0]])
    assert bits.schema == Schema((Variable.binary("x"), Variable.binary("y")))
    np.testing.assert_array_equal(bits.offsets, data.offsets)


def test_overall_bits_have_one_median_for_all_sequences() -> None:
    """Ones of a sequence are as many as it has, and those of other data change nothing."""
    train = sequences([[1, 10], [2, 30]], [[3, 20], [4, 40]])
    fitted = OVERALL_BITS.fit(train)
    np.testing.assert_array_equal(fitted.apply(train).values, [[0, 0], [0, 1], [1, 0], [1, 1]])
    np.testing.assert_array_equal(fitted.apply(sequences([[9, NAN], [8, 1]])).values[:, 0], [1, 1])


def test_median_bits_leave_out_what_is_missing() -> None:
    data = sequences([[1, NAN], [NAN, NAN], [9, NAN], [2, NAN]])
    np.testing.assert_array_equal(
        median_bits(data).values, [[0, NAN], [NAN, NAN], [1, NAN], [0, NAN]]
    )


@given(
    arrays(float, (7, 3), elements=st.one_of(st.just(NAN), st.integers(-3, 3).map(float))),
    st.integers(1, 6),
)
def test_median_bits_are_those_of_nanmedian(values: np.ndarray, cut: int) -> None:
    schema = Schema(tuple(Variable.continuous(name) for name in "abc"))
    data = Sequences.from_codes(values, [0, cut, 7], schema)
    for found, own in zip(median_bits(data), data, strict=True):
        for column in range(3):
            seen = own[:, column]
            if np.isnan(seen).all():
                assert np.isnan(found[:, column]).all()
            else:
                expected = np.where(np.isnan(seen), NAN, seen > np.nanmedian(seen))
                np.testing.assert_array_equal(found[:, column], expected)


def test_median_bits_leave_categorical_variables_and_ids_as_they_are() -> None:
    schema = Schema((Variable.continuous("x"), Variable.categorical("pen", ("up", "down"))))
    data = Sequences.from_codes([[1, 1], [2, NAN], [3, 0]], [0, 3], schema, ["a"])
    bits = median_bits(data)
    np.testing.assert_array_equal(bits.values, [[0, 1], [0, NAN], [1, 0]])
    assert bits.schema[1] == schema[1]
    assert bits.ids == ("a",)


# Binary numbers


def test_integer_bits_write_one_variable_after_the_other() -> None:
    bits = integer_bits(sequences([[100, 0], [1, 64]]))
    assert bits.lengths.tolist() == [4]
    assert bits.schema.names == ("bit6", "bit5", "bit4", "bit3", "bit2", "bit1", "bit0")
    np.testing.assert_array_equal(
        bits.values,
        [[1, 1, 0, 0, 1, 0, 0], [0] * 7, [0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0]],
    )


@given(arrays(np.int64, (5, 2), elements=st.integers(0, 127)))
def test_integer_bits_can_be_read_back(numbers: np.ndarray) -> None:
    bits = integer_bits(sequences(numbers[:2], numbers[2:]))
    np.testing.assert_array_equal(bits.values @ (2 ** np.arange(6, -1, -1)), numbers.reshape(-1))
    assert bits.lengths.tolist() == [4, 6]


def test_integer_bits_of_a_missing_number_are_missing() -> None:
    bits = integer_bits(sequences([[3, NAN]]), num_bits=2)
    np.testing.assert_array_equal(bits.values, [[1, 1], [NAN, NAN]])


@pytest.mark.parametrize("wrong", [128, -1, 0.5])
def test_numbers_that_seven_bits_do_not_hold_are_refused(wrong: float) -> None:
    with pytest.raises(DataError, match=rf"whole numbers from 0 to 127 .* but holds {wrong:g}"):
        integer_bits(sequences([[1, 2], [3, wrong]]))


def test_integer_bits_of_categories_are_refused() -> None:
    schema = Schema((Variable.continuous("x"), Variable.binary("pen")))
    with pytest.raises(DataError, match=r"\['pen'\] are categorical"):
        integer_bits(sequences([[1, 1]], schema=schema))
    with pytest.raises(DataError, match="`num_bits` must be a whole number of at least 1"):
        integer_bits(sequences([[1, 1]]), num_bits=0)


# Bins


def test_equal_width_bins_split_the_range_of_the_training_data() -> None:
    train = sequences([[0, 0], [7, NAN]], [[3, 70]])
    bins = EqualWidthBins(7).fit(train)
    np.testing.assert_allclose(bins.edges[0], [1, 2, 3, 4, 5, 6], rtol=1e-15)  # type: ignore[arg-type]
    coded = bins.apply(sequences([[0, 9.9], [1, 10], [6.99, NAN], [7, 70], [-5, 1e9]]))
    np.testing.assert_array_equal(coded.values, [[0, 0], [1, 1], [6, NAN], [6, 6], [0, 6]])
    assert coded.schema[0] == Variable.categorical("x", range(7))


def test_quantile_bins_hold_as_many_training_values_each() -> None:
    values = np.random.default_rng(0).gamma(1.0, size=(700, 2))
    train = sequences(values)
    coded = QuantileBins(7).fit(train).apply(train)
    counts = np.array([np.bincount(column.astype(int), minlength=7) for column in coded.values.T])
    assert np.abs(counts - 100).max() <= 1


def test_bins_of_other_data_do_not_move_the_edges() -> None:
    rng = np.random.default_rng(1)
    train, test = sequences(rng.normal(size=(30, 2))), sequences(rng.normal(5.0, 9.0, size=(40, 2)))
    for preparation in (EqualWidthBins(5), QuantileBins(5)):
        bins = preparation.fit(train)
        before = [np.array(edges) for edges in bins.edges]  # type: ignore[arg-type]
        bins.apply(test)
        np.testing.assert_array_equal(bins.edges, before)  # type: ignore[arg-type]
        again = preparation.fit(train).apply(test)
        np.testing.assert_array_equal(bins.apply(test).values, again.values)
        with pytest.raises(ValueError, match="read-only"):
            bins.edges[0][0] = 0.0  # type: ignore[index]


def test_bins_of_one_value_and_a_single_bin() -> None:
    train = sequences([[4, 4], [4, 5]])
    assert set(EqualWidthBins(3).fit(train).apply(train).values[:, 0]) == {2.0}
    np.testing.assert_array_equal(
        EqualWidthBins(1).fit(train).apply(train).values, np.zeros((2, 2))
    )
    np.testing.assert_array_equal(QuantileBins(1).fit(train).apply(train).values, np.zeros((2, 2)))


def test_bins_leave_categorical_variables_as_they_are() -> None:
    schema = Schema((Variable.binary("pen"), Variable.count("n")))
    data = sequences([[1, 0], [0, 10]], schema=schema)
    coded = EqualWidthBins(2).fit(data).apply(data)
    np.testing.assert_array_equal(coded.values, [[1, 0], [0, 1]])
    assert coded.schema[0] == schema[0]


def test_bins_of_a_variable_that_was_never_seen_are_refused() -> None:
    with pytest.raises(DataError, match="at least one value of variable 'y'"):
        EqualWidthBins(7).fit(sequences([[1, NAN], [2, NAN]]))
    with pytest.raises(DataError, match="`num_bins` must be a whole number of at least 1"):
        QuantileBins(0)


def test_fitted_preparations_refuse_other_variables() -> None:
    train = sequences([[1, 2], [2, 3]])
    other = sequences([[1], [2]], schema=Schema((Variable.continuous("x"),)))
    for preparation in (EqualWidthBins(2), QuantileBins(2), HourMeans()):
        with pytest.raises(
            DataError, match=r"variables the preparation was fitted to, \['x', 'y'\]"
        ):
            preparation.fit(train).apply(other)


# Filling


def test_missing_hours_are_filled_with_the_means_of_the_training_data() -> None:
    train = sequences([[1, 10], [NAN, 20]], [[3, NAN], [4, 40]], [[NAN, NAN], [NAN, NAN]])
    filling = HourMeans().fit(train)
    np.testing.assert_array_equal(filling.means, [[2, 10], [4, 30]])
    filled = filling.apply(sequences([[NAN, 5], [100, NAN]]))
    np.testing.assert_array_equal(filled.values, [[2, 5], [100, 30]])


def test_only_continuous_variables_are_filled() -> None:
    schema = Schema((Variable.continuous("x"), Variable.binary("pen")))
    train = sequences([[1, NAN]], [[NAN, NAN]], schema=schema)
    filled = HourMeans().fit(train).apply(train)
    np.testing.assert_array_equal(filled.values, [[1, NAN], [1, NAN]])


def test_filling_of_other_lengths_is_refused() -> None:
    train = sequences([[1, 2], [3, 4]])
    with pytest.raises(DataError, match=r"sequences of 2 slices, .* sequence 0 has 1"):
        HourMeans().fit(train).apply(sequences([[1, 2]]))
    with pytest.raises(DataError, match=r"sequences of 1 slices, .* sequence 1 has 2"):
        HourMeans().fit(sequences([[1, 2]], [[1, 2], [3, 4]]))


def test_an_hour_that_was_never_seen_is_refused() -> None:
    with pytest.raises(DataError, match="'x' is missing at hour 1 of every sequence"):
        HourMeans().fit(sequences([[1, 2], [NAN, 4]], [[1, 2], [NAN, 5]]))


# One interface


def test_a_chain_learns_each_step_from_what_the_steps_before_have_made() -> None:
    train = sequences([[0, 0], [NAN, 7]], [[8, 1], [4, NAN]])
    fitted = FILLED_BINS.fit(train)
    data = sequences([[NAN, NAN], [NAN, NAN]])
    np.testing.assert_array_equal(fitted.apply(data).values, [[3, 0], [3, 6]])
    assert not np.isnan(fitted.apply(train).values).any()


def test_fixed_preparations_learn_nothing() -> None:
    data = sequences([[1, 2], [3, 4]])
    assert RAW.fit(data).apply(data) is data
    assert unchanged(data) is data
    np.testing.assert_array_equal(MEDIAN_BITS.fit(data).apply(data).values, [[0, 0], [1, 1]])
    assert SEVEN_BITS.fit(data).apply(data).num_variables == 7
    assert Fixed(median_bits) == MEDIAN_BITS


def test_anything_but_sequences_is_refused() -> None:
    array: Any = np.zeros((2, 2))
    for call in (median_bits, integer_bits, MEDIAN_BITS.fit, EqualWidthBins().fit, HourMeans().fit):
        with pytest.raises(DataError, match="`data` must be a Sequences, found ndarray"):
            call(array)
    with pytest.raises(DataError, match="`steps` must be a Preparation"):
        Chain([median_bits])  # type: ignore[list-item]

"""The recorded data sets, read from ../shared/data: skipped where that is not there."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dspn.errors import DataError
from experiments.datasets import (
    FILLED_BINS,
    MEDIAN_BITS,
    SEVEN_BITS,
    EqualWidthBins,
    RealData,
    read_arabic_digits,
    read_japanese_vowels,
    read_ozone,
    read_pen_digits,
    read_pen_trajectories,
    read_vicon,
)

Reader = Callable[[Path], RealData]
Read = Callable[[Reader], RealData]


@pytest.fixture(scope="module")
def read(data_directory: Path) -> Read:
    """Reads a data set once; skips a test of one that is not there."""
    known: dict[Reader, RealData] = {}

    def once(reader: Reader) -> RealData:
        if reader not in known:
            try:
                known[reader] = reader(data_directory)
            except DataError as reason:
                if "not there" not in str(reason):
                    raise
                pytest.skip(f"needs a data set in ../shared/data: {reason}")
        return known[reader]

    return once


@pytest.mark.parametrize(
    ("reader", "sequences", "slices", "variables", "shortest", "longest"),
    [
        (read_ozone, 2534, 60816, 2, 24, 24),
        (read_japanese_vowels, 640, 9961, 12, 7, 29),
        (read_pen_digits, 10992, 87936, 2, 8, 8),
        (read_pen_trajectories, 10992, 442794, 3, 9, 231),
        (read_arabic_digits, 8800, 350319, 13, 4, 93),
        (read_vicon, 200, 605381, 27, 783, 6780),
    ],
)
def test_every_sequence_is_there(
    reader: Reader,
    sequences: int,
    slices: int,
    variables: int,
    shortest: int,
    longest: int,
    read: Read,
) -> None:
    data = read(reader).sequences
    assert len(data) == sequences
    assert data.total_slices == slices
    assert data.num_variables == variables
    assert (data.lengths.min(), data.lengths.max()) == (shortest, longest)


@pytest.mark.parametrize(
    ("reader", "num_train"),
    [
        (read_japanese_vowels, 270),
        (read_pen_digits, 7494),
        (read_pen_trajectories, 7494),
        (read_arabic_digits, 6600),
    ],
)
def test_the_official_split_covers_every_sequence_once(
    reader: Reader, num_train: int, read: Read
) -> None:
    data = read(reader)
    assert data.train is not None and data.test is not None and data.labels is not None
    assert data.train.size == num_train
    both = np.concatenate([data.train, data.test])
    np.testing.assert_array_equal(both, np.arange(len(data.sequences)))
    assert set(data.labels[data.train]) == set(data.labels[data.test])


def test_ozone_days_keep_their_gaps_and_dates(read: Read) -> None:
    data = read(read_ozone)
    assert data.labels is not None and data.train is None and data.test is None
    assert np.bincount(data.labels).tolist() == [2374, 160]
    values = data.sequences.values.reshape(2534, 24, 2)
    complete = ~np.isnan(values).any(axis=(1, 2))
    assert complete.sum() == 2169
    assert np.isnan(values).all(axis=(1, 2)).sum() == 175
    np.testing.assert_array_equal(values[0, :3], [[0.8, 5.2], [1.8, 6.1], [2.4, 6.1]])
    np.testing.assert_array_equal(values[0, 23], [2.6, 15.0])
    low, high = np.nanmin(values, axis=(0, 1)), np.nanmax(values, axis=(0, 1))
    np.testing.assert_array_equal([low, high], [[0.0, -3.6], [9.6, 41.6]])
    assert data.sequences.ids is not None and data.sequences.ids[:2] == ("1/1/1998", "1/2/1998")


def test_ozone_is_filled_and_binned_from_training_days(read: Read) -> None:
    data = read(read_ozone).sequences
    train, test = data[np.arange(2000)], data[np.arange(2000, 2534)]
    fitted = FILLED_BINS.fit(train)
    coded = fitted.apply(test)
    assert not np.isnan(coded.values).any()
    assert set(np.unique(coded.values)) <= set(range(7))
    kept = EqualWidthBins(7).fit(train).apply(test)
    seen = ~np.isnan(kept.values)
    np.testing.assert_array_equal(np.isnan(kept.values), np.isnan(test.values))
    np.testing.assert_array_equal(kept.values[seen], coded.values[seen])


def test_pen_digits_are_the_points_of_the_file_and_bits_of_them(read: Read) -> None:
    data = read(read_pen_digits)
    np.testing.assert_array_equal(data.sequences[0].reshape(-1)[:6], [47, 100, 27, 81, 57, 37])
    assert data.labels is not None and data.labels[0] == 8
    bits = SEVEN_BITS.fit(data.sequences).apply(data.sequences)
    assert bits.num_variables == 7
    assert set(bits.lengths) == {16}
    back = bits.values @ (2.0 ** np.arange(6, -1, -1))
    np.testing.assert_array_equal(back, data.sequences.values.reshape(-1))


def test_pen_trajectories_are_the_same_digits(read: Read) -> None:
    raw, resampled = read(read_pen_trajectories), read(read_pen_digits)
    np.testing.assert_array_equal(raw.labels, resampled.labels)  # type: ignore[arg-type]
    x, y, starts = raw.sequences.values.T
    assert (x.min(), x.max(), y.min(), y.max()) == (32, 467, 12, 472)
    strokes = np.add.reduceat(starts, raw.sequences.offsets[:-1])
    assert (strokes == 2).sum() == 2671
    assert (strokes > 2).sum() == 13
    assert (starts[raw.sequences.offsets[:-1]] == 1).all()
    # Both begin at the same end of the digit: high where the raw one is high.
    first = resampled.sequences.values.reshape(-1, 8, 2)[:, 0, 1]
    offsets, lengths = raw.sequences.offsets, raw.sequences.lengths
    low, high = (f(y, offsets[:-1]) for f in (np.minimum.reduceat, np.maximum.reduceat))
    share = (y[offsets[:-1]] - low) / (high - low)
    assert np.corrcoef(first, share)[0, 1] > 0.95
    assert lengths[:7494].mean() == pytest.approx(40.6, abs=0.05)


def test_japanese_vowels_are_those_of_the_other_copy(read: Read, data_directory: Path) -> None:
    data = read(read_japanese_vowels)
    assert data.labels is not None
    texts = [
        data_directory / "japanese_vowels" / f"JapaneseVowels_{part}.ts"
        for part in ("TRAIN", "TEST")
    ]
    if not all(path.is_file() for path in texts):
        pytest.skip("needs the copy in the .ts format in ../shared/data: not there")
    lines = [
        line
        for path in texts
        for line in path.read_text(encoding="utf-8").splitlines()
        if line and line[0] not in "@#"
    ]
    assert len(lines) == 640
    for line, own, label in zip(lines, data.sequences, data.labels.tolist(), strict=True):
        *dimensions, speaker = line.split(":")
        values = np.array([dimension.split(",") for dimension in dimensions], dtype=float).T
        np.testing.assert_allclose(own, values, rtol=1e-9)
        assert int(speaker) == label


def test_arabic_digits_begin_and_end_as_the_files_do(read: Read) -> None:
    data = read(read_arabic_digits)
    assert data.labels is not None
    np.testing.assert_array_equal(data.sequences[0][0, :3], [-0.81101, -7.2382, 1.5429])
    assert data.labels[[0, 659, 660, 6599, 6600, 6819, 6820, 8799]].tolist() == [
        *(0, 0, 1, 9, 0, 0, 1, 9)
    ]


def test_vicon_recordings_know_their_person_and_action(read: Read) -> None:
    data = read(read_vicon)
    assert data.labels is not None and data.sequences.ids is not None
    assert data.sequences.ids[0] == "sub1/aggressive/Elbowing"
    assert data.labels[0] == "Elbowing"
    assert np.unique(data.labels).size == 20
    assert (data.labels == "Running").sum() == 11
    index = data.sequences.ids.index("sub1/normal/Bowing")
    np.testing.assert_array_equal(
        data.sequences[index][0, :4], [34.375, 717.407, 1767.107, 269.042]
    )
    # The head is above the elbows, the knees above the ankles.
    mean = dict(zip(data.sequences.schema.names, data.sequences.values.mean(axis=0), strict=True))
    assert mean["head_z"] > mean["left_elbow_z"] > mean["left_knee_z"] > mean["left_ankle_z"]


@pytest.mark.parametrize("reader", [read_japanese_vowels, read_arabic_digits, read_vicon])
def test_median_bits_split_each_sequence_in_halves(reader: Reader, read: Read) -> None:
    data = read(reader).sequences
    bits = MEDIAN_BITS.fit(data).apply(data)
    assert bits.schema.names == data.schema.names
    above = np.add.reduceat(bits.values, bits.offsets[:-1])
    assert (above <= bits.lengths[:, None] // 2).all()


@pytest.mark.parametrize("damage", [b"", b"1 2 3"])
def test_a_damaged_copy_is_refused(damage: bytes, data_directory: Path, tmp_path: Path) -> None:
    original = data_directory / "ozone" / "eighthr.data"
    if not original.is_file():
        pytest.skip("needs ozone/eighthr.data in ../shared/data: not there")
    whole = original.read_bytes()
    folder = tmp_path / "ozone"
    folder.mkdir()
    (folder / "eighthr.data").write_bytes(damage)
    with pytest.raises(DataError, match="must hold 818328 bytes"):
        read_ozone(tmp_path)
    (folder / "eighthr.data").write_bytes(whole.replace(b"1998", b"1999"))
    with pytest.raises(DataError, match="SHA-256"):
        read_ozone(tmp_path)
    (folder / "eighthr.data").write_bytes(whole)
    assert len(read_ozone(tmp_path).sequences) == 2534

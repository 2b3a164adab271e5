"""Files of aeon and sktime, and long frames of Nixtla and GluonTS, in and out."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dspn import HMM, DataError, read_ts

TS = """# made by hand
@problemName Two
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true a b
@data
1.5,2.5,3.5:0.25,?,0.75:a
4.5,5.5:1.25,1.5:b
"""


def test_a_ts_file_has_sequences_and_classes(tmp_path: Path) -> None:
    path = tmp_path / "x.ts"
    path.write_text(TS)
    data, labels = read_ts(path, names=["x", "y"])
    assert labels.tolist() == ["a", "b"] and data.lengths.tolist() == [3, 2]
    assert data.schema.names == ("x", "y")
    np.testing.assert_array_equal(data[0], [[1.5, 0.25], [2.5, np.nan], [3.5, 0.75]])
    path.write_text(
        TS.replace("@classLabel true a b", "@targetLabel true")
        .replace(":a", ":1.5")
        .replace(":b", ":2.5")
    )
    assert read_ts(path)[1].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("@data\n", "", "must have a line @data"),
        ("1.5,2.5", "1.5,x", "line 10 of"),
        ("1.5,2.5,3.5", "1.5,2.5", "dimensions of one length"),
        ("@timeStamps false", "@timeStamps true", "time stamps"),
    ],
)
def test_a_ts_file_that_is_wrong_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "x.ts"
    path.write_text(TS.replace(old, new))
    with pytest.raises(DataError, match=said):
        read_ts(path)


def test_long_frames_go_in_and_come_out() -> None:
    days = pd.date_range("2024-01-01", periods=8)
    rng = np.random.default_rng(0)
    parts = [pd.DataFrame({"unique_id": n, "ds": days, "y": rng.normal(size=8)}) for n in "ab"]
    own = HMM(1, random_state=0, validation_fraction=0.0)
    own.fit(pd.concat(parts), sequence="unique_id", order="ds")
    ahead = own.forecast(pd.concat(parts), 2, quantiles=(0.1, 0.9)).to_frame()
    assert list(ahead.columns) == ["unique_id", "ds", "step", "y", "y@0.1", "y@0.9"]
    assert ahead["ds"].tolist() == [*pd.date_range("2024-01-09", periods=2)] * 2

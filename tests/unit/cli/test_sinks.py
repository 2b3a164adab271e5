"""Columns of text that get a type, and dictionaries in files that have room for one."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from dspn.cli.sink import Sink
from dspn.errors import DataError

Run = Any


def typed(kind: Any, *parts: list[str | None]) -> list[Any]:
    """The cells of a column after its parts have been written."""
    file = io.BytesIO()
    sink = Sink(file, "json", {"x": kind})
    for cells in parts:
        sink.write(pa.table({"x": pa.array(cells, pa.large_string())}))
    sink.close()
    return [json.loads(line)["x"] for line in file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("kind", "parts", "expected"),
    [
        (pa.string(), ([" rain"], ["rain "]), [" rain", "rain "]),
        (None, ([" a"], [" b"], ["7"]), [" a", " b", "7"]),
        (None, ([None], [" 7"]), [None, " 7"]),
        (None, (["1"], ["7", None]), [1, 7, None]),
        (None, (["1.5"], ["7"]), [1.5, 7.0]),
        (pa.int64(), (["1"], [" 7 ", "2.0"], [None]), [1, 7, 2, None]),
        (pa.float64(), (["14.80"], ["007"]), [14.8, 7.0]),
    ],
)
def test_cells_stay_what_they_are(kind: Any, parts: Any, expected: list[Any]) -> None:
    assert typed(kind, *parts) == expected


@pytest.mark.parametrize(
    ("first", "later", "words"),
    [
        ("1", "007", "begins as int64, but does not stay so ('007' would be '7')"),
        ("1.5", "14.80", "begins as double, but does not stay so ('14.80' would be '14.8')"),
        ("1", "a", "begins as int64, but does not stay so"),
    ],
)
def test_a_later_part_that_would_change_is_refused(first: str, later: str, words: str) -> None:
    with pytest.raises(DataError) as found:
        typed(None, [first], ["3", None, later])
    assert words in str(found.value)


@pytest.mark.parametrize("name", ["out.arrow", "out.parquet"])
def test_dictionaries_that_differ_from_part_to_part_are_written(
    command: Run, model: Path, name: str
) -> None:
    notes = [f"note {row}" for row in range(6)]
    parts = [pa.array(notes[row : row + 2]).dictionary_encode() for row in (0, 2, 4)]
    table = pa.table(
        {
            "day": list("aabbcc"),
            "hour": [1, 2] * 3,
            "sky": ["rain"] * 6,
            "celsius": [20.0, None] * 3,
            "visitors": [9] * 6,
            "note": pa.chunked_array(parts),
        }
    )
    pq.write_table(table, "in.parquet", row_group_size=2)
    found = command("impute", model, "in.parquet", "-o", name, "--chunk-rows", 2)
    assert found.status == 0, found.err
    read = pyarrow.feather.read_table if name.endswith("arrow") else pq.read_table
    assert read(name)["note"].to_pylist() == notes

"""Results that are kept one by one: found again, listed, refused where they are damaged."""

import json
from pathlib import Path

import pytest

from dspn.errors import DataError
from experiments.results import Results


def test_results_are_found_by_another_run(tmp_path: Path) -> None:
    first, second = Results(tmp_path), Results(tmp_path)
    assert second.find("vowels/0/dspn") is None
    first.add("vowels/0/dspn", {"test": [-1.0]})
    assert second.find("vowels/0/dspn") == {"test": [-1.0]}
    first.add("vowels/1/hmm", {"test": [-2.0]})
    first.add("ozone/0/hmm", {"test": [-3.0]})
    assert [key for key, _ in second.under("vowels")] == ["vowels/0/dspn", "vowels/1/hmm"]
    assert not list(second.under("nothing"))


def test_results_of_another_release_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"version": "0.0.0", "entry": {}}))
    results = Results(tmp_path)
    assert results.find("a") is None
    assert not list(results.under(""))


@pytest.mark.parametrize("content", ["{", "[]", '{"version": "1"}'])
def test_damaged_results_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match="cannot be read"):
        Results(tmp_path).find("a")

"""The experiment on classes: chooses within the training part, resumes, prints what it measured."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError
from experiments import classification
from experiments.__main__ import run
from experiments.classification import CASES, Case, Results
from experiments.datasets import RAW, RealData, read_japanese_vowels


def drawn(directory: Path | None = None) -> RealData:
    """Three classes of walks that drift up, down and nowhere."""
    rng = np.random.default_rng(3)
    labels = np.tile([0, 1, 2], 20)
    values = rng.normal(size=(60, 6, 1)) + 2.0 * (labels[:, None, None] - 1) * np.arange(6)[:, None]
    schema = Schema((Variable.continuous("x"),))
    data = Sequences.from_padded(values, schema=schema)
    return RealData("walks", data, labels, np.arange(45), np.arange(45, 60))


CASE = Case("walks", drawn, RAW, "raw", (2, 1))
WALKS = {"walks": CASE}


def _run(path: Path) -> tuple[Results, str]:
    results, output = Results(path), io.StringIO()
    classification.run(["walks"], results, None, Console(file=output, width=200), WALKS)
    return results, output.getvalue()


def test_classes_that_differ_are_told_apart(tmp_path: Path) -> None:
    results, said = _run(tmp_path / "results")
    (row,) = classification.rows(["walks"], results, WALKS)
    assert (row.num_train, row.num_test) == (45, 15)
    assert row.accuracy >= 0.8
    assert row.error == pytest.approx((row.accuracy * (1 - row.accuracy) / 15) ** 0.5)
    entry = results.find("classes/walks")
    assert entry is not None
    choices = entry["choices"]
    assert list(choices) == ["1", "2"]
    best = max(choices.values())
    assert row.num_states == min(int(k) for k, share in choices.items() if share == best)
    assert f"walks: {row.num_states} states" in said
    text = classification.view(["walks"], results, WALKS).markdown
    assert f"HMM of {row.num_states} states for each class" in text


def test_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "results"
    before = json.loads(json.dumps(_run(path)[0].find("classes/walks")))
    again, said = _run(path)
    # Times and all: nothing is learned again.
    assert again.find("classes/walks") == before
    assert "walks" in said


def test_what_is_chosen_and_learned_does_not_depend_on_the_test_part() -> None:
    data = drawn()
    assert data.labels is not None
    one = classification.tested(CASE, data)
    labels = np.array(data.labels)
    labels[45:] = (labels[45:] + 1) % 3
    other = classification.tested(CASE, replace(data, labels=labels))
    assert {k: one[k] for k in ("states", "choices")} == {
        k: other[k] for k in ("states", "choices")
    }
    # The same predictions are right about other sequences now.
    assert not (np.array(one["test"]) & np.array(other["test"])).any()


def test_data_without_a_split_are_refused() -> None:
    data = drawn()
    with pytest.raises(DataError, match="walks must have classes and a split of its own"):
        classification.tested(CASE, RealData("walks", data.sequences, data.labels))


def test_command_writes_the_table_and_refuses_unknown_data(tmp_path: Path) -> None:
    entry = {"states": 4, "choices": {"4": 1.0}, "num_train": 9, "test": [True], "seconds": 1.0}
    Results(tmp_path / "cells").add("classes/vowels", entry)
    arguments = ["classes", "--out", str(tmp_path)]
    assert run([*arguments, "--data", "vowels"]) == 0
    shown = (tmp_path / "tables" / "classes.md").read_text()
    assert "| JapaneseVowels | raw | HMM of 4 states for each class | 9 | 1 |" in shown
    assert run([*arguments, "--data", "nothing"]) == 1


def test_vowels_are_above_the_bar_with_a_fixed_number_of_states(data_directory: Path) -> None:
    case = replace(CASES["vowels"], states=(4,), num_splits=1)
    try:
        data: Any = read_japanese_vowels(data_directory)
    except DataError as reason:
        pytest.skip(f"needs a data set in ../shared/data: {reason}")
    found = classification.tested(case, data)
    assert (found["num_train"], len(found["test"])) == (270, 370)
    assert np.mean(found["test"]) > 0.95

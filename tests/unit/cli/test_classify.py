from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspn import DSPNClassifier
from dspn.data import Sequences
from dspn.models import HMM

Run = Any


@pytest.fixture
def walks(tmp_path: Path) -> Path:
    """Two walkers, one faster than the other."""
    rng = np.random.default_rng(3)
    lines = ["walk,time,speed,who"]
    for walk in range(24):
        who, pace = ("ann", 1.0) if walk % 2 else ("bob", 3.0)
        for time, speed in enumerate(pace + rng.standard_normal(5)):
            lines.append(f"{walk},{time},{speed:.3f},{who}")
    path = tmp_path / "walks.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


WORDS = ("-s", "walk", "-t", "time", "--label", "who", "--states", 2, "-q")


def test_predictions_are_those_of_the_classifier(command: Run, walks: Path) -> None:
    assert command("classify", "fit", walks, *WORDS, "-o", "who.dspn").status == 0
    found = command("classify", "predict", "who.dspn", walks)
    header, *rows = found.rows()
    assert header == ["walk", "predicted", "P(ann)", "P(bob)"]
    assert "of 24 sequences have the class of their label" in found.err
    values = np.loadtxt(walks, delimiter=",", skiprows=1, usecols=2)
    data = Sequences.from_concatenated(values[:, None], [5] * 24, names=["speed"])
    labels = np.array(["bob", "ann"] * 12)
    own = DSPNClassifier(HMM(2), random_state=0).fit(data, labels)
    np.testing.assert_allclose(
        [[float(cell) for cell in row[2:]] for row in rows], own.predict_proba(data), rtol=1e-9
    )
    assert [row[1] for row in rows] == own.predict(data).tolist()


def test_a_classifier_is_no_model(command: Run, walks: Path) -> None:
    command("classify", "fit", walks, *WORDS, "-o", "who.dspn")
    assert "a valid classifier" in command("inspect", "who.dspn").out
    found = command("score", "who.dspn", walks)
    assert found.status == 1 and "classifier" in found.err
    assert command("validate", "who.dspn").status == 0


def test_a_model_is_no_classifier(command: Run, model: Path, days: Path) -> None:
    found = command("classify", "predict", model, days)
    assert found.status == 1
    assert "holds a model, not a classifier; `dspn classify fit` makes one" in found.err
    assert "no such file" in command("classify", "predict", "none.dspn", days).err


def test_labels_have_to_be_clear(command: Run, walks: Path) -> None:
    text = walks.read_text()
    for changed, words in (
        (text.replace("ann", "", 1), ("'who'", "row 6")),
        (text.replace("ann", "eve", 1), ("'eve'", "row 6", "'ann'", "row 7")),
        (text.replace("bob", "ann"), ("two classes",)),
        (text.replace("who", "whom"), ("'who'", "did you mean 'whom'?")),
    ):
        found = command("classify", "fit", "-", *WORDS, "-o", "who.dspn", piped=changed)
        assert found.status == 1
        assert len(found.err.splitlines()) == 1
        for word in words:
            assert word in found.err


def test_predicting_needs_no_labels(command: Run, walks: Path) -> None:
    command("classify", "fit", walks, *WORDS, "-o", "who.dspn")
    whole = command("classify", "predict", "who.dspn", walks)
    header, *rows = walks.read_text().splitlines()
    gaps = [row if int(row.split(",")[0]) < 9 else row.rpartition(",")[0] + "," for row in rows]
    gaps[0] = gaps[0].removesuffix("bob")
    found = command("classify", "predict", "who.dspn", piped="\n".join([header, *gaps]))
    assert (found.status, found.out) == (0, whole.out)
    assert "of 9 sequences have the class of their label" in found.err
    bare = [row.rpartition(",")[0] + "," for row in rows]
    found = command("classify", "predict", "who.dspn", piped="\n".join([header, *bare]))
    assert (found.status, found.out) == (0, whole.out)
    assert "of their label" not in found.err
    gaps[1] = gaps[1].replace("bob", "eve")
    found = command("classify", "predict", "who.dspn", piped="\n".join([header, *gaps]))
    assert found.status == 1
    assert "'eve' in row 2 and 'bob' in row 3" in found.err

from pathlib import Path

import numpy as np
import pytest

import dspn
from dspn.errors import ModelFileError
from dspn.io import load_classifier, save_classifier
from dspn.io.files import Contents, pack, unpack
from dspn.structure import Mixture

SCHEMA = dspn.Schema((dspn.Variable.binary("x"),))


def mixture(share: float, schema: dspn.Schema = SCHEMA) -> Mixture:
    name = schema[0].name
    return dspn.Model.from_hmm(
        [0.5, 0.5],
        [[0.9, 0.1], [0.2, 0.8]],
        {name: [[share, 1 - share], [0.5, 0.5]]},
        schema=schema,
    ).mixture


def saved(path: Path) -> None:
    one, other = mixture(0.25), mixture(0.75)
    several = Mixture((one.only, other.only), np.array([0.25, 0.75]))
    models = [(one, {"seed": 1}), (several, {"seed": 2})]
    save_classifier(path, ["a", "b"], np.log([0.25, 0.75]), models, provenance={"label": "who"})


def test_a_classifier_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "c.dspn"
    saved(path)
    first = path.read_bytes()
    found = load_classifier(path)
    assert found.classes == ("a", "b")
    np.testing.assert_array_equal(found.logits, np.log([0.25, 0.75]))
    assert [len(own.mixture) for own in found.models] == [1, 2]
    assert found.models[0].mixture.fingerprint == mixture(0.25).fingerprint
    assert found.models[1].provenance == {"seed": 2}
    assert found.provenance == {"label": "who"}
    saved(path)
    assert path.read_bytes() == first


def test_models_and_classifiers_are_told_apart(tmp_path: Path) -> None:
    saved(tmp_path / "c.dspn")
    dspn.Model(mixture(0.5)).save(tmp_path / "m.dspn")
    assert isinstance(dspn.load(tmp_path / "c.dspn"), dspn.DSPNClassifier)
    assert isinstance(dspn.load(tmp_path / "m.dspn"), dspn.Model)
    with pytest.raises(ModelFileError, match="it is a classifier, which has a model for each"):
        dspn.Model.load(tmp_path / "c.dspn")
    with pytest.raises(ModelFileError, match="no such file"):
        dspn.load(tmp_path / "none.dspn")
    with pytest.raises(ModelFileError, match="as a classifier"):
        load_classifier(tmp_path / "m.dspn")


def test_every_byte_is_under_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "c.dspn"
    saved(path)
    data = path.read_bytes()
    for place in np.random.default_rng(0).integers(len(data), size=40):
        changed = bytearray(data)
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(ModelFileError):
            load_classifier(path)
    path.write_bytes(data[:-5])
    with pytest.raises(ModelFileError):
        load_classifier(path)


@pytest.mark.parametrize(
    ("classes", "logits", "count", "match"),
    [
        (["a"], [0.0], 1, "two classes"),
        (["a", "a"], [0.0, 0.0], 2, "two classes"),
        ([0, "0"], [0.0, 0.0], 2, "two classes that differ, all numbers"),
        ([0, False], [0.0, 0.0], 2, "two classes that differ"),
        ([1, 1.0], [0.0, 0.0], 2, "two classes that differ"),
        (["a", "a\0"], [0.0, 0.0], 2, "two classes that differ"),
        (["a", "b" * 1001], [0.0, 0.0], 2, "at most 1000 characters"),
        (["a", "b"], [0.0], 2, "logit"),
        (["a", "b"], [0.0, -np.inf], 2, "finite"),
        (["a", "b"], [0.0, 0.0], 1, "1 models"),
    ],
)
def test_what_is_no_classifier_is_not_written(
    tmp_path: Path, classes: list[str], logits: list[float], count: int, match: str
) -> None:
    path = tmp_path / "c.dspn"
    path.write_bytes(b"old")
    models = [(mixture(0.5), {})] * count
    with pytest.raises(ModelFileError, match=match):
        save_classifier(path, classes, np.array(logits), models)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("name", ["class.2.weights", "class.0", "klass.0.weights", "x"])
def test_a_tensor_of_no_class_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "c.dspn"
    saved(path)
    found = unpack(path.read_bytes())
    path.write_bytes(
        pack(Contents({**found.tensors, name: np.zeros(1)}, found.metadata, found.version))
    )
    with pytest.raises(ModelFileError, match=r"belongs to no class|1 are unknown"):
        load_classifier(path)


def test_classes_of_one_name_in_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.dspn"
    saved(path)
    found = unpack(path.read_bytes())
    metadata = {**found.metadata, "classes": [0, "0"]}
    path.write_bytes(pack(Contents(found.tensors, metadata, found.version)))
    with pytest.raises(ModelFileError, match=r"two classes that differ, .*, found \[0, '0'\]"):
        load_classifier(path)


def test_models_of_other_variables_do_not_go_together(tmp_path: Path) -> None:
    other = dspn.Schema((dspn.Variable.binary("y"),))
    models = [(mixture(0.5), {}), (mixture(0.5, other), {})]
    with pytest.raises(ModelFileError, match="variables"):
        save_classifier(tmp_path / "c.dspn", [1, 2], np.zeros(2), models)
    assert not (tmp_path / "c.dspn").exists()

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dspn
from dspn.data import Schema, Sequences, Variable
from dspn.errors import DataError, DspnError, ModelFileError, StructureError
from dspn.models import Model
from dspn.report import report_html, write_report
from unit.report.cases import mixed_data, mixed_model
from unit.report.reading import facts_of, numbers_of, readers_of

HOSTILE = "</script><b>"


def test_the_page_is_written_whole_and_is_the_same_each_time(tmp_path: Path) -> None:
    model = mixed_model()
    data = mixed_data(model)
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(model, data, path, title="Weather", steps=2)
    text = path.read_text(encoding="utf-8")
    assert text == report_html(model, data, title="Weather", steps=2)
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_the_policy_allows_no_source_base_or_form_but_its_own() -> None:
    model = mixed_model()
    page = report_html(model, mixed_data(model))

    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    # These two do not fall back on `default-src`.
    assert rules["base-uri"] == rules["form-action"] == rules["default-src"] == "'none'"


def test_a_learned_model_is_reported() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((5, 2)) for _ in range(6)]
    model = dspn.HMM(2, random_state=0).fit(arrays).model_
    page = report_html(model, Sequences.from_arrays(arrays, schema=model.schema))
    assert "How the model was made" in page
    assert facts_of(page)["sequences"]["ids"] is None


def test_max_sequences_keeps_the_most_surprising() -> None:
    model = mixed_model()
    data = mixed_data(model)
    page = report_html(model, data, max_sequences=2)
    per_slice = -model.log_likelihood(data) / data.lengths
    assert numbers_of(page) == np.argsort(-per_slice, kind="stable")[:2].tolist()
    assert len(readers_of(page)) == 2


def test_names_and_ids_cannot_break_out_of_the_page() -> None:
    schema = Schema(
        (Variable.categorical(HOSTILE, [HOSTILE, "<i>"]), Variable.continuous("{{facts}}"))
    )
    model = Model.from_hmm(
        [1.0], [[1.0]], {HOSTILE: [[0.5, 0.5]], "{{facts}}": [[0.0, 1.0]]}, schema=schema
    )
    data = Sequences.from_arrays(
        [[[HOSTILE, 1.0]]], schema=schema, ids=["</script><script>alert(1)</script>"]
    )
    page = report_html(model, data, title="<script>alert(2)</script>{{records}}")
    assert "<b>" not in page.replace("<b></b>", "")
    assert "alert(1)</script>" not in page and "<script>alert" not in page
    assert page.count("</script>") == 3
    assert facts_of(page)["variables"][0]["name"] == HOSTILE


def test_half_a_pair_of_surrogates_is_written_as_a_mark(tmp_path: Path) -> None:
    schema = Schema((Variable.continuous("\ud800"),))
    model = Model.from_hmm([1.0], [[1.0]], {"\ud800": [[0.0, 1.0]]}, schema=schema)
    data = Sequences.from_arrays([[[1.0]]], schema=schema)
    write_report(model, data, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"steps": -1}, DataError, "`steps`"),
        ({"steps": 2.5}, DataError, "`steps`"),
        ({"max_sequences": 0}, DataError, "`max_sequences`"),
        ({"title": 3}, DataError, "`title` must be a str"),
        ({"model": None}, StructureError, "`model` must be a Model"),
        ({"data": mixed_data(mixed_model()).select(["sky"])}, DataError, "`data` must have"),
    ],
)
def test_bad_arguments_are_named(
    options: dict[str, Any], error: type[DspnError], said: str
) -> None:
    model = mixed_model()
    given = {"model": model, "data": mixed_data(model), **options}
    with pytest.raises(error, match=said):
        report_html(given.pop("model"), given.pop("data"), **given)


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    model = mixed_model()
    data = mixed_data(model)
    with pytest.raises(ModelFileError, match="does not exist"):
        write_report(model, data, tmp_path / "no" / "page.html")
    with pytest.raises(ModelFileError, match="`path` must be the name of a file"):
        write_report(model, data, 3)  # type: ignore[arg-type]

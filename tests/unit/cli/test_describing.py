import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import dspn
from dspn.cli.app import run
from dspn.cli.console import note
from integration.docs_pages import Session, examples

Run = Any


def test_inspect_tells_all_of_a_model(command: Run, model: Path) -> None:
    shown = command("inspect", model).out
    assert "a valid model" in shown and "clear, rain" in shown
    told = json.loads(command("inspect", model, "--json").out)
    assert told["valid"] is True
    assert told["components"][0]["groups"] == [
        {"interfaces": [0, 1], "variables": ["sky", "celsius", "visitors"]}
    ]
    assert told["provenance"]["table"] == {"order": "hour", "sequence": "day"}


def test_validate_finds_nothing_wrong(command: Run, model: Path, days: Path) -> None:
    for words in ((model,), (days, "-s", "day", "-t", "hour"), (days, "--model", model)):
        found = command("validate", *words)
        assert (found.status, found.out) == (0, "")
    assert json.loads(command("validate", model, "--json").out)["valid"] is True


def test_validate_names_every_column_that_is_wrong(command: Run, model: Path) -> None:
    text = "day,hour,sky,celsius,visitors\na,1,rain,20,9\na,2,snow,hot,1.5\n"
    found = command("validate", "-", "--model", model, "--json", piped=text)
    assert found.status == 1
    problems = json.loads(found.out)["problems"]
    assert len(problems) == 3
    assert all("row 2" in problem for problem in problems)
    found = command("validate", "-", "-s", "day", piped=text)
    assert found.status == 1
    assert [line.split("'")[1] for line in found.out.splitlines()] == ["celsius"]


def test_validate_names_what_is_wrong_with_a_model(command: Run, model: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-3] ^= 1
    model.write_bytes(data)
    found = command("validate", model)
    assert found.status == 1
    assert "checksum" in found.out
    assert command("score", model).status == 1


@pytest.mark.parametrize("name", ["template.png", "unrolled.svg"])
def test_pictures_of_a_model(command: Run, model: Path, name: str) -> None:
    assert command("plot", Path(name).stem, model, "-o", name).status == 0
    assert Path(name).stat().st_size > 1000


def test_pictures_of_a_sequence(command: Run, model: Path, days: Path) -> None:
    for kind in ("filtered", "surprise"):
        found = command("plot", kind, model, days, "--only", "tue", "-o", f"{kind}.png")
        assert found.status == 0, found.err
        assert Path(f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    assert "'wed'" in command("plot", "filtered", model, days, "--only", "wed", "-o", "x.png").err
    assert "needs DATA" in command("plot", "filtered", model, "-o", "x.png").err


def test_rows_that_lie_apart_are_sorted_for_pictures_and_pages(
    command: Run, model: Path, days: Path
) -> None:
    header, *rows = days.read_text().splitlines(keepends=True)
    days.write_text("".join([header, rows[3], rows[0], rows[2], rows[4], rows[1]]))
    words = ("plot", "surprise", model, days, "-o", "x.png")
    assert "--sort" in command(*words).err
    found = command(*words, "--sort")
    assert (found.status, found.err) == (0, "wrote x.png\n")
    page = ("report", model, days, "-o", "x.html", "--steps", 2)
    assert "--sort" in command(*page).err
    found = command(*page, "--sort")
    assert (found.status, found.err) == (0, "wrote x.html: 2 sequences\n")


def test_report_is_a_page(command: Run, model: Path, days: Path) -> None:
    pytest.importorskip("dspn.report")
    found = command("report", model, days, "-o", "report.html", "--steps", 2)
    assert found.status == 0, found.err
    assert "<html" in Path("report.html").read_text().lower()


COMMANDS = (
    *("fit", "score", "impute", "complete", "forecast", "sample", "surprise", "inspect"),
    *("validate", "plot", "report", "watch", "classify fit", "classify predict"),
)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_the_help_use_options_that_there_are(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*name.split(), "--help"]) == 0
    described, _, examples = capsys.readouterr().out.partition("Examples:\n")
    option = re.compile(r"(?<= )--?[a-z][a-z-]*")
    lines = re.findall(rf"dspn {name}( [^|\n]*)", examples)
    assert lines
    assert set(option.findall(" ".join(lines))) <= set(option.findall(described))


def test_version_is_that_of_the_package(command: Run) -> None:
    assert command("--version").out == f"dspn {dspn.__version__}\n"


# A red name that also clears the screen, and half of a surrogate pair.
STRANGE = "\x1b[2J\x1b[31mred\u202e", "half \ud800"


def strange_model(path: Path) -> None:
    schema = dspn.Schema(
        tuple(dspn.Variable.categorical(name, ("a", *STRANGE)) for name in STRANGE)
    )
    emissions = {name: [[0.5, 0.25, 0.25]] for name in STRANGE}
    model = dspn.Model.from_hmm([1.0], [[1.0]], emissions, schema=schema)
    model.provenance[STRANGE[0]] = {STRANGE[1]: STRANGE}
    model.save(path)


def test_inspect_escapes_what_a_terminal_would_obey(command: Run, tmp_path: Path) -> None:
    strange_model(tmp_path / "strange.dspn")
    for words in (("inspect",), ("inspect", "--json"), ("validate", "--json")):
        found = command(words[0], tmp_path / "strange.dspn", *words[1:])
        assert found.status == 0
        assert (found.out + found.err).replace("\n", "").isprintable()
    assert r"\x1b[2J\x1b[31mred\u202e" in command("inspect", tmp_path / "strange.dspn").out


def test_names_that_no_table_can_hold_end_in_a_sentence(command: Run, tmp_path: Path) -> None:
    strange_model(tmp_path / "strange.dspn")
    found = command("sample", tmp_path / "strange.dspn", "-n", "2", "--length", "3")
    assert found.status == 1
    assert r"'half \ud800' has half of a surrogate pair; give it another name" in found.err
    assert "UnicodeEncodeError" not in found.err


def test_errors_escape_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    note("error: " + " and ".join(STRANGE))
    assert r"\x1b[2J\x1b[31mred\u202e and half \ud800" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.parametrize(
    "words", [["inspect"], ["validate"], ["score"], ["classify", "predict"], ["watch"]]
)
def test_a_pipe_in_place_of_a_model_is_refused(
    command: Run, tmp_path: Path, days: Path, words: list[str]
) -> None:
    os.mkfifo(tmp_path / "pipe.dspn")
    more = [days] if words[0] in ("score", "classify") else []
    found = command(*words, tmp_path / "pipe.dspn", *more)
    assert found.status == 1
    assert "it is a device, a pipe or a socket; give the name of a model file" in (
        found.err + found.out
    )


def test_a_leaf_family_from_outside_is_refused_in_a_sentence(command: Run) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "extending.md"
    session = Session(page)
    session.run(next(one for one in examples(page) if "class StudentT" in one.source))
    leaf: Any = session.namespace["StudentT"]()
    schema = dspn.Schema((dspn.Variable.continuous("x", leaf=leaf),))
    emissions = {"x": [[0.0, 1.0]]}
    dspn.Model.from_hmm([1.0], [[1.0]], emissions, schema=schema).save("own.dspn")
    sentence = (
        "'own.dspn' has a leaf family that is not one of dspn, and commands know no others; load "
        "the model in Python, by dspn.load(path, families=[...]).\n"
    )
    for words in (("score", "own.dspn"), ("inspect", "own.dspn"), ("watch", "own.dspn")):
        found = command(*words, piped="x\n1\n")
        assert (found.status, found.err) == (1, f"error: {sentence}")
    found = command("validate", "own.dspn")
    assert (found.status, found.out) == (1, sentence)


def test_no_arguments_print_help_in_lines(command: Run) -> None:
    for words in ((), ("classify",)):
        found = command(*words)
        assert found.status == 2 and not found.err
        assert found.out.startswith("Usage: dspn") and len(found.out.splitlines()) > 8

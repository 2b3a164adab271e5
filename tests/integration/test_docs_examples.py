"""Every block of the README and the documentation runs and prints what the page says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from scipy import stats

from dspn.cli.app import app
from dspn.leaves import GaussianPrior
from dspn.leaves.contract import Case, check_family
from integration.docs_pages import NOT_RUN, Example, Session, agrees, examples, fenced_blocks

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("howto/*.md"))]
# Pages whose console blocks name commands that install, or that take hours.
FOR_READERS = {"README.md", "experiments.md"}


def run_here(page: Path) -> list[Example]:
    found = examples(page)
    if page.name in FOR_READERS:
        return [example for example in found if not example.is_command]
    return found


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=named(page)) for page in PAGES if run_here(page)]
)
def test_examples_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(page)
    for example in run_here(page):
        actual = session.run(example)
        if not example.said_by(actual):
            assert actual == example.printed, f"{page.name}, line {example.line}"


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", "docs/tutorial.md"])
def test_pages_for_beginners_have_examples(name: str) -> None:
    assert run_here(REPOSITORY / name)


def test_few_blocks_are_not_run() -> None:
    marked = [
        f"{named(page)}, line {block.first}"
        for page in PAGES
        for block in fenced_blocks(page.read_text(encoding="utf-8"))
        if NOT_RUN in block.words
    ]
    assert len(marked) <= 8, marked


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_have_no_open_marks(page: Path) -> None:
    assert "TODO" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("expected", "actual", "agree"),
    [
        ("a 1.2345 b\n", "a 1.2346 b\n", True),
        ("a 1.2345 b\n", "a 1.3 b\n", False),
        ("a 12 b\n", "a 13 b\n", False),
        ("first\n...\nlast\n", "first\nsecond\nthird\nlast\n", True),
        ("took ... s, 0.5\n", "took 3.25 s, 0.5\n", True),
        ("first\n...\n", "last\n", False),
    ],
)
def test_what_commands_say_is_compared_by_words_and_numbers(
    expected: str, actual: str, agree: bool
) -> None:
    assert agrees(expected, actual) is agree


def command_lines(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The command and all below it, as they are written."""
    yield " ".join(path)
    context = typer.Context(command)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from command_lines(command.get_command(context, name), (*path, name))


def test_the_reference_has_the_help_of_every_command() -> None:
    shown = {example.source for example in examples(DOCS / "cli.md")}
    wanted = {f"{line} --help" for line in command_lines(typer.main.get_command(app), ("dspn",))}
    assert wanted - shown == set()


def test_the_leaf_of_the_page_on_extending_keeps_the_contract_of_the_library() -> None:
    page = DOCS / "extending.md"
    session = Session(page)
    session.run(next(one for one in examples(page) if "class StudentT" in one.source))
    rows = np.array([[0.0, 1.0], [-3.0, 0.25], [2.0, 9.0]])
    scales = np.sqrt(rows[:, 1])
    family = session.namespace["StudentT"](df=5.0)
    check_family(
        Case(
            family,
            rows,
            np.linspace(-400.0, 400.0, 80_001),
            priors=(GaussianPrior(1.0, 4.0, 0.0, 1e-6), GaussianPrior(1.0, 2.0, 5.0, 0.3)),
            oracles=tuple(stats.t(5.0, m, s) for m, s in zip(rows[:, 0], scales, strict=True)),
        )
    )

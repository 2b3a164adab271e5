"""Every Python block of the README and the documentation runs and prints what the page says."""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Example:
    """A block of Python, the line of its page on which it begins, and what it must print."""

    code: str
    line: int
    printed: str


def fenced_blocks(text: str) -> list[tuple[str, str, int]]:
    """(language, contents, number of the first line) of the blocks between fences, in order.

    Text other than white space between two blocks is a block of the language "".
    """
    blocks: list[tuple[str, str, int]] = []
    language: str | None = None
    held: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if language is None and line.startswith("```"):
            language, held = line.removeprefix("```").strip(), []
        elif language is not None and line == "```":
            contents = "".join(f"{kept}\n" for kept in held)
            blocks.append((language, contents, number - len(held)))
            language = None
        elif language is not None:
            held.append(line)
        elif line.strip():
            blocks.append(("", line, number))
    assert language is None, f"a block of {language!r} is not closed"
    return blocks


def examples(page: Path) -> list[Example]:
    blocks = fenced_blocks(page.read_text(encoding="utf-8"))
    found = []
    for (language, code, line), (follower, text, _) in zip(
        blocks, [*blocks[1:], ("", "", 0)], strict=True
    ):
        if language == "python":
            found.append(Example(code, line, text if follower in ("text", "output") else ""))
    return found


def printed_by(example: Example, page: Path, namespace: dict[str, Any]) -> str:
    """Runs an example; a traceback names the line of the page."""
    source = "\n" * (example.line - 1) + example.code
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, str(page), "exec"), namespace)
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name) for page in PAGES if examples(page)],
)
def test_examples_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for example in examples(page):
        assert printed_by(example, page, namespace) == example.printed, (
            f"{page.name}, line {example.line}"
        )


def test_readme_and_quickstart_have_examples() -> None:
    assert examples(REPOSITORY / "README.md")
    assert examples(REPOSITORY / "docs" / "quickstart.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_no_open_marks(page: Path) -> None:
    assert "TODO" not in page.read_text(encoding="utf-8")

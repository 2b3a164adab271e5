"""Pages of the documentation as things to run: Python blocks, and console blocks of commands.

A `python` block must print what the `text` block right below it says. In a `console` block a line
that begins with `$ ` is a command, and the lines below it are what the command must say. Commands
are `dspn`, a few that show files, and pipes of them; `echo $?` is the status of the command before,
and only there a status other than 0 is allowed. In what a command says, `...` stands for anything,
numbers with a point may differ in their fourth digit, and seconds are free. A block with the word
`not-run` after its language is for the reader alone.

`PYTHONPATH=. python tests/integration/docs_pages.py PAGE...` runs pages and puts what was printed
into them.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from dspn import progress
from dspn.cli import app

NOT_RUN = "not-run"
SHOWING = {"cat", "cut", "grep", "head", "ls", "sort", "tail", "wc"}
TERMINAL = {"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb"}
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
SECONDS = r"\b\d+ s\b"
COLOUR = re.compile("\x1b\\[[0-9;]*m")


@dataclass(frozen=True)
class Block:
    """What stands between two fences, and the numbers of its first line and of the one after it."""

    language: str
    words: tuple[str, ...]
    contents: str
    first: int
    end: int


def fenced_blocks(text: str) -> list[Block]:
    """All blocks of a page; text other than white space between two is one of the language ""."""
    blocks: list[Block] = []
    opened: list[str] | None = None
    held: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if opened is None and line.startswith("```"):
            opened, held = line.removeprefix("```").split() or [""], []
        elif opened is not None and line == "```":
            contents = "".join(f"{kept}\n" for kept in held)
            first = number - len(held)
            blocks.append(Block(opened[0], tuple(opened[1:]), contents, first, number))
            opened = None
        elif opened is not None:
            held.append(line)
        elif line.strip():
            blocks.append(Block("", (), line, number, number + 1))
    assert opened is None, f"a block of {opened} is not closed"
    return blocks


@dataclass(frozen=True)
class Example:
    """Something to run, and what it must say; `first` and `end` are the lines that say so."""

    source: str
    line: int
    printed: str
    first: int
    end: int
    is_command: bool

    @property
    def is_help(self) -> bool:
        return self.is_command and "--help" in self.source

    def said_by(self, actual: str) -> bool:
        """Whether what was printed is what the page says."""
        if not self.is_command or self.is_help:
            return actual == self.printed
        return agrees(self.printed, actual)


def examples(page: Path) -> list[Example]:
    """All that a page has to run, in its order."""
    blocks = fenced_blocks(page.read_text(encoding="utf-8"))
    nothing = Block("", (), "", 0, 0)
    found = []
    for block, below in zip(blocks, [*blocks[1:], nothing], strict=True):
        if NOT_RUN in block.words:
            continue
        if block.language == "python":
            said = below if below.language == "text" else nothing
            found.append(
                Example(block.contents, block.first, said.contents, said.first, said.end, False)
            )
        elif block.language == "console":
            found += _commands(block)
    return found


def _commands(block: Block) -> Iterator[Example]:
    lines = block.contents.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"line {block.first}: a console block begins with a command"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        below = start + 1
        while lines[below - 1].endswith("\\"):
            below += 1
        source = " ".join(line.removesuffix("\\").strip() for line in lines[start:below])
        printed = "".join(f"{line}\n" for line in lines[below:end])
        first = block.first
        yield Example(source[2:], first + start, printed, first + below, first + end, True)


def agrees(expected: str, actual: str) -> bool:
    """Whether texts are equal but for `...`, seconds, and last digits of numbers with a point."""
    expected, actual = (re.sub(SECONDS, "0 s", text) for text in (expected, actual))
    pattern = "".join(
        r"[\s\S]*?" if part == "..." else "(.+?)" if NUMBER.fullmatch(part) else re.escape(part)
        for part in re.split(rf"(\.\.\.|{NUMBER.pattern})", expected)
    )
    match = re.fullmatch(pattern, actual)
    numbers = NUMBER.findall(expected)
    return match is not None and all(map(_near, numbers, match.groups()))


def _near(expected: str, actual: str) -> bool:
    if expected == actual:
        return True
    if not NUMBER.fullmatch(actual):
        return False
    one, other = float(expected), float(actual)
    return abs(one - other) <= 1e-3 * max(abs(one), abs(other)) + 1e-9


@dataclass
class Session:
    """Runs the examples of one page, one after the other, in the current directory."""

    page: Path
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    status: int = 0

    def run(self, example: Example) -> str:
        """What an example prints; a traceback names the line of the page."""
        with mock.patch.dict(os.environ, TERMINAL):
            text = self._command(example) if example.is_command else self._python(example)
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines())

    def _python(self, example: Example) -> str:
        source = "\n" * (example.line - 1) + example.source
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(source, str(self.page), "exec"), self.namespace)
        return output.getvalue()

    def _command(self, example: Example) -> str:
        if example.source == "echo $?":
            status, self.status = self.status, 0
            return f"{status}\n"
        where = f"{self.page.name}, line {example.line}"
        assert self.status == 0, f"{where}: the command before has ended with {self.status}"
        said = io.BytesIO()
        piped = b""
        stages = _stages(example.source)
        for number, words in enumerate(stages):
            out = said if number == len(stages) - 1 else io.BytesIO()
            self._stage(words, piped, out, said, where)
            piped = out.getvalue()
        return COLOUR.sub("", said.getvalue().decode())

    def _stage(
        self, words: list[str], piped: bytes, out: io.BytesIO, said: io.BytesIO, where: str
    ) -> None:
        name, *rest = words
        if name == "dspn":
            self.status = in_process(rest, piped, out, said)
            return
        assert name in SHOWING, f"{where}: {name!r} is not run; mark the block as {NOT_RUN}"
        done = subprocess.run(words, input=piped, capture_output=True, check=True)
        out.write(done.stdout)


def _stages(source: str) -> list[list[str]]:
    """The commands of a pipe, each as its words."""
    words = shlex.shlex(source, posix=True, punctuation_chars="|")
    words.whitespace_split = True
    stages: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    return stages


def in_process(words: list[str], piped: bytes, out: io.BytesIO, said: io.BytesIO) -> int:
    """The status of `dspn` with these words; what it writes goes to `out`, its notes to `said`."""
    stdin = io.TextIOWrapper(io.BytesIO(piped), encoding="utf-8")
    stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    stderr = io.TextIOWrapper(said, encoding="utf-8", write_through=True)
    with (
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        status = app.run(words)
    for stream in (stdout, stderr):
        stream.detach()
    return status


def refreshed(page: Path, show: Callable[[str], None] = print) -> str:
    """The page with what its examples print now, where that is not what it says."""
    lines = page.read_text(encoding="utf-8").splitlines()
    session = Session(page)
    changes = []
    for example in examples(page):
        actual = session.run(example)
        if example.said_by(actual):
            continue
        show(f"{page.name}, line {example.line}: {example.source.splitlines()[0]}")
        assert example.first, f"line {example.line}: no text block below says {actual!r}"
        changes.append((example.first - 1, example.end - 1, actual.splitlines()))
    for first, end, actual_lines in reversed(changes):
        lines[first:end] = actual_lines
    return "".join(f"{line}\n" for line in lines)


def _main() -> None:
    progress._FIRST_AFTER_S = 1e6
    for name in sys.argv[1:]:
        page = Path(name).resolve()
        with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
            text = refreshed(page)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _main()

"""What people see while a model is being learned."""

import io
import sys
from dataclasses import replace

import pytest

from dspn.learning.run import Report, reporter

START = Report("growth", -12.3456, 0, 0, 1, 4, 3, 0.0)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable says whether there is a terminal, nor of what kind."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def at(seconds: float, accepted: int = 0, stage: str = "growth") -> Report:
    return replace(START, seconds=seconds, accepted=accepted, stage=stage)


def lines_of(*reports: Report) -> list[str]:
    """Which of the reports a stream that is no terminal gets before the end, as lines."""
    stream = io.StringIO()
    with reporter(stream=stream) as say:
        for report in reports:
            say(report)
        return stream.getvalue().splitlines()


def test_report_is_one_line_with_every_figure() -> None:
    report = Report("search", -12.3456, 1200, 7, 5, 64, 96, 59.7)
    assert str(report) == (
        "60 s  search: best score -12.346 nats per sequence, 7 of 1200 accepted; "
        "5 interface nodes, 64 nodes, 96 edges"
    )
    assert str(replace(report, limit=600)).startswith("60 of 600 s (10 %, 540 s left)  search:")
    assert "best score -inf nats" in str(replace(report, score=-float("inf")))


def test_quiet_says_nothing_anywhere(capfd: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    with reporter(quiet=True, stream=stream) as say:
        say(START)
        say(at(100))
    assert stream.getvalue() == ""
    assert capfd.readouterr() == ("", "")


def test_lines_are_plain_text_without_control_characters() -> None:
    assert lines_of(START) == [str(START)]


def test_line_comes_every_ten_seconds_where_nothing_is_accepted() -> None:
    reports = [at(seconds) for seconds in (0, 1, 9.9, 10, 11, 19.9, 20.5)]
    assert lines_of(*reports) == [str(at(0)), str(at(10)), str(at(20.5))]


def test_line_comes_every_second_where_something_was_accepted() -> None:
    reports = [at(0), at(0.5, 1), at(1.1, 1), at(1.5, 2), at(2.2, 3), at(4, 3)]
    # At 1.1 s one has been accepted since the line before, if not by the last state.
    assert lines_of(*reports) == [str(at(0)), str(at(1.1, 1)), str(at(2.2, 3))]


def test_line_comes_when_the_stage_changes_whatever_the_time() -> None:
    reports = [at(0), at(0.1), at(0.2, stage="search"), at(0.3, stage="search")]
    assert lines_of(*reports) == [str(at(0)), str(at(0.2, stage="search"))]


def test_last_report_is_written_at_the_end_and_only_once() -> None:
    stream = io.StringIO()
    with reporter(stream=stream) as say:
        say(at(0))
        say(at(0.1))
        say(at(0.2, 1))
    assert stream.getvalue().splitlines() == [str(at(0)), str(at(0.2, 1))]
    stream = io.StringIO()
    with reporter(stream=stream) as say:
        say(at(0))
    assert stream.getvalue().splitlines() == [str(at(0))]


def test_last_report_is_written_where_learning_fails() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError), reporter(stream=stream) as say:
        say(at(0))
        say(at(0.1, 1))
        raise RuntimeError
    assert stream.getvalue().splitlines() == [str(at(0)), str(at(0.1, 1))]


def test_nothing_reported_writes_nothing() -> None:
    stream = io.StringIO()
    with reporter(stream=stream):
        pass
    assert stream.getvalue() == ""


def test_terminal_gets_a_table_that_is_drawn_anew() -> None:
    stream = Terminal()
    with reporter(stream=stream) as say:
        say(replace(START, tried=3, limit=60))
        say(Report("search", -9.87654, 1200, 7, 5, 64, 96, 59.7, 60))
    shown = stream.getvalue()
    assert "\x1b[" in shown  # the cursor goes back to draw over the last table
    for word in ("stage", "best score", "accepted", "tried", "interfaces", "nodes", "edges"):
        assert word in shown
    last = shown[shown.rindex("stage") :]
    for word in ("search", "-9.877", "1,200", "64", "96", "60 of 60 s"):
        assert word in last


def test_terminal_gets_its_cursor_back_where_learning_fails() -> None:
    stream = Terminal()
    with pytest.raises(RuntimeError), reporter(stream=stream) as say:
        say(START)
        raise RuntimeError
    shown = stream.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with reporter(stream=stream) as say:
        say(START)
        say(at(20))
    assert stream.getvalue().splitlines() == [str(START), str(at(20))]


def test_lines_go_to_standard_error_without_a_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with reporter() as say:
        say(START)
    assert stream.getvalue() == f"{START}\n"
    assert capsys.readouterr().out == ""

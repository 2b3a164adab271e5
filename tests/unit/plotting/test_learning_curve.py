import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dspn.errors import DataError
from dspn.learning.run import Report
from dspn.plotting import plot_learning_curve
from unit.plotting.figures import drawn

MINUS = "\N{MINUS SIGN}"


def _report(stage: str, score: float, tried: int, seconds: float, interfaces: int = 3) -> Report:
    return Report(stage, score, tried, 0, interfaces, 20, 30, seconds)


GROWTH = [
    _report("growth", -30.0, 0, 0.1, 1),
    _report("growth", -20.0, 1, 0.4, 2),
    _report("growth", -18.0, 2, 0.9),
    _report("growth", -18.0, 3, 1.5),
]
SEARCH = [
    _report("search", -18.0, 4, 2.0),
    _report("search", -17.5, 8, 2.5),
    _report("search", -17.5, 12, 3.0),
]


def _line(ax: Axes, gid: str) -> Line2D:
    return next(line for line in ax.lines if line.get_gid() == gid)


def _legend(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_tries_of_the_search_follow_the_sizes_of_growth() -> None:
    ax = drawn(plot_learning_curve(GROWTH + SEARCH))
    np.testing.assert_array_equal(_line(ax, "growth").get_xdata(), [1, 2, 3, 4])
    np.testing.assert_array_equal(_line(ax, "search").get_xdata(), [4, 8, 12, 16])
    np.testing.assert_array_equal(_line(ax, "search").get_ydata(), [-18.0, -18.0, -17.5, -17.5])
    assert ax.get_xlabel() == "sizes and neighbours tried"
    assert ax.get_title(loc="left").startswith("growth and search: best score")


def test_dots_mark_what_was_better_than_all_before() -> None:
    ax = plot_learning_curve(GROWTH + SEARCH)
    dots = [line for line in ax.lines if line.get_gid() == "better"]
    np.testing.assert_array_equal(np.concatenate([dot.get_xdata() for dot in dots]), [1, 2, 3, 12])


def test_seconds_are_those_of_the_reports() -> None:
    ax = drawn(plot_learning_curve(GROWTH, against="seconds"))
    np.testing.assert_array_equal(_line(ax, "growth").get_xdata(), [0.1, 0.4, 0.9, 1.5])
    assert ax.get_xlabel() == "seconds"


def test_key_tells_the_last_score_of_each_stage() -> None:
    ax = plot_learning_curve(GROWTH + SEARCH)
    assert _legend(ax) == [
        f"growth: {MINUS}18.00 with 3 interface nodes",
        f"search: {MINUS}17.50 with 3 interface nodes",
    ]


def test_part_that_begins_where_growth_ended_speaks_of_the_search_alone() -> None:
    ax = drawn(plot_learning_curve([GROWTH[-1], *SEARCH]))
    np.testing.assert_array_equal(_line(ax, "search").get_xdata(), [4, 8, 12, 16])
    assert _legend(ax) == [f"search: {MINUS}17.50 with 3 interface nodes"]
    assert ax.get_title(loc="left").startswith("search: best score")


@pytest.mark.parametrize("history", [GROWTH[:1], SEARCH[:1], SEARCH])
def test_single_report_and_single_stage_are_drawn(history: list[Report]) -> None:
    ax = drawn(plot_learning_curve(history))
    assert len(_legend(ax)) == 1


def test_references_are_lines_with_names() -> None:
    ax = drawn(plot_learning_curve(GROWTH, references={"true model": -16.0, "other": -25.0}))
    lines = [line for line in ax.lines if line.get_gid() == "reference"]
    heights = [float(np.asarray(line.get_ydata())[0]) for line in lines]
    assert heights == [-16.0, -25.0]
    assert {text.get_text() for text in ax.texts} == {
        f"true model: {MINUS}16.00",
        f"other: {MINUS}25.00",
    }


def test_impossible_scores_leave_a_gap() -> None:
    history = [_report("growth", -np.inf, 0, 0.1), *GROWTH[1:]]
    ax = drawn(plot_learning_curve(history))
    np.testing.assert_array_equal(_line(ax, "growth").get_ydata(), [np.nan, -20.0, -18.0, -18.0])
    drawn(plot_learning_curve(history[:1]))


def test_axes_that_are_given_are_used() -> None:
    figure = Figure()
    ax = figure.subplots()
    assert plot_learning_curve(GROWTH, ax) is ax
    assert figure.axes == [ax]


@pytest.mark.parametrize("history", [[], [1.0, 2.0]])
def test_history_without_reports_is_refused(history: list[Report]) -> None:
    with pytest.raises(DataError, match="`history` must be the reports of a run"):
        plot_learning_curve(history)


def test_unknown_axis_is_refused() -> None:
    with pytest.raises(DataError, match="`against` must be 'tries' or 'seconds'"):
        plot_learning_curve(GROWTH, against="hours")


def test_infinite_reference_is_refused() -> None:
    with pytest.raises(DataError, match="'true model' is -inf"):
        plot_learning_curve(GROWTH, references={"true model": -np.inf})

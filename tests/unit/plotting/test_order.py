from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.typing import NDArray

from dspn import Model, Schema, Sequences, Variable
from dspn.plotting import plot_forecast, plot_imputed, plot_interface, plot_surprise
from dspn.plotting._panels import _texts, order_texts, sequence_words, shared_start
from unit.plotting.figures import drawn


def _table(model: Model, order: NDArray[Any], ids: list[Any]) -> Sequences:
    """One sequence for each id, whose slices are ordered by a column "when"."""
    drawn = model.sample(len(ids), len(order), rng=np.random.default_rng(0)).to_table("pandas")
    drawn["when"] = np.tile(order, len(ids))
    drawn["place"] = np.repeat(np.array(ids, dtype=object), len(order))
    own = drawn.drop(columns=["sequence", "slice"])
    return Sequences.from_table(own, sequence="place", order="when", schema=model.schema)


def _days(count: int, start: str = "2023-12-01") -> NDArray[Any]:
    return np.datetime64(start, "ns") + np.arange(count) * np.timedelta64(1, "D")


def _hours(count: int) -> NDArray[Any]:
    return np.datetime64("2024-03-04T00:00", "ns") + np.arange(count) * np.timedelta64(1, "h")


def _names(ax: Axes) -> list[str]:
    return [label.get_text() for label in drawn(ax).get_xticklabels()]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (_days(2), ["2023-12-01", "2023-12-02"]),
        (_hours(2), ["2024-03-04 00:00", "2024-03-04 01:00"]),
        (np.array(["2024-01-01T00:00:05"], dtype="M8[ns]"), ["2024-01-01 00:00:05"]),
        (np.array([3600, 7200], dtype="m8[s]"), ["1 hours", "2 hours"]),
        (np.array([1.0, 2.5, 1e20]), ["1", "2.5", "1e+20"]),
        (np.array([3, 4]), ["3", "4"]),
        (np.array(["b", "a"], dtype=object), ["b", "a"]),
        (np.array([date(2024, 1, 2)], dtype=object), ["2024-01-02"]),
        (np.array([datetime(2024, 1, 2)], dtype=object), ["2024-01-02"]),
        (np.array([pd.Timestamp("2024-01-02 03:04")], dtype=object), ["2024-01-02 03:04"]),
        (
            np.array([datetime(2024, 1, 2, tzinfo=UTC)], dtype=object),
            ["2024-01-02 00:00:00+00:00"],
        ),
    ],
)
def test_values_are_said_without_what_is_empty(values: NDArray[Any], expected: list[str]) -> None:
    assert _texts(values) == expected


@pytest.mark.parametrize(
    ("texts", "start"),
    [
        (["2024-03-04 00:00", "2024-03-04 05:00"], "2024-03-04 "),
        (["2024-03-04 00:00", "2024-03-05 00:00"], "2024-"),
        (["2024-03-04", "2024-03-05"], "2024-"),
        (["2023-12-31", "2024-01-01"], ""),
        (["visit 1", "visit 2"], ""),
        (["2024-03-04"], "2024-"),
    ],
)
def test_a_shared_day_or_year_is_found(texts: list[str], start: str) -> None:
    assert shared_start(texts) == start


def test_arrays_have_neither_order_nor_id(mixed: Model) -> None:
    plain = mixed.sample(1, 3, rng=np.random.default_rng(0))
    assert order_texts(plain) is None
    assert sequence_words(plain) == ""
    assert drawn(plot_imputed(mixed, plain)).get_xlabel() == "slice"


def test_an_id_is_said_in_every_title(mixed: Model) -> None:
    data = _table(mixed, np.arange(5), ["hut $5 or $6", "b"])[:1]
    for ax in (
        plot_forecast(mixed, data, 2),
        plot_imputed(mixed, data),
        plot_surprise(mixed, data),
        plot_interface(mixed, data),
    ):
        assert " of hut $5 or $6" in drawn(ax).get_title(loc="left").replace("\n", " ")
    assert sequence_words(_table(mixed, np.arange(2), [7, 8])[1:]) == " of place 8"


def test_hours_of_one_day_are_named_without_the_day(mixed: Model) -> None:
    data = _table(mixed, _hours(24), ["a"])
    ax = plot_surprise(mixed, data)
    assert ax.get_xlabel() == "when (2024-03-04)"
    assert _names(ax)[:2] == ["00:00", "02:00"]


def test_names_do_not_touch_and_the_future_is_counted(mixed: Model) -> None:
    data = _table(mixed, _days(100), ["a"])
    ax = plot_forecast(mixed, data, 20)
    names = _names(ax)
    assert names[0] == "2023-12-01"
    assert names[-3:] == ["+1", "+10", "+20"]
    figure = ax.get_figure(root=True)
    assert figure is not None
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [label.get_window_extent(renderer) for label in ax.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_numbers_are_counted_on_from_the_last_slice(mixed: Model) -> None:
    data = mixed.sample(1, 8, rng=np.random.default_rng(0))
    assert _names(plot_forecast(mixed, data, 2)) == [*"01234567", "+1", "+2"]
    single = mixed.sample(1, 1, rng=np.random.default_rng(0))
    assert _names(plot_forecast(mixed, single, 1)) == ["0", "+1"]


def test_a_long_name_is_shortened(mixed: Model) -> None:
    order = np.array([f"{number} and a very long name indeed" for number in range(3)])
    names = _names(plot_imputed(mixed, _table(mixed, order, ["a"])))
    assert all(name.endswith("…") for name in names)


LONG = ["Minimal activity", "Moderate", "Much", "Mostly walking", "Marathon"]


def test_categories_without_room_beside_have_their_own_line() -> None:
    schema = Schema(
        (
            Variable.categorical("activity", LONG),
            Variable.categorical("before", LONG),
            Variable.binary("wet"),
        )
    )
    tables = {"activity": [[0.2] * 5], "before": [[0.2] * 5], "wet": [[0.5, 0.5]]}
    model = Model.from_hmm([1.0], [[1.0]], tables, schema=schema)
    data = model.sample(1, 6, rng=np.random.default_rng(0))
    ax = drawn(plot_forecast(model, data, 3))
    key = [text.get_text() for text in ax.texts if text.get_gid() == "category key"]
    assert [word for word in key if word != "■"] == ["activity, before:", *LONG]
    beside = [text.get_text() for band in ax.child_axes for text in band.texts]
    assert [word for word in beside if word != "■"] == ["0", "1"]
    legend = ax.get_legend()
    assert legend is not None
    lowest = legend.get_window_extent().y0
    tops = [text.get_window_extent().y1 for text in ax.texts if text.get_gid() == "category key"]
    assert max(tops) < lowest
    assert ax.title.get_window_extent().y0 >= 0

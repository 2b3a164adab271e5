import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dspn.data import Schema, Variable
from dspn.errors import DataError
from dspn.plotting import plot_filtered
from dspn.plotting._panels import pooled

MIXED = Schema(
    (
        Variable.categorical("wind", ["north", "east", "south", "west"]),
        Variable.binary("rain"),
        Variable.continuous("temperature"),
        Variable.count("visits"),
        Variable.categorical("hour", tuple(range(24))),
    )
)

Array = NDArray[np.float64]


def _sequence(num_slices: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    columns = [
        rng.integers(0, 4, num_slices),
        rng.integers(0, 2, num_slices),
        rng.normal(20.0, 3.0, num_slices),
        rng.poisson(4.0, num_slices),
        rng.integers(0, 24, num_slices),
    ]
    values = np.column_stack(columns).astype(np.float64)
    values[rng.random(values.shape) < 0.3] = np.nan
    return values, rng.gamma(4.0, size=num_slices), rng.dirichlet(np.ones(6), size=num_slices)


def _drawn(figure: Figure) -> list[str]:
    """Draws all but the pixels and returns the titles of the panels."""
    figure.draw_without_rendering()
    return [title for ax in figure.axes if (title := ax.get_title(loc="left"))]


def _shown(figure: Figure) -> tuple[int, int]:
    """In how many bands entries are hatched, and in how many they are hollow."""
    hatched = hollow = 0
    for band in figure.axes[0].child_axes:
        boxes = {item.get_gid(): len(item.get_paths()) for item in band.collections}
        rings = [line.get_ydata() for line in band.lines if line.get_gid() == "point"]
        hatched += boxes["missing"] > 0
        hollow += boxes.get("imputed", 0) > 0 or any(np.isfinite(own).any() for own in rings)
    return hatched, hollow


@pytest.mark.parametrize("num_slices", [1, 40, 700])
def test_three_panels_share_the_slices(num_slices: int) -> None:
    values, surprise, posterior = _sequence(num_slices)
    figure = plot_filtered(values, MIXED, surprise, posterior)
    assert _drawn(figure) == ["values", "interface posterior", "surprise (nats)"]
    for panel in figure.axes:
        assert panel.get_xlim() == (-0.5, num_slices - 0.5)


def test_two_panels_without_posterior() -> None:
    values, surprise, _ = _sequence(20)
    assert _drawn(plot_filtered(values, MIXED, surprise)) == ["values", "surprise (nats)"]


def test_missing_entries_are_hatched_until_imputed() -> None:
    values, surprise, _ = _sequence(30)
    imputed = np.where(np.isnan(values), 1.0, values)
    plain = plot_filtered(values, MIXED, surprise)
    filled = plot_filtered(values, MIXED, surprise, imputed=imputed)
    assert _shown(plain) == (5, 0)
    assert _shown(filled) == (0, 5)
    for figure, word in ((plain, "missing"), (filled, "imputed")):
        legend = figure.axes[0].get_legend()
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == [word]


def test_entry_that_stays_missing_in_imputed_is_hatched() -> None:
    values, surprise, _ = _sequence(30)
    imputed = np.where(np.isnan(values), 1.0, values)
    imputed[np.isnan(values[:, 2]), 2] = np.nan
    figure = plot_filtered(values, MIXED, surprise, imputed=imputed)
    assert _shown(figure) == (1, 4)


def test_complete_sequence_has_no_key() -> None:
    values, surprise, _ = _sequence(30)
    assert plot_filtered(np.nan_to_num(values), MIXED, surprise).axes[0].get_legend() is None


def test_variable_that_is_never_observed_is_drawn() -> None:
    values, surprise, _ = _sequence(12)
    values[:] = np.nan
    _drawn(plot_filtered(values, MIXED, surprise))


def test_variables_are_named_in_order_from_the_top() -> None:
    values, surprise, _ = _sequence(10)
    panel = plot_filtered(values, MIXED, surprise).axes[0]
    labels = [label.get_text() for label in panel.get_yticklabels()]
    assert labels == list(MIXED.names)
    assert np.all(np.diff(panel.get_yticks()) < 0)


def test_anomaly_is_framed_in_every_panel_and_named_with_its_surprise() -> None:
    values, surprise, posterior = _sequence(40)
    surprise[31] = 42.25
    figure = plot_filtered(values, MIXED, surprise, posterior, anomaly=31)
    _drawn(figure)
    for panel in figure.axes[:2]:
        marked = [line.get_xdata()[0] for line in panel.lines if list(line.get_ydata()) == [0, 1]]
        assert marked == [30.5, 31.5]
    words = [text.get_text() for text in figure.axes[2].texts]
    assert words == ["slice 31: 42.2 nats"]


@pytest.mark.parametrize("num_slices", [30, 600])
def test_impossible_slice_is_marked_by_infinity(num_slices: int) -> None:
    values, surprise, _ = _sequence(num_slices)
    surprise[[3, 7]] = np.inf
    figure = plot_filtered(values, MIXED, surprise, anomaly=7)
    _drawn(figure)
    words = [text.get_text() for text in figure.axes[1].texts]
    assert words == ["∞", "∞", "slice 7: impossible"]
    assert np.isfinite(figure.axes[1].get_ylim()).all()


def test_negative_surprise_of_densities_is_in_view() -> None:
    values, surprise, _ = _sequence(30)
    surprise[:] = np.linspace(-3.0, -1.0, 30)
    low, high = plot_filtered(values, MIXED, surprise).axes[1].get_ylim()
    assert low < -3.0 < 0.0 < high


def test_rows_of_the_posterior_follow_the_groups() -> None:
    values, surprise, posterior = _sequence(20)
    groups = [[0, 3, 5], [1, 2, 4]]
    figure = plot_filtered(values, MIXED, surprise, posterior, groups=groups)
    _drawn(figure)
    shown = figure.axes[1].images[0].get_array()
    np.testing.assert_array_equal(shown, posterior[:, [0, 3, 5, 1, 2, 4]].T)
    labels = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert labels == ["group 0", "group 1"]


def test_largest_posterior_stays_visible_when_interfaces_are_many() -> None:
    posterior = np.zeros((1500, 256))
    posterior[:, 77], posterior[:, 5] = 0.9, 0.01
    picture = pooled(posterior.T)
    assert picture.shape == (64, 750)
    np.testing.assert_array_equal(np.flatnonzero((picture == 0.9).all(axis=1)), [77 // 4])
    values, surprise, _ = _sequence(1500)
    figure = plot_filtered(values, MIXED, surprise, posterior)
    words = "interface posterior, the 1 of 256 nodes that matter here"
    assert words in _drawn(figure)
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["77"]


def test_given_figure_is_drawn_on_and_returned() -> None:
    values, surprise, posterior = _sequence(20)
    own = Figure(figsize=(6, 5), layout="constrained")
    assert plot_filtered(values, MIXED, surprise, posterior, figure=own) is own
    assert _drawn(own) == ["values", "interface posterior", "surprise (nats)"]
    assert tuple(own.get_size_inches()) == (6.0, 5.0)


def test_own_figure_is_1200_pixels_wide() -> None:
    values, surprise, _ = _sequence(20)
    figure = plot_filtered(values, MIXED, surprise)
    assert round(figure.get_figwidth() * figure.dpi) == 1200


def test_inputs_are_not_changed() -> None:
    values, surprise, posterior = _sequence(20)
    surprise[4] = np.inf
    copies = values.copy(), surprise.copy(), posterior.copy()
    plot_filtered(values, MIXED, surprise, posterior, imputed=np.nan_to_num(values), anomaly=4)
    for array, copy in zip((values, surprise, posterior), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("values", {"values": np.zeros((20, 4))}),
        ("values", {"values": np.zeros((0, 5))}),
        ("surprise", {"surprise": np.zeros(19)}),
        ("posterior", {"posterior": np.zeros((6, 20))}),
        ("imputed", {"imputed": np.zeros((20, 4))}),
        ("anomaly", {"anomaly": 20}),
        ("anomaly", {"anomaly": -1}),
        ("groups", {"groups": [[0, 1], [2, 3]]}),
    ],
)
def test_array_of_another_sequence_is_refused_by_name(
    argument: str, change: dict[str, object]
) -> None:
    values, surprise, posterior = _sequence(20)
    arguments = {"values": values, "surprise": surprise, "posterior": posterior} | change
    with pytest.raises(DataError, match=f"`{argument}` must"):
        plot_filtered(schema=MIXED, **arguments)  # type: ignore[arg-type]

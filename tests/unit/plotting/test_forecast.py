import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dspn import DataError, DynamicNetwork, Model, Root, Sequences
from dspn.plotting import plot_forecast
from unit.plotting.figures import drawn, sampled


def _ends(band: Axes) -> NDArray[np.float64]:
    boxes = next(item for item in band.collections if item.get_gid() == "interval")
    ends = [(path.vertices[:, 1].min(), path.vertices[:, 1].max()) for path in boxes.get_paths()]
    return np.array(ends)


def _check(ax: Axes, model: Model, data: Sequences, steps: int) -> None:
    """The last cells and intervals are those of `Model.forecast`."""
    exact = model.forecast(data, steps, quantiles=(0.1, 0.9)).marginals
    for column, band in enumerate(ax.child_axes):
        own = exact[column]
        if own.probabilities is None:
            np.testing.assert_allclose(_ends(band)[-steps:], own.quantiles, rtol=1e-9)
            continue
        stacks = [c for c in band.collections if str(c.get_gid()).startswith("category")]
        last = [np.ptp(path.vertices[:, 1]) for cells in stacks for path in cells.get_paths()[-1:]]
        np.testing.assert_allclose(last, own.probabilities[-1], rtol=1e-9)


@pytest.mark.parametrize("num_slices", [1, 12])
def test_new_slices_are_those_of_the_exact_forecast(num_slices: int, model: Model) -> None:
    data = sampled(model, num_slices)
    ax = drawn(plot_forecast(model, data, 3))
    _check(ax, model, data, 3)
    assert ax.get_xlim() == (-0.5, num_slices + 2.5)


def test_model_with_its_root_at_the_last_slice_is_asked_for_all_slices_at_once(
    mixed: Model,
) -> None:
    own = mixed.network
    model = Model(DynamicNetwork(own.template, own.top, own.parameters, Root.LAST))
    data = sampled(model, 5)
    _check(plot_forecast(model, data, 4), model, data, 4)


def test_new_slices_are_shaded_and_set_apart(mixed: Model) -> None:
    ax = plot_forecast(mixed, sampled(mixed, 8), 4)
    ground = next(patch for patch in ax.patches if patch.get_gid() == "forecast")
    edges = ground.get_extents().transformed(ax.transData.inverted())
    np.testing.assert_allclose([edges.x0, edges.x1], [7.5, 11.5], rtol=1e-9)
    line = next(line for line in ax.lines if line.get_gid() == "now")
    assert list(line.get_xdata()) == [7.5, 7.5]
    assert ax.get_title(loc="left") == "Forecast: 4 slices after 8 slices"


@pytest.mark.parametrize(("past", "first"), [(5, 14.5), (100, -0.5)])
def test_past_limits_what_is_shown_and_not_what_is_known(
    past: int, first: float, mixed: Model
) -> None:
    data = sampled(mixed, 20)
    ax = drawn(plot_forecast(mixed, data, 4, past=past))
    assert ax.get_xlim() == (first, 23.5)
    for band in ax.child_axes:
        assert band.get_xlim() == (first, 23.5)
    _check(ax, mixed, data, 4)


def test_sequence_without_observations_is_drawn(model: Model) -> None:
    data = sampled(model, 3)
    drawn(plot_forecast(model, data.with_values(np.full(data.values.shape, np.nan)), 2))


def test_chosen_variable_is_shown(mixed: Model) -> None:
    ax = plot_forecast(mixed, sampled(mixed, 6), 2, variable="visitors")
    assert [child.get_gid() for child in ax.child_axes] == ["visitors"]
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "not observed: median, 80 % interval"
    ]


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("steps", {"steps": 0}),
        ("steps", {"steps": 1.5}),
        ("past", {"past": 0}),
        ("level", {"level": 1.0}),
        ("sequence", {"sequence": []}),
    ],
)
def test_bad_arguments_are_refused_by_name(
    argument: str, change: dict[str, object], mixed: Model
) -> None:
    arguments = {"sequence": sampled(mixed, 4), "steps": 2} | change
    with pytest.raises(DataError, match=f"`{argument}` must"):
        plot_forecast(mixed, **arguments)  # type: ignore[arg-type]


def test_given_axes_are_returned(mixed: Model) -> None:
    ax = Figure(layout="constrained").subplots()
    assert plot_forecast(mixed, sampled(mixed, 5), 2, ax) is ax

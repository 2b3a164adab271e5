import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dspn import DataError, Model, Schema, StructureError, Variable
from dspn.plotting import plot_surprise
from unit.plotting.figures import drawn, sampled


def _strip(ax: Axes) -> Axes:
    return next(child for child in ax.child_axes if child.get_gid() == "slices")


def _hatched(ax: Axes) -> int:
    boxes = next(item for item in ax.collections if item.get_gid() == "missing")
    return sum(round(np.ptp(path.vertices[:, 0])) for path in boxes.get_paths())


@pytest.mark.parametrize("num_slices", [1, 15])
def test_bars_and_cells_are_the_exact_surprises(num_slices: int, model: Model) -> None:
    data = sampled(model, num_slices)
    found = model.surprise(data)
    ax = drawn(plot_surprise(model, data))
    cells = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(cells, found.variables.T, rtol=1e-12)
    heights = [bar.get_height() for bar in _strip(ax).patches]
    np.testing.assert_allclose(heights, found.slices, rtol=1e-12, atol=1e-9)
    assert _hatched(ax) == np.isnan(data.values).sum()
    assert ax.get_xlim() == _strip(ax).get_xlim() == (-0.5, num_slices - 0.5)


def test_what_was_found_before_gives_the_same_picture(mixed: Model) -> None:
    data = sampled(mixed, 15)
    ax, again = plot_surprise(mixed, data), plot_surprise(mixed.surprise(data), data)
    np.testing.assert_array_equal(ax.images[0].get_array(), again.images[0].get_array())


def test_variables_are_named_in_order_from_the_top(mixed: Model) -> None:
    ax = plot_surprise(mixed, sampled(mixed, 5))
    assert [label.get_text() for label in ax.get_yticklabels()] == list(mixed.schema.names)
    low, high = ax.get_ylim()
    assert low > high


def test_scale_is_in_nats_and_holds_every_cell(mixed: Model) -> None:
    data = sampled(mixed, 15)
    ax = plot_surprise(mixed, data)
    scale = next(child for child in ax.child_axes if child.get_gid() == "scale")
    words = [label.get_text() for label in scale.get_yticklabels()]
    assert len(words) == 3
    assert words[-1].endswith(" nats")
    low, high = ax.images[0].get_clim()
    entries = mixed.surprise(data).variables
    assert low <= min(0.0, np.nanmin(entries)) + 1e-9
    assert high == pytest.approx(np.nanmax(entries), rel=1e-8)


def test_sequence_without_observations_is_all_hatched_and_flat(model: Model) -> None:
    data = sampled(model, 7)
    blank = data.with_values(np.full(data.values.shape, np.nan))
    ax = drawn(plot_surprise(model, blank))
    assert _hatched(ax) == blank.values.size
    assert all(bar.get_height() == 0.0 for bar in _strip(ax).patches)
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["missing"]


def test_complete_sequence_has_no_key(mixed: Model) -> None:
    ax = plot_surprise(mixed, mixed.sample(1, 5, rng=np.random.default_rng(0)))
    assert ax.get_legend() is None


def test_impossible_slice_is_marked_and_its_sequence_has_no_cells() -> None:
    schema = Schema((Variable.binary("b"), Variable.count("c")))
    emissions = {"b": [[1.0, 0.0]], "c": [[2.0]]}
    model = Model.from_hmm([1.0], [[1.0]], emissions, schema=schema)
    ax = drawn(plot_surprise(model, [[[0, 1], [1, 1], [0, None]]]))
    assert [text.get_text() for text in _strip(ax).texts] == ["∞"]
    assert np.ma.getmaskarray(ax.images[0].get_array()).all()
    assert _hatched(ax) == 1


def test_negative_surprises_of_densities_are_in_the_scale() -> None:
    schema = Schema((Variable.continuous("x"),))
    model = Model.from_hmm([1.0], [[1.0]], {"x": [[0.0, 1e-4]]}, schema=schema)
    ax = drawn(plot_surprise(model, [[[0.0], [0.001]]]))
    assert ax.images[0].get_clim()[0] < -3.0


def test_long_and_wide_sequences_are_drawn() -> None:
    schema = Schema(tuple(Variable.binary(f"$x_{number}$ {'long ' * 30}") for number in range(90)))
    emissions = {name: [[0.9, 0.1]] for name in schema.names}
    model = Model.from_hmm([1.0], [[1.0]], emissions, schema=schema)
    ax = drawn(plot_surprise(model, [np.zeros((1200, 90))]))
    assert ax.images[0].get_array().shape == (45, 600)
    assert len(ax.get_yticklabels()) <= 40


def test_surprise_of_another_sequence_is_refused(mixed: Model) -> None:
    found = mixed.surprise(sampled(mixed, 4))
    with pytest.raises(DataError, match="`found` must be the surprise of `sequence`"):
        plot_surprise(found, sampled(mixed, 5))
    with pytest.raises(DataError, match="`sequence` must be a Sequences, found list"):
        plot_surprise(found, [[[0, 1.0, 2]]])


def test_bad_arguments_are_refused(mixed: Model) -> None:
    with pytest.raises(StructureError, match="`found` must be a Model"):
        plot_surprise(3, sampled(mixed, 4))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="`sequence` must hold one sequence"):
        plot_surprise(mixed, mixed.sample(3, 4, rng=np.random.default_rng(0)))


def test_given_axes_are_returned(mixed: Model) -> None:
    ax = Figure(layout="constrained").subplots()
    assert plot_surprise(mixed, sampled(mixed, 5), ax) is ax


def test_above_the_usual_of_a_table_nothing_is_negative(mixed: Model) -> None:
    table = mixed.sample(20, 15, rng=np.random.default_rng(4))
    one, usual = table[:1], mixed.surprise(table)
    ax = drawn(plot_surprise(mixed, one, usual=usual))
    found = mixed.surprise(one)
    expected = np.maximum(found.variables - np.median(usual.variables, axis=0), 0.0)
    cells = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(cells, expected.T, rtol=1e-12)
    heights = [bar.get_height() for bar in _strip(ax).patches]
    np.testing.assert_allclose(heights, found.slices - np.median(usual.slices), atol=1e-9)
    assert "above what is usual" in ax.get_title(loc="left")

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dspn import DataError, Model, Schema, StructureError, Variable
from dspn.plotting import plot_imputed
from unit.plotting.figures import drawn, sampled


def _band(ax: Axes, name: str) -> Axes:
    return next(child for child in ax.child_axes if child.get_gid() == name)


def _heights(band: Axes, num_slices: int) -> NDArray[np.float64]:
    """Heights of the cells of each category, (slices, categories)."""
    stacks = [c for c in band.collections if str(c.get_gid()).startswith("category")]
    found = np.zeros((num_slices, len(stacks)))
    for code, cells in enumerate(stacks):
        for path in cells.get_paths():
            at = round(float(path.vertices[:4, 0].mean()))
            found[at, code] = np.ptp(path.vertices[:, 1])
    return found


def _ends(band: Axes) -> NDArray[np.float64]:
    """Lower and upper end of each interval."""
    boxes = next(item for item in band.collections if item.get_gid() == "interval")
    ends = [(path.vertices[:, 1].min(), path.vertices[:, 1].max()) for path in boxes.get_paths()]
    return np.array(ends).reshape(-1, 2)


def _line(band: Axes, gid: str) -> NDArray[np.float64]:
    line = next(line for line in band.lines if line.get_gid() == gid)
    return np.asarray(line.get_ydata(), dtype=np.float64)


@pytest.mark.parametrize("num_slices", [1, 14])
def test_what_is_drawn_are_observations_and_exact_marginals(num_slices: int, model: Model) -> None:
    data = sampled(model, num_slices)
    ax = drawn(plot_imputed(model, data, level=0.5))
    exact = model.marginals(data, quantiles=(0.25, 0.75))
    filled = model.impute(data).values
    assert [child.get_gid() for child in ax.child_axes] == list(model.schema.names)
    for column, variable in enumerate(model.schema):
        band, own = _band(ax, variable.name), exact[column]
        observed = data.values[:, column]
        if own.probabilities is not None:
            seen = np.flatnonzero(~np.isnan(observed))
            shares = np.zeros((num_slices, variable.num_categories))
            shares[seen, observed[seen].astype(int)] = 1.0
            shares[own.slices] = own.probabilities
            np.testing.assert_allclose(_heights(band, num_slices), shares, rtol=1e-9, atol=1e-12)
            continue
        np.testing.assert_array_equal(_line(band, "observed"), observed)
        np.testing.assert_allclose(
            _line(band, "point")[own.slices], filled[own.slices, column], rtol=1e-12
        )
        assert np.isnan(_line(band, "point")[~np.isnan(observed)]).all()
        np.testing.assert_allclose(_ends(band), own.quantiles, rtol=1e-9)
        low, high = band.get_ylim()
        assert (own.quantiles > low).all()
        assert (own.quantiles < high).all()


def test_sequence_without_observations_is_drawn(model: Model) -> None:
    data = sampled(model, 5)
    drawn(plot_imputed(model, data.with_values(np.full(data.values.shape, np.nan))))


def test_complete_sequence_has_no_key(mixed: Model) -> None:
    ax = drawn(plot_imputed(mixed, mixed.sample(1, 6, rng=np.random.default_rng(0))))
    assert ax.get_legend() is None
    assert "0 of 18 entries missing" in ax.get_title(loc="left")


def test_key_says_how_missing_entries_are_drawn(mixed: Model) -> None:
    ax = plot_imputed(mixed, sampled(mixed, 14), level=0.9)
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "missing: probability of each category",
        "missing: mean or median, 90 % interval",
    ]


@pytest.mark.parametrize(
    ("variable", "shown"),
    [
        ("celsius", ["celsius"]),
        (2, ["visitors"]),
        (["visitors", 0], ["visitors", "sky"]),
        (np.int64(1), ["celsius"]),
    ],
)
def test_chosen_variables_are_shown_in_their_order(
    variable: object, shown: list[str], mixed: Model
) -> None:
    ax = plot_imputed(mixed, sampled(mixed, 6), variable=variable)  # type: ignore[arg-type]
    assert [child.get_gid() for child in ax.child_axes] == shown
    assert [label.get_text() for label in ax.get_yticklabels()] == shown


@pytest.mark.parametrize("variable", ["wind", 3, -1, [], [0, 0], 1.5])
def test_unknown_variables_are_refused(variable: object, mixed: Model) -> None:
    with pytest.raises(DataError):
        plot_imputed(mixed, sampled(mixed, 6), variable=variable)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, float("nan"), "0.8", True])
def test_level_that_is_no_probability_is_refused(level: float, mixed: Model) -> None:
    with pytest.raises(DataError, match="`level` must be a number strictly between 0 and 1"):
        plot_imputed(mixed, sampled(mixed, 6), level=level)


def test_other_arguments_are_refused(mixed: Model) -> None:
    with pytest.raises(DataError, match="`sequence` must hold one sequence, but holds 2"):
        plot_imputed(mixed, mixed.sample(2, 3, rng=np.random.default_rng(0)))
    with pytest.raises(StructureError, match="`model` must be a Model"):
        plot_imputed("model", sampled(mixed, 6))  # type: ignore[arg-type]


def test_long_names_are_drawn_and_variables_beyond_forty_counted() -> None:
    schema = Schema(
        tuple(
            Variable.categorical(f"$x_{number}$ {'long ' * 30}", ["a" * 40, "b", "c"])
            if number % 2
            else Variable.continuous(f"x{number}")
            for number in range(42)
        )
    )
    emissions = {v.name: [[0.2, 0.3, 0.5]] if v.num_categories else [[0.0, 1.0]] for v in schema}
    model = Model.from_hmm([1.0], [[1.0]], emissions, schema=schema)
    ax = drawn(plot_imputed(model, sampled(model, 3)))
    assert len(ax.child_axes) == 40
    assert "2 more variables not shown" in ax.get_title(loc="left").replace("\n", " ")


def test_many_slices_are_drawn_without_rims(mixed: Model) -> None:
    ax = drawn(plot_imputed(mixed, sampled(mixed, 300)))
    cells = next(c for c in _band(ax, "sky").collections if c.get_gid() == "category 0")
    assert list(cells.get_linewidths()) == [0.0]


def test_given_axes_are_returned_and_their_figure_is_kept(mixed: Model) -> None:
    figure = Figure(figsize=(5, 3), layout="constrained")
    ax = figure.subplots()
    assert plot_imputed(mixed, sampled(mixed, 5), ax) is ax
    drawn(ax)
    assert figure.axes == [ax]

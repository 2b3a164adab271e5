import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

from dspn import DataError, EvidenceError, Model, Schema, StructureError, Variable
from dspn.plotting import (
    plot_calibration,
    plot_forecast,
    plot_imputed,
    plot_interface,
    plot_surprise,
    plot_unrolled,
)
from dspn.structure import grouped_network
from unit.plotting.figures import drawn, sampled


@pytest.mark.parametrize("num_slices", [1, 12])
def test_picture_is_the_exact_posterior(num_slices: int, mixed: Model) -> None:
    data = sampled(mixed, num_slices)
    ax = drawn(plot_interface(mixed, data))
    np.testing.assert_allclose(
        ax.images[0].get_array(), mixed.interface_posteriors(data).T, rtol=1e-12
    )
    assert ax.get_xlim() == (-0.5, num_slices - 0.5)
    assert ax.get_title(loc="left") == "Interface posterior"


def test_every_model_is_drawn_even_without_evidence(model: Model) -> None:
    data = sampled(model, 6)
    drawn(plot_interface(model, data.with_values(np.full(data.values.shape, np.nan))))


def test_mixture_shows_its_likeliest_component(mixture: Model) -> None:
    data = sampled(mixture, 10)
    shares = mixture.component_posteriors(data)[0]
    best = int(np.argmax(shares))
    ax = plot_interface(mixture, data)
    said = ax.get_title(loc="left").replace("\n", " ")
    assert f"component {best} of 3" in said
    assert f"posterior {shares[best]:.3g}" in said
    joint = mixture.interface_posteriors(data)
    start = mixture.mixture.interface_offsets[best]
    own = joint[:, start : start + mixture.components[best].num_interfaces] / shares[best]
    np.testing.assert_allclose(ax.images[0].get_array(), own.T, rtol=1e-9, atol=1e-12)


def test_component_that_is_asked_for_is_shown_by_itself(mixture: Model) -> None:
    data = sampled(mixture, 10)
    ax = plot_interface(mixture, data, component=2)
    alone = Model(mixture.components[2]).interface_posteriors(data)
    np.testing.assert_allclose(ax.images[0].get_array(), alone.T, rtol=1e-12)
    with pytest.raises(StructureError, match="`component` must be a number from 0 to 2"):
        plot_interface(mixture, data, component=3)


def test_rows_are_set_apart_by_group() -> None:
    schema = Schema(tuple(Variable.binary(f"x{v}") for v in range(4)))
    network = grouped_network(schema, [[0, 1], [2, 3]], [3, 2], rng=np.random.default_rng(0))
    ax = plot_interface(network, [np.zeros((5, 4))])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["group 0", "group 1"]
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array()).sum(axis=0), 2.0, rtol=1e-9)


def test_several_sequences_are_refused(mixed: Model) -> None:
    with pytest.raises(DataError, match="`sequence` must hold one sequence, but holds 2"):
        plot_interface(mixed, mixed.sample(2, 3, rng=np.random.default_rng(0)))


def test_model_of_another_kind_is_refused(mixed: Model) -> None:
    with pytest.raises(StructureError, match="`model` must be a Model"):
        plot_interface(None, sampled(mixed, 3))  # type: ignore[arg-type]


def test_impossible_sequence_is_refused() -> None:
    schema = Schema((Variable.binary("b"),))
    model = Model.from_hmm([1.0], [[1.0]], {"b": [[1.0, 0.0]]}, schema=schema)
    with pytest.raises(EvidenceError, match="probability zero"):
        plot_interface(model, [[[1]]])


def test_given_axes_are_returned(mixed: Model) -> None:
    ax = Figure(layout="constrained").subplots()
    assert plot_interface(mixed, sampled(mixed, 5), ax) is ax


def test_settings_of_matplotlib_are_left_alone(mixed: Model) -> None:
    data = sampled(mixed, 4)
    before = dict(rcParams)
    drawn(plot_interface(mixed, data))
    drawn(plot_surprise(mixed, data))
    drawn(plot_imputed(mixed, data))
    drawn(plot_forecast(mixed, data, 2))
    drawn(plot_calibration(mixed, data))
    drawn(plot_unrolled(mixed))
    assert dict(rcParams) == before


def test_own_figures_are_1200_pixels_wide(mixed: Model) -> None:
    data = sampled(mixed, 4)
    for ax in (
        plot_interface(mixed, data),
        plot_surprise(mixed, data),
        plot_imputed(mixed, data),
        plot_forecast(mixed, data, 2),
        plot_calibration(mixed, data),
        plot_unrolled(mixed),
    ):
        figure = ax.get_figure(root=True)
        assert figure is not None
        assert round(figure.get_figwidth() * figure.dpi) == 1200

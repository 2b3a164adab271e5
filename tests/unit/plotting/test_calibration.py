import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import binom

from dspn import (
    DataError,
    DynamicNetwork,
    EvidenceError,
    Model,
    Root,
    Schema,
    Sequences,
    Variable,
)
from dspn.plotting import plot_calibration
from dspn.plotting.calibration import (
    Predicted,
    left_out_entries,
    pit_shares,
    predict_ahead,
    predict_left_out,
    reliability,
)
from unit.plotting.figures import drawn


def _data(model: Model, num_sequences: int, num_slices: int) -> Sequences:
    rng = np.random.default_rng(8)
    data = model.sample(num_sequences, num_slices, rng=rng)
    return data.with_values(np.where(rng.random(data.values.shape) < 0.2, np.nan, data.values))


def _count_up_to(model: Model, evidence: Sequences, column: int, value: float) -> float:
    """P(X <= value | evidence) of the last entry of a variable, by adding up single counts."""
    total = 0.0
    for count in range(int(value) + 1):
        query = np.full(evidence.values.shape, np.nan)
        query[-1, column] = count
        total += float(np.exp(model.log_prob(evidence.with_values(query), evidence))[0])
    return total


def _check_ahead(model: Model, data: Sequences, steps: int) -> None:
    """Predictions against the marginals of a slice `steps` after each beginning."""
    found = predict_ahead(model, data, range(len(model.schema)), steps)
    place = [0] * len(found)
    for number in range(len(data)):
        sequence = data[number : number + 1]
        for at in range(steps - 1, sequence.total_slices):
            values = sequence.values[: at + 1].copy()
            truth = values[-1].copy()
            values[-steps:] = np.nan
            evidence = Sequences.from_codes(values, [0, at + 1], data.schema)
            exact = model.marginals(evidence, quantiles=(0.3,))
            for own in found:
                column = data.schema.index(own.variable.name)
                if np.isnan(truth[column]):
                    continue
                entry = place[found.index(own)]
                place[found.index(own)] += 1
                assert own.values[entry] == truth[column]
                if own.variable.num_categories:
                    expected = exact[column].probabilities
                    assert expected is not None
                    np.testing.assert_allclose(own.answers[entry], expected[-1], rtol=1e-9)
                elif own.variable.kind == "count":
                    up_to = _count_up_to(model, evidence, column, truth[column])
                    np.testing.assert_allclose(own.answers[entry, 1], up_to, rtol=1e-8)
                    below = _count_up_to(model, evidence, column, truth[column] - 1)
                    np.testing.assert_allclose(own.answers[entry, 0], below, rtol=1e-8, atol=1e-12)
                else:
                    assert own.answers[entry, 0] == own.answers[entry, 1]
                    is_below = truth[column] <= exact[column].quantiles[-1, 0]
                    assert (own.answers[entry, 1] <= 0.3) == is_below
    assert place == [own.values.size for own in found]


@pytest.mark.parametrize("steps", [1, 3])
def test_slices_ahead_are_predicted_by_their_exact_marginals(steps: int, model: Model) -> None:
    _check_ahead(model, _data(model, 2, 4), steps)


@pytest.mark.parametrize("steps", [1, 2])
def test_slices_ahead_are_those_of_the_shorter_network_where_the_root_is_last(
    steps: int, mixed: Model
) -> None:
    own = mixed.network
    last = Model(DynamicNetwork(own.template, own.top, own.parameters, Root.LAST))
    _check_ahead(last, _data(mixed, 1, 4), steps)


def test_batches_of_any_size_give_the_same_predictions(mixture: Model) -> None:
    data = _data(mixture, 3, 6)
    whole = predict_ahead(mixture, data, [0, 1, 2])
    parts = predict_ahead(mixture, data, [0, 1, 2], most=7)
    for own, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(own.values, other.values)
        np.testing.assert_allclose(own.answers, other.answers, rtol=1e-9)


def test_entries_left_out_are_predicted_by_their_exact_marginals(model: Model) -> None:
    data = _data(model, 3, 6)
    columns = list(range(len(model.schema)))
    chosen = left_out_entries(data, columns, 0.3, np.random.default_rng(1))
    assert not np.isnan(data.values[chosen]).any()
    assert chosen.sum() == round(0.3 * (~np.isnan(data.values)).sum())
    evidence = data.with_values(np.where(chosen, np.nan, data.values))
    found = predict_left_out(model, data, columns, 0.3, np.random.default_rng(1))
    levels = np.linspace(0.1, 0.9, 9)
    exact = model.marginals(evidence, quantiles=levels.tolist())
    for own in found:
        column = model.schema.index(own.variable.name)
        taken = chosen[exact[column].slices, column]
        expected = exact[column].probabilities
        if expected is not None:
            np.testing.assert_allclose(own.answers, expected[taken], rtol=1e-9)
            continue
        reached = own.values[:, None] >= exact[column].quantiles[taken]
        np.testing.assert_array_equal(reached, own.answers[:, 1:] >= levels - 1e-12)


def test_reliability_is_the_share_come_true_in_each_bin() -> None:
    chances = np.array([[0.93, 0.07], [0.95, 0.05], [0.4, 0.6], [0.38, 0.62], [0.37, 0.63]])
    own = Predicted(Variable.binary("b"), np.array([0.0, 1.0, 1.0, 0.0, 1.0]), chances)
    found = reliability([own], 10, 0.9)
    np.testing.assert_array_equal(found.counts, [2, 3])
    np.testing.assert_allclose(found.mean, [0.06, 0.61 + 0.02 / 3], rtol=1e-12)
    np.testing.assert_allclose(found.frequency, [0.5, 2 / 3], rtol=1e-12)
    np.testing.assert_allclose(
        found.low * found.counts, binom.ppf(0.05, [2, 3], found.mean), rtol=1e-12
    )
    np.testing.assert_allclose(
        found.high * found.counts, binom.ppf(0.95, [2, 3], found.mean), rtol=1e-12
    )


def test_reliability_of_three_categories_takes_each_and_certainty_has_no_interval() -> None:
    variable = Variable.categorical("c", ["a", "b", "c"])
    chances = np.tile([1.0, 0.0, 0.0], (4, 1))
    own = Predicted(variable, np.zeros(4), chances)
    found = reliability([own], 5, 0.95)
    np.testing.assert_array_equal(found.counts, [8, 4])
    for share in (found.mean, found.frequency, found.low, found.high):
        np.testing.assert_array_equal(share, [0.0, 1.0])


def test_histogram_spreads_a_count_over_its_step() -> None:
    answers = np.array([[0.1, 0.1], [1.0, 1.0], [0.26, 0.26]])
    number = Predicted(Variable.continuous("x"), np.zeros(3), answers)
    np.testing.assert_allclose(pit_shares([number], 4), [1 / 3, 1 / 3, 0.0, 1 / 3], rtol=1e-12)
    count = Predicted(Variable.count("n"), np.zeros(1), np.array([[0.125, 0.625]]))
    np.testing.assert_allclose(pit_shares([count], 4), [0.25, 0.5, 0.25, 0.0], rtol=1e-12)


@pytest.mark.parametrize("share", [None, 0.3])
def test_model_is_calibrated_for_its_own_draws(share: float | None, mixed: Model) -> None:
    data = mixed.sample(60, 20, rng=np.random.default_rng(0))
    found = predict_ahead(mixed, data, [0, 1, 2])
    if share is not None:
        found = predict_left_out(mixed, data, [0, 1, 2], share, np.random.default_rng(1))
    sure = reliability(found[:1], 10, 1 - 1e-6)
    assert (sure.frequency >= sure.low).all()
    assert (sure.frequency <= sure.high).all()
    np.testing.assert_allclose(pit_shares(found[1:], 5), 0.2, rtol=0.0, atol=0.05)


def test_every_model_is_drawn_with_its_panels(model: Model) -> None:
    data = _data(model, 4, 5)
    kinds = {v.kind == "categorical" for v in model.schema}
    for share in (None, 0.2):
        ax = drawn(plot_calibration(model, data, left_out=share, rng=np.random.default_rng(0)))
        panels = ax.child_axes if len(kinds) == 2 else [ax]
        labels = [panel.get_xlabel().split("\n")[0] for panel in panels]
        expected = {True: "predicted probability", False: "P(X ≤ value)"}
        assert labels == [expected[kind] for kind in sorted(kinds, reverse=True)]


def test_what_is_drawn_is_what_was_counted(mixed: Model) -> None:
    data = _data(mixed, 10, 6)
    ax = plot_calibration(mixed, data, num_bins=5, level=0.9)
    found = predict_ahead(mixed, data, [0, 1, 2])
    curve, histogram = ax.child_axes
    expected = reliability(found[:1], 5, 0.9)
    points = next(item for item in curve.collections if item.get_gid() == "frequency")
    np.testing.assert_allclose(
        points.get_offsets(), np.column_stack([expected.mean, expected.frequency]), rtol=1e-12
    )
    bars = [patch.get_height() for patch in histogram.containers[0]]
    np.testing.assert_allclose(bars, 5 * pit_shares(found[1:], 5), rtol=1e-12)
    assert f"{found[0].values.size} entries of sky" in curve.get_xlabel()
    assert "of 2 variables" in histogram.get_xlabel()
    assert "each slice given those before it" in ax.get_title(loc="left")


def test_steps_show_bands_that_are_right_one_step_ahead_and_too_narrow_further_on() -> None:
    # A walk that mostly goes on as it went, and a model of it that knows the place alone.
    rng = np.random.default_rng(0)
    keeps = np.where(rng.random((400, 15)) < 0.9, 1.0, -1.0)
    direction = np.cumprod(np.column_stack([rng.choice([-1.0, 1.0], 400), keeps]), axis=1)
    walks = np.cumsum(direction, axis=1) + 0.1 * rng.standard_normal(direction.shape)
    places = np.arange(-20, 21)
    transition = 0.5 * (np.abs(places[:, None] - places) == 1)
    transition[[0, -1], [1, -2]] = 1.0
    first = 0.5 * (np.abs(places) == 1)
    emissions = {"x": np.column_stack([places, np.full(places.size, 0.01)])}
    schema = Schema((Variable.continuous("x"),))
    model = Model.from_hmm(first, transition, emissions, schema=schema)
    data = Sequences.from_arrays(list(walks[:, :, None]), schema=schema)
    outside = {}
    for steps in (1, 8):
        found = predict_ahead(model, data, [0], steps)
        assert found[0].values.size == 400 * (17 - steps)
        outside[steps] = pit_shares(found, 10)[[0, -1]].sum()
    np.testing.assert_allclose(outside[1], 0.2, rtol=0.0, atol=0.02)
    assert outside[8] > 0.5
    title = plot_calibration(model, data, steps=8).get_title(loc="left")
    assert "each slice given those up to 8 before it" in title


def test_chosen_variable_is_the_only_one_predicted(mixed: Model) -> None:
    ax = plot_calibration(mixed, _data(mixed, 4, 5), variable="celsius")
    assert "of celsius" in ax.get_xlabel()
    assert not ax.child_axes


def test_draws_of_one_seed_are_the_same(mixed: Model) -> None:
    data = _data(mixed, 4, 5)
    first, second = (
        left_out_entries(data, [0, 2], 0.5, np.random.default_rng(3)) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    assert not first[:, 1].any()
    assert left_out_entries(data, [0], 1e-9, np.random.default_rng(3)).sum() == 1


def test_data_without_observations_is_refused(mixed: Model) -> None:
    data = _data(mixed, 2, 3)
    blank = data.with_values(np.full(data.values.shape, np.nan))
    with pytest.raises(DataError, match=r"`data` must have observed entries .*\(sky, celsius"):
        plot_calibration(mixed, blank)


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("num_bins", {"num_bins": 1}),
        ("steps", {"steps": 0}),
        ("steps", {"steps": 2, "left_out": 0.2, "rng": np.random.default_rng(0)}),
        ("data", {"steps": 4}),
        ("level", {"level": 0.0}),
        ("left_out", {"left_out": 1.0, "rng": np.random.default_rng(0)}),
        ("rng", {"left_out": 0.2}),
        ("rng", {"left_out": 0.2, "rng": 3}),
        ("variable", {"variable": 9}),
    ],
)
def test_bad_arguments_are_refused_by_name(
    argument: str, change: dict[str, object], mixed: Model
) -> None:
    with pytest.raises(DataError, match=f"`{argument}` must"):
        plot_calibration(mixed, _data(mixed, 2, 3), **change)  # type: ignore[arg-type]


def test_impossible_sequence_is_refused_by_its_number() -> None:
    schema = Schema((Variable.binary("b"),))
    model = Model.from_hmm([1.0], [[1.0]], {"b": [[1.0, 0.0]]}, schema=schema)
    with pytest.raises(EvidenceError, match="sequence 1 at slice 2"):
        plot_calibration(model, [[[0], [0]], [[0], [0], [1]]])


def test_given_axes_are_returned(mixed: Model) -> None:
    ax = Figure(layout="constrained").subplots()
    assert plot_calibration(mixed, _data(mixed, 2, 3), ax) is ax


def test_every_variable_has_a_panel_of_its_own(mixed: Model) -> None:
    data = mixed.sample(20, 8, rng=np.random.default_rng(2))
    ax = plot_calibration(mixed, data, by_variable=True)
    labels = [panel.get_xlabel() for panel in ax.child_axes]
    assert len(labels) == len(mixed.schema)
    for name, label in zip(mixed.schema.names, labels, strict=True):
        assert label.endswith(f" of {name}")

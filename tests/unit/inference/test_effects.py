"""The effect of inputs against models whose effects are known, and its pictures."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dspn import Model, Schema, Sequences, Variable
from dspn.errors import DataError
from dspn.inference.effects import input_effect
from dspn.inputs import Phase
from dspn.models import HMM
from dspn.plotting import plot_calibration, plot_input_effect
from dspn.report.page import report_html

SCHEMA = Schema(
    (Variable.continuous("x"), Variable.categorical("b", ("no", "yes"))),
    (Variable.continuous("u"), Variable.categorical("c", ("p", "q", "r"))),
)


def driven(lags: int = 0) -> tuple[Model, Sequences]:
    """A model of x = 1 + 2 u + noise and of b, "yes" with probability 0.2, 0.7 or 0.5 by c."""
    rng = np.random.default_rng(0)
    u, c = rng.normal(size=3000), rng.integers(3, size=3000)
    x = 1.0 + 2.0 * u + 0.5 * rng.normal(size=3000)
    b = rng.random(3000) < np.array([0.2, 0.7, 0.5])[c]
    values, inputs = np.column_stack([x, b]), np.column_stack([u, c])
    data = Sequences.from_codes(values, np.arange(0, 3001, 30), SCHEMA, inputs=inputs)
    return HMM(1, leaf_inputs=True, lags=lags, random_state=0).fit(data).model_, data


@pytest.mark.parametrize("lags", [0, 1])
def test_effects_are_those_of_the_regressions(lags: int) -> None:
    model, data = driven(lags)
    known = data.with_values(data.values)
    schema = model.schema
    told = Sequences.from_codes(known.values, known.offsets, schema, inputs=known.inputs)
    by_number = input_effect(model.compiled, told, "u")
    x = by_number.variables[0]
    assert by_number.counts.sum() == 3000 and by_number.is_ordered
    assert_allclose(x.mean, 1.0 + 2.0 * by_number.places, atol=0.08)
    assert_allclose(x.observed, 1.0 + 2.0 * by_number.places, atol=0.1)
    inner = slice(2, -2)  # groups at the ends are wide
    width = np.ptp(x.band, axis=1)[inner]
    assert np.all((width > 1.28) & (width < 1.7))
    assert x.share > 0.8 > 0.1 > by_number.variables[1].share
    by_category = input_effect(model.compiled, told, "c")
    assert by_category.labels() == ["p", "q", "r"] and not by_category.is_ordered
    assert_allclose(by_category.variables[1].mean[:, 1], [0.2, 0.7, 0.5], atol=0.05)
    assert_allclose(by_category.variables[1].observed.sum(axis=1), 1.0, rtol=1e-12)
    again = input_effect(model.compiled, told, "c")
    assert np.array_equal(again.variables[0].mean, by_category.variables[0].mean)


def test_shares_of_nodes_follow_transitions_by_an_input() -> None:
    rng = np.random.default_rng(1)
    phase = np.tile(np.arange(24) % 4, (60, 1))
    X = np.where(phase < 2, 0.0, 10.0)[..., None] + rng.normal(size=(60, 24, 1))
    model = HMM(2, by=Phase(4), random_state=0).fit(X).model_
    data = Sequences.from_arrays(list(X), schema=model.schema)
    effect = input_effect(model.compiled, data, "phase")
    assert effect.is_ordered and effect.nodes.shape == (4, 2)
    low = int(np.argmax(effect.nodes[0]))
    assert_allclose(effect.nodes[:, low], [1.0, 1.0, 0.0, 0.0], atol=0.02)
    assert_allclose(effect.variables[0].mean, [0.0, 0.0, 10.0, 10.0], atol=0.3)


def test_pictures_show_the_effects() -> None:
    model, data = driven()
    ax = plot_input_effect(model, data)
    titles = [panel.get_title(loc="left") for panel in ax.child_axes]
    assert titles == ["x", "P(b = yes)", "P(b = yes)", "x"]
    only = plot_input_effect(model, data, inputs="c")
    assert len(only.child_axes) == 2
    page = report_html(model, data, steps=0)
    assert "What the input u changes" in page and "P(b = yes) by c" in page
    assert plot_calibration(model, data[:5], left_out=0.2, rng=np.random.default_rng(0))
    plain = HMM(1, random_state=0).fit(np.random.default_rng(0).normal(size=(5, 8, 2)))
    with pytest.raises(DataError, match="needs a model with inputs"):
        plot_input_effect(plain.model_, np.zeros((2, 8, 2)))

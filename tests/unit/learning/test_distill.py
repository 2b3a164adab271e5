"""Distillation from teachers whose distribution is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dspn
from dspn import (
    DSPN,
    DataError,
    Distilled,
    DspnError,
    EmOptions,
    Schema,
    Sequences,
    StructureError,
    Variable,
)
from dspn.data.inputs import Position
from dspn.engine import compile_program, gpu
from dspn.learning import distill, em
from dspn.learning.distill import Backed, Drawn, distil
from dspn.learning.em import Part, fit_em, scale_flows
from dspn.models import Model
from dspn.structure import Mixture

SCHEMA = Schema((Variable.binary("x"), Variable.categorical("y", ("a", "b", "c"))))
TRUTH = Model.from_hmm(
    [0.4, 0.3, 0.3],
    [[0.9, 0.05, 0.05], [0.1, 0.1, 0.8], [0.3, 0.6, 0.1]],
    {
        "x": [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]],
        "y": [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]],
    },
    schema=SCHEMA,
)
REAL = TRUTH.sample(60, 10, rng=np.random.default_rng(0))
HELD = TRUTH.sample(200, 10, rng=np.random.default_rng(1))
TEST = TRUTH.sample(2_000, 10, rng=np.random.default_rng(2))


class Oracle:
    """A teacher that is the truth itself; what it knows is the posterior of its states."""

    def sample(self, n: int, rng: np.random.Generator) -> Sequences:
        return TRUTH.sample(n, rng.integers(8, 12, size=n), rng=rng)


class Knowing(Oracle):
    def states(self, data: Sequences) -> Any:
        return TRUTH.interface_posteriors(data)


SMALL = Distilled(
    Oracle(), n_interfaces=6, num_draws=3_000, width=1, em=EmOptions(12, 12, batch_size=1_000)
)
KNOWING = replace(SMALL, teacher=Knowing(), n_interfaces=3, width=0)


@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        KNOWING,
        replace(KNOWING, n_components=2),
    ],
    ids=["sample", "states", "components"],
)
def test_the_model_of_a_known_teacher_reaches_its_likelihood(options: Distilled) -> None:
    found = distil(REAL, HELD, options=options, seed=3)
    truth = TRUTH.score(TEST)
    gap = truth - Model(found.mixture).score(TEST)
    assert -0.02 < gap < 0.04  # nats per sequence of 10 slices
    plain = DSPN("em", random_state=0).set_params(learner__n_interfaces=3)
    assert truth - plain.fit(REAL, validation=HELD).score(TEST) > 2 * gap
    assert len(found.mixture) == options.n_components
    assert found.scores[found.worth] == max(found.scores.values())


def test_the_same_seed_gives_the_same_model() -> None:
    options = replace(SMALL, num_draws=500, n_components=2)
    first, again = (distil(REAL, HELD, options=options, seed=5) for _ in range(2))
    np.testing.assert_array_equal(
        Model(first.mixture).log_likelihood(TEST), Model(again.mixture).log_likelihood(TEST)
    )
    other = distil(REAL, HELD, options=options, seed=6)
    assert Model(other.mixture).score(TEST) != Model(first.mixture).score(TEST)


def test_counts_as_prior_are_sequences_with_that_weight() -> None:
    """One step from the model of the counts is EM on the union with weights."""
    draws = TRUTH.sample(50, 10, rng=np.random.default_rng(3))
    both = dspn.data.sequences.joined([REAL, draws])
    start = Mixture.of(TRUTH.network)
    counts = scale_flows(Part.of(draws, None).flows(compile_program(start)), 0.3)
    once = EmOptions(max_steps=1)
    backed = fit_em(start, Backed(Part.of(REAL, None), counts), options=once)
    weights = np.repeat([1.0, 0.3], [len(REAL), len(draws)])
    union = fit_em(start, both, sample_weights=weights, options=once)
    one, other = backed.network.parameters.template, union.network.parameters.template
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-12)
    for left, right in zip(one.leaves, other.leaves, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12)
    parts = Backed(Part.of(REAL, None), counts).batches(10, np.random.default_rng(0))
    total = sum(own.flows(compile_program(start)).counts.sum() for own, _ in parts)
    assert total == pytest.approx(len(REAL) + 0.3 * len(draws))


def test_of_many_draws_a_part_stands_for_all() -> None:
    draws = TRUTH.sample(40, 10, rng=np.random.default_rng(3))
    drawn, program = Drawn.of(draws, 16), compile_program(TRUTH.network)
    assert drawn.weights.sum() == pytest.approx(len(draws))
    counted = scale_flows(program.expected_flows(draws[:16]), 40 / 16)
    (found,), (wanted,) = drawn.flows(program).components, counted.components
    np.testing.assert_allclose(found.template.weights, wanted.template.weights, rtol=1e-12)
    batches = drawn.batches(15, np.random.default_rng(0))
    values = np.concatenate([own.data.values for own, _ in batches if isinstance(own, Part)])
    np.testing.assert_array_equal(values, draws.values)
    assert [len(own.weights) * factor for own, factor in batches] == pytest.approx([40.0] * 3)


def test_many_draws_teach_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(KNOWING, num_draws=4_000, em=EmOptions(4, 4, batch_size=250))
    truth = TRUTH.score(TEST)
    monkeypatch.setattr(distill, "_MOST_COUNTED", 500)
    found = distil(REAL, HELD, options=options, seed=3)
    assert truth - Model(found.mixture).score(TEST) < 0.06  # nats per sequence of 10 slices
    assert found.scores[10.0] > found.scores[np.inf] - 0.1


def test_components_share_a_structure_and_are_learned_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = replace(KNOWING, num_draws=500, n_components=3)
    one_by_one = distil(REAL, HELD, options=options, seed=5).mixture
    assert len({id(own.template) for own in one_by_one}) == 1
    monkeypatch.setattr(em, "_MANY_WEIGHTS", 0)
    together = distil(REAL, HELD, options=options, seed=5).mixture
    assert together.fingerprint == one_by_one.fingerprint


def test_the_engine_of_an_estimator_learns_from_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(SMALL, num_draws=500, n_components=2, em=EmOptions(2, 2, batch_size=250))
    here = DSPN(options, random_state=0).fit(REAL).score(TEST)
    monkeypatch.setattr(gpu, "ENGINE", gpu.GpuEngine("numpy"))
    there = DSPN(options, engine="gpu", random_state=0).fit(REAL).score(TEST)
    assert there == pytest.approx(here, abs=1e-3)


def test_the_estimator_learns_from_a_teacher_and_its_file_answers_alike(tmp_path: Path) -> None:
    model = DSPN(SMALL, random_state=0).fit(REAL)
    assert model.tried_ == 6 and "drawn from the teacher" in model.explanation_
    assert model.score(TEST) > DSPN("em", random_state=0).fit(REAL).score(TEST)
    model.save(tmp_path / "model.dspn")
    assert dspn.load(tmp_path / "model.dspn").score(TEST) == model.score(TEST)
    last = DSPN(replace(SMALL, num_draws=300), root="last", tied=False, random_state=0).fit(REAL)
    assert last.network_.root == "last" and not last.network_.parameters.tied


HOURS = Schema((Variable.binary("x"),), inputs=(Position(6).named("hour"),))
CHANCES = np.array([0.9, 0.2, 0.7, 0.1, 0.5, 0.95])


class Timetable:
    """Entries that depend on the position alone."""

    def sample(self, n: int, rng: np.random.Generator) -> Sequences:
        values = (rng.random((n, 6)) < CHANCES).astype(float)
        schema = Schema(HOURS.variables)
        return Sequences.from_codes(values.reshape(-1, 1), np.arange(n + 1) * 6, schema)


def test_tables_by_an_input_learn_what_depends_on_it() -> None:
    rng = np.random.default_rng(0)
    plain, test = (Timetable().sample(n, rng) for n in (100, 4_000))
    real = Sequences.from_codes(plain.values, plain.offsets, HOURS)
    options = replace(SMALL, teacher=Timetable(), n_interfaces=2, width=0, by="hour")
    entropy = -(CHANCES * np.log(CHANCES) + (1 - CHANCES) * np.log(1 - CHANCES)).sum()
    model = DSPN(options, random_state=0).fit(real)
    assert model.score(test) == pytest.approx(-entropy, abs=0.03)
    by_default = DSPN(replace(options, by=None), random_state=0).fit(real)
    assert by_default.score(test) == model.score(test)
    by_rule = DSPN(replace(options, by=Position(6)), random_state=0).fit(plain)
    assert by_rule.score(test.to_arrays()) == model.score(test)
    with pytest.raises(StructureError, match="`by` of Distilled must be the name of an input"):
        replace(options, by=3)
    with pytest.raises(DspnError, match="day"):
        DSPN(replace(options, by="day"), random_state=0).fit(real)


class Stranger:
    def sample(self, n: int, rng: np.random.Generator) -> Sequences:
        return TRUTH.over(["x"]).sample(n, 5, rng=rng)


def test_teachers_that_cannot_teach_are_refused() -> None:
    with pytest.raises(StructureError, match="`teacher` must have a method `sample"):
        Distilled(teacher=3)
    with pytest.raises(StructureError, match="`worths` of Distilled must be a finite number > 0"):
        Distilled(worths=(1, 0))
    with pytest.raises(DataError, match=r"`teacher.sample\(n, rng\)` must have the variables"):
        distil(REAL, HELD, options=replace(SMALL, teacher=Stranger()))
    with pytest.raises(DataError, match="set `validation_fraction` above 0"):
        DSPN(SMALL, validation_fraction=0).fit(REAL)
    with pytest.raises(StructureError, match="must be left out with Distilled"):
        DSPN(SMALL, checkpoint="x").fit(REAL)

from pathlib import Path

import numpy as np
import pytest

import dspn
from dspn import (
    DSPN,
    HMM,
    ConditionalLikelihood,
    Em,
    EmOptions,
    GrowthOptions,
    Model,
    Paper,
    Schema,
    SearchOptions,
    Sequences,
    Variable,
)
from dspn.learning.run import Ending
from dspn.structure import Root

BITS = Schema(tuple(Variable.binary(f"x{i}") for i in range(3)))
TRUTH = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.1, 0.9]],
    {f"x{i}": [[0.9, 0.1], [0.2, 0.8]] for i in range(3)},
    schema=BITS,
)
QUICK = EmOptions(max_steps=10, patience=2)
GROWTH = GrowthOptions(max_interfaces=3, patience=1, num_starts=1, em=QUICK)
SEARCH = SearchOptions(max_neighbours=3, round_size=3, new_part=QUICK, whole=QUICK)


def drawn(num_sequences: int = 40, seed: int = 0) -> Sequences:
    return TRUTH.sample(num_sequences, 8, rng=np.random.default_rng(seed))


PAPER = Paper(GROWTH, SEARCH)
GROWN = Paper(GROWTH, None)


def small(learner: Em | Paper = PAPER, **options: object) -> DSPN:
    return DSPN(learner, **{"random_state": 0, **options})


def test_growth_and_search_come_near_the_model_that_made_the_data() -> None:
    train, test = drawn(200), drawn(200, 1)
    fitted = small(Paper(GrowthOptions(max_interfaces=4), SEARCH)).fit(train)
    assert fitted.score(test) > TRUTH.log_likelihood(test).mean() - 0.3
    assert fitted.ending_ is Ending.FINISHED
    assert fitted.tried_ == 3 and 0 <= fitted.accepted_ <= 3
    assert [step.num_interfaces for step in fitted.growth_][:2] == [1, 2]
    assert fitted.history_[-1].score == fitted.validation_score_


def test_the_same_random_state_gives_the_same_model_whatever_the_number_of_jobs() -> None:
    data = drawn()
    one, other = (small(n_jobs=jobs).fit(data) for jobs in (1, 2))
    assert one.network_.fingerprint == other.network_.fingerprint


def test_growth_alone_leaves_the_initial_template() -> None:
    fitted = small(GROWN).fit(drawn())
    size = fitted.network_.num_interfaces
    assert fitted.tried_ == 0
    assert len(fitted.network_.template.nodes) == size * (1 + 1 + 3 + 1)


def test_a_given_number_of_interface_nodes_is_kept() -> None:
    growth = GrowthOptions(min_interfaces=3, max_interfaces=3, num_starts=1, em=QUICK)
    fitted = small(Paper(growth, None)).fit(drawn())
    assert fitted.network_.num_interfaces == 3
    assert [step.num_interfaces for step in fitted.growth_] == [1, 2, 3]


@pytest.mark.parametrize(("root", "tied"), [("first", True), ("last", True), ("last", False)])
@pytest.mark.parametrize("learner", [PAPER, Em(2)], ids=["paper", "em"])
def test_root_and_bottom_are_as_asked(learner: Em | Paper, root: str, tied: bool) -> None:
    fitted = small(learner, root=root, tied=tied).fit(drawn())
    assert fitted.network_.root == Root(root)
    assert fitted.network_.parameters.tied is tied


def test_expectation_maximisation_alone_is_an_hmm_with_the_root_at_the_first_slice() -> None:
    data = drawn()
    plain = HMM(3, random_state=4).fit(data)
    fitted = DSPN(Em(3), random_state=4).fit(data)
    assert fitted.network_.fingerprint == plain.network_.fingerprint
    weighted = DSPN(Em(3), random_state=4)
    weighted.fit(data, sample_weight=np.linspace(0.5, 2, 40))
    assert weighted.network_.fingerprint != plain.network_.fingerprint


def test_a_class_variable_is_what_learning_aims_at_where_it_is_told_so() -> None:
    fitted = small(Paper(GROWTH, SEARCH, ConditionalLikelihood(("x0",)))).fit(drawn())
    # P(x0 | others) of eight bits is no less likely than of fair coins.
    assert -8 * np.log(2) < fitted.validation_score_ < 0


def test_time_limit_ends_learning_with_the_best_so_far() -> None:
    endless = SearchOptions(max_neighbours=10**6, max_failures=10**6)
    fitted = small(Paper(GROWTH, endless), time_limit=1.0).fit(drawn(20))
    assert fitted.ending_ is Ending.TIME_LIMIT
    assert np.isfinite(fitted.score(drawn(20)))


def test_learning_goes_on_from_a_checkpoint_to_the_same_model(tmp_path: Path) -> None:
    data, path = drawn(), tmp_path / "run.dspn"
    scored, whole = small(refit=False).fit(data), small().fit(data)
    small(checkpoint=path).fit(data)
    # The checkpoint is the model as it was scored, before the held-out part is learned from.
    assert dspn.load(path).network.fingerprint == scored.network_.fingerprint
    resumed = small(checkpoint=path, resume=True).fit(data)
    assert resumed.network_.fingerprint == whole.network_.fingerprint


def test_a_given_validation_set_is_not_learned_from() -> None:
    data, held = drawn(), drawn(20, 3)
    for learner in (PAPER, Em(2)):
        fitted = small(learner).fit(data, validation=held)
        assert fitted.validation_score_ == pytest.approx(fitted.score(held), rel=1e-12)


def test_progress_is_shown_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    small(GROWN).fit(drawn(20))
    assert capsys.readouterr().err == ""
    small(GROWN, verbose=1).fit(drawn(20))
    assert "growth" in capsys.readouterr().err


@pytest.mark.parametrize("learner", [Em(2), dspn.Auto(effort=0.005)], ids=["em", "auto"])
def test_another_engine_learns_the_same_model(learner: dspn.Em | dspn.Auto) -> None:
    rng = np.random.default_rng(8)
    data = [rng.integers(0, 2, (4, 2)).astype(float) for _ in range(30)]
    found, expected = (
        DSPN(learner, engine=engine, random_state=0).fit(data) for engine in ("reference", "cpu")
    )
    np.testing.assert_allclose(found.score_samples(data), expected.score_samples(data), rtol=1e-4)
    assert found.validation_score_ == pytest.approx(expected.validation_score_, rel=1e-4)


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(dspn.StructureError, match="`engine` must be 'cpu' or 'gpu' or 'reference'"):
        DSPN(Em(2), engine="tpu").fit([np.zeros((3, 1)), np.ones((3, 1))])


def test_a_parameter_of_a_learner_is_named_with_its_place() -> None:
    for name, said in (
        ("effort", "DSPN(Auto(effort=...))"),
        ("n_interfaces", "DSPN(Em(n_interfaces=...))"),
        ("n_job", "(did you mean 'n_jobs'?)"),
    ):
        with pytest.raises(TypeError) as caught:
            DSPN(**{name: 1})  # type: ignore[arg-type]
        assert f"DSPN has no parameter {name!r}" in str(caught.value)
        assert said in str(caught.value)
    with pytest.raises(TypeError, match=r"'effort'.*, and how to learn where the estimator is mad"):
        DSPN().fit([[0.5]], effort=1)  # type: ignore[call-arg]

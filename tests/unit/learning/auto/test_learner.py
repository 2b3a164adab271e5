"""The automatic learner as one run: its result, its limits, its directory, what it refuses."""

import inspect
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from scipy.stats import norm

from dspn import Model, Schema, Sequences, Variable
from dspn.data import Sequences as Data
from dspn.engine import compile_program
from dspn.errors import DataError, ModelFileError, StructureError
from dspn.learning import EmOptions, Priors
from dspn.learning.auto import Auto, AutoLearned, learn_auto
from dspn.learning.auto.base import divide
from dspn.learning.auto.moves import CLUSTERS, PRIOR, OtherPrior
from dspn.learning.auto.planner import AutoState
from dspn.learning.auto.run import FIRST_ROUGH
from dspn.learning.run import Ending
from dspn.structure.validity import violations

BITS = Schema(tuple(Variable.binary(f"x{i}") for i in range(4)))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {f"x{i}": [[0.9, 0.1], [0.2, 0.8]] for i in range(4)},
    schema=BITS,
)
EM = EmOptions(max_steps=6, min_steps=2, patience=2, single_precision=True)
QUICK = Auto(effort=0.4, em=EM, refit=EmOptions(max_steps=2))


def drawn(num_sequences: int, seed: int) -> Data:
    return PLANTED.sample(num_sequences, 10, rng=np.random.default_rng(seed))


def learned(**settings: object) -> AutoLearned:
    arguments = {"seed": 0, "options": QUICK, **settings}
    return learn_auto(drawn(40, 0), drawn(20, 1), **arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole() -> AutoLearned:
    return learned()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that has ended."""
    path = tmp_path_factory.mktemp("run")
    learned(checkpoint=path)
    return path


@pytest.fixture(scope="module")
def chosen() -> AutoLearned:
    return learned(refit=False)


def assert_score_is_that_of_the_model(found: AutoLearned, validation: Data) -> None:
    """Of a model that was not trained on the validation set."""
    scores = Model(found.mixture).log_likelihood(validation)
    np.testing.assert_allclose(scores.mean(), found.score, rtol=1e-9)


def test_the_planted_model_is_nearly_found() -> None:
    test = drawn(300, 2)
    found = learn_auto(drawn(200, 0), drawn(60, 1), seed=0, options=Auto(effort=2.0))
    assert Model(found.mixture).log_likelihood(test).mean() > (
        PLANTED.log_likelihood(test).mean() - 0.4
    )
    assert found.ending is Ending.FINISHED
    assert {item.move for item in found.tried} >= {CLUSTERS, PRIOR}


def test_what_holds_at_one_position_only_is_learned_by_position() -> None:
    """Six symbols, and after each position another one goes on from them."""
    rng, schema = np.random.default_rng(0), Schema((Variable.categorical("x", range(6)),))
    after = [rng.permutation(6) for _ in range(5)]

    def process(count: int) -> Data:
        values = rng.integers(6, size=(count, 6))
        for position, own in enumerate(after, 1):
            heard = rng.random(count) < 0.9
            values[heard, position] = own[values[heard, position - 1]]
        return Sequences.from_arrays(list(values[:, :, None].astype(float)), schema=schema)

    train, validation, test = process(200), process(100), process(500)
    found = learn_auto(train, validation, seed=0, options=Auto(effort=3.0))
    assert any(own.recipe.by_position for own in found.choice.members.values())
    # The next symbol is 0.9 + 0.1 / 6 likely, each other one 0.1 / 6.
    likely = np.array([0.9 + 0.1 / 6, *[0.1 / 6] * 5])
    truth = np.log(1 / 6) + 5 * float(likely @ np.log(likely))
    assert Model(found.mixture).log_likelihood(test).mean() > truth - 0.5
    assert "by position" in str(next(i for i in found.tried if i.candidate.recipe.by_position))


def test_every_component_is_valid_and_the_score_is_that_before_refitting(
    chosen: AutoLearned,
) -> None:
    for network in chosen.mixture.components:
        assert not violations(network.template, network.top)
    assert_score_is_that_of_the_model(chosen, drawn(20, 1))
    scores = Model(chosen.mixture).log_likelihood(drawn(20, 1))
    np.testing.assert_allclose(scores, chosen.choice.validation, rtol=1e-9)


def test_the_same_seed_gives_the_same_model_whatever_the_number_of_jobs(
    whole: AutoLearned,
) -> None:
    other = learned(num_jobs=2)
    assert whole.mixture.fingerprint == other.mixture.fingerprint
    assert [str(item) for item in whole.tried] == [str(item) for item in other.tried]
    assert whole.mixture.fingerprint != learned(seed=1).mixture.fingerprint


def test_no_test_data_can_be_given() -> None:
    names = set(inspect.signature(learn_auto).parameters)
    given = {"train", "validation"}
    settings = {
        "seed", "options", "priors", "root", "tied", "refit", "num_jobs", "executor", "time_limit",
        "checkpoint", "resume", "report", "on_state", "clock", "covariances",
    }  # fmt: skip
    assert names == given | settings


def test_a_run_goes_on_from_its_directory_to_the_same_model(
    tmp_path: Path, whole: AutoLearned
) -> None:
    directory = tmp_path / "run"

    def interrupt(state: AutoState) -> None:
        if state.stage == "deepening":
            raise KeyboardInterrupt

    stopped = learned(checkpoint=directory, on_state=interrupt)
    assert stopped.ending is Ending.INTERRUPTED
    kept = [path for path in directory.glob("*.dspn") if int(path.stem) < FIRST_ROUGH]
    assert len(kept) == len(stopped.tried) < len(whole.tried)
    resumed = learned(checkpoint=directory, resume=True)
    assert resumed.mixture.fingerprint == whole.mixture.fingerprint
    again = learned(checkpoint=directory, resume=True)
    assert again.mixture.fingerprint == whole.mixture.fingerprint


def test_a_directory_of_another_run_is_refused(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(ModelFileError, match="go on from it with `resume=True`"):
        learned(checkpoint=directory)
    with pytest.raises(ModelFileError, match="its `seed` is 0 where this run has 3"):
        learned(checkpoint=directory, resume=True, seed=3)
    with pytest.raises(ModelFileError, match="empty or a new directory"):
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "letter.txt").write_text("mine")
        learned(checkpoint=tmp_path / "other")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="is a file"):
        learned(checkpoint=tmp_path / "file")
    with pytest.raises(StructureError, match="`resume` needs a `checkpoint`"):
        learned(resume=True)


def test_a_candidate_file_of_another_try_is_refused(tmp_path: Path, directory: Path) -> None:
    directory = copytree(directory, tmp_path / "run")
    first, second = sorted(directory.glob("*.dspn"))[:2]
    first.write_bytes((directory / "00004.dspn").read_bytes())
    with pytest.raises(ModelFileError, match="not the model that this run trained"):
        learned(checkpoint=directory, resume=True)
    assert second.exists()


def test_a_time_limit_that_is_over_at_once_leaves_the_least_model() -> None:
    found = learned(time_limit=1e-9, refit=False)
    assert found.ending is Ending.TIME_LIMIT
    assert found.mixture.num_interfaces == 1
    assert_score_is_that_of_the_model(found, drawn(20, 1))


def test_what_was_tried_is_told_in_words(whole: AutoLearned) -> None:
    told = whole.explanation()
    assert "models were tried" in told and "clusters:" in told
    assert "on the validation set" in told and "x0" in told


def test_given_priors_are_not_changed() -> None:
    found = learned(priors=Priors(sum_pseudo_count=1.0))
    assert OtherPrior() not in {item.move for item in found.tried}


@pytest.mark.parametrize("root", ["first", "last"])
@pytest.mark.parametrize("tied", [True, False])
def test_roots_and_untied_bottoms(root: str, tied: bool) -> None:
    found = learned(root=root, tied=tied, options=replace(QUICK, effort=0.1))
    assert found.mixture.root == root
    for network in found.mixture.components:
        assert network.parameters.tied is tied


def _mixed_kinds(num_sequences: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    schema = Schema(
        (
            Variable.continuous("level"),
            Variable.count("calls"),
            Variable.categorical("mode", ("a", "b", "c")),
        )
    )
    arrays = []
    for _ in range(num_sequences):
        length = int(rng.integers(1, 6))
        state = rng.integers(0, 2, size=length)
        rows = np.column_stack([rng.normal(3 * state), rng.poisson(1 + 4 * state), state])
        rows[rng.random(rows.shape) < 0.2] = np.nan
        arrays.append(rows)
    values = np.concatenate(arrays)
    offsets = np.cumsum([0, *map(len, arrays)])
    return Sequences.from_codes(values, offsets, schema)


EDGES = {
    "one slice each": lambda seed: PLANTED.sample(12, 1, rng=np.random.default_rng(seed)),
    "nothing observed": lambda seed: Sequences.from_arrays(
        [np.full((4, 4), np.nan)] * 6, schema=BITS
    ),
    "a single category": lambda seed: Sequences.from_arrays(
        [np.zeros((5, 1))] * 6, schema=Schema((Variable.categorical("only", (0,)),))
    ),
    "two variables": lambda seed: Sequences.from_codes(
        drawn(10, seed).values[:, :2].copy(),
        drawn(10, seed).offsets,
        Schema(tuple(Variable.binary(f"x{i}") for i in range(2))),
    ),
    "mixed kinds with gaps": lambda seed: _mixed_kinds(15, seed),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_of_data(name: str) -> None:
    train, validation = EDGES[name](0), EDGES[name](1)
    found = learn_auto(train, validation, seed=0, options=QUICK, refit=False)
    assert_score_is_that_of_the_model(found, validation)


def test_a_training_set_that_is_its_own_validation_set_is_divided() -> None:
    data = drawn(10, 0)
    found = learn_auto(data, data, seed=0, options=QUICK, refit=False)
    assert found.choice.validation.size == 4
    assert np.isfinite(Model(found.mixture).log_likelihood(data)).all()


@pytest.mark.parametrize(
    ("train", "held", "counts"),
    [
        (200, 20, (200, 20)),  # enough to choose by
        (80, 10, (70, 20)),
        (20, 0, (13, 7)),
        (7, 1, (5, 3)),
    ],
)
def test_few_validation_sequences_become_more(
    train: int, held: int, counts: tuple[int, int]
) -> None:
    data = drawn(train, 0)
    validation = drawn(held, 1) if held else data
    parts = divide(data, validation, 0)
    assert tuple(len(part) for part in parts) == counts
    rows = np.concatenate([part.values for part in parts])
    every = np.concatenate([data.values, validation.values]) if held else data.values
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(every, axis=0))
    again = divide(data, validation, 0)
    assert all((one.values == other.values).all() for one, other in zip(parts, again, strict=True))


@pytest.mark.parametrize(("slices", "runs"), [(3000, 40), (400, 10), (50, 3), (2, 2)])
def test_a_single_sequence_is_divided_in_time(slices: int, runs: int) -> None:
    values = np.arange(float(slices))[:, np.newaxis]
    data = Sequences.from_arrays([values], schema=Schema((Variable.continuous("x"),)))
    train, validation = divide(data, data, 0)
    assert len(train) + len(validation) == runs
    assert len(validation) == round(0.35 * runs)
    for part in (*train, *validation):
        np.testing.assert_array_equal(np.diff(part[:, 0]), 1.0)
    assert train.total_slices + validation.total_slices == slices


def test_a_single_slice_is_not_divided() -> None:
    data = drawn(1, 0).slices(0, 1)
    assert divide(data, data, 0) == (data, data)


def test_other_variables_in_the_validation_set_are_refused() -> None:
    with pytest.raises(DataError, match="`validation` must have the variables"):
        learn_auto(drawn(5, 0), _mixed_kinds(5, 0), seed=0, options=QUICK)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"effort": 0}, "`effort`"),
        ({"exploration": 2}, "`exploration`"),
        ({"max_layouts": 0}, "`max_layouts`"),
        ({"em": 3}, "`em`"),
    ],
)
def test_options_out_of_range_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(StructureError, match=said):
        Auto(**settings)  # type: ignore[arg-type]


def test_components_are_products_of_mixtures_of_their_blocks(chosen: AutoLearned) -> None:
    validation = drawn(20, 1)
    for network, layout in zip(chosen.mixture.components, chosen.choice.layouts, strict=True):
        expected = sum(chosen.choice.models[block].validation for block in layout)
        np.testing.assert_allclose(
            compile_program(network).log_likelihood(validation), expected, rtol=1e-9
        )


def test_a_sequence_unlike_all_others_costs_no_more_than_independent_entries_say() -> None:
    rng, schema = np.random.default_rng(0), Schema((Variable.continuous("x"),))

    def process(levels: np.ndarray) -> Data:
        arrays = [level + 0.1 * rng.normal(size=(6, 1)) for level in levels]
        return Sequences.from_arrays(arrays, schema=schema)

    train = process(np.repeat([-1.0, 0.0, 1.0], 12))
    found = learn_auto(train, train, seed=0, options=Auto(effort=2.0))
    far = process(np.array([12.0]))
    spread = np.std(train.values)
    plain = norm.logpdf(far.values, np.mean(train.values), spread).sum()
    assert max(own.size for own in found.choice.members.values()) > 1
    assert Model(found.mixture).log_likelihood(far)[0] > 1.1 * plain - np.log(len(train) + 1)

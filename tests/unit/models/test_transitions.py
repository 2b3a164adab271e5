"""Models whose transitions are block-sparse or Monarch: learning, attributes, files, samples."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import dspn
from dspn import DSPN, HMM, Em, EmOptions, Model, Sequences, StructureError
from dspn.cli.app import app
from dspn.learning.starts.clusters import _Chain
from dspn.plotting import plot_template
from dspn.structure import Root, Transitions

pytestmark = pytest.mark.filterwarnings("ignore::dspn.ConvergenceWarning")
FEW = ("block", "monarch")
SIZE = 20
SCHEMA = dspn.Schema(tuple(dspn.Variable.binary(f"x{number}") for number in range(5)))


def steps(seed: int, num_sequences: int = 80) -> Sequences:
    """A walk over the numbers below 32, written in bits: the next is one more, or anything."""
    rng = np.random.default_rng(seed)
    shape = (num_sequences, 30)
    jumps = np.where(rng.random(shape) < 0.8, 1, rng.integers(0, 32, shape))
    states = np.cumsum(jumps, axis=1) % 32
    values = (states.reshape(-1, 1) >> np.arange(5) & 1).astype(float)
    return Sequences.from_codes(values, np.arange(num_sequences + 1) * 30, SCHEMA)


@pytest.fixture(scope="module", params=FEW)
def fitted(request: pytest.FixtureRequest) -> HMM:
    em = EmOptions(max_steps=15)
    return HMM(SIZE, transitions=request.param, em=em, random_state=0).fit(steps(0))


def test_hmm_learns_and_comes_near_the_dense_one(fitted: HMM) -> None:
    fresh, em = steps(1), EmOptions(max_steps=15)
    dense = HMM(SIZE, em=em, random_state=0).fit(steps(0)).score(fresh)
    few = HMM(4, em=em, random_state=0).fit(steps(0)).score(fresh)
    assert few < fitted.score(fresh)
    assert fitted.score(fresh) > dense - 0.3 * (dense - few)


def test_attributes_build_the_same_hmm_again(fitted: HMM) -> None:
    data = steps(2, 10)
    again = Model.from_hmm(
        fitted.start_probabilities_,
        fitted.transition_matrix_,
        fitted.emissions_,
        schema=fitted.schema_,
    )
    assert_allclose(again.log_likelihood(data), fitted.score_samples(data), rtol=1e-10)


def test_file_has_the_same_model(fitted: HMM, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.dspn")
    again = dspn.load(tmp_path / "model.dspn")
    assert again.transitions == fitted.transitions
    assert again.network_.fingerprint == fitted.network_.fingerprint
    assert_allclose(again.score_samples(steps(2, 5)), fitted.score_samples(steps(2, 5)), rtol=0)


def test_samples_posteriors_and_completions_agree_with_the_dense_hmm(fitted: HMM) -> None:
    dense = Model.from_hmm(
        fitted.start_probabilities_,
        fitted.transition_matrix_,
        fitted.emissions_,
        schema=fitted.schema_,
    )
    data = steps(3, 4)
    own = fitted.sample(4000, 2, random_state=0).values
    other = dense.sample(4000, 2, rng=np.random.default_rng(1)).values
    pairs = [np.mean(values.reshape(-1, 10), axis=0) for values in (own, other)]
    assert_allclose(*pairs, atol=0.04)
    holes = data.values.copy()
    holes[1::3] = np.nan
    hidden = Sequences.from_codes(holes, data.offsets, SCHEMA)
    assert_allclose(
        fitted.interface_posteriors(hidden), dense.interface_posteriors(hidden), atol=1e-12
    )
    # There is one way from an input to an output, so that the best choices are those of the states.
    ours, theirs = fitted.complete(hidden), dense.complete(hidden)
    assert_allclose(ours.log_prob, theirs.log_prob, rtol=1e-9)


def test_learning_goes_on_with_new_data(fitted: HMM, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.dspn")
    again = dspn.load(tmp_path / "model.dspn").partial_fit(steps(4))
    assert np.isfinite(again.score(steps(1)))


def test_network_can_be_drawn(fitted: HMM) -> None:
    assert plot_template(fitted.network_) is not None


@pytest.mark.parametrize("kind", FEW)
def test_em_learner_makes_the_same_template_for_either_root(kind: str) -> None:
    learner = Em(9, EmOptions(max_steps=3), transitions=kind)
    model = DSPN(learner, root="last", tied=False, random_state=0).fit(steps(0, 20))
    nodes = HMM(9, transitions=kind, em=EmOptions(max_steps=1), random_state=0).fit(steps(0, 20))
    assert model.network_.template.nodes == nodes.network_.template.nodes
    assert model.get_params()["learner__transitions"] == kind


def test_clusters_give_the_frequencies_of_the_ways_over_each_edge() -> None:
    """P(block | o) and P(j | block, rank of o) are as in the counts of a long sequence."""
    states = np.random.default_rng(0).integers(0, 9, 20_000)
    states[1::2] = (states[::2] * 2 + 1) % 9
    data = Sequences.from_codes(np.zeros((20_000, 5)), np.array([0, 20_000]), SCHEMA)
    weights = _Chain(data, states, 9, Root.FIRST).transitions(0.0, Transitions.MONARCH)
    inner, outer = weights[:27].reshape(3, 3, 3), weights[27:].reshape(9, 3)
    counts = np.zeros((9, 9))
    np.add.at(counts, (states[:-1], states[1:]), 1)
    by_rank = counts.reshape(3, 3, 3, 3).sum(axis=0)
    assert_allclose(inner, by_rank / by_rank.sum(axis=2, keepdims=True), atol=1e-3)
    by_block = counts.reshape(9, 3, 3).sum(axis=2)
    assert_allclose(outer, by_block / by_block.sum(axis=1, keepdims=True), atol=1e-3)


@pytest.mark.parametrize("kind", FEW)
def test_data_of_single_slices_have_no_transitions(kind: str) -> None:
    data = Sequences.from_codes(steps(0, 2).values, np.arange(61), SCHEMA)
    matrix = HMM(9, transitions=kind, random_state=0).fit(data).transition_matrix_
    assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-9)


def test_other_transitions_are_refused() -> None:
    with pytest.raises(StructureError, match="but is 'butterfly'; choose one"):
        HMM(4, transitions="butterfly").fit(steps(0, 4))
    with pytest.raises(StructureError, match="but is 'butterfly'; choose one"):
        Em(4, transitions="butterfly")


def test_the_command_line_takes_transitions(tmp_path: Path) -> None:
    table, model = tmp_path / "steps.csv", tmp_path / "steps.dspn"
    values = steps(0, 20).values.astype(int)
    rows = [f"{i // 30},{','.join(map(str, row))}" for i, row in enumerate(values)]
    table.write_text("\n".join(["s,a,b,c,d,e", *rows]))
    command = ["fit", str(table), "-s", "s", "-o", str(model), "--interfaces", "16", "-q"]
    few = ["--transitions", "monarch"]
    done = CliRunner().invoke(app, [*command, *few, "--learner", "em"])
    assert done.exit_code == 0, done.output
    assert Model.load(model).network.template.num_weights == 2 * 16 * 4
    refused = CliRunner().invoke(app, [*command[:-3], "-q", *few])
    assert refused.exit_code == 2 and "--learner em" in refused.output

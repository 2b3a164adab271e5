"""LSTMs as teachers: draws follow the nets' own probabilities."""

from dataclasses import replace
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

from dspn import DSPN, DataError, Distilled, DspnError, EmOptions, Schema, Sequences, Variable
from dspn.learning.lstm import Lstms, SliceNetSize, session
from dspn.learning.lstm.teacher import SCHEDULE
from dspn.learning.run import Clock
from dspn.models import Model

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

SCHEMA = Schema((Variable.binary("x"), Variable.categorical("y", ("a", "b", "c"))))
TRUTH = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {"x": [[0.9, 0.1], [0.2, 0.8]], "y": [[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]]},
    schema=SCHEMA,
)
OPTIONS = Lstms(
    (SliceNetSize(4), SliceNetSize(5, 2)), schedule=replace(SCHEDULE, max_epochs=3, batch_size=16)
)


def _drawn(number: int, lengths: list[int]) -> Sequences:
    return TRUTH.sample(len(lengths), lengths, rng=np.random.default_rng(number))


@needs_torch
def test_draws_follow_the_probabilities_of_the_nets() -> None:
    from dspn.learning.lstm.training import step_sums

    teacher = OPTIONS.fit(_drawn(0, [2] * 60), _drawn(1, [2] * 20), seed=0, clock=Clock())
    every = np.array(list(product(product((0, 1), (0, 1, 2)), repeat=2)), dtype=float)
    steps = teacher.code.steps(
        Sequences.from_codes(every.reshape(-1, 2), np.arange(37) * 2, SCHEMA)
    )
    exact = np.mean([np.exp(step_sums(net, steps)) for net in teacher.nets], axis=0)
    assert exact.sum() == pytest.approx(1)
    drawn = teacher.sample(20_000, np.random.default_rng(2))
    codes = drawn.values.reshape(-1, 4) @ [18, 6, 3, 1]
    counts = np.bincount(codes.astype(int), minlength=36)
    places = (every.reshape(-1, 4) @ [18, 6, 3, 1]).astype(int)
    deviations = (counts[places] - 20_000 * exact) / np.sqrt(20_000 * exact)
    assert (deviations**2).sum() < 80  # chi-square of 35 degrees: beyond 80 once in 50,000


@needs_torch
def test_lengths_units_and_states_are_those_of_the_data() -> None:
    schema = Schema((Variable.continuous("x"),))
    rng = np.random.default_rng(0)
    own = [1e4 + 10 * rng.standard_normal((length, 1)) for length in [3, 5, 9] * 20]
    data = Sequences.from_arrays(own, schema=schema)
    teacher = OPTIONS.fit(data, data[:10], seed=0, clock=Clock())
    drawn = teacher.sample(500, np.random.default_rng(1))
    assert set(drawn.lengths.tolist()) == {3, 5, 9}
    assert abs(drawn.values.mean() - 1e4) < 10 and 3 < drawn.values.std() < 30
    again = teacher.sample(500, np.random.default_rng(1))
    np.testing.assert_array_equal(drawn.values, again.values)
    states = teacher.states(data)
    assert states.shape == (data.total_slices, teacher.nets[0].lstm.hidden_size)
    # What is known after a slice does not depend on later ones, nor on other sequences.
    alone = teacher.states(data[2:3].slices(0, 4))
    start = int(data.offsets[2])
    np.testing.assert_allclose(alone, states[start : start + 4], rtol=1e-4, atol=1e-6)


@needs_torch
def test_the_same_seed_gives_the_same_model_of_lstms() -> None:
    em = EmOptions(4, 4, batch_size=200)
    options = Distilled(OPTIONS, n_interfaces=2, num_draws=400, em=em, worths=(1,))
    data = _drawn(0, [6] * 40)
    first, again = (DSPN(options, random_state=0).fit(data).score(data) for _ in range(2))
    assert first == again > -np.inf


def test_what_lstms_cannot_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = _drawn(0, [4] * 5)
    gaps = gaps.with_values(np.where(np.arange(20)[:, None] == 7, np.nan, gaps.values))
    with pytest.raises(DataError, match="`train` must be complete"):
        OPTIONS.fit(gaps, gaps, seed=0, clock=Clock())
    counts = Sequences.from_arrays([np.ones((4, 1))], schema=Schema((Variable.count("n"),)))
    with pytest.raises(DataError, match="'n' is a count"):
        OPTIONS.fit(counts, counts, seed=0, clock=Clock())
    told = Schema(SCHEMA.variables, inputs=(Variable.binary("open"),))
    given = Sequences.from_codes(np.zeros((4, 2)), [0, 4], told, inputs=np.zeros((4, 1)))
    with pytest.raises(DataError, match=r"has \['open'\]; leave them out"):
        OPTIONS.fit(given, given, seed=0, clock=Clock())
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(DspnError, match="needs PyTorch, but it is not installed"):
        DSPN("distilled", random_state=0).fit(_drawn(0, [4] * 20))

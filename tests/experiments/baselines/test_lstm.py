"""Recurrent nets: distributions that enumeration and a net written out by hand agree with."""

import copy
import itertools
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn import DataError, DspnError, NumericalError, Schema, Sequences, StructureError, Variable
from dspn.learning.lstm import session as _session
from dspn.learning.lstm.steps import batches, slice_code
from dspn.learning.run import Clock
from experiments.baselines.base import Baseline, Ending, FittedBaseline, task_of
from experiments.baselines.lstm import (
    BitLstm,
    BitLstmOptions,
    SliceLstm,
    SliceLstmOptions,
    SliceNetSize,
    Update,
)
from experiments.baselines.lstm.bits import BitCode

HAS_TORCH = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="needs PyTorch: pip install torch")

if HAS_TORCH or TYPE_CHECKING:
    import torch

    from dspn.learning.lstm import training as _training
    from dspn.learning.lstm.net import StepNet, blocks_of
    from dspn.learning.lstm.outputs import Categories, GaussianMixture
    from experiments.baselines.lstm import _gaps
    from experiments.baselines.lstm._fitting import fit_best

    class Spy(StepNet):
        """Writes down what it is given; its state is the number of steps read."""

        def __init__(self, value: float = -1.0) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(value))
            self.seen: list[tuple[int, Any]] = []

        def forward(self, values: Any, state: Any) -> Any:
            self.seen.append((values.shape[1], state))
            before = torch.zeros(()) if state is None else state[0]
            log_prob = self.weight * torch.ones(values.shape[:2]) + 0 * before
            return log_prob, (before + values.shape[1] * self.weight / self.weight.detach(),)

        def drawn(self, values: Any, uniforms: Any, state: Any) -> Any:
            raise NotImplementedError


BITS = Schema(tuple(Variable.binary(f"x{i}") for i in range(3)))
MIXED = Schema(
    (
        Variable.categorical("three", ["a", "b", "c"]),
        Variable.binary("bit"),
        Variable.categorical("only", ["one"]),
        Variable.categorical("seven", range(7)),
    )
)
NUMBERS = Schema((Variable.continuous("x"), Variable.binary("b")))

TINY_BITS = BitLstmOptions(hidden_size=4, max_epochs=2, truncation=4, update=Update.ADAM)
TINY_SLICES = SliceLstmOptions(
    sizes=(SliceNetSize(5), SliceNetSize(4, 2, 0.3)), max_epochs=2, num_components=2, truncation=2
)
TINY: list[Baseline] = [BitLstm(TINY_BITS), SliceLstm(TINY_SLICES)]
both = pytest.mark.parametrize("baseline", TINY, ids=["bits", "slices"])
either_schema = pytest.mark.parametrize("schema", [BITS, MIXED], ids=["bits", "mixed"])


def random_data(schema: Schema, lengths: list[int], seed: int) -> Sequences:
    rng = np.random.default_rng(seed)
    sizes = [variable.num_categories for variable in schema]
    values = [
        rng.integers(size, size=sum(lengths)) if size else rng.normal(3, 2, size=sum(lengths))
        for size in sizes
    ]
    return Sequences.from_codes(np.stack(values, axis=1), np.cumsum([0, *lengths]), schema)


def all_slices(schema: Schema) -> np.ndarray:
    ranges = [range(variable.num_categories) for variable in schema]
    return np.array(list(itertools.product(*ranges)), dtype=float)


def fitted_on(baseline: Baseline, schema: Schema, **more: Any) -> Any:
    train, validation = random_data(schema, [5, 1, 4, 3], 0), random_data(schema, [3, 2], 1)
    return baseline.fit(train, validation, seed=2, **more)


# What holds without PyTorch


def test_the_package_is_imported_without_pytorch() -> None:
    check = "import sys, experiments.baselines.lstm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@both
def test_fit_without_pytorch_says_what_to_install(
    baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session, "find_spec", lambda name: None)
    with pytest.raises(DspnError, match=r"Lstm.fit` needs PyTorch.* pip install torch"):
        fitted_on(baseline, BITS)


def test_binary_slices_are_read_bit_by_bit_in_the_order_of_the_variables() -> None:
    data = random_data(BITS, [2, 3], 0)
    steps = BitCode(BITS).steps(data)
    assert_array_equal(steps.values[:, 0], data.values.ravel())
    assert_array_equal(steps.values[:, 1], np.ones(15))
    assert_array_equal(steps.offsets, [0, 6, 15])


def test_codes_of_seven_categories_have_three_bits_and_the_last_may_not_be_free() -> None:
    schema = MIXED.select(["seven"])
    data = Sequences.from_codes(np.arange(7.0)[:, None], [0, 7], schema)
    steps = BitCode(schema).steps(data).values.reshape(7, 3, 2)
    expected = [[int(digit) for digit in f"{code:03b}"] for code in range(7)]
    assert_array_equal(steps[..., 0], expected)
    assert not steps[6, 2, 1] and steps[..., 1].sum() == 20


@pytest.mark.parametrize("size", range(2, 20))
def test_codes_sum_to_one_whatever_the_probabilities_of_bits(size: int) -> None:
    schema = Schema((Variable.categorical("x", range(size)),))
    code, rng = BitCode(schema), np.random.default_rng(size)
    data = Sequences.from_codes(np.arange(float(size))[:, None], [0, size], schema)
    steps = code.steps(data).values.reshape(size, code.steps_per_slice, 2)
    one = {prefix: rng.random() for n in range(9) for prefix in itertools.product((0, 1), repeat=n)}
    total = 0.0
    for bits in steps.astype(int):
        factors = [
            one[tuple(bits[:place, 0])] if bit else 1 - one[tuple(bits[:place, 0])]
            for place, (bit, free) in enumerate(bits)
            if free
        ]
        total += float(np.prod(factors))
    assert total == pytest.approx(1.0, rel=1e-12)


def test_batches_hold_every_sequence_once_and_are_of_about_one_length() -> None:
    lengths = np.random.default_rng(0).integers(1, 6, size=53)
    plain, mixed = batches(lengths, 10, None), batches(lengths, 10, np.random.default_rng(1))
    for cut in (plain, mixed):
        assert sorted(np.concatenate(cut).tolist()) == list(range(53))
        spans = sorted((int(lengths[own].min()), int(lengths[own].max())) for own in cut)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    again = batches(lengths, 10, np.random.default_rng(1))
    assert all(np.array_equal(one, other) for one, other in zip(mixed, again, strict=True))
    assert not np.array_equal(plain[0], mixed[0])


def test_numbers_are_standardised_and_codes_and_constants_are_not_divided() -> None:
    schema = Schema((Variable.continuous("x"), Variable.continuous("same"), Variable.binary("b")))
    data = Sequences.from_codes([[1, 7, 0], [5, 7, 1], [3, 7, 1.0]], [0, 1, 3], schema)
    code = slice_code(data)
    steps = code.steps(data).values
    assert_allclose(steps[:, 0], np.array([-1, 1, 0]) * np.sqrt(1.5), rtol=1e-6)
    assert_array_equal(steps[:, 1:], [[0, 0], [0, 1], [0, 1]])
    assert_allclose(code.log_units.sum(), -np.log(np.sqrt(8 / 3)), rtol=1e-12)


@both
def test_missing_entries_are_refused_and_named(baseline: Baseline) -> None:
    data = random_data(BITS, [2, 3], 0)
    values = np.array(data.values)
    values[3:, 1] = np.nan
    gaps = data.with_values(values)
    rule = "must be complete.* 2 entries are missing.* variable 'x1' in slice 1 of sequence 1"
    with pytest.raises(DataError, match=f"`train` {rule}"):
        baseline.fit(gaps, data, seed=0)
    with pytest.raises(DataError, match=f"`validation` {rule}"):
        baseline.fit(data, gaps, seed=0)


def test_variables_that_a_net_cannot_read_are_refused() -> None:
    numbers = random_data(Schema((Variable.continuous("x"),)), [3], 0)
    with pytest.raises(DataError, match="variable 'x' is continuous"):
        BitLstm().fit(numbers, numbers, seed=0)
    counts = Sequences.from_codes([[1.0], [2.0]], [0, 2], Schema((Variable.count("n"),)))
    with pytest.raises(DataError, match="variable 'n' is a count; put its values into bins"):
        SliceLstm().fit(counts, counts, seed=0)
    single = random_data(MIXED.select(["only"]), [3], 0)
    with pytest.raises(DataError, match="two categories or more, but each has one"):
        BitLstm().fit(single, single, seed=0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: BitLstmOptions(hidden_size=0), "`hidden_size` must be a whole number"),
        (lambda: BitLstmOptions(truncation=0), "`truncation` must be a whole number"),
        (lambda: BitLstmOptions(learning_rate=0), "`learning_rate` of Schedule must be"),
        (lambda: BitLstmOptions(update="adam"), "`update` must be a Update"),  # type: ignore[arg-type]
        (lambda: SliceLstmOptions(sizes=()), "`sizes` must hold at least one"),
        (lambda: SliceLstmOptions(sizes=(64,)), "`sizes` must be a SliceNetSize"),  # type: ignore[arg-type]
        (lambda: SliceLstmOptions(clip_norm=-1), "`clip_norm` of Schedule must be"),
        (lambda: BitLstmOptions(num_draws=0), "`num_draws` must be a whole number of at least 1"),
        (lambda: SliceLstmOptions(num_draws=0), "`num_draws` must be a whole number of at least"),
        (lambda: SliceLstmOptions(reductions=-1), "`reductions` must be a whole number"),
        (lambda: SliceNetSize(8, dropout=1.0), "`dropout` of SliceNetSize must be below 1"),
        (lambda: SliceLstm(BitLstmOptions()), "`options` must be a SliceLstmOptions"),  # type: ignore[arg-type]
    ],
)
def test_options_out_of_range_are_refused(make: Any, said: str) -> None:
    with pytest.raises(StructureError, match=said):
        make()


# What a fitted net is


@needs_torch
@both
@either_schema
def test_slices_sum_to_one_given_any_past(baseline: Baseline, schema: Schema) -> None:
    fitted = fitted_on(baseline, schema)
    last = all_slices(schema)
    first = [np.empty((0, len(schema)))]
    for past in [*first, *random_data(schema, [1, 2, 6], 3)]:
        ends = [np.concatenate([past, row[None]]) for row in last]
        after = fitted.log_likelihood(sequences(ends, schema))
        before = fitted.log_likelihood(sequences([past], schema))[0] if len(past) else 0.0
        assert_allclose(np.exp(after - before).sum(), 1.0, rtol=1e-6)


@needs_torch
@both
def test_sequences_of_one_length_sum_to_one(baseline: Baseline) -> None:
    fitted = fitted_on(baseline, BITS)
    pairs = [np.stack(pair) for pair in itertools.product(all_slices(BITS), repeat=2)]
    assert_allclose(np.exp(fitted.log_likelihood(sequences(pairs, BITS))).sum(), 1.0, rtol=1e-6)


def sequences(arrays: list[np.ndarray], schema: Schema) -> Sequences:
    lengths = [len(array) for array in arrays]
    return Sequences.from_codes(np.concatenate(arrays), np.cumsum([0, *lengths]), schema)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm_states(weights: dict[str, Any], inputs: np.ndarray, layer: int = 0) -> np.ndarray:
    """The states of one layer, unit equations written out, in double precision."""
    own = {name: weights[f"lstm.{name}_l{layer}"] for name in ("weight_ih", "weight_hh")}
    bias = weights[f"lstm.bias_ih_l{layer}"] + weights[f"lstm.bias_hh_l{layer}"]
    size = own["weight_hh"].shape[1]
    hidden, cell, found = np.zeros(size), np.zeros(size), []
    for row in inputs:
        gates = own["weight_ih"] @ row + own["weight_hh"] @ hidden + bias
        let_in, keep, new, let_out = np.split(gates, 4)
        cell = sigmoid(keep) * cell + sigmoid(let_in) * np.tanh(new)
        hidden = sigmoid(let_out) * np.tanh(cell)
        found.append(hidden)
    return np.array(found)


def weights_of(fitted: Any) -> dict[str, Any]:
    return {name: one.double().numpy() for name, one in fitted.net.state_dict().items()}


@needs_torch
def test_bit_net_is_the_product_of_its_sigmoids() -> None:
    fitted = fitted_on(BitLstm(TINY_BITS), BITS)
    weights = weights_of(fitted)
    data = random_data(BITS, [1, 4, 9], 4)
    for values, found in zip(data, fitted.log_likelihood(data), strict=True):
        bits = values.ravel()
        hidden = lstm_states(weights, np.append(0.5, bits[:-1])[:, None])
        ones = sigmoid(hidden @ weights["output.weight"][0] + weights["output.bias"])
        assert_allclose(found, np.log(np.where(bits, ones, 1 - ones)).sum(), rtol=1e-5)


@needs_torch
def test_slice_net_is_the_product_over_slices_and_variables() -> None:
    options = replace(TINY_SLICES, sizes=(SliceNetSize(4, 2, 0.3),))
    fitted = fitted_on(SliceLstm(options), MIXED)
    weights = weights_of(fitted)
    data = random_data(MIXED, [1, 5], 4)
    sizes = [variable.num_categories for variable in MIXED]
    ends = np.cumsum(sizes)
    for values, found in zip(data, fitted.log_likelihood(data), strict=True):
        hot = np.zeros((len(values), ends[-1]))
        np.put_along_axis(hot, (values + ends - sizes).astype(int), 1.0, axis=1)
        read = hot @ weights["embedding.weight"].T + weights["embedding.bias"]
        states = lstm_states(weights, np.concatenate([weights["start"][None], read[:-1]]))
        states = lstm_states(weights, states, layer=1)
        total = 0.0
        for context, features, row in zip(states, hot, values, strict=True):
            for column, (end, size) in enumerate(zip(ends, sizes, strict=True)):
                # Only variables before this one are shown to a head whose masks are left out.
                shown = np.where(np.arange(ends[-1]) < end - size, features, 0.0)
                logits = masked_logits(weights, context, shown)[end - size : end]
                total += logits[int(row[column])] - np.log(np.exp(logits).sum())
        assert_allclose(found, total, rtol=1e-5)


def masked_logits(weights: dict[str, Any], context: np.ndarray, features: np.ndarray) -> Any:
    def linear(name: str, values: np.ndarray) -> Any:
        edges = weights[f"head.{name}.linear.weight"] * weights[f"head.{name}.mask"]
        return edges @ values + weights[f"head.{name}.linear.bias"]

    hidden = np.maximum(weights["head.context.weight"] @ context + linear("inside", features), 0)
    return (
        linear("outside", hidden)
        + linear("direct", features)
        + weights["head.past.weight"] @ context
    )


@needs_torch
def test_a_variable_is_not_shown_itself_nor_those_behind_it() -> None:
    schema = Schema((*MIXED, Variable.continuous("x"), Variable.binary("late")))
    net = fitted_on(SliceLstm(TINY_SLICES), schema).net.float()
    values = torch.from_numpy(
        slice_code(random_data(schema, [3], 0)).steps(random_data(schema, [3], 5)).values
    )[None]
    order = [
        column
        for block in blocks_of(schema, 2)
        for column in block.columns
        for _ in range(block.output.num_parameters)
    ]
    features, context = net._features(values), torch.randn(1, 3, net.head.past.in_features)
    plain = net.head(context, features)
    for column in range(len(schema)):
        other = values.clone()
        other[..., column] = 0.0 if schema[column].num_categories else 9.0
        changed = (net.head(context, net._features(other)) != plain).any(0).any(0)
        assert not any(
            hit for hit, own in zip(changed.tolist(), order, strict=True) if own <= column
        )


@needs_torch
@both
@either_schema
def test_sequences_of_other_lengths_in_the_batch_change_nothing(
    baseline: Baseline, schema: Schema
) -> None:
    fitted = fitted_on(baseline, schema)
    data = random_data(schema, [7, 1, 3, 7, 12], 6)
    alone = [fitted.log_likelihood(data[[index]])[0] for index in range(len(data))]
    assert_allclose(fitted.log_likelihood(data), alone, rtol=1e-6)


@needs_torch
@both
def test_windows_of_the_score_carry_the_state(
    baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = fitted_on(baseline, BITS)
    data = random_data(BITS, [11, 2, 7], 7)
    whole = fitted.log_likelihood(data)
    monkeypatch.setattr(_training, "_SCORED_STEPS", 3)
    assert_allclose(fitted.log_likelihood(data), whole, rtol=1e-6)


@needs_torch
def test_mixture_of_gaussians_is_a_density_in_the_units_of_the_data() -> None:
    schema = Schema((Variable.continuous("x"),))
    fitted = fitted_on(SliceLstm(TINY_SLICES), schema)
    grid = np.linspace(-60, 60, 4001)
    past = random_data(schema, [2], 8).values
    ends = [np.append(past, [[value]], axis=0) for value in grid]
    given = fitted.log_likelihood(sequences(ends, schema)) - fitted.log_likelihood(
        sequences([past], schema)
    )
    assert_allclose(np.exp(given).sum() * (grid[1] - grid[0]), 1.0, rtol=1e-4)


@needs_torch
def test_density_follows_the_unit() -> None:
    schema = Schema((Variable.continuous("x"), Variable.binary("b")))
    data = random_data(schema, [4, 2, 3], 0)
    larger = data.with_values(data.values * [1024, 1])
    one, other = (SliceLstm(TINY_SLICES).fit(own, own, seed=0) for own in (data, larger))
    assert_allclose(
        other.log_likelihood(larger),
        one.log_likelihood(data) - data.lengths * np.log(1024),
        rtol=1e-5,
    )


@needs_torch
@both
def test_data_that_a_fitted_net_cannot_read_are_refused(baseline: Baseline) -> None:
    fitted = fitted_on(baseline, BITS)
    with pytest.raises(DataError, match="`data` must have the variables of the model"):
        fitted.log_likelihood(random_data(MIXED, [2], 0))


# Sequences with gaps

both_and_numbers = pytest.mark.parametrize(
    ("baseline", "schema"),
    [(TINY[0], MIXED), (TINY[1], MIXED), (TINY[1], NUMBERS)],
    ids=["bits", "slices", "numbers"],
)


def with_gaps(data: Sequences, seed: int, share: float = 0.5) -> Sequences:
    hidden = np.random.default_rng(seed).random(data.values.shape) < share
    return data.with_values(np.where(hidden, np.nan, data.values))


def sharpened(fitted: Any, factor: float = 6.0) -> Any:
    """The same with larger weights, so that a value says much about those behind it."""
    net = copy.deepcopy(fitted.net)
    for one in net.parameters():
        one.mul_(factor)
    return replace(fitted, net=net)


def summed(fitted: Any, data: Sequences) -> np.ndarray:
    """P(observed entries) of each sequence, by the exact path over all completions."""
    ranges = [range(variable.num_categories) for variable in data.schema]
    found = []
    for values in data:
        gaps = np.argwhere(np.isnan(values))
        whole = []
        for filling in itertools.product(*(ranges[column] for _, column in gaps)):
            whole.append(np.array(values))
            whole[-1][tuple(gaps.T)] = filling
        found.append(np.exp(fitted.log_likelihood(sequences(whole, data.schema))).sum())
    return np.array(found)


def assert_unbiased(fitted: Any, data: Sequences, expected: Any, most: float) -> None:
    """20,000 draws, in twenty parts whose spread says how far off they may be."""
    parts = [replace(fitted, seed=seed, num_draws=1000) for seed in range(20)]
    found = np.exp([part.log_likelihood(data) for part in parts]) / expected
    errors = found.std(axis=0, ddof=1) / np.sqrt(len(parts))
    assert np.all(errors < most)
    assert np.all(np.abs(found.mean(axis=0) - 1) < 4 * errors + 1e-6)


@needs_torch
@both
@pytest.mark.parametrize(
    ("schema", "lengths"), [(BITS, [3, 1, 2, 1, 3]), (MIXED, [2, 1, 2])], ids=["bits", "mixed"]
)
def test_draws_of_what_is_missing_agree_with_the_sum_over_completions(
    baseline: Baseline, schema: Schema, lengths: list[int]
) -> None:
    fitted = sharpened(fitted_on(baseline, schema))
    data = with_gaps(random_data(schema, lengths, 11), 12)
    assert_unbiased(fitted, data, summed(fitted, data), most=0.03)


@needs_torch
@pytest.mark.parametrize("length", [1, 2])
def test_draws_of_a_number_agree_with_the_integral(length: int) -> None:
    schema = Schema((Variable.binary("a"), Variable.continuous("x"), Variable.binary("b")))
    fitted = sharpened(fitted_on(SliceLstm(TINY_SLICES), schema), 3.0)
    data = random_data(schema, [length], 8)
    grid, values = np.linspace(-60, 60, 8001), np.array(data.values)
    values[0, 1] = np.nan
    whole = [np.where(np.isnan(values), number, values) for number in grid]
    exact = np.exp(fitted.log_likelihood(sequences(whole, schema))).sum() * (grid[1] - grid[0])
    assert_unbiased(fitted, data.with_values(values), exact, most=0.03)


@needs_torch
@both
def test_what_is_observed_before_every_gap_needs_one_draw(baseline: Baseline) -> None:
    fitted = replace(sharpened(fitted_on(baseline, MIXED)), num_draws=1)
    data = random_data(MIXED, [1, 2], 3)
    values = np.array(data.values)
    values[[0, 2], 2:] = np.nan
    gaps = data.with_values(values)
    assert_allclose(np.exp(fitted.log_likelihood(gaps)), summed(fitted, gaps), rtol=1e-5)


@needs_torch
@both_and_numbers
def test_nothing_observed_has_probability_one(baseline: Baseline, schema: Schema) -> None:
    fitted = sharpened(fitted_on(baseline, schema))
    data = with_gaps(random_data(schema, [1, 4, 2], 0), 0, share=1.0)
    assert_array_equal(fitted.log_likelihood(data), np.zeros(3))
    period = fitted.encoding.steps_per_slice
    weights = _gaps.drawn_sums(
        fitted.net, fitted.encoding.steps(data), period, num_draws=10, seed=0
    )
    assert_array_equal(weights, np.zeros(3))


@needs_torch
@both
@either_schema
def test_a_slice_without_gaps_weighs_as_much_drawn_as_read(
    baseline: Baseline, schema: Schema
) -> None:
    fitted = sharpened(fitted_on(baseline, schema), 2.0)
    steps = fitted.encoding.steps(random_data(schema, [4, 1, 2], 5))
    drawn = _gaps.drawn_sums(
        fitted.net, steps, fitted.encoding.steps_per_slice, num_draws=2, seed=0
    )
    assert_allclose(drawn, _training.step_sums(fitted.net, steps), rtol=1e-5)


@needs_torch
@both_and_numbers
def test_complete_sequences_are_scored_without_draws_to_the_last_bit(
    baseline: Baseline, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = fitted_on(baseline, schema)
    data = random_data(schema, [7, 1, 3, 7], 6)
    whole = _training.step_sums(fitted.net, fitted.encoding.steps(data))
    whole = whole + fitted.encoding.log_units.sum() * data.lengths
    assert_array_equal(fitted.log_likelihood(data), whole)
    monkeypatch.delattr(type(fitted.net), "drawn")
    assert_array_equal(fitted.log_likelihood(data), whole)
    # Slices behind the last that is observed sum to one: a forecast is not asked for.
    longer = [np.pad(one, ((0, 2), (0, 0)), constant_values=np.nan) for one in data]
    assert_allclose(fitted.log_likelihood(sequences(longer, schema)), whole, rtol=1e-12)


@needs_torch
@both
def test_an_estimate_is_that_of_the_sequence_and_the_seed(
    baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = sharpened(fitted_on(baseline, MIXED), 2.0)
    plain = random_data(MIXED, [7, 2, 3, 7, 5], 6)
    values = np.array(with_gaps(plain, 7).values)
    values[7:9] = plain.values[7:9]
    data = plain.with_values(values)
    found = fitted.log_likelihood(data)
    assert_array_equal(fitted.log_likelihood(data), found)
    order = [3, 1, 4, 4, 0, 2]
    assert_allclose(fitted.log_likelihood(data[order]), found[order], rtol=1e-6)
    alone = [fitted.log_likelihood(data[[index]])[0] for index in range(len(data))]
    assert_allclose(alone, found, rtol=1e-6)
    assert_allclose(found[1], fitted.log_likelihood(plain)[1], rtol=1e-6)
    other = replace(fitted, seed=fitted.seed + 1).log_likelihood(data)
    assert_array_equal(other == found, [False, True, False, False, False])
    monkeypatch.setattr(_gaps, "_ROWS", 5)
    assert_allclose(fitted.log_likelihood(data), found, rtol=1e-6)


@needs_torch
def test_options_say_how_many_draws_and_the_fit_which() -> None:
    for options, kind in ((TINY_BITS, BitLstm), (TINY_SLICES, SliceLstm)):
        fitted = fitted_on(kind(replace(options, num_draws=7)), BITS)  # type: ignore[arg-type]
        assert (fitted.num_draws, fitted.seed) == (7, 2)


@needs_torch
def test_density_of_what_is_observed_follows_the_unit() -> None:
    data = random_data(NUMBERS, [4, 2, 3], 0)
    larger = data.with_values(data.values * [1024, 1])
    one, other = (SliceLstm(TINY_SLICES).fit(own, own, seed=0) for own in (data, larger))
    gaps = with_gaps(data, 1)
    observed = [int((~np.isnan(values[:, 0])).sum()) for values in gaps]
    assert 0 < sum(observed) < len(gaps.values)
    assert_allclose(
        other.log_likelihood(gaps.with_values(gaps.values * [1024, 1])),
        one.log_likelihood(gaps) - np.array(observed) * np.log(1024),
        rtol=1e-5,
    )


@needs_torch
def test_uniform_numbers_are_drawn_into_the_distribution() -> None:
    grid = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    logits = torch.tensor([0.3, -1.0, -torch.inf, 2.0], dtype=torch.float64)
    drawn = Categories(4).draw(logits.expand(len(grid), 4), grid)
    shares = torch.bincount(drawn.long(), minlength=4) / len(grid)
    assert_allclose(shares, torch.softmax(logits, 0), atol=2e-5)
    mixture, parameters = (
        GaussianMixture(2),
        torch.tensor([1.0, 0.0, -2.0, 3.0, 0.5, -1.0]).double(),
    )
    numbers = mixture.draw(parameters.expand(len(grid), 6), grid)
    edges = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    densities = mixture.log_prob(parameters.expand(len(edges), 6), edges).exp()
    below = torch.cumulative_trapezoid(densities, edges)
    found = torch.searchsorted(numbers.sort().values, edges[1:]) / len(grid)
    assert_allclose(found, below, atol=1e-4)
    ends = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    assert mixture.draw(parameters.expand(2, 6), ends).isfinite().all()


# How it is trained


@needs_torch
@both
def test_the_seed_alone_decides(baseline: Baseline) -> None:
    data = random_data(BITS, [4, 2], 9)
    one = fitted_on(baseline, BITS).log_likelihood(data)
    torch.rand(3)
    assert_array_equal(fitted_on(baseline, BITS).log_likelihood(data), one)
    train = random_data(BITS, [5, 1, 4, 3], 0)
    assert np.all(baseline.fit(train, train, seed=3).log_likelihood(data) != one)


@needs_torch
@both
def test_pytorch_is_left_as_it_was(baseline: Baseline) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    try:
        torch.set_num_threads(2)
        data = random_data(BITS, [2, 3], 0)
        fitted_on(baseline, BITS).log_likelihood(with_gaps(data, 1))
        assert torch.get_num_threads() == 2 and torch.equal(torch.get_rng_state(), state)
    finally:
        torch.set_num_threads(threads)


@needs_torch
def test_training_windows_carry_the_state_but_not_its_gradient() -> None:
    spy = Spy()
    train, code = random_data(BITS, [15, 15, 15], 0), BitCode(BITS)
    schedule = replace(BitLstmOptions(max_epochs=1), batch_size=3).schedule
    task = task_of(train, train, seed=0, time_limit=None)
    fit_best(task, code, [lambda: spy], schedule)
    windows, scored = spy.seen[:3], spy.seen[3:]
    assert [length for length, _ in windows] == [20, 20, 5] and len(scored) == 1
    assert windows[0][1] is None
    assert [float(state[0]) for _, state in windows[1:]] == [20, 40]
    assert not any(state[0].requires_grad for _, state in windows[1:])


@needs_torch
@pytest.mark.parametrize(("update", "moved"), [(Update.GRADIENT, 20 * 0.01), (Update.ADAM, 0.01)])
def test_a_plain_gradient_sums_over_the_steps_of_a_window(update: Update, moved: float) -> None:
    spy = Spy(-1.0)
    data = Sequences.from_codes(np.zeros((40, 1)), [0, 20, 40], BITS.select(["x0"]))
    schedule = BitLstmOptions(update=update, max_epochs=1).schedule
    task = task_of(data, data, seed=0, time_limit=None)
    fit_best(task, BitCode(data.schema), [lambda: spy], schedule)
    assert float(spy.weight) == pytest.approx(-1 + moved, rel=1e-4)


@needs_torch
def test_the_best_net_by_validation_is_kept_and_a_worse_one_is_gone_back_from() -> None:
    train, validation = random_data(BITS, [6] * 8, 0), random_data(BITS, [6] * 8, 1)
    options = replace(
        TINY_SLICES, sizes=(SliceNetSize(16),), learning_rate=0.05, patience=2, max_epochs=60
    )
    code, rng = slice_code(train), np.random.default_rng(0)
    steps = code.steps(train), code.steps(validation)
    passes = []
    for reductions in (0, 2):
        schedule = replace(options, reductions=reductions).schedule
        with _session.torch_seed(0):
            net = fit_best_net(options, train)
            trained = _training.train_net(net, *steps, schedule, rng, Clock())
        again = _training.step_sums(trained.net, steps[1])
        assert again is not None and float(again.mean()) == trained.score
        assert not trained.was_cut and trained.num_epochs < 60
        passes.append(trained.num_epochs)
    assert passes[0] < passes[1]


def fit_best_net(options: SliceLstmOptions, data: Sequences) -> Any:
    from dspn.learning.lstm.net import SliceNet

    return SliceNet(blocks_of(data.schema, options.num_components), options.sizes[0])


@needs_torch
def test_validation_chooses_among_the_sizes() -> None:
    data = random_data(BITS, [3] * 6, 0)
    task = task_of(data, data, seed=0, time_limit=None)
    spies = [Spy(-5.0), Spy(-2.0), Spy(-3.0)]
    schedule = BitLstmOptions(max_epochs=1).schedule
    makers = [lambda spy=spy: spy for spy in spies]
    fitted = fit_best(task, BitCode(BITS), makers, schedule)
    assert fitted.net is spies[1] and fitted.iterations == 3
    assert fitted.ending is Ending.FINISHED


@needs_torch
@both
def test_the_time_limit_ends_the_first_pass_and_leaves_a_distribution(baseline: Baseline) -> None:
    fitted = fitted_on(baseline, BITS, time_limit=1e-6)
    assert fitted.ending is Ending.TIME_LIMIT and fitted.iterations == 1
    one = sequences([row[None] for row in all_slices(BITS)], BITS)
    assert_allclose(np.exp(fitted.log_likelihood(one)).sum(), 1.0, rtol=1e-6)


@needs_torch
@both
def test_the_time_limit_is_kept(baseline: Baseline) -> None:
    endless = type(baseline)(  # type: ignore[call-arg]
        replace(baseline.options, max_epochs=10**6, patience=10**6)  # type: ignore[attr-defined]
    )
    fitted = fitted_on(endless, BITS, time_limit=0.5)
    assert fitted.ending is Ending.TIME_LIMIT and fitted.iterations > 1
    assert 0.5 <= fitted.seconds < 5


@needs_torch
def test_likelihoods_that_are_no_numbers_are_an_error() -> None:
    data = random_data(BITS, [3], 0)
    task = task_of(data, data, seed=0, time_limit=None)
    schedule = BitLstmOptions(max_epochs=3).schedule
    with pytest.raises(NumericalError, match="give a smaller `learning_rate`"):
        fit_best(task, BitCode(BITS), [lambda: Spy(float("nan"))], schedule)


def copies(num_sequences: int, seed: int) -> Sequences:
    """x0 is the opposite of the one before, x1 a fair coin, and x2 tells whether they differ."""
    rng = np.random.default_rng(seed)
    first = (np.arange(10) + rng.integers(2, size=(num_sequences, 1))) % 2
    coin = rng.integers(2, size=(num_sequences, 10))
    values = np.stack([first, coin, first ^ coin], axis=2).astype(float)
    return Sequences.from_arrays(list(values), schema=BITS)


@needs_torch
@pytest.mark.parametrize(
    "baseline",
    [
        BitLstm(BitLstmOptions(hidden_size=24, max_epochs=40, update=Update.ADAM)),
        SliceLstm(SliceLstmOptions(sizes=(SliceNetSize(24),), max_epochs=40, learning_rate=0.01)),
    ],
    ids=["bits", "slices"],
)
def test_dependence_over_time_and_within_a_slice_is_learned(baseline: Baseline) -> None:
    fitted: FittedBaseline = baseline.fit(copies(80, 0), copies(20, 1), seed=0)
    entropy = 11 * np.log(2)  # the first bit, and ten coins
    found = -fitted.log_likelihood(copies(50, 2)).mean()
    assert entropy * 0.98 < found < entropy * 1.1


@needs_torch
def test_a_device_that_is_not_there_is_refused() -> None:
    data = Sequences.from_arrays([np.zeros((3, 1))] * 4, schema=Schema((Variable.binary("x"),)))
    with pytest.raises(DspnError, match="`device` must be one that PyTorch finds"):
        SliceLstm(SliceLstmOptions(device="nowhere")).fit(data, data, seed=0)

"""Every way the engine can take gives the same answers: one contract, run over each of them."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from dspn import DynamicNetwork, Model, Schema, Sequences, Variable, inference
from dspn.engine import Engine, Program, Want, compile_program
from dspn.engine.base import Choices, Expectation, Posteriors, rounded, without_values
from dspn.engine.cpu import CpuEngine, Paths
from dspn.inference.surprise import Surprise
from dspn.leaves import Categorical
from dspn.structure import Mixture, NetworkParameters, Parameters, initial_network
from oracles import best_completion, interface_posteriors, log_likelihood, surprise_of_slice
from strategies import as_sequences, random_case, random_network, random_recipe

ENGINES: dict[str, tuple[Engine | str, str]] = {
    "reference": ("reference", "double"),
    "plain": (CpuEngine(Paths(threads=1)), "double"),
    "threads": (CpuEngine(Paths(threads=3, lanes=2)), "double"),
    "small blocks": (CpuEngine(Paths(lanes=2)), "double"),
    "short segments": (CpuEngine(Paths(segment_bytes=1, cached_bytes=1)), "double"),
    "general kernels": (CpuEngine(Paths(chains=False)), "double"),
    "no distinct slices": (CpuEngine(Paths(distinct_slices=False)), "double"),
    "log space": (CpuEngine(Paths(doubt=True)), "double"),
    "log space in threads": (CpuEngine(Paths(threads=3, lanes=2, doubt=True)), "double"),
    "single precision": (CpuEngine(Paths(fewest_single=1)), "single"),
    "sparse chains": (CpuEngine(Paths(fewest_sparse=1, sparse_share=2.0)), "double"),
    "sparse chains in single precision": (
        CpuEngine(Paths(fewest_single=1, fewest_sparse=1, sparse_share=2.0)),
        "single",
    ),
}
CASES = [*range(24), 61, 77, 102]
_TIMES = 3


@pytest.fixture(params=ENGINES, ids=lambda name: name.replace(" ", "-"))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _compile(network: DynamicNetwork, engine: str) -> Program:
    own, precision = ENGINES[engine]
    return compile_program(network, engine=own, precision=precision)


Case = tuple[DynamicNetwork, list[np.ndarray], Sequences]


def _repeated(seed: int) -> Case:
    """A random case; the batch has every sequence several times, so that slices repeat."""
    network, arrays, _ = random_case(seed)
    return network, arrays, as_sequences(network.schema, arrays * _TIMES)


def _chain_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    schema = Schema((Variable.binary("a"), Variable.categorical("b", (0, 1, 2))))
    root = "first" if seed % 2 else "last"
    kind = "dense" if seed < 10 else "monarch"
    model = Model(initial_network(schema, 1 + seed % 5, transitions=kind, rng=rng, root=root))
    values = model.sample(6, [1, 2, 3, 4, 5, 5], rng=rng).values.copy()
    values[rng.random(values.shape) < 0.3] = np.nan
    data = Sequences.from_codes(values, [0, 1, 3, 6, 10, 15, 20], schema)
    return model.network, data.to_arrays(), data


@cache
def _cases() -> list[Case]:
    return [_repeated(seed) for seed in CASES] + [_chain_case(seed) for seed in range(15)]


@cache
def _enumerated(oracle: Callable[[DynamicNetwork, np.ndarray], Any]) -> list[np.ndarray]:
    """What an oracle says of the sequences of each batch: computed once, for every engine."""
    found = []
    for network, arrays, data in _cases():
        own = [np.atleast_1d(oracle(network, values)) for values in arrays]
        found.append(np.concatenate(own * (len(data) // len(arrays))))
    return found


def _tolerance(engine: str) -> float:
    return 2e-6 if engine.endswith("single precision") else 1e-9


def test_likelihood_agrees_with_enumeration(engine: str) -> None:
    least = _tolerance(engine)
    for (network, _, data), expected in zip(_cases(), _enumerated(log_likelihood), strict=True):
        found = _compile(network, engine).log_likelihood(data)
        np.testing.assert_allclose(found, expected, rtol=least, atol=1e-3 * least)


def test_interface_posteriors_agree_with_enumeration(engine: str) -> None:
    told = _enumerated(interface_posteriors)
    for (network, _, data), expected in zip(_cases(), told, strict=True):
        found = inference.interface_posteriors(_compile(network, engine), data)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)


def test_completion_agrees_with_enumeration(engine: str) -> None:
    for (network, _, data), expected in zip(_cases(), _enumerated(best_completion), strict=True):
        found = inference.complete(_compile(network, engine), data).log_prob
        np.testing.assert_allclose(found, np.log(expected), rtol=1e-9, atol=1e-12)


def _surprises(network: DynamicNetwork, values: np.ndarray) -> list[float]:
    return [surprise_of_slice(network, values, t) for t in range(len(values))]


def test_surprises_agree_with_enumeration(engine: str) -> None:
    least = _tolerance(engine)
    for (network, _, data), expected in zip(_cases(), _enumerated(_surprises), strict=True):
        found = inference.surprise(_compile(network, engine), data).slices
        np.testing.assert_allclose(found, expected, rtol=least, atol=1e-2 * least)


def _all_flows(program: Program, data: Sequences) -> list[np.ndarray]:
    found = program.expected_flows(data).flows
    parts = [found.template, found.top, *([] if found.bottom is None else [found.bottom])]
    return [array for part in parts for array in (part.weights, *part.leaves)]


class Answers(NamedTuple):
    """What a program says of all that is compared between paths."""

    posteriors: Posteriors
    flows: Expectation
    surprise: Surprise
    best: Choices

    @classmethod
    def of(cls, program: Program, data: Sequences) -> "Answers":
        want = Want(leaves=np.ones(data.values.shape, dtype=np.bool_), interfaces=True)
        return cls(
            program.posteriors(data, want),
            program.expected_flows(data),
            inference.surprise(program, data),
            program.best(data),
        )


@cache
def _mixture_case(seed: int) -> tuple[Mixture, Sequences, Answers]:
    """Two random networks of the same variables and root, and sequences possible in the first."""
    fixed = {"kinds": ("binary", "ternary", "binary"), "root": ("first", "last")[seed % 2]}
    first, _, data = random_case(seed, **fixed)
    second = random_network(random_recipe(seed + 100, **fixed))
    mixture = Mixture((first, second), [0.25, 0.75])
    return mixture, data, Answers.of(compile_program(mixture, engine="reference"), data)


@pytest.mark.parametrize("seed", [0, 3, 5, 8, 11, 14])
def test_mixtures_agree_on_every_path(engine: str, seed: int) -> None:
    mixture, data, expected = _mixture_case(seed)
    own, precision = ENGINES[engine]
    program = compile_program(mixture, engine=own, precision=precision)
    close = {"rtol": _tolerance(engine), "atol": _tolerance(engine) / 10}
    found = Answers.of(program, data)
    own, other = found.posteriors, expected.posteriors
    for mine, theirs in zip(own.leaves, other.leaves, strict=True):
        np.testing.assert_allclose(mine, theirs, **close)
    np.testing.assert_allclose(own.interfaces, other.interfaces, **close)
    np.testing.assert_allclose(own.shares, other.shares, **close)
    np.testing.assert_allclose(program.log_likelihood(data), rounded(other.log_values), **close)
    flows, other_flows = found.flows, expected.flows
    np.testing.assert_allclose(flows.counts, other_flows.counts, **close)
    for one, two in zip(flows.components, other_flows.components, strict=True):
        np.testing.assert_allclose(one.template.weights, two.template.weights, **close)
        np.testing.assert_allclose(one.top.weights, two.top.weights, **close)
    surprise, other_surprise = found.surprise, expected.surprise
    np.testing.assert_allclose(surprise.slices, other_surprise.slices, **close)
    np.testing.assert_allclose(surprise.variables, other_surprise.variables, **close)
    np.testing.assert_allclose(surprise.tails, other_surprise.tails, **close)
    best, other_best = found.best, expected.best
    np.testing.assert_allclose(best.log_values, other_best.log_values, rtol=1e-9)
    np.testing.assert_array_equal(best.component, other_best.component)


def test_streams_agree_on_every_path(engine: str) -> None:
    least = _tolerance(engine)
    for seed in (0, 2, 5, 7):
        network, arrays, _ = random_case(seed)
        streams = [_compile(network, own).components[0].stream() for own in (engine, "reference")]
        for t, values in enumerate(arrays[0]):
            data = as_sequences(network.schema, [values[None]])
            found, expected = (stream.advance(data, t == 0) for stream in streams)
            for name in ("log_seen", "log_unseen"):
                own, other = (rounded(getattr(one, name)) for one in (found, expected))
                np.testing.assert_allclose(own, other, rtol=least, atol=least / 10)
            streams = [found.stream, expected.stream]
        blank = without_values(data)
        predicted, reference = (stream.predict(False, blank) for stream in streams)
        for mine, theirs in zip(predicted.leaves, reference.leaves, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=least, atol=least / 10)


@cache
def _usual_flows(number: int) -> list[np.ndarray]:
    network, _, data = _cases()[number]
    return _all_flows(compile_program(network), data)


def test_expected_flows_agree_on_every_path(engine: str) -> None:
    for number, (network, _, data) in enumerate(_cases()):
        found = _all_flows(_compile(network, engine), data)
        for own, other in zip(found, _usual_flows(number), strict=True):
            least = _tolerance(engine)
            np.testing.assert_allclose(own, other, rtol=least, atol=least / 10)


def test_single_precision_is_left_where_its_range_does_not_suffice() -> None:
    rows = np.array([[0.999, 0.001], [0.001, 0.999]])
    schema = Schema((Variable.binary("a"),))
    states = 16
    transition = np.kron(np.eye(2), np.full((states // 2, states // 2), 2 / states))
    emissions = {"a": np.repeat(rows, states // 2, axis=0)}
    model = Model.from_hmm(np.full(states, 1 / states), transition, emissions, schema=schema)
    turning = np.repeat([[0.0], [1.0]], [700, 700], axis=0)
    data = Sequences.from_codes(np.tile(turning, (3, 1)), [0, 1400, 2800, 4200], schema)
    single = compile_program(model.network, precision="single")
    expected = model.log_likelihood(data)
    np.testing.assert_allclose(single.log_likelihood(data), expected, rtol=1e-12)
    found = single.expected_flows(data)
    np.testing.assert_allclose(found.log_likelihood, expected, rtol=1e-12)
    other = compile_program(model.network).expected_flows(data).flows.template
    np.testing.assert_allclose(found.flows.template.weights, other.weights, rtol=1e-12)


def _with(network: DynamicNetwork, parameters: Parameters) -> DynamicNetwork:
    """The network with parameters that need not be normalised, for derivatives."""
    other = copy.copy(network)
    object.__setattr__(other, "parameters", parameters)
    return other


def _numeric(log_value: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """x d/dx of a function at every entry, by central differences."""
    out = np.zeros(at.size)
    for i in range(at.size):
        ends = []
        for sign in (1, -1):
            moved = at.copy().ravel()
            moved[i] *= 1 + sign * 1e-5
            ends.append(log_value(moved.reshape(at.shape)))
        out[i] = (ends[0] - ends[1]) / 2e-5
    return out.reshape(at.shape)


@pytest.mark.parametrize("seed", range(30))
def test_expected_flows_are_logarithmic_derivatives(seed: int) -> None:
    network, arrays, data = random_case(seed)
    own = network.parameters
    found = compile_program(network).expected_flows(data).flows

    def total(parameters: Parameters) -> float:
        return sum(log_likelihood(_with(network, parameters), values) for values in arrays)

    def of_weights(weights: np.ndarray) -> float:
        template = NetworkParameters(weights, own.template.leaves)
        return total(Parameters(template, own.top, own.bottom))

    expected = _numeric(of_weights, own.template.weights)
    np.testing.assert_allclose(found.template.weights, expected, rtol=1e-5, atol=1e-6)
    top = _numeric(
        lambda weights: total(Parameters(own.template, NetworkParameters(weights), own.bottom)),
        own.top.weights,
    )
    np.testing.assert_allclose(found.top.weights, top, rtol=1e-5, atol=1e-6)
    for bank, statistics, rows in zip(
        network.template.banks, found.template.leaves, own.template.leaves, strict=True
    ):
        if not isinstance(bank.family, Categorical):
            continue

        def of_rows(moved: np.ndarray, variable: int = bank.variable) -> float:
            leaves = list(own.template.leaves)
            leaves[variable] = moved
            template = NetworkParameters(own.template.weights, tuple(leaves))
            return total(Parameters(template, own.top, own.bottom))

        counts = _numeric(of_rows, rows)
        np.testing.assert_allclose(statistics[:, 1:], counts, rtol=1e-5, atol=1e-6)


def test_results_do_not_depend_on_blocks_threads_or_order() -> None:
    schema = Schema(tuple(Variable.binary(f"x{i}") for i in range(5)))
    model = Model(initial_network(schema, 11, rng=np.random.default_rng(0)))
    rng = np.random.default_rng(1)
    data = model.sample(300, rng.integers(1, 40, 300).tolist(), rng=rng)
    expected = model.log_likelihood(data)
    order = rng.permutation(300)
    np.testing.assert_array_equal(model.log_likelihood(data[order]), expected[order])
    for engine in ("plain", "threads", "small blocks"):
        found = _compile(model.network, engine).log_likelihood(data)
        np.testing.assert_array_equal(found, expected)


def test_draws_do_not_depend_on_blocks_or_threads() -> None:
    network, _, data = _repeated(5)

    def drawn(engine: str) -> np.ndarray:
        rng = np.random.default_rng(0)
        return inference.sample_given(_compile(network, engine), data, rng=rng).values

    for engine in ("threads", "small blocks", "short segments"):
        np.testing.assert_array_equal(drawn(engine), drawn("plain"))


def test_expected_flows_of_shards_add_up() -> None:
    for seed in (0, 5, 11):
        network, _, data = _repeated(seed)
        program = compile_program(network)
        half = len(data) // 2
        whole = program.expected_flows(data).flows
        parts = [program.expected_flows(part).flows for part in (data[:half], data[half:])]
        both = parts[0] + parts[1]
        np.testing.assert_allclose(
            both.template.weights, whole.template.weights, rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(both.top.weights, whole.top.weights, rtol=1e-10, atol=1e-12)
        for a, b in zip(both.template.leaves, whole.template.leaves, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_expected_flows_count_a_sequence_with_its_weight() -> None:
    for seed in (0, 5, 11):
        network, _, data = _repeated(seed)
        program = compile_program(network)
        once = program.expected_flows(data).flows
        twice = program.expected_flows(data, np.full(len(data), 2.0)).flows
        np.testing.assert_allclose(twice.template.weights, 2 * once.template.weights, rtol=1e-10)
        for a, b in zip(twice.template.leaves, once.template.leaves, strict=True):
            np.testing.assert_allclose(a, 2 * b, rtol=1e-10, atol=1e-12)

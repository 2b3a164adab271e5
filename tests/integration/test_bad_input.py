"""Arguments a user gets wrong: each is refused by name, and nothing is changed or half written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dspn
from dspn import FilterState, Model, Schema, Sequences, Variable, load
from dspn.errors import DataError, DspnError, EvidenceError, ModelFileError
from dspn.structure import NetworkBuilder, assemble

START, TRANSITION = [0.6, 0.4], [[0.7, 0.3], [0.2, 0.8]]
MIXED = Schema(
    (
        Variable.categorical("colour", ("red", "blue")),
        Variable.continuous("level"),
        Variable.count("calls"),
    )
)
BITS = Schema((Variable.binary("bit"),))
EMISSIONS: dict[str, Any] = {
    "colour": np.array([[0.9, 0.1], [0.2, 0.8]]),
    "level": np.array([[0.0, 1.0], [3.0, 1.0]]),
    "calls": np.array([[1.0], [5.0]]),
}
MODEL = Model.from_hmm(START, TRANSITION, EMISSIONS, schema=MIXED)
DATA = Sequences.from_codes([[0, 0.5, 2], [1, np.nan, 3]], [0, 2], MIXED)
OTHER = Sequences.from_codes([[0.0]], [0, 1], BITS)
INF = float("inf")


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


QUERIES: dict[str, Callable[[Any], object]] = {
    "log_likelihood": MODEL.log_likelihood,
    "log_prob query": lambda data: MODEL.log_prob(data, DATA),
    "log_prob evidence": lambda data: MODEL.log_prob(DATA, data),
    "marginals": MODEL.marginals,
    "interface_posteriors": MODEL.interface_posteriors,
    "impute": MODEL.impute,
    "complete": MODEL.complete,
    "surprise": MODEL.surprise,
    "forecast": lambda data: MODEL.forecast(data, 1),
    "sample_given": lambda data: MODEL.sample_given(data, rng=generator()),
    "sample_futures": lambda data: MODEL.sample_futures(data, 1, rng=generator()),
}

BAD_DATA: dict[str, tuple[Any, str]] = {
    "nothing": (None, "found NoneType"),
    "a string": ("abc", "found str"),
    "a number": (3, "found int"),
    "a model": (MODEL, "found Model"),
    "a dictionary": ({"a": 1}, "found dict"),
    "an empty list": ([], "at least one sequence"),
    "one array": (np.zeros((2, 3)), r"write \[array\]"),
    "a list of nothing": ([None], "sequence 0"),
    "too many dimensions": ([np.zeros((2, 2, 2))], r"two dimensions.*\(2, 2, 2\)"),
    "too few columns": ([np.zeros((2, 2))], "2 columns.*3"),
    "a sequence without slices": (
        [[["red", 0.0, 1]], np.empty((0, 3))],
        "at least one slice, but sequence 1 has none",
    ),
    "another schema": (OTHER, "'bit'"),
    "an unknown category": (
        [[["red", 0.0, 1]], [["red", 0.0, 1], ["green", 0.0, 1]]],
        "'colour'.*'green' in sequence 1, slice 1",
    ),
    "codes instead of categories": ([[[0, 0.0, 1]]], "'colour'.*but is 0 .*from_codes"),
    "infinity": ([[["red", INF, 1]]], "'level'.*inf in sequence 0, slice 0"),
    "a negative count": ([[["red", 0.0, -1]]], "'calls'.*-1 in sequence 0"),
    "a count that is not whole": ([[["red", 0.0, 1.5]]], "'calls'.*1.5 in sequence 0"),
    "text for a number": ([[["red", "low", 1]]], "'level' must hold finite numbers, but is 'low'"),
    "complex numbers": ([np.zeros((1, 3), dtype=complex)], "complex"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_data_that_cannot_be_read_are_refused_with_their_place(name: str) -> None:
    data, text = BAD_DATA[name]
    with pytest.raises(DataError, match=text):
        MODEL.log_likelihood(data)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("name", ["nothing", "an empty list", "another schema", "infinity"])
def test_every_query_refuses_bad_data(query: str, name: str) -> None:
    with pytest.raises(DataError):
        QUERIES[query](BAD_DATA[name][0])


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("name", ["nothing", "an empty list", "another schema"])
def test_refused_data_are_called_as_the_query_calls_them(query: str, name: str) -> None:
    argument = query.split()[-1] if "log_prob" in query else "X"
    with pytest.raises(DataError, match=f"`{argument}`"):
        QUERIES[query](BAD_DATA[name][0])


def _with_quantiles(levels: Any) -> list[Callable[[], object]]:
    return [
        lambda: MODEL.marginals(DATA, quantiles=levels),
        lambda: MODEL.forecast(DATA, 1, quantiles=levels),
        lambda: MODEL.filter().predict(quantiles=levels),
    ]


@pytest.mark.parametrize(
    "levels",
    [[0.0], [1.0], [-0.1], [2], [np.nan], [INF], 0.5, None, "0.5", ["a"], [[0.1, 0.9]], [1j]],
    ids=repr,
)
def test_quantile_levels_outside_the_open_unit_interval_are_refused(levels: Any) -> None:
    for call in _with_quantiles(levels):
        with pytest.raises(EvidenceError, match="`quantiles`"):
            call()


@pytest.mark.parametrize("steps", [0, -1, 1.5, 2.0, "2", None, np.nan, INF, [2]], ids=repr)
def test_steps_that_are_no_positive_whole_number_are_refused(steps: Any) -> None:
    for call in (
        lambda: MODEL.forecast(DATA, steps),
        lambda: MODEL.sample_futures(DATA, steps, rng=generator()),
    ):
        with pytest.raises(DspnError, match="`steps`"):
            call()


@pytest.mark.parametrize(
    "length",
    [0, -1, 2.7, "2", None, np.nan, INF, [], [2], [2, 0], [2, 2, 2], [2.5, 3.5], [[2, 3]]],
    ids=repr,
)
def test_lengths_to_sample_that_do_not_fit_are_refused(length: Any) -> None:
    with pytest.raises(DspnError, match="`length`"):
        MODEL.sample(2, length, rng=generator())


@pytest.mark.parametrize("count", [0, -1, 2.7, "2", None, np.nan, [2], [2, 3]], ids=repr)
def test_numbers_of_sequences_to_sample_that_do_not_fit_are_refused(count: Any) -> None:
    with pytest.raises(DspnError, match="`num_sequences`"):
        MODEL.sample(count, 2, rng=generator())


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    drawn = MODEL.sample(np.int64(2), np.array([1, 3]), rng=generator())  # type: ignore[arg-type]
    assert drawn.lengths.tolist() == [1, 3]
    assert MODEL.forecast(DATA, np.int64(2)).sequences.lengths.tolist() == [4]


@pytest.mark.parametrize(
    "rng", [None, 3, "x", np.random.RandomState(0), np.random], ids=lambda rng: type(rng).__name__
)
def test_anything_but_a_generator_is_refused_as_rng(rng: Any) -> None:
    for call in (
        lambda: MODEL.sample(2, 2, rng=rng),
        lambda: MODEL.sample_given(DATA, rng=rng),
        lambda: MODEL.sample_futures(DATA, 1, rng=rng),
    ):
        with pytest.raises(DspnError, match=r"`rng`.*default_rng"):
            call()


# Streams.

BAD_SLICES: dict[str, Any] = {
    "nothing": None,
    "a string": "abc",
    "a number": 3.0,
    "too few values": ["red", 1.0],
    "two dimensions": [["red", 1.0, 2]],
    "ragged": [[1], [1, 2], 3],
    "the code of a category": [0, 1.0, 2],
    "an unknown category": ["green", 1.0, 2],
    "text for a number": ["red", "1.0", 2],
    "infinity": ["red", INF, 2],
    "a negative count": ["red", 1.0, -1],
    "a count that is not whole": ["red", 1.0, 0.5],
    "a dictionary": {"colour": "red"},
    "objects": [{}, 1.0, 2],
    "complex numbers": ["red", 1j, 0],
    "nothing but complex numbers": [1j, 0, 0],
}


@pytest.mark.parametrize("name", BAD_SLICES)
def test_a_refused_slice_leaves_the_stream_as_it_was(name: str) -> None:
    stream = MODEL.filter()
    stream.update(["red", 0.5, 2])
    before = stream.state().to_arrays()
    with pytest.raises(DspnError, match=r"`values`|slice 1 of this stream|variable '"):
        stream.update(BAD_SLICES[name])
    after = stream.state().to_arrays()
    assert before.keys() == after.keys()
    for key, array in before.items():
        np.testing.assert_array_equal(after[key], array)


def arrays_of_a_stream(**changed: Any) -> dict[str, Any]:
    stream = MODEL.filter()
    stream.update(["red", 0.5, 2])
    return {**stream.state().to_arrays(), **changed}


BAD_STATES: dict[str, Any] = {
    "nothing": None,
    "a list": [1],
    "no arrays": {},
    "a missing array": {k: v for k, v in arrays_of_a_stream().items() if k != "vectors"},
    "too few scalars": arrays_of_a_stream(scalars=np.ones(1)),
    "text": arrays_of_a_stream(scalars=["a", "b", "c"]),
    "a count of NaN": arrays_of_a_stream(scalars=np.array([np.nan, -1.0, 0.0])),
    "an infinite count": arrays_of_a_stream(scalars=np.array([INF, -1.0, 0.0])),
    "a negative count": arrays_of_a_stream(scalars=np.array([-1.0, -1.0, 0.0])),
    "a count that is not whole": arrays_of_a_stream(scalars=np.array([1.5, -1.0, 0.0])),
    "a log-likelihood of NaN": arrays_of_a_stream(scalars=np.array([1.0, np.nan, 0.0])),
    "vectors of NaN": arrays_of_a_stream(vectors=np.full((2, 1), np.nan)),
    "negative vectors": arrays_of_a_stream(vectors=np.full((2, 1), -1.0)),
    "vectors of zero": arrays_of_a_stream(vectors=np.zeros((2, 1))),
    "vectors of another shape": arrays_of_a_stream(vectors=np.ones((3, 1))),
    "exponents of NaN": arrays_of_a_stream(exponents=np.full((2, 1), np.nan)),
    "huge exponents": arrays_of_a_stream(exponents=np.full((2, 1), 1e30)),
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_damaged_filter_states_are_refused_before_they_are_used(name: str) -> None:
    with pytest.raises(EvidenceError, match="state"):
        MODEL.filter(FilterState.from_arrays(BAD_STATES[name]))


@pytest.mark.parametrize("state", [{}, "x", MODEL, arrays_of_a_stream()], ids=lambda s: type(s))
def test_anything_but_a_filter_state_is_refused_as_state(state: Any) -> None:
    with pytest.raises(EvidenceError, match="state"):
        MODEL.filter(state)


def two_group_model() -> Model:
    """Both groups are read by the outputs of the first, so that its filter keeps the history."""
    schema = Schema((Variable.binary("a"), Variable.binary("b")))
    builder = NetworkBuilder(schema)
    first, second = builder.inputs(2), builder.inputs(2)
    outputs = [
        builder.product(
            [
                builder.leaf("a", [p, 1 - p]),
                builder.sum(first, [0.5, 0.5]),
                builder.sum(second, [0.4, 0.6]),
            ]
        )
        for p in (0.3, 0.8)
    ]
    outputs += [builder.leaf("b", [0.5, 0.5]), builder.leaf("b", [0.1, 0.9])]
    top = NetworkBuilder(schema)
    root = top.product([top.sum(top.inputs(2), [0.5, 0.5]), top.sum(top.inputs(2), [0.7, 0.3])])
    return Model(assemble(builder.template(outputs), top.top(root)))


def one_group_model() -> Model:
    emissions = {"a": np.array([[0.9, 0.1], [0.2, 0.8]]), "b": np.array([[0.5, 0.5], [0.1, 0.9]])}
    schema = Schema((Variable.binary("a"), Variable.binary("b")))
    return Model.from_hmm(START, TRANSITION, emissions, schema=schema)


OTHER_MODELS: dict[str, tuple[Callable[[], Model], Callable[[], Model]]] = {
    "other variables": (
        lambda: Model.from_hmm(
            START, TRANSITION, {"bit": np.array([[0.9, 0.1], [0.5, 0.5]])}, schema=BITS
        ),
        one_group_model,
    ),
    "other parameters": (
        one_group_model,
        lambda: Model.from_hmm(
            [0.1, 0.9],
            [[0.5, 0.5], [0.5, 0.5]],
            {"a": np.array([[0.9, 0.1], [0.2, 0.8]]), "b": np.array([[0.5, 0.5], [0.1, 0.9]])},
            schema=one_group_model().schema,
        ),
    ),
    "other groups": (one_group_model, two_group_model),
    "another root": (
        one_group_model,
        lambda: Model.from_hmm(
            [0.4, 0.6],
            TRANSITION,
            {"a": np.array([[0.9, 0.1], [0.2, 0.8]]), "b": np.array([[0.5, 0.5], [0.1, 0.9]])},
            schema=one_group_model().schema,
            root="last",
        ),
    ),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_the_saved_state_of_another_model_is_refused(name: str) -> None:
    source, target = (make() for make in OTHER_MODELS[name])
    stream = source.filter()
    for _ in range(3):
        stream.update([0] * len(source.schema))
    with pytest.raises(EvidenceError, match=r"another model|other variables"):
        target.filter(stream.state())


def test_a_history_of_the_wrong_length_is_refused() -> None:
    model = two_group_model()
    stream = model.filter()
    for _ in range(3):
        stream.update([0, 1])
    arrays = stream.state().to_arrays()
    arrays["history"] = arrays["history"][:1]
    with pytest.raises(EvidenceError, match="state"):
        model.filter(FilterState.from_arrays(arrays))


# Results, models and files.


def test_an_unknown_variable_of_the_marginals_is_named() -> None:
    with pytest.raises(DspnError, match="'depth'"):
        MODEL.marginals(DATA)["depth"]


def test_a_point_of_a_count_without_its_median_is_refused_with_the_remedy() -> None:
    found = MODEL.marginals([[["red", 0.0, None]]])
    with pytest.raises(DspnError, match=r"0\.5"):
        found["calls"].point()


@pytest.mark.parametrize("network", [None, "x", 3, (1, 2), MODEL], ids=lambda n: type(n).__name__)
def test_a_model_of_anything_but_a_network_is_refused_at_once(network: Any) -> None:
    with pytest.raises(DspnError, match="`network`"):
        Model(network)


@pytest.mark.parametrize("path", [None, 5, 1.5, ["a"]], ids=repr)
def test_paths_that_are_no_paths_are_refused(path: Any) -> None:
    with pytest.raises(DspnError, match="path"):
        load(path)
    with pytest.raises(DspnError, match="path"):
        MODEL.save(path)


def test_paths_of_bytes_work_as_those_of_text(tmp_path: Path) -> None:
    path = str(tmp_path / "model.dspn").encode()
    MODEL.save(path)  # type: ignore[arg-type]
    assert load(path).schema == MIXED  # type: ignore[arg-type]


def test_a_failed_save_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.dspn"
    MODEL.save(path)
    data = path.read_bytes()
    bad = Model(MODEL.network, provenance={"when": object()})  # type: ignore[dict-item]
    with pytest.raises(ModelFileError, match="provenance"):
        bad.save(path)
    assert path.read_bytes() == data
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    with pytest.raises(ModelFileError, match="does not exist"):
        MODEL.save(tmp_path / "nowhere" / "model.dspn")
    with pytest.raises(ModelFileError, match="directory"):
        MODEL.save(tmp_path)


@pytest.mark.parametrize("value", ["", "0", "-1", "two", "1.5", " 2", "1e3", "²"])
def test_a_thread_count_that_is_none_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSPN_NUM_THREADS", value)
    with pytest.raises(DspnError, match="DSPN_NUM_THREADS"):
        MODEL.log_likelihood(DATA)


def test_every_error_is_a_dspn_error() -> None:
    for name in ("DataError", "EvidenceError", "ModelFileError", "StructureError"):
        assert issubclass(getattr(dspn, name), (DspnError, ValueError))

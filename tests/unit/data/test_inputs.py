"""Inputs of a batch: given or computed by rules, selected with their rows, told ahead."""

import pickle

import numpy as np
import pandas as pd
import pytest

import dspn
from dspn import DataError, Schema, Sequences, Variable
from dspn.data.inputs import (
    RULES,
    Calendar,
    Cosine,
    Elapsed,
    Phase,
    Position,
    Sine,
    ToEnd,
    rule_from_json,
)
from dspn.data.sequences import data_fingerprint, joined, sequences_of
from dspn.io.codec import decode, encode
from dspn.structure import Mixture, initial_network

X = [np.arange(5.0) + 0.5, np.arange(3.0) + 0.5]
PLACES = [Position(3), ToEnd(3), Phase(2), Sine(6), Cosine(5)]


def _table() -> pd.DataFrame:
    hours = pd.date_range("2024-02-29 21:00", periods=6, freq="h")
    return pd.DataFrame(
        {
            "who": ["b", "b", "b", "a", "a", "a"],
            "when": hours[[2, 0, 1, 3, 4, 5]],
            "x": [0.3, 0.1, 0.2, 0.4, 0.5, 0.6],
            "machine": ["p", "q", "q", "p", "p", "q"],
            "dose": [1.5, 2.0, 2.5, 0.0, 1.0, 3.0],
        }
    )


RULED = [Calendar("hour"), Calendar("weekday"), Calendar("month"), Elapsed()]


def test_inputs_are_coded_and_follow_their_rows_in_every_selection() -> None:
    words = [np.array(list("abcab")), np.array(list("cab"))]
    data = Sequences.from_arrays(X, inputs=words, ids=["i", "j"])
    assert data.schema.inputs == (Variable.categorical("u0", ["a", "b", "c"]),)
    column = data.inputs[:, 0]
    assert column.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert data[[1, 0]].inputs[:, 0].tolist() == [2, 0, 1, 0, 1, 2, 0, 1]
    assert data.slices(1, 3).inputs[:, 0].tolist() == [1, 2, 0, 1]
    assert (
        joined([data[[1]], data[[0]]]).inputs[:, 0].tolist() == data[[1, 0]].inputs[:, 0].tolist()
    )
    assert pickle.loads(pickle.dumps(data)).inputs.tolist() == data.inputs.tolist()
    assert not data.inputs.flags.writeable
    assert data.with_values(data.values).select(["x0"]).inputs is data.inputs
    assert "input u0: categorical ('a', 'b', 'c')" in repr(data)
    other = data.with_inputs([own[::-1] for own in words])
    assert data_fingerprint(other) != data_fingerprint(data)
    bare = sequences_of(data, data.schema.with_inputs(()), "X")
    assert bare.inputs.shape == (8, 0)
    assert data_fingerprint(bare) == data_fingerprint(Sequences.from_arrays(X))
    again = Sequences.from_concatenated(
        np.concatenate(X), [5, 3], inputs=np.concatenate(words), schema=data.schema
    )
    padded = Sequences.from_padded(
        np.ones((2, 3)), inputs=np.array(list("abcabc"), dtype=object), schema=data.schema
    )
    assert again.inputs.tolist() == data.inputs.tolist()
    assert padded.inputs[:, 0].tolist() == [0, 1, 2, 0, 1, 2]
    coded = Sequences.from_codes(data.values, data.offsets, data.schema, inputs=data.inputs)
    assert coded.inputs.tolist() == data.inputs.tolist()


def test_rules_of_place_are_computed_and_go_on_ahead_as_for_longer_sequences() -> None:
    data = Sequences.from_arrays(X, inputs=PLACES)
    t, length = np.array([0, 1, 2, 3, 4, 0, 1, 2]), np.array([5] * 5 + [3] * 3)
    expected = [
        np.minimum(t, 2),
        np.minimum(length - 1 - t, 2),
        t % 2,
        np.sin(2 * np.pi * t / 6),
        np.cos(2 * np.pi * t / 5),
    ]
    np.testing.assert_allclose(data.inputs, np.transpose(expected), atol=1e-15)
    longer = Sequences.from_arrays([np.zeros(9), np.zeros(7)], inputs=PLACES)
    np.testing.assert_allclose(data.extended(4).inputs, longer.inputs, atol=1e-14)
    # What was cut off in front is not forgotten.
    cut = longer.slices(3, 5).extended(2).inputs[:, [0, 2, 3, 4]]
    np.testing.assert_allclose(cut, longer.slices(3, 7).inputs[:, [0, 2, 3, 4]], atol=1e-14)
    bare = Sequences.from_arrays(X)
    np.testing.assert_array_equal(sequences_of(bare, data.schema, "X").inputs, data.inputs)
    with pytest.raises(DataError, match="single slice"):
        longer.slices(1, 2).extended(2)


def test_tables_have_inputs_by_column_and_by_time_and_are_written_with_them() -> None:
    data = Sequences.from_table(
        _table(), sequence="who", order="when", inputs=["machine", "dose", *RULED]
    )
    assert data.schema.names == ("x",)
    assert [own.name for own in data.schema.inputs][2:] == ["hour", "weekday", "month", "elapsed"]
    assert data.inputs[:, 0].tolist() == [1, 1, 0, 0, 0, 1]
    assert data.inputs[:, 2].tolist() == [21, 22, 23, 0, 1, 2]
    assert data.inputs[:, 3].tolist() == [3, 3, 3, 4, 4, 4]
    assert data.inputs[:, 4].tolist() == [1, 1, 1, 2, 2, 2]
    assert data.inputs[:, 5].tolist() == [0, 3600, 3600, 0, 3600, 3600]
    again = Sequences.from_table(data.to_table(), sequence="who", order="when", schema=data.schema)
    assert again.inputs.tolist() == data.inputs.tolist()
    future = np.array([["p", 1.0], ["q", 2.0]], dtype=object)
    ahead = data.extended(2, future).inputs
    assert ahead[3:5].tolist() == [[0, 1, 0, 4, 2, 3600], [1, 2, 1, 4, 2, 3600]]
    zoned = _table().assign(
        when=lambda own: own["when"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    )
    local = Sequences.from_table(
        zoned, sequence="who", order="when", variables=["x"], inputs=[Calendar("hour")]
    )
    assert local.inputs[:, 0].tolist() == [6, 7, 8, 9, 10, 11]


def test_models_keep_inputs_in_their_files() -> None:
    own = [item.named(item.name) for item in (*PLACES, *RULED[:1], Elapsed())]
    inputs = (*own, Variable.categorical("m", ["p", "q"], default="q"))
    schema = Schema((Variable.continuous("x"),), inputs)
    model = Mixture.of(initial_network(schema, 2, rng=np.random.default_rng(0)))
    contents = encode(model)
    assert contents.version == 5
    assert decode(contents).mixture.schema == schema
    assert {type(rule_from_json(item.rule.to_json())) for item in own} == set(RULES)


def _read(**more: object) -> Sequences:
    return Sequences.from_table(_table(), sequence="who", order="when", **more)


SCHEMA = Schema((Variable.continuous("x0"),), (Variable.categorical("m", ["p", "q"]),))
KNOWN = Sequences.from_arrays([np.zeros(2)], schema=SCHEMA, inputs=[np.array(["p", "q"])])


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: _read(variables=["x", "dose"], inputs=["dose"]), "both a variable and an input"),
        (lambda: Schema((Variable.binary("a"),), (Variable.binary("a"),)), "both a variable and"),
        (lambda: _read(inputs=["when"]), "both an input and a key"),
        (lambda: _read(inputs=["doze"]), "no column 'doze' .did you mean 'dose'"),
        (lambda: _read(inputs="dose"), "must be a list"),
        (lambda: Phase(0), "`period` must be a whole number of at least 2"),
        (lambda: Cosine(0), "`period` must be a finite number above 0"),
        (lambda: Calendar("year"), "one of hour, weekday, month"),
        (lambda: Sequences.from_arrays(X, inputs=[Calendar("hour")]), "times.*not known"),
        (
            lambda: Sequences.from_arrays([np.zeros(3)], inputs=[np.array([1.0, np.nan, 0.0])]),
            "input 'u0' must have a value in every slice.*sequence 0, slice 1",
        ),
        (
            lambda: KNOWN.with_inputs(np.array(["p", "z"])),
            "input 'm' must hold one of the categories 'p', 'q', but is 'z' in sequence 0, slice 1",
        ),
        (lambda: KNOWN.extended(2), "`inputs` of the 2 slices ahead must be given .m., but are"),
        (lambda: KNOWN.extended(2, np.array(["p"])), "each of the 2 slices ahead.*but has 1"),
        (lambda: Sequences.from_arrays([np.zeros(2)], schema=SCHEMA), "computes .m.*not given"),
        (lambda: Sequences.from_arrays(X, inputs=[np.ones(4), np.ones(3)]), "has 4 rows for seq"),
        (lambda: sequences_of(Sequences.from_arrays([np.zeros(2)]), SCHEMA, "X"), "variables of"),
        (
            lambda: Sequences.from_table(
                _table().assign(when=_table()["when"][0]), sequence="who", order="when",
                inputs=[Elapsed()],
            ),
            "must differ in 'when'",
        ),
        (
            lambda: _read(inputs=["machine", *RULED]).slices(0, 1).extended(1, np.array(["p"])),
            "no regular step; give the `inputs`",
        ),
    ],
)  # fmt: skip
def test_wrong_inputs_are_refused_with_a_clear_sentence(mistake: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        mistake()  # type: ignore[operator]


def test_a_missing_input_takes_the_declared_value() -> None:
    own = dspn.Variable.categorical("m", ["p", "q"], default="q")
    schema = Schema((Variable.continuous("x0"),), (own,))
    given = np.array(["p", None], dtype=object)
    assert Sequences.from_arrays([np.zeros(2)], schema=schema, inputs=given).inputs[1, 0] == 1


def test_rules_are_inputs_of_a_schema_by_their_usual_names() -> None:
    schema = Schema((Variable.binary("x"),), inputs=(Position(3), Calendar("hour"), Sine(4.0)))
    assert [own.name for own in schema.inputs] == ["position", "hour", "sine"]
    assert schema.inputs[0] == Position(3).named("position")

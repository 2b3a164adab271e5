"""What could be meant in two ways is read as it was said, or refused with the call to write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dspn import HMM, DSPNClassifier, Sequences, load
from dspn.errors import DataError

RNG = np.random.default_rng(0)


def wide(count: int = 6, slices: int = 12) -> list[pd.DataFrame]:
    """Sequences with variables of very different scales."""
    return [
        pd.DataFrame(
            {"pressure": 1000 + RNG.normal(size=slices), "wind": RNG.gamma(2.0, size=slices)}
        )
        for _ in range(count)
    ]


def long(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """The same as one table with ids and times."""
    parts = [own.assign(station=f"s{i}", hour=range(len(own))) for i, own in enumerate(frames)]
    return pd.concat(parts, ignore_index=True)[["station", "hour", "pressure", "wind"]]


FRAMES = wide()
TABLE = long(FRAMES)
ARRAY = np.stack([own.to_numpy() for own in FRAMES])
CHANNELS = ARRAY.swapaxes(1, 2)


def model() -> HMM:
    return HMM(1, random_state=0, validation_fraction=0.0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda own: own.fit(TABLE[["pressure", "wind"]], [12] * 6), "write lengths="),
        (lambda own: own.fit(ARRAY.reshape(-1, 2), np.full(6, 12)), "these are lengths"),
        (lambda own: own.partial_fit(ARRAY.reshape(-1, 2), [12] * 6), "write lengths="),
        (lambda own: own.fit(ARRAY).score(ARRAY, [70, 2]), "write lengths="),
        (lambda own: own.fit(TABLE), "sequence='station', order='hour'"),
        (
            lambda own: own.fit(TABLE.drop(columns="hour").rename(columns={"station": "id"})),
            "='id'",
        ),
        (lambda own: own.fit(TABLE[:12].drop(columns="station")), "order='hour'"),
        (lambda own: own.fit(TABLE.set_index(["station", "hour"])), "sequence='station', order='h"),
        (lambda own: own.fit(pl.from_pandas(TABLE)), "sequence='station', order='hour'"),
        (lambda own: own.fit(CHANNELS), "layout='channels_first'"),
        (lambda own: own.fit(list(CHANNELS)), "layout='channels_first'"),
        (lambda own: own.fit([CHANNELS[0], CHANNELS[1][:, :9]]), "layout='channels_first'"),
        (lambda own: own.fit(ARRAY).impute(CHANNELS), "layout='channels_first'"),
        (lambda own: own.fit(ARRAY, layout="across"), "one of slices_first, channels_first"),
        (lambda own: own.fit(ARRAY, sequence="id"), "says how a table is read"),
        (lambda own: own.fit([FRAMES[0], FRAMES[1].rename(columns={"wind": "gust"})]), "'wind'"),
        (lambda own: own.fit([FRAMES[0], FRAMES[1].assign(gust=1.0)]), "also has 'gust'"),
        (lambda own: own.fit(TABLE[["pressure", "wind"]]).impute(TABLE), "sequence='station'"),
        (lambda own: own.fit(TABLE, sequence="station", oder="hour"), "no argument 'oder'"),
        (lambda own: own.fit("x.csv"), "found str; read the file first, as with pandas.read_csv"),
        (lambda own: own.fit(Path("x.csv")), "; read the file first, as with pandas.read_csv"),
        (
            lambda own: own.fit(ARRAY[0, :, 0]),
            "shape (12,). Reshape your data: of a single variable it is [X]",
        ),
        (lambda own: own.fit(ARRAY[0, :, 0], lengths=[6, 6]), "it is X.reshape(-1, 1)"),
        (lambda own: own.fit([1.5, 2.5]), "for one sequence of one variable write [values]"),
        (lambda own: own.fit(ARRAY, inputs=["hour"]), "names of columns are for a table with"),
        (
            lambda own: own.fit(TABLE, sequence="station", inputs=["weekday"]),
            "for the weekday of the order column give the rule dspn.inputs.Calendar('weekday')",
        ),
    ],
)
def test_what_is_ambiguous_is_refused_with_the_call(call: Callable[[HMM], Any], said: str) -> None:
    with pytest.raises((DataError, TypeError)) as caught:
        call(model())
    assert said in str(caught.value)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_frames_are_matched_by_the_names_of_their_columns(library: Any) -> None:
    frames = [library(own.to_dict("list")) for own in FRAMES]
    own = model().fit(frames)
    assert own.schema_.names == ("pressure", "wind")
    turned = [frame[["wind", "pressure"]] for frame in frames]
    np.testing.assert_array_equal(own.log_likelihood(turned), own.log_likelihood(ARRAY))
    np.testing.assert_array_equal(own.model_.log_likelihood(turned), own.log_likelihood(ARRAY))


def test_a_table_is_read_with_its_keys_and_remembered(tmp_path: Any) -> None:
    expected = model().fit(ARRAY).log_likelihood(ARRAY)
    shuffled = TABLE.sample(frac=1.0, random_state=0)
    own = model().fit(shuffled, sequence="station", order="hour")
    order = [f"s{i}" for i in range(6)]
    found = dict(zip(dict.fromkeys(shuffled["station"]), own.score_samples(shuffled), strict=True))
    np.testing.assert_allclose([found[name] for name in order], expected, rtol=1e-12)
    indexed = TABLE.set_index(["station", "hour"])
    np.testing.assert_allclose(own.score_samples(indexed), expected, rtol=1e-12)
    own.save(tmp_path / "x.dspn")
    again = load(tmp_path / "x.dspn")
    np.testing.assert_allclose(again.score_samples(TABLE), expected, rtol=1e-12)
    np.testing.assert_allclose(again.model_.score_samples(TABLE), expected, rtol=1e-12)


def test_kinds_and_steps_are_those_that_are_said() -> None:
    table = TABLE[TABLE["hour"] != 5].assign(level=lambda own: own["hour"] % 3)
    how: Any = {"sequence": "station", "order": "hour", "every": 1}
    own = model().fit(table, **how, kinds={"level": "continuous"})
    assert [str(v.kind) for v in own.schema_] == ["continuous"] * 3
    filled = own.transform(table)
    assert list(filled.columns) == list(table.columns) and len(filled) == len(TABLE)
    assert filled.notna().all(axis=None) and (filled["hour"] == 5).sum() == 6
    with pytest.raises(DataError, match=r"`kinds` names 'lvl' .did you mean 'level'"):
        model().fit(table, **how, kinds={"lvl": "count"})
    with pytest.raises(DataError, match=r"says 'cuont' for 'level' .did you mean 'count'"):
        model().fit(table, **how, kinds={"level": "cuont"})


def test_channels_first_is_the_same_as_slices_first() -> None:
    own, turned = model().fit(ARRAY), model().fit(CHANNELS, layout="channels_first")
    np.testing.assert_array_equal(turned.log_likelihood(CHANNELS), own.log_likelihood(ARRAY))
    gappy = CHANNELS.copy()
    gappy[:, 0, 3] = np.nan
    filled = turned.transform(gappy)
    assert filled.shape == CHANNELS.shape and not np.isnan(filled).any()
    labels = np.arange(6) % 2
    one = DSPNClassifier(model()).fit(ARRAY, labels)
    other = DSPNClassifier(model()).fit(list(CHANNELS), labels, layout="channels_first")
    np.testing.assert_array_equal(one.predict_proba(ARRAY), other.predict_proba(CHANNELS))
    table = DSPNClassifier(model()).fit(TABLE, labels, sequence="station", order="hour")
    np.testing.assert_allclose(table.predict_proba(TABLE), one.predict_proba(ARRAY), rtol=1e-9)


@pytest.mark.parametrize("cells", [["1,5", "2,5"], ["3 %", "4 %"], ["$3", "$4"]])
def test_text_that_is_numbers_with_signs_does_not_become_categories(cells: list[str]) -> None:
    table = pd.DataFrame({"id": ["a", "b"], "x": cells})
    with pytest.raises(DataError, match="'x' holds text such as"):
        Sequences.from_table(table, sequence="id")
    found = Sequences.from_table(table, sequence="id", kinds={"x": "categorical"})
    assert found.schema[0].categories == tuple(cells)


def test_transform_keeps_the_form_of_the_data() -> None:
    rows = ARRAY.reshape(-1, 2).copy()
    rows[3, 1] = np.nan
    own = model().fit(ARRAY)
    for given, shape in ((rows, rows.shape), (rows.reshape(ARRAY.shape), ARRAY.shape)):
        filled = own.transform(given)
        assert filled.shape == shape and not np.isnan(filled).any()
    (first, *_) = own.transform(list(ARRAY))
    np.testing.assert_array_equal(first, ARRAY[0])
    assert isinstance(own.transform(Sequences.from_arrays(ARRAY)), Sequences)
    np.testing.assert_array_equal(model().fit_transform(ARRAY), ARRAY)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_answers_are_frames_with_the_columns_of_the_table(library: str) -> None:
    start = pd.Timestamp("2024-03-31 06:00")
    table = TABLE.assign(hour=start + pd.to_timedelta(TABLE["hour"], unit="h"))
    table = table.assign(sky=np.where(table["wind"] > 1.5, "rain", "clear"))
    table.loc[3, ["wind", "sky"]] = None
    own = model().fit(table, sequence="station", order="hour")

    def names(frame: Any) -> list[str]:
        return list(getattr(frame, "column_names", None) or frame.columns)

    found = own.marginals(table, quantiles=(0.1, 0.9))
    assert "wind" in found and "id" not in found and len(found) == 3
    assert dict(found.items())["wind"] is found["wind"] and [*found] == [*own.schema_.names]
    points = found.to_frame(library)
    bands = ["pressure", "pressure@0.1", "pressure@0.9", "wind", "wind@0.1", "wind@0.9"]
    skies = ["sky", "sky=clear", "sky=rain"]
    assert names(points) == ["station", "hour", *bands, *skies] and len(points) == 1
    ahead = own.forecast(table, 2, quantiles=(0.1, 0.9)).to_frame(library)
    assert names(ahead) == ["station", "hour", "step", *bands, *skies] and len(ahead) == 12
    odd = own.surprise(table).to_frame(library)
    tails = ["pressure_tail", "wind_tail", "sky_tail"]
    assert names(odd) == ["station", "hour", "pressure", "wind", "sky", "slice_surprise", *tails]
    assert names(own.impute(table).to_frame(library)) == list(table.columns)
    assert names(own.complete(table).to_frame(library)) == list(table.columns)
    if library == "pandas":
        assert points["hour"].tolist() == [start + pd.Timedelta("3h")]
        assert points["wind"].notna().all() and points["pressure"].isna().all()
        assert ahead["hour"].tolist()[:2] == [start + pd.Timedelta(f"{h}h") for h in (12, 13)]
        assert len(odd) == len(table) and odd["wind"].isna().sum() == 1


def test_a_column_of_text_that_is_times_is_named() -> None:
    times = [f"2013-01-{day:02d}T06:00:00Z" for day in range(1, 21)]
    frame = pd.DataFrame({"origin": ["EWR"] * 20, "when": times, "x": np.arange(20) % 7 + 0.5})
    with pytest.raises(DataError, match=r"'when' looks like their times; say order='when'"):
        HMM(2).fit(frame.drop(columns="origin"))
    two = pd.concat([frame, frame.assign(origin="JFK")])
    with pytest.raises(DataError, match=r"say sequence='origin', order='when'"):
        HMM(2).fit(two)
    model = HMM(2, validation_fraction=0).fit(two, sequence="origin", order="when")
    gaps = two.assign(x=two["x"].where(two["x"] != 2.5))
    found = model.impute_with_bands(gaps).to_frame()
    assert [*found.columns] == ["origin", "when", "x", "x@0.1", "x@0.9", "filled"]
    filled = (found["filled"] == "x").to_numpy()
    assert filled.sum() == gaps["x"].isna().sum() > 0
    assert found.loc[filled, "x@0.1"].le(found.loc[filled, "x"]).all()
    assert found.loc[~filled, "x@0.1"].isna().all()
    scores = model.evaluate(two).to_frame("polars")
    assert scores["method"].to_list()[:2] == ["model", "mean"]


def test_a_pandas_table_is_filled_in_its_own_rows_with_its_own_index() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"run": np.repeat(["b", "a"], 6), "at": [*range(6)] * 2})
    frame["x"], frame["y"] = rng.integers(0, 2, 12).astype(str), rng.normal(size=12)
    frame.loc[[2, 9], "y"] = np.nan
    model = HMM(2, random_state=0).fit(frame, sequence="run", order="at")
    mixed = frame.sample(frac=1, random_state=1)
    filled = model.transform(mixed)
    assert filled.index.tolist() == mixed.index.tolist()
    seen = mixed.y.notna()
    assert (filled.y[seen] == mixed.y[seen]).all() and filled.y.notna().all()
    assert filled.run.tolist() == mixed.run.tolist()


def test_what_would_be_one_long_sequence_or_is_no_argument_is_refused() -> None:
    frame = pd.DataFrame({"run": np.repeat(["a", "b"], 6), "x": ["u", "v"] * 6})
    model = HMM(2, random_state=0).fit(frame, sequence="run")
    with pytest.raises(DataError, match="X has no column 'run', which said what sequence"):
        model.score_samples(frame[["x"]])
    timed = frame.assign(at=[*range(6)] * 2)
    model = HMM(2, random_state=0).fit(timed, sequence="run", order="at")
    with pytest.raises(DataError, match="columns that the model does not have: run; say"):
        model.score_samples(timed.drop(columns="at"))
    with pytest.raises(TypeError, match=r"no argument 'sequnce'.*did you mean 'sequence'"):
        HMM(2).fit(frame, sequnce="run")  # type: ignore[call-arg]


def test_a_wrong_value_is_refused_with_what_to_do_about_it() -> None:
    table = TABLE.assign(
        sky=np.where(TABLE["wind"] > 1.5, "rain", "clear"), calls=np.arange(len(TABLE)) % 29
    )
    own = model().fit(table, sequence="station", order="hour")
    for column, value, remedy in (
        ("wind", "oops", "make them all numbers or all text, with None for what is missing"),
        ("wind", np.inf, "or leave the entry out (NaN)"),
        (
            "sky",
            "snow",
            "learn with a schema that has this category, or leave the entry out (None)",
        ),
        ("calls", 1.5, "learn with this variable as continuous"),
    ):
        wrong = table.astype({column: object})
        wrong.loc[3, column] = value
        with pytest.raises(DataError) as caught:
            own.score_samples(wrong)
        assert f"variable {column!r}" in str(caught.value) and remedy in str(caught.value)
    with pytest.raises(DataError, match=r"found 'wnid' \(did you mean 'wind'"):
        own.marginals(table)["wnid"]
    with pytest.raises(DataError, match="give numbers, with None for what is missing"):
        own.score_samples(table.assign(wind="calm"))
    with pytest.raises(DataError, match=r"no column 'wind'.*the schema has it as a variable: add"):
        own.score_samples(table.drop(columns="wind"))
    huge = table.assign(wind=table["wind"].where(table.index != 15, 1e201))
    with pytest.raises(
        DataError, match=r"'wind' must hold numbers up to 1e\+150 .* \(id 's1'\), s"
    ):
        model().fit(huge, sequence="station", order="hour")


def test_fit_says_what_it_has_guessed_of_a_table() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.repeat(np.arange(60), 10), "at": np.tile(np.arange(10), 60)})
    table = table.assign(
        calls=rng.poisson(3, 600), shop=rng.integers(0, 30, 600), mode=rng.integers(0, 6, 600)
    )
    how: Any = {"sequence": "id", "order": "at"}
    with pytest.warns(UserWarning) as caught:
        model().fit(table, **how)
    assert sorted(str(own.message) for own in caught) == [
        "variables calls have whole numbers, which are taken as categories and are spread as "
        "counts are; if they count, say kinds={'calls': 'count'} (of arrays, in a `schema`), else "
        "'categorical'.",
        "variables shop have whole numbers, which are taken as counts and are not spread as counts "
        "are; if they are labels, say kinds={'shop': 'categorical'} (of arrays, in a `schema`), "
        "else 'count'.",
    ]
    with pytest.warns(UserWarning, match="variables x0 have whole numbers, which are taken as c"):
        model().fit([table[["calls"]].to_numpy()] * 2)
    kinds = {"calls": "count", "shop": "categorical"}
    model().fit(table, **how, kinds=kinds)
    with pytest.warns(UserWarning, match="'at' rises from row to row; .* say order='at', else"):
        model().fit(table, sequence="id", kinds=kinds)
    model().fit(table, sequence="id", kinds={**kinds, "at": "count"})
    late = table[table["at"] != 5].assign(kept="x")
    late["kept"] = np.where(late["calls"] > 2, "a", "b")
    steps = r"steps of 'at' are not all equal \(1, 2\): .*; every='1' puts in 60 slices"
    with pytest.warns(UserWarning, match=steps):
        model().fit(late, **how, kinds=kinds)
    with pytest.warns(UserWarning, match=steps):
        HMM(1, schema=model().fit(table, **how, kinds=kinds).schema_).fit(late, **how)
    model().fit(late, **how, kinds=kinds, every=1).score_samples(late)
    dated = late.assign(at=(pd.Timestamp("2024-03-25") + pd.to_timedelta(late["at"], "D")))
    dated["at"] = dated["at"].dt.strftime("%d/%m/%Y")
    with pytest.warns(UserWarning, match=r"\(1 d, 2 d\): .* every='1d' puts in"):
        model().fit(dated, **how, kinds=kinds, dates="%d/%m/%Y")

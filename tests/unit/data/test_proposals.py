"""Which whole numbers are counts, and the leaf families that columns of numbers suggest."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dspn.data import Kind, Sequences, Variable
from dspn.data.proposals import Whole, is_doubtful, propose
from dspn.errors import DataError
from dspn.leaves import NegativeBinomial, StudentT, VonMises

RNG = np.random.default_rng(0)
SIZE = 2000
WHOLE = {
    "calls": (RNG.poisson(30, SIZE), Kind.COUNT, "more than 20 distinct"),
    "pressure": (RNG.normal(940, 7, SIZE).round(), Kind.CONTINUOUS, "vary less than counts do"),
    "altitude": (RNG.integers(0, 9000, SIZE), Kind.CONTINUOUS, "up to 8,9.*larger than"),
    "dose": (25 * RNG.integers(0, 40, SIZE), Kind.CONTINUOUS, "all multiples of 25"),
    "hour": (RNG.integers(0, 24, SIZE), Kind.CONTINUOUS, "circle .von_mises:24"),
    "windDir": (RNG.integers(0, 361, SIZE), Kind.CONTINUOUS, "circle .von_mises:360"),
    "rating": (RNG.integers(1, 6, SIZE), Kind.CATEGORICAL, "5 distinct values"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_counts_only_where_they_look_like_counts(name: str) -> None:
    values, kind, reason = WHOLE[name]
    data = Sequences.from_arrays([values[:, None].astype(float)], names=[name])
    assert data.schema[0].kind is kind
    (note,) = data.inference_notes
    assert note.startswith(f"{name}: {kind}") and re.search(reason, note)


@pytest.mark.parametrize("size", [300, 3000])
def test_kinds_are_doubtful_where_frequencies_are_those_of_another(size: int) -> None:
    rng, running = np.random.default_rng(0), np.cumsum(RNG.random(size) < 0.1) % 2
    counts = {
        "few": rng.poisson(2, size),
        "many": rng.poisson(30, size),
        "regimes": np.where(running, rng.poisson(1, size), rng.poisson(8, size)),
        "alarms": rng.poisson(9, size) * (rng.random(size) < 0.3),
        "waits": rng.geometric(0.3, size),
    }
    labels = {"modes": rng.integers(0, 6, size), "shops": rng.integers(0, 25, size)}
    for name, values in (counts | labels).items():
        is_label = name in labels
        distinct, codes = np.unique(values, return_inverse=True)
        categories = Variable.categorical(name, distinct.tolist())
        assert is_doubtful(categories, codes.astype(float)) is not is_label, name
        assert is_doubtful(Variable.count(name), values.astype(float)) is is_label, name
    codes = rng.integers(0, 6, size) * 1.0
    for wide in ([-3, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 2**52]):
        assert not is_doubtful(Variable.categorical("code", wide), codes)
    assert not is_doubtful(Variable.continuous("x"), rng.poisson(2, size).astype(float))
    assert not is_doubtful(Variable.categorical("n", [0, 1, 2]), rng.integers(0, 3, size) * 1.0)


def test_what_is_known_of_whole_numbers_adds_up_over_parts() -> None:
    values = RNG.integers(0, 500, 300).astype(float) * 4
    parts = [Whole.of(part) for part in np.split(values, [7, 150])]
    assert parts[0].plus(parts[1]).plus(parts[2]) == Whole.of(values)


NUMBERS = {
    "normal": (RNG.normal(size=SIZE), None),
    "two levels": (RNG.normal(10 * RNG.integers(0, 2, SIZE)), None),
    "one wrong reading": (np.append(RNG.normal(12, 4, SIZE), 1048.0), "student_t"),
    "price": (np.exp(RNG.normal(size=SIZE)), "log_normal"),
    "load": (RNG.gamma(2.0, size=SIZE), "gamma"),
    "heading": (RNG.uniform(-180, 180, SIZE), "von_mises:360:-180"),
    "bearing": (RNG.uniform(0, 6.28, SIZE), "von_mises"),
    "few": (np.exp(RNG.normal(size=20)), None),
}
COUNTS = {
    "calls": (RNG.poisson(9, SIZE), None),
    "trips": (RNG.negative_binomial(2, 0.1, SIZE), "negative_binomial"),
    "alarms": (RNG.poisson(9, SIZE) * (RNG.random(SIZE) < 0.3), "zero_inflated_poisson"),
}


@pytest.mark.parametrize("name", [*NUMBERS, *COUNTS])
def test_columns_suggest_the_family_that_they_were_drawn_from(name: str) -> None:
    values, family = (NUMBERS | COUNTS)[name]
    kind = Kind.COUNT if name in COUNTS else Kind.CONTINUOUS
    with_gaps = np.append(values.astype(float), np.nan)
    found = propose(Variable(name, kind), with_gaps)
    assert (found and found.family) == family
    if family is not None:
        assert propose(Variable.of_kind(name, family), with_gaps) is None


def test_variables_take_families_by_name_and_refuse_those_of_the_other_kind() -> None:
    assert Variable.continuous("x", leaf="student_t:3").leaf == StudentT(3.0)
    assert Variable.of_kind("x", "von_mises:360:-180").leaf == VonMises(360.0, -180.0)
    assert Variable.of_kind("x", "negative_binomial") == Variable.count(
        "x", leaf=NegativeBinomial()
    )
    with pytest.raises(DataError, match=r"family for count variables.*Variable.continuous"):
        Variable.count("x", leaf="gamma")
    with pytest.raises(DataError, match="options of the leaf family 'student_t:1'"):
        Variable.continuous("x", leaf="student_t:1")

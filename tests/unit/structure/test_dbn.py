"""`from_dbn` against the joint distribution of the DBN, multiplied out."""

import math
from itertools import product

import numpy as np
import pytest

from dspn.errors import StructureError
from dspn.structure import DbnStructure, DbnTables, dbn_schema, from_dbn, random_tables
from oracles import likelihood

STRUCTURES = {
    "hidden Markov model": DbnStructure({"h": 3, "s": 2}, ["s"], [("h", "s")], [("h", "h")]),
    "two coupled chains and two sensors": DbnStructure(
        {"a": 2, "b": 2, "s": 3, "r": 2},
        ["r", "s"],
        [("a", "b"), ("a", "s"), ("b", "s"), ("b", "r")],
        [("a", "a"), ("b", "b"), ("a", "b")],
    ),
    "observed chain that drives a hidden node": DbnStructure(
        {"o": 2, "h": 2, "s": 2}, ["o", "s"], [("o", "h"), ("h", "s")], [("o", "o"), ("h", "h")]
    ),
    "sensor without parents and a sensor with memory": DbnStructure(
        {"h": 2, "free": 2, "slow": 2},
        ["free", "slow"],
        [("h", "slow")],
        [("h", "h"), ("slow", "slow")],
    ),
}


def joint(structure: DbnStructure, tables: DbnTables, states: list[dict[str, int]]) -> float:
    """Product of the conditional probabilities of every node at every slice."""
    total = 1.0
    for t, state in enumerate(states):
        for node in structure.sizes:
            within = tuple(state[p] for p in structure.parents_within(node))
            between = structure.parents_between(node) if t else ()
            before = tuple(states[t - 1][p] for p in between)
            table = tables.later[node] if between else tables.first[node]
            total *= float(table[(*before, *within, state[node])])
    return total


def brute_force(structure: DbnStructure, tables: DbnTables, values: np.ndarray) -> float:
    """Sum of the joint over everything that was not observed."""
    allowed = [
        [
            [int(values[t, structure.observed.index(node)])]
            if node in structure.observed
            and not math.isnan(values[t, structure.observed.index(node)])  # type: ignore[attr-defined]
            else range(size)
            for node, size in structure.sizes.items()
        ]
        for t in range(len(values))
    ]
    per_slice = [
        [dict(zip(structure.sizes, choice, strict=True)) for choice in product(*own)]
        for own in allowed
    ]
    return math.fsum(joint(structure, tables, list(states)) for states in product(*per_slice))


@pytest.mark.parametrize("concentration", [None, 0.3])
@pytest.mark.parametrize("name", STRUCTURES)
def test_compiled_dbn_has_the_likelihood_of_the_dbn(name: str, concentration: float | None) -> None:
    structure = STRUCTURES[name]
    rng = np.random.default_rng(len(name))
    tables = random_tables(structure, rng, concentration=concentration)
    network = from_dbn(structure, tables)
    sizes = [structure.sizes[node] for node in structure.observed]
    for num_slices in (1, 2, 3):
        values = np.stack([rng.integers(size, size=num_slices) for size in sizes], axis=1).astype(
            float
        )
        values[rng.random(values.shape) < 0.25] = np.nan
        expected = brute_force(structure, tables, values)
        np.testing.assert_allclose(likelihood(network, values), expected, rtol=1e-9)


def test_schema_of_a_dbn_has_its_observed_nodes_in_their_order() -> None:
    schema = dbn_schema(STRUCTURES["two coupled chains and two sensors"])
    assert schema.names == ("r", "s")
    assert [variable.num_categories for variable in schema] == [2, 3]


def test_dbn_above_the_stated_size_is_refused() -> None:
    names = [f"h{i}" for i in range(11)]
    sizes = {**dict.fromkeys(names, 2), "s": 2}
    structure = DbnStructure(sizes, ["s"], [("h0", "s")], [(name, name) for name in names])
    tables = random_tables(structure, np.random.default_rng(0))
    with pytest.raises(StructureError, match=r"2048.*more than the 1024 allowed"):
        from_dbn(structure, tables)


def test_dbn_with_a_cycle_within_the_slice_is_refused() -> None:
    structure = DbnStructure(
        {"a": 2, "b": 2, "s": 2}, ["s"], [("a", "b"), ("b", "a"), ("a", "s")], []
    )
    tables = random_tables(structure, np.random.default_rng(0))
    with pytest.raises(StructureError, match=r"cycle among \['a', 'b'"):
        from_dbn(structure, tables)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observed": ["z"]}, r"\['z'\]"),
        ({"within": [("h", "q")]}, r"\['q'\]"),
        ({"between": [("q", "h")]}, r"\['q'\]"),
        ({"observed": []}, "`observed` is empty"),
        ({"observed": "s"}, r"`observed` must be a list of names; write \['s'\]"),
        ({"observed": ["s", "s"]}, "`observed` must name a node once"),
        ({"sizes": {"h": 0, "s": 2}}, r"`sizes\['h'\]` must be a whole number of at least 1.* 0"),
        ({"sizes": {"h": 2.5, "s": 2}}, r"`sizes\['h'\]` must be a whole number.*2\.5"),
        ({"sizes": None}, "`sizes` must be a dict, found NoneType"),
        ({"within": [("h", "s", "s")]}, r"`within` must hold pairs of names .*\('h', 's', 's'\)"),
        ({"within": ["hs"]}, "`within` must hold pairs of names .*'hs'"),
        ({"within": [("h", "s")] * 2}, r"`within` must name an edge once, .*\('h', 's'\)"),
        ({"between": None}, "`between` must be a list, found NoneType"),
    ],
)
def test_dbn_structure_that_does_not_fit_together_is_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    fields = {
        "sizes": {"h": 2, "s": 2},
        "observed": ["s"],
        "within": [("h", "s")],
        "between": [("h", "h")],
    }
    with pytest.raises(StructureError, match=message):
        DbnStructure(**{**fields, **change})


def test_dbn_tables_that_do_not_fit_are_refused() -> None:
    structure = STRUCTURES["hidden Markov model"]
    good = random_tables(structure, np.random.default_rng(0))
    with pytest.raises(StructureError, match="`first` has no table for node 's'"):
        from_dbn(structure, DbnTables({"h": good.first["h"]}, good.later))
    with pytest.raises(StructureError, match="`later` has no table for node 'h'"):
        from_dbn(structure, DbnTables(good.first, {}))
    with pytest.raises(StructureError, match=r"`first` .* nodes \['h', 's'\] only, .* for 'z'"):
        from_dbn(structure, DbnTables({**good.first, "z": np.ones(1)}, good.later))
    with pytest.raises(StructureError, match=r"`later` .* nodes \['h'\] only, .* for 's'"):
        from_dbn(structure, DbnTables(good.first, {**good.later, "s": good.first["s"]}))
    with pytest.raises(StructureError, match=r"`first\['s'\]` must have shape \(3, 2\)"):
        from_dbn(structure, DbnTables({**good.first, "s": good.first["s"].T}, good.later))
    with pytest.raises(StructureError, match=r"`later\['h'\]` must hold distributions"):
        from_dbn(structure, DbnTables(good.first, {"h": 2 * good.later["h"]}))
    with pytest.raises(StructureError, match=r"`first\['h'\]` must hold a distribution.* -0\.5"):
        from_dbn(structure, DbnTables({**good.first, "h": np.array([1.5, -0.5, 0.0])}, good.later))

"""Summing variables out of products of tables, against one einsum over everything."""

import numpy as np
import pytest

from experiments.datasets.synthetic._elimination import (
    LINEAR,
    LOGARITHMIC,
    Table,
    eliminated,
    elimination_order,
)

SIZES = (2, 3, 1, 2, 4)
SCOPES = [(0, 1), (1, 2, 3), (3,), (0, 4), (2, 4), ()]
LANES = [1, 5, 1, 5, 1, 5]


def tables(rng: np.random.Generator) -> list[Table]:
    return [
        Table(scope, rng.random((*(SIZES[v] for v in scope), lanes)))
        for scope, lanes in zip(SCOPES, LANES, strict=True)
    ]


def by_einsum(given: list[Table], kept: tuple[int, ...]) -> np.ndarray:
    operands: list[object] = []
    for table in given:
        lanes = np.broadcast_to(table.values, (*table.values.shape[:-1], 5))
        operands += [lanes, [*table.scope, 9]]
    return np.einsum(*operands, [*kept, 9])  # type: ignore[no-any-return, call-overload]


@pytest.mark.parametrize("kept", [(), (1,), (0, 3), (0, 1, 2, 3, 4)])
def test_elimination_is_the_sum_of_the_product(kept: tuple[int, ...]) -> None:
    given = tables(np.random.default_rng(len(kept)))
    order, _ = elimination_order([table.scope for table in given], kept, SIZES)
    assert set(order) == set(range(5)) - set(kept)
    found = eliminated(given, order, LINEAR)
    assert found.scope == kept
    np.testing.assert_allclose(found.values, by_einsum(given, kept), rtol=1e-12)


def test_elimination_with_logarithms_takes_zeros() -> None:
    given = tables(np.random.default_rng(3))
    given[0].values[0] = 0.0
    order, _ = elimination_order([table.scope for table in given], (0,), SIZES)
    with np.errstate(divide="ignore"):
        logs = [Table(table.scope, np.log(table.values)) for table in given]
        expected = np.log(by_einsum(given, (0,)))
    assert np.isneginf(expected[0]).all()
    np.testing.assert_allclose(
        eliminated(logs, order, LOGARITHMIC).values, expected, rtol=1e-12, atol=1e-12
    )


def test_the_cheapest_variable_of_a_star_is_not_its_centre() -> None:
    leaves = range(1, 11)
    scopes = [(0, leaf) for leaf in leaves]
    order, largest = elimination_order(scopes, (), (2,) * 11)
    # With two leaves the centre and a leaf cost the same.
    assert order.index(0) >= 8
    assert largest == 4

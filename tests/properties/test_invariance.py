"""A sequence's answers are the same bits alone and in any batch, order and number of threads."""

from collections.abc import Callable

import numpy as np
import pytest

from dspn import Mixture, Model, Sequences
from dspn.inference.marginals import Marginals
from dspn.structure import DynamicNetwork, initial_network
from strategies import as_sequences, draw_sequence, hide, random_network, random_recipe, schema_of


def random_batch(seed: int) -> tuple[Model, list[np.ndarray]]:
    """A model of one or two components, chains among them, and sequences, some with outliers."""
    rng = np.random.default_rng([91, seed])
    kinds = tuple(rng.choice(["binary", "ternary", "continuous", "count"], rng.integers(1, 4)))
    root = str(rng.choice(["first", "last"]))
    networks: list[DynamicNetwork] = []
    for _ in range(1 + seed % 2):
        if rng.random() < 0.3:
            size = int(rng.integers(1, 40))
            networks.append(initial_network(schema_of(kinds), size, rng=rng, root=root))  # type: ignore[arg-type]
        else:
            recipe = random_recipe(int(rng.integers(10**6)), kinds=kinds, root=root)
            networks.append(random_network(recipe))
    arrays = []
    for _ in range(int(rng.choice([3, 9, 70]))):
        values = hide(draw_sequence(networks[0], int(rng.integers(1, 9)), rng), rng, share=0.3)
        if "continuous" in kinds and rng.random() < 0.3:
            far = rng.choice([-1, 1]) * 10 ** rng.uniform(1, 12)
            values[rng.integers(len(values)), kinds.index("continuous")] = far
        arrays.append(values)
    return Model(Mixture(networks, np.full(len(networks), 1 / len(networks)))), arrays


def _by_slice(data: Sequences, *found: np.ndarray) -> list[bytes]:
    pairs = zip(data.offsets[:-1], data.offsets[1:], strict=True)
    return [b"".join(array[first:last].tobytes() for array in found) for first, last in pairs]


def _of_entries(data: Sequences, marginals: Marginals) -> list[bytes]:
    rows = [b""] * len(data)
    for own in marginals.variables:
        sequence = np.searchsorted(data.offsets, own.slices, side="right") - 1
        for array in (own.probabilities, own.mean, own.variance, own.quantiles):
            if array is not None:
                for index in range(len(data)):
                    rows[index] += array[sequence == index].tobytes()
    return rows


def _log_prob(model: Model, data: Sequences) -> list[bytes]:
    """Of the observed entry in the middle of each sequence, given the others."""
    query, given = np.full_like(data.values, np.nan), data.values.copy()
    for first, last in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        places = np.argwhere(~np.isnan(given[first:last]))
        if len(places):
            t, v = places[len(places) // 2]
            query[first + t, v], given[first + t, v] = given[first + t, v], np.nan
    found = model.log_prob(data.with_values(query), data.with_values(given))
    return [number.tobytes() for number in found]


def _completion(model: Model, data: Sequences) -> list[bytes]:
    found = model.complete(data)
    rows = _by_slice(data, found.sequences.values, found.interfaces)
    return [row + number.tobytes() for row, number in zip(rows, found.log_prob, strict=True)]


def _forecast(model: Model, data: Sequences) -> list[bytes]:
    found = model.forecast(data, steps=2)
    return _of_entries(found.sequences, found.marginals)


def _surprise(model: Model, data: Sequences) -> list[bytes]:
    found = model.surprise(data)
    return _by_slice(data, found.slices, found.variables)


QUERIES: dict[str, Callable[[Model, Sequences], list[bytes]]] = {
    "likelihood": lambda model, data: [x.tobytes() for x in model.log_likelihood(data)],
    "surprise": _surprise,
    "interfaces": lambda model, data: _by_slice(data, model.interface_posteriors(data)),
    "components": lambda model, data: [x.tobytes() for x in model.component_posteriors(data)],
    "marginals": lambda model, data: _of_entries(data, model.marginals(data, quantiles=(0.1, 0.5))),
    "imputation": lambda model, data: _by_slice(data, model.impute(data).values),
    "completion": _completion,
    "forecast": _forecast,
    "conditional": _log_prob,
}


def differences(seed: int, patch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Queries, and sizes of batches, in which a sequence's answer is not that of the whole."""
    model, arrays = random_batch(seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(arrays))
    batches = [order, order[: max(1, len(order) // 3)], *order[:3, None]]
    found = []
    for name, query in QUERIES.items():
        patch.setenv("DSPN_NUM_THREADS", "2")
        whole = query(model, as_sequences(model.schema, arrays))
        patch.setenv("DSPN_NUM_THREADS", "1")
        for batch in batches:
            part = query(model, as_sequences(model.schema, [arrays[i] for i in batch]))
            if part != [whole[i] for i in batch]:
                found.append((name, batch.size))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_answers_do_not_depend_on_the_batch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert differences(seed, monkeypatch) == []

"""Random mixtures of whole DSPNs, and what they must answer, by enumeration."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracles
from dspn import Sequences
from dspn.leaves import family_for
from dspn.structure import DynamicNetwork, Leaf, Mixture, Template, from_hmm
from strategies import (
    KINDS,
    arbitrary_sequence,
    as_sequences,
    draw_sequence,
    hide,
    random_network,
    random_recipe,
    schema_of,
)

Floats = NDArray[np.float64]


def random_hmm(seed: int, kinds: tuple[str, ...], root: str) -> DynamicNetwork:
    """A hidden Markov model of one to three states, read from either end."""
    rng = np.random.default_rng([29, seed])
    schema, k = schema_of(kinds), int(rng.integers(1, 4))
    rows: dict[str, Floats] = {}
    for variable in schema:
        if variable.num_categories:
            rows[variable.name] = rng.dirichlet(np.ones(variable.num_categories), size=k)
        elif variable.kind == "count":
            rows[variable.name] = rng.uniform(0.1, 4.0, size=(k, 1))
        else:
            rows[variable.name] = np.stack([rng.normal(size=k), rng.uniform(0.2, 2.0, k)], axis=1)
    transition = rng.dirichlet(np.ones(k), size=k)
    hmm = from_hmm(rng.dirichlet(np.ones(k)), transition, rows, schema=schema)
    return DynamicNetwork(hmm.template, hmm.top, hmm.parameters, root)  # type: ignore[arg-type]


def rescaled(network: DynamicNetwork, rng: np.random.Generator) -> DynamicNetwork:
    """The same distribution; its leaf families have other references."""
    families = [
        family_for(variable)
        if variable.num_categories
        else family_for(variable).scaled_to(rng.poisson(5.0, size=9).astype(np.float64))
        for variable in network.schema
    ]
    nodes = tuple(
        replace(node, family=families[node.variable]) if isinstance(node, Leaf) else node
        for node in network.template.nodes
    )
    template = Template(network.schema, nodes, network.template.outputs)
    return DynamicNetwork(template, network.top, network.parameters, network.root)


def random_mixture(seed: int, num_components: int | None = None, **fixed: object) -> Mixture:
    """Components of different layouts, a weight of which may be zero; some fields may be fixed."""
    rng = np.random.default_rng([31, seed])
    count = num_components or int(rng.integers(1, 4))
    shape = random_recipe(seed, **fixed)
    kinds = shape.kinds[:3]
    own = {**fixed, "kinds": kinds, "root": shape.root}
    components = []
    for number in range(count):
        if rng.random() < 0.25:
            components.append(random_hmm(10 * seed + number, kinds, shape.root))
        else:
            components.append(random_network(random_recipe(10 * seed + number, **own)))
    if rng.random() < 0.5:
        components[-1] = rescaled(components[-1], rng)
    weights = rng.dirichlet(np.ones(count))
    if count > 1 and rng.random() < 0.25:
        weights[rng.integers(count)] = 0.0
    return Mixture(tuple(components), weights / weights.sum())


@dataclass(frozen=True)
class Case:
    """A mixture, and sequences that some of its components may hold impossible."""

    mixture: Mixture
    arrays: list[Floats]

    @property
    def data(self) -> Sequences:
        return as_sequences(self.mixture.schema, self.arrays)


def random_sequence(mixture: Mixture, length: int, rng: np.random.Generator) -> Floats:
    """One sequence of the mixture: of a component that is drawn by its weight."""
    return draw_sequence(
        mixture.components[int(rng.choice(len(mixture), p=mixture.weights))], length, rng
    )


def random_mixture_case(seed: int, **fixed: object) -> Case:
    """Four possible sequences with gaps, one of a single slice, one with nothing observed."""
    mixture = random_mixture(seed, **fixed)  # type: ignore[arg-type]
    rng = np.random.default_rng([37, seed])
    arrays = [
        hide(random_sequence(mixture, int(rng.integers(1, 5)), rng), rng, share)
        for share in (0.0, 0.3, 0.6)
    ]
    arrays.append(np.full((int(rng.integers(1, 4)), len(mixture.schema)), np.nan))
    return Case(mixture, arrays)


def impossible_for_some(seed: int, **fixed: object) -> Case:
    """Arbitrary sequences that the mixture allows, though components may not."""
    kinds = ("binary", "ternary", "binary")
    mixture = random_mixture(seed, 2, zeros=0.9, sharing=0.0, kinds=kinds, **fixed)
    rng = np.random.default_rng([41, seed])
    drawn = [hide(arbitrary_sequence(mixture.schema, 3, rng), rng, 0.2) for _ in range(12)]
    return Case(mixture, [values for values in drawn if likelihood(mixture, values) > 0])


@st.composite
def mixture_cases(draw: st.DrawFn) -> Case:
    """Any mixture of one to three components with possible evidence; shrinks to small seeds."""
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)))
    return random_mixture_case(
        draw(st.integers(0, 10_000)),
        num_components=draw(st.integers(1, 3)),
        kinds=kinds,
        root=draw(st.sampled_from(["first", "last"])),
        tied=draw(st.booleans()),
    )


# What must be found.


def likelihood(mixture: Mixture, values: Floats) -> float:
    """P(observed values) = sum_c w_c P_c(observed values)."""
    return math.fsum(
        weight * oracles.likelihood(network, values)
        for weight, network in zip(mixture.weights.tolist(), mixture, strict=True)
    )


def log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def posteriors(mixture: Mixture, values: Floats) -> list[float]:
    """P(c | observed values)."""
    total = likelihood(mixture, values)
    return [
        weight * oracles.likelihood(network, values) / total
        for weight, network in zip(mixture.weights.tolist(), mixture, strict=True)
    ]


def conditional(mixture: Mixture, values: Floats, t: int, v: int) -> oracles.Mixture:
    """Distribution of the missing entry (t, v): the leaves of all components together."""
    weights: list[float] = []
    rows: list[tuple[float, ...]] = []
    families = []
    for share, network in zip(posteriors(mixture, values), mixture, strict=True):
        if share > 0:
            own = oracles.conditional(network, values, t, v)
            weights.extend(share * weight for weight in own.weights)
            rows.extend(own.rows)
            families.append(own.family)
    return oracles.Mixture(tuple(weights), families[0], tuple(rows))


def interface_posteriors(mixture: Mixture, values: Floats) -> Floats:
    """P(c, node | observed values), component after component."""
    found = []
    for share, network in zip(posteriors(mixture, values), mixture, strict=True):
        shape = (len(values), network.num_interfaces)
        found.append(
            share * oracles.interface_posteriors(network, values) if share > 0 else np.zeros(shape)
        )
    return np.concatenate(found, axis=1)


def best_completions(mixture: Mixture, values: Floats) -> list[float]:
    """For each component, its weight times the largest joint density of its own."""
    return [
        weight * oracles.best_completion(network, values)
        for weight, network in zip(mixture.weights.tolist(), mixture, strict=True)
    ]


def surprise_of_slice(mixture: Mixture, values: Floats, t: int) -> float:
    """-log P_t(x_t | x_1..x_{t-1}) in the mixture of networks of t slices."""
    before = values[: t + 1].copy()
    before[t] = math.nan
    now, past = likelihood(mixture, values[: t + 1]), likelihood(mixture, before)
    if past == 0:
        return math.nan
    return -math.log(now / past) if now > 0 else math.inf


def surprise_of_entry(mixture: Mixture, values: Floats, t: int, v: int) -> float:
    """-log P(x_v^t | every other observed entry); NaN for a missing one."""
    if math.isnan(values[t, v]):
        return math.nan
    others = values.copy()
    others[t, v] = math.nan
    return -math.log(likelihood(mixture, values) / likelihood(mixture, others))


def tail(mixture: Mixture, values: Floats, t: int, v: int) -> float:
    """The tail of an entry given every other observed entry; NaN for a missing one."""
    if math.isnan(values[t, v]):
        return math.nan
    others = values.copy()
    others[t, v] = math.nan
    return conditional(mixture, others, t, v).tail(float(values[t, v]))


def per_slice(case: Case, of: Callable[[Mixture, Floats, int], float]) -> list[float]:
    """A number for every slice of the case."""
    return [of(case.mixture, values, t) for values in case.arrays for t in range(len(values))]

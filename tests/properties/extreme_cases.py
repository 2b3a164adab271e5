"""Networks and evidence on which plain numbers with one scale per slice go wrong without a sign."""

import numpy as np
from numpy.typing import NDArray

from dspn.structure import DynamicNetwork, NetworkBuilder, assemble, from_hmm
from strategies import draw_sequence, random_network, random_recipe, schema_of

Floats = NDArray[np.float64]
Case = tuple[DynamicNetwork, Floats]


def _hmm(
    transition: object, emissions: dict[str, object], kinds: tuple[str, ...], root: str
) -> DynamicNetwork:
    matrix = np.asarray(transition, dtype=float)
    start = np.full(len(matrix), 1.0 / len(matrix))
    rows = {name: np.asarray(own, dtype=float) for name, own in emissions.items()}
    return from_hmm(start, matrix, rows, schema=schema_of(kinds), root=root)


def _some_missing(values: Floats, share: float = 0.03, seed: int = 0) -> Floats:
    hidden = values.copy()
    hidden[np.random.default_rng(seed).random(values.shape) < share] = np.nan
    return hidden


# Two chains of two states that never meet; doubly stochastic, so a uniform start is stationary.
APART = np.array([[0.7, 0.3, 0, 0], [0.3, 0.7, 0, 0], [0, 0, 0.6, 0.4], [0, 0, 0.4, 0.6]])
# The first chain likes category 0, the second category 1; category 2 is the second chain's alone.
LIKES = np.array([[0.98, 0.02, 0], [0.97, 0.03, 0], [0.01, 0.89, 0.1], [0.02, 0.88, 0.1]])


def tiny_emissions(root: str) -> Case:
    """Emissions of 1e-15 off the diagonal, and values that fit no smooth path."""
    tiny = np.full((3, 3), 1e-15) + np.diag(np.full(3, 1 - 3e-15))
    network = _hmm(np.eye(3) * 0.999 + 0.001 / 3, {"x0": tiny}, ("ternary",), root)
    return network, _some_missing(
        np.random.default_rng(1).integers(3, size=(1500, 1)).astype(float)
    )


def every_state_mismatches(root: str) -> Case:
    """Every state gives the observed category about 1e-12."""
    rare = np.array([1e-12, 3e-12, 7e-13, 2e-12])
    emissions = np.stack([0.4 - rare, np.full(4, 0.6), rare], axis=1)
    network = _hmm(np.eye(4) * 0.96 + 0.01, {"x0": emissions}, ("ternary",), root)
    return network, _some_missing(np.full((2000, 1), 2.0))


def every_state_mismatches_at_40_variables(root: str) -> Case:
    """40 factors of about 1e-12 in a single slice: below the smallest number before any scaling."""
    rng = np.random.default_rng(2)
    emissions = {}
    for v in range(40):
        rare = rng.uniform(0.2, 5.0, 3) * 1e-12
        emissions[f"x{v}"] = np.stack([1 - rare, rare], axis=1)
    network = _hmm(np.eye(3) * 0.97 + 0.01, emissions, ("binary",) * 40, root)
    return network, _some_missing(np.ones((60, 40)))


def late_contradiction(root: str) -> Case:
    """The first chain wins for 2,000 slices; then comes what only the second one can say."""
    values = np.zeros((2000, 1))
    values[-3] = 2.0
    return _hmm(APART, {"x0": LIKES}, ("ternary",), root), _some_missing(values[:-1])


def early_contradiction(root: str) -> Case:
    """As `late_contradiction`, from the other end."""
    network, values = late_contradiction(root)
    return network, values[::-1].copy()


def reversal(root: str) -> Case:
    """Evidence for the first chain turns into that for the second after 1,500 of 3,000 slices."""
    values = np.repeat([[0.0], [1.0]], 1500, axis=0)
    return _hmm(APART, {"x0": LIKES}, ("ternary",), root), _some_missing(values)


def narrow_bridge(root: str) -> Case:
    """As `reversal`, shorter, with a way from chain to chain of probability 1e-300."""
    bridged = APART + 1e-300 * (APART == 0)
    values = np.repeat([[0.0], [1.0]], 600, axis=0)
    return _hmm(bridged, {"x0": LIKES}, ("ternary",), root), _some_missing(values)


def far_outliers(root: str) -> Case:
    """Gaussian chains apart and values 400 deviations away, first on one side, then the other."""
    means = np.array([[-1.0, 1.0], [-1.2, 0.5], [1.0, 1.0], [1.3, 0.7]])
    rng = np.random.default_rng(3)
    values = rng.normal(scale=0.3, size=(800, 1)) + np.repeat([[-1.0], [1.0]], 400, axis=0)
    values[::50] *= 400.0
    return _hmm(APART, {"x0": means}, ("continuous",), root), _some_missing(values)


def counts_out_of_reach(root: str) -> Case:
    """Poisson chains apart, with rates three orders of magnitude from each other."""
    rates = np.array([[0.1], [0.2], [300.0], [200.0]])
    values = np.repeat([[0.0], [250.0]], 400, axis=0)
    return _hmm(APART, {"x0": rates}, ("count",), root), _some_missing(values)


def _chain(builder: NetworkBuilder, variable: int, inputs: list[int]) -> list[int]:
    """Outputs of the two chains apart over one variable."""
    return [
        builder.product([builder.leaf(variable, LIKES[state]), builder.sum(inputs, APART[state])])
        for state in range(4)
    ]


def _two_group_top(network_builder: NetworkBuilder, products: int) -> object:
    builder = NetworkBuilder(network_builder.schema)
    left, right = builder.inputs(4), builder.inputs(4)
    rng = np.random.default_rng(4)
    parts = [
        builder.product([builder.sum(own, rng.dirichlet(np.ones(4))) for own in (left, right)])
        for _ in range(products)
    ]
    return builder.top(
        parts[0] if products == 1 else builder.sum(parts, rng.dirichlet(np.ones(products)))
    )


def _two_reversals() -> Floats:
    left = np.repeat([0.0, 1.0], 500)
    right = np.repeat([1.0, 0.0], [300, 700])
    return _some_missing(np.stack([left, right], axis=1))


def two_groups_reverse(root: str) -> Case:
    """Two groups of chains apart, reversed at different slices; they meet in the top."""
    builder = NetworkBuilder(schema_of(("ternary", "ternary")))
    left, right = builder.inputs(4), builder.inputs(4)
    outputs = [*_chain(builder, 0, left), *_chain(builder, 1, right)]
    top = _two_group_top(builder, 3)
    return assemble(builder.template(outputs), top, root=root), _two_reversals()  # type: ignore[arg-type]


def swapping_groups_reverse(root: str) -> Case:
    """As `two_groups_reverse`, each group reading the other's inputs."""
    builder = NetworkBuilder(schema_of(("ternary", "ternary")))
    left, right = builder.inputs(4), builder.inputs(4)
    outputs = [*_chain(builder, 0, right), *_chain(builder, 1, left)]
    top = _two_group_top(builder, 2)
    return assemble(builder.template(outputs), top, root=root), _two_reversals()  # type: ignore[arg-type]


def product_of_groups_reverses(root: str) -> Case:
    """One group multiplies both, the other begins afresh at every slice."""
    builder = NetworkBuilder(schema_of(("ternary", "ternary")))
    left, right = builder.inputs(4), builder.inputs(4)
    rng = np.random.default_rng(5)
    outputs = [
        builder.product(
            [
                builder.leaf(0, LIKES[state]),
                builder.sum(left, APART[state]),
                builder.sum(right, rng.dirichlet(np.ones(4))),
            ]
        )
        for state in range(4)
    ]
    outputs += [builder.leaf(1, LIKES[state]) for state in range(4)]
    top = _two_group_top(builder, 2)
    return assemble(builder.template(outputs), top, root=root), _two_reversals()  # type: ignore[arg-type]


def tiny_weights_inside_a_slice(root: str) -> Case:
    """A branch of weight 1e-200 over leaves of 1e-200 is the only one that explains some slices."""
    builder = NetworkBuilder(schema_of(("binary", "binary")))
    inputs = builder.inputs(2)
    outputs = []
    for stay in (0.9, 0.2):
        likely = builder.product([builder.leaf(0, [1.0, 0.0]), builder.leaf(1, [0.3, 0.7])])
        rare = builder.product(
            [builder.leaf(0, [1.0, 1e-200 * stay]), builder.leaf(1, [stay, 1 - stay])]
        )
        mixed = builder.sum([likely, rare], [1.0, 1e-200])
        outputs.append(builder.product([mixed, builder.sum(inputs, [stay, 1 - stay])]))
    cap = NetworkBuilder(builder.schema)
    top = cap.top(cap.sum(cap.inputs(2), [0.5, 0.5]))
    values = np.random.default_rng(6).integers(2, size=(300, 2)).astype(float)
    return assemble(builder.template(outputs), top, root=root), _some_missing(values)


def wide_sequence(root: str) -> Case:
    """Nothing extreme: a random template with 400 slices of its own."""
    network = random_network(random_recipe(33, root=root, kinds=("ternary", "continuous", "count")))
    return network, _some_missing(draw_sequence(network, 400, np.random.default_rng(7)), 0.2)


CASES = {
    build.__name__: build
    for build in (
        tiny_emissions,
        every_state_mismatches,
        every_state_mismatches_at_40_variables,
        late_contradiction,
        early_contradiction,
        reversal,
        narrow_bridge,
        far_outliers,
        counts_out_of_reach,
        two_groups_reverse,
        swapping_groups_reverse,
        product_of_groups_reverses,
        tiny_weights_inside_a_slice,
        wide_sequence,
    )
}

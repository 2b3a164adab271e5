from itertools import pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dspn import Model, Root, StructureError
from dspn.data import Schema, Variable
from dspn.plotting import plot_template, plot_unrolled
from dspn.plotting._graph import Mark, slice_number, unrolled_graph, unrolled_sizes
from dspn.structure import (
    DynamicNetwork,
    NetworkBuilder,
    Product,
    Sum,
    assemble,
    grouped_network,
    initial_network,
)
from dspn.structure.unroll import unroll
from networks import bits, delay_line, initial
from unit.plotting.figures import drawn


def _grouped(num_groups: int, size: int) -> DynamicNetwork:
    partition = [[v] for v in range(num_groups)]
    return grouped_network(bits(num_groups), partition, size, rng=np.random.default_rng(3))


SMALL = {
    "one node": (initial(1, 1), 1),
    "figure 2b": (initial(2, 2), 3),
    "groups": (_grouped(2, 3), 3),
    "delay line": (delay_line(2), 4),
}


def _words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def _bands(ax: Axes) -> list[float]:
    """Lower ends of the bands of slices."""
    return [float(patch.get_y()) for patch in ax.patches if patch.get_gid() == "slice"]


@pytest.mark.parametrize("name", SMALL)
def test_graph_is_the_unrolled_network(name: str) -> None:
    network, num_slices = SMALL[name]
    graph, highest = unrolled_graph(network, num_slices)
    static = unroll(network, num_slices)
    for mark, kind in ((Mark.SUM, Sum), (Mark.PRODUCT, Product)):
        drawn = sum(vertex.mark is mark for vertex in graph.vertices)
        assert drawn == sum(isinstance(node, kind) for node in static.nodes)
    weights = [weight for own in static.weights if own is not None for weight in own]
    shown = [edge.weight for edge in graph.edges if edge.weight is not None]
    np.testing.assert_allclose(sorted(shown), sorted(weights), rtol=1e-12)
    assert len(graph.vertices) == len(static.nodes)
    assert unrolled_sizes(network, num_slices) == (len(graph.vertices), len(graph.edges))
    numbers = [slice_number(network, level, num_slices) for level in range(len(highest))]
    assert numbers == list(range(num_slices))[::-1]


@pytest.mark.parametrize("name", SMALL)
def test_children_stand_below_parents_and_slices_do_not_overlap(name: str) -> None:
    graph, highest = unrolled_graph(*SMALL[name])
    rows = [vertex.row for vertex in graph.vertices]
    assert all(rows[edge.parent] > rows[edge.child] for edge in graph.edges)
    assert min(rows) == 0
    for lower, upper in pairwise(highest):
        assert sum(v.output is not None and lower < v.row <= upper for v in graph.vertices)


def test_bottom_has_weights_of_its_own_where_it_is_untied() -> None:
    builder = NetworkBuilder(bits(1))
    inputs = builder.inputs(1)
    states = [builder.leaf(0, [0.5, 0.5]), builder.leaf(0, [0.1, 0.9])]
    output = builder.product([builder.sum(states, [0.3, 0.7]), builder.sum(inputs, [1.0])])
    top = NetworkBuilder(builder.schema)
    network = assemble(builder.template([output]), top.top(top.sum(top.inputs(1), [1.0])))
    own = network.untied().parameters
    bottom = type(own.template)(own.template.weights[[1, 0, 2]], own.template.leaves)
    untied = network.with_parameters(type(own)(own.template, own.top, bottom))
    graph, _ = unrolled_graph(untied, 2)
    found = [edge.weight for edge in graph.edges if edge.weight not in (None, 1.0)]
    assert found == [0.7, 0.3, 0.3, 0.7]


@pytest.mark.parametrize("name", SMALL)
def test_every_node_edge_and_slice_is_drawn_when_small(name: str) -> None:
    network, num_slices = SMALL[name]
    ax = drawn(plot_unrolled(network, num_slices))
    graph, _ = unrolled_graph(network, num_slices)
    edges = next(item for item in ax.collections if item.get_gid() == "edges")
    assert len(edges.get_paths()) == len(graph.edges)
    circles = sum(
        len(item.get_offsets())
        for item in ax.collections
        if item.get_gid() in ("sum", "product", "input")
    )
    leaves = sum(text.get_gid() == "leaf" for text in ax.texts)
    assert circles + leaves == len(graph.vertices)
    assert len(_bands(ax)) == num_slices
    assert {f"slice {number}" for number in range(num_slices)} <= set(_words(ax))
    assert _words(ax).count("bottom\nnetwork") == 1
    assert "top network" in _words(ax)


@pytest.mark.parametrize(("root", "upper"), [(Root.FIRST, "slice 0"), (Root.LAST, "slice 2")])
def test_slice_under_the_top_network_is_that_of_the_root(root: Root, upper: str) -> None:
    plain = initial(2, 2)
    network = DynamicNetwork(plain.template, plain.top, plain.parameters, root)
    ax = plot_unrolled(network, 3)
    slices = [text for text in ax.texts if text.get_text().startswith("slice ")]
    assert max(slices, key=lambda text: text.get_position()[1]).get_text() == upper


def test_outputs_of_one_slice_stand_below_those_of_the_next() -> None:
    network = initial(3, 3)
    ax = plot_unrolled(network, 3)
    products = next(item for item in ax.collections if item.get_gid() == "product")
    places = np.asarray(products.get_offsets()).reshape(3, 3, 2)
    step = np.diff(places[0, :, 0]).min()
    assert np.abs(places - places[:1])[:, :, 0].max() < 0.35 * step


@pytest.mark.parametrize(
    ("network", "num_slices", "shown"),
    [
        (initial(13, 64), 3, 3),
        (initial(2, 2), 60, 4),
        (_grouped(9, 12), 300, 4),
        (delay_line(60), 5, 5),
    ],
)
def test_blocks_stand_for_slices_when_large(
    network: DynamicNetwork, num_slices: int, shown: int
) -> None:
    ax = drawn(plot_unrolled(network, num_slices))
    assert all(item.get_gid() != "edges" for item in ax.collections)
    assert len(_bands(ax)) == shown
    words = _words(ax)
    assert f"slice {num_slices - 1}" in words
    assert ("… 296 more\nslices" in words) == (num_slices == 300)
    assert f"{len(network.groups[0])} interfaces" in words
    assert len(ax.texts) + len(ax.patches) < 200


def test_blocks_count_the_nodes_of_bottom_and_template() -> None:
    words = _words(plot_unrolled(initial(13, 64), 3))
    assert words.count("832 leaves, 64 products, 64 sums") == 2
    assert words.count("832 leaves, 64 products") == 1


def test_counts_are_named_in_the_title() -> None:
    title = plot_unrolled(initial(2, 2), 3).get_title(loc="left")
    assert title == "Unrolled over 3 slices: 23 nodes, 26 edges"
    assert (
        plot_unrolled(initial(1, 1), 1).get_title(loc="left").startswith("Unrolled over 1 slice:")
    )


@pytest.mark.parametrize("plot", [plot_template, plot_unrolled])
def test_mixture_shows_its_heaviest_component_unless_another_is_asked(
    plot: object, mixture: Model
) -> None:
    assert callable(plot)
    for given in (mixture, mixture.mixture):
        assert "component 1 of 3, weight 0.6:" in plot(given).get_title(loc="left")
    ax = plot(mixture, component=0)
    assert "component 0 of 3, weight 0.3:" in ax.get_title(loc="left")
    alone = plot(mixture.components[0])
    assert "component" not in alone.get_title(loc="left")
    assert _words(ax) == _words(alone)


@pytest.mark.parametrize("plot", [plot_template, plot_unrolled])
def test_every_model_is_drawn(plot: object, model: Model) -> None:
    assert callable(plot)
    drawn(plot(model))


@pytest.mark.parametrize("component", [3, -1, 1.0])
def test_component_that_does_not_exist_is_refused(component: int, mixture: Model) -> None:
    with pytest.raises(StructureError, match="`component` must be a"):
        plot_template(mixture, component=component)


@pytest.mark.parametrize("num_slices", [0, -1, 2.0])
def test_impossible_number_of_slices_is_refused(num_slices: int) -> None:
    with pytest.raises(StructureError, match="`num_slices` must be a whole number"):
        plot_unrolled(initial(1, 1), num_slices)


def test_something_else_is_refused_with_a_hint() -> None:
    with pytest.raises(
        StructureError, match=r"`network` must be a Model, .* found str; .* `model_`"
    ):
        plot_unrolled("model")  # type: ignore[arg-type]


def test_given_axes_are_returned_and_their_figure_is_kept() -> None:
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    assert plot_unrolled(initial(2, 2), 2, axes[0]) is axes[0]
    assert plot_unrolled(initial(13, 64), 2, axes[1]) is axes[1]
    FigureCanvasAgg(figure).draw()
    assert figure.axes == list(axes)
    assert tuple(figure.get_size_inches()) == (9.0, 4.0)


def test_names_with_dollar_signs_and_great_length_are_drawn() -> None:
    schema = Schema((Variable.binary("price $_0 in US$"), Variable.continuous("n" * 200)))
    for size in (2, 90):
        drawn(plot_unrolled(initial_network(schema, size, rng=np.random.default_rng(0)), 2))

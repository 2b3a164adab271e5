import subprocess
import sys

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from dspn.data import Schema, Variable
from dspn.plotting import plot_template
from dspn.plotting._blocks import mix_picture, summarise
from dspn.plotting._graph import Mark, Rows, capped_graph, layered, stacked_graph, template_graph
from dspn.structure import (
    DynamicNetwork,
    Interface,
    NetworkBuilder,
    assemble,
    grouped_network,
    initial_network,
    mixture_top,
    product_of_naive_bayes,
)
from networks import bits, delay_line, initial
from unit.plotting.figures import drawn


def _grouped() -> DynamicNetwork:
    rng = np.random.default_rng(1)
    return grouped_network(bits(4), [[0, 1], [2, 3]], [3, 2], num_products=2, rng=rng)


def _deep(num_interfaces: int) -> DynamicNetwork:
    """Naive Bayes blocks with and without the interface: nodes in every part of the template."""
    rng = np.random.default_rng(2)
    builder = NetworkBuilder(bits(5))
    inputs = Interface(tuple(builder.inputs(num_interfaces)))
    partition = [[0, 1], [2, inputs], [3], [4]]
    outputs = [product_of_naive_bayes(builder, partition, rng) for _ in inputs.inputs]
    top = mixture_top(builder.schema, np.full(num_interfaces, 1.0 / num_interfaces))
    return assemble(builder.template(outputs), top)


def _shared() -> DynamicNetwork:
    """Two outputs share a leaf, and one weight is 0."""
    builder = NetworkBuilder(bits(2))
    inputs = builder.inputs(2)
    both = builder.leaf(0, [0.3, 0.7])
    mixes = [builder.sum(inputs, [1.0, 0.0]), builder.sum(inputs, [0.25, 0.75])]
    outputs = [builder.product([both, builder.leaf(1, [0.5, 0.5]), mix]) for mix in mixes]
    return assemble(builder.template(outputs), mixture_top(builder.schema, [0.5, 0.5]))


SMALL = {
    "one interface": initial(1, 1),
    "figure 2a": initial(3, 2),
    "groups": _grouped(),
    "deep": _deep(3),
    "shared": _shared(),
    "delay line": delay_line(2),
    "narrow columns": initial(13, 8),
}
LARGE = {
    "one group": initial(13, 64),
    "deep": _deep(20),
    "many variables": initial(40, 8),
    "many groups": grouped_network(
        bits(9), [[v] for v in range(9)], 12, rng=np.random.default_rng(3)
    ),
    "delay line": delay_line(60),
}


def _collection(ax: Axes, gid: str) -> PathCollection | None:
    found = [item for item in ax.collections if item.get_gid() == gid]
    assert len(found) <= 1
    return found[0] if found else None


def _count(ax: Axes, mark: Mark) -> int:
    if mark is Mark.LEAF:
        return sum(text.get_gid() == "leaf" for text in ax.texts)
    collection = _collection(ax, mark.value)
    return 0 if collection is None else len(collection.get_offsets())


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("top", [False, True])
def test_every_node_and_edge_is_drawn_when_small(name: str, top: bool) -> None:
    network = SMALL[name]
    ax = plot_template(network, top=top)
    drawn(ax)
    nodes = list(network.template.nodes)
    num_edges = network.template.num_edges
    if top:
        nodes += [node for node in network.top.nodes if type(node).__name__ != "Input"]
        num_edges += sum(len(getattr(node, "children", ())) for node in network.top.nodes)
    for mark in Mark:
        expected = sum(type(node).__name__.lower() == mark.value for node in nodes)
        assert _count(ax, mark) == expected
    edges = _collection(ax, "edges")
    assert edges is not None
    assert len(edges.get_paths()) == num_edges


@pytest.mark.parametrize("name", SMALL)
def test_everything_lies_inside_the_axes_and_no_two_marks_coincide(name: str) -> None:
    ax = plot_template(SMALL[name], top=True)
    (left, right), (bottom, upper) = ax.get_xlim(), ax.get_ylim()
    places = [
        tuple(place)
        for mark in (Mark.INPUT, Mark.SUM, Mark.PRODUCT)
        if (collection := _collection(ax, mark.value)) is not None
        for place in np.asarray(collection.get_offsets()).round(3)
    ]
    assert len(set(places)) == len(places)
    assert all(left < x < right and bottom < y < upper for x, y in places)


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("top", [False, True])
def test_blocks_stand_for_nodes_when_large(name: str, top: bool) -> None:
    network = LARGE[name]
    ax = plot_template(network, top=top)
    drawn(ax)
    assert _collection(ax, "edges") is None
    assert any(patch.get_gid() == "top" for patch in ax.patches) == top
    words = [text.get_text() for text in ax.texts]
    first = len(network.groups[0])
    assert f"{first} inputs" in words
    assert f"{first} outputs" in words
    assert len(ax.texts) + len(ax.patches) < 400


def test_counts_are_named_in_the_title() -> None:
    expected = "Template: 3 variables, 2 interfaces, 1 group, 12 nodes, 12 edges"
    assert plot_template(SMALL["figure 2a"]).get_title(loc="left") == expected
    title = plot_template(LARGE["one group"]).get_title(loc="left")
    assert "64 interfaces" in title
    assert "1,024 nodes" in title


def test_large_summary_names_leaves_by_variable_and_the_size_of_the_mix() -> None:
    words = [text.get_text() for text in plot_template(LARGE["one group"]).texts]
    assert "64 × 64 mix" in words
    assert "832 leaves" in words
    assert words.count("64") == 13
    assert {f"x{number}" for number in range(13)} <= set(words)


def test_variables_beyond_the_list_are_added_up() -> None:
    words = [text.get_text() for text in plot_template(LARGE["many variables"]).texts]
    assert "… 25 more" in words
    assert "200" in words


def test_groups_beyond_the_fourth_are_counted() -> None:
    words = [text.get_text() for text in plot_template(LARGE["many groups"]).texts]
    assert {"6 more groups", "72 outputs", "72 inputs", "72 leaves", "72 × 72 mix"} <= set(words)


def test_summary_counts_every_node_once_when_there_is_one_group() -> None:
    network = LARGE["deep"]
    summary = summarise(network, [0])
    counted = (
        summary.num_inputs
        + sum(summary.outputs.values())
        + sum(summary.leaves.values())
        + sum(summary.alone.values())
        + len(summary.mixes)
        + sum(summary.joining.values())
    )
    assert counted == len(network.template.nodes)


def test_mix_picture_is_the_weight_matrix_when_it_fits() -> None:
    network = LARGE["one group"]
    picture = mix_picture(network, summarise(network, [0]).mixes)
    weights = network.parameters.template.weights.reshape(64, 64)
    np.testing.assert_allclose(picture, weights, rtol=1e-12)


def test_mix_picture_keeps_the_mean_weight_when_it_is_coarser() -> None:
    network = initial(1, 300)
    picture = mix_picture(network, summarise(network, [0]).mixes)
    assert picture.shape == (128, 128)
    np.testing.assert_allclose(picture.mean(), 1.0 / 300, rtol=0.02)


def test_wider_line_for_larger_weight_and_dotted_line_for_zero() -> None:
    network = SMALL["shared"]
    ax = plot_template(network)
    edges = _collection(ax, "edges")
    assert edges is not None
    weights = [edge.weight for edge in template_graph(network).edges if edge.weight is not None]
    widths = np.asarray(edges.get_linewidths())
    assert widths.max() > 3 * widths.min()
    dotted = [style for _, style in edges.get_linestyles() if style is not None]
    assert len(dotted) == weights.count(0.0) == 1


def test_inputs_are_in_the_lowest_row_and_outputs_in_the_highest() -> None:
    for network in SMALL.values():
        graph = template_graph(network)
        rows = [vertex.row for vertex in graph.vertices]
        assert all(v.row == 0 for v in graph.vertices if v.mark is Mark.INPUT)
        assert all(v.row == graph.top_row for v in graph.vertices if v.output is not None)
        assert all(rows[edge.parent] > rows[edge.child] for edge in graph.edges)


def test_sweeps_never_add_crossings() -> None:
    for network in SMALL.values():
        rows = Rows(capped_graph(network))
        before = rows.crossings(rows.rows)
        assert rows.crossings(rows.ordered()) <= before


def test_crossings_are_removed_where_none_is_needed() -> None:
    builder = NetworkBuilder(bits(2))
    inputs = builder.inputs(2)
    crossed = [builder.sum([inputs[1]], [1.0]), builder.sum([inputs[0]], [1.0])]
    leaves = [(builder.leaf(0, [0.5, 0.5]), builder.leaf(1, [0.5, 0.5])) for _ in range(2)]
    outputs = [builder.product([*own, mix]) for own, mix in zip(leaves, crossed, strict=True)]
    network = assemble(builder.template(outputs), mixture_top(builder.schema, [0.5, 0.5]))
    rows = Rows(template_graph(network))
    assert rows.crossings(rows.rows) == 1
    assert rows.crossings(rows.ordered()) == 0


def test_stacks_hold_each_own_leaf_once() -> None:
    graph = template_graph(SMALL["narrow columns"])
    stacked = stacked_graph(graph)
    names = sorted(name for vertex in stacked.vertices for name in vertex.names)
    assert names == sorted(name for vertex in graph.vertices for name in vertex.names)
    assert len(stacked.edges) == len(graph.edges)
    assert layered(stacked).num_columns < layered(graph).num_columns


def test_given_axes_are_returned_and_their_figure_is_kept() -> None:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    assert plot_template(SMALL["groups"], axes[0]) is axes[0]
    assert plot_template(LARGE["one group"], axes[1], top=True) is axes[1]
    FigureCanvasAgg(figure).draw()
    assert figure.axes == list(axes)
    assert tuple(figure.get_size_inches()) == (8.0, 4.0)


def test_own_figure_is_1200_pixels_wide() -> None:
    for network in (SMALL["figure 2a"], SMALL["narrow columns"], LARGE["many groups"]):
        figure = plot_template(network).get_figure(root=True)
        assert figure is not None
        assert round(figure.get_figwidth() * figure.dpi) == 1200


def test_names_with_dollar_signs_and_great_length_are_drawn() -> None:
    schema = Schema((Variable.binary("price $_0 in US$"), Variable.continuous("n" * 200)))
    drawn(plot_template(initial_network(schema, 3, rng=np.random.default_rng(0))))
    drawn(plot_template(initial_network(schema, 90, rng=np.random.default_rng(0))))


def test_settings_of_matplotlib_are_left_alone() -> None:
    before = dict(rcParams)
    plot_template(SMALL["groups"], top=True)
    assert dict(rcParams) == before


def test_pyplot_is_not_imported() -> None:
    program = (
        "import sys, numpy as np\n"
        "from dspn.plotting import plot_template\n"
        "from dspn.data import Schema, Variable\n"
        "from dspn.structure import initial_network\n"
        "schema = Schema((Variable.binary('x'),))\n"
        "plot_template(initial_network(schema, 2, rng=np.random.default_rng(0)))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_open_figures_of_pyplot_stay_open_and_current() -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    own = pyplot.figure()
    try:
        plot_template(SMALL["figure 2a"])
        plot_template(SMALL["figure 2a"], own.subplots())
        assert pyplot.get_fignums() == [own.number]
        assert pyplot.gcf() is own
    finally:
        pyplot.close(own)

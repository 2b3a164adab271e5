import base64
import json
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dspn.data import Schema, Sequences, Variable
from dspn.report import report_html
from dspn.report._facts import (
    LEVELS,
    MAX_NODES,
    MOST_ROWS,
    drawn_template,
    group_members,
    interface_rows,
    json_text,
    make_records,
    most_surprising,
    record_sizes,
    usual_surprises,
)
from dspn.report.page import MODULES, asset, filled, joined_script, summary_html
from dspn.structure import initial_network
from unit.report.cases import MIXED, mixed_data, mixed_model, mixed_networks
from unit.report.reading import facts_of, numbers_of


def _lengths(*lengths: int) -> Sequences:
    schema = Schema((Variable.continuous("x"),))
    return Sequences.from_arrays([np.zeros((length, 1)) for length in lengths], schema=schema)


# The choice


def test_the_most_surprising_per_slice_come_first() -> None:
    data = _lengths(2, 4, 1, 1)
    shown, per_slice = most_surprising(np.array([-2.0, -12.0, -np.inf, 0.5]), data, 0, None)
    assert shown.tolist() == [2, 1, 0, 3]
    assert_allclose(per_slice, [1.0, 3.0, np.inf, -0.5], rtol=1e-15)


def test_no_more_sequences_are_chosen_than_asked_for() -> None:
    shown, _ = most_surprising(-np.arange(4.0), _lengths(1, 1, 1, 1), 5, 2)
    assert shown.tolist() == [3, 2]


def test_the_room_of_a_page_bounds_the_number() -> None:
    data = _lengths(*[50] * 40)
    few, _ = most_surprising(-np.arange(40.0), data, 10, None, room=20_000)
    assert 1 < few.size < 40
    one, _ = most_surprising(-np.arange(40.0), data, 10, None, room=1)
    assert one.tolist() == [39]


def test_the_estimated_size_bounds_the_true_one() -> None:
    model = mixed_model()
    data = mixed_data(model)
    records = make_records(model, data, 10, None)
    sizes = np.array([len(text) for text in records.texts])
    estimates = record_sizes(data[records.shown], 10)
    assert np.all(sizes <= estimates)
    assert estimates.sum() < 2 * sizes.sum()


# Interface rows


@pytest.mark.parametrize("sizes", [[3], [12], [40], [2, 30], [5] * 6, [1] * 9, [40] * 20])
def test_rows_are_few_and_each_group_shown_adds_up_to_one(sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.dirichlet(np.ones(size), 7) for size in sizes]
    ends = np.cumsum(sizes)
    groups = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    rows, probabilities = interface_rows(np.hstack(parts), groups)
    assert len(rows) <= MOST_ROWS
    shown = np.unique(rows[:, 0])
    assert shown.tolist() == list(range(min(len(sizes), 6)))
    for group in shown:
        own = rows[:, 0] == group
        assert rows[own, 2].sum() == sizes[group]
        assert_allclose(probabilities[:, own].sum(axis=1), 1.0, rtol=1e-12)


def test_the_nodes_with_the_most_mass_have_rows_of_their_own() -> None:
    posteriors = np.full((4, 30), 1e-3)
    heavy = np.arange(2, 30, 3)[:9]
    posteriors[:, heavy] = 0.1
    rows, _ = interface_rows(posteriors, [np.arange(30)])
    assert set(heavy.tolist()) <= set(rows[:, 1].tolist())
    assert rows[-1].tolist() == [0, 65535, 19]


# The template


def test_every_node_and_edge_of_a_small_template_is_drawn() -> None:
    for network in mixed_networks():
        drawing = drawn_template(network)
        assert drawing["style"] == "graph"
        count = len(network.template.nodes)
        assert len(drawing["nodes"]) > count
        weights = [edge[2] for edge in drawing["edges"] if edge[0] < count and edge[2] is not None]
        assert_allclose(weights, network.parameters.template.weights, rtol=1e-15)
        leaves = [node for node in drawing["nodes"] if node["kind"] == "leaf"]
        assert {node["variable"] for node in leaves} == set(range(4))
        assert all(node["scope"] == [[node["variable"]], []] for node in leaves)
        outputs = [node for node in drawing["nodes"] if "output" in node]
        assert len(outputs) == network.num_interfaces
        json.dumps(drawing)


def test_a_bottom_network_with_its_own_parameters_is_told() -> None:
    network = mixed_networks()[0].untied()
    drawing = drawn_template(network)
    leaves = [node for node in drawing["nodes"] if node["kind"] == "leaf"]
    assert all(node["bottom"] == node["parameters"] for node in leaves)
    assert all(edge[4] == edge[2] for edge in drawing["edges"][: network.template.num_edges])


def test_a_large_template_becomes_blocks() -> None:
    network = initial_network(MIXED, 60, rng=np.random.default_rng(0))
    assert len(network.template.nodes) > MAX_NODES
    drawing = drawn_template(network)
    assert drawing["style"] == "blocks"
    assert [leaves["count"] for leaves in drawing["leaves"]] == [60] * 4
    assert drawing["groups"][0]["inputs"] == 60
    assert len(json_text(drawing)) < 20_000


def test_groups_say_their_variables_and_sources() -> None:
    first, second = group_members(mixed_networks()[1])
    assert (first["variables"], second["variables"]) == ([0, 1], [2, 3])
    assert first["size"] == second["size"] == 2


# The order column


def test_order_texts_stand_once_and_are_found_by_slice() -> None:
    model = mixed_model()
    drawn = model.sample(3, [2, 3, 4], rng=np.random.default_rng(0)).to_table("pandas")
    drawn = drawn.rename(columns={"slice": "hour"})
    data = Sequences.from_table(drawn, sequence="sequence", order="hour", schema=MIXED)
    order = facts_of(report_html(model, data))["order"]
    assert order["name"] == "hour"
    assert sorted(order["texts"]) == ["0", "1", "2", "3"]
    codes = np.frombuffer(base64.b64decode(order["codes"]), "<u4")
    lengths = data.lengths[numbers_of(report_html(model, data))]
    expected = [str(hour) for length in lengths for hour in range(length)]
    assert [order["texts"][code] for code in codes] == expected


def test_data_without_an_order_column_have_no_order_texts() -> None:
    model = mixed_model()
    assert facts_of(report_html(model, mixed_data(model)))["order"] is None


def test_order_texts_count_in_the_room_of_a_page() -> None:
    data = mixed_data(mixed_model())
    named = data.to_table("pandas", order="hour")
    read = Sequences.from_table(named, sequence="sequence", order="hour", schema=MIXED)
    assert np.all(record_sizes(read, 0) > record_sizes(data, 0))


def test_bands_hold_four_fifths() -> None:
    assert LEVELS == (0.1, 0.5, 0.9)


# Words, text and assets


def test_the_summary_counts_what_is_there() -> None:
    model = mixed_model()
    data = mixed_data(model)
    text = summary_html(model, data, make_records(model, data, 0, 3))
    assert "A mixture of 2 dynamic sum-product networks over 4 variables" in text
    assert "shows the 3 most surprising sequences in full and leaves out the other 5" in text
    assert f"<dd>{data.total_slices}<small>" in text


def test_usual_surprise_is_the_median_of_what_is_known() -> None:
    surprises = np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan], [2.0, np.nan]])
    assert_array_equal(usual_surprises(surprises), [2.0, 0.0])


def test_json_cannot_end_the_element_it_stands_in() -> None:
    value = {"</script>": ["<!--", "&", "\u2028"]}
    text = json_text(value)
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == value


def test_what_is_filled_in_is_not_filled_again() -> None:
    assert filled("{{a}} {{b}}", {"a": "{{b}}", "b": "x"}) == "{{b}} x"


def test_modules_come_after_those_they_import() -> None:
    for place, name in enumerate(MODULES):
        imports = re.findall(r'from "\./([\w.]+)";', asset(name))
        assert set(imports) <= set(MODULES[:place]), name


def test_the_script_is_one_module_that_names_no_address() -> None:
    script = joined_script()
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert "</script" not in script.lower() and "<!--" not in script
    found = set(re.findall(r"https?://[^\"'\s]+", script + asset("style.css")))
    assert found == {"http://www.w3.org/2000/svg"}
    assert "innerHTML" not in script

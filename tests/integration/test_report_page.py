"""The page in a browser: it opens from a file, asks nobody for anything, and can be worked."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspn.data import Schema, Sequences, Variable
from dspn.models import Model
from dspn.report import write_report
from dspn.structure import Mixture, initial_network
from unit.report.cases import mixed_data, mixed_model, never_back

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_BROWSER = next((path for name in _NAMES if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(_BROWSER is None, reason="no Chromium is installed")

_ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=_BROWSER, args=_ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens a page; at the end nothing may have gone wrong, and nothing been asked for."""
    troubles: list[str] = []
    contexts = []

    def at(path: Path, *, width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: _note_request(request, troubles))
        page.goto(path.as_uri())
        page.wait_for_selector("#chosen-title")
        return page

    yield at
    for context in contexts:
        context.close()
    assert troubles == []


def _note_request(request: Any, troubles: list[str]) -> None:
    if not request.url.startswith(("file:", "data:")):
        troubles.append(f"request: {request.url}")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "small.html"
    model = mixed_model()
    write_report(model, mixed_data(model), path, title="Weather", steps=4)
    return path


def test_a_click_chooses_a_sequence_and_says_so(opened: Any, small: Path) -> None:
    page = opened(small)
    option = page.locator(".option").nth(2)
    name = option.locator("b").first.inner_text()
    option.click()
    page.wait_for_function(
        "name => document.getElementById('chosen-title').textContent === name", arg=name
    )
    assert page.locator(".option[aria-selected=true] > b").inner_text() == name
    assert name in page.locator("#live").text_content()


def test_the_order_is_that_of_surprise_per_slice(opened: Any, small: Path) -> None:
    model = mixed_model()
    data = mixed_data(model)
    order = np.argsort(model.log_likelihood(data) / data.lengths, kind="stable")
    page = opened(small)
    assert data.ids is not None
    assert page.locator(".option > b").all_inner_texts() == [data.ids[i] for i in order]
    page.select_option("#order", "as given")
    assert page.locator(".option > b").all_inner_texts() == list(data.ids)
    page.fill("#search", "DAY 3")
    assert page.locator(".option > b").all_inner_texts() == ["day 3"]
    assert page.locator("#found").inner_text() == "1 sequence of 8"


def test_the_list_obeys_the_arrow_keys(opened: Any, small: Path) -> None:
    page = opened(small)
    names = page.locator(".option > b").all_inner_texts()
    page.locator("#list").focus()
    for key, place in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", 7), ("Home", 0)):
        page.keyboard.press(key)
        wanted = "name => document.getElementById('chosen-title').textContent === name"
        page.wait_for_function(wanted, arg=names[place])
        assert page.locator("#list").get_attribute("aria-activedescendant") == f"option-{place}"


def test_pointing_at_a_node_tells_what_it_is(opened: Any, small: Path) -> None:
    page = opened(small)
    leaf = page.locator(".node[aria-label='Leaf of celsius']").first
    leaf.hover()
    panel = page.locator(".panel").inner_text()
    assert panel.startswith("Leaf of celsius") and "standard deviation" in panel
    assert page.locator("#tooltip").inner_text() == "Leaf of celsius"
    page.locator(".node[tabindex='0']").focus()
    before = page.locator(".panel").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator(".panel").inner_text() != before


def test_components_are_chosen_by_name(opened: Any, small: Path) -> None:
    page = opened(small)
    assert page.locator(".node[aria-label^='Input']").count() == 3
    page.select_option("#component", "1")
    assert page.locator(".node[aria-label^='Input']").count() == 4
    assert (
        "Group 1: 2 interface nodes over visitors, open" in page.locator("#template").inner_text()
    )


def test_a_cell_tells_the_exact_surprise(opened: Any, small: Path) -> None:
    model = mixed_model()
    data = mixed_data(model)
    page = opened(small)
    page.select_option("#order", "as given")
    page.locator(".option").nth(1).click()
    page.wait_for_function("() => document.getElementById('chosen-title').textContent === 'day 1'")
    surprises = model.surprise(data).variables[data.offsets[1] : data.offsets[2]]
    t, v = (int(found[0]) for found in np.nonzero(~np.isnan(surprises)))
    cursor = page.locator(".cursor")
    cursor.focus()
    for key in ["ArrowRight"] * t + ["ArrowDown"] * v:
        page.keyboard.press(key)
    said = cursor.get_attribute("aria-label")
    number = float(said.split("surprise ")[1].split(" ")[0].replace("\N{MINUS SIGN}", "-"))
    assert number == pytest.approx(surprises[t, v], rel=1e-6)
    assert cursor.evaluate("cell => cell === document.activeElement")
    page.locator("[role=grid] canvas").hover(position={"x": 4, "y": 4})
    assert page.locator("#tooltip").inner_text().startswith("sky, slice 0")


def test_the_table_holds_all_slices_and_the_forecast(opened: Any, small: Path) -> None:
    page = opened(small)
    page.locator("#chosen .as-table > summary").click()
    length = int(page.locator(".option[aria-selected=true] small").inner_text().split(" ")[0])
    assert page.locator("#chosen tbody tr").count() == length + 4
    first = page.locator("#chosen tbody tr").first.locator("td")
    assert first.count() == 1 + 4 + 1
    assert first.last.inner_text().startswith(("node ", "group "))


def test_data_come_before_the_template_and_values_before_surprise(opened: Any, small: Path) -> None:
    page = opened(small)
    sections = page.evaluate("[...document.querySelectorAll('section')].map(own => own.id)")
    assert sections == ["summary", "sequences", "template"]
    heads = page.locator("#chosen h4").all_inner_texts()
    said = ["Values and forecast of 4 slices", "Surprise of each slice", "Surprise of each entry"]
    assert heads == said
    posterior = page.locator("#chosen .posterior")
    assert posterior.get_attribute("open") is None
    posterior.locator("summary").click()
    page.locator(".option").nth(1).click()
    page.wait_for_function("() => document.querySelector('#chosen .posterior').open")
    assert "10 % to 90 %" in page.locator("#chosen").inner_text()


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sequences of 100 slices, one for each day from the end of a year on."""
    model = mixed_model()
    path = tmp_path_factory.mktemp("report") / "long.html"
    drawn = model.sample(2, 100, rng=np.random.default_rng(3)).to_table("pandas")
    days = np.datetime64("2023-12-01T00:00", "ns") + np.arange(100) * np.timedelta64(1, "D")
    drawn["slice"] = np.tile(days, 2)
    data = Sequences.from_table(
        drawn.rename(columns={"slice": "day"}),
        sequence="sequence",
        order="day",
        schema=model.schema,
    )
    write_report(model, data, path, steps=5)
    return path


_VIEW = """() => {
  const [panels, bar] = [document.getElementById("panels"), document.querySelector(".scroll-bar")];
  const most = panels.scrollWidth - panels.clientWidth;
  return [panels.scrollLeft, bar.scrollLeft, most, bar.scrollWidth - bar.clientWidth];
}"""


@pytest.mark.parametrize("width", [360, 950])
def test_all_charts_scroll_as_one_and_begin_at_the_end(opened: Any, long: Path, width: int) -> None:
    page = opened(long, width=width)
    at, bar_at, most, bar_most = page.evaluate(_VIEW)
    assert most > 100 and at == pytest.approx(most, abs=1) and bar_at == pytest.approx(at, abs=1)
    assert bar_most == pytest.approx(most, abs=1)
    scrolling = page.evaluate(
        "[...document.querySelectorAll('#chosen *')].filter(own => own.scrollWidth >"
        " own.clientWidth + 1 && ['auto', 'scroll'].includes(getComputedStyle(own).overflowX))"
        ".map(own => own.className)"
    )
    assert scrolling == ["panels", "scroll-bar"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_scroll_bar_obeys_the_keys_and_says_what_is_in_view(opened: Any, long: Path) -> None:
    page = opened(long, width=360)
    bar = page.get_by_role("scrollbar", name="Slices in view")
    bar.focus()
    assert bar.get_attribute("aria-valuetext").endswith("to 104 of 105")
    page.keyboard.press("Home")
    assert page.evaluate(_VIEW)[:2] == [0, 0]
    assert bar.get_attribute("aria-valuetext").startswith("slices 0 to")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(_VIEW)[0] > 0
    page.locator("#theme").click()
    assert 0 < page.evaluate(_VIEW)[0] < 50


def test_a_short_sequence_needs_no_scroll_bar(opened: Any, small: Path) -> None:
    page = opened(small)
    assert not page.locator(".dock").is_visible()


def test_slices_are_called_as_the_order_column_has_it(opened: Any, long: Path) -> None:
    page = opened(long)
    assert "day 2023-12-01 to 2024-03-09" in page.locator("#chosen .facts").inner_text()
    cursor = page.locator(".cursor")
    cursor.focus()
    page.keyboard.press("End")
    assert ", slice 99, day 2024-03-09: " in cursor.get_attribute("aria-label")
    page.keyboard.press("Home")
    assert ", slice 0, day 2023-12-01: " in cursor.get_attribute("aria-label")
    page.locator("#chosen .as-table > summary").click()
    first = page.locator("#chosen .as-table tbody tr").first
    first.wait_for()
    assert first.locator("th, td").all_inner_texts()[:2] == ["0", "2023-12-01"]
    page.get_by_role("button", name="Later").click()
    last = page.locator("#chosen .as-table tbody tr").last
    assert last.locator("th, td").all_inner_texts()[:3] == ["+5", "", "forecast"]


def test_dark_follows_the_system_and_the_switch(opened: Any, small: Path) -> None:
    page = opened(small, color_scheme="dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 24, 28)"
    page.locator("#theme").click()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [360, 800])
def test_a_narrow_page_does_not_scroll_sideways(opened: Any, small: Path, width: int) -> None:
    page = opened(small, width=width)
    page.locator("#chosen .as-table > summary").click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_landmarks_and_labels_are_there(opened: Any, small: Path) -> None:
    page = opened(small, reduced_motion="reduce")
    for tag in ("header", "nav", "main", "footer"):
        assert page.locator(tag).count() == 1
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select, [tabindex]')].filter(e =>"
        " !e.textContent.trim() && !e.getAttribute('aria-label') && !e.labels?.length).length"
    )
    assert nameless == 0
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_hostile_names_do_no_harm(opened: Any, tmp_path: Path) -> None:
    name = "</script><b>"
    schema = Schema((Variable.categorical(name, ["<img src=x onerror=alert(1)>", "b"]),))
    model = Model.from_hmm([1.0], [[1.0]], {name: [[0.5, 0.5]]}, schema=schema)
    ids = ["</script><script>alert(2)</script>"]
    data = Sequences.from_arrays([[["b"], [None]]], schema=schema, ids=ids)
    path = tmp_path / "hostile.html"
    write_report(model, data, path, title="<script>alert(3)</script>")
    page = opened(path)
    assert page.locator("#chosen-title").inner_text() == ids[0]
    assert page.locator("img").count() == 0
    assert page.title() == "<script>alert(3)</script>"
    page.locator("#chosen .as-table > summary").click()
    assert name in page.locator("#chosen thead").inner_text()


def test_an_impossible_sequence_is_shown_as_such(opened: Any, tmp_path: Path) -> None:
    model, data = never_back()
    path = tmp_path / "impossible.html"
    write_report(model, data, path)
    page = opened(path)
    assert "impossible, from slice 1 on" in page.locator("#chosen").inner_text()
    page.locator(".option").nth(1).click()
    page.wait_for_function(
        "() => document.getElementById('chosen-title').textContent === 'sequence 1'"
    )
    assert "impossible" not in page.locator("#chosen").inner_text()


def test_a_large_template_and_many_variables_are_summarised(opened: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    schema = Schema(tuple(Variable.binary(f"x{number}") for number in range(30)))
    networks = tuple(initial_network(schema, size, rng=rng) for size in (16, 2))
    model = Model(Mixture(networks, np.array([0.7, 0.3])))
    path = tmp_path / "large.html"
    write_report(model, model.sample(3, [1, 4, 300], rng=rng), path, steps=2)
    page = opened(path, width=360)
    assert page.locator(".block").count() == 1
    assert page.locator("[role=grid]").get_attribute("aria-rowcount") == "24"
    page.get_by_role("button", name="Show all variables").click()
    assert page.locator("[role=grid]").get_attribute("aria-rowcount") == "30"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_thousands_of_sequences_keep_few_elements(opened: Any, tmp_path: Path) -> None:
    schema = Schema((Variable.binary("x"), Variable.continuous("y")))
    model = Model(initial_network(schema, 2, rng=np.random.default_rng(0)))
    data = model.sample(5000, 3, rng=np.random.default_rng(1))
    path = tmp_path / "many.html"
    write_report(model, data, path, steps=1)
    page = opened(path)
    page.locator("#list").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    page.wait_for_selector(".option[aria-posinset='5000']")
    assert page.locator(".option").count() < 60

"""Every block of the README and the documentation runs and prints what the page says."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from scipy import stats

from contracts import test_leaf_contract as contract
from dspn.cli.app import app
from integration.docs_pages import NOT_RUN, Example, Session, agrees, examples, fenced_blocks

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("howto/*.md"))]
# Pages whose console blocks name commands that install, or that take hours.
FOR_READERS = {"README.md", "experiments.md"}


def run_here(page: Path) -> list[Example]:
    found = examples(page)
    if page.name in FOR_READERS:
        return [example for example in found if not example.is_command]
    return found


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=named(page)) for page in PAGES if run_here(page)]
)
def test_examples_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(page)
    for example in run_here(page):
        actual = session.run(example)
        if not example.said_by(actual):
            assert actual == example.printed, f"{page.name}, line {example.line}"


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", "docs/tutorial.md"])
def test_pages_for_beginners_have_examples(name: str) -> None:
    assert run_here(REPOSITORY / name)


def test_few_blocks_are_not_run() -> None:
    marked = [
        f"{named(page)}, line {block.first}"
        for page in PAGES
        for block in fenced_blocks(page.read_text(encoding="utf-8"))
        if NOT_RUN in block.words
    ]
    assert len(marked) <= 8, marked


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_have_no_open_marks(page: Path) -> None:
    assert "TODO" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("expected", "actual", "agree"),
    [
        ("a 1.2345 b\n", "a 1.2346 b\n", True),
        ("a 1.2345 b\n", "a 1.3 b\n", False),
        ("a 12 b\n", "a 13 b\n", False),
        ("first\n...\nlast\n", "first\nsecond\nthird\nlast\n", True),
        ("took ... s, 0.5\n", "took 3.25 s, 0.5\n", True),
        ("first\n...\n", "last\n", False),
    ],
)
def test_what_commands_say_is_compared_by_words_and_numbers(
    expected: str, actual: str, agree: bool
) -> None:
    assert agrees(expected, actual) is agree


def command_lines(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The command and all below it, as they are written."""
    yield " ".join(path)
    context = typer.Context(command)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from command_lines(command.get_command(context, name), (*path, name))


def test_the_reference_has_the_help_of_every_command() -> None:
    shown = {example.source for example in examples(DOCS / "cli.md")}
    wanted = {f"{line} --help" for line in command_lines(typer.main.get_command(app), ("dspn",))}
    assert wanted - shown == set()


@dataclass(frozen=True)
class Case(contract.Case):
    """Leaves of the family that `extending.md` writes."""

    @property
    def discrete(self) -> bool:
        return False


# These name the three families of the library one by one; and a trapezoidal sum is no match for
# a density that begins with a step.
OTHER_CLAUSES = {
    "test_log_prob_sums_to_one_over_the_support",
    "test_maximise_gives_the_priors_parameters_to_rows_without_weight",
    "test_mixture_quantiles_reach_the_ends_of_the_support_at_levels_0_and_1",
    "test_family_is_a_hashable_value_and_survives_json",
    "test_family_for_a_variable_is_that_of_its_kind",
}
CONTRACT = [
    clause
    for name, clause in inspect.getmembers(contract, inspect.isfunction)
    if name.startswith("test_") and name not in OTHER_CLAUSES
]


@pytest.fixture(scope="module")
def new_leaf() -> Case:
    page = DOCS / "extending.md"
    session = Session(page)
    session.run(next(one for one in examples(page) if "class Exponential" in one.source))
    family = session.namespace["Exponential"]()
    prior = session.namespace["ExponentialPrior"]
    means = [0.5, 2.0, 7.0]
    return Case(
        label="exponential",
        family=family,
        parameters=np.array(means)[:, np.newaxis],
        oracles=tuple(stats.expon(scale=mean) for mean in means),
        grid=np.concatenate([[0.0], np.geomspace(1e-7, 300.0, 40_000)]),
        impossible=(-1.0, -1e-9, np.inf, -np.inf),
        priors=(prior(), prior(2.0, 0.0), prior(7.0, 4.0)),
    )


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_the_leaf_of_the_page_on_extending_keeps_the_contract(clause: Any, new_leaf: Case) -> None:
    clause(new_leaf)

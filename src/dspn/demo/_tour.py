"""The stations of the demo in their order."""

from pathlib import Path

from rich.console import Console

from dspn.demo._files import show_files, write_files
from dspn.demo._house import SCHEMA, House, house, with_faults
from dspn.demo._learning import learned, show_blocks, show_scores
from dspn.demo._printing import entry, heading, table
from dspn.demo._questions import show_forecast, show_gap, show_surprise

_ROWS = 4


def _introduce(console: Console, example: House) -> None:
    data = example.training
    heading(console, "A house with ten sensors")
    missing = sum(float(values != values) for values in data.values.ravel()) / data.values.size
    console.print(
        f"{len(data)} recordings of {data.lengths.min()} to {data.lengths.max()} hours. Sensors "
        f"fail for hours at a time, so that {missing:.0%} of the entries are missing. All are "
        "drawn from a model that is known, so that every answer can be checked.\n"
    )
    shown = table(*SCHEMA.names, words=0)
    for values in data[0][:_ROWS]:
        cells = zip(values, SCHEMA, strict=True)
        shown.add_row(*(entry(value, variable.categories, 0) for value, variable in cells))
    console.print(shown)


def tour(console: Console, directory: Path) -> None:
    """The whole demo: text to the console, files to the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    example = house()
    _introduce(console, example)
    found = learned(console, example)
    show_scores(console, example, found)
    show_blocks(console, found.model)
    show_gap(console, example, found)
    show_forecast(console, example, found.model)
    fault = with_faults(example.new)
    show_surprise(console, example, fault, found.model)
    with console.status("Writing files"):
        files = write_files(directory, example, fault, found)
    show_files(console, directory, files)

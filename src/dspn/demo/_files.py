"""What the demo leaves behind: a page, a picture, the model and tables."""

import shutil
import sys
from pathlib import Path

import pyarrow as pa
from pyarrow import csv
from rich.console import Console
from rich.markup import escape

from dspn.data import Sequences
from dspn.demo._house import Fault, House
from dspn.demo._learning import Learned
from dspn.demo._picture import recording_figure
from dspn.demo._printing import heading, table
from dspn.plotting import plot_template
from dspn.report import write_report

_SHOWN = 8
_TITLE = "A house with ten sensors"


def _write_table(data: Sequences, path: Path) -> None:
    made: pa.Table = data.to_table("pyarrow", sequence="recording", order="hour")
    csv.write_csv(made, path)


def write_files(directory: Path, house: House, fault: Fault, found: Learned) -> dict[str, str]:
    """Writes everything; returns what each file is, by name."""
    model = found.model
    shown = fault.recordings[fault.best_first[:_SHOWN]]
    write_report(model, shown, directory / "report.html", title=_TITLE)
    recording_figure(model, *fault.plain).savefig(directory / "recording.png")
    drawn = plot_template(model).get_figure(root=True)
    assert drawn is not None
    drawn.savefig(directory / "template.png")
    model.save(directory / "house.dspn")
    _write_table(house.training, directory / "recordings.csv")
    _write_table(fault.recordings, directory / "new.csv")
    return {
        "report.html": "all of this as a page: open it in a browser",
        "recording.png": "gaps, forecast and surprise of one recording",
        "template.png": "the network of a slice that was learned",
        "house.dspn": "the model",
        "recordings.csv": "what it was learned from",
        "new.csv": "new recordings, each with the fault",
    }


def _command() -> str:
    """How the command line is called from here."""
    beside = Path(sys.executable).with_name("dspn")
    if shutil.which("dspn"):
        return "dspn"
    if not beside.exists():
        return "python -m dspn"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def show_files(console: Console, directory: Path, files: dict[str, str]) -> None:
    """Where everything is, and what to try next."""
    heading(console, "In your hands")
    shown = table("file", "what it is", words=2)
    for name, what in files.items():
        shown.add_row(escape(str(directory / name)), what)
    console.print(shown)
    dspn, model, data = _command(), directory / "house.dspn", directory / "new.csv"
    console.print("\nWhat to try next:\n")
    for line in (
        f"{dspn} inspect {model}",
        f"{dspn} surprise {model} {data} -s recording -t hour",
        f"{dspn} report {model} {data} -s recording -t hour -o mine.html",
        f"{dspn} fit yours.csv -s COLUMN -o yours.dspn",
    ):
        console.print(f"  [cyan]{escape(line)}[/]", soft_wrap=True)

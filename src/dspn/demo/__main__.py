"""Runs the demo: learn from recordings of a house, ask three questions, write files.

Text goes to the console and files to ./out/demo.
"""

import shutil
import sys
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from pyarrow import csv
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dspn._arguments import Bools, Floats
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.demo._house import AHEAD, AROUND, SCHEMA, WARM, Fault, House, house, with_faults
from dspn.errors import ModelFileError
from dspn.inference.marginals import Marginals
from dspn.models import DSPN, HMM, Model
from dspn.plotting._style import figure_of, note
from dspn.plotting._values import runs
from dspn.plotting.network import plot_template
from dspn.plotting.sequence import plot_forecast, plot_surprise
from dspn.report.page import write_report

_BAND: Final = (0.1, 0.9)
_SKY, _CELSIUS, _WIND = (SCHEMA.index(name) for name in ("sky", "celsius", "wind"))
_SKIES: Final = SCHEMA[_SKY].categories
_NUMBERS: Final = [number for number, v in enumerate(SCHEMA) if v.kind is Kind.CONTINUOUS]
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_ALARM: Final = "#a84300"
_TITLE: Final = "Gaps and the hours to come, each entry with its exact distribution given all seen"
_FILES: Final = {
    "report.html": "all of this as a page: open it in a browser",
    "recording.png": "gaps, forecast and surprise of one recording",
    "template.png": "the network of a slice that was learned",
    "house.dspn": "the model",
    "recordings.csv": "what it was learned from",
    "new.csv": "new recordings, each with the fault",
}


def main() -> int:
    """Runs the demo; the exit status is 1 where its files cannot be written, 130 after Ctrl-C."""
    console = Console(highlight=False)
    console.width = min(console.width, 80)
    directory = Path("out", "demo")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        example = house()
        _introduce(console, example)
        models = _learn(console, example)
        model, fault = models["DSPN"], with_faults(example)
        _show_scores(console, example, models)
        _show_gap(console, example, models)
        _show_forecast(console, example, model)
        _show_surprise(console, example, fault, model)
        _write_files(directory, example, fault, model)
        _show_files(console, directory)
    except (OSError, ModelFileError) as error:
        print(f"cannot write to {directory}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # as shells have it
    return 0


def _print_heading(console: Console, title: str, code: str = "") -> None:
    """A line across the console with the title at its left, and the call it is about below."""
    console.print()
    console.rule(f"[bold]{escape(title)}[/]", align="left")
    if code:
        console.print(f"[cyan]>>> {escape(code)}[/]\n", soft_wrap=True)


def _table(*headings: str, words: int = 1) -> Table:
    """A table whose first `words` columns are words and whose others are numbers.

    A column without a heading holds bars.
    """
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for number, title in enumerate(headings):
        left = number < words or not title
        made.add_column(title, justify="left" if left else "right", no_wrap=True)
    return made


def _bar(console: Console, length: float) -> str:
    """A bar that is as long as a number of characters, to an eighth where there are blocks."""
    if not console.encoding.startswith("utf"):
        return "#" * round(length)
    eighths = max(round(8 * length), 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _entry(value: float, categories: tuple[object, ...] = (), digits: int = 1) -> str:
    """A value as it is read, a dot where it is missing."""
    if np.isnan(value):
        return "."
    return str(categories[int(value)]) if categories else f"{value:.{digits}f}"


def _weather(values: Floats) -> tuple[str, str]:
    """Sky and wind of an hour."""
    return _entry(values[_SKY], _SKIES), _entry(values[_WIND], digits=0)


def _introduce(console: Console, example: House) -> None:
    data = example.training
    _print_heading(console, "A house with ten sensors")
    console.print(
        f"{len(data)} recordings of {data.lengths.min()} to {data.lengths.max()} hours. Sensors "
        f"fail for hours at a time, so that {np.isnan(data.values).mean():.0%} of the entries are "
        "missing. All are drawn from a model that is known, so that every answer can be checked.\n"
    )
    shown = _table(*SCHEMA.names, words=0)
    for values in data[0][:4]:
        shown.add_row(*(_entry(x, v.categories, 0) for x, v in zip(values, SCHEMA, strict=True)))
    console.print(shown)


def _learn(console: Console, example: House) -> dict[str, Model]:
    """The DSPN that is learned, and two models to compare it with, by name."""
    call = "model = dspn.DSPN(random_state=0).fit(recordings)"
    _print_heading(console, "Learn", call)
    with Console(stderr=True).status("trying models, keeping what pays") as status:
        learned = DSPN(n_jobs=2, random_state=0).fit(example.training)
        status.update("a hidden Markov model, to compare")
        hmm = HMM((4, 8, 16, 32, 64), random_state=0).fit(example.training)
        independent = HMM(1, random_state=0).fit(example.training)
    if learned.ending_ == "interrupted":
        console.print("Interrupted: what follows is about the best model so far.\n")
    models = {"DSPN": learned, f"HMM, {hmm.n_states_} states": hmm, "independent": independent}
    return {name: estimator.model_ for name, estimator in models.items()}


def _show_scores(console: Console, example: House, models: dict[str, Model]) -> None:
    """How near each model comes to the true one on new recordings, and the groups it has."""
    new = example.new
    every = {"true model": example.model, **models}
    scores = {name: own.log_likelihood(new).sum() / new.total_slices for name, own in every.items()}
    worst, best = scores["independent"], scores["true model"]
    shown = _table(f"{len(new)} new recordings", "nats an hour", "of the way", "")
    for name, score in scores.items():
        share = (score - worst) / (best - worst)
        cells = (f"{score:.2f}", f"{share:.0%}", _bar(console, 24 * share))
        shown.add_row(name, *cells, style="bold green" if name == "DSPN" else None)
    console.print(shown)
    learned = models["DSPN"]
    blocks = learned.components[int(np.argmax(learned.weights))].group_variables
    names = (", ".join(SCHEMA.names[number] for number in block) for block in blocks)
    console.print("\nNobody said which sensors belong together. It chose these blocks:\n")
    console.print("  " + "  |  ".join(names), soft_wrap=True)


def _inside(marginals: Marginals, truth: Sequences) -> Bools:
    """Whether the band of each continuous entry holds the truth."""
    low, high = np.concatenate([marginals[number].quantiles for number in _NUMBERS]).T
    values = [truth.values[marginals[number].slices, number] for number in _NUMBERS]
    inside: Bools = (low <= np.concatenate(values)) & (np.concatenate(values) <= high)
    return inside


def _turning_gap(data: Sequences) -> tuple[int, int, int]:
    """A gap of the thermometer in which the wind turns most, with sky and wind seen throughout.

    Returns the recording, the first hour of the gap and the hour after its last.
    """
    best, most = (0, 0, 0), -np.inf
    for number, values in enumerate(data):
        for first, last in zip(*runs(np.isnan(values[:, _CELSIUS])), strict=True):
            around = values[first:last, [_SKY, _WIND]]
            if 6 <= last - first <= 8 and np.isfinite(around).all():
                turn = abs(around[:3, 1].mean() - around[-3:, 1].mean())
                if turn > most:
                    best, most = (number, int(first), int(last)), turn
    return best


def _show_gap(console: Console, example: House, models: dict[str, Model]) -> None:
    """A dead thermometer, hour by hour, and all gaps together."""
    model, new, truth = models["DSPN"], example.new, example.truth
    number, first, last = _turning_gap(new)
    _print_heading(console, "A gap", "model.marginals(recording, quantiles=(0.1, 0.9))")
    console.print(
        f"The thermometer was dead for {last - first} hours in which the weather turned. What did "
        "it miss? The band has probability 0.8, computed exactly from all that the ten sensors "
        "showed before, meanwhile and after.\n"
    )
    one = new[number : number + 1]
    marginals = model.marginals(one, quantiles=_BAND)["celsius"]
    shown = _table("hour", "sky", "wind", "celsius", "band", "truth", words=2)
    for hour in range(first, last):
        row = int(np.searchsorted(marginals.slices, hour))
        low, high = marginals.quantiles[row]
        came = f"{truth[number][hour, _CELSIUS]:.1f}"
        told = (f"{marginals.mean[row]:.1f}", f"{low:.1f} to {high:.1f}", came)
        shown.add_row(str(hour), *_weather(one.values[hour]), *told)
    console.print(shown)
    held = _inside(model.marginals(new, quantiles=_BAND), truth)
    scale = np.nanstd(example.training.values, axis=0)
    lost = np.isnan(new.values[:, _NUMBERS])
    filled = [other.impute(new).values for other in (*models.values(), example.model)]
    off = [((values - truth.values) / scale)[:, _NUMBERS][lost] for values in filled]
    own, hmm, mean, best = (f"{np.sqrt((error**2).mean()):.2f}" for error in off)
    console.print(
        f"\nOf {held.size:,} numbers that were lost, the bands hold {held.mean():.1%}. Error of "
        f"what is filled in, in standard deviations: mean of the sensor {mean}, HMM {hmm}, "
        f"DSPN {own}, true model {best}."
    )


def _show_forecast(console: Console, example: House, model: Model) -> None:
    """The hours after a recording that ends in rain."""
    past = example.new.slices(None, -AHEAD)
    last = np.array([values[-4:, _SKY] for values in past])
    number = int(np.flatnonzero((last == 2).all(axis=1))[0])
    _print_heading(console, "A forecast", f"model.forecast(recording, steps={AHEAD})")
    skies = example.training.values[:, _SKY]
    share = float((skies == 2).sum() / np.isfinite(skies).sum())
    console.print(
        f"It has been raining. When will that end? On average it rains in {share:.0%} of hours.\n"
    )
    ahead = model.forecast(past, AHEAD, quantiles=_BAND).marginals
    rain, celsius = ahead["sky"].probabilities, ahead["celsius"].quantiles
    assert rain is not None
    shown = _table("hours ahead", "P(rain)", "", "celsius", "truth")
    for step in (1, 2, 3, 6, AHEAD):
        row = number * AHEAD + step - 1
        chance, (low, high) = float(rain[row, 2]), celsius[row]
        truth = example.truth[number][step - AHEAD - 1]
        came = f"{_weather(truth)[0]}, {truth[_CELSIUS]:.0f}"
        bar = _bar(console, 20 * chance)
        shown.add_row(str(step), f"{chance:.0%}", bar, f"{low:.0f} to {high:.0f}", came)
    console.print(shown)
    held = _inside(ahead, example.truth)
    console.print(
        f"\nOver the last {AHEAD} hours of all {len(past)} recordings, bands of 80 % hold "
        f"{held.mean():.1%} of {held.size:,} numbers."
    )


def _show_surprise(console: Console, example: House, fault: Fault, model: Model) -> None:
    """A reading that is ordinary by itself and does not fit."""
    one, at = fault.clearest
    _print_heading(console, "A surprise", "model.surprise(recording)")
    readings = example.training.values[:, _CELSIUS]
    assert one.ids is not None
    console.print(
        f"In a storm of recording {one.ids[0]} the thermometer shows {WARM:.0f} °C for an hour, "
        f"which is not rare: {np.nanmean(readings > WARM):.0%} of hours are warmer. But it does "
        "not fit. Surprise is -log P(reading | all other readings), in nats:\n"
    )
    surprise = model.surprise(one).variables[:, _CELSIUS]
    shown = _table("hour", "sky", "wind", "celsius", "surprise", "", words=2)
    for hour in range(max(at - AROUND, 0), min(at + AROUND + 1, len(surprise))):
        values, nats = one.values[hour], float(surprise[hour])
        bar = "" if np.isnan(nats) else _bar(console, nats / 0.8)
        cells = (*_weather(values), _entry(values[_CELSIUS]), _entry(nats), bar)
        shown.add_row(str(hour), *cells, style="bold red" if hour == at else None)
    console.print(shown)
    # In what share of the recordings no reading of the thermometer scores more than the fault.
    ways = [own.surprise(fault.recordings).variables for own in (model, example.model)]
    ways.append(np.abs(fault.recordings.values - np.nanmean(readings)))
    by_hour = [way[:, _CELSIUS].reshape(len(fault.hours), -1) for way in ways]
    largest = [np.nan_to_num(scores, nan=-np.inf).argmax(axis=1) for scores in by_hour]
    shares = [float((hours == fault.hours).mean()) for hours in largest]
    console.print(
        f"\nThe same fault in {len(fault.hours)} recordings is the most surprising reading of its "
        f"thermometer in {shares[0]:.0%} of them (true model {shares[1]:.0%}; distance from the "
        f"mean {shares[2]:.0%})."
    )


def _recording_figure(model: Model, recording: Sequences, fault: int) -> Figure:
    """P(entry | all that was seen) of gaps and of the hours to come, and -log P of what was seen.

    Both panels have the same hours below each other; the faulty reading is marked in both.
    """
    figure = Figure(figsize=(11.0, 8.0), dpi=160, layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=(2.1, 1.5))
    plot_forecast(model, recording, AHEAD, upper, variable=SCHEMA.names[:6])
    plot_surprise(model, recording, lower)
    for ax, title in ((upper, _TITLE), (lower, lower.get_title(loc="left"))):
        ax.set_title(title, loc="left", fontsize="medium", pad=19.0)
    upper.set_xlabel("")
    lower.set_xlabel("hour")
    inner = {own.get_gid(): own for ax in (upper, lower) for own in ax.child_axes}
    for panel in (lower, inner["slices"]):
        panel.set_xlim(upper.get_xlim())
    band, value = inner["celsius"], float(recording.values[fault, _CELSIUS])
    band.plot([fault], [value], "o", markersize=10.0, markerfacecolor="none", color=_ALARM)
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}
    style = {"color": _ALARM, "size": 9.0, "bbox": paper}
    note(band, (fault, value), (9.0, 0.0), f"{value:.0f} °C in a storm", **style)
    x, y = fault + np.array([-0.5, 0.5, 0.5, -0.5, -0.5]), np.array([-0.5, -0.5, 0.5, 0.5, -0.5])
    lower.plot(x, _CELSIUS + y, color=_ALARM, linewidth=1.6, zorder=7)
    return figure


def _write_files(directory: Path, example: House, fault: Fault, model: Model) -> None:
    shown = fault.recordings[fault.best_first[:8]]
    write_report(model, shown, directory / "report.html", title="A house with ten sensors")
    _recording_figure(model, *fault.clearest).savefig(directory / "recording.png")
    figure_of(plot_template(model)).savefig(directory / "template.png")
    model.save(directory / "house.dspn")
    for data, name in ((example.training, "recordings.csv"), (fault.recordings, "new.csv")):
        table = data.to_table("pyarrow", sequence="recording", order="hour")
        csv.write_csv(table, directory / name)


def _show_files(console: Console, directory: Path) -> None:
    """Where everything is, and what to try next."""
    _print_heading(console, "In your hands")
    shown = _table("file", "what it is", words=2)
    for name, what in _FILES.items():
        shown.add_row(escape(str(directory / name)), what)
    console.print(shown)
    command = "dspn"
    if not shutil.which("dspn"):
        beside, here = Path(sys.executable).with_name("dspn"), Path.cwd()
        path = beside.relative_to(here) if beside.is_relative_to(here) else beside
        command = str(path) if beside.exists() else "python -m dspn"
    model, data = directory / "house.dspn", directory / "new.csv"
    console.print("\nWhat to try next:\n")
    asked = f"{model} {data} -s recording -t hour"
    lines = (f"inspect {model}", f"surprise {asked}", f"report {asked} -o mine.html")
    for line in (*lines, "fit yours.csv -s COLUMN -o yours.dspn"):
        console.print(f"  [cyan]{escape(f'{command} {line}')}[/]", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())

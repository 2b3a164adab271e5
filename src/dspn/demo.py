"""A tour of the library in the terminal, and pictures in ./out: `python -m dspn.demo`.

A known network is compiled and sampled, part of the samples is hidden, and every answer about the
hidden part is compared with the truth. Nothing is measured with a clock and nothing depends on the
terminal: the same release prints the same text.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dspn._arrays import Bools, Floats
from dspn.datasets import WATER, water_model
from dspn.errors import ModelFileError
from dspn.models import Model, load
from dspn.plotting import plot_filtered, plot_template
from dspn.sequences import Sequences
from dspn.structure import initial_network

_CONCENTRATION: Final = 0.3
# Of the seeds 0 to 119 the one whose sensors tell the most about each other.
_TABLES_SEED: Final = 103
_DATA_SEED: Final = 1
# A stream whose fault is plain to see; `_show_detection` says how often that is so.
_STREAM_SEED: Final = 74

_NUM_SEQUENCES: Final = 200
_SHORTEST, _LONGEST = 20, 120
_HIDDEN_SHARE: Final = 0.3
_STEPS: Final = 10
_STREAM_SLICES: Final = 60
_ANOMALY: Final = 42
_WIDEST: Final = 100


@final
@dataclass(frozen=True, eq=False)
class _Example:
    """A model, sequences drawn from it, and the same sequences as they were seen."""

    model: Model
    truth: Sequences
    seen: Sequences

    @property
    def hidden(self) -> Bools:
        """Which entries are missing from `seen`."""
        return np.isnan(self.seen.values)

    @property
    def shares(self) -> Floats:
        """How often each sensor is 1 among the entries seen."""
        share: Floats = np.nanmean(self.seen.values, axis=0)
        return share


def _with_hidden(data: Sequences, rng: np.random.Generator) -> Sequences:
    hidden = rng.uniform(size=data.values.shape) < _HIDDEN_SHARE
    return data.with_values(np.where(hidden, np.nan, data.values))


def _example() -> _Example:
    model = water_model(np.random.default_rng(_TABLES_SEED), _CONCENTRATION)
    rng = np.random.default_rng(_DATA_SEED)
    lengths = rng.integers(_SHORTEST, _LONGEST + 1, size=_NUM_SEQUENCES)
    truth = model.sample(_NUM_SEQUENCES, lengths.tolist(), rng=rng)
    return _Example(model, truth, _with_hidden(truth, rng))


def _table(*headings: str, words: int = 1) -> Table:
    """A table whose first `words` columns are words and whose others are numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < words else "right")
    return table


def _heading(console: Console, title: str) -> None:
    console.print()
    console.rule(f"[bold]{title}[/]", align="left")
    console.print()


def _introduce(console: Console, example: _Example) -> None:
    template = example.model.network.template
    truth = example.truth
    _heading(console, "A model and sequences")
    console.print(
        f"The Water network has {len(WATER.sizes) - len(WATER.observed)} hidden nodes and "
        f"{len(WATER.observed)} sensors in each slice, all of them 0 or 1. Compiled, each of its "
        f"{template.num_interfaces} joint hidden states is an interface node of a template with "
        f"{template.num_edges:,} edges. Its tables are random but sharp; of 120 seeds this is the "
        "one whose sensors tell the most about each other."
    )
    console.print(
        f"\nDrawn from it: {len(truth)} sequences of {truth.lengths.min()} to "
        f"{truth.lengths.max()} slices, {truth.values.size:,} entries. Then "
        f"{example.hidden.sum():,} entries ({example.hidden.mean():.0%}) are hidden."
    )


def _independent(data: Sequences, shares: Floats) -> Floats:
    """Log-likelihood of each sequence if every entry were drawn by itself."""
    by_entry = np.where(data.values == 1, np.log(shares), np.log1p(-shares))
    observed = np.where(np.isnan(data.values), 0.0, by_entry).sum(axis=1)
    sums: Floats = np.add.reduceat(observed, data.offsets[:-1])
    return sums


def _show_likelihoods(console: Console, example: _Example) -> None:
    _heading(console, "How probable is what was seen?")
    console.print(
        "Log-likelihoods in nats, exact with any entries missing. The last column is for a model "
        "that knows how often each sensor is 1 and nothing else.\n"
    )
    whole = example.model.log_likelihood(example.truth)
    partial = example.model.log_likelihood(example.seen)
    alone = _independent(example.seen, example.shares)
    missing = np.add.reduceat(example.hidden.sum(axis=1), example.seen.offsets[:-1])
    table = _table("sequence", "slices", "hidden", "all entries", "those seen", "seen, independent")
    for number in range(5):
        row = (whole[number], partial[number], alone[number])
        length, gone = example.seen.lengths[number], missing[number]
        table.add_row(
            str(number), str(length), str(gone), *(f"{log_value:.1f}" for log_value in row)
        )
    table.add_section()
    totals = (f"{values.sum():,.1f}" for values in (whole, partial, alone))
    table.add_row(
        f"all {len(whole)}", f"{example.seen.total_slices:,}", f"{missing.sum():,}", *totals
    )
    console.print(table)


def _show_imputation(console: Console, example: _Example) -> None:
    _heading(console, "What was hidden?")
    console.print(
        "Every hidden entry is given the value that is most probable given all that was seen "
        "of its sequence, before and after. Share of hidden entries that are right:\n"
    )
    found = example.model.impute(example.seen).values == example.truth.values
    plain = np.round(example.shares) == example.truth.values
    table = _table("sensor", "hidden", "most frequent value", "dspn")
    for number, name in enumerate(example.truth.schema.names):
        at = example.hidden[:, number]
        table.add_row(
            name,
            f"{at.sum():,}",
            f"{plain[at, number].mean():.1%}",
            f"{found[at, number].mean():.1%}",
        )
    table.add_section()
    every = example.hidden
    table.add_row(
        "all", f"{every.sum():,}", f"{plain[every].mean():.1%}", f"{found[every].mean():.1%}"
    )
    console.print(table)
    _show_strip(console, example, sensor=1, sequence=2, slices=60)


def _show_strip(
    console: Console, example: _Example, *, sensor: int, sequence: int, slices: int
) -> None:
    """One sensor of one sequence, a character for each slice."""
    truth = example.truth[sequence][:slices, sensor].astype(int)
    hidden = np.isnan(example.seen[sequence][:slices, sensor])
    imputed = example.model.impute(example.seen[[sequence]]).values[:slices, sensor].astype(int)
    wrong = truth != imputed
    seen = "".join("." if gone else str(value) for value, gone in zip(truth, hidden, strict=True))
    shown = "".join(
        f"[{'red' if miss else 'green'}]{value}[/]" if gone else str(value)
        for value, gone, miss in zip(imputed, hidden, wrong, strict=True)
    )
    marks = "".join("x" if miss else " " for miss in wrong)
    name = example.truth.schema.names[sensor]
    console.print(
        f"\n{name} in the first {len(truth)} slices of sequence {sequence}; "
        f"{wrong.sum()} of {hidden.sum()} hidden entries are wrong:"
    )
    for label, line in (("seen", seen), ("imputed", shown), ("truth", "".join(map(str, truth)))):
        console.print(f"  {label:8} {line}", soft_wrap=True)
    if wrong.any():
        console.print(f"  {'wrong':8} {marks}", soft_wrap=True)


def _show_forecast(console: Console, example: _Example) -> None:
    _heading(console, "What comes next?")
    number = 0
    console.print(
        f"The last {_STEPS} slices of every sequence are held back and forecast from the entries "
        f"seen before them. Sequence {number}: probability that a sensor is 1, and in brackets "
        "what it was:\n"
    )
    names = example.truth.schema.names
    past = [sequence[:-_STEPS] for sequence in example.seen]
    future = np.stack([sequence[-_STEPS:] for sequence in example.truth])
    marginals = example.model.forecast(past, _STEPS).marginals
    # Entries run over sequences, and over steps within each.
    columns = [marginals[name].probabilities for name in names]
    is_one = np.stack([column[:, 1] for column in columns if column is not None], axis=-1)
    is_one = is_one.reshape(future.shape)
    table = _table("steps ahead", *names)
    for step in range(4):
        row = zip(is_one[number, step], future[number, step], strict=True)
        table.add_row(str(step + 1), *(f"{chance:.2f} ({value:.0f})" for chance, value in row))
    console.print(table)
    console.print()
    right = (is_one > 0.5) == future
    plain = np.round(example.shares) == future
    table = _table("right over all sequences", *(f"{steps} ahead" for steps in (1, 2, 5, 10)))
    for label, hits in (("most frequent value", plain), ("dspn", right)):
        shown = (hits[:, steps - 1].mean() for steps in (1, 2, 5, 10))
        table.add_row(label, *(f"{share:.1%}" for share in shown))
    console.print(table)


def _faulty_streams(model: Model, count: int, rng: np.random.Generator) -> Sequences:
    """New sequences, partly hidden, in each of which every sensor is wrong at one slice."""
    drawn = model.sample(count, _STREAM_SLICES, rng=rng)
    values = _with_hidden(drawn, rng).values.copy()
    at = drawn.offsets[:-1] + _ANOMALY
    values[at] = 1 - drawn.values[at]
    return drawn.with_values(values)


def _show_stream(console: Console, example: _Example, stream: Sequences) -> Floats:
    """Runs the filter over the stream and returns the surprise of every slice."""
    _heading(console, "Is something wrong?")
    console.print(
        f"A new stream of {_STREAM_SLICES} slices is read one slice at a time, {_HIDDEN_SHARE:.0%} "
        f"of it hidden. At slice {_ANOMALY} all sensors show the opposite of what they should; "
        "this stream was chosen because that is plain to see in it. The surprise of a slice is "
        "-log P(slice | the slices before it):\n"
    )
    watch = example.model.filter()
    surprise = np.array([watch.update(values).surprise for values in stream.values])
    block = "█" if console.encoding.startswith("utf") else "#"
    table = _table("slice", "sensors", "nats", "", words=2)
    table.columns[3].justify = "left"
    for number in range(_ANOMALY - 4, _ANOMALY + 5):
        style = "bold red" if number == _ANOMALY else None
        sensors = " ".join("." if np.isnan(v) else f"{v:.0f}" for v in stream.values[number])
        bar = block * round(4 * surprise[number])
        table.add_row(str(number), sensors, f"{surprise[number]:.1f}", bar, style=style)
    console.print(table)
    entries = example.model.surprise(stream).variables[_ANOMALY]
    console.print(
        f"\nThe sensor that fits least with everything else at slice {_ANOMALY} is "
        f"{stream.schema.names[int(entries.argmax())]} ({entries.max():.1f} nats). The surprises "
        f"of all slices add up to {surprise.sum():.4f} nats, the log-likelihood of the whole "
        f"stream is {example.model.log_likelihood(stream)[0]:.4f}."
    )
    return surprise


def _show_detection(console: Console, model: Model) -> None:
    """How often the fault stands out, over many streams."""
    streams = _faulty_streams(model, _NUM_SEQUENCES, np.random.default_rng(_DATA_SEED))
    surprise = model.surprise(streams).slices.reshape(len(streams), _STREAM_SLICES)
    rank = (surprise > surprise[:, [_ANOMALY]]).sum(axis=1)
    console.print(
        f"\nThe same fault in {len(streams)} other streams is the most surprising slice of "
        f"{(rank == 0).sum()} of them and among the first three of {(rank < 3).sum()}."
    )


def _write_files(
    directory: Path, example: _Example, stream: Sequences, surprise: Floats
) -> list[tuple[Path, str]]:
    """The pictures and the model; returns each file with what it shows."""
    model = example.model
    small = initial_network(model.schema, 3, rng=np.random.default_rng(0))
    files = [
        (directory / "water-template.png", "the Water template, summarised"),
        (directory / "small-template.png", "a template of three interface nodes, node by node"),
        (directory / "filtered-stream.png", "the stream, its hidden states and its surprises"),
        (directory / "water.dspn", "the model"),
    ]
    for (path, _), network in zip(files, (model.network, small), strict=False):
        figure = plot_template(network, top=True).get_figure(root=True)
        assert figure is not None
        figure.savefig(path)
    plot_filtered(
        stream.values,
        model.schema,
        surprise,
        model.interface_posteriors(stream),
        imputed=model.impute(stream).values,
        anomaly=_ANOMALY,
    ).savefig(files[2][0])
    model.save(files[3][0])
    return files


def _show_files(
    console: Console, example: _Example, stream: Sequences, surprise: Floats, directory: Path
) -> None:
    _heading(console, "Pictures and the model")
    files = _write_files(directory, example, stream, surprise)
    table = _table("file", "what it is", words=2)
    for path, what in files:
        table.add_row(escape(str(path)), what)
    console.print(table)
    console.print()
    again = load(files[-1][0]).log_likelihood(example.seen)
    same = np.array_equal(again, example.model.log_likelihood(example.seen))
    console.print(
        "Loaded back, the model gives "
        + ("the same log-likelihoods, bit for bit." if same else "OTHER log-likelihoods.")
    )


def tour(console: Console, directory: Path) -> None:
    """The whole demo: text to the console, files to the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    example = _example()
    _introduce(console, example)
    _show_likelihoods(console, example)
    _show_imputation(console, example)
    _show_forecast(console, example)
    stream = _faulty_streams(example.model, 1, np.random.default_rng(_STREAM_SEED))
    surprise = _show_stream(console, example, stream)
    _show_detection(console, example.model)
    _show_files(console, example, stream, surprise, directory)


def main() -> int:
    """Runs the tour; the exit status is 1 where ./out cannot be written."""
    console = Console(highlight=False)
    console.width = min(console.width, _WIDEST)
    try:
        tour(console, Path("out"))
    except (OSError, ModelFileError) as error:
        print(f"cannot write to ./out: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

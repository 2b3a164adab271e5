"""The pictures of the tour and the learned model."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape

from dspn._arrays import Floats
from dspn.demo._example import FAULT, Example
from dspn.demo._printing import heading, table
from dspn.models import DSPN, Model, load
from dspn.plotting import plot_filtered, plot_template
from dspn.plotting.learning_curve import plot_learning_curve
from dspn.sequences import Sequences


def _template_figure(model: Model) -> Figure:
    figure = plot_template(model.network, top=True).get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def _learning_figure(example: Example, estimator: DSPN) -> Figure:
    """The whole of learning and, where there was a search, the search enlarged."""
    score = float(example.true_model.log_likelihood(example.validation).mean())
    history = estimator.history_
    start = sum(report.stage == "growth" for report in history)
    parts = [history] if start == len(history) else [history, history[start - 1 :]]
    figure = Figure(figsize=(12.0, 4.4), dpi=100, layout="constrained")
    panels = figure.subplots(1, len(parts), squeeze=False)[0]
    for part, panel in zip(parts, panels, strict=True):
        plot_learning_curve(part, panel, references={"true model": score})
    return figure


def _stream_figure(model: Model, stream: Sequences, surprise: Floats) -> Figure:
    return plot_filtered(
        stream.values,
        model.schema,
        surprise,
        model.interface_posteriors(stream),
        imputed=model.impute(stream).values,
        anomaly=FAULT,
    )


def show_files(
    console: Console,
    directory: Path,
    example: Example,
    estimator: DSPN,
    stream: Sequences,
    surprise: Floats,
) -> None:
    """Writes the pictures and the model, and reads the model back."""
    heading(console, "Pictures and the model")
    model = estimator.model_
    pictures = (
        ("learned-template.png", "the learned template", _template_figure(model)),
        ("learning-curve.png", "how it was learned", _learning_figure(example, estimator)),
        (
            "filtered-stream.png",
            "the stream, its interface nodes and its surprises",
            _stream_figure(model, stream, surprise),
        ),
    )
    shown = table("file", "what it is", words=2)
    for name, what, figure in pictures:
        figure.savefig(directory / name)
        shown.add_row(escape(str(directory / name)), what)
    path = directory / "learned.dspn"
    model.save(path)
    shown.add_row(escape(str(path)), "the learned model")
    console.print(shown)
    console.print()
    again = load(path).log_likelihood(example.new.seen)
    same = np.array_equal(again, model.log_likelihood(example.new.seen))
    console.print(
        "Loaded back, the model gives "
        + ("the same log-likelihoods, bit for bit." if same else "OTHER log-likelihoods.")
    )

"""The stations of the tour in their order."""

from pathlib import Path

from rich.console import Console

from dspn.datasets import WATER
from dspn.demo._example import Example, faulty_stream, water_example
from dspn.demo._files import show_files
from dspn.demo._learning import learned, show_gaps
from dspn.demo._printing import heading
from dspn.demo._questions import show_forecast, show_imputation, show_likelihoods
from dspn.demo._watching import show_detection, show_stream


def _introduce(console: Console, example: Example) -> None:
    template = example.true_model.network.template
    given = example.given
    heading(console, "A model and sequences")
    console.print(
        f"The Water network has {len(WATER.sizes) - len(WATER.observed)} hidden nodes and "
        f"{len(WATER.observed)} sensors in each slice, all of them 0 or 1. Compiled, each of its "
        f"{template.num_interfaces} joint hidden states is an interface node of a template with "
        f"{template.num_edges:,} edges. Its tables are random but sharp; of 120 seeds this is the "
        "one whose sensors tell the most about each other."
    )
    console.print(
        f"\nDrawn from it: {len(given.truth)} sequences of {given.truth.lengths.min()} to "
        f"{given.truth.lengths.max()} slices, {given.truth.values.size:,} entries. Then "
        f"{given.hidden.sum():,} entries ({given.hidden.mean():.0%}) are hidden; what is left "
        f"is all that the learner is given. Another {len(example.new.truth)} sequences are drawn "
        "to ask about, and nothing is learned from them."
    )


def tour(console: Console, directory: Path) -> None:
    """The whole demo: text to the console, files to the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    example = water_example()
    _introduce(console, example)
    estimator = learned(console, example)
    model = estimator.model_
    show_gaps(console, example, model)
    show_likelihoods(console, example, model)
    show_imputation(console, example, model)
    show_forecast(console, example, model)
    stream = faulty_stream(example.true_model)
    surprise = show_stream(console, example, model, stream)
    show_detection(console, example, model)
    show_files(console, directory, example, estimator, stream, surprise)

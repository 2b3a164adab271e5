"""`dspn plot` and `dspn report`: pictures by name, and a page about a model and a table."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from typer import BadParameter

from dspn import plotting
from dspn.atomic import write_atomically
from dspn.cli import console, sink, source
from dspn.cli.options import Drawing, Reading, Unknown, check_extension
from dspn.data.cells import convertible
from dspn.data.layout import TableKeys
from dspn.data.sequences import Sequences
from dspn.errors import DataError
from dspn.models.model import Model

_STEPS: Final = 3


def _template(model: Model, _: Any, drawing: Drawing) -> Any:
    number = int(model.weights.argmax()) if drawing.component is None else drawing.component
    if number >= len(model.components):
        raise DataError(
            f"--component must be below {len(model.components)}, the number of networks of the "
            f"model, but is {number}."
        )
    return plotting.plot_template(model.components[number], top=True)


def _unrolled(model: Model, _: Any, drawing: Drawing) -> Any:
    return plotting.plot_unrolled(model, drawing.steps or _STEPS, component=drawing.component)


def _filtered(model: Model, data: Sequences, _: Drawing) -> Any:
    posterior = model.interface_posteriors(data) if len(model.components) == 1 else None
    surprise = model.surprise(data).slices
    imputed = model.impute(data).values
    return plotting.plot_filtered(data.values, model.schema, surprise, posterior, imputed=imputed)


def _surprise(model: Model, data: Sequences, drawing: Drawing) -> Any:
    """What is above the usual surprise of the whole table, in one sequence."""
    one = _pick(data, drawing.only)
    return plotting.plot_surprise(model, one, usual=model.surprise(data))


def _calibration(model: Model, data: Sequences, drawing: Drawing) -> Any:
    several = len(model.schema) > 1
    return plotting.plot_calibration(model, data, steps=drawing.steps or 1, by_variable=several)


# What is drawn, and of what.
_MODEL, _ONE, _ALL = "the model", "a sequence", "all sequences"
_PICTURES: Final[dict[str, tuple[Callable[[Model, Any, Drawing], Any], str]]] = {
    "template": (_template, _MODEL),
    "unrolled": (_unrolled, _MODEL),
    "filtered": (_filtered, _ONE),
    "interface": (lambda m, d, o: plotting.plot_interface(m, d, component=o.component), _ONE),
    "surprise": (_surprise, _ALL),
    "imputed": (lambda m, d, _: plotting.plot_imputed(m, d), _ONE),
    "forecast": (lambda m, d, o: plotting.plot_forecast(m, d, o.steps or _STEPS), _ONE),
    "calibration": (_calibration, _ALL),
    "inputs": (lambda m, d, _: plotting.plot_input_effect(m, d), _ALL),
}


def _read_sequences(
    model: Model, data: str, read: Reading, unknown: Unknown, *, quiet: bool
) -> Sequences:
    """All sequences of a table, with the values of the order column, which axes show."""
    with source.open_table(data, read) as table:
        ((chunk, sequences),) = source.read_chunks(
            table, model.schema, model.provenance, read, unknown, quiet=quiet, whole=True
        )
    keys = chunk.keys
    if keys.order is None or sequences.table_keys is not None:
        return sequences
    with convertible(keys.order, chunk.table[keys.order]):
        values = np.array(chunk.table[keys.order].to_pylist(), dtype=object)[chunk.grouping.rows]
    return replace(sequences, table_keys=TableKeys(keys.sequence or "sequence", keys.order, values))


def _require_no_given_inputs(model: Model) -> None:
    for own in model.schema.given_inputs:
        raise DataError(
            f"a picture of a forecast needs the input {own.name!r} of the slices ahead, which this "
            "command does not take; write the forecast by `dspn forecast --inputs`."
        )


def _pick(data: Sequences, only: str | None) -> Sequences:
    """The sequence of an id, or the first."""
    if only is None:
        return data[:1]
    ids = [str(name) for name in data.ids or ()]
    if only not in ids:
        shown = ", ".join(ids[:6]) + (", ..." if len(ids) > 6 else "")
        raise DataError(f"--only must name a sequence of the table ({shown}), but is {only!r}.")
    return data[[ids.index(only)]]


def plot(drawing: Drawing) -> None:
    """Draws a picture and writes it, whole or not at all."""
    output = drawing.output
    check_extension(output, ".png", ".svg", ".pdf")
    if drawing.kind not in _PICTURES:
        raise BadParameter(f"KIND must be one of {', '.join(_PICTURES)}, but is {drawing.kind!r}.")
    sink.check_place(output)
    draw, subject = _PICTURES[drawing.kind]
    model = source.load_model(drawing.model)
    sequences = None
    if drawing.kind == "forecast":
        _require_no_given_inputs(model)
    if subject != _MODEL:
        if drawing.data is None:
            raise DataError(f"a picture of {subject} needs DATA; name a table after the model.")
        read, unknown, quiet = drawing.read, drawing.unknown, drawing.quiet
        sequences = _read_sequences(model, drawing.data, read, unknown, quiet=quiet)
        if subject == _ONE:
            sequences = _pick(sequences, drawing.only)
    with console.show_work(
        "plot", lambda own: draw(model, own, drawing), sequences, quiet=drawing.quiet
    ):
        drawn = draw(model, sequences, drawing)
    figure = drawn.get_figure(root=True) if hasattr(drawn, "get_figure") else drawn
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(output).suffix[1:].lower())
    write_atomically(output, buffer.getvalue())
    console.note(f"wrote {output}", quiet=drawing.quiet)


def report(
    model: Path, data: str, output: Path, read: Reading, unknown: Unknown, quiet: bool, **page: Any
) -> None:
    """Writes a page about a model and a table.

    Args:
        model: The model file.
        data: The table.
        output: The page.
        read: How to read the table.
        unknown: What a category is that the model does not know.
        quiet: No notes and no progress.
        page: Further arguments of `dspn.report.write_report`.
    """
    from dspn.report import report_html, write_report

    sink.check_place(str(output))
    loaded = source.load_model(model)
    if loaded.schema.given_inputs and page.get("steps"):
        name = loaded.schema.given_inputs[0].name
        told = f"the input {name!r} of the slices ahead is not known, so nothing is forecast"
        console.note(f"note: {told}.", quiet=quiet)
        page["steps"] = 0
    sequences = _read_sequences(loaded, data, read, unknown, quiet=quiet)
    with console.show_work(
        "report", lambda own: report_html(loaded, own, **page), sequences, quiet=quiet
    ):
        write_report(loaded, sequences, output, **page)
    console.note(f"wrote {output}: {console.counted(len(sequences), 'sequence')}", quiet=quiet)

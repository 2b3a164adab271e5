"""Pictures by name."""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from dspn import plotting
from dspn.cli.console import note
from dspn.cli.loading import keys_of, loaded, missing_words
from dspn.cli.options import Unknown
from dspn.cli.request import Reading
from dspn.cli.running import note_unseen, unseen_counter
from dspn.cli.sources import opened
from dspn.cli.writing import check_place
from dspn.data import Sequences, TableKeys
from dspn.data.cells import convertible
from dspn.data.chunks import Chunk, chunks
from dspn.errors import DataError
from dspn.io import write_atomically
from dspn.models import Model

# Slices that are unrolled or forecast where no number is given.
_STEPS: Final = 3


@final
@dataclass(frozen=True)
class Subject:
    """What to draw: a model, and one sequence of a table where the picture is of one."""

    model: Path
    data: str | None
    read: Reading
    unknown: Unknown
    only: str | None
    steps: int | None
    component: int | None


def _template(model: Model, _: Any, subject: Subject) -> Any:
    number = subject.component
    if number is None:
        number = int(model.weights.argmax())
    if number >= len(model.components):
        raise DataError(
            f"--component must be below {len(model.components)}, the number of networks of the "
            f"model, but is {number}."
        )
    return plotting.plot_template(model.components[number], top=True)


def _unrolled(model: Model, _: Any, subject: Subject) -> Any:
    return _function("unrolled")(model, subject.steps or _STEPS, component=subject.component)


def _filtered(model: Model, data: Sequences, _: Subject) -> Any:
    posterior = model.interface_posteriors(data) if len(model.components) == 1 else None
    return plotting.plot_filtered(
        data.values,
        model.schema,
        model.surprise(data).slices,
        posterior,
        imputed=model.impute(data).values,
    )


def _interface(model: Model, data: Sequences, subject: Subject) -> Any:
    return _function("interface")(model, data, component=subject.component)


def _forecast(model: Model, data: Sequences, subject: Subject) -> Any:
    return _function("forecast")(model, data, subject.steps or _STEPS)


def _calibration(model: Model, data: Sequences, subject: Subject) -> Any:
    return _function("calibration")(model, data, steps=subject.steps or 1)


def _of_sequence(kind: str) -> Callable[[Model, Any, Subject], Any]:
    return lambda model, data, _: _function(kind)(model, data)


# A picture, and what it is of: the model alone, one sequence, or all of them.
_MODEL, _ONE, _ALL = "the model", "a sequence", "all sequences"
_PICTURES: Final[dict[str, tuple[Callable[[Model, Any, Subject], Any], str]]] = {
    "template": (_template, _MODEL),
    "unrolled": (_unrolled, _MODEL),
    "filtered": (_filtered, _ONE),
    "interface": (_interface, _ONE),
    "surprise": (_of_sequence("surprise"), _ONE),
    "imputed": (_of_sequence("imputed"), _ONE),
    "forecast": (_forecast, _ONE),
    "calibration": (_calibration, _ALL),
}


def _function(kind: str) -> Any:
    return getattr(plotting, f"plot_{kind}")


def known_kinds() -> list[str]:
    """The pictures that there are."""
    return [kind for kind in _PICTURES if hasattr(plotting, f"plot_{kind}")]


def read_whole(
    model: Model, data: str, read: Reading, unknown: Unknown, *, quiet: bool
) -> Sequences:
    """All sequences of a table."""
    unseen = unseen_counter(unknown)
    with opened(data, read.delimiter) as source:
        keys = keys_of(source, read.sequence, read.order, model.provenance, quiet=quiet)
        (chunk,) = chunks(source, keys, list(model.schema.names), sort=read.sort, whole=True)
        found = chunk.sequences(model.schema, missing_words(read.missing), unseen)
    note_unseen(unseen, quiet=quiet)
    return _with_order(found, chunk)


def _with_order(data: Sequences, chunk: Chunk) -> Sequences:
    """The sequences with the values of the order column, which axes show."""
    keys = chunk.keys
    if keys.order is None:
        return data
    with convertible(keys.order, chunk.table[keys.order]):
        values = np.array(chunk.table[keys.order].to_pylist(), dtype=object)[chunk.grouping.rows]
    return replace(data, table_keys=TableKeys(keys.sequence or "sequence", keys.order, values))


def _picked(data: Sequences, only: str | None) -> Sequences:
    """One sequence: that of the id, as text or as a number, or the first."""
    if only is None:
        return data[:1]
    ids = [str(name) for name in data.ids or ()]
    if only not in ids:
        shown = ", ".join(ids[:6]) + (", ..." if len(ids) > 6 else "")
        raise DataError(f"--only must name a sequence of the table ({shown}), but is {only!r}.")
    return data[[ids.index(only)]]


def drawn(kind: str, subject: Subject, output: str, *, quiet: bool) -> None:
    """Draws the picture and writes it, whole or not at all."""
    check_place(output)
    draw, of = _PICTURES[kind]
    model = loaded(subject.model)
    data = None
    if of != _MODEL:
        if subject.data is None:
            raise DataError(f"a picture of {of} needs DATA; name a table after the model.")
        data = read_whole(model, subject.data, subject.read, subject.unknown, quiet=quiet)
        if of == _ONE:
            data = _picked(data, subject.only)
    found = draw(model, data, subject)
    figure = found.get_figure(root=True) if hasattr(found, "get_figure") else found
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(output).suffix[1:].lower())
    write_atomically(output, buffer.getvalue())
    note(f"wrote {output}", quiet=quiet)

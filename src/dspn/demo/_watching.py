"""A stream that is watched as it comes, with a fault in it."""

from typing import Final

import numpy as np
from rich.console import Console

from dspn._arrays import Floats
from dspn.demo._example import (
    FAULT,
    HIDDEN_SHARE,
    STREAM_SLICES,
    Example,
    faulty_streams,
)
from dspn.demo._printing import heading, table
from dspn.models import Model
from dspn.sequences import Sequences

_BLOCKS_A_NAT: Final = 4
_AROUND: Final = 4  # slices shown before and after the fault


def _surprises(model: Model, stream: Sequences) -> Floats:
    """-log P(slice | the slices before it), one slice after another."""
    watch = model.filter()
    return np.array([watch.update(values).surprise for values in stream.values])


def show_stream(console: Console, example: Example, model: Model, stream: Sequences) -> Floats:
    """Runs the filter over the stream and returns the surprise of every slice."""
    heading(console, "Is something wrong?")
    console.print(
        f"A new stream of {STREAM_SLICES} slices is read one slice at a time, {HIDDEN_SHARE:.0%} "
        f"of it hidden. At slice {FAULT} all sensors show the opposite of what they should; "
        "this stream was chosen because that is plain to see in it. The surprise of a slice is "
        "-log P(slice | the slices before it), in nats:\n"
    )
    surprise, truly = _surprises(model, stream), _surprises(example.true_model, stream)
    block = "█" if console.encoding.startswith("utf") else "#"
    shown = table("slice", "sensors", "true model", "learned", "", words=2)
    shown.columns[-1].justify = "left"
    for number in range(FAULT - _AROUND, FAULT + _AROUND + 1):
        sensors = " ".join("." if np.isnan(v) else f"{v:.0f}" for v in stream.values[number])
        figures = (f"{truly[number]:.1f}", f"{surprise[number]:.1f}")
        bar = block * round(_BLOCKS_A_NAT * surprise[number])
        style = "bold red" if number == FAULT else None
        shown.add_row(str(number), sensors, *figures, bar, style=style)
    console.print(shown)
    entries = model.surprise(stream).variables[FAULT]
    console.print(
        f"\nThe sensor that fits least with everything else at slice {FAULT} is "
        f"{stream.schema.names[int(entries.argmax())]} ({entries.max():.1f} nats). The learned "
        f"model's surprises of all slices add up to {surprise.sum():.4f} nats, its log-likelihood "
        f"of the whole stream is {model.log_likelihood(stream)[0]:.4f}."
    )
    return surprise


def show_detection(console: Console, example: Example, model: Model) -> None:
    """How often the fault stands out, over many streams."""
    streams = faulty_streams(example.true_model)
    console.print(
        f"\nThe same fault in {len(streams)} other streams; in how many of them its slice is the "
        "most surprising of all, and in how many it is among the first three:\n"
    )
    shown = table("model", "the most surprising", "among the first three")
    for name, each in (("learned", model), ("true model", example.true_model)):
        surprise = each.surprise(streams).slices.reshape(len(streams), STREAM_SLICES)
        rank = (surprise > surprise[:, [FAULT]]).sum(axis=1)
        shown.add_row(name, str((rank == 0).sum()), str((rank < 3).sum()))
    console.print(shown)

"""Questions about new sequences, answered by the learned model and by the true one."""

from typing import Final

import numpy as np
from rich.console import Console

from dspn._arrays import Bools, Floats
from dspn.demo._example import Example, Hidden
from dspn.demo._learning import independent
from dspn.demo._printing import heading, table
from dspn.models import Model
from dspn.sequences import Sequences

_STEPS: Final = 10
_SHOWN_STEPS: Final = (1, 2, 5, 10)


def _percentages(*shares: float) -> list[str]:
    return [f"{share:.1%}" for share in shares]


def show_likelihoods(console: Console, example: Example, model: Model) -> None:
    """Of the first sequences and of all: whole, as they were seen, and by other models."""
    heading(console, "How probable is what was seen?")
    new = example.new
    console.print(
        f"The {len(new.seen)} new sequences with {new.hidden.mean():.0%} of their entries hidden. "
        "Log-likelihoods in nats, exact with any entries missing: the learned model's of all "
        "entries and of those seen; then of those seen, the true model's and that of independent "
        "entries.\n"
    )
    values = (
        model.log_likelihood(new.truth),
        model.log_likelihood(new.seen),
        example.true_model.log_likelihood(new.seen),
        independent(new.seen, example.shares),
    )
    missing = np.add.reduceat(new.hidden.sum(axis=1), new.seen.offsets[:-1])
    shown = table(
        "sequence", "slices", "hidden", "all entries", "seen", "true model", "independent"
    )
    for number in range(5):
        figures = (f"{column[number]:.1f}" for column in values)
        shown.add_row(str(number), str(new.seen.lengths[number]), str(missing[number]), *figures)
    shown.add_section()
    totals = (f"{column.sum():,.1f}" for column in values)
    shown.add_row(
        f"all {len(missing)}", f"{new.seen.total_slices:,}", f"{missing.sum():,}", *totals
    )
    console.print(shown)


def show_imputation(console: Console, example: Example, model: Model) -> None:
    """How often a hidden entry is found, sensor by sensor."""
    heading(console, "What was hidden?")
    console.print(
        "Every hidden entry is given the value that is most probable given all that was seen "
        "of its sequence, before and after. Share of hidden entries that are right:\n"
    )
    new = example.new
    filled = model.impute(new.seen)
    truly = example.true_model.impute(new.seen)
    guesses = (np.round(example.shares), filled.values, truly.values)
    right = [guess == new.truth.values for guess in guesses]
    shown = table("sensor", "hidden", "most frequent value", "learned", "true model")
    for number, name in enumerate(new.truth.schema.names):
        at = new.hidden[:, number]
        shares = (float(found[at, number].mean()) for found in right)
        shown.add_row(name, f"{at.sum():,}", *_percentages(*shares))
    shown.add_section()
    shares = (float(found[new.hidden].mean()) for found in right)
    shown.add_row("all", f"{new.hidden.sum():,}", *_percentages(*shares))
    console.print(shown)
    _show_strip(console, new, filled, sensor=1, sequence=0, slices=60)


def _show_strip(
    console: Console, new: Hidden, filled: Sequences, *, sensor: int, sequence: int, slices: int
) -> None:
    """One sensor of one sequence, a character for each slice."""
    truth, imputed = (
        data[sequence][:slices, sensor].astype(int).tolist() for data in (new.truth, filled)
    )
    hidden = np.isnan(new.seen[sequence][:slices, sensor])
    wrong = np.not_equal(truth, imputed)
    seen = "".join("." if gone else str(value) for value, gone in zip(truth, hidden, strict=True))
    shown = "".join(
        f"[{'red' if miss else 'green'}]{value}[/]" if gone else str(value)
        for value, gone, miss in zip(imputed, hidden, wrong, strict=True)
    )
    marks = "".join("x" if miss else " " for miss in wrong)
    console.print(
        f"\n{new.truth.schema.names[sensor]} in the first {len(truth)} slices of sequence "
        f"{sequence}; of {hidden.sum()} hidden entries the learned model has {wrong.sum()} wrong:"
    )
    for label, line in (("seen", seen), ("imputed", shown), ("truth", "".join(map(str, truth)))):
        console.print(f"  {label:8} {line}", soft_wrap=True)
    if wrong.any():
        console.print(f"  {'wrong':8} {marks}", soft_wrap=True)


def _chances(model: Model, past: list[Floats], steps: int) -> Floats:
    """P(sensor is 1) at each step after each past, (pasts, steps, sensors)."""
    marginals = model.forecast(past, steps).marginals
    # Entries run over sequences, and over steps within each.
    columns = [marginals[name].probabilities for name in model.schema.names]
    is_one = np.stack([column[:, 1] for column in columns if column is not None], axis=-1)
    return is_one.reshape(len(past), steps, -1)


def show_forecast(console: Console, example: Example, model: Model) -> None:
    """The last slices of every sequence, forecast from what was seen before them."""
    heading(console, "What comes next?")
    number = 0
    console.print(
        f"The last {_STEPS} slices of every sequence are held back and forecast from the entries "
        f"seen before them. Sequence {number}: the learned model's probability that a sensor is 1, "
        "and in brackets what it was:\n"
    )
    past = [sequence[:-_STEPS] for sequence in example.new.seen]
    future = np.stack([sequence[-_STEPS:] for sequence in example.new.truth])
    is_one = _chances(model, past, _STEPS)
    shown = table("steps ahead", *model.schema.names)
    for step in range(4):
        row = zip(is_one[number, step], future[number, step], strict=True)
        shown.add_row(str(step + 1), *(f"{chance:.2f} ({value:.0f})" for chance, value in row))
    console.print(shown)
    console.print()
    truly = _chances(example.true_model, past, _STEPS)
    right: dict[str, Bools] = {
        "most frequent value": np.round(example.shares) == future,
        "learned": (is_one > 0.5) == future,
        "true model": (truly > 0.5) == future,
    }
    shown = table("right over all sequences", *(f"{steps} ahead" for steps in _SHOWN_STEPS))
    for label, hits in right.items():
        shares = (float(hits[:, steps - 1].mean()) for steps in _SHOWN_STEPS)
        shown.add_row(label, *_percentages(*shares))
    console.print(shown)

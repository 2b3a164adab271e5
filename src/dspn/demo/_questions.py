"""Three questions about new recordings: a gap, the hours to come, and a fault."""

from typing import Final

import numpy as np
from rich.console import Console

from dspn._arrays import Bools, Floats
from dspn.data import Kind, Sequences
from dspn.demo._house import AHEAD, AROUND, SCHEMA, WARM, Fault, House
from dspn.demo._learning import Learned
from dspn.demo._printing import bar, entry, heading, table
from dspn.inference import Marginals
from dspn.models import Model

_BAND: Final = (0.1, 0.9)
_SKY, _CELSIUS, _WIND = (SCHEMA.index(name) for name in ("sky", "celsius", "wind"))
_SKIES: Final = SCHEMA[_SKY].categories
_FEWEST_ROWS, _MOST_ROWS = 6, 8
_NATS_A_CHARACTER: Final = 0.8


def _held(marginals: Marginals, truth: Floats) -> Bools:
    """Whether the band of each continuous entry holds the truth."""
    parts = []
    for variable in (v for v in SCHEMA if v.kind is Kind.CONTINUOUS):
        found = marginals[variable.name]
        assert found.quantiles is not None
        values = truth[found.slices, SCHEMA.index(variable.name)]
        parts.append((found.quantiles[:, 0] <= values) & (values <= found.quantiles[:, -1]))
    return np.concatenate(parts)


def _turning_gap(data: Sequences) -> tuple[int, int, int]:
    """A gap of the thermometer in which the wind turns most, with sky and wind seen throughout.

    Returns the recording, the first hour of the gap and the hour after its last.
    """
    best, most = (0, 0, 0), -np.inf
    for number, values in enumerate(data):
        gone = np.isnan(values[:, _CELSIUS])
        edges = np.flatnonzero(np.diff(np.concatenate([[False], gone, [False]]).astype(int)))
        for first, last in edges.reshape(-1, 2).tolist():
            around = values[first:last, [_SKY, _WIND]]
            if _FEWEST_ROWS <= last - first <= _MOST_ROWS and np.isfinite(around).all():
                turn = abs(around[:3, 1].mean() - around[-3:, 1].mean())
                if turn > most:
                    best, most = (number, first, last), turn
    return best


def _errors(models: dict[str, Model], house: House) -> dict[str, float]:
    """Root of the mean squared error of lost continuous entries, in standard deviations."""
    new = house.new
    numbers = np.array([variable.kind is Kind.CONTINUOUS for variable in SCHEMA])
    scale = np.nanstd(house.training.values, axis=0)
    found = {}
    for name, model in models.items():
        off = ((model.impute(new.seen).values - new.truth.values) / scale)[:, numbers]
        found[name] = float(np.sqrt((off[new.lost[:, numbers]] ** 2).mean()))
    return found


def show_gap(console: Console, house: House, found: Learned) -> None:
    """A dead thermometer, hour by hour, and all gaps together."""
    new, model = house.new, found.model
    number, first, last = _turning_gap(new.seen)
    heading(console, "A gap", "model.marginals(recording, quantiles=(0.1, 0.9))")
    console.print(
        f"The thermometer was dead for {last - first} hours in which the weather turned. What did "
        "it miss? The band has probability 0.8, computed exactly from all that the ten sensors "
        "showed before, meanwhile and after.\n"
    )
    one = new.seen[number : number + 1]
    told = model.marginals(one, quantiles=_BAND)["celsius"]
    assert told.quantiles is not None and told.mean is not None
    place = {int(hour): row for row, hour in enumerate(told.slices)}
    shown = table("hour", "sky", "wind", "celsius", "band", "truth", words=2)
    for hour in range(first, last):
        values, row = one.values[hour], place[hour]
        low, high = told.quantiles[row]
        shown.add_row(
            str(hour),
            entry(values[_SKY], _SKIES),
            entry(values[_WIND], digits=0),
            f"{told.mean[row]:.1f}",
            f"{low:.1f} to {high:.1f}",
            f"{new.truth[number][hour, _CELSIUS]:.1f}",
        )
    console.print(shown)
    _show_gaps(console, house, found)


def _show_gaps(console: Console, house: House, found: Learned) -> None:
    model, new = found.model, house.new
    held = _held(model.marginals(new.seen, quantiles=_BAND), new.truth.values)
    errors = _errors(
        {"DSPN": model, "HMM": found.hmm.model_, "mean": found.independent, "true": house.model},
        house,
    )
    console.print(
        f"\nOf {held.size:,} numbers that were lost, the bands hold {held.mean():.1%}. Error of "
        f"what is filled in, in standard deviations: mean of the sensor {errors['mean']:.2f}, "
        f"HMM {errors['HMM']:.2f}, DSPN {errors['DSPN']:.2f}, true model {errors['true']:.2f}."
    )


def show_forecast(console: Console, house: House, model: Model) -> None:
    """The hours after a recording that ends in rain."""
    past, truth = house.new.seen.slices(None, -AHEAD), house.new.truth
    last = np.array([values[-4:, _SKY] for values in past])
    number = int(np.flatnonzero((last == 2).all(axis=1))[0])
    heading(console, "A forecast", f"model.forecast(recording, steps={AHEAD})")
    share = float((house.training.values[:, _SKY] == 2).sum()) / float(
        np.isfinite(house.training.values[:, _SKY]).sum()
    )
    console.print(
        f"It has been raining. When will that end? On average it rains in {share:.0%} of hours.\n"
    )
    ahead = model.forecast(past[number : number + 1], AHEAD, quantiles=_BAND).marginals
    rain, celsius = ahead["sky"].probabilities, ahead["celsius"].quantiles
    assert rain is not None and celsius is not None
    shown = table("hours ahead", "P(rain)", "", "celsius", "truth", words=1)
    shown.columns[2].justify = "left"
    for step in (1, 2, 3, 6, AHEAD):
        chance = float(rain[step - 1, 2])
        low, high = celsius[step - 1]
        came = truth[number][len(past[number]) + step - 1]
        shown.add_row(
            str(step),
            f"{chance:.0%}",
            bar(console, 20 * chance),
            f"{low:.0f} to {high:.0f}",
            f"{_SKIES[int(came[_SKY])]}, {came[_CELSIUS]:.0f}",
        )
    console.print(shown)
    _show_forecasts(console, model, past, truth.slices(-AHEAD, None))


def _show_forecasts(console: Console, model: Model, past: Sequences, came: Sequences) -> None:
    """How often the bands of all forecasts held what came."""
    ahead = model.forecast(past, AHEAD, quantiles=_BAND).marginals
    parts = []
    for number, variable in enumerate(SCHEMA):
        quantiles = ahead[variable.name].quantiles
        if variable.kind is Kind.CONTINUOUS and quantiles is not None:
            values = came.values[:, number]
            parts.append((quantiles[:, 0] <= values) & (values <= quantiles[:, -1]))
    held = np.concatenate(parts)
    console.print(
        f"\nOver the last {AHEAD} hours of all {len(past)} recordings, bands of 80 % hold "
        f"{held.mean():.1%} of {held.size:,} numbers."
    )


def show_surprise(console: Console, house: House, fault: Fault, model: Model) -> None:
    """A reading that is ordinary by itself and does not fit."""
    one, at = fault.plain
    heading(console, "A surprise", "model.surprise(recording)")
    warmer = float(np.nanmean(house.training.values[:, _CELSIUS] > WARM))
    assert one.ids is not None
    console.print(
        f"In a storm of recording {one.ids[0]} the thermometer shows {WARM:.0f} °C for an hour, "
        f"which is not rare: {warmer:.0%} of hours are warmer. But it does not fit. Surprise is "
        "-log P(reading | all other readings), in nats:\n"
    )
    surprise = model.surprise(one).variables[:, _CELSIUS]
    shown = table("hour", "sky", "wind", "celsius", "surprise", "", words=2)
    shown.columns[-1].justify = "left"
    for hour in range(max(at - AROUND, 0), min(at + AROUND + 1, len(surprise))):
        values, nats = one.values[hour], float(surprise[hour])
        shown.add_row(
            str(hour),
            entry(values[_SKY], _SKIES),
            entry(values[_WIND], digits=0),
            entry(values[_CELSIUS]),
            entry(nats),
            "" if np.isnan(nats) else bar(console, nats / _NATS_A_CHARACTER),
            style="bold red" if hour == at else None,
        )
    console.print(shown)
    _show_detection(console, house, fault, model)


def _share_found(scores: Floats, fault: Fault) -> float:
    """In what share of the recordings no reading of the thermometer scores more than the fault."""
    by_hour = np.nan_to_num(scores.reshape(len(fault.hours), -1), nan=-np.inf)
    return float((by_hour.argmax(axis=1) == fault.hours).mean())


def _show_detection(console: Console, house: House, fault: Fault, model: Model) -> None:
    values = fault.recordings.values[:, _CELSIUS]
    centre = np.nanmean(house.training.values[:, _CELSIUS])
    ways = {
        "learned": model.surprise(fault.recordings).variables[:, _CELSIUS],
        "true": house.model.surprise(fault.recordings).variables[:, _CELSIUS],
        "distance": np.abs(values - centre),
    }
    first = {name: _share_found(scores, fault) for name, scores in ways.items()}
    console.print(
        f"\nThe same fault in {len(fault.hours)} recordings is the most surprising reading of its "
        f"thermometer in {first['learned']:.0%} of them (true model {first['true']:.0%}; distance "
        f"from the mean {first['distance']:.0%})."
    )

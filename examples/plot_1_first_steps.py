"""
First steps
===========

Sequences are a list of arrays, with NaN for missing entries. The kind of each variable, category or
number, is inferred from the data.
"""

import numpy as np

import dspn
from dspn.plotting import plot_filtered

rng = np.random.default_rng(0)


def machine(minutes):
    """Load and temperature of a machine that runs and pauses, with readings lost."""
    runs = np.cumsum(rng.random(minutes) < 0.1) % 2
    load = rng.normal(20 + 60 * runs, 8)
    celsius = rng.normal(35 + 25 * runs, 5)
    readings = np.stack([load, celsius], axis=1)
    readings[rng.random(readings.shape) < 0.2] = np.nan
    return readings


train = [machine(minutes) for minutes in rng.integers(20, 60, size=40)]
new = [machine(60) for _ in range(20)]

# %%
# ``DSPN`` learns structure and parameters. ``effort`` limits the work; by default it follows the
# amount of data.

model = dspn.DSPN(dspn.Auto(effort=1), random_state=0).fit(train)
apart = dspn.HMM(1, random_state=0).fit(train)
print(model.model_)
print(f"nats per new sequence: {model.score(new):.0f}, independent entries {apart.score(new):.0f}")

# %%
# Every query is a method. The picture shows one new sequence with its gaps filled (hollow marks),
# and the surprise of each slice given the slices before it.

one = dspn.Sequences.from_arrays(new[:1], schema=model.schema_)
figure = plot_filtered(
    one.values, one.schema, model.surprise(one).slices, imputed=model.impute(one).values
)

"""
An anomaly in a stream
======================

A filter reads one slice at a time and keeps a state of fixed size. It reports the surprise of each
slice: -log of its probability given all slices before it.
"""

import numpy as np

import dspn
from dspn.plotting import plot_surprise

rng = np.random.default_rng(7)
schema = dspn.Schema(
    (
        dspn.Variable.categorical("valve", ["closed", "open"]),
        dspn.Variable.continuous("flow"),
        dspn.Variable.continuous("pressure"),
    )
)
plant = dspn.Model.from_hmm(
    start=[0.5, 0.5],
    transition=[[0.9, 0.1], [0.1, 0.9]],
    emissions={
        "valve": [[0.999, 0.001], [0.001, 0.999]],
        "flow": [[1.0, 0.3], [9.0, 1.0]],
        "pressure": [[6.0, 0.5], [3.0, 0.4]],
    },
    schema=schema,
)
model = dspn.HMM(2, random_state=0).fit(plant.sample(50, 60, rng=rng)).model_

# %%
# In a new stream, the valve reports "closed" in one slice while water flows. Each reading alone is
# common; their combination is not.

stream = plant.sample(1, 60, rng=rng)
values = stream.values.copy()
at = int(np.flatnonzero(values[20:, 0] == 1)[5]) + 20
values[at, 0] = 0
stream = stream.with_values(values)

watch = model.filter()
surprises = [watch.update(reading).surprise for reading in stream.to_arrays(decode=True)[0]]
print(f"fault at slice {at}, most surprising slice {int(np.argmax(surprises))}")

# %%
# The surprise of each entry given all others shows which reading was wrong.

ax = plot_surprise(model, stream)

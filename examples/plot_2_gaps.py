"""
Gaps, with exact bands
======================

Missing entries need no treatment: learning maximises the likelihood of the observed entries. Every
gap has an exact distribution given everything observed before and after it.
"""

import numpy as np

import dspn
from dspn.plotting import plot_imputed

rng = np.random.default_rng(3)
schema = dspn.Schema(
    (
        dspn.Variable.categorical("sky", ["clear", "rain"]),
        dspn.Variable.continuous("celsius"),
        dspn.Variable.count("visitors"),
    )
)
weather = dspn.Model.from_hmm(
    start=[0.6, 0.4],
    transition=[[0.92, 0.08], [0.15, 0.85]],
    emissions={
        "sky": [[0.95, 0.05], [0.2, 0.8]],
        "celsius": [[21.0, 6.0], [14.0, 4.0]],
        "visitors": [[12.0], [4.0]],
    },
    schema=schema,
)
days = weather.sample(120, 24, rng=rng)

# %%
# Hide a third of the entries, and learn a model with two states from the rest.

hidden = rng.random(days.values.shape) < 1 / 3
seen = days.with_values(np.where(hidden, np.nan, days.values))
model = dspn.HMM(2, random_state=0).fit(seen).model_

# %%
# Hatched columns are probabilities of a category; pale bands contain a number with probability 0.8.

ax = plot_imputed(model, seen[7:8])

# %%
# Check the bands over all hidden temperatures:

found = model.marginals(seen, quantiles=(0.1, 0.9))["celsius"]
truth = days.values[found.slices, 1]
held = (found.quantiles[:, 0] <= truth) & (truth <= found.quantiles[:, 1])
print(f"{held.mean():.1%} of {held.size} hidden temperatures lie in bands of 80 %")

"""
The structure of a model
========================

A dynamic sum-product network repeats one template for every slice. Its inputs are the outputs of
the slice below. Its leaves are distributions of the slice's variables.
"""

import numpy as np

import dspn
from dspn.plotting import plot_template, plot_unrolled

rng = np.random.default_rng(0)
schema = dspn.Schema(
    (dspn.Variable.categorical("sky", ["clear", "rain"]), dspn.Variable.continuous("celsius"))
)
weather = dspn.Model.from_hmm(
    start=[0.6, 0.4],
    transition=[[0.9, 0.1], [0.3, 0.7]],
    emissions={"sky": [[0.9, 0.1], [0.2, 0.8]], "celsius": [[20.0, 4.0], [14.0, 2.0]]},
    schema=schema,
)

# %%
# The template of a hidden Markov model with two states has one output for each state: a product of
# its leaves and a sum over the inputs. The width of a line shows its weight.

ax = plot_template(weather, top=True)

# %%
# The network of three slices. Its value at a sequence is a probability, computed in one pass from
# the bottom to the root. The leaf of a missing entry is 1.

ax = plot_unrolled(weather, 3)

# %%
# A template learned by growth and search, the algorithms of the paper, from samples of the model
# above.

days = weather.sample(60, 20, rng=rng)
growth = dspn.GrowthOptions(max_interfaces=3)
learned = dspn.DSPN(dspn.Paper(growth), random_state=0).fit(days)
ax = plot_template(learned.model_, top=True)

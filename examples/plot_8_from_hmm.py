"""
From an HMM to a DSPN
=====================

A hidden Markov model is a simple DSPN: one group of interface nodes, one node for each state. If
parts of a system are independent, it needs a state for every combination. A DSPN with one group of
interface nodes for each part does not.
"""

import numpy as np

import dspn
from dspn.plotting import plot_template
from dspn.structure import side_by_side

rng = np.random.default_rng(6)


def pump(name):
    """A pump that idles, works or strains."""
    load = dspn.Variable.continuous(f"load {name}")
    hum = dspn.Variable.categorical(f"hum {name}", ["low", "high"])
    return dspn.Model.from_hmm(
        start=[0.6, 0.3, 0.1],
        transition=[[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]],
        emissions={
            load.name: [[2.0, 1.0], [6.0, 2.0], [9.0, 2.0]],
            hum.name: [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]],
        },
        schema=dspn.Schema((load, hum)),
    )


pumps = [pump("a"), pump("b"), pump("c")]
schema = dspn.Schema(tuple(variable for own in pumps for variable in own.schema))
apart = side_by_side(schema, [own.network for own in pumps], [(0, 1), (2, 3), (4, 5)])
plant = dspn.Model(apart)
print(plant)

# %%
# Three independent pumps: three groups with three interface nodes each. A hidden Markov model needs
# 27 states.

ax = plot_template(plant, top=True)

# %%
# Learn both from few sequences with gaps, and compare them on new ones. The learner is not told
# that there are three pumps; the HMM may choose its number of states.

drawn = plant.sample(60, 30, rng=rng)
seen = drawn.with_values(np.where(rng.random(drawn.values.shape) < 0.2, np.nan, drawn.values))
new = plant.sample(200, 30, rng=rng)
hmm = dspn.HMM([3, 9, 16, 27, 40], random_state=0).fit(seen)
learned = dspn.DSPN(dspn.Auto(effort=0.5), random_state=0).fit(seen)
scores = {
    f"HMM of {hmm.n_states_} states": hmm.score(new),
    "DSPN": learned.score(new),
    "truth": float(plant.log_likelihood(new).mean()),
}
for name, score in scores.items():
    print(f"{name:18} {score:.2f} nats per sequence")
print(learned.explanation_[learned.explanation_.index("chosen") :])

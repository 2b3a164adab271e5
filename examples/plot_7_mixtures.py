"""
Mixtures and their components
=============================

A model may be a mixture of several networks. The automatic learner often returns one. A mixture
answers every query exactly, and gives the probability that a sequence belongs to each component.
"""

import numpy as np
from matplotlib.figure import Figure

import dspn
from dspn.plotting import plot_interface, plot_template

rng = np.random.default_rng(5)
schema = dspn.Schema((dspn.Variable.count("clicks"), dspn.Variable.continuous("minutes")))


def visit(reads, length):
    """Clicks and minutes on each page of a visitor who reads, or else hurries."""
    stays = np.cumsum(rng.random(length) < 0.2) % 2
    clicks = rng.poisson(2 + 6 * stays if reads else 6 - 4 * stays)
    minutes = rng.normal(4 + 2 * stays if reads else 3 - stays, 1.0)
    return np.stack([clicks, minutes.round(1)], axis=1)


# %%
# One model for each kind of visitor, mixed by their frequencies.

readers = [visit(True, int(length)) for length in rng.integers(5, 25, size=40)]
others = [visit(False, int(length)) for length in rng.integers(5, 25, size=60)]
parts = [dspn.HMM(2, schema=schema, random_state=0).fit(own) for own in (readers, others)]
mixture = dspn.Mixture(tuple(part.network_ for part in parts), np.array([0.4, 0.6]))
model = dspn.Model(mixture)
print(model)

# %%
# P(reads) of new visitors after each page, from the posterior of the components.

figure = Figure(figsize=(10, 3.4), dpi=120, layout="constrained")
ax = figure.subplots()
for reads, colour in ((True, "#d55e00"), (False, "#0072b2")):
    for _ in range(12):
        pages = visit(reads, 20)
        chances = model.component_posteriors([pages[:seen] for seen in range(1, 21)])[:, 0]
        ax.plot(np.arange(1, 21), chances, color=colour, alpha=0.6)
ax.set(xlabel="pages seen", ylabel="P(reads | pages seen)", ylim=(-0.02, 1.02))
ax.set_title("Readers in orange, others in blue", loc="left")

# %%
# The interface nodes of the more probable component over one visit, then the template of the
# component with the larger weight.

ax = plot_interface(model, readers[:1])

# %%

ax = plot_template(model)

# %%
# The automatic learner creates mixtures. It explains what it tried, the gains, and its choice.

found = dspn.DSPN(dspn.Auto(effort=1), schema=schema, random_state=0).fit(readers + others)
print(found.explanation_)

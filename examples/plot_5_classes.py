"""
Classification of sequences
===========================

One model for each class and Bayes' rule give a classifier of whole sequences, of any length and
with missing entries. Its certainty grows with the number of slices.
"""

import numpy as np
from matplotlib.figure import Figure

import dspn

rng = np.random.default_rng(2)


def steps(kind, length):
    """Strides of a walker or a runner, who both stumble now and then."""
    pace, sway = {"walks": (5.0, 0.3), "runs": (6.0, 0.5)}[kind]
    stride = pace + np.cumsum(rng.normal(0, sway, length)) * 0.5 + rng.normal(0, 0.8, length)
    height = rng.normal(1.0 + 0.3 * (kind == "runs"), 0.4, length)
    readings = np.stack([stride, height], axis=1)
    readings[rng.random(readings.shape) < 0.25] = np.nan
    return readings


def drawn(count):
    kinds = rng.choice(["walks", "runs"], size=count)
    return [steps(kind, int(rng.integers(15, 30))) for kind in kinds], kinds


train, kinds = drawn(120)
new, truth = drawn(100)
classifier = dspn.DSPNClassifier(dspn.HMM(3), random_state=0).fit(train, kinds)
print(f"right for {classifier.score(new, truth):.0%} of new sequences")

# %%
# The probability that a new sequence is a run, given its first slices:

runs = list(classifier.classes_).index("runs")
figure = Figure(figsize=(10, 3.6), dpi=120, layout="constrained")
ax = figure.subplots()
for sequence, kind in zip(new[:24], truth[:24], strict=True):
    beginnings = [sequence[:length] for length in range(1, len(sequence) + 1)]
    chance = classifier.predict_proba(beginnings)[:, runs]
    colour = "#d55e00" if kind == "runs" else "#0072b2"
    ax.plot(np.arange(1, len(chance) + 1), chance, color=colour, alpha=0.6)
ax.set(xlabel="slices seen", ylabel="P(runs | slices seen)", ylim=(-0.02, 1.02))
ax.set_title("Runs in orange, walks in blue", loc="left")

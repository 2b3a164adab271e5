"""
An anomaly in a stream
======================

A filter reads one slice at a time and keeps a state of fixed size. It reports the surprise of each
slice: -log of its probability given all slices before it.

The data are monthly prices of shares from 1990 on, which come with Matplotlib.
"""

import numpy as np
import pandas as pd
from matplotlib import cbook

import dspn
from dspn.plotting import plot_surprise

with cbook.get_sample_data("Stocks.csv") as file:
    prices = pd.read_csv(file, comment="#", parse_dates=["Date"], index_col="Date")
prices = prices[["IBM", "AAPL", "MSFT", "XRX", "ADBE", "^GSPC"]].dropna().resample("MS").first()
changes = (100 * np.log(prices).diff()).iloc[1:].reset_index()

# %%
# Learn from the years up to 1999, then watch the years after them, a month at a time. The leaves
# have heavy tails, so that a month of great changes does not bend the model.

before, after = (part for _, part in changes.groupby(changes["Date"].dt.year >= 2000))
heavy = dict.fromkeys(prices.columns, "student_t")
model = dspn.HMM(2, random_state=0, validation_fraction=0)
model.fit(before, order="Date", kinds=heavy)

watch = model.model_.filter()
surprises = [watch.update(month).surprise for month in after[prices.columns].to_numpy()]
oddest = after["Date"].iloc[np.argsort(surprises)[::-1][:4]]
print("most surprising months:", ", ".join(oddest.dt.strftime("%B %Y")))

# %%
# The tail of an entry is the probability of a value as far out as the one observed, given all other
# entries. The smallest tails name the share and the month.

found = model.surprise(after)
for cell in found.oddest(4):
    month = after["Date"].iloc[cell.slice]
    print(f"{month:%B %Y}: {cell.variable} {cell.value:+.0f} %, tail {cell.tail:.1e}")

# %%
# The surprise of each entry given all others shows which share was out of line.

data = dspn.Sequences.from_table(after, order="Date", schema=model.model_.schema)
usual = model.surprise(before)
ax = plot_surprise(model.model_, data.slices(0, 36), usual=usual)

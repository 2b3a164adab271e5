"""
Gaps, with exact bands
======================

Missing entries need no treatment: learning maximises the likelihood of the observed entries. Every
gap has an exact distribution given everything observed before and after it.

The data are monthly prices of shares and two indices from 1990 on, which come with Matplotlib. Some
companies were listed later, so that their columns begin with gaps.
"""

import numpy as np
import pandas as pd
from matplotlib import cbook

import dspn
from dspn.plotting import plot_imputed

with cbook.get_sample_data("Stocks.csv") as file:
    prices = pd.read_csv(file, comment="#", parse_dates=["Date"], index_col="Date")
names = {"^GSPC": "S&P 500", "^IXIC": "Nasdaq", "AMZN": "Amazon", "GOOGL": "Google", "IBM": "IBM"}
prices = prices[list(names)].rename(columns=names).dropna(how="all").resample("MS").first()
changes = (100 * np.log(prices).diff()).iloc[1:]
print(changes.isna().sum().to_string())

# %%
# Changes in per cent, a year to a sequence. Hide a fifth of the entries, and learn from the rest.

years = dspn.Sequences.from_table(
    changes.assign(year=changes.index.year, month=changes.index.month),
    sequence="year",
    order="month",
)
rng = np.random.default_rng(3)
hidden = (rng.random(years.values.shape) < 0.2) & ~np.isnan(years.values)
seen = years.with_values(np.where(hidden, np.nan, years.values))
model = dspn.HMM(3, random_state=0).fit(seen).model_

# %%
# The year 2008: the pale bands contain the entry with probability 0.8. Where the indices are known,
# they say much about the shares.

ax = plot_imputed(model, seen[[years.ids.index(2008)]])

# %%
# Check the bands over all hidden entries, beside the average of the column:

found = model.impute_with_bands(seen, quantiles=(0.1, 0.9))
bands = np.stack([found.bands(name) for name in years.schema.names], axis=1)[hidden]
truth = years.values[hidden]
held = (bands[:, 0] <= truth) & (truth <= bands[:, 1])
print(f"{held.mean():.1%} of {held.size} hidden entries lie in bands of 80 %")
error = np.abs(found.sequences.values[hidden] - truth).mean()
columns = np.broadcast_to(np.nanmean(seen.values, axis=0), hidden.shape)[hidden]
print(f"mean error {error:.2f} per cent; of the average {np.abs(columns - truth).mean():.2f}")

"""A template too large for single nodes: counts by group, pictures of mixes, leaves in short."""

from collections import Counter
from typing import Final

import numpy as np

from dspn._arrays import Floats
from dspn.data import Kind, Variable
from dspn.io import JSON
from dspn.leaves import Family
from dspn.plotting._summary import GroupSummary, mix_picture, summarise
from dspn.report._packing import finite, packed_array
from dspn.structure import DynamicNetwork

MOST_GROUPS: Final = 12
_MOST_BARS: Final = 12


def large_template(network: DynamicNetwork) -> JSON:
    """The first groups as blocks; the page says how many more there are."""
    shown = min(len(network.groups), MOST_GROUPS)
    groups: list[JSON] = [_group(network, group) for group in range(shown)]
    leaves: list[JSON] = [
        _leaves(network.schema[bank.variable], bank.family, network.parameters.template.leaves[i])
        for i, bank in enumerate(network.template.banks)
    ]
    return {"style": "blocks", "groups": groups, "leaves": leaves}


def _group(network: DynamicNetwork, group: int) -> JSON:
    summary = summarise(network, group)
    leaves: list[JSON] = [[v, summary.leaves[v]] for v in sorted(summary.leaves)]
    return {
        "inputs": summary.num_inputs,
        "outputs": _counts(summary.outputs),
        "alone": _counts(summary.alone),
        "joining": _counts(summary.joining),
        "leaves": leaves,
        "mixes": len(summary.mixes),
        "picture": _picture(network, summary),
    }


def _counts(counts: Counter[str]) -> JSON:
    found: dict[str, JSON] = {kind: counts[kind] for kind in sorted(counts)}
    return found


def _picture(network: DynamicNetwork, summary: GroupSummary) -> JSON:
    """Mean weights of the mix on a grid, as shares of the largest."""
    if not summary.mixes:
        return None
    weights = mix_picture(network, summary.mixes)
    peak = float(weights.max()) or 1.0
    cells = packed_array(np.rint(255.0 * weights / peak), "u1")
    return {"height": weights.shape[0], "width": weights.shape[1], "peak": peak, "cells": cells}


def _leaves(variable: Variable, family: Family, rows: Floats) -> JSON:
    """Mean probabilities of categories, or between which means the leaves of a number lie."""
    if variable.kind == Kind.CATEGORICAL:
        mean = rows.mean(axis=0)
        first = np.argsort(-mean, kind="stable")[:_MOST_BARS]
        bars: list[JSON] = [[int(code), float(mean[code])] for code in np.sort(first)]
        return {"count": len(rows), "bars": bars}
    means = family.mean(rows)
    deviations = np.sqrt(family.variance(rows))
    spans: list[JSON] = [finite(v) for v in (means.min(), means.max(), np.median(deviations))]
    return {"count": len(rows), "spans": spans}

"""What the page has to know besides the records: model, variables, sequences and scales."""

import numpy as np
from numpy.typing import NDArray

from dspn._arrays import Floats
from dspn.data import Kind, Sequences
from dspn.io import JSON
from dspn.models import Model
from dspn.plotting._order import order_texts
from dspn.report._choice import Choice
from dspn.report._drawing import drawn_template, group_members, node_counts
from dspn.report._entries import LEVELS, MOST_CATEGORIES
from dspn.report._interfaces import MOST_GROUPS
from dspn.report._packing import finite, packed_array
from dspn.report._records import Records

_LEAST_SCALE = 3.0


def page_facts(
    model: Model, data: Sequences, choice: Choice, found: Records, steps: int
) -> dict[str, JSON]:
    """Everything but the records; `data` holds all sequences, those that are left out as well."""
    shown = data[choice.shown]
    usual = usual_surprises(found.entry_surprises)
    return {
        "variables": _variables(shown, usual),
        "components": _components(model),
        "sequences": _sequences(data, choice, found),
        "order": _order(shown),
        "steps": steps,
        "levels": list(LEVELS),
        "mostCategories": MOST_CATEGORIES,
        "mostGroups": MOST_GROUPS,
        "root": model.root.value,
        "scale": _scale(found.entry_surprises - usual),
    }


def usual_surprises(surprises: Floats) -> Floats:
    """The median surprise of each variable's entries; 0 for a variable without any."""
    usual = np.zeros(surprises.shape[1])
    for column, own in enumerate(surprises.T):
        known = own[np.isfinite(own)]
        if known.size:
            usual[column] = np.median(known)
    return usual


def _scale(excess: Floats) -> float:
    """The excess at which the colours end: what 1 entry in 200 goes beyond."""
    known = excess[np.isfinite(excess)]
    return max(float(np.quantile(known, 0.995)), _LEAST_SCALE) if known.size else _LEAST_SCALE


def _variables(data: Sequences, usual: Floats) -> JSON:
    variables: list[JSON] = []
    for column, variable in enumerate(data.schema):
        low, high = _range(data.values[:, column])
        if variable.kind == Kind.COUNT:
            low, high = np.floor(low), np.ceil(high)
        categories: list[JSON] = [str(category) for category in variable.categories]
        variables.append(
            {
                "name": variable.name,
                "kind": variable.kind.value,
                "categories": categories,
                "low": finite(low),
                "high": finite(high),
                "usual": finite(usual[column]),
            }
        )
    return variables


def _range(values: Floats) -> tuple[float, float]:
    """Between which values nearly all observed entries lie."""
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0, 1.0
    low, high = np.quantile(known, [0.002, 0.998])
    return float(low), float(high)


def _components(model: Model) -> JSON:
    components: list[JSON] = [
        {
            "weight": float(weight),
            "counts": node_counts(network),
            "groups": group_members(network),
            "tied": network.parameters.tied,
            "drawing": drawn_template(network),
        }
        for weight, network in zip(model.weights, model.components, strict=True)
    ]
    return components


def _sequences(data: Sequences, choice: Choice, found: Records) -> JSON:
    shown = choice.shown
    missing = np.add.reduceat(np.isnan(data.values).sum(axis=1), data.offsets[:-1])
    ids: JSON = None
    if data.ids is not None:
        ids = [str(data.ids[index]) for index in shown.tolist()]
    sizes: NDArray[np.int64] = np.array([len(text) for text in found.texts])
    return {
        "count": len(shown),
        "ids": ids,
        "number": packed_array(shown, "<u4"),
        "length": packed_array(data.lengths[shown], "<u4"),
        "missing": packed_array(missing[shown], "<u4"),
        "perSlice": packed_array(choice.per_slice[shown], "<f8"),
        "size": packed_array(sizes, "<u4"),
    }


def _order(data: Sequences) -> JSON:
    """What the order column says of each slice, each text once; None without an order column."""
    texts = order_texts(data)
    keys = data.table_keys
    if texts is None or keys is None:
        return None
    distinct = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([distinct[text] for text in texts])
    return {"name": keys.order, "texts": list(distinct), "codes": packed_array(codes, "<u4")}

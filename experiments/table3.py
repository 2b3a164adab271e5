"""The paper's Table 3: how long learning and inference take, and how inference grows with size."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np
from rich.console import Console

from dspn.data import Sequences
from dspn.engine import compile_program
from dspn.structure import initial_network
from experiments import paper, table2
from experiments.cases import CASES, Spending, prepared
from experiments.cells import Cell, Summary, summaries, tested
from experiments.contenders import CONTENDERS
from experiments.folds import Fold
from experiments.results import Results
from experiments.tables import View
from experiments.timing import first_variable_alone

MODELS: Final = tuple(model for model in table2.MODELS if model != "iid")
_REPEATS: Final = 7
_SCALING_DATA: Final = "vowels"
_OWN: Final = "dspn"
# What a fit may spend that is only there to be timed.
_TIMED_SHARE: Final = 0.02


def run(
    names: Sequence[str],
    models: Sequence[str],
    results: Results,
    console: Console,
    spending: Spending,
) -> None:
    """The first fold of every model, which times inference, and inference by size of template."""
    table2.run(names, models, 1, results, console, spending)
    brief = replace(spending, share=_TIMED_SHARE * spending.share)
    for name, model in product(names, models):
        if _is_untimed(name, model, results):
            results.add(_timing_key(name, model), _timed(name, model, brief))
            console.print(f"{name}, {CONTENDERS[model].title}: inference timed", highlight=False)
    if results.find("scaling/dspn") is None:
        case = spending.sizes.cases[_SCALING_DATA]
        data = case.read(spending.data_directory)
        everything = np.arange(len(data.sequences))
        whole = prepared(case, data, Fold(everything, everything[:1], everything[:1])).train
        results.add("scaling/dspn", {"sizes": list(_scaling(whole, spending.sizes.interfaces))})


def _timing_key(name: str, model: str) -> str:
    return f"timing/{name}/{model}"


def _is_untimed(name: str, model: str, results: Results) -> bool:
    """Whether it is a net whose first fold was learned where inference was not timed.

    A net is as fast as its size allows, whatever it has learned; the size of other models is what
    they have learned.
    """
    entry = results.find(Cell(name, 0, model).key)
    was_learned = entry is not None and "test" in entry
    is_net = CONTENDERS[model].needs_torch and CONTENDERS[model].is_available
    return was_learned and is_net and inference_of(name, model, results) is None


def _timed(name: str, model: str, spending: Spending) -> dict[str, Any]:
    """How long inference takes with a model that is learned for that alone."""
    data, setting = table2.fold_data(name, 0, spending), table2.setting_for(name, spending)
    return {"inference": tested(CONTENDERS[model], data, setting, timed=True)["inference"]}


def _scaling(data: Sequences, sizes: Sequence[int]) -> Iterator[dict[str, float]]:
    """Seconds of inference with one variable observed, for templates of more and more edges."""
    seen = first_variable_alone(data)
    for size in sizes:
        network = initial_network(data.schema, size, rng=np.random.default_rng(0))
        program = compile_program(network)
        program.log_likelihood(seen)
        least = np.inf
        for _ in range(_REPEATS):
            start = time.perf_counter()
            program.log_likelihood(seen)
            least = min(least, time.perf_counter() - start)
        edges = network.template.num_edges
        yield {
            "interfaces": size,
            "edges": edges,
            "seconds": least,
            "nanoseconds_per_edge_and_slice": 1e9 * least / (edges * data.total_slices),
        }


def learning_view(names: Sequence[str], models: Sequence[str], results: Results) -> View:
    """Seconds of learning by iteration."""
    found = {(own.data, own.model): own for own in summaries(names, models, results)}
    rows = []
    for model in models:
        cells = [CONTENDERS[model].title, CONTENDERS[model].step]
        for name in names:
            own = found[name, model]
            cells += [_learning_cell(own), _printed(paper.LEARNING_SECONDS, name, model)]
        rows.append(cells)
    return View(
        "Table 3, left: seconds of learning by iteration",
        ["model", "an iteration is", *_headings(names)],
        rows,
        num_words=2,
        notes=(
            "Mean over folds of the seconds of learning, divided by the iterations; in all behind "
            "the stroke. What an iteration is differs from model to model, and the paper does not "
            "say what its own are.",
            "What was learned elsewhere than on the processor has the name of the device. Wall "
            "times, of folds that mostly ran two at a time, each on one core.",
            "The paper's machine is not known; its times are printed for their order only.",
        ),
        records=[_learning_record(own) for own in found.values()],
    )


def _headings(names: Sequence[str]) -> list[str]:
    return [heading for name in names for heading in (CASES[name].title, "paper's")]


def _shown(seconds: float) -> str:
    if np.isnan(seconds):
        return ""
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def _printed(table: Mapping[str, Mapping[str, float]], name: str, model: str) -> str:
    """What the paper prints, in its own digits."""
    found = table.get(name, {}).get(model)
    return "" if found is None else f"{found:,.10g}"


def _learning_cell(own: Summary) -> str:
    if not own.num_folds:
        return "-"
    where = f" ({own.device})" if own.device else ""
    return f"{_shown(own.step_seconds)} / {_shown(own.seconds)}{where}"


def _learning_record(own: Summary) -> dict[str, Any]:
    known = own.num_folds > 0
    return {
        "data": own.data,
        "model": own.model,
        "seconds_per_iteration": own.step_seconds if known else None,
        "seconds": own.seconds if known else None,
        "paper": paper.LEARNING_SECONDS.get(own.data, {}).get(own.model),
    }


def inference_of(name: str, model: str, results: Results) -> dict[str, Any] | None:
    """How long inference took with the model of the first fold, or one of its kind."""
    keys = (Cell(name, 0, model).key, _timing_key(name, model))
    found = (entry.get("inference") for key in keys if (entry := results.find(key)) is not None)
    return next((own for own in found if own is not None), None)


def inference_view(names: Sequence[str], models: Sequence[str], results: Results) -> View:
    """Seconds for all sequences of a data set."""
    rows, records, notes = [], [], []
    for model in models:
        cells = [CONTENDERS[model].title]
        for name in names:
            own = inference_of(name, model, results)
            cells += [_inference_cell(own), _printed(paper.INFERENCE_SECONDS, name, model)]
            printed = paper.INFERENCE_SECONDS.get(name, {}).get(model)
            records.append({"data": name, "model": model, "inference": own, "paper": printed})
            if own is not None and "reason" in own:
                title = CASES[name].title
                notes.append(f"{CONTENDERS[model].title} on {title}: {own['reason']}")
        rows.append(cells)
    return View(
        "Table 3, right: seconds of inference with one variable observed",
        ["model", *_headings(names)],
        rows,
        notes=(
            "Likelihoods of all sequences of the data set, the first variable observed and the "
            "others hidden, in one thread; the least of several repeats. A star marks what was "
            "measured on a part of the sequences and scaled by their slices.",
            "An LSTM cannot sum over what is hidden: it estimates the sum by 100 draws of the "
            "hidden entries. The others are exact.",
            "Where a net was trained on another machine, one that was trained briefly is timed in "
            "its place, of any of the sizes that it could have had.",
            *notes,
        ),
        records=records,
    )


def _inference_cell(own: dict[str, Any] | None) -> str:
    if own is None or "reason" in own:
        return "-"
    return _shown(own["seconds"]) + ("" if own["share"] == 1.0 else "*")


def ratio_view(names: Sequence[str], models: Sequence[str], results: Results) -> View:
    """How many times the DSPN's seconds of inference the others take."""
    rows, records = [], []
    for model in (model for model in models if model != _OWN):
        ratios = [_ratio(name, model, results) for name in names]
        rows.append([CONTENDERS[model].title, *("-" if r is None else _shown(r) for r in ratios)])
        records += [
            {"data": name, "model": model, "ratio": ratio}
            for name, ratio in zip(names, ratios, strict=True)
        ]
    return View(
        "Inference with one variable observed: how many times as long as the DSPN",
        ["model", *(CASES[name].title for name in names)],
        rows,
        records=records,
    )


def _ratio(name: str, model: str, results: Results) -> float | None:
    found = [inference_of(name, each, results) or {} for each in (model, _OWN)]
    if not all("seconds" in one for one in found):
        return None
    return float(found[0]["seconds"] / found[1]["seconds"])


def scaling_view(results: Results) -> View:
    """How inference grows with the template."""
    entry = results.find("scaling/dspn") or {"sizes": []}
    rows = [
        [
            str(row["interfaces"]),
            f"{row['edges']:,}",
            f"{row['seconds']:.4f}",
            f"{row['nanoseconds_per_edge_and_slice']:.3f}",
        ]
        for row in entry["sizes"]
    ]
    return View(
        "Inference by size of template, JapaneseVowels, one variable observed",
        ["interface nodes", "edges of the template", "seconds", "ns for an edge and slice"],
        rows,
        num_words=0,
        records=entry["sizes"],
    )

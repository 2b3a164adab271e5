"""The part of the tour in which a model is learned and compared with the true one."""

import sys
from typing import Final

import numpy as np
from rich.console import Console

from dspn._arrays import Floats
from dspn.demo._example import Example
from dspn.demo._printing import heading, table
from dspn.learning.learner import Ending
from dspn.models import DSPN, Model
from dspn.sequences import Sequences

_LEARNER_SEED: Final = 0


def _fitted(example: Example, *, search: bool, verbose: bool = False) -> DSPN:
    """An estimator after learning, whose work was counted and not timed."""
    options = None if search else False
    estimator = DSPN(
        learner="paper", search=options, random_state=_LEARNER_SEED, verbose=int(verbose)
    )
    return estimator.fit(example.training, validation=example.validation)


def learned(console: Console, example: Example) -> DSPN:
    """Learns from the partly hidden sequences, and says what came of it.

    A terminal shows the progress, on the error stream: how long it takes differs between runs.
    """
    heading(console, "Learning")
    console.print(
        f"A DSPN is learned from {len(example.training)} of the sequences, as they were seen. "
        "Growth adds interface nodes to the initial template; then a search replaces product "
        f"nodes. The {len(example.validation)} other sequences choose: a change stays where it "
        "makes them clearly more probable.\n"
    )
    watched = sys.stderr.isatty()
    estimator = _fitted(example, search=True, verbose=watched)
    if watched:
        print(file=sys.stderr, flush=True)
    if estimator.ending_ == Ending.INTERRUPTED:
        console.print("Interrupted: what follows is about the best model so far.")
    template = estimator.network_.template
    console.print(
        f"Growth tried {len(estimator.growth_)} numbers of interface nodes. The search tried "
        f"{estimator.tried_} neighbours and kept {estimator.accepted_}. Learned: "
        f"{template.num_interfaces} interface nodes, {len(template.nodes)} nodes, "
        f"{template.num_edges} edges."
    )
    return estimator


def independent(data: Sequences, shares: Floats) -> Floats:
    """Log-likelihood of each sequence if every entry were drawn by itself."""
    by_entry = np.where(data.values == 1, np.log(shares), np.log1p(-shares))
    observed = np.where(np.isnan(data.values), 0.0, by_entry).sum(axis=1)
    sums: Floats = np.add.reduceat(observed, data.offsets[:-1])
    return sums


def show_gaps(console: Console, example: Example, model: Model) -> None:
    """How near each model comes to the true one on sequences that none has seen."""
    growth = _fitted(example, search=False)
    new = example.new.truth
    truth = example.true_model.log_likelihood(new)
    rows = (
        ("true model", example.true_model.network.template.num_edges, truth),
        ("learned DSPN", model.network.template.num_edges, model.log_likelihood(new)),
        ("initial template", growth.network_.template.num_edges, growth.score_samples(new)),
        ("independent", 0, independent(new, example.shares)),
    )
    widest = float((truth - rows[-1][2]).mean())
    console.print(
        f"\nMean log-likelihood of the {len(new)} new sequences in nats per sequence, and the gap "
        "to the true model with its standard error. The initial template is what growth alone "
        "came to. The last row knows how often each sensor is 1 and nothing else.\n"
    )
    shown = table("model", "edges", "log-likelihood", "gap", "standard error", "gap closed")
    for name, num_edges, values in rows:
        lost = truth - values
        error = lost.std(ddof=1) / np.sqrt(len(lost))
        figures = (f"{values.mean():.2f}", f"{lost.mean():.2f}", f"{error:.2f}")
        edges = f"{num_edges:,}" if num_edges else ""
        shown.add_row(name, edges, *figures, f"{1 - lost.mean() / widest:.1%}")
    console.print(shown)

"""A hidden Markov model with one observed variable and random tables."""

import numpy as np

from dspn._arguments import whole_number
from dspn.errors import StructureError
from dspn.structure import DbnStructure, random_tables
from experiments.datasets.synthetic.process import DbnProcess


def hmm_structure(num_states: int = 2, num_values: int = 2) -> DbnStructure:
    """One hidden node `state` that persists, and one observed node `x` that depends on it."""
    return DbnStructure(
        sizes={
            "state": whole_number(num_states, "num_states", StructureError),
            "x": whole_number(num_values, "num_values", StructureError),
        },
        observed=("x",),
        within=(("state", "x"),),
        between=(("state", "state"),),
    )


def hmm_process(
    rng: np.random.Generator,
    *,
    num_states: int = 2,
    num_values: int = 2,
    concentration: float | None = None,
) -> DbnProcess:
    """A hidden Markov model to draw from; the paper draws 100 sequences of 100 slices.

    The paper says that there is one hidden and one observed variable, and no more. Chosen here: two
    values, as its 62.2 nats for 100 slices lie below 100 ln 2; two states, the fewest; and tables
    like those of Water and BAT, entries uniform(0, 1), normalised. Over many such tables the mean
    is 60 nats, with little gained on independent slices; more is with a Dirichlet of low
    `concentration`.
    """
    structure = hmm_structure(num_states, num_values)
    return DbnProcess(structure, random_tables(structure, rng, concentration=concentration))

"""The Water network: a dynamic Bayesian network of a waste water treatment plant, in binary form.

Its structure is that of Jensen, Kjaerulff, Olesen and Pedersen (1989). In the binary variant, which
the paper on DSPNs samples from, four of the eight hidden nodes have a noisy sensor, and the tables
are random.
"""

from typing import Final

import numpy as np

from dspn.models import Model
from dspn.structure import DbnStructure, random_tables
from experiments.datasets.synthetic.process import DbnProcess

_CHILDREN: Final = {
    "C_NI": ("C_NI", "CBODD"),
    "CKNI": ("CKNI", "CBODD", "CKND"),
    "CBODD": ("CBODD", "CNOD", "CBODN"),
    "CNOD": ("CBODD", "CNOD", "CNON"),
    "CBODN": ("CBODD", "CBODN", "CNON"),
    "CNON": ("CNOD", "CBODN", "CNON"),
    "CKND": ("CKND", "CKNN"),
    "CKNN": ("CNON", "CKND", "CKNN"),
}
_SENSORS: Final = {name: f"obs_{name}" for name in ("C_NI", "CBODD", "CNOD", "CKNN")}

WATER: Final = DbnStructure(
    sizes=dict.fromkeys([*_CHILDREN, *_SENSORS.values()], 2),
    observed=tuple(_SENSORS.values()),
    within=tuple(_SENSORS.items()),
    between=tuple((node, child) for node, children in _CHILDREN.items() for child in children),
)
"""Eight hidden nodes whose edges lead to the next slice only, and four sensors."""


def water_process(rng: np.random.Generator, *, concentration: float | None = None) -> DbnProcess:
    """The Water network with random tables, to draw from; the paper draws 100 x 100 slices.

    Entries are uniform(0, 1), normalised, which leaves the sensors close to independent; rows drawn
    from a Dirichlet of low `concentration` (0.3, say) are sharper and tie them together.
    """
    return DbnProcess(WATER, random_tables(WATER, rng, concentration=concentration))


def water_model(rng: np.random.Generator, concentration: float | None = None) -> Model:
    """The same network compiled into a model: one interface node for each of 256 states."""
    process = water_process(rng, concentration=concentration)
    return Model.from_dbn(process.structure, process.tables)

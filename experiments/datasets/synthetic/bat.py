"""The BAT network: a dynamic Bayesian network of an automated taxi, in binary form.

Its structure is that of Forbes, Huang, Kanazawa and Russell (1995). In the binary variant, which
the paper on DSPNs samples from, every node has two values and the tables are random.
"""

from typing import Final

import numpy as np

from dspn.structure import DbnStructure, random_tables
from experiments.datasets.synthetic.process import DbnProcess

# Children in the same slice; a sensor is called as what it senses, with few exceptions.
_WITHIN: Final = {
    "LeftClr": ("LeftClrSens",),
    "RightClr": ("RightClrSens",),
    "LatAct": ("TurnSignalSens", "Xdot"),
    "Xdot": ("XdotSens",),
    "InLane": (),
    "FwdAct": ("Ydot",),
    "Ydot": ("YdotSens", "Stopped"),
    "Stopped": (),
    "EngStatus": ("Ydot", "FYdotDiff", "Fclr", "BXdot"),
    "FBStatus": (),
    "SensorValid": ("XdotSens", "YdotSens"),
    "FYdotDiff": ("FYdotDiffSens", "FcloseSlow"),
    "FcloseSlow": ("FBStatus",),
    "Fclr": ("FclrSens", "FcloseSlow"),
    "BXdot": ("BXdotSens",),
    "BcloseFast": ("FBStatus",),
    "Bclr": ("BclrSens", "BXdot", "BcloseFast"),
    "BYdotDiff": ("BYdotDiffSens", "BcloseFast"),
}
_BETWEEN: Final = {
    "LeftClr": ("LeftClr", "LatAct"),
    "RightClr": ("RightClr", "LatAct"),
    "LatAct": ("LatAct", "FwdAct"),
    "Xdot": ("Xdot", "InLane"),
    "InLane": ("InLane", "LatAct"),
    "FwdAct": ("FwdAct",),
    "Ydot": ("Ydot",),
    "Stopped": ("Stopped",),
    "EngStatus": ("EngStatus",),
    "FBStatus": ("FwdAct", "LatAct"),
}
_SENSORS: Final = tuple(
    f"{sensed}Sens"
    for sensed in (
        *("LeftClr", "RightClr", "TurnSignal", "Xdot", "Ydot"),
        *("FYdotDiff", "Fclr", "BXdot", "Bclr", "BYdotDiff"),
    )
)


def _edges(children: dict[str, tuple[str, ...]]) -> tuple[tuple[str, str], ...]:
    return tuple((parent, child) for parent, found in children.items() for child in found)


BAT: Final = DbnStructure(
    sizes=dict.fromkeys([*_WITHIN, *_SENSORS], 2),
    observed=_SENSORS,
    within=_edges(_WITHIN),
    between=_edges(_BETWEEN),
)
"""Eighteen hidden nodes, ten of which persist from slice to slice, and ten sensors."""


def bat_process(rng: np.random.Generator, *, concentration: float | None = None) -> DbnProcess:
    """The BAT network with random tables, to draw from; the paper draws 100 x 100 slices.

    Entries are uniform(0, 1), normalised, or rows are drawn from a Dirichlet of `concentration`. A
    node without parents in the slice before has one table for all slices; in the network as it was
    published by the Bayes Net Toolbox such a node has one more, drawn apart, for the first slice.
    """
    return DbnProcess(BAT, random_tables(BAT, rng, concentration=concentration))

"""Runs a DSPN: its template as arrays, evaluated by compiled kernels over blocks of sequences."""

from dspn.engine.passes import (
    SegmentFlows,
    best_choices,
    drawn_choices,
    likelihood,
    likelihood_totals,
    posterior_flows,
)
from dspn.engine.program import Program, compile_program
from dspn.engine.records import Choices

__all__ = [
    "Choices",
    "Program",
    "SegmentFlows",
    "best_choices",
    "compile_program",
    "drawn_choices",
    "likelihood",
    "likelihood_totals",
    "posterior_flows",
]

"""Learning from data: expectation maximisation on expected flows."""

from dspn.learning.em import EmStep, Priors, em_step, maximise

__all__ = ["EmStep", "Priors", "em_step", "maximise"]

"""A tour of the library in the terminal, and pictures in ./out: `python -m dspn.demo`.

A network that is known is sampled, part of the samples is hidden, and a model is learned from what
is left. Everything it then says about new sequences stands beside what the true model says, and
beside the truth. Nothing is measured with a clock and nothing depends on the terminal: the same
release prints the same text.
"""

from dspn.demo._tour import tour

__all__ = ["tour"]

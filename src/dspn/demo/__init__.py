"""The first two minutes with the library: `python -m dspn.demo`.

Recordings of a house are drawn from a model that is known, parts of them are lost, and a model is
learned from what is left. It is then asked about a gap, the hours to come and a fault, and every
answer stands beside the truth. Text goes to the terminal, a page, a picture, the model and tables
to ./out/demo. Nothing is measured with a clock: the same release prints the same text.
"""

from dspn.demo._tour import tour

__all__ = ["tour"]

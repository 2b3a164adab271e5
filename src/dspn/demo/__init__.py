"""The first two minutes with the library: `python -m dspn.demo`.

Recordings of a house are drawn from a known model, parts of them are lost, and a model is learned
from the rest. It is then asked about a gap, the hours to come and a fault, and every answer is
shown beside the truth. Text goes to the terminal; a page, pictures, the model and tables go to
./out/demo. Nothing is measured with a clock: the same release prints the same text.
"""

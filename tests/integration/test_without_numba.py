"""Everything but the CPU engine loads and runs where Numba is not installed."""

import os
import subprocess
import sys

import numpy as np

PROGRAM = """
import importlib, pkgutil, sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Forbidden())
import dspn
for module in pkgutil.walk_packages(dspn.__path__, "dspn."):
    elsewhere = module.name.startswith(("dspn.engine.cpu", "dspn.sktime", "dspn.learning.lstm"))
    if not elsewhere and not module.name.endswith("__main__"):
        importlib.import_module(module.name)

import numpy as np
from dspn.engine import compile_program
from dspn.inference import log_likelihood, marginals
schema = dspn.Schema((dspn.Variable.binary("x"),))
model = dspn.Model.from_hmm(
    [0.6, 0.4], [[0.9, 0.1], [0.3, 0.7]], {"x": [[0.8, 0.2], [0.1, 0.9]]}, schema=schema
)
program = compile_program(model.network, engine="reference")
data = dspn.Sequences.from_arrays([[[0], [1], [None]]], schema=schema)
found = marginals(program, data)["x"].probabilities
print(f"{log_likelihood(program, data)[0]:.9f}", found.round(9))
try:
    model.log_likelihood(data)
except ImportError as error:
    print(error)
"""


def test_the_library_runs_without_numba() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    forward = [0.6 * 0.8, 0.4 * 0.1]
    second = [
        (forward[0] * 0.9 + forward[1] * 0.3) * 0.2,
        (forward[0] * 0.1 + forward[1] * 0.7) * 0.9,
    ]
    total = sum(second)
    third = [second[0] * 0.9 + second[1] * 0.3, second[0] * 0.1 + second[1] * 0.7]
    zero = (third[0] * 0.8 + third[1] * 0.1) / total
    expected = f"{np.log(total):.9f} {np.array([[zero, 1 - zero]]).round(9)}"
    assert done.stdout.splitlines() == [expected, "numba is not installed"]

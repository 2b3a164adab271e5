"""Gaussian leaves against hmmlearn's `GaussianHMM`: `python -m benchmarks.continuous`.

2,000 sequences of 20 to 60 slices of twelve numbers; likelihood, and one EM step without priors,
in double precision (and our step in single precision). The libraries take turns, each with one
thread; times are the least of some repeats. The results are compared first.
"""

import os
import time
from collections.abc import Callable
from typing import Any, Final

os.environ.setdefault("DSPN_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from hmmlearn.hmm import GaussianHMM
from rich.console import Console

from dspn import Model, Schema, Sequences, Variable
from dspn.engine import compile_program
from dspn.learning import NO_PRIORS, em_step
from experiments.tables import show_table

_VARIABLES: Final = 12
_SIZES: Final = (8, 32, 128)
_REPEATS: Final = 5


def _case(k: int) -> tuple[Model, Sequences, Callable[[], GaussianHMM]]:
    """Our model and data, and how hmmlearn's model is made anew."""
    rng = np.random.default_rng(k)
    lengths = rng.integers(20, 61, 2_000)
    centres = 2.0 * rng.normal(size=(12, _VARIABLES))
    states = np.repeat(rng.integers(0, 12, 1 + lengths.sum() // 5), 5)[: lengths.sum()]
    values = centres[states] + rng.normal(size=(states.size, _VARIABLES))
    start, transition = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), size=k)
    means, variances = 2.0 * rng.normal(size=(k, _VARIABLES)), np.full((k, _VARIABLES), 2.0)
    schema = Schema(tuple(Variable.continuous(f"x{v}") for v in range(_VARIABLES)))
    emissions = {
        name: np.stack([means[:, v], variances[:, v]], axis=1)
        for v, name in enumerate(schema.names)
    }

    def theirs() -> GaussianHMM:
        own = GaussianHMM(k, n_iter=1, init_params="", implementation="scaling", min_covar=0.0)
        own.covars_prior, own.covars_weight, own.n_features = 0.0, 0.0, _VARIABLES
        own.startprob_, own.transmat_ = start.copy(), transition.copy()
        own.means_, own.covars_ = means.copy(), variances.copy()
        return own

    model = Model.from_hmm(start, transition, emissions, schema=schema)
    return model, Sequences.from_codes(values, np.cumsum([0, *lengths]), schema), theirs


def _row(k: int) -> list[str]:
    """Milliseconds of each job, ours and theirs, after the results were compared."""
    model, data, theirs = _case(k)
    single = compile_program(model.network, precision="single")
    values, lengths = data.values, data.lengths

    def step(program: Any) -> Any:
        return em_step(model.network, data, priors=NO_PRIORS, program=program.rebind(model.network))

    jobs: dict[str, Callable[[], Any]] = {
        "likelihood": lambda: model.log_likelihood(data).sum(),
        "hmmlearn": lambda: theirs().score(values, lengths),
        "step": lambda: step(model.program),
        "step, single": lambda: step(single),
        "hmmlearn's step": lambda: theirs().fit(values, lengths),
    }
    found = {name: job() for name, job in jobs.items()}
    np.testing.assert_allclose(found["likelihood"], found["hmmlearn"], rtol=1e-9)
    ours = np.stack([rows[:, 0] for rows in found["step"].network.parameters.template.leaves], 1)
    np.testing.assert_allclose(ours, found["hmmlearn's step"].means_, rtol=1e-6, atol=1e-9)
    least = dict.fromkeys(jobs, np.inf)
    for _ in range(_REPEATS):
        for name, job in jobs.items():
            begun = time.perf_counter()
            job()
            least[name] = min(least[name], time.perf_counter() - begun)
    one, other = least["likelihood"], least["hmmlearn"]
    parts = [least["step"], least["step, single"], least["hmmlearn's step"]]
    ratios = [f"{other / one:.1f}x", *(f"{parts[2] / own:.1f}x" for own in parts[:2])]
    times = [f"{1e3 * own:.1f}" for own in (one, other, *parts)]
    return [f"{k}", times[0], times[1], ratios[0], *times[2:], *ratios[1:]]


def main() -> None:
    """Prints the table."""
    headings = ["nodes", "likelihood, ms", "hmmlearn", "ratio", "EM step, ms", "single", "hmmlearn"]
    rows = [_row(k) for k in _SIZES]
    title = "2,000 x 20..60 slices of 12 numbers"
    show_table(title, [*headings, "ratio", "single"], rows, Console(width=120), num_words=0)


if __name__ == "__main__":
    main()

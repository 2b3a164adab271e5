"""dspn itself: the HMM as the initial template, or any model in a file beside the data."""

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import dspn
from benchmarks.cases import Case
from benchmarks.peers.base import Peer, Result, Task
from dspn.engine import Program, compile_program
from dspn.learning import NO_PRIORS, em_step

MODEL_FILE = "model.dspn"
_FEW = 64


def schema_of(case: Case) -> dspn.Schema:
    """Variables named x0, x1, ... with the categories 0, 1, ..."""
    categories = range(case.num_categories)
    return dspn.Schema(
        tuple(dspn.Variable.categorical(f"x{v}", categories) for v in range(case.num_variables))
    )


def model_of(case: Case) -> dspn.Model:
    """The case's HMM."""
    schema = schema_of(case)
    emissions = dict(zip(schema.names, case.emissions, strict=True))
    return dspn.Model.from_hmm(case.start, case.transition, emissions, schema=schema)


def _em_step(program: Program, data: dspn.Sequences) -> Any:
    """One step to the maximum of the likelihood alone, from parameters not seen before.

    The layout of the structure is known, as in every iteration of a learner but the first.
    """
    fresh = program.rebind(program.network)
    return em_step(program.network, data, priors=NO_PRIORS, program=fresh)


class Dspn(Peer):
    version = dspn.__version__

    def __init__(self, case: Case, folder: Path | None = None) -> None:
        self.case = case
        stored = None if folder is None else folder / MODEL_FILE
        found = stored is not None and stored.exists()
        self.model = dspn.load(stored) if found else model_of(case)
        self.data = dspn.Sequences.from_codes(
            case.values.astype(np.float64), case.offsets, self.model.schema
        )
        self.is_hmm = not found

    @cached_property
    def arrays(self) -> list[Any]:
        """The sequences as a caller has them, for the one-shot task."""
        return self.case.arrays

    def _parameters(self, step: Any) -> Result:
        if not self.is_hmm:
            return {}
        found = step.network.parameters
        k = self.case.num_states
        return {
            "start": found.top.weights,
            "transition": found.template.weights.reshape(k, k),
            "emissions": np.stack(found.template.leaves),
        }

    def _states(self, interfaces: Any) -> Result:
        return {"states": interfaces[:, 0]} if self.is_hmm else {}

    def _stream(self, _: None) -> Any:
        """Seconds that each update of one stream took."""
        stream = self.model.filter()
        seconds = np.empty(len(self.data.values))
        for t, row in enumerate(self.data.values):
            begun = time.perf_counter()
            stream.update(row)
            seconds[t] = time.perf_counter() - begun
        return seconds

    def tasks(self) -> Mapping[str, Task]:
        model, data = self.model, self.data
        few = data[: min(_FEW, len(data))]
        single = compile_program(model.network, precision="single")
        return {
            "log_likelihood": Task(lambda _: model.log_likelihood(data), _total),
            "one_shot": Task(lambda _: model.log_likelihood(self.arrays), _total),
            "log_likelihood_single": Task(lambda _: single.log_likelihood(data), _total),
            "em": Task(lambda _: _em_step(model.program, data), self._parameters),
            "em_single": Task(lambda _: _em_step(single, data), self._parameters),
            "em_few": Task(lambda _: _em_step(model.program, few), lambda _: {}),
            "viterbi": Task(
                lambda _: model.complete(data), lambda found: self._states(found.interfaces)
            ),
            "viterbi_engine": Task(
                lambda _: model.program.best(data),
                lambda choices: self._states(choices.interfaces),
            ),
            "stream": Task(self._stream, lambda seconds: {"seconds": seconds}),
        }


def _total(log_likelihood: Any) -> Result:
    return {"log_likelihood": log_likelihood.sum()}


PEER = Dspn

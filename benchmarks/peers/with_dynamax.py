"""dynamax on the CPU in double precision: a vmap over the sequences of each length, under jit.

Concentrations of 1 make its M step the maximum of the likelihood, as in the other libraries. What
the sequences of one length expect is summed inside the compiled E step.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dynamax.hidden_markov_model import BernoulliHMM, CategoricalHMM
from numpy.typing import NDArray

from benchmarks.cases import Case, buckets, stacked_by_length
from benchmarks.peers.base import Peer, Result, Task


class Dynamax(Peer):
    version = version("dynamax")

    def __init__(self, case: Case) -> None:
        jax.config.update("jax_enable_x64", True)
        self.case = case
        self.buckets = buckets(case.offsets)
        values = case.values.astype(np.float64) if case.is_binary else case.values
        self.batches = [jnp.asarray(values[bucket.rows]) for bucket in self.buckets]
        self.arrays = case.arrays
        self.model = self._new_model()
        self.parameters, self.properties = self._new_parameters()
        self._compile()

    def _new_model(self) -> Any:
        case = self.case
        ones = {"initial_probs_concentration": 1.0, "transition_matrix_concentration": 1.0}
        if case.is_binary:
            return BernoulliHMM(
                case.num_states,
                case.num_variables,
                emission_prior_concentration0=1.0,
                emission_prior_concentration1=1.0,
                **ones,
            )
        return CategoricalHMM(
            case.num_states,
            case.num_variables,
            case.num_categories,
            emission_prior_concentration=1.0,
            **ones,
        )

    def _new_parameters(self) -> tuple[Any, Any]:
        emissions = self.case.emissions
        probs = emissions[:, :, 1].T if self.case.is_binary else emissions.transpose(1, 0, 2)
        return self.model.initialize(
            initial_probs=jnp.asarray(self.case.start),
            transition_matrix=jnp.asarray(self.case.transition),
            emission_probs=jnp.asarray(probs),
        )

    def _compile(self) -> None:
        model, properties = self.model, self.properties

        def score(parameters: Any, batch: Any) -> Any:
            return jax.vmap(lambda one: model.marginal_log_prob(parameters, one))(batch).sum()

        def expect(parameters: Any, batch: Any) -> Any:
            found, _ = jax.vmap(lambda one: model.e_step(parameters, one))(batch)
            return jax.tree.map(lambda leaf: leaf.sum(axis=0), found)

        def maximise(parameters: Any, found: list[Any]) -> Any:
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)
            state = model.initialize_m_step_state(parameters, properties)
            return model.m_step(parameters, properties, stacked, state)[0]

        def best(parameters: Any, batch: Any) -> Any:
            return jax.vmap(lambda one: model.most_likely_states(parameters, one))(batch)

        self._score, self._expect = jax.jit(score), jax.jit(expect)
        self._maximise, self._best = jax.jit(maximise), jax.jit(best)

    def _total(self, batches: list[Any]) -> float:
        # All work is handed over before the first value is asked for.
        return sum(map(float, [self._score(self.parameters, batch) for batch in batches]))

    def _em(self, _: None) -> Any:
        found = [self._expect(self.parameters, batch) for batch in self.batches]
        return jax.block_until_ready(self._maximise(self.parameters, found))

    def _parameters(self, parameters: Any) -> Result:
        probs = np.asarray(parameters.emissions.probs)
        emissions = (
            np.stack([1.0 - probs.T, probs.T], axis=2)
            if self.case.is_binary
            else probs.transpose(1, 0, 2)
        )
        return {
            "start": np.asarray(parameters.initial.probs),
            "transition": np.asarray(parameters.transitions.transition_matrix),
            "emissions": emissions,
        }

    def _viterbi(self, _: None) -> list[Any]:
        return jax.block_until_ready([self._best(self.parameters, x) for x in self.batches])

    def _states(self, paths: list[Any]) -> Result:
        states: NDArray[np.int64] = np.empty(self.case.total_slices, dtype=np.int64)
        for bucket, path in zip(self.buckets, paths, strict=True):
            states[bucket.rows] = np.asarray(path)
        return {"states": states}

    def tasks(self) -> Mapping[str, Task]:
        return {
            "log_likelihood": Task(
                lambda _: self._total(self.batches),
                lambda total: {"log_likelihood": np.array(total)},
            ),
            "one_shot": Task(
                lambda _: self._total([jnp.asarray(x) for x in stacked_by_length(self.arrays)]),
                lambda total: {"log_likelihood": np.array(total)},
            ),
            "em": Task(self._em, self._parameters),
            "viterbi": Task(self._viterbi, self._states),
        }


PEER = Dynamax

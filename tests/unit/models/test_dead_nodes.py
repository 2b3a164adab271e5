"""Nodes that the training data do not use are named, not carried along in silence."""

import numpy as np
import pytest

from dspn import HMM, Model, Schema, Sequences, Variable
from dspn.errors import ConvergenceWarning
from dspn.models.estimator import dead_nodes_of
from dspn.models.training import TrainingData

SCHEMA = Schema((Variable.binary("x"),))


def _training(data: Sequences) -> TrainingData:
    return TrainingData(data, None, None, seed=0)


def test_an_unused_interface_node_is_named() -> None:
    rows = [[0.4, 0.6], [0.5, 0.5]]
    model = Model.from_hmm([1.0, 0.0], np.eye(2), {"x": rows}, schema=SCHEMA)
    data = _training(model.sample(5, 4, rng=np.random.default_rng(0)))
    with pytest.warns(ConvergenceWarning, match=r"1 of 2 interface nodes .* \(interface 1 \(node"):
        dead = dead_nodes_of(model, data)
    assert any(node.is_interface and node.what == "interface 1" for node in dead)


def test_impossible_training_data_leave_the_question_open() -> None:
    model = Model.from_hmm([1.0], [[1.0]], {"x": [[1.0, 0.0]]}, schema=SCHEMA)
    assert dead_nodes_of(model, _training(Sequences.from_codes([[1.0]], [0, 1], SCHEMA))) == ()


def test_a_fitted_estimator_says_which_nodes_are_dead() -> None:
    arrays = [np.random.default_rng(i).integers(0, 2, (8, 1)) for i in range(6)]
    assert HMM(2, random_state=0).fit(arrays).dead_ == ()

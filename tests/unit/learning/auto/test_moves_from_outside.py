"""A move that the library does not have: handed in, tried, reported, kept and resumed."""

from pathlib import Path

import numpy as np
import pytest

from dspn import EmOptions, Model, Schema, Variable
from dspn.errors import ModelFileError, StructureError
from dspn.learning.auto import (
    DEFAULT_MOVES,
    Auto,
    AutoLearned,
    BlockRecord,
    Move,
    Recipe,
    Trial,
    learn_auto,
)
from dspn.learning.starts import randomised
from dspn.structure import DynamicNetwork

SCHEMA = Schema(tuple(Variable.binary(f"x{i}") for i in range(2)))
PLANTED = Model.from_hmm(
    [0.5, 0.5],
    [[0.9, 0.1], [0.2, 0.8]],
    {name: [[0.9, 0.1], [0.2, 0.8]] for name in SCHEMA.names},
    schema=SCHEMA,
)
TRAIN, VALIDATION = (
    PLANTED.sample(count, 6, rng=np.random.default_rng(seed)) for count, seed in ((24, 0), (8, 1))
)
EM = EmOptions(max_steps=2)


class Restart(Move):
    """The best network begun again from random parameters."""

    name = "restart"
    words = "{amount} nodes begun again"
    expected = 5.0

    def recipes(self, record: BlockRecord) -> list[Recipe]:
        return [record.best.follow(self, record.best.size)]

    def start(self, trial: Trial) -> DynamicNetwork:
        return randomised(trial.network, trial.data.train, trial.rng)


def learned(moves: tuple[Move, ...], **settings: object) -> AutoLearned:
    options = Auto(effort=1e3, patience=3, em=EM, refit=EM, moves=moves)
    return learn_auto(TRAIN, VALIDATION, seed=0, options=options, **settings)  # type: ignore[arg-type]


def test_a_move_is_tried_and_told_by_its_own_words() -> None:
    found = learned((*DEFAULT_MOVES, Restart()))
    tried = [item for item in found.tried if item.move == Restart()]
    assert tried
    for item in tried:
        assert f"{item.candidate.size} nodes begun again, from model" in str(item)
    assert f"  restart: {len(tried)} tried" in found.explanation()


def test_moves_that_are_left_out_are_not_tried() -> None:
    found = learned((Restart(),))
    assert {item.move.name for item in found.tried} == {"clusters", "prior", "restart"}


def test_a_run_with_a_move_is_resumed_with_that_move_only(tmp_path: Path) -> None:
    moves = (*DEFAULT_MOVES, Restart())
    found = learned(moves, checkpoint=tmp_path)
    again = learned(moves, checkpoint=tmp_path, resume=True)
    assert again.mixture.fingerprint == found.mixture.fingerprint
    with pytest.raises(ModelFileError, match=r"its `options\.moves` is"):
        learned(DEFAULT_MOVES, checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("moves", "words"),
    [
        ((Restart(), Restart()), "`moves` must have different names, but 'restart' is there twice"),
        ((Restart,), r"`moves\[0\]` must be a Move, found ABCMeta"),
        (3, "`moves` must be a list, found int"),
    ],
)
def test_moves_are_objects_with_different_names(moves: object, words: str) -> None:
    with pytest.raises(StructureError, match=words):
        Auto(moves=moves)  # type: ignore[arg-type]

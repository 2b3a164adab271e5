from dspn.learning.auto.bandit import Bandit
from dspn.learning.auto.recipes import Move


def test_what_has_paid_is_made_again() -> None:
    bandit = Bandit(gain=0.1, work=1.0)
    for _ in range(5):
        bandit = bandit.with_outcome(Move.SPLIT, 1.0, 1.0).with_outcome(Move.CLUSTERS, 0.0, 1.0)
    assert bandit.value(Move.SPLIT) > bandit.value(Move.CLUSTERS)


def test_what_was_never_tried_comes_before_what_never_paid() -> None:
    bandit = Bandit(gain=0.1, work=1.0)
    for _ in range(10):
        bandit = bandit.with_outcome(Move.SPLIT, 0.0, 1.0)
    assert bandit.value(Move.TREE) > bandit.value(Move.SPLIT)


def test_a_loss_counts_as_no_gain_and_the_record_is_a_value() -> None:
    before = Bandit(gain=0.1, work=1.0)
    after = before.with_outcome(Move.MERGE, -5.0, 2.0)
    assert not before.arms
    assert after.arms[Move.MERGE].gain == 0.0 and after.arms[Move.MERGE].work == 2.0

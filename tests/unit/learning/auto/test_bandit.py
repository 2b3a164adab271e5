import pytest

from dspn.learning.auto.base import Move
from dspn.learning.auto.moves import CLUSTERS, DEFAULT_MOVES, HiddenTree, Merge, Split
from dspn.learning.auto.planner import Arm, Bandit


def test_what_has_paid_is_made_again() -> None:
    bandit = Bandit(gain=0.1, work=1.0)
    for _ in range(5):
        bandit = bandit.with_outcome(Split(), 1.0, 1.0).with_outcome(CLUSTERS, 0.0, 1.0)
    assert bandit.value(Split()) > bandit.value(CLUSTERS)


def test_what_was_never_tried_comes_before_what_never_paid() -> None:
    bandit = Bandit(gain=0.1, work=1.0)
    for _ in range(10):
        bandit = bandit.with_outcome(Split(), 0.0, 1.0)
    assert bandit.value(HiddenTree()) > bandit.value(Split())


def test_a_loss_counts_as_no_gain_and_the_record_is_a_value() -> None:
    before = Bandit(gain=0.1, work=1.0)
    after = before.with_outcome(Merge(), -5.0, 2.0)
    assert not before.arms
    assert after.arms[Merge()].gain == 0.0 and after.arms[Merge()].work == 2.0


def tried() -> Bandit:
    """Three tries: 4 nats for 6 units of work in two, nothing for 2 units in one."""
    bandit = Bandit(gain=2.0, work=4.0)
    for move, gain, work in ((Split(), 3.0, 5.0), (Split(), 1.0, 1.0), (HiddenTree(), -1, 2.0)):
        bandit = bandit.with_outcome(move, gain, work)
    return bandit


def test_values_are_those_of_the_formula_in_the_documentation() -> None:
    """(e g + gain) / (w + work) + 0.7 e sqrt(log(1 + n) / (1 + n_m)) (2 + 4) / (4 + 8)."""
    before, after = Bandit(gain=2.0, work=4.0), tried()
    assert before.value(Split()) == 0.5
    assert before.value(Merge()) == pytest.approx(0.15, rel=1e-12)
    assert after.value(Split()) == pytest.approx(0.6 + 0.35 * 0.6797779935, rel=1e-9)
    assert after.value(HiddenTree()) == pytest.approx(1 / 6 + 0.175 * 0.8325546112, rel=1e-9)
    assert after.value(Merge()) == pytest.approx(0.15 + 0.105 * 1.1774100226, rel=1e-9)


@pytest.mark.parametrize("move", DEFAULT_MOVES)
def test_values_are_nats_for_work_in_any_unit(move: Move) -> None:
    bandit = tried()
    other = Bandit(
        gain=3 * bandit.gain,
        work=5 * bandit.work,
        arms={
            name: Arm(arm.count, 3 * arm.gain, 5 * arm.work) for name, arm in bandit.arms.items()
        },
    )
    assert other.value(move) == pytest.approx(3 / 5 * bandit.value(move), rel=1e-12)


def test_tries_that_pay_as_usual_raise_the_hope_for_other_moves_alone() -> None:
    """The record of all moves stays at half a nat for a unit, so that only hope changes."""
    bandit = Bandit(gain=2.0, work=4.0)
    for _ in range(5):
        other = bandit.with_outcome(Split(), 2.0, 4.0)
        assert other.value(CLUSTERS) > bandit.value(CLUSTERS)
        assert other.value(CLUSTERS) > other.value(Split())
        bandit = other

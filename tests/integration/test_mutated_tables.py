"""Some of the cases that `python tests/mutated_tables.py` has by the thousand."""

import sys

import pytest

from mutated_tables import campaign


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory of each case")
def test_mutated_tables_are_read_or_refused_in_a_sentence() -> None:
    found = list(campaign(list(range(192))))
    assert len(found) == 192
    assert [own for own in found if own.is_failure] == []

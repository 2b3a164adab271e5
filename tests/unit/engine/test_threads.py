"""Work in threads."""

import os
import signal

import pytest

from dspn.engine.cpu.batch import in_threads

SECONDS = 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPN_NUM_THREADS", "2")
    assert in_threads(abs, [-1, -2, -3]) == [1, 2, 3]
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        os._exit(0 if in_threads(abs, [-4, -5, -6]) == [4, 5, 6] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert in_threads(abs, [-7, -8]) == [7, 8]

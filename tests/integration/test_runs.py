"""Runs in processes of their own: two in one checkpoint, signals, a full disk, a closed output.

Run as a program, this file starts the processes that a test looks at.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dspn
from dspn import EmOptions, Model, Schema, Sequences, Variable
from dspn.__main__ import main
from dspn.atomic import replacing
from dspn.data.prepare import prepare
from dspn.errors import ModelFileError
from dspn.io import write_atomically
from dspn.learning.auto import Auto, learn_auto
from dspn.learning.growth import GrowthOptions
from dspn.learning.learner import Plan, learn
from dspn.learning.search import SearchOptions
from integration.forks import Forks, serve

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
ENVIRONMENT = {**os.environ, "PYTHONIOENCODING": "utf-8", "DSPN_NUM_THREADS": "1"}
# A process that was started in the background may have been told to ignore Ctrl-C.
HEEDING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from dspn.__main__ import main
main()
"""

# Ctrl-C at the moment when a module is looked for.
AT_IMPORT = """
import os, signal, sys
class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interruption())
"""

SCHEMA = Schema((Variable.binary("x"), Variable.binary("y")))
EM = EmOptions(max_steps=2)
AUTO = Auto(effort=1e3, patience=3, em=EM, refit=EM)
PLAN = Plan(
    growth=GrowthOptions(max_interfaces=2, num_starts=1, num_random=0, em=EM),
    search=SearchOptions(max_neighbours=3, round_size=1, new_part=EM, whole=EM),
)
PATIENT = {"auto": {"options": Auto(effort=1e6, patience=10**6, em=EM)}}
PATIENT["paper"] = {
    "plan": Plan(search=SearchOptions(max_neighbours=10**9, max_failures=10**9), growth=PLAN.growth)
}


def drawn(num_sequences: int, seed: int) -> Sequences:
    planted = Model.from_hmm(
        [0.5, 0.5],
        [[0.9, 0.1], [0.2, 0.8]],
        {name: [[0.9, 0.1], [0.2, 0.8]] for name in SCHEMA.names},
        schema=SCHEMA,
    )
    return planted.sample(num_sequences, 5, rng=np.random.default_rng(seed))


TRAIN, VALIDATION = drawn(24, 0), drawn(8, 1)


def learned(learner: str, **settings: Any) -> bytes:
    """The fingerprint of what is learned."""
    if learner == "auto":
        own = {"seed": 0, "options": AUTO, **settings}
        return learn_auto(TRAIN, VALIDATION, **own).mixture.fingerprint
    own = {"seed": 0, "plan": PLAN, "checkpoint_every": 0, **settings}
    return learn(TRAIN, VALIDATION, **own).network.fingerprint


# Two runs in one place.


@pytest.mark.parametrize("learner", ["auto", "paper"])
def test_two_runs_that_begin_in_one_place_do_not_mix(learner: str, tmp_path: Path) -> None:
    expected = {seed: learned(learner, seed=seed) for seed in (0, 1)}
    for number in range(3):
        place = tmp_path / str(number)
        together = threading.Barrier(2)

        def run(seed: int, place: Path = place, together: Any = together) -> bytes | str:
            together.wait()
            try:
                return learned(learner, seed=seed, checkpoint=place, resume=True)
            except ModelFileError as error:
                return str(error)

        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(run, (0, 1)))
        kept = [seed for seed in (0, 1) if isinstance(found[seed], bytes)]
        assert len(kept) == 1, found
        assert found[kept[0]] == expected[kept[0]]
        said = str(found[1 - kept[0]])
        assert "in use by run" in said or "another" in said
        assert learned(learner, seed=kept[0], checkpoint=place, resume=True) == expected[kept[0]]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """This file as a program."""
    program = Forks(__file__, ENVIRONMENT)
    yield program
    program.end()


@POSIX
@pytest.mark.parametrize("learner", ["auto", "paper"])
def test_a_checkpoint_is_of_one_process_until_that_ends(
    learner: str, forks: Forks, tmp_path: Path
) -> None:
    place = tmp_path / "run"
    settings = {**PATIENT[learner], "checkpoint": place, "resume": True}
    with forks.start("endless", learner, place) as process:
        process.until("state")
        said = rf"'{place}' is in use by run [0-9a-f]{{12}} in process {process.pid};"
        with pytest.raises(ModelFileError, match=said):
            learned(learner, **settings, time_limit=5.0)
    left = place / "run.lock" if learner == "auto" else tmp_path / "run.lock"
    assert left.exists()  # as nothing is tidied up by a process that was killed
    learned(learner, **settings, time_limit=1e-3)
    assert not left.exists()


def test_a_checkpoint_that_was_changed_is_gone_on_from_or_refused_by_name() -> None:
    """A slice of the campaign, which has other seeds and as many cases as one likes."""
    from checkpoint_mutations import campaign

    found, wrong, _ = campaign(200, seed=1)
    assert not wrong, wrong[0]
    assert found.total() == 200 and len({ending for _, ending in found}) == 2


# Signals.


def table(path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [f"s{one},{x:.3f},{x * x:.3f}" for one in range(30) for x in rng.standard_normal(5)]
    path.write_text("id,x,y\n" + "\n".join(rows) + "\n")


FIT = ("fit", "data.csv", "-s", "id", "-o", "best.dspn")


@POSIX
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_fit_with_the_best_model_so_far(
    name: str, forks: Forks, tmp_path: Path
) -> None:
    table(tmp_path / "data.csv")
    number = getattr(signal, name)
    with forks.start("command", *FIT, "--effort", "1000", cwd=tmp_path) as process:
        process.until("best score", "stderr")
        process.send_signal(number)
        last = process.stderr.read()
        assert process.wait() == 128 + number
    assert last.splitlines()[-1] == "interrupted; the best model so far is in 'best.dspn'."
    assert "Traceback" not in last
    assert dspn.load(tmp_path / "best.dspn").provenance["ending"] == "interrupted"


@POSIX
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_fit_to_shards_with_the_best_model_so_far(
    name: str, forks: Forks, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    rows = [f"s{one},{x:.3f}" for one in range(400) for x in rng.standard_normal(20).cumsum()]
    (tmp_path / "data.csv").write_text("id,x\n" + "\n".join(rows) + "\n")
    prepare(tmp_path / "data.csv", tmp_path / "shards", sequence="id", shard_slices=500)
    words = ("fit", "shards", "-o", "best.dspn", "--learner", "em", "--interfaces", "12")
    number = getattr(signal, name)
    with forks.start("command", *words, "--validation", "0", cwd=tmp_path) as process:
        process.until("step 1 on all shards", "stderr")
        process.send_signal(number)
        last = process.stderr.read()
        assert process.wait() == 128 + number, last
    # The last step may be over by then: no model that was learned is lost while it is written.
    known = ("the best model so far is in 'best.dspn'.", "what was learned is in 'best.dspn'.")
    assert last.splitlines()[-1].removeprefix("interrupted; ") in known
    assert "Traceback" not in last
    assert "sample" in dspn.load(tmp_path / "best.dspn").provenance


@POSIX
def test_a_signal_that_is_to_be_ignored_is_ignored(forks: Forks, tmp_path: Path) -> None:
    table(tmp_path / "data.csv")
    with forks.start("nohup", *FIT, "--effort", "0.1", cwd=tmp_path) as process:
        process.until("best score", "stderr")
        process.send_signal(signal.SIGHUP)
        process.stderr.read()
        assert process.wait() == 0


@POSIX
@pytest.mark.parametrize("module", ["typer", "dspn.cli.options", "numpy", "numba", "sklearn.base"])
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(module: str, tmp_path: Path) -> None:
    table(tmp_path / "data.csv")
    words = [sys.executable, "-c", AT_IMPORT.format(module=module) + HEEDING, *FIT]
    found = subprocess.run(
        words, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert found.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in found.stderr
    if module != "numba":
        assert not (tmp_path / "best.dspn").exists()
        return
    # Numba is loaded when the first model is trained. The signal waits until it and the kernels are
    # loaded, so that the model may be there by then; what is said and what is there agree.
    last = found.stderr.splitlines()[-1]
    if (tmp_path / "best.dspn").exists():
        assert last == "interrupted; the best model so far is in 'best.dspn'."
        assert dspn.load(tmp_path / "best.dspn").provenance["ending"] == "interrupted"
    else:
        assert last == "interrupted; no output file was written."


CLOSED_OR_FULL = pytest.mark.parametrize("output", [None, "/dev/full"], ids=["closed", "full"])


def check_refusal(status: int, errors: str) -> None:
    assert status == 1, errors
    assert "Traceback" not in errors and "Exception" not in errors
    assert ("bad file descriptor" in errors) or ("no space left" in errors)


@POSIX
@pytest.mark.parametrize("word", ["--help", "--version"])
@CLOSED_OR_FULL
def test_an_output_that_cannot_be_written_to_is_said_in_a_sentence(
    word: str, output: str | None
) -> None:
    script = f'"$@" {">&-" if output is None else f">{output}"}'
    words = ["sh", "-c", script, "sh", sys.executable, "-m", "dspn", word]
    found = subprocess.run(words, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    check_refusal(found.returncode, found.stderr)


@POSIX
@CLOSED_OR_FULL
def test_a_fit_whose_output_cannot_be_written_to_keeps_its_model(
    output: str | None, forks: Forks, tmp_path: Path
) -> None:
    table(tmp_path / "data.csv")
    fit = ("command", *FIT, "--learner", "em", "--interfaces", "2")
    for words in ((), ("--json",)):
        with forks.start(*fit, *words, cwd=tmp_path, stdout=output) as process:
            _, errors = process.communicate()
            if words:
                check_refusal(process.wait(), errors)
            else:
                assert process.wait() == 0 and "Traceback" not in errors
                assert "Exception" not in errors
        dspn.load(tmp_path / "best.dspn")
        (tmp_path / "best.dspn").unlink()


@POSIX
@pytest.mark.parametrize("streams", [{"stderr": None}, {"stdout": "gone", "stderr": "gone"}])
def test_messages_that_nobody_reads_do_not_end_a_fit(
    streams: dict[str, str | None], forks: Forks, tmp_path: Path
) -> None:
    table(tmp_path / "data.csv")
    with forks.start("command", *FIT, "--effort", "0.001", cwd=tmp_path, **streams) as process:
        assert process.wait() == 0
    dspn.load(tmp_path / "best.dspn")


# Files of processes that are gone, and of those that are not.


@POSIX
def test_temporary_files_of_a_killed_process_are_swept_and_those_of_others_are_not(
    forks: Forks, tmp_path: Path
) -> None:
    with forks.start("writing", tmp_path / "live.dspn") as live:
        live.until("open")
        with forks.start("writing", tmp_path / "killed.dspn") as killed:
            killed.until("open")
        assert len(list(tmp_path.glob(".dspn-*.tmp"))) == 2
        write_atomically(tmp_path / "new.dspn", b"new")
        assert len(list(tmp_path.glob(".dspn-*.tmp"))) == 1
        _, errors = live.communicate("go on\n")
        assert live.wait() == 0, errors
    assert {path.name for path in tmp_path.iterdir()} == {"live.dspn", "new.dspn"}
    assert (tmp_path / "live.dspn").read_bytes() == b"whole"


# A full disk.


@POSIX
@pytest.mark.parametrize("learner", ["auto", "paper"])
def test_a_disk_that_is_full_at_a_checkpoint_does_not_end_learning(
    learner: str, forks: Forks, tmp_path: Path
) -> None:
    """No file of the process may be larger than a few kilobytes, as on a disk with no more."""
    with forks.start("full", learner, tmp_path / "run") as process:
        said, errors = process.communicate()
        assert process.wait() == 0, errors
    expected = learned(learner)
    assert said.splitlines()[-1] == expected.hex()
    assert "cannot write" in errors and "learning goes on" in errors
    assert not list(tmp_path.rglob("*.tmp"))
    assert learned(learner, checkpoint=tmp_path / "run", resume=True) == expected


# As a program.


def run_endless(learner: str, place: str) -> None:
    settings = {**PATIENT[learner], "checkpoint": place, "resume": True}
    learned(learner, **settings, report=lambda _: print("state", flush=True))


def run_writing(path: str) -> None:
    with replacing(path, None) as file:
        file.write(b"whole")
        print("open", flush=True)
        sys.stdin.readline()


def run_full(learner: str, place: str) -> None:
    import resource

    # Longer than the description of a run, shorter than a model.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_800, 1_800))
    print(learned(learner, checkpoint=place).hex(), flush=True)


def run_command(*words: str) -> None:
    sys.argv[1:] = words
    main()


def run_nohup(*words: str) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run_command(*words)


if __name__ == "__main__":
    # What the tasks import and compile is there before the first of them.
    for module in ("dspn.cli.app", "dspn.cli.fit", "dspn.data.tables", "pyarrow.csv"):
        import_module(module)
    learned("auto")
    numbers = np.random.default_rng(0).standard_normal((20, 5, 2))
    dspn.DSPN(Auto(effort=1e-3), random_state=0).fit(numbers)
    tasks = {"endless": run_endless, "writing": run_writing, "full": run_full}
    serve({**tasks, "command": run_command, "nohup": run_nohup})

"""Compiled kernels on disk: folders that cannot be written, damaged files, edited sources."""

import ctypes
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dspn
from dspn.engine.cpu import kernel_cache
from dspn.engine.cpu.kernels import OPTIONS
from dspn.engine.cpu.kernels.coding import has_missing
from integration.forks import Forks

# Runs one small kernel; says what it answers and how often it was found on disk.
RUN = """
import numpy as np
from dspn.engine.cpu.batch import announce_compilation
from dspn.engine.cpu.kernels.coding import has_missing as kernel
if {announced}: announce_compilation()
print(kernel(np.array([[0.0, np.nan], [1.0, 2.0]])).tolist(), sum(kernel.stats.cache_hits.values()))
"""


def heed_file_modes() -> None:
    """Takes from root the right to write where the modes of files forbid it (Linux)."""
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).prctl(24, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot drop CAP_DAC_OVERRIDE")


# A program that has imported and used Numba, but nothing of this package, before it forks.
PROGRAM = """
import os, sys
import numba
from integration.forks import serve
numba.njit(lambda x: x)(1)
def run(tree, home, temporary, code):
    os.environ.update(HOME=home, TMPDIR=temporary)
    sys.path.insert(0, tree)
    exec(code)
serve({"run": run})
"""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    file = tmp_path_factory.mktemp("program") / "program.py"
    file.write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    program = Forks(str(file), environment, preexec_fn=heed_file_modes)
    yield program
    program.end()


class Installation:
    """A copy of the package with a home and a folder for temporary files of its own."""

    def __init__(self, root: Path, forks: Forks) -> None:
        self.root, self.forks = root, forks
        self.kernels = root / "tree/dspn/engine/cpu/kernels"
        source = Path(dspn.__file__).parent
        shutil.copytree(source, root / "tree/dspn", ignore=shutil.ignore_patterns("*.nb?"))
        (root / "home").mkdir()
        (root / "temporary").mkdir()

    def run(self, code: str | None = None, *, announced: bool = False) -> tuple[str, str]:
        """What a new process that may not write in the tree or home prints, and its errors."""
        code = RUN.format(announced=announced) if code is None else code
        folders = (self.root / name for name in ("tree", "home", "temporary"))
        with self.forks.start("run", *folders, code, cwd=self.root) as process:
            printed, errors = process.communicate()
            assert process.wait() == 0, errors
        return printed.strip(), errors

    def forbid_writing(self) -> None:
        for folder in (self.root / "tree", self.root / "home"):
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o555 if path.is_dir() else 0o444)
        code = "import tempfile, dspn; tempfile.TemporaryFile(dir=dspn.__path__[0])"
        with pytest.raises(AssertionError, match="PermissionError"):
            self.run(code)

    def allow_writing(self) -> None:
        for folder in (self.root / "tree", self.root / "home"):
            for path in (folder, *(each for each in folder.rglob("*") if each.is_dir())):
                path.chmod(0o755)


@pytest.fixture
def installation(tmp_path: Path, forks: Forks) -> Iterator[Installation]:
    made = Installation(tmp_path, forks)
    yield made
    made.allow_writing()


posix = pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")


@posix
def test_a_read_only_tree_without_a_home_keeps_kernels_in_a_private_temporary_folder(
    installation: Installation,
) -> None:
    installation.forbid_writing()

    assert installation.run() == ("[False, True] 0", "")
    assert installation.run() == ("[False, True] 1", "")
    (folder,) = (installation.root / "temporary").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@posix
@pytest.mark.parametrize("trap", ["open to others", "a link"])
def test_a_temporary_folder_that_others_could_fill_is_not_used(
    installation: Installation, trap: str
) -> None:
    installation.forbid_writing()
    planted = installation.root / f"temporary/dspn-kernels-{os.getuid()}"
    if trap == "a link":
        (installation.root / "elsewhere").mkdir()
        planted.symlink_to(installation.root / "elsewhere")
    else:
        planted.mkdir()
        planted.chmod(0o777)

    answer, said = installation.run(announced=True)

    assert answer == "[False, True] 0"
    assert said.count("\n") == 1
    assert "no folder to keep them can be written; set NUMBA_CACHE_DIR" in said
    assert not list(planted.iterdir())


@posix
def test_kernels_compiled_before_the_tree_was_made_read_only_are_used(
    installation: Installation,
) -> None:
    installation.run()
    installation.forbid_writing()

    assert installation.run() == ("[False, True] 1", "")


def halved(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    """The content with every byte of its second half changed: there is the machine code."""
    middle = len(content) // 2
    return content[:middle] + bytes(each ^ 0x55 for each in content[middle:])


def test_a_damaged_file_is_compiled_again_and_said_once(installation: Installation) -> None:
    assert installation.run() == ("[False, True] 0", "")
    files = list((installation.root / "tree").rglob("*.nb?"))
    assert files
    for damage in (halved, flipped):
        for file in files:
            file.write_bytes(damage(file.read_bytes()))

        answer, said = installation.run()

        assert answer == "[False, True] 0"
        assert said == "dspn: a compiled kernel was damaged and is compiled again.\n"
    assert installation.run() == ("[False, True] 1", "")


def test_a_kernel_is_compiled_again_after_an_edit_of_a_kernel_in_another_file(
    installation: Installation,
) -> None:
    head = "from dspn.engine.cpu.kernel_cache import njit\n"
    callee = head + "@njit()\ndef callee(x):\n    return x + {}\n"
    (installation.kernels / "callee.py").write_text(callee.format(1))
    (installation.kernels / "caller.py").write_text(
        f"{head}from dspn.engine.cpu.kernels.callee import callee\n"
        "@njit()\ndef caller(x):\n    return callee(x)\n"
    )
    code = "from dspn.engine.cpu.kernels.caller import caller; print(caller(1))"

    assert installation.run(code)[0] == "2"
    (installation.kernels / "callee.py").write_text(callee.format(2))
    assert installation.run(code)[0] == "3"


def test_no_damage_of_a_file_changes_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel_cache, "folder", lambda: tmp_path)

    def run() -> int:
        """Asks a new dispatcher; returns how often it found its code on disk."""
        kernel = kernel_cache.njit(**OPTIONS)(has_missing.py_func)
        assert kernel(np.array([[0.0, np.nan]])).tolist() == [False, True]
        return sum(kernel.stats.cache_hits.values())

    assert run() == 0
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    places = [0, 31, 32, 63, 64, len(whole) // 3, len(whole) - 1]
    damages = [whole[:size] for size in (0, 1, 40, 64, len(whole) - 1)]
    damages += [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in places]
    for damaged in damages:
        file.write_bytes(damaged)
        assert run() == 0
        assert run() == 1
    assert capsys.readouterr().err.count("\n") <= 1


def test_the_code_of_another_kernel_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "folder", lambda: tmp_path)

    def one(x: float) -> float:
        return x + 1

    def two(x: float) -> float:
        return x + 2

    def run(function: Callable[[float], float]) -> Any:
        return kernel_cache.njit(**OPTIONS)(function)(0.0)

    assert [run(one), run(two)] == [1, 2]
    first, second = sorted(tmp_path.iterdir())
    shutil.copy(first, second)
    assert [run(one), run(two)] == [1, 2]


def test_a_folder_that_vanishes_does_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "folder", lambda: tmp_path / "gone")

    kernel = kernel_cache.njit(**OPTIONS)(has_missing.py_func)

    assert kernel(np.array([[np.nan]])).tolist() == [True]


def test_every_kernel_is_kept_by_this_cache_and_part_of_its_digest() -> None:
    package = Path(dspn.__file__).parent
    engine = Path(kernel_cache.__file__).parent
    known = {path for pattern in kernel_cache.SOURCES for path in engine.glob(pattern)}
    marks = ("njit(", "@kernel", "@reducing")
    sources = {path: path.read_text() for path in package.rglob("*.py")}
    using = {path for path, text in sources.items() if any(mark in text for mark in marks)}
    using.remove(engine / "kernel_cache.py")

    assert len(using) >= 9
    assert using <= known
    assert [path.name for path in using if "numba import njit" in path.read_text()] == []

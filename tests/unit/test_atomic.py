import errno
import os
import signal
import stat
from pathlib import Path

import pytest

from dspn import atomic
from dspn.errors import ModelFileError
from dspn.io import write_atomically

OLD = b"the old file"
NEW = b"the new file" * 1000

needs_permissions = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="nothing is forbidden to this user"
)


def entries(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "model.dspn"
    path.write_bytes(OLD)
    return path


def assert_refused(path: Path, said: str) -> None:
    with pytest.raises(ModelFileError, match=said) as caught:
        write_atomically(path, NEW)
    assert str(path) in str(caught.value)


def test_write_creates_a_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new.dspn", NEW)
    assert (tmp_path / "new.dspn").read_bytes() == NEW
    assert entries(tmp_path) == ["new.dspn"]


def test_write_replaces_a_file(old: Path) -> None:
    write_atomically(str(old), NEW)
    assert old.read_bytes() == NEW
    assert entries(old.parent) == ["model.dspn"]


def test_write_takes_a_name_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically("model.dspn", NEW)
    assert (tmp_path / "model.dspn").read_bytes() == NEW


def test_write_takes_a_name_of_the_longest_length(tmp_path: Path) -> None:
    path = tmp_path / ("m" * 255)
    write_atomically(path, NEW)
    assert path.read_bytes() == NEW


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_write_keeps_the_permissions_of_an_old_file(old: Path) -> None:
    old.chmod(0o640)
    write_atomically(old, NEW)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_write_gives_a_new_file_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_atomically(tmp_path / "model.dspn", NEW)
    assert (tmp_path / "model.dspn").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_write_follows_a_link(old: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.dspn"
    link.symlink_to(old)
    write_atomically(link, NEW)
    assert link.is_symlink()
    assert old.read_bytes() == NEW


def test_write_into_a_missing_directory_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none" / "model.dspn", "directory .*none' does not exist; create it")


def test_write_below_a_file_is_refused(old: Path) -> None:
    assert_refused(old / "model.dspn", "not a directory|does not exist")
    assert old.read_bytes() == OLD


def test_write_to_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    assert_refused(tmp_path / "models", "it is a directory")
    assert entries(tmp_path) == ["models"]
    assert entries(tmp_path / "models") == []


def test_write_to_a_name_with_a_null_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="null"):
        write_atomically(f"{tmp_path}/a\0b", NEW)


def test_write_to_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / ("m" * 300), "too long")
    assert entries(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_write_to_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@needs_permissions
def test_write_to_a_protected_file_is_refused(old: Path) -> None:
    old.chmod(0o444)
    assert_refused(old, "may not be written")
    assert old.read_bytes() == OLD


@needs_permissions
def test_write_into_a_protected_directory_is_refused(old: Path) -> None:
    old.parent.chmod(0o555)
    try:
        assert_refused(old, "permission denied")
    finally:
        old.parent.chmod(0o755)
    assert old.read_bytes() == OLD
    assert entries(old.parent) == ["model.dspn"]


def test_write_is_refused_where_the_file_may_not_be_written(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert_refused(old, "may not be written")
    assert old.read_bytes() == OLD


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_failure_at_any_step_keeps_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, step, fail)
    assert_refused(old, "no space left on device")
    monkeypatch.undo()
    assert old.read_bytes() == OLD
    assert entries(old.parent) == ["model.dspn"]


def test_write_that_fails_half_way_keeps_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(NEW) // 2, hard))
    try:
        assert_refused(old, "file too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert old.read_bytes() == OLD
    assert entries(old.parent) == ["model.dspn"]


def test_interruption_keeps_the_old_file_and_is_passed_on(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(old, NEW)
    assert old.read_bytes() == OLD
    assert entries(old.parent) == ["model.dspn"]


def test_data_is_on_disk_before_it_replaces_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        steps.append("fsync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync")
        real_fsync(descriptor)

    def replace(source: str, target: str) -> None:
        assert Path(source).read_bytes() == NEW
        assert Path(source).parent == Path(target).parent
        steps.append("replace")
        real_replace(source, target)

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    monkeypatch.setattr(atomic.os, "replace", replace)
    write_atomically(old, NEW)
    assert steps[:2] == ["fsync", "replace"]
    assert steps[2:] in ([], ["fsync directory"])

"""Locks on files that end with the process that holds them, however it ends."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dspn.errors import ModelFileError, warn

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_FAR = 1 << 30  # Windows locks bytes, and nobody else may read them


def try_lock(descriptor: int) -> bool:
    """Takes the lock of an open file; False where somebody else holds it.

    Raises OSError where the file system has no locks.
    """
    if sys.platform == "win32":
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(descriptor: int, path: str) -> bool:
    """Whether the open file is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


@contextmanager
def exclusive(path: str, place: str, run: str) -> Iterator[None]:
    """Keeps the checkpoint at `place` for one run, by a lock on the file at `path`.

    The file says who holds it. It is removed at the end; one that a killed process has left is not
    locked any more, and hinders nobody.
    """
    try:
        descriptor = _held(path, place)
    except OSError as error:
        raise ModelFileError(
            f"cannot lock the checkpoint {place!r} for this run: {error.strerror or error} "
            f"({path!r}); give another path."
        ) from error
    try:
        with suppress(OSError):  # a full disk: the lock counts, not what it says
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"run {run} in process {os.getpid()}".encode())
        yield
    finally:
        if sys.platform == "win32":  # where no file is removed that is open
            os.close(descriptor)
        with suppress(OSError):
            os.unlink(path)
        if sys.platform != "win32":
            os.close(descriptor)


def _held(path: str, place: str) -> int:
    """The lock file, open and locked."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            if not _locked(descriptor, place):
                raise ModelFileError(
                    f"`checkpoint` must belong to one run at a time, but {place!r} is in use by "
                    f"{_holder(descriptor)}; wait for its end, or give another path."
                )
            # Whoever held it before may have removed it in between.
            if is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _locked(descriptor: int, place: str) -> bool:
    try:
        return try_lock(descriptor)
    except OSError as error:
        warn(
            f"the checkpoint {place!r} cannot be locked ({error.strerror or error}); see to it "
            "that no other run uses it at the same time.",
            UserWarning,
        )
        return True


def _holder(descriptor: int) -> str:
    with suppress(OSError):
        said = os.pread(descriptor, 100, 0) if hasattr(os, "pread") else os.read(descriptor, 100)
        if said and said.isascii() and said.decode().isprintable():
            return said.decode()
    return "another run"

"""Files that are there whole or not at all, and locks that end with the process that holds them."""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final

from dspn.errors import ModelFileError, warn

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PREFIX: Final = ".dspn-"
_SUFFIX: Final = ".tmp"
_FAR: Final = 1 << 30  # Windows locks bytes, and nobody else may read them


def path_text(path: Any) -> str:
    """The path as text; anything but text, bytes and path objects is refused.

    A number would be taken for a file that is already open.
    """
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ModelFileError(
            "`path` must be the name of a file, as text or a path object, found "
            f"{type(path).__name__}."
        ) from None


def write_atomically(path: str | bytes | os.PathLike[str], data: bytes) -> None:
    """After it, `path` holds all of `data`; after any failure, what it held before.

    The bytes go to a temporary file in the same directory, reach the disk, and take the place of
    the old file in one step. A link is followed, the permissions of an old file are kept, and a
    file that may not be written is not replaced.
    """
    name, target = path_text(path), ""
    try:
        target = os.path.realpath(name)
        with replacing(target, _mode_of_old_file(target)) as file:
            file.write(data)
    except (OSError, ValueError) as error:
        reason = _reason(error, target)
        raise ModelFileError(f"cannot write {name!r}: {reason}.") from error


def _mode_of_old_file(target: str) -> int | None:
    """Permissions of the file to be replaced; raises where something else stands in its place."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket; give the name of a file")
    if not os.access(target, os.W_OK):
        raise PermissionError(
            errno.EACCES, "the file there may not be written; change its permissions"
        )
    return stat.S_IMODE(mode)


@contextmanager
def replacing(target: str, mode: int | None) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `target` at the end, unless something fails.

    It has the permissions `mode`, or those of any new file. It is locked until it has its name;
    temporary files that nobody has locked are those of processes that were killed, and go.
    """
    directory = os.path.dirname(target)
    _sweep(directory)
    file, temporary = _temporary(directory)
    try:
        with file:
            if mode is not None:
                os.chmod(temporary, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "posix":  # elsewhere no file gets another name while it is open
                os.replace(temporary, target)
        if os.name != "posix":
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(directory)


def is_temporary(name: str) -> bool:
    """Whether a file has the name of one that is being written, or was when its process ended."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def _temporary(directory: str) -> tuple[BinaryIO, str]:
    """A new file, locked where the system has locks, and its name."""
    while True:
        path = os.path.join(directory, f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        file = open(path, "xb")  # noqa: SIM115 (whoever asked for it closes it)
        if os.name != "posix":
            return file, path
        with suppress(OSError):
            try_lock(file.fileno())
        # Somebody may have swept it away before it was locked.
        if is_at(file.fileno(), path):
            return file, path
        file.close()


def _sweep(directory: str) -> None:
    """Removes the temporary files that no process has locked."""
    if os.name != "posix":
        return
    with suppress(OSError):
        for name in filter(is_temporary, os.listdir(directory)):
            with suppress(OSError):
                path = os.path.join(directory, name)
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if try_lock(descriptor):
                        os.unlink(path)
                finally:
                    os.close(descriptor)


def _sync_directory(directory: str) -> None:
    """Makes the new name survive a loss of power, where the system offers that."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(error: OSError | ValueError, target: str) -> str:
    match error:
        case FileNotFoundError():
            directory = os.path.dirname(target)
            return f"the directory {directory!r} does not exist; create it first"
        case IsADirectoryError():
            return "it is a directory; give the name of a file in it"
        case OSError(strerror=str(reason)):
            return reason[:1].lower() + reason[1:]
        case _:
            return str(error)


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
            try:
                is_locked = try_lock(descriptor)
            except OSError as error:
                is_locked = True
                warn(
                    f"the checkpoint {place!r} cannot be locked ({error.strerror or error}); see "
                    "to it that no other run uses it at the same time.",
                    UserWarning,
                )
            if not is_locked:
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


def _holder(descriptor: int) -> str:
    """What the lock file says of the run that holds it."""
    with suppress(OSError):
        text = os.pread(descriptor, 100, 0) if hasattr(os, "pread") else os.read(descriptor, 100)
        if text and text.isascii() and text.decode().isprintable():
            return text.decode()
    return "another run"

"""Files that are there whole or not at all."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final

from dspn.errors import ModelFileError
from dspn.io.lock import is_at, try_lock
from dspn.io.paths import path_text

_PREFIX: Final = ".dspn-"
_SUFFIX: Final = ".tmp"


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
        case OSError(strerror=str(said)):
            return said[:1].lower() + said[1:]
        case _:
            return str(error)

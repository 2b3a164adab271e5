"""Files that are there whole or not at all."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from dspn.errors import ModelFileError
from dspn.io.paths import path_text


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

    It has the permissions `mode`, or those of any new file.
    """
    directory = os.path.dirname(target)
    temporary = os.path.join(directory, f".dspn-{secrets.token_hex(8)}.tmp")
    file = open(temporary, "xb")  # noqa: SIM115 (closed below; what fails here leaves no file)
    try:
        with file:
            if mode is not None:
                os.chmod(temporary, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(directory)


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

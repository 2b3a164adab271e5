"""Where the files of a data set lie, and whether they are the right ones."""

import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from dspn.errors import DataError

ENVIRONMENT_VARIABLE: Final = "DSPN_DATA"

_MOST_NAMED: Final = 4


@final
@dataclass(frozen=True)
class DataFile:
    """A file by its path in the folder of its data set, with size and SHA-256 of its content.

    The content is what counts: the file itself, or the same with `.gz` behind its name.
    """

    path: str
    size: int
    sha256: str


@final
@dataclass(frozen=True)
class Source:
    """A data set as files in a folder of the data directory, and where they can be had."""

    name: str
    folder: str
    origin: str
    files: tuple[DataFile, ...]


def cache_directory(platform: str, environment: Mapping[str, str], home: Path) -> Path:
    """The per-user cache of the library, by the rule of the platform (a value of sys.platform)."""
    if platform == "win32":
        base = environment.get("LOCALAPPDATA", "")
        return (Path(base) if base else home / "AppData" / "Local") / "dspn"
    if platform == "darwin":
        return home / "Library" / "Caches" / "dspn"
    base = environment.get("XDG_CACHE_HOME", "")
    # The specification has relative paths ignored.
    return (Path(base) if base.startswith("/") else home / ".cache") / "dspn"


def data_directory(directory: str | os.PathLike[str] | None = None) -> Path:
    """The folder given, else that of the variable DSPN_DATA, else the per-user cache."""
    if directory is None:
        named = os.environ.get(ENVIRONMENT_VARIABLE, "")
        if named:
            return Path(named).expanduser()
        return cache_directory(sys.platform, os.environ, Path.home())
    if not isinstance(directory, str | os.PathLike) or not isinstance(os.fspath(directory), str):
        raise DataError(
            "`directory` must be the path of a folder, as text or a path object, found "
            f"{type(directory).__name__}."
        )
    return Path(directory).expanduser()


def _present(folder: Path, file: DataFile) -> Path | None:
    """The file, or its compressed form."""
    plain = folder / file.path
    return next((path for path in (plain, Path(f"{plain}.gz")) if path.is_file()), None)


def _located(source: Source, folder: Path) -> list[Path]:
    """A path for each file; raises with those that are missing."""
    found = [_present(folder, file) for file in source.files]
    missing = [file.path for file, path in zip(source.files, found, strict=True) if path is None]
    if missing:
        named = ", ".join(missing[:_MOST_NAMED])
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        raise DataError(
            f"the data set {source.name} needs the files {named}{more} in the folder {folder}, "
            f"each as it is or with .gz behind its name, but they are not there. They can be had "
            f"from {source.origin}. Put them there, or name the folder above by `directory` or by "
            f"the environment variable {ENVIRONMENT_VARIABLE}."
        )
    return [path for path in found if path is not None]


def _content(path: Path, file: DataFile) -> bytes:
    """All bytes, or one more than there should be: nothing of any size is taken into memory."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            content: bytes = stream.read(file.size + 1)
    except (OSError, EOFError, zlib.error) as reason:
        raise DataError(f"the file {path} cannot be read: {reason}; get it again.") from None
    return content


def _verified(path: Path, file: DataFile, source: Source) -> bytes:
    content = _content(path, file)
    remedy = f"It is damaged or another version; get it again from {source.origin}."
    if len(content) != file.size:
        held = "more" if len(content) > file.size else f"{len(content)}"
        raise DataError(
            f"the file {path} of the data set {source.name} must hold {file.size} bytes, but holds "
            f"{held}. {remedy}"
        )
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise DataError(
            f"the file {path} of the data set {source.name} must have the SHA-256 {file.sha256}, "
            f"but has {found}. {remedy}"
        )
    return content


def verified_contents(
    source: Source, directory: str | os.PathLike[str] | None = None
) -> Iterator[bytes]:
    """The content of each file, one after the other, of the right size and SHA-256."""
    paths = _located(source, data_directory(directory) / source.folder)
    for path, file in zip(paths, source.files, strict=True):
        yield _verified(path, file, source)

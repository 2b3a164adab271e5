"""Results that are kept as they come, so that a run goes on where it was stopped."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import dspn
from dspn.errors import DataError
from dspn.io import write_atomically


@final
class Results:
    """What is known so far, a file for each result in a directory.

    Several runs may share the directory. Results of another release of the library are not results
    of this one, and are left out.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[str, dict[str, Any]] = {}

    def find(self, key: str) -> dict[str, Any] | None:
        """The result of that name, None where there is none yet."""
        if key not in self._known:
            path = self._path(key)
            if not path.exists():
                return None
            read = _read(path)
            if read is None:
                return None
            self._known[key] = read
        return self._known[key]

    def add(self, key: str, entry: dict[str, Any]) -> None:
        """Keeps a result; one of the same name is replaced."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"version": dspn.__version__, "entry": entry}
        write_atomically(str(path), json.dumps(content, indent=1).encode())
        self._known[key] = entry

    def under(self, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Names that begin so, in their order, and their results."""
        for path in sorted((self.directory / prefix).rglob("*.json")):
            key = path.relative_to(self.directory).with_suffix("").as_posix()
            entry = self.find(key)
            if entry is not None:
                yield key, entry

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.json"


def _read(path: Path) -> dict[str, Any] | None:
    """The result in a file, None where it is of another release."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        known = saved["version"] == dspn.__version__
        entry = dict(saved["entry"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the result in {str(path)!r} cannot be read ({error}); move the file away to begin "
            "anew."
        ) from error
    return entry if known else None

"""Results that are kept as they come, so that a run goes on where it was stopped."""

import json
from pathlib import Path
from typing import Any, final

import dspn
from dspn.errors import DataError
from dspn.io import write_atomically


@final
class Results:
    """What is known so far, in a file that is written anew after every fold.

    Results of another release of the library are not results of this one, and are left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Any] = {}
        if not path.exists():
            return
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            known = saved["version"] == dspn.__version__
            entries = dict(saved["entries"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"the results in {str(path)!r} cannot be read ({error}); move the file away to "
                "begin anew."
            ) from error
        if known:
            self.entries = entries

    def add(self, key: str, entry: dict[str, Any]) -> None:
        """Adds the result of a fold and writes everything."""
        self.entries[key] = entry
        content = {"version": dspn.__version__, "entries": self.entries}
        write_atomically(str(self.path), json.dumps(content, indent=1).encode())

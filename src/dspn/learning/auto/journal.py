"""Every trained candidate in a directory, so that a run goes on where it was interrupted.

A run is a chain of tries that follows from data, options and seed. It is taken up again by going
the same way once more, with every candidate that is in the directory read instead of trained.
"""

import json
import os
from pathlib import Path
from typing import Any, Final, final

from dspn._version import __version__
from dspn.engine import compile_program, likelihood
from dspn.errors import ModelFileError
from dspn.io import JSON, load_network, save_network
from dspn.io.atomic import write_atomically
from dspn.io.paths import path_text
from dspn.learning.auto.candidates import Candidate
from dspn.learning.auto.task import AutoTask
from dspn.learning.auto.tries import Try
from dspn.learning.plan import described
from dspn.sequences.fingerprint import data_fingerprint

_RUN: Final = "run.json"
_ENTRY: Final = "learning"


@final
class Journal:
    """The directory of one run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def of(cls, path: str | os.PathLike[str], task: AutoTask, *, resume: bool) -> "Journal":
        """The directory, made where it is missing; with `resume` it may belong to this run."""
        directory = Path(path_text(path))
        run = _described_run(task)
        if directory.exists() and not directory.is_dir():
            raise ModelFileError(
                f"`checkpoint` must be a directory for the automatic learner, but "
                f"{str(directory)!r} is a file; give another path."
            )
        kept = directory / _RUN
        if kept.exists():
            if not resume:
                raise ModelFileError(
                    f"there is a run in the directory {str(directory)!r} already; go on from it "
                    "with `resume=True`, or remove it."
                )
            _require_same(_read_run(kept), run, directory)
        elif directory.exists() and not all(map(_is_leftover, directory.iterdir())):
            raise ModelFileError(
                f"`checkpoint` must be an empty or a new directory, but {str(directory)!r} holds "
                "other files; give another path."
            )
        else:
            _make(directory)
            write_atomically(kept, json.dumps(run, indent=1).encode("utf-8"))
        return cls(directory)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:05d}.dspn"

    def recall(self, attempt: Try, task: AutoTask) -> Candidate | None:
        """The candidate of a try, where it was trained before."""
        path = self._path(attempt.number)
        if not path.exists():
            return None
        found = load_network(path)
        entry: Any = found.provenance.get(_ENTRY)
        if not isinstance(entry, dict) or entry.get("try") != _described_try(attempt):
            raise ModelFileError(
                f"{str(path)!r} is not the model that this run trained; remove the directory and "
                "begin anew."
            )
        return Candidate(
            attempt.number,
            attempt.block,
            found.network,
            attempt.recipe,
            likelihood(compile_program(found.network), task.data(attempt.block).validation),
            int(entry["steps"]),
            float(entry["work"]),
        )

    def keep(self, candidate: Candidate) -> None:
        """Writes a candidate, whole or not at all."""
        entry: dict[str, JSON] = {
            "try": _described_try(candidate),
            "steps": candidate.steps,
            "work": candidate.work,
        }
        path = self._path(candidate.number)
        save_network(candidate.network, path, provenance={_ENTRY: entry})


def _is_leftover(path: Path) -> bool:
    """Whether a file is what `write_atomically` leaves where the process was killed."""
    return path.name.startswith(".dspn-") and path.suffix == ".tmp"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(
            f"cannot make the directory {str(directory)!r} for the checkpoint: "
            f"{error.strerror or error}; give another path."
        ) from error


def _read_run(path: Path) -> object:
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{str(path)!r}, which says what run the directory is of, cannot be read ({error}); "
            "remove the directory and begin anew."
        ) from error
    return found


def _described_try(made: Try | Candidate) -> JSON:
    return {
        "number": made.number,
        "block": list(made.block),
        "recipe": described(made.recipe),
    }


def _described_run(task: AutoTask) -> dict[str, JSON]:
    return {
        "release": __version__,
        "options": described(task.options),
        "priors": described(task.priors),
        "seed": task.seed,
        "root": task.root.value,
        "tied": task.tied,
        "train": data_fingerprint(task.train).hex(),
        "validation": data_fingerprint(task.validation).hex(),
    }


def _require_same(saved: object, own: dict[str, JSON], directory: Path) -> None:
    known = saved if isinstance(saved, dict) else {}
    others = [name for name in own if json.dumps(known.get(name)) != json.dumps(own[name])]
    if others:
        raise ModelFileError(
            f"the run in {str(directory)!r} is another one: its {', '.join(others)} differ. Give "
            "what it was made with, or begin anew at another path."
        )

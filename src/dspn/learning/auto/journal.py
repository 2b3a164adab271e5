"""Every trained candidate in a directory, so that a run goes on where it was interrupted.

A run is a chain of tries that follows from data, options and seed. It is taken up again by going
the same way once more, with every candidate that is in the directory read instead of trained.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from dspn._version import __version__
from dspn.engine import compile_program
from dspn.errors import ModelFileError
from dspn.io import JSON, load_network
from dspn.io.atomic import exclusive, is_temporary, path_text, write_atomically
from dspn.io.json_values import compact, fields, parse, plain, whole
from dspn.learning.auto.candidates import Candidate
from dspn.learning.auto.task import AutoTask
from dspn.learning.auto.tries import Try
from dspn.learning.checkpoints import keep_network
from dspn.learning.plan import described
from dspn.sequences.fingerprint import data_fingerprint

_RUN: Final = "run.json"
_LOCK: Final = "run.lock"
_ENTRY: Final = "learning"
_MOST_BYTES: Final = 1 << 20  # of the description of a run, which has a few thousand


@final
class Journal:
    """The directory of one run."""

    def __init__(self, directory: Path, run: dict[str, JSON]) -> None:
        self._directory = directory
        self._run = run

    @classmethod
    @contextmanager
    def held(
        cls, path: str | os.PathLike[str], task: AutoTask, *, resume: bool
    ) -> Iterator["Journal"]:
        """The directory as `of` has it, kept from other runs until this one ends."""
        directory = _made(path)
        run = _described_run(task)
        digest = hashlib.sha256(compact(run).encode()).hexdigest()
        with exclusive(str(directory / _LOCK), str(directory), digest[:12]):
            yield cls._begun(directory, run, resume=resume)

    @classmethod
    def of(cls, path: str | os.PathLike[str], task: AutoTask, *, resume: bool) -> "Journal":
        """The directory, made where it is missing; with `resume` it may belong to this run."""
        return cls._begun(_made(path), _described_run(task), resume=resume)

    @classmethod
    def _begun(cls, directory: Path, run: dict[str, JSON], *, resume: bool) -> "Journal":
        kept = directory / _RUN
        if os.path.lexists(kept):
            if not resume:
                raise ModelFileError(
                    f"there is a run in the directory {str(directory)!r} already; go on from it "
                    "with `resume=True`, or remove it."
                )
            others = _differences(_read_run(kept), run)
            if others:
                raise ModelFileError(
                    f"the run in {str(directory)!r} is another one: its {', '.join(others)} "
                    "differ. Give what it was made with, or begin anew at another path."
                )
        elif not all(map(_is_leftover, directory.iterdir())):
            raise ModelFileError(
                f"`checkpoint` must be an empty or a new directory, but {str(directory)!r} holds "
                "other files; give another path."
            )
        else:
            write_atomically(kept, json.dumps(run, indent=1).encode("utf-8"))
        return cls(directory, run)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:05d}.dspn"

    def recall(self, attempt: Try, task: AutoTask) -> Candidate | None:
        """The candidate of a try, where it was trained before."""
        path = self._path(attempt.number)
        if not path.exists():
            return None
        families = [own.leaf for own in task.train.schema if own.leaf is not None]
        found = load_network(path, families=families)
        steps, work = self._checked(found.provenance.get(_ENTRY), attempt, path)
        data = task.data(attempt.block)
        known = found.network
        if (known.schema, known.root, known.parameters.tied) != (
            data.train.schema,
            task.root,
            task.tied,
        ):
            raise _foreign(path, "its network has other variables, root or ties")
        return Candidate(
            attempt.number,
            attempt.block,
            known,
            attempt.recipe,
            compile_program(known).log_likelihood(data.validation),
            steps,
            work,
        )

    def _checked(self, entry: JSON, attempt: Try, path: Path) -> tuple[int, float]:
        """Steps and work of a record, which has to be that of this try in this run."""
        try:
            said = fields(entry, "its record", ("run", "try", "steps", "work"))
            steps, work = whole(said["steps"], "`steps`"), said["work"]
        except ModelFileError as error:
            raise _foreign(path, str(error)) from error
        others = _differences(said["run"], self._run)
        if others:
            raise _foreign(path, f"it is of another run, whose {', '.join(others)} differ")
        if said["try"] != _described_try(attempt):
            raise _foreign(path, "it is of another try")
        if steps < 0 or not isinstance(work, float) or not 0 <= work < math.inf:
            raise _foreign(path, "its steps and work must not be negative")
        return steps, work

    def keep(self, candidate: Candidate) -> None:
        """Writes a candidate, whole or not at all; a disk that is full does not end learning."""
        entry: dict[str, JSON] = {
            "run": self._run,
            "try": _described_try(candidate),
            "steps": candidate.steps,
            "work": candidate.work,
        }
        keep_network(candidate.network, self._path(candidate.number), {_ENTRY: entry})


def _foreign(path: Path, reason: str) -> ModelFileError:
    return ModelFileError(
        f"{str(path)!r} is not the model that this run trained: {reason}. Remove the file to train "
        "it again, or begin anew in another directory."
    )


def _is_leftover(path: Path) -> bool:
    """Whether a file is what a process leaves that was killed, or the lock of this one."""
    return path.name == _LOCK or is_temporary(path.name)


def _made(path: str | os.PathLike[str]) -> Path:
    """The directory, made where there is none."""
    directory = Path(path_text(path))
    if directory.exists() and not directory.is_dir():
        raise ModelFileError(
            f"`checkpoint` must be a directory for the automatic learner, but "
            f"{str(directory)!r} is a file; give another path."
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(
            f"cannot make the directory {str(directory)!r} for the checkpoint: {reason}; give "
            "another path."
        ) from error
    return directory


def _read_run(path: Path) -> JSON:
    try:
        # A pipe would keep whoever opens it waiting, and a description is short.
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is no file of this size")
        return plain(parse(path.read_text(encoding="utf-8")), "it")
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{str(path)!r}, which says what run the directory is of, cannot be read ({error}); "
            "remove the directory and begin anew."
        ) from error


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


def _differences(saved: JSON, own: dict[str, JSON]) -> list[str]:
    """The names of what two runs do not have in common."""
    known = saved if isinstance(saved, dict) else {}
    return [name for name in own if compact(known.get(name)) != compact(own[name])]

"""A directory with what a run has trained, so that it goes on where it was interrupted."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, final

from dspn.engine import compile_program
from dspn.errors import ModelFileError
from dspn.io.json_values import JSON, fields, items, number, refuse_if, text, whole
from dspn.learning.auto.base import AutoTask, Candidate, Try
from dspn.learning.auto.covariances import Beginning, TriedCovariance
from dspn.learning.run import RunDirectory, describe_options, describe_run
from dspn.structure.network import DynamicNetwork

# The file that says what a run begins with.
_BEGINNING: Final = "beginning.json"


@final
@dataclass(frozen=True, eq=False)
class Journal:
    """The candidates of one run, by the numbers of their tries."""

    directory: RunDirectory

    @classmethod
    @contextmanager
    def held(
        cls,
        path: str | os.PathLike[str],
        task: AutoTask,
        *,
        resume: bool,
        covariances: bool = True,
    ) -> Iterator["Journal"]:
        """The directory, made where it is missing, kept from other runs until this one ends.

        With `resume` it may belong to this run already, which may have `covariances` or not.
        """
        run = describe_run(
            task.train,
            task.validation,
            task.seed,
            options=task.options,
            priors=task.priors,
            root=task.root,
            tied=task.tied,
            covariances=covariances,
        )
        with RunDirectory.hold(path, run, resume=resume) as directory:
            yield cls(directory)

    def begin(self, begun: Beginning) -> None:
        """Writes what the run begins with."""
        tried = [own._asdict() for own in begun.tried]
        said: JSON = {"timed": _finite(begun.timed), "tried": tried, "work": begun.work}
        self.directory.note(_BEGINNING, said)

    def beginning(self, task: AutoTask) -> Beginning | None:
        """What the run of a task has begun with, where that was written."""

        def read(value: JSON) -> Beginning:
            said = fields(value, "it", ("timed", "tried", "work"))
            timed = math.inf if said["timed"] is None else number(said["timed"], "`timed`")
            tried = tuple(_covariance(item) for item in items(said["tried"], "`tried`"))
            begun = Beginning(timed, tried, number(said["work"], "`work`"))
            begun.of(task)  # raises where the names are of other variables
            return begun

        return self.directory.noted(_BEGINNING, "what the run has begun with", read)

    def recall(self, attempt: Try, task: AutoTask) -> Candidate | None:
        """The candidate of a try, where it was trained before with as much time."""
        data = task.data(attempt.block)

        def read(network: DynamicNetwork, details: dict[str, JSON]) -> Candidate | None:
            record = fields(details, "its record", ("try", "steps", "work", "is_cut", "timed"))
            if record["timed"] != _finite(task.timed):
                return None
            steps, work = whole(record["steps"], "`steps`"), number(record["work"], "`work`")
            is_cut = record["is_cut"]
            if record["try"] != _describe_try(attempt):
                raise ModelFileError("it is of another try")
            if steps < 0 or work < 0:
                raise ModelFileError("its steps and work must not be negative")
            if not isinstance(is_cut, bool):
                raise ModelFileError("`is_cut` must be true or false")
            own = (network.schema, network.root, network.parameters.tied)
            if own != (data.train.schema, task.root, task.tied):
                raise ModelFileError("its network has other variables, root or ties")
            values = compile_program(network).log_likelihood(data.validation)
            made = (attempt.number, attempt.block, network, attempt.recipe, values, steps, work)
            return Candidate(*made, is_cut=is_cut)

        directory = replace(self.directory, families=data.train.schema.families)
        return directory.load(attempt.number, read)

    def keep(self, candidate: Candidate, task: AutoTask) -> None:
        """Writes a candidate, whole or not at all; a disk that is full does not end learning."""
        details: dict[str, JSON] = {
            "try": _describe_try(candidate),
            "steps": candidate.steps,
            "work": candidate.work,
            "is_cut": candidate.is_cut,
            "timed": _finite(task.timed),
        }
        self.directory.save(candidate.number, candidate.network, details)


def _finite(timed: float) -> float | None:
    """The effort of a time limit as JSON has it; None without a limit."""
    return timed if math.isfinite(timed) else None


def _covariance(value: JSON) -> TriedCovariance:
    """A covariance that was tried, from what was written."""
    own = fields(value, "a covariance", TriedCovariance._fields)
    names = tuple(text(name, "a name") for name in items(own["names"], "`names`"))
    gain, error = (number(own[name], f"`{name}`") for name in ("gain", "error"))
    refuse_if(not isinstance(own["kept"], bool), "`kept` must be true or false")
    return TriedCovariance(names, gain, error, own["kept"] is True)


def _describe_try(made: Try | Candidate) -> JSON:
    recipe = describe_options(made.recipe)
    assert isinstance(recipe, dict)
    return {
        "number": made.number,
        "block": list(made.block),
        "recipe": {**recipe, "move": made.recipe.move.name},
    }

"""Every trained candidate in a directory, so that a run goes on where it was interrupted."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from dspn.engine import compile_program
from dspn.errors import ModelFileError
from dspn.io import JSON
from dspn.io.json_values import fields, whole
from dspn.learning.auto.base import AutoTask, Candidate, Try
from dspn.learning.run import RunDirectory, describe_options, describe_run
from dspn.structure import DynamicNetwork


@final
@dataclass(frozen=True, eq=False)
class Journal:
    """The candidates of one run, by the numbers of their tries."""

    directory: RunDirectory

    @classmethod
    @contextmanager
    def held(
        cls, path: str | os.PathLike[str], task: AutoTask, *, resume: bool
    ) -> Iterator["Journal"]:
        """The directory as `of` has it, kept from other runs until this one ends."""
        with RunDirectory.hold(path, _describe_run(task), resume=resume) as directory:
            yield cls(directory)

    @classmethod
    def of(cls, path: str | os.PathLike[str], task: AutoTask, *, resume: bool) -> "Journal":
        """The directory, made where it is missing; with `resume` it may belong to this run."""
        return cls(RunDirectory.open(path, _describe_run(task), resume=resume))

    def recall(self, attempt: Try, task: AutoTask) -> Candidate | None:
        """The candidate of a try, where it was trained before."""
        data = task.data(attempt.block)

        def read(network: DynamicNetwork, details: dict[str, JSON]) -> Candidate:
            record = fields(details, "its record", ("try", "steps", "work"))
            steps, work = whole(record["steps"], "`steps`"), record["work"]
            if record["try"] != _describe_try(attempt):
                raise ModelFileError("it is of another try")
            if steps < 0 or not isinstance(work, float) or not 0 <= work < math.inf:
                raise ModelFileError("its steps and work must not be negative")
            own = (network.schema, network.root, network.parameters.tied)
            if own != (data.train.schema, task.root, task.tied):
                raise ModelFileError("its network has other variables, root or ties")
            values = compile_program(network).log_likelihood(data.validation)
            return Candidate(
                attempt.number, attempt.block, network, attempt.recipe, values, steps, work
            )

        return self.directory.load(attempt.number, read)

    def keep(self, candidate: Candidate) -> None:
        """Writes a candidate, whole or not at all; a disk that is full does not end learning."""
        details: dict[str, JSON] = {
            "try": _describe_try(candidate),
            "steps": candidate.steps,
            "work": candidate.work,
        }
        self.directory.save(candidate.number, candidate.network, details)


def _describe_run(task: AutoTask) -> dict[str, JSON]:
    return describe_run(
        task.train,
        task.validation,
        task.seed,
        options=task.options,
        priors=task.priors,
        root=task.root,
        tied=task.tied,
    )


def _describe_try(made: Try | Candidate) -> JSON:
    recipe = describe_options(made.recipe)
    assert isinstance(recipe, dict)
    return {
        "number": made.number,
        "block": list(made.block),
        "recipe": {**recipe, "move": made.recipe.move.name},
    }

"""Learning's state in a file: a model, and what is needed to go on from it."""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from dspn._checks import is_number
from dspn._version import __version__
from dspn.errors import ModelFileError, StructureError, warn
from dspn.io import JSON, load_network, save_network
from dspn.io.atomic import exclusive, path_text
from dspn.io.json_values import compact, fields, items, whole
from dspn.learning.growth import GrowthStep
from dspn.learning.partitions import Positions
from dspn.learning.plan import Plan
from dspn.learning.search import SearchState
from dspn.sequences import Schema, Sequences
from dspn.sequences.fingerprint import data_fingerprint
from dspn.structure import DynamicNetwork

_VERSION: Final = 1
_ENTRY: Final = "learning"
_DATA: Final = ("train", "validation")


@final
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The best network so far, the sizes that growth has tried, and where a search stands."""

    network: DynamicNetwork
    score: float
    trail: tuple[GrowthStep, ...]
    search: SearchState | None


@final
class CheckpointFile:
    """The file that the checkpoints of one run go to, one in place of the other."""

    def __init__(self, path: Path, run: dict[str, JSON], every: float, schema: Schema) -> None:
        self.path = path
        self._run = run
        self._every = every
        self._schema = schema
        self._last = time.monotonic()

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        plan: Plan,
        seed: int,
        train: Sequences,
        validation: Sequences,
        every: float,
    ) -> "CheckpointFile":
        """The file for a run, which is known by its plan, its seed, its data and the release."""
        name = path_text(path)
        directory = os.path.dirname(os.path.realpath(name))
        if not os.path.isdir(directory):
            raise ModelFileError(
                f"cannot write the checkpoint {name!r}: the directory {directory!r} does not "
                "exist; create it first."
            )
        if not (is_number(every) and every >= 0):
            raise StructureError(
                f"`checkpoint_every` must be a number of seconds, not negative, but is {every!r}."
            )
        run: dict[str, JSON] = {
            "release": __version__,
            "plan": plan.to_json(),
            "seed": seed,
            "train": data_fingerprint(train).hex(),
            "validation": data_fingerprint(validation).hex(),
        }
        return cls(Path(name), run, every, train.schema)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the file from other runs, by a lock file beside it."""
        digest = hashlib.sha256(compact(self._run).encode()).hexdigest()
        with exclusive(f"{self.path}.lock", str(self.path), digest[:12]):
            yield

    def require_absent(self) -> None:
        """Raises where there is a file already: what took long to learn is not overwritten."""
        if self.path.exists():
            raise ModelFileError(
                f"there is a file at the checkpoint {str(self.path)!r} already; go on from it with "
                "`resume=True`, or remove it."
            )

    def save_now_and_then(self, checkpoint: Checkpoint) -> None:
        """Writes the checkpoint where the last one is old enough."""
        if time.monotonic() - self._last >= self._every:
            self.save(checkpoint)

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes the checkpoint in place of the last one, whole or not at all.

        A disk that is full does not end learning.
        """
        entry: dict[str, JSON] = {
            "version": _VERSION,
            "run": self._run,
            "score": _finite(checkpoint.score),
            "trail": [[s.num_interfaces, _finite(s.score), s.accepted] for s in checkpoint.trail],
            "search": None if checkpoint.search is None else _search_json(checkpoint.search),
        }
        keep_network(checkpoint.network, self.path, {_ENTRY: entry})
        self._last = time.monotonic()

    def load(self) -> Checkpoint | None:
        """The checkpoint in the file; None where there is no file."""
        if not self.path.exists():
            return None
        families = [own.leaf for own in self._schema if own.leaf is not None]
        found = load_network(self.path, families=families)
        entry = found.provenance.get(_ENTRY)
        if entry is None:
            raise ModelFileError(
                f"{str(self.path)!r} is a model, but no checkpoint to go on from: it does not say "
                "how far its learning had come. Give another path for the checkpoint."
            )
        try:
            return self._read(found.network, entry)
        except (OverflowError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"cannot go on from the checkpoint {str(self.path)!r}: {str(error).rstrip('.')}. "
                "Give what it was made with, or begin anew at another path."
            ) from error

    def _read(self, network: DynamicNetwork, entry: JSON) -> Checkpoint:
        said = fields(entry, "its record")
        if said.get("version") != _VERSION:
            raise ModelFileError(
                f"it is of version {_said(said.get('version'))}, but this release "
                f"reads version {_VERSION}"
            )
        said = fields(entry, "its record", ("version", "run", "score", "trail", "search"))
        run = fields(said["run"], "its run", self._run.keys())
        others = [
            words for name, own in self._run.items() for words in _differences(run[name], own, name)
        ]
        if others:
            raise ModelFileError(f"it belongs to another run: {'; '.join(others)}")
        if network.schema != self._schema:
            raise ModelFileError("its network has other variables")
        score = _number(said["score"])
        trail = tuple(_growth_step(step) for step in items(said["trail"], "its trail"))
        if not trail or not trail[0].accepted:
            raise ModelFileError("its trail must begin with a size that was accepted")
        if said["search"] is None:
            return Checkpoint(network, score, trail, None)
        names = ("seed", "tried", "accepted", "failures", "positions")
        search = fields(said["search"], "its search", names)
        seed, tried, accepted, failures = (
            whole(search[name], f"`{name}` of its search") for name in names[:-1]
        )
        if seed != self._run["seed"] or min(tried, accepted, failures) < 0:
            raise ModelFileError("its search has another seed, or numbers below zero")
        positions = Positions.from_json(search["positions"])
        state = SearchState(network, score, seed, tried, accepted, failures, positions)
        return Checkpoint(network, score, trail, state)


def _search_json(state: SearchState) -> dict[str, JSON]:
    return {
        "seed": state.seed,
        "tried": state.tried,
        "accepted": state.accepted,
        "failures": state.failures,
        "positions": state.positions.to_json(),
    }


def _finite(score: float) -> float | None:
    """The score, None for minus infinity, which JSON does not have."""
    return None if score == float("-inf") else float(score)


def _number(value: JSON) -> float:
    if value is None:
        return float("-inf")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelFileError(f"a score must be a number, but is {_said(value)}")
    return float(value)


def _growth_step(step: JSON) -> GrowthStep:
    match items(step, "a step of its trail"):
        case [size, score, bool(accepted)] if whole(size, "a size of its trail") > 0:
            return GrowthStep(whole(size, "a size"), _number(score), accepted)
    raise ModelFileError("a step of its trail must have a size, a score and whether it was kept")


def keep_network(network: DynamicNetwork, path: Path, provenance: Mapping[str, JSON]) -> None:
    """Writes a network that learning can do without: warns where the disk does not take it."""
    try:
        save_network(network, path, provenance=provenance)
    except ModelFileError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        warn(
            f"{str(error).rstrip('.')}; learning goes on, but what was not written is learned "
            "again after an interruption.",
            UserWarning,
        )


def _differences(saved: object, own: object, name: str) -> list[str]:
    """How the descriptions of two runs differ, in words."""
    if saved == own:
        return []
    if name in _DATA:
        return [f"its `{name}` holds other data"]
    if isinstance(saved, dict) and isinstance(own, dict):
        return [
            said
            for key in sorted({*saved, *own})
            for said in _differences(saved.get(key), own.get(key), f"{name}.{key}")
        ]
    return [f"its `{name}` is {_said(saved)} where this run has {_said(own)}"]


def _said(value: object) -> str:
    found = str(value.get("class", "other")) if isinstance(value, dict) else repr(value)
    return found if len(found) <= 60 else f"{found[:57]}..."

"""Learning's state in a file: a model, and what is needed to go on from it."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from dspn._checks import is_number
from dspn._version import __version__
from dspn.errors import ModelFileError, StructureError
from dspn.io import JSON, load_network, save_network
from dspn.io.paths import path_text
from dspn.learning.growth import GrowthStep
from dspn.learning.partitions import Positions
from dspn.learning.plan import Plan
from dspn.learning.search import SearchState
from dspn.sequences import Sequences
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

    def __init__(self, path: Path, run: dict[str, JSON], every: float) -> None:
        self.path = path
        self._run = run
        self._every = every
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
        return cls(Path(name), run, every)

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
        """Writes the checkpoint in place of the last one, whole or not at all."""
        entry: dict[str, JSON] = {
            "version": _VERSION,
            "run": self._run,
            "score": _finite(checkpoint.score),
            "trail": [[s.num_interfaces, _finite(s.score), s.accepted] for s in checkpoint.trail],
            "search": None if checkpoint.search is None else _search_json(checkpoint.search),
        }
        save_network(checkpoint.network, self.path, provenance={_ENTRY: entry})
        self._last = time.monotonic()

    def load(self) -> Checkpoint | None:
        """The checkpoint in the file; None where there is no file."""
        if not self.path.exists():
            return None
        found = load_network(self.path)
        entry = found.provenance.get(_ENTRY)
        if entry is None:
            raise ModelFileError(
                f"{str(self.path)!r} is a model, but no checkpoint to go on from: it does not say "
                "how far its learning had come. Give another path for the checkpoint."
            )
        try:
            return self._read(found.network, entry)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(
                f"{str(self.path)!r} is a model, but no checkpoint to go on from: what it says of "
                f"its learning cannot be read ({error!r}). Give another path for the checkpoint."
            ) from error

    def _read(self, network: DynamicNetwork, entry: Any) -> Checkpoint:
        if entry["version"] != _VERSION:
            raise ModelFileError(
                f"the checkpoint {str(self.path)!r} is of version {entry['version']}, but this "
                f"release reads version {_VERSION}; begin anew without `resume`, at another path."
            )
        others = [
            said
            for name, own in self._run.items()
            for said in _differences(entry["run"][name], own, name)
        ]
        if others:
            raise ModelFileError(
                f"the checkpoint {str(self.path)!r} belongs to another run: {'; '.join(others)}. "
                "Give what it was made with, or begin anew at another path."
            )
        score = _number(entry["score"])
        trail = tuple(
            GrowthStep(int(size), _number(value), bool(accepted))
            for size, value, accepted in entry["trail"]
        )
        if not trail:
            raise ValueError("it has no size that growth has tried")
        search = entry["search"]
        if search is None:
            return Checkpoint(network, score, trail, None)
        state = SearchState(
            network,
            score,
            int(search["seed"]),
            int(search["tried"]),
            int(search["accepted"]),
            int(search["failures"]),
            Positions.from_json(search["positions"]),
        )
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


def _number(value: float | None) -> float:
    return float("-inf") if value is None else float(value)


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
    return str(value.get("class", "other")) if isinstance(value, dict) else repr(value)

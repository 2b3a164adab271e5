"""Everything that one run has found, and where it was found."""

import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

from benchmarks.alone import EmMemory, Growth, Start, Stream
from benchmarks.compare import Row
from benchmarks.environments import Environment
from benchmarks.limits import Limits

FORMAT = 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def machine() -> dict[str, Any]:
    """The machine and the versions that ours runs on."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
    }


@final
@dataclass
class Results:
    """What a run has found so far."""

    quick: bool
    environments: list[Environment]
    limits: Limits
    begun: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: dict[str, Any] = field(default_factory=machine)
    rows: list[Row] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    em_memory: EmMemory | str | None = None

    def to_json(self) -> dict[str, Any]:
        memory = self.em_memory
        return {
            "format": FORMAT,
            "quick": self.quick,
            "begun": self.begun,
            "machine": self.machine,
            "limits": {**asdict(self.limits), "fma": self.limits.fma},
            "peers": [
                {"name": e.name, "version": e.version, "problem": e.problem}
                for e in self.environments
            ],
            "rows": [row.to_json() for row in self.rows],
            "streams": [asdict(stream) for stream in self.streams],
            "growth": [found.to_json() for found in self.growth],
            "starts": [{**asdict(start), "best_s": start.best_s} for start in self.starts],
            "em_memory": asdict(memory) if isinstance(memory, EmMemory) else memory,
        }

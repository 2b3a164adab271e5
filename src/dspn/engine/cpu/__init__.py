"""The engine for processors: structure as arrays, evaluated by compiled kernels over blocks."""

from dataclasses import dataclass, field
from typing import Final, final

from dspn.engine.base import Engine
from dspn.engine.cpu.layout import Paths
from dspn.engine.cpu.program import CpuProgram
from dspn.structure.network import DynamicNetwork

__all__ = ["CpuEngine", "CpuProgram", "Paths"]


@final
@dataclass(frozen=True)
class CpuEngine:
    """Compiles networks for the kernels; all `paths` give the same results."""

    paths: Paths = field(default_factory=Paths)

    def compile(self, network: DynamicNetwork, *, precision: str) -> CpuProgram:
        """Lays out the structure of a network and binds its parameters."""
        return CpuProgram.of(network, self.paths, single=precision == "single")


ENGINE: Final[Engine] = CpuEngine()

"""The engine for processors: structure as arrays, evaluated by compiled kernels over blocks."""

from dspn.engine.cpu.layout import Paths
from dspn.engine.cpu.program import ENGINE, CpuEngine, CpuProgram

__all__ = ["ENGINE", "CpuEngine", "CpuProgram", "Paths"]

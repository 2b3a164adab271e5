"""The GPU engine: CuPy arrays, and a few fixed CUDA kernels that read structure as data."""

from functools import cached_property
from typing import Final, final

from dspn.engine import base
from dspn.engine.gpu.device import Device
from dspn.engine.gpu.general import Structure
from dspn.engine.gpu.program import GpuProgram
from dspn.engine.gpu.transition import ChainLayout
from dspn.structure.network import DynamicNetwork

__all__ = ["ENGINE", "GpuEngine"]


@final
class GpuEngine:
    """Compiles networks for the GPU that CuPy works on.

    Args:
        arrays: "cupy", or "numpy" to run the same array operations on the processor, for tests.
        fused: whole passes of large chains in one kernel, in single precision and on cards of
            compute capability 9.0: an eighth faster from 512 nodes on. Passes of more than four
            slices have not been compared with others on a card yet.
    """

    def __init__(self, arrays: str = "cupy", *, fused: bool = False) -> None:
        self.arrays, self.fused = arrays, fused

    @cached_property
    def device(self) -> Device:
        """The card, which all programs of the engine share."""
        return Device(self.arrays, fused=self.fused)

    def compile(self, network: DynamicNetwork, *, precision: str) -> GpuProgram:
        """The network; with precision 'single' passes compute in float32 where that suffices."""
        _ = self.device.xp
        layouts = (Structure(network), ChainLayout.of(network))
        return GpuProgram(network, layouts, self.device, precision == "single")


ENGINE: Final[base.Engine] = GpuEngine()

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
    """

    def __init__(self, arrays: str = "cupy") -> None:
        self.arrays = arrays

    @cached_property
    def device(self) -> Device:
        """The card, which all programs of the engine share."""
        return Device(self.arrays)

    def compile(self, network: DynamicNetwork, *, precision: str) -> GpuProgram:
        """The network; with precision 'single' passes compute in float32 where that suffices."""
        _ = self.device.xp
        layouts = (Structure(network), ChainLayout.of(network))
        return GpuProgram(network, layouts, self.device, precision == "single")


ENGINE: Final[base.Engine] = GpuEngine()

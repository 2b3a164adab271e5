"""Runs DSPNs. `base` says what an engine offers; `cpu`, `gpu` and `reference` are engines."""

from importlib import import_module
from typing import Any

from dspn.engine.base import (
    Choices,
    Engine,
    Expectation,
    ExpectedFlows,
    NetworkFlows,
    NetworkProgram,
    Posteriors,
    Program,
    TimeUpError,
    Want,
    check_time,
    one_thread_each,
    until,
)
from dspn.errors import StructureError
from dspn.structure.mixture import Mixture
from dspn.structure.network import DynamicNetwork

__all__ = [
    "Choices",
    "Engine",
    "Expectation",
    "ExpectedFlows",
    "NetworkFlows",
    "Posteriors",
    "Program",
    "TimeUpError",
    "Want",
    "check_time",
    "compile_program",
    "one_thread_each",
    "until",
]


def compile_program(
    model: Mixture | DynamicNetwork, *, precision: str = "double", engine: Engine | str = "cpu"
) -> Program:
    """The model, compiled by an engine for every query and every pass of learning.

    Args:
        model: A mixture, or a network, which is a mixture of one.
        precision: "double"; with "single" passes compute in single precision where its range
            suffices.
        engine: "cpu" (compiled kernels, which need Numba), "gpu" (an NVIDIA GPU, through CuPy),
            "reference" (plain NumPy in log space, slow and simple), or an engine with options,
            such as `dspn.engine.cpu.CpuEngine(...)`.
    """
    if precision not in ("double", "single"):
        raise StructureError(f"`precision` must be 'double' or 'single', not {precision!r}.")
    if isinstance(engine, str):
        if engine not in ("cpu", "gpu", "reference"):
            raise StructureError(f"`engine` must be 'cpu', 'gpu' or 'reference', not {engine!r}.")
        found: Engine = import_module(f"dspn.engine.{engine}").ENGINE
        engine = found
    mixture = model if isinstance(model, Mixture) else Mixture.of(model)
    known: dict[Any, NetworkProgram] = {}

    def compiled(network: DynamicNetwork) -> NetworkProgram:
        # Components of one structure share what follows from it.
        key = id(network.template), id(network.top), network.root, network.parameters.tied
        if key in known:
            return known[key].rebind(network)
        return known.setdefault(key, engine.compile(network, precision=precision))

    return Program(mixture, tuple(map(compiled, mixture)))

"""Warnings that point at the line of the caller, however deep in the library they arise."""

import sys
import warnings
from types import FrameType


def warn(message: str, category: type[Warning]) -> None:
    """Warns at the nearest line outside this package."""
    warnings.warn(message, category, stacklevel=_levels_to_caller())


def _levels_to_caller() -> int:
    """The `stacklevel` of the nearest line outside; of the outermost where all are inside."""
    levels = 1
    frame = sys._getframe(1)  # that of `warn`, which has level 1
    while _is_inside(frame) and frame.f_back is not None:
        frame = frame.f_back
        levels += 1
    return levels


def _is_inside(frame: FrameType) -> bool:
    package, _, _ = str(frame.f_globals.get("__name__", "")).partition(".")
    return package == __package__

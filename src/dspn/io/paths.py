"""Paths as text, whatever kind they were given as."""

import os
from typing import Any

from dspn.errors import ModelFileError


def path_text(path: Any) -> str:
    """The path as text; anything but text, bytes and path objects is refused.

    A number would be taken for a file that is already open.
    """
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ModelFileError(
            "`path` must be the name of a file, as text or a path object, found "
            f"{type(path).__name__}."
        ) from None

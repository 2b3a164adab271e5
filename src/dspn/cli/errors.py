"""What ends a command early, and the one sentence that says so."""

import re
from typing import Any, Final, final

import typer

from dspn.errors import printable

DATA: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130  # as shells have it

# The class of all wrong usage; which module it lives in depends on the release of typer.
UsageError: Final[type[Any]] = typer.BadParameter.__mro__[1]


@final
class StoppedError(Exception):
    """Ctrl-C, after what there was has been put in its place; the message says what."""


@final
class ReaderGoneError(Exception):
    """Nobody reads the output any more, as after `| head`."""


# Data are read in chunks, and a number within a chunk tells people nothing.
_NUMBERED: Final = re.compile(r"sequence \d+ \(id (.+?)\)(?= at|,|;|\.| and| in)")


def sentence(error: BaseException | str) -> str:
    """The message in one line that a terminal can show; sequences go by their ids alone."""
    said = str(error).strip() or type(error).__name__
    said = printable(re.sub(r"\s+", " ", said), 5000)
    return _NUMBERED.sub(r"sequence \1", said)

"""The exceptions and warnings of the library, and how their texts are shown."""

import re
import sys
import warnings
from typing import Final

CSV_COLUMN: Final = re.compile(r"^In CSV column #(\d+): ")
_CSV_ROW: Final = re.compile(r"Row #(\d+): ")


class DspnError(Exception):
    """Root of every error the library raises on purpose."""


class StructureError(DspnError, ValueError):
    """A template, bottom or top network breaks a rule of the definition."""


class EvidenceError(DspnError, ValueError):
    """A query or its evidence does not fit the model."""


class DataError(DspnError, ValueError):
    """Data or a schema cannot be read as sequences."""


class ModelFileError(DspnError, ValueError):
    """A model file is damaged, of another version, or not valid."""


class NumericalError(DspnError, ArithmeticError):
    """A computation left the range in which its result can be trusted."""


class ConvergenceWarning(UserWarning):
    """Learning ended before its stopping rule was met; the result is usable."""


class ImpossibleEvidenceWarning(UserWarning):
    """A sequence has probability zero under the model; the slice that made it so is named."""


def warn(message: str, category: type[Warning]) -> None:
    """Warns at the nearest line outside this package, however deep inside the warning arises."""
    levels = 1
    frame = sys._getframe(0)  # the frame of `warn`, which has level 1
    while frame.f_back is not None and _is_inside(frame.f_globals):
        frame = frame.f_back
        levels += 1
    warnings.warn(message, category, stacklevel=levels)


def _is_inside(names: dict[str, object]) -> bool:
    return str(names.get("__name__", "")).partition(".")[0] == __package__


def printable(text: str, most: int = 2000) -> str:
    """The text as a terminal can show it, cut after `most` characters.

    Control characters and halves of surrogate pairs are escaped. Ends of lines stay.
    """
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    if cut.isprintable():
        return cut
    return "".join(
        sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape").decode()
        for sign in cut
    )


def plainly(error: Exception) -> str:
    """The message of Arrow or of the system, with rows counted from the first below the header."""
    words = str(getattr(error, "strerror", None) or error).strip().rstrip(".")
    words = re.sub(r"CSV (parse|conversion) error: ?", "", CSV_COLUMN.sub("", words))
    words = _CSV_ROW.sub(lambda match: f"row {int(match[1]) - 1}: ", words)
    if "straddling" in words:
        return "one of its rows is too long, or a quotation mark is not closed"
    return words[:1].lower() + words[1:]

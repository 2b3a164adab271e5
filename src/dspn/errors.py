"""The exceptions and warnings of the library, and how they show what is not theirs."""

from __future__ import annotations


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


def printable(text: str, most: int = 2000) -> str:
    """The text as a terminal may have it: control characters escaped, and cut where it is longer.

    So are halves of surrogate pairs, which no terminal and no file takes. Ends of lines stay.
    """
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    if cut.isprintable():
        return cut
    return "".join(
        sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape").decode()
        for sign in cut
    )

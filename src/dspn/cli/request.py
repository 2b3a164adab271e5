"""What all queries are told, and how a command gets it from the line."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import Any, Final, final

from dspn.cli.options import (
    As,
    Data,
    Delimiter,
    Digits,
    Format,
    Json,
    Missing,
    ModelFile,
    OnUnknown,
    Order,
    Output,
    Quiet,
    Sequence,
    Sort,
    Unknown,
)


@final
@dataclass(frozen=True)
class Reading:
    """How a table is read: its key columns, and what its cells and rows are like."""

    sequence: Sequence = None
    order: Order = None
    missing: Missing = None
    delimiter: Delimiter = None
    sort: Sort = False


AS_IT_IS: Final = Reading()
"""A table whose keys the model remembers, with nothing unusual about it."""


@final
@dataclass(frozen=True)
class Request:
    """A model, a table, how to read it, and where the answer goes."""

    model: ModelFile
    data: Data = "-"
    output: Output = "-"
    sequence: Sequence = None
    order: Order = None
    missing: Missing = None
    unknown: OnUnknown = Unknown.ERROR
    delimiter: Delimiter = None
    sort: Sort = False
    digits: Digits = None
    form: As = None
    json: Json = False
    quiet: Quiet = False

    @property
    def format(self) -> Format | None:
        """The format that is asked for."""
        return Format.JSON if self.json else self.form


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of `Reading` in place of its argument `read`."""
    own = list(signature(command).parameters.values())
    place = [item.name for item in own].index("read")
    fields = list(signature(Reading).parameters.values())

    def asked(**given: Any) -> None:
        told = {field.name: given.pop(field.name) for field in fields}
        command(read=Reading(**told), **given)

    return _signed(asked, command, [*own[:place], *fields, *own[place + 1 :]])


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of a request in place of its first argument.

    Model and table come first, then what is the command's own, then what all queries share.
    """
    shared = list(signature(Request).parameters.values())
    own = list(signature(command).parameters.values())[1:]

    def asked(**given: Any) -> None:
        told = {field.name: given.pop(field.name) for field in shared}
        command(Request(**told), **given)

    return _signed(asked, command, [*shared[:2], *own, *shared[2:]])


def _signed(
    asked: Callable[..., None], command: Callable[..., None], arguments: list[Parameter]
) -> Callable[..., None]:
    """The function under the name of the command, with these arguments, as typer reads them."""
    named = [item.replace(kind=Parameter.KEYWORD_ONLY) for item in arguments]
    asked.__name__, asked.__doc__ = command.__name__, command.__doc__
    asked.__module__, asked.__qualname__ = command.__module__, command.__qualname__
    asked.__annotations__ = {item.name: item.annotation for item in named}
    asked.__signature__ = Signature(named)  # type: ignore[attr-defined]
    return asked

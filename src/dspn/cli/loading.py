"""Model files, and what they remember of the table that they were fitted to."""

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspn.cli.console import note
from dspn.cli.sources import Source
from dspn.data.order import Keys, require_columns
from dspn.errors import DataError

if TYPE_CHECKING:
    from dspn.data import Schema
    from dspn.models import Model

TABLE: Final = "table"


def loaded(path: Path) -> "Model":
    """The model in a file."""
    from dspn.models import Model

    model = Model.load(path)
    check_texts(path, model.schema)
    return model


def check_texts(path: Path, schema: "Schema", classes: Iterable[Any] = ()) -> None:
    """Raises where a name, a category or a class is text that no table can hold."""
    named = (text for own in schema for text in (own.name, *own.categories))
    for text in chain(named, classes):
        try:
            str(text).encode()
        except UnicodeEncodeError:
            raise DataError(
                f"{str(path)!r} must have names and categories that a table can hold, but "
                f"{str(text)[:60]!r} has half of a surrogate pair; give it another name."
            ) from None


def remembered(provenance: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """The provenance, with the columns that named the sequences and their order."""
    return {**provenance, TABLE: {"sequence": keys.sequence, "order": keys.order}}


def keys_of(
    source: Source,
    sequence: str | None,
    order: str | None,
    provenance: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
) -> Keys:
    """The key columns: those given, or those of the table that the model was fitted to."""
    kept: Any = (provenance or {}).get(TABLE)
    kept = kept if isinstance(kept, dict) else {}
    kept = {name: column for name, column in kept.items() if isinstance(column, str)}
    keys = Keys(
        kept.get("sequence") if sequence is None else sequence,
        kept.get("order") if order is None else order,
    )
    for name, given, option in (
        (keys.sequence, sequence, "--sequence"),
        (keys.order, order, "--order"),
    ):
        if name is not None:
            fitted = "" if given else f"the model was fitted with it, name another with {option}"
            require_columns(source, [name], fitted)
    if keys.sequence is None:
        note("note: without --sequence the whole table is one sequence.", quiet=quiet)
    if keys.sequence is not None and keys.sequence == keys.order:
        raise DataError(f"column {keys.order!r} cannot be both --sequence and --order.")
    return keys


def missing_words(given: str | None) -> tuple[str, ...]:
    """The words that mean a missing value."""
    from dspn.data.coding import MISSING

    return MISSING if given is None else tuple(word.strip() for word in given.split(","))

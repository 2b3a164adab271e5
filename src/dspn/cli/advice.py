"""What people would like to know of a table before a model is learned from it."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from dspn.data.cells import is_text, plain
from dspn.data.chunks import Chunk, Described
from dspn.data.order import uneven_steps
from dspn.errors import DataError

_MOST_CATEGORIES: Final = 1000
_FEWEST_DISTINCT: Final = 10
_NEARLY_ALL: Final = 0.9
_LOOKED_AT: Final = 100
_NAMED: Final = 6
_YEAR_FIRST: Final = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
_YEAR_LAST: Final = r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"
_CLOCK: Final = r"\d{1,2}:\d{2}(:\d{2}.*)?"
_TIME: Final = re.compile(rf"\s*(({_YEAR_FIRST}|{_YEAR_LAST})([T ]+{_CLOCK})?|{_CLOCK})\s*")
_UNSORTED: Final = re.compile(rf"\s*{_YEAR_LAST}\b")


def require_few_categories(found: Sequence[Described], chunk: Chunk) -> None:
    """Raises where a column has very many categories and nobody has said that it has them."""
    for own in found:
        count = own.variable.num_categories
        if own.reason == "--kind" or count <= _MOST_CATEGORIES:
            continue
        name = own.variable.name
        remedy = f"name the columns to learn with --variables, or say {_kind(own, 'categorical')}"
        if looks_like_times(own):
            remedy = f"it looks like times, {_meant(name, chunk)} Else {remedy}"
        raise DataError(
            f"column {name!r} must have at most {_MOST_CATEGORIES:,} categories, but has "
            f"{_distinct(own)}; {remedy}."
        )


def advice(found: Sequence[Described], chunk: Chunk) -> Iterator[str]:
    """One sentence for each thing that may not be what was meant."""
    for own in found:
        if own.reason != "text":
            continue
        name = own.variable.name
        if looks_like_times(own):
            yield f"column {name!r} looks like times; {_meant(name, chunk)}"
        elif _nearly_all_differ(own):
            yield (
                f"column {name!r} has {_distinct(own)}; leave it out with --variables, or it costs "
                "much and says nothing."
            )
    whole = [own for own in found if own.reason.startswith("whole numbers with")]
    few = [own for own in whole if own.variable.categories]
    if few:
        yield _few_whole_numbers(few)
    if chunk.keys.order is not None:
        yield from _of_order(chunk, chunk.keys.order)


def _of_order(chunk: Chunk, order: str) -> Iterator[str]:
    cells = plain(chunk.table[order])
    some = cells[:_LOOKED_AT].to_pylist()
    if is_text(cells.type) and all(_UNSORTED.match(cell) for cell in some):
        yield f"column {order!r} is sorted as text; write its dates as 2024-03-31, year first."
    steps = uneven_steps(cells, chunk.keys, chunk.grouping)
    if steps is not None:
        yield (
            f"steps of {order!r} are not all equal ({steps}): slices follow each other whatever "
            "lies between; put in empty rows where some are missing."
        )


def looks_like_times(own: Described) -> bool:
    """Whether all categories of a variable of text look like dates or times."""
    some = own.variable.categories[:_LOOKED_AT]
    return bool(some) and all(isinstance(word, str) and _TIME.fullmatch(word) for word in some)


def _nearly_all_differ(own: Described) -> bool:
    present = int(np.count_nonzero(~np.isnan(own.codes)))
    count = own.variable.num_categories
    return count >= _FEWEST_DISTINCT and count >= _NEARLY_ALL * present


def _distinct(own: Described) -> str:
    return f"{own.variable.num_categories:,} different values in {own.codes.size:,} rows"


def _meant(name: str, chunk: Chunk) -> str:
    if chunk.keys.order is None:
        return f"did you mean -t {shlex.quote(name)}?"
    return "leave it out with --variables."


def _few_whole_numbers(few: Sequence[Described]) -> str:
    names = ", ".join(repr(own.variable.name) for own in few[:_NAMED])
    told = " ".join(_kind(own, "count") for own in few[:_NAMED])
    more = ", ..." if len(few) > _NAMED else ""
    if len(few) == 1:
        return (
            f"column {names} has few whole numbers, which are taken as categories; if it counts "
            f"something, say {told}"
        )
    return (
        f"columns {names}{more} have few whole numbers, which are taken as categories; where they "
        f"count something, say {told}{' ...' if more else ''}"
    )


def _kind(own: Described, kind: str) -> str:
    return f"--kind {shlex.quote(f'{own.variable.name}={kind}')}"

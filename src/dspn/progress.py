"""Progress of long work on standard error: what is done, the share of all work, the time left."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from dspn.errors import printable

_DRAWN_AFTER_S: Final = 1.0  # on a terminal
_FIRST_AFTER_S: Final = 3.0  # elsewhere, where a line stays
_LINE_EVERY_S: Final = 10.0
_LEAST_SHARE: Final = 0.02
_DRAWN_EVERY_S: Final = 0.5

Share = float | Callable[[], float] | None
Tell = Callable[[str, Share], None]


def time_text(seconds: float) -> str:
    """A length of time as people say it: `31 s`, `12 min` or `3 h`."""
    for unit, size in (("s", 1), ("min", 60)):
        if seconds < 100 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 3600:.0f} h"


def share_text(share: float | None, seconds: float, *, is_bound: bool = False) -> str:
    """The share that is done and the time that is left, `37 %, about 20 s left`.

    It is empty where the share is not known, and of very little work it does not tell the time.
    `is_bound`: the work may be over earlier.
    """
    if not share:
        return ""
    percent = f"{100 * min(share, 1.0):.0f} %"
    if share < _LEAST_SHARE:
        return percent
    left = time_text(seconds * (1 - min(share, 1.0)) / share)
    return f"{percent}, {'at most' if is_bound else 'about'} {left} left"


@contextmanager
def show_progress(
    title: str, *, quiet: bool = False, is_bound: bool = False, stream: TextIO | None = None
) -> Iterator[Tell]:
    """Shows how far work is: at the bottom of a terminal, elsewhere as lines.

    A terminal shows it after a second. Elsewhere the first line comes after three seconds, and then
    there is one every ten, whether or not anything was told in between.

    The function that it yields takes what has been done, in words, and the share of all work that
    this is, None where it is not known; a function returns the share at any time.

    Args:
        title: What the work is.
        quiet: Show nothing.
        is_bound: The share counts work that may not be needed, so that the end may come earlier.
        stream: Where it is shown, by default standard error.
    """
    out, begun = sys.stderr if stream is None else stream, time.monotonic()
    if quiet or out is None:  # as where standard error is closed
        yield lambda done, share: None
        return
    over = threading.Event()
    told: tuple[str, Share] = ("", None)

    def text() -> str:
        (done, given), seconds = told, time.monotonic() - begun
        share = given() if callable(given) else given
        parts = [done, share_text(share, seconds, is_bound=is_bound), time_text(seconds)]
        return printable(f"{title}: {', '.join(part for part in parts if part)}", 500)

    def show() -> None:
        status: Any = None
        is_terminal = out.isatty()
        pause = _DRAWN_AFTER_S if is_terminal else _FIRST_AFTER_S
        while not over.wait(pause):
            if not is_terminal:
                pause = _LINE_EVERY_S
                with suppress(OSError, ValueError):  # nobody reads it any more
                    print(text(), file=out, flush=True)
            elif status is None:
                from rich.console import Console

                pause = _DRAWN_EVERY_S
                status = Console(file=out, highlight=False, markup=False).status(text())
                status.start()
            else:
                status.update(text())
        if status is not None:
            status.stop()

    def tell(done: str, share: Share) -> None:
        nonlocal told
        told = (done, share)

    shower = threading.Thread(target=show, name="dspn-progress", daemon=True)
    shower.start()
    try:
        yield tell
    finally:
        over.set()
        shower.join()

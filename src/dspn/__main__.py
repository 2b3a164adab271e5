"""The `dspn` command, which is `python -m dspn` too: what has to be in order before any import."""

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command; Ctrl-C while its parts are imported ends the process at once.

    A standard stream that is closed would be None, and the next file to be opened take its number.
    Writing to the output is an error then; messages are lost.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # A file has the lowest number that is free.
            os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115 (stays open)
    heeded = signal.getsignal(signal.SIGINT)
    if heeded is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dspn.cli.app import main as run

    signal.signal(signal.SIGINT, heeded)
    run()


if __name__ == "__main__":
    main()

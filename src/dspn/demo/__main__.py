"""Runs the tour and writes to ./out."""

import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from dspn.demo import tour
from dspn.errors import ModelFileError

_WIDEST: Final = 100
_INTERRUPTED: Final = 130  # as shells have it


def main() -> int:
    """Runs the tour; the exit status is 1 where ./out cannot be written, 130 after Ctrl-C."""
    console = Console(highlight=False)
    console.width = min(console.width, _WIDEST)
    try:
        tour(console, Path("out"))
    except (OSError, ModelFileError) as error:
        print(f"cannot write to ./out: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

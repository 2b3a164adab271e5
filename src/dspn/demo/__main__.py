"""Runs the demo and writes to ./out/demo."""

import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from dspn.demo import tour
from dspn.errors import ModelFileError

_WIDEST: Final = 80
_INTERRUPTED: Final = 130  # as shells have it


def main() -> int:
    """Runs the demo; the exit status is 1 where its files cannot be written, 130 after Ctrl-C."""
    console = Console(highlight=False)
    console.width = min(console.width, _WIDEST)
    directory = Path("out", "demo")
    try:
        tour(console, directory)
    except (OSError, ModelFileError) as error:
        print(f"cannot write to {directory}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

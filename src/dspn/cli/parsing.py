"""Values of options that are more than one word."""

from pathlib import Path

import typer


def quantile_levels(text: str) -> tuple[float, ...]:
    """Levels strictly between 0 and 1, as `0.1,0.9` says them."""
    try:
        levels = tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        levels = (-1.0,)
    if not all(0 < level < 1 for level in levels):
        raise typer.BadParameter(
            f"--levels must be numbers between 0 and 1 with commas between them, such as 0.1,0.9, "
            f"but is {text!r}."
        )
    return tuple(sorted(set(levels)))


def names(text: str | None) -> tuple[str, ...] | None:
    """Names with commas between them."""
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise typer.BadParameter("--variables must name at least one column, but names none.")
    return found


def check_model_name(output: Path) -> None:
    """Raises unless the file to write is called as model files are."""
    if output.suffix != ".dspn":
        raise typer.BadParameter(
            f"--output must end in .dspn, which tells a model from a table, but is {str(output)!r}."
        )


KINDS = ("categorical", "binary", "continuous", "count")


def kinds(given: list[str] | None) -> dict[str, str]:
    """The kind of each variable that is named, as `sky=categorical` says it."""
    found = {}
    for text in given or []:
        name, mark, kind = text.rpartition("=")
        if not mark or not name or kind not in KINDS:
            raise typer.BadParameter(
                f"--kind must be NAME=KIND, KIND being one of {', '.join(KINDS)}, but is {text!r}."
            )
        found[name] = kind
    return found

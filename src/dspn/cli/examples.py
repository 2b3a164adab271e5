"""The examples that help shows below the options of a command."""

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "dspn": (
        "dspn fit days.csv -s day -o weather.dspn",
        "dspn score weather.dspn new.csv -o scores.csv",
        "dspn forecast weather.dspn new.csv --steps 24",
    ),
    "fit": (
        "dspn fit days.csv -s day -t hour -o weather.dspn",
        "dspn fit days.csv -s day --variables sky,celsius --kind sky=categorical -o weather.dspn",
        "dspn fit days.parquet -s day --effort 20 --validation new.parquet -o weather.dspn",
        "dspn fit days.csv -s day --checkpoint run --time-limit 600 -o weather.dspn",
    ),
    "score": (
        "dspn score weather.dspn days.csv -s day -o scores.csv",
        "cat days.csv | dspn score weather.dspn | sort -t, -k4 -g | head",
    ),
    "impute": (
        "dspn impute weather.dspn days.csv -o whole.csv",
        "dspn impute weather.dspn days.parquet -s day -t hour -o whole.parquet",
    ),
    "complete": ("dspn complete weather.dspn days.csv -s day -o whole.csv",),
    "forecast": (
        "dspn forecast weather.dspn days.csv --steps 24 -o ahead.csv",
        "dspn forecast weather.dspn days.csv --steps 3 --levels 0.1,0.9",
    ),
    "sample": ("dspn sample weather.dspn -n 100 --length 24 --seed 1 -o drawn.csv",),
    "surprise": (
        "dspn surprise weather.dspn days.csv -o surprise.csv",
        "dspn surprise weather.dspn days.csv --by sequence | head -n 5",
    ),
    "inspect": ("dspn inspect weather.dspn", "dspn inspect weather.dspn --json"),
    "validate": (
        "dspn validate weather.dspn",
        "dspn validate days.csv -s day -t hour",
        "dspn validate days.csv --model weather.dspn",
    ),
    "plot": (
        "dspn plot template weather.dspn -o template.svg",
        "dspn plot filtered weather.dspn days.csv --only monday -o monday.png",
    ),
    "report": ("dspn report weather.dspn days.csv -o report.html",),
    "watch": (
        "tail -n +1 -f station.csv | dspn watch weather.dspn",
        "sensor | dspn watch weather.dspn --sequence station --json",
    ),
    "classify fit": ("dspn classify fit walks.csv -s walk --label who -o who.dspn",),
    "classify predict": ("dspn classify predict who.dspn new.csv -o predicted.csv",),
}


def epilog(command: str) -> str:
    """The examples of a command, one on each line."""
    lines = EXAMPLES[command]
    # A backspace on a line of its own keeps the lines of a paragraph apart.
    head = "\b\nExample:" if len(lines) == 1 else "\b\nExamples:"
    return "\n".join([head, *(f"  {line}" for line in lines)])

"""Sequences drawn from a model, as a long table."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dspn.cli.answers import decoded, free_name
from dspn.cli.console import note
from dspn.cli.digits import shortened
from dspn.cli.loading import TABLE, loaded
from dspn.cli.options import Format
from dspn.cli.writing import check_place, format_of, written

_ROWS: Final = 200_000


def drawn(
    path: Path,
    number: int,
    length: int,
    seed: int | None,
    output: str,
    form: Format | None,
    *,
    digits: int | None,
    quiet: bool,
) -> None:
    """Writes the sequences, numbered from 0, with their slices numbered from 0."""
    kept = format_of(output, form)
    check_place(output)
    model = loaded(path)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
        note(f"note: seed {seed}", quiet=quiet)
    rng = np.random.default_rng(seed)
    table: Any = model.provenance.get(TABLE)
    names = table if isinstance(table, dict) else {}
    taken = model.schema.names
    sequence = free_name(str(names.get("sequence") or "sequence"), taken)
    order = free_name(str(names.get("order") or "slice"), [*taken, sequence])
    batch = max(_ROWS // length, 1)
    with written(output, kept, quiet=quiet) as sink:
        for start in range(0, number, batch):
            count = min(batch, number - start)
            values = model.sample(count, length, rng=rng).values
            columns: dict[str, Any] = {
                sequence: np.repeat(np.arange(start, start + count), length),
                order: np.tile(np.arange(length), count),
            }
            for column, variable in enumerate(model.schema):
                columns[variable.name] = decoded(values[:, column], variable)
            sink.write(shortened(pa.table(columns), digits))

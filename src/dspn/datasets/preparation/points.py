"""Points whose coordinates lie one behind the other."""

import numpy as np

from dspn.datasets.preparation.base import checked_data
from dspn.errors import DataError
from dspn.sequences import Kind, Schema, Sequences, Variable


def paired_points(data: Sequences) -> Sequences:
    """Slices of x and y in turn, as slices of both: half as many, with the variables x and y.

    So are PenDigits in files with a number in each of 16 slices; `read_pen_digits` has points
    already.
    """
    variables = checked_data(data).schema.variables
    if len(variables) > 1 or variables[0].kind is Kind.CATEGORICAL:
        raise DataError(
            "`data` must have one variable, a number that is x and y in turn, but has "
            f"{[f'{variable.name} ({variable.kind})' for variable in variables]}; select another."
        )
    odd = np.flatnonzero(data.lengths % 2)
    if odd.size:
        raise DataError(
            "`data` must have sequences of an even number of slices, x and y in turn, but "
            f"sequence {odd[0]} has {data.lengths[odd[0]]}; leave its last slice out."
        )
    schema = Schema(tuple(Variable(name, variables[0].kind) for name in ("x", "y")))
    return Sequences.from_codes(data.values.reshape(-1, 2), data.offsets // 2, schema, data.ids)

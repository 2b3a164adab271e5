"""A score that decides what growth and search find."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dspn import Schema, Sequences
from dspn.engine import Program
from dspn.learning import Score


@final
@dataclass(frozen=True)
class Shaped(Score):
    """Log-likelihood and a bonus: for a number of interface nodes, and for many nodes.

    So a test knows what growth will choose, and that the search will find something better.
    """

    bonus: tuple[float, ...]

    def check(self, schema: Schema) -> None:
        """Nothing to ask for."""

    def sequence_scores(self, program: Program, data: Sequences) -> NDArray[np.float64]:
        """Log-likelihood of each sequence and the bonus of the network."""
        template = program.network.template
        bonus = self.bonus[template.num_interfaces - 1] + 0.1 * len(template.nodes)
        return program.log_likelihood(data) + bonus

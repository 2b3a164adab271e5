"""Coefficients of slices as products of leaves, where some leaves are densities of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.engine.base import two_sum
from dspn.engine.cpu.batch import Job
from dspn.engine.cpu.kernels.densities import multiply_leaves, read_moments
from dspn.engine.cpu.records import LogLeaves
from dspn.leaves.gaussian import Gaussian


@final
@dataclass(frozen=True, eq=False)
class GroupDensities:
    """The leaves below the outputs of a group, whose coefficients are products of them.

    `members[v]` are the leaves of variable v in its bank, output after output, and no other group
    has leaves of v. `outputs` and `columns` are the group's.
    """

    job: Job
    bottom: bool
    outputs: slice
    columns: slice
    members: Mapping[int, Ints]

    def _rows(self, variable: int) -> Floats:
        """Parameters of the leaves of a variable."""
        leaves = self.job.program.parameters(self.bottom).leaves
        rows: Floats = leaves[variable][self.members[variable]]
        return rows

    @cached_property
    def _tabulated(self) -> list[int]:
        """Variables whose values have codes."""
        return [own for own in self.members if self.job.coding.factor_of[own] >= 0]

    @cached_property
    def gaussian(self) -> dict[int, Gaussian]:
        """Variables with Gaussian leaves, and these families."""
        banks = self.job.program.network.template.banks
        families = {own: banks[own].family for own in self.members if own not in self._tabulated}
        return {own: what for own, what in families.items() if isinstance(what, Gaussian)}

    @cached_property
    def _others(self) -> list[int]:
        """All other variables."""
        return [v for v in self.members if v not in self._tabulated and v not in self.gaussian]

    @cached_property
    def leaves(self) -> LogLeaves:
        """Log densities, as far as they do not depend on the slices."""
        job, width = self.job, self.outputs.stop - self.outputs.start
        means, variances = np.empty((2, len(self.gaussian), width))
        for place, variable in enumerate(self.gaussian):
            means[place], variances[place] = self._rows(variable).T
        tables = [np.empty((0, width))]
        for variable in self._tabulated:
            family = job.program.network.template.banks[variable].family
            values = job.coding.values[job.coding.factor_of[variable]]
            tables.append(family.log_prob(self._rows(variable), values))
        units = np.array([[own.location, own.scale] for own in self.gaussian.values()])
        return LogLeaves(
            job.data.values,
            np.array([*self.gaussian], dtype=np.int64),
            means,
            np.sqrt(0.5) / np.sqrt(variances),
            -0.5 * np.log(2.0 * np.pi * variances),
            np.concatenate(tables),
            *np.ascontiguousarray(units.reshape(-1, 2).T),
        )

    @cached_property
    def _first(self) -> Ints:
        """Where the rows of each tabulated variable begin in the table."""
        coding = self.job.coding
        sizes = [coding.values[coding.factor_of[own]].size for own in self._tabulated]
        return np.cumsum([0, *sizes])

    def multiply(self, rows: Ints, least: float, floor: float, out: Floats, scale: Floats) -> int:
        """Writes the coefficients of some rows of the data to the columns, as `multiply_leaves`.

        Adds the logarithms of their divisors to `scale`.
        """
        job, leaves, first = self.job, self.leaves, self._first
        factors = [job.coding.factor_of[own] for own in self._tabulated]
        numbers = np.empty((rows.size, len(factors) + len(self._others)), dtype=np.int64)
        numbers[:, : len(factors)] = job.coding.codes[rows][:, factors] + first[:-1]
        tables = [leaves.table]
        for place, variable in enumerate(self._others):
            family = job.program.network.template.banks[variable].family
            numbers[:, len(factors) + place] = np.arange(first[-1], first[-1] + rows.size)
            numbers[:, len(factors) + place] += place * rows.size
            tables.append(family.log_prob(self._rows(variable), job.values_at(variable, rows)))
        if self._others:
            leaves = leaves._replace(table=np.concatenate(tables))
        own = np.empty((2, rows.size))
        lost = multiply_leaves(leaves, rows, numbers, least, floor, self.columns.start, out, own)
        scale[0], rest = two_sum(scale[0], own[0])
        scale[1] += rest + own[1]
        return int(lost)

    def moments(self, rows: Ints, posterior: Floats) -> dict[int, Floats]:
        """Statistics (outputs, 3) of Gaussian variables, for posteriors (slices, all outputs)."""
        count = len(self.gaussian)
        moments = np.empty((rows.size, 3, count))
        read_moments(self.leaves, rows, moments)
        own = posterior[:, self.outputs].T.astype(np.float64) @ moments.reshape(rows.size, -1)
        return {variable: own[:, place::count] for place, variable in enumerate(self.gaussian)}

"""Sources of sequences whose true likelihood is known, for the second bench.

A source is a process with fixed parameters, which are drawn from a fixed seed where there are many.
`log_likelihood` is exact, so that what a learned model loses to the truth can be stated in nats per
slice. The defaults of the automatic learner were settled with results on some of them in view.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final, Protocol, final

import numpy as np
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import multivariate_normal, norm

from dspn._arguments import Floats
from dspn.data import Schema, Sequences, Variable
from dspn.models import Model

_PARAMETERS: Final = 2026
"""The seed of parameters; data have the seed that they are asked for with."""


class Process(Protocol):
    """What can be drawn from, and says how probable a draw was."""

    def sample(self, num_sequences: int, num_slices: int, rng: np.random.Generator) -> Sequences:
        """Draws of whole sequences."""

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P of each sequence, (N,)."""


@final
@dataclass(frozen=True, eq=False)
class HiddenChains:
    """Hidden Markov chains side by side, each with variables of its own."""

    chains: tuple[Model, ...]

    @cached_property
    def schema(self) -> Schema:
        """The variables of all chains."""
        return Schema(tuple(variable for chain in self.chains for variable in chain.schema))

    def sample(self, num_sequences: int, num_slices: int, rng: np.random.Generator) -> Sequences:
        """Draws, chain by chain."""
        drawn = [chain.sample(num_sequences, num_slices, rng=rng) for chain in self.chains]
        values = np.concatenate([own.values for own in drawn], axis=1)
        return Sequences.from_codes(values, drawn[0].offsets, self.schema)

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P of each sequence, states summed out by the forward algorithm."""
        parts = [chain.log_likelihood(data.select(chain.schema.names)) for chain in self.chains]
        return np.asarray(np.sum(parts, axis=0))


@final
@dataclass(frozen=True, eq=False)
class Autoregression:
    """x_t = sum_i coefficients[i] x_{t-1-i} + noise of variance one.

    `first` is the covariance of as many first values as there are coefficients; None for the
    stationary one.
    """

    coefficients: tuple[float, ...]
    first: float | None = None

    @property
    def _first(self) -> Floats:
        order = len(self.coefficients)
        if self.first is not None:
            return self.first * np.eye(order)
        companion = np.eye(order, k=-1)
        companion[0] = self.coefficients
        noise = np.zeros((order, order))
        noise[0, 0] = 1.0
        return np.asarray(solve_discrete_lyapunov(companion, noise))

    def sample(self, num_sequences: int, num_slices: int, rng: np.random.Generator) -> Sequences:
        """Draws, slice by slice."""
        order = len(self.coefficients)
        values = np.empty((num_sequences, num_slices))
        values[:, :order] = rng.multivariate_normal(np.zeros(order), self._first, num_sequences)
        for t in range(order, num_slices):
            past = values[:, t - order : t][:, ::-1]
            values[:, t] = past @ self.coefficients + rng.standard_normal(num_sequences)
        return _equally_long(values, Variable.continuous("x"))

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log density of each sequence; all must be equally long."""
        order, values = len(self.coefficients), data.values.reshape(len(data), -1)
        windows = np.lib.stride_tricks.sliding_window_view(values, order + 1, axis=1)
        noise = windows @ np.append(-np.array(self.coefficients[::-1]), 1.0)
        begin = multivariate_normal(np.zeros(order), self._first).logpdf(values[:, :order])
        return np.asarray(begin + norm.logpdf(noise).sum(axis=1))


@final
@dataclass(frozen=True)
class DelayedCopy:
    """A symbol is the one `delay` slices before with probability `faith`, else any at random."""

    delay: int
    num_symbols: int = 6
    faith: float = 0.9

    def sample(self, num_sequences: int, num_slices: int, rng: np.random.Generator) -> Sequences:
        """Draws, slice by slice."""
        values = rng.integers(self.num_symbols, size=(num_sequences, num_slices)).astype(float)
        copied = rng.random(values.shape) < self.faith
        for t in range(self.delay, num_slices):
            values[:, t] = np.where(copied[:, t], values[:, t - self.delay], values[:, t])
        return _equally_long(values, Variable.categorical("x", range(self.num_symbols)))

    def log_likelihood(self, data: Sequences) -> Floats:
        """Log P of each sequence; all must be equally long."""
        values, other = data.values.reshape(len(data), -1), (1 - self.faith) / self.num_symbols
        same = values[:, self.delay :] == values[:, : -self.delay]
        later = np.log(np.where(same, self.faith + other, other)).sum(axis=1)
        return np.asarray(later - self.delay * np.log(self.num_symbols))


def _equally_long(values: Floats, variable: Variable) -> Sequences:
    """Sequences of one variable from a row for each."""
    count, length = values.shape
    offsets = np.arange(count + 1) * length
    return Sequences.from_codes(values.reshape(-1, 1), offsets, Schema((variable,)))


# Parts of chains.


def _own_symbol(num_states: int, num_symbols: int, right: float) -> Floats:
    """P(symbol | state): the state's own number, modulo the symbols, or any other."""
    table = np.full((num_states, num_symbols), (1 - right) / (num_symbols - 1))
    table[np.arange(num_states), np.arange(num_states) % num_symbols] = right
    return table


def _sticky(num_states: int, stay: float) -> Floats:
    """A transition matrix that stays, or goes to any other state alike."""
    table = np.full((num_states, num_states), (1 - stay) / (num_states - 1))
    np.fill_diagonal(table, stay)
    return table


def _cycle(num_states: int) -> Floats:
    return np.roll(np.eye(num_states), 1, axis=1)


def _bernoulli(ones: Floats) -> Floats:
    return np.stack([1 - ones, ones], axis=1)


def _gaussian(means: Floats, deviation: float) -> Floats:
    return np.stack([means, np.full(means.shape, deviation**2)], axis=1)


def _categorical(name: str, num_symbols: int) -> Variable:
    return Variable.categorical(name, range(num_symbols))


def _chain(transition: Floats, emissions: Sequence[tuple[Variable, Floats]]) -> Model:
    """A chain that begins in any state alike."""
    start = np.full(len(transition), 1 / len(transition))
    tables = {variable.name: table for variable, table in emissions}
    schema = Schema(tuple(variable for variable, _ in emissions))
    return Model.from_hmm(start, transition, tables, schema=schema)


# The sources.


def _separated_transition(rng: np.random.Generator) -> Floats:
    """Of 40 states, each with three usual successors that have 0.95 together."""
    table = np.full((40, 40), 0.05 / 40)
    for row in table:
        row[rng.choice(40, 3, replace=False)] += 0.95 * rng.dirichlet(np.ones(3))
    return table


def _forty_binary() -> Process:
    """States have codes of eight bits that differ in two or more; a bit is wrong at 0.03."""
    rng = np.random.default_rng(_PARAMETERS)
    codes = np.array([code for code in product((0, 1), repeat=8) if sum(code) % 2 == 0])
    ones = 0.03 + 0.94 * codes[rng.choice(len(codes), 40, replace=False)]
    emissions = [(Variable.binary(f"x{i}"), _bernoulli(own)) for i, own in enumerate(ones.T)]
    return HiddenChains((_chain(_separated_transition(rng), emissions),))


def _forty_gaussian() -> Process:
    """The means of states lie on a grid of 8 x 5, five standard deviations apart."""
    rng = np.random.default_rng(_PARAMETERS)
    grid = np.array(list(product(range(8), range(5))), dtype=float)
    emissions = [(Variable.continuous(n), _gaussian(grid[:, i], 0.2)) for i, n in enumerate("xy")]
    return HiddenChains((_chain(_separated_transition(rng), emissions),))


def _three_chains() -> Process:
    """Chains of four states that stay at 0.85, each with its own variable, right at 0.9."""
    emission = _own_symbol(4, 4, 0.9)
    parts = (_chain(_sticky(4, 0.85), [(_categorical(name, 4), emission)]) for name in "xyz")
    return HiddenChains(tuple(parts))


def _additive() -> Process:
    """Three chains of three states; two numbers are sums of what each chain adds, and noise."""
    rng = np.random.default_rng(_PARAMETERS)
    added = 2.0 * rng.standard_normal((2, 3, 3))
    states = np.array(list(product(range(3), repeat=3)))
    means = added[:, np.arange(3), states].sum(axis=-1)
    first, second, third = (_sticky(3, stay) for stay in (0.9, 0.8, 0.6))
    transition = np.asarray(np.kron(np.kron(first, second), third))
    emissions = [(Variable.continuous(n), _gaussian(means[i], 0.3)) for i, n in enumerate("xy")]
    return HiddenChains((_chain(transition, emissions),))


def _phases() -> Process:
    """24 phases that follow each other from a random one; a number swings, a bit is on by half."""
    phase = np.arange(24)
    emissions = [
        (Variable.continuous("x"), _gaussian(np.sin(2 * np.pi * phase / 24), 0.3)),
        (Variable.binary("y"), _bernoulli(np.where(phase < 12, 0.95, 0.05))),
    ]
    return HiddenChains((_chain(_cycle(24), emissions),))


def _durations() -> Process:
    """Three states that last 4 to 12 slices, every number alike; symbols are right at 0.8."""
    lasts = range(4, 13)
    states = [(state, left) for state in range(3) for left in range(1, max(lasts) + 1)]
    transition = np.zeros((len(states), len(states)))
    for row, (state, left) in zip(transition, states, strict=True):
        for number, (other, rest) in enumerate(states):
            if left > 1:
                row[number] = other == state and rest == left - 1
            elif other != state and rest in lasts:
                row[number] = 1 / (2 * len(lasts))
    emission = np.repeat(_own_symbol(3, 3, 0.8), max(lasts), axis=0)
    return HiddenChains((_chain(transition, [(_categorical("x", 3), emission)]),))


def _regimes() -> Process:
    """A regime in which symbols stay and one in which they run in a circle; it changes at 0.03."""
    inside = (_sticky(4, 0.85), 0.9 * _cycle(4) + 0.1 / 4)
    transition = np.zeros((8, 8))
    for number, own in enumerate(inside):
        here, there = (slice(4 * i, 4 * i + 4) for i in (number, 1 - number))
        transition[here, here], transition[here, there] = 0.97 * own, 0.03 * own
    emission = _own_symbol(8, 4, 0.95)
    return HiddenChains((_chain(transition, [(_categorical("x", 4), emission)]),))


def _seasonal() -> Process:
    """Counts with a season of 12 slices from a random one, times a level that stays at 0.95."""
    season = 5 + 4 * np.sin(2 * np.pi * np.arange(12) / 12)
    rates = np.concatenate([season, 3 * season])[:, np.newaxis]
    transition = np.asarray(np.kron(_sticky(2, 0.95), _cycle(12)))
    return HiddenChains((_chain(transition, [(Variable.count("x"), rates)]),))


@final
@dataclass(frozen=True)
class Source:
    """A process by its name, and how many sequences of how many slices are drawn from it."""

    title: str
    make: Callable[[], Process]
    num_train: int = 120
    num_validation: int = 30
    num_test: int = 200
    num_slices: int = 40


@final
@dataclass(frozen=True, eq=False)
class Drawn:
    """Data of a source, and the process that they were drawn from."""

    process: Process
    train: Sequences
    validation: Sequences
    test: Sequences


SOURCES: Final = {
    "hmm40-binary": Source("HMM of 40 states, 8 binary", _forty_binary),
    "hmm40-gaussian": Source("HMM of 40 states, 2 Gaussian", _forty_gaussian),
    "three-chains": Source("three independent chains", _three_chains),
    "additive": Source("additive factorial chains", _additive),
    "phases": Source("24 phases", _phases),
    "durations": Source("semi-Markov durations", _durations),
    "regimes": Source("two regimes", _regimes),
    "seasonal": Source("seasonal counts", _seasonal),
    "ar1": Source("AR(1)", lambda: Autoregression((0.9,))),
    "ar2": Source("AR(2)", lambda: Autoregression((1.5, -0.75))),
    "walk": Source("random walk", lambda: Autoregression((1.0,), first=1.0)),
    "copy1": Source("copy of 1 symbol", lambda: DelayedCopy(1)),
    "copy3": Source("copy of 3 symbols", lambda: DelayedCopy(3)),
}
"""Each has 120 sequences to learn from, 30 to choose by and 200 to test on, of 40 slices."""


def draw(name: str, seed: int = 0) -> Drawn:
    """The data of a source, the same for everybody who asks with this seed."""
    source = SOURCES[name]
    process, rng = source.make(), np.random.default_rng([seed, list(SOURCES).index(name)])
    sizes = (source.num_train, source.num_validation, source.num_test)
    return Drawn(process, *(process.sample(size, source.num_slices, rng) for size in sizes))

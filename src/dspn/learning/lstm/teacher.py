"""LSTMs as a teacher: trained on the data, then drawn from."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.schema import Schema
from dspn.data.sequences import Sequences
from dspn.errors import DataError
from dspn.learning.lstm.schedule import Schedule, SliceNetSize, Update
from dspn.learning.lstm.session import require_torch, torch_threads
from dspn.learning.lstm.steps import (
    SliceCode,
    batches,
    require_complete,
    require_no_counts,
    slice_code,
)
from dspn.learning.run import Clock
from dspn.options import Options, part_field, whole_field

# Sequences that go through a net together, on the processor and elsewhere: they bound memory.
_ROWS: Final = 4_096
_ROWS_ELSEWHERE: Final = 65_536
_STREAM: Final = 12  # of randomness, apart from that of distillation

SCHEDULE: Final = Schedule(
    learning_rate=0.003,
    update=Update.ADAM,
    truncation=200,
    batch_size=32,
    max_epochs=300,
    patience=6,
    reductions=2,
    clip_norm=1.0,
    weight_decay=0.01,
)


@final
@dataclass(frozen=True)
class Lstms(Options):
    """LSTMs to learn from: their sizes, and how they are trained on the data first.

    A slice is read as a whole and written variable by variable: categories by a softmax, numbers by
    a mixture of `num_components` Gaussians. Sequences have to be complete. Each net draws its share
    of the sequences; lengths are drawn from those of the training set.
    """

    sizes: tuple[SliceNetSize, ...] = (SliceNetSize(128, 1, 0.4), SliceNetSize(128, 1, 0.4))
    num_components: int = whole_field(5)
    schedule: Schedule = part_field(SCHEDULE)
    num_threads: int = whole_field(1)
    device: str = part_field("cpu")

    def _check(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))

    def fit(
        self, train: Sequences, validation: Sequences, *, seed: int, clock: Clock
    ) -> "LstmTeacher":
        """Trains the nets, each with randomness of its own, until `validation` gets no better."""
        require_complete(train, "train")
        require_complete(validation, "validation")
        require_no_counts(train.schema)
        _require_rules(train.schema)
        require_torch("Lstms.fit")
        from dspn.learning.lstm.net import SliceNet, blocks_of
        from dspn.learning.lstm.training import train_nets

        code, blocks = slice_code(train), blocks_of(train.schema, self.num_components)
        trained = train_nets(
            [partial(SliceNet, blocks, size) for size in self.sizes],
            code.steps(train),
            code.steps(validation),
            self.schedule,
            lambda number: np.random.default_rng([seed, _STREAM, number]),
            clock,
            num_threads=self.num_threads,
            device=self.device,
        )
        trained.sort(key=lambda one: -one.score)
        nets = tuple(one.net.eval().requires_grad_(False) for one in trained)
        units = float(code.log_units.sum()) * validation.total_slices / len(validation)
        scores = tuple(one.score + units for one in trained)
        return LstmTeacher(nets, scores, code, train.schema, train.lengths, self.num_threads)


@final
@dataclass(frozen=True, eq=False)
class LstmTeacher:
    """Trained nets, the best first, with their validation scores in nats per sequence."""

    nets: tuple[Any, ...]
    scores: tuple[float, ...]
    code: SliceCode
    schema: Schema
    lengths: Ints
    num_threads: int

    def sample(self, n: int, rng: np.random.Generator) -> Sequences:
        """Draws of whole sequences, an equal share of them from each net."""
        lengths = rng.choice(self.lengths, n)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = np.empty((int(offsets[-1]), len(self.schema)))
        with torch_threads(self.num_threads):
            for net, share in zip(self.nets, self._shares(n), strict=True):
                for own in batches(lengths[share], _rows(net), None):
                    rows, longest = share[own], int(lengths[share[own]].max())
                    drawn = _drawn(net, own.size, longest, len(self.schema), rng)
                    inside = np.arange(longest) < lengths[rows, None]
                    places = (offsets[rows, None] + np.arange(longest))[inside]
                    values[places] = drawn[inside]
        return Sequences.from_codes(
            values * self.code.scales + self.code.means, offsets, self.schema
        )

    def _shares(self, n: int) -> list[Ints]:
        return [np.arange(number, n, len(self.nets)) for number in range(len(self.nets))]

    def states(self, data: Sequences) -> Floats:
        """What the units of the best net give on after each slice, (slices, units)."""
        import torch

        net, steps, found = self.nets[0], self.code.steps(data), []
        device = next(net.parameters()).device
        order = np.empty(data.total_slices, dtype=np.int64)
        used = 0
        with torch_threads(self.num_threads), torch.no_grad():
            for own in batches(data.lengths, _rows(net), None):
                hidden = net.memory(torch.from_numpy(steps.padded(own)).to(device)).cpu().numpy()
                inside = np.arange(hidden.shape[1]) < data.lengths[own, None]
                rows = (data.offsets[own, None] + np.arange(hidden.shape[1]))[inside]
                order[rows] = used + np.arange(rows.size)
                used += rows.size
                found.append(hidden[inside])
        return np.concatenate(found)[order].astype(np.float64)


def _require_rules(schema: Schema) -> None:
    given = [item.name for item in schema.inputs if item.rule is None]
    if given:
        raise DataError(
            "`train` must have no inputs but those that rules compute from the place of a slice, "
            f"as draws need them too, but has {given}; leave them out, or model them as variables."
        )


def _rows(net: Any) -> int:
    return _ROWS if next(net.parameters()).device.type == "cpu" else _ROWS_ELSEWHERE


def _drawn(net: Any, count: int, length: int, width: int, rng: np.random.Generator) -> Floats:
    """Draws of one net, (sequences, slices, variables), in its own units."""
    import torch

    device, state, found = next(net.parameters()).device, None, []
    with torch.no_grad():
        for _ in range(length):
            uniforms = torch.from_numpy(rng.random((count, width))).to(device)
            values, state = net.sampled(uniforms, state)
            found.append(values.cpu().numpy())
    return np.stack(found, axis=1).astype(np.float64)

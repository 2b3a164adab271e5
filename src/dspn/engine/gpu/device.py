"""Where arrays live: a GPU through CuPy, or NumPy standing in for it on a machine without one."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from typing import Any, Final, final

import numpy as np

from dspn._arguments import Floats, Ints
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.errors import NumericalError, StructureError
from dspn.leaves.told import sources_of, told_values

# CuPy's arrays carry no types.
Array = Any

_OLDEST: Final = (8, 0)
_CELLS_HERE: Final = 2**18
_CELLS_THERE: Final = 2**25
_SHARE_OF_MEMORY: Final = 0.4
_MEMORY_HERE: Final = 2**27
_MOST_KEPT: Final = 4096


@final
class Device:
    """An array module and what it can hold; `xp` is CuPy or NumPy.

    Data are brought to the device once and stay there as long as their `Sequences` live.
    """

    def __init__(self, name: str = "cupy") -> None:
        if name not in ("cupy", "numpy"):
            raise StructureError(f"`arrays` must be 'cupy' or 'numpy', not {name!r}.")
        self.name = name
        self._kept: dict[int, tuple[Any, Array]] = {}
        self._batches: weakref.WeakKeyDictionary[Sequences, Batch] = weakref.WeakKeyDictionary()

    @property
    def is_gpu(self) -> bool:
        """Whether kernels can run."""
        return self.name == "cupy"

    @cached_property
    def xp(self) -> Any:
        """The array module; raises with one sentence where there is no GPU to run on."""
        if not self.is_gpu:
            return np
        try:
            found: Any = import_module("cupy")
        except ImportError as error:
            raise StructureError(
                "`engine='gpu'` needs CuPy, which could not be loaded: install dspn[gpu], or use "
                f"engine='cpu' ({error})."
            ) from None
        try:
            count = found.cuda.runtime.getDeviceCount()
        except found.cuda.runtime.CUDARuntimeError as error:
            raise StructureError(
                "`engine='gpu'` needs an NVIDIA GPU with a driver that CuPy's CUDA supports, and "
                f"found none: {error}; use engine='cpu'."
            ) from None
        if not count:
            raise StructureError("`engine='gpu'` needs an NVIDIA GPU, and there is none here.")
        capability = str(found.cuda.Device().compute_capability)
        if (int(capability[:-1]), int(capability[-1])) < _OLDEST:
            raise StructureError(
                f"`engine='gpu'` needs a GPU of compute capability {_OLDEST[0]}.{_OLDEST[1]} or "
                f"later, but this one has {capability[:-1]}.{capability[-1]}; use engine='cpu'."
            )
        return found

    @cached_property
    def processors(self) -> int:
        """Multiprocessors of the card."""
        return int(self.xp.cuda.Device().attributes["MultiProcessorCount"]) if self.is_gpu else 1

    @property
    def cells(self) -> int:
        """Numbers that one array operation makes at most."""
        return _CELLS_THERE if self.is_gpu else _CELLS_HERE

    @property
    def room(self) -> int:
        """Bytes that a pass may keep."""
        if not self.is_gpu:
            return _MEMORY_HERE
        free, _ = self.xp.cuda.runtime.memGetInfo()
        held = self.xp.get_default_memory_pool()
        return int((free + held.free_bytes()) * _SHARE_OF_MEMORY)

    def here(self, array: Array) -> Any:
        """The array in the memory of the machine."""
        return self.xp.asnumpy(array) if self.is_gpu else np.asarray(array)

    def there(self, array: Any, dtype: Any = None) -> Array:
        """The array on the device."""
        return self.xp.asarray(array, dtype=dtype)

    def keep(self, array: Any) -> Array:
        """The array on the device, where it stays: for indices that belong to a structure."""
        if not self.is_gpu:
            return array
        found = self._kept.get(id(array))
        if found is None:
            if len(self._kept) > _MOST_KEPT:
                self._kept.clear()
            found = self._kept[id(array)] = (array, self.xp.asarray(array))
        return found[1]

    @contextmanager
    def running(self) -> Iterator[None]:
        """No warnings of arithmetic within; a card without room is reported in one sentence."""
        if not self.is_gpu:
            with np.errstate(all="ignore"):
                yield
            return
        xp = self.xp
        try:
            with np.errstate(all="ignore"):
                yield
        except xp.cuda.memory.OutOfMemoryError as error:
            xp.get_default_memory_pool().free_all_blocks()
            raise NumericalError(
                f"the GPU has no room for this pass: {error} Give fewer or shorter sequences at a "
                "time, or use engine='cpu'."
            ) from None

    def batch(self, data: Sequences) -> "Batch":
        """The sequences on the device."""
        found = self._batches.get(data)
        if found is None:
            found = Batch(self, data)
            self._batches[data] = found
        return found

    @cached_property
    def _modules(self) -> dict[tuple[str, tuple[str, ...]], Any]:
        return {}

    def kernel(self, source: str, name: str, options: tuple[str, ...] = ()) -> Callable[..., None]:
        """A kernel of one of the files of `kernels`, compiled when it is first used."""
        key = (source, options)
        if key not in self._modules:
            text = (files("dspn.engine.gpu") / "kernels" / f"{source}.cu").read_text()
            self._modules[key] = self.xp.RawModule(code=text, options=("-std=c++17", *options))
        found: Callable[..., None] = self._modules[key].get_function(name)
        return found


@final
class Batch:
    """Sequences from the longest to the shortest, one lane each, and the codes of their entries.

    Entry (slice, variable) has the value `distinct[variable][codes[variable][slice]]`. What a
    program derives from a batch, such as the order of its slices, is kept in `derived`. A part of
    a batch has the places of its slices there in `rows`.
    """

    def __init__(self, device: Device, data: Sequences) -> None:
        self.device = device
        self.order: Ints = np.argsort(-data.lengths, kind="stable")
        self.lengths: Ints = data.lengths[self.order]
        self.offsets: Ints = data.offsets[:-1][self.order]
        self.total_slices = data.total_slices
        self.rows: Ints | None = None
        # Codes of categorical inputs; those of numbers are not read.
        self.told = device.there(np.nan_to_num(data.inputs).astype(np.int64))
        self.derived: dict[Any, Any] = {}
        self.distinct: list[Floats] = []
        self.codes: list[Array] = []
        self.has_missing: list[bool] = []
        xp = device.xp
        for v, variable in enumerate(data.schema):
            if sources_of(variable):  # a value means something else in every context
                self.distinct.append(told_values(data, v))
                self.has_missing.append(True)
                self.codes.append(xp.arange(data.total_slices, dtype=xp.int32))
                continue
            values = device.there(np.ascontiguousarray(data.values[:, v]))
            if variable.kind == Kind.CATEGORICAL and variable.num_categories:
                count = variable.num_categories
                missing = xp.isnan(values)
                codes = xp.where(missing, float(count), values)
                distinct = np.append(np.arange(count, dtype=np.float64), np.nan)
                self.has_missing.append(bool(missing.any()))
            else:
                shown, codes = xp.unique(values, return_inverse=True)
                distinct = device.here(shown)
                first_nan = int(np.isnan(distinct).argmax()) if np.isnan(distinct).any() else None
                if first_nan is not None:
                    distinct = distinct[: first_nan + 1]
                    codes = xp.minimum(codes, first_nan)
                self.has_missing.append(first_nan is not None)
            self.distinct.append(distinct)
            self.codes.append(codes.astype(xp.int32).reshape(-1))

    def __len__(self) -> int:
        return len(self.order)

    def cut(self, slices: int) -> "list[tuple[Batch, Ints]]":
        """Batches of at most so many slices, or of one sequence, and their sequences.

        They are kept with the batch.
        """
        key = ("cut", slices)
        if key not in self.derived:
            parts, start = [], 0
            ends = np.cumsum(self.lengths)
            while start < len(self):
                before = int(ends[start - 1]) if start else 0
                end = int(np.searchsorted(ends, before + slices, side="right"))
                end = max(end, start + 1)
                parts.append((self._part(start, end), self.order[start:end]))
                start = end
            self.derived[key] = parts
        found: list[tuple[Batch, Ints]] = self.derived[key]
        return found

    def _part(self, start: int, end: int) -> "Batch":
        lengths, offsets = self.lengths[start:end], self.offsets[start:end]
        found = object.__new__(Batch)
        found.device, found.derived = self.device, {}
        found.order = np.arange(end - start)
        found.lengths, ends = lengths, np.cumsum(lengths)
        found.offsets = ends - lengths
        found.total_slices = int(ends[-1])
        found.distinct, found.has_missing = self.distinct, self.has_missing
        rows = np.arange(found.total_slices) + np.repeat(offsets - found.offsets, lengths)
        found.rows = rows
        at = self.device.there(rows)
        found.codes, found.told = [codes[at] for codes in self.codes], self.told[at]
        return found

    @property
    def longest(self) -> int:
        """Slices of the longest sequence."""
        return int(self.lengths[0]) if len(self.lengths) else 0

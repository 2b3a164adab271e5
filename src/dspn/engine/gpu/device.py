"""Where arrays live: a GPU through CuPy, or NumPy standing in for it on a machine without one."""

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dspn._arguments import Floats, Ints
from dspn.atomic import write_atomically
from dspn.data.schema import Kind
from dspn.data.sequences import Sequences
from dspn.errors import ModelFileError, NumericalError, StructureError
from dspn.leaves.told import sources_of, told_values

# CuPy's arrays carry no types.
Array = Any
# Columns that are added up for column i of a result, order[start[i] : start[i + 1]], as (start,
# order); None where columns stay as they are.
Places = tuple[NDArray[np.int32], NDArray[np.int32]] | None

_OLDEST: Final = (8, 0)
_CELLS_HERE: Final = 2**18
_CELLS_THERE: Final = 2**25
_SHARE_OF_MEMORY: Final = 0.4
_MEMORY_HERE: Final = 2**27
_MOST_KEPT: Final = 2**28
_MOST_PINNED: Final = 2**28
# A recording holds its memory: it needs room for so many of its size.
_TIMES_RECORDED: Final = 8
# With this option a kernel may use `warpgroup.cu`.
HOPPER: Final = "-arch=sm_90a"
# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, which CuPy has no name for.
_SHARED_ATTRIBUTE: Final = 8
# CUBLAS_TF32_TENSOR_OP_MATH, which CuPy has no name for.
_TF32_TENSOR_OP_MATH: Final = 3


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
        self._kept_bytes = 0
        self._modules: dict[tuple[str, tuple[str, ...]], Any] = {}
        self.kernels: dict[tuple[str, str, tuple[str, ...]], Callable[..., None]] = {}
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

    @cached_property
    def is_hopper(self) -> bool:
        """Whether the card has the instructions of `warpgroup.cu`."""
        return self.is_gpu and str(self.xp.cuda.Device().compute_capability) == "90"

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
        """The array in the memory of the machine.

        Unless it is large that memory is of a pool whose pages stay where they are, which a card
        writes several times as fast.
        """
        if not self.is_gpu:
            return np.asarray(array)
        if not 0 < array.nbytes <= _MOST_PINNED:
            return self.xp.asnumpy(array)
        memory = self.xp.cuda.alloc_pinned_memory(array.nbytes)
        out = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
        return self.xp.asnumpy(array, out=out)

    def together(self, arrays: list[Array]) -> list[Array]:
        """An array that has several side by side in float64, and its parts in their shapes."""
        ends = np.cumsum([0, *(array.size for array in arrays)])
        flat, found = self.xp.empty(int(ends[-1])), []
        for start, end, array in zip(ends, ends[1:], arrays, strict=False):
            found.append(flat[start:end].reshape(array.shape))
            found[-1][...] = array
        return [flat, *found]

    def parts_here(self, flat: Array, parts: list[Array]) -> list[Floats]:
        """What `together` has made, in one transfer."""
        found = np.split(self.here(flat), np.cumsum([part.size for part in parts])[:-1])
        return [own.reshape(part.shape) for own, part in zip(found, parts, strict=True)]

    def there(self, array: Any, dtype: Any = None) -> Array:
        """The array on the device."""
        return self.xp.asarray(array, dtype=dtype)

    def keep(self, array: Any) -> Array:
        """The array on the device, where it stays: for indices that belong to a structure."""
        if not self.is_gpu:
            return array
        found = self._kept.get(id(array))
        if found is None:
            if self._kept_bytes > _MOST_KEPT:
                self._kept.clear()
                self._kept_bytes = 0
            self._kept_bytes += array.nbytes
            found = self._kept[id(array)] = (array, self.xp.asarray(array))
        return found[1]

    @property
    def kept(self) -> list[Any]:
        """What `keep` has kept until now."""
        return list(self._kept.values())

    def gathered(self, rows: Array, places: Places, narrow: bool = False) -> Array:
        """Sums of some columns of rows, by places that belong to a structure; see `narrowed`."""
        if places is None or not self.is_gpu:
            if places is not None:
                start, order = places
                found = np.zeros((len(rows), len(start) - 1), dtype=rows.dtype)
                some = np.flatnonzero(np.diff(start))
                found[:, some] = np.add.reduceat(rows[:, order], start[some], axis=1)
                rows = found
            return narrowed(self.xp, rows) if narrow else rows
        start, order = map(self.keep, places)
        (count, below), above = rows.shape, len(start) - 1
        out = self.xp.empty((count, above), dtype=rows.dtype)
        sizes = (np.int64(count), np.int32(below), np.int32(above), np.int32(narrow))
        kernel = self.kernel("rows", "gather", (real_option(rows.dtype), "-DVECTOR=1"))
        kernel((-(-count // 2),), (1024,), (rows, start, order, *sizes, out))
        return out

    def multiply(self, left: Array, right: Array, out: Array) -> None:
        """Products of two stacks of matrices, read where they lie: by rows or by columns.

        CuPy's own product copies stacks that do not lie as it wants them. BLAS takes matrices by
        columns, so that it is given the transposed factors in the other order.
        """
        if not self.is_gpu:
            np.matmul(left, right, out=out)
            return
        cuda, item = self.xp.cuda, out.itemsize
        single = out.dtype == np.float32
        one, zero = np.ones(1, out.dtype), np.zeros(1, out.dtype)
        (count, rows, columns), summed = out.shape, left.shape[2]

        def described(stack: Array) -> tuple[int, int, int, int]:
            """Whether the stack is by columns, its address, and its steps."""
            by_columns = stack.shape[2] > 1 and stack.strides[2] != item
            step = stack.strides[2 if by_columns else 1] // item
            step = max(step, stack.shape[1 if by_columns else 2])
            return int(by_columns), stack.data.ptr, step, stack.strides[0] // item

        (turned, *first), (other, *second), (_, *third) = map(described, (right, left, out))
        blas = cuda.cublas.sgemmStridedBatched if single else cuda.cublas.dgemmStridedBatched
        blas(
            *(cuda.device.get_cublas_handle(), turned, other, columns, rows, summed),
            *(one.ctypes.data, *first, *second, zero.ctypes.data, *third, count),
        )

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

    def kernel(self, source: str, name: str, options: tuple[str, ...]) -> Any:
        """A kernel of one of the files of `kernels`, compiled when it is first used."""
        found = self.kernels.get((source, name, options))
        if found is None:
            module = self._modules.get((source, options))
            if module is None:
                folder = files("dspn.engine.gpu") / "kernels"
                of_hopper = HOPPER in options
                parts = ("common", "warpgroup", source) if of_hopper else ("common", source)
                text = "".join((folder / f"{own}.cu").read_text() for own in parts)
                make = self._hopper_module if of_hopper else self.xp.RawModule
                module = make(code=text, options=("-std=c++17", *options))
                self._modules[source, options] = module
            found = self.kernels[source, name, options] = module.get_function(name)
        return found

    def give_shared_memory(self, kernel: Any, size: int) -> int:
        """Lets a kernel have so many bytes of shared memory in a block; returns them."""
        pointer = getattr(kernel, "kernel", kernel).ptr
        self.xp.cuda.driver.funcSetAttribute(pointer, _SHARED_ATTRIBUTE, size)
        return size

    def _hopper_module(self, code: str, options: tuple[str, ...]) -> Any:
        """A module that may use instructions of Hopper alone, which CuPy does not ask for.

        It is compiled once for all processes, and kept where CuPy keeps its own.
        """
        nvrtc = self.xp.cuda.nvrtc
        key = "\0".join((code, *options, str(nvrtc.getVersion()))).encode()
        home = os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache"
        file = Path(home) / f"dspn-{sha256(key).hexdigest()}.cubin"
        module = self.xp.cuda.function.Module()
        with suppress(OSError):
            kept = file.read_bytes()
            if kept[:32] == sha256(kept[32:]).digest():
                module.load(kept[32:])
                return module
        program = nvrtc.createProgram(code, "kernels.cu", (), ())
        try:
            nvrtc.compileProgram(program, (*options, "-ftz=true"))
            binary = nvrtc.getCUBIN(program)
        except nvrtc.NVRTCError:
            raise NumericalError(
                f"a kernel for this GPU could not be compiled: {nvrtc.getProgramLog(program)[:500]}"
            ) from None
        finally:
            nvrtc.destroyProgram(program)
        with suppress(OSError, ModelFileError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, sha256(binary).digest() + binary)
        module.load(binary)
        return module


def real_option(dtype: Any) -> str:
    """The type of numbers that a kernel is compiled for."""
    return f"-DREAL={'float' if np.dtype(dtype) == np.float32 else 'double'}"


def narrowed(xp: Any, values: Array) -> Array:
    """Float32 numbers rounded to the nearest of ten fraction bits."""
    bits = values.view(xp.uint32) + xp.uint32(0x1000)
    return (bits & xp.uint32(0xFFFFE000)).view(xp.float32)


@final
class TensorProducts:
    """Products of float32 matrices by columns, the order of BLAS, on TF32 tensor cores."""

    def __init__(self, device: Device) -> None:
        cuda = device.xp.cuda
        self.handle, self.cublas = cuda.device.get_cublas_handle(), cuda.cublas
        self.factors = np.array([1, 0], np.float32)
        self.one = self.factors.ctypes.data
        self.zero = self.one + self.factors.itemsize

    def __enter__(self) -> "TensorProducts":
        self.before = self.cublas.getMathMode(self.handle)
        self.cublas.setMathMode(self.handle, _TF32_TENSOR_OP_MATH)
        return self

    def __exit__(self, *_: object) -> None:
        self.cublas.setMathMode(self.handle, self.before)

    def __call__(
        self, turned: tuple[bool, bool], shape: tuple[int, int, int], left: Array, right: Array,
        out: Array, *, right_at: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Out = left @ right, either transposed if `turned`.

        `shape` has the rows and columns of the result, and what is summed over; `right_at` where
        `right` begins in its array, and how far apart its columns are.
        """
        rows, columns, summed = shape
        at, step = right_at or (0, columns if turned[1] else summed)
        self.cublas.sgemm(
            *(self.handle, int(turned[0]), int(turned[1]), rows, columns, summed),
            *(self.one, left.data.ptr, summed if turned[0] else rows),
            *(right.data.ptr + 4 * at, step, self.zero, out.data.ptr, rows),
        )


@final
class Recording:
    """What is done with numbers of the same shapes again and again: the card repeats it as a graph.

    The first call is like any other, and compiles and keeps whatever is needed once. The second is
    recorded, in memory of its own. Results are overwritten by the next call.
    """

    def __init__(
        self, device: Device, make: Callable[[list[Array]], list[Array]], size: int
    ) -> None:
        self.device, self.make, self.size = device, make, size
        self.is_new = True
        self.play: Callable[[], None] | None = None

    def __call__(self, given: list[Floats]) -> list[Array]:
        """What `make` finds of some numbers, which it has on the device."""
        if self.play is None and (self.is_new or not self._record(given)):
            self.is_new = False
            return self.make([self.device.there(own) for own in given])
        assert self.play is not None
        for part, own in zip(self.parts, given, strict=True):
            part[...] = own.reshape(-1)
        self.play()
        return self.found

    def _record(self, given: list[Floats]) -> bool:
        """Whether there is a recording now."""
        xp = self.device.xp
        cuda = xp.cuda
        if not hasattr(cuda, "Graph") or not 0 < _TIMES_RECORDED * self.size <= self.device.room:
            self.size = 0  # it is not asked about again
            return False
        sizes = [own.size for own in given]
        memory = cuda.alloc_pinned_memory(8 * sum(sizes))
        here = np.frombuffer(memory, np.float64, sum(sizes))
        stream, pool = cuda.Stream(non_blocking=True), cuda.MemoryPool()
        with stream, cuda.using_allocator(pool.malloc):
            there = xp.empty(sum(sizes))
            arrays = [
                part.reshape(own.shape)
                for part, own in zip(xp.split(there, np.cumsum(sizes)[:-1]), given, strict=True)
            ]
            stream.begin_capture()
            try:
                self.found = self.make(arrays)
            finally:
                graph = stream.end_capture()

        def play() -> None:
            now = cuda.get_current_stream()
            stream.wait_event(now.record())
            there.set(here, stream)
            graph.launch(stream)
            now.wait_event(stream.record())

        self.parts = np.split(here, np.cumsum(sizes)[:-1])
        # What the graph reads must not be given to others.
        self.held = (pool, arrays, self.device.kept)
        self.play = play
        return True


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

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """What follows from the batch alone, made once."""
        if key not in self.derived:
            self.derived[key] = make()
        return self.derived[key]

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

"""The kernels of the GPU engine on a processor: g++ compiles them, and NumPy stands in for CuPy.

Everything of the engine runs as it does on a card, but for the card. `cuda.h` says how a kernel
runs. Here are the pieces of CuPy that the engine uses, with what a card would not forgive:

- arrays of the card and of the machine do not mix, and only those of the card are given to kernels;
- arguments have the types of the kernel's signature, and arrays are contiguous;
- new arrays are NaN, and what lies before and behind an array is NaN and must stay so;
- with `orders` a kernel runs in several orders of its threads, which must give the same bits.
"""

import ctypes
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from dspn.engine.gpu import GpuEngine

_HEADER, _HOPPER = (Path(__file__).with_name(name) for name in ("cuda.h", "hopper.h"))
_OPTIONS = ("-std=c++17", "-O1", "-fno-strict-aliasing", "-ffp-contract=off", "-w", "-fPIC",
            "-U_FORTIFY_SOURCE", "-fno-stack-protector", "-fcf-protection=none")  # fmt: skip
_GUARD = 256
_LETTERS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "uint64": "q", "bool": "b"}


def why_not() -> str | None:
    """Why kernels cannot run here; None where they can."""
    if shutil.which("g++") is None:
        return "needs g++ to compile the kernels for the processor"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "the emulator of CUDA is for Linux on x86-64"
    return None


class Array(np.ndarray):
    """An array of the card."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        """The address, as CuPy names it."""
        return SimpleNamespace(ptr=self.ctypes.data)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        if out is not None:
            options["out"] = tuple(own.view(np.ndarray) for own in out)
        found = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return found if method == "at" else _of_card(found)


def _plain(value: Any) -> Any:
    if isinstance(value, Array):
        return value.view(np.ndarray)
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("an array of the machine was given to an operation of the card")
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value


def _of_card(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_of_card, value))
    return value.view(Array) if isinstance(value, np.ndarray) else value


def _instructions(text: str) -> str:
    """PTX in `asm` as calls: asm("a.b {%0}, %1;" : "=r"(x) : "r"(y)) becomes a_b(x, y)."""

    def call(found: re.Match[str]) -> str:
        code, operands = found[1], found[2]
        name = re.match(r'\s*"([\w.]+)', code)
        assert name is not None
        given = re.findall(r'"[=+]?[a-z]"\(((?:[^()]|\([^()]*\))*)\)', operands)
        return f"{name[1].replace('.', '_')}({', '.join(given)});"

    return re.sub(r'asm(?:\s+volatile)?\s*\(\s*((?:"[^"]*"\s*)+)((?::[^;]*)+)\);', call, text)


def _source(text: str) -> str:
    dynamic = r"\1* \2 = (\1*)emulator::dynamic_memory();"
    text = re.sub(r"extern __shared__ (\w+) (\w+)\[\];", dynamic, text)
    text = re.sub(r"#ifndef EMULATED\n.*?#endif\n", "", text, flags=re.DOTALL)
    found = re.findall(r'extern "C" __global__ void ((?:__\w+__\([^)]*\) )*)(\w+)\(', text)
    emulated = (f"EMULATE({name}, {int('__cluster_dims__' in given)})" for given, name in found)
    headers = [_HEADER.read_text(), *([_HOPPER.read_text()] if "address_t" in text else [])]
    return "\n".join([*headers, _instructions(text), *emulated])


def _home() -> Path:
    """Where what was compiled stays."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "dspn" / "emulator"


@cache
def _version() -> str:
    return subprocess.run(
        ["g++", "-dumpfullversion"], check=True, capture_output=True, text=True
    ).stdout


@cache
def _library(text: str, options: tuple[str, ...]) -> ctypes.CDLL:
    source, given = _source(text), (*_OPTIONS, *(o for o in options if o.startswith("-D")))
    key = hashlib.sha256("\0".join((source, _version(), *given)).encode()).hexdigest()[:32]
    target = _home() / f"{key}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / "made.so"
            subprocess.run(
                ["g++", *given, "-shared", "-x", "c++", "-", "-o", str(made)],
                input=source, text=True, check=True,
            )  # fmt: skip
            made.replace(target)
    return ctypes.CDLL(str(target))


class Kernel:
    """A kernel of a compiled file."""

    ptr = 0

    def __init__(self, card: "Card", library: ctypes.CDLL, name: str) -> None:
        self.card, self.name = card, name
        describe = getattr(library, f"signature_{name}")
        describe.restype = ctypes.c_char_p
        self.types: list[str] = re.findall(r"\*?.", describe().decode())
        self.launch = getattr(library, f"launch_{name}")
        self.launch.restype = ctypes.c_char_p

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...],
        *, shared_mem: int = 0,
    ) -> None:  # fmt: skip
        assert len(args) == len(self.types), f"{self.name} takes {len(self.types)} arguments"
        self.card.launches.append(self.name)
        size = (ctypes.c_uint * 3)(*(*grid, 1)[:2], *block)
        runs = [self._run(size, args, shared_mem, order) for order in self.card.orders]
        for argument, own, *others in zip(args, *runs, strict=True):
            if own is None:
                continue
            if any(other.tobytes() != own.tobytes() for other in others):
                raise AssertionError(f"{self.name}: results depend on the order of threads")
            if own.tobytes() != argument.tobytes():
                argument[...] = own

    def _run(self, size: Any, args: tuple[Any, ...], shared: int, order: int) -> list[Any]:
        found, kept, places = [], [], (ctypes.c_void_p * len(args))()
        for i, (argument, type_of) in enumerate(zip(args, self.types, strict=True)):
            held, array = self._argument(i, argument, type_of)
            kept.append(held)
            found.append(array)
            places[i] = held.ctypes.data
        pointers = [None if a is None else np.array([a.ctypes.data]) for a in found]
        for i, pointer in enumerate(pointers):
            if pointer is not None:
                places[i] = pointer.ctypes.data
        failed = self.launch(places, size, shared, order)
        if failed:
            raise AssertionError(f"{self.name}: {failed.decode()}")
        for i, (array, held) in enumerate(zip(found, kept, strict=True)):
            if array is not None and not (
                (held[:_GUARD] == 255).all() and (held[-_GUARD:] == 255).all()
            ):
                raise AssertionError(f"{self.name} wrote outside its argument {i}")
        return found

    def _argument(self, place: int, value: Any, expected: str) -> tuple[Any, Any]:
        """The bytes of an argument, and for an array the copy that the kernel works on."""
        if expected[0] == "*" and not isinstance(value, Array):
            assert type(value) is int and value == 0, f"{self.name}: argument {place} is no array"
            return np.zeros(1, np.int64), None
        found = _LETTERS[str(np.asarray(value).dtype)]
        assert found == expected[-1] and (expected[0] == "*") == isinstance(value, Array), (
            f"{self.name}: argument {place} has type {found!r}, not {expected!r}"
        )
        if not isinstance(value, Array):
            return np.array([value]), None
        assert value.flags.c_contiguous, f"{self.name}: argument {place} is not contiguous"
        held = np.full(value.nbytes + 2 * _GUARD, 255, dtype=np.uint8)
        copy = held[_GUARD:-_GUARD].view(value.dtype).reshape(value.shape)
        copy[...] = value.view(np.ndarray)
        return held, copy


class Module:
    """The kernels of a file that was compiled for one kind of card."""

    def __init__(self, card: "Card") -> None:
        self.card = card

    def load(self, binary: bytes) -> None:
        """Takes what NVRTC has made."""
        text, options = json.loads(binary)
        self.library = _library(text, tuple(options))

    def get_function(self, name: str) -> Kernel:
        """A kernel."""
        return Kernel(self.card, self.library, name)


class Card:
    """What the engine uses of the module `cupy`; other names are those of NumPy.

    Args:
        processors: multiprocessors, by which the engine chooses between kernels.
        orders: in which orders of threads every kernel runs, of 0, 1 and 2.
        room: bytes of memory that it says are free.
    """

    def __init__(
        self, processors: int = 4, orders: tuple[int, ...] = (0,), room: int = 2**28
    ) -> None:
        self.orders = orders
        self.launches: list[str] = []
        self.copies = [0, 0]
        self.newaxis = None
        runtime = SimpleNamespace(
            getDeviceCount=lambda: 1,
            memGetInfo=lambda: (room, room),
            CUDARuntimeError=type("CUDARuntimeError", (RuntimeError,), {}),
        )
        device = SimpleNamespace(
            compute_capability="90", attributes={"MultiProcessorCount": processors}
        )
        modes: dict[int, int] = {}
        cublas = SimpleNamespace(
            getMathMode=lambda handle: modes.get(handle, 0), setMathMode=modes.__setitem__,
            sgemm=_sgemm, sgemmStridedBatched=_batched(ctypes.c_float, modes),
            dgemmStridedBatched=_batched(ctypes.c_double, modes),
        )  # fmt: skip
        nvrtc = SimpleNamespace(
            createProgram=lambda code, name, headers, names: [code],
            compileProgram=lambda program, options: program.append(options),
            getCUBIN=lambda program: json.dumps(program).encode(), getVersion=_version,
            destroyProgram=list.clear, getProgramLog=str,
            NVRTCError=type("NVRTCError", (RuntimeError,), {}),
        )  # fmt: skip
        memory = SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {}))
        self.cuda = SimpleNamespace(
            runtime=runtime, Device=lambda: device, memory=memory, cublas=cublas,
            nvrtc=nvrtc, function=SimpleNamespace(Module=lambda: Module(self)),
            driver=SimpleNamespace(funcSetAttribute=lambda function, attribute, value: None),
            alloc_pinned_memory=lambda size: bytearray(-(-size // 512) * 512),
            device=SimpleNamespace(get_cublas_handle=lambda: 0),
        )  # fmt: skip

    def get_default_memory_pool(self) -> Any:
        """A pool that holds nothing."""
        return SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None)

    def RawModule(self, code: str, options: tuple[str, ...]) -> Any:  # noqa: N802
        """The kernels of a file."""
        library = _library(code, options)
        return SimpleNamespace(get_function=lambda name: Kernel(self, library, name))

    def asarray(self, value: Any, dtype: Any = None) -> Array:
        """An array of the machine on the card, or one of the card as it is."""
        if isinstance(value, Array):
            return np.asarray(value, dtype=dtype).view(Array) if dtype else value
        self.copies[0] += 1
        return np.array(value, dtype=dtype, order="C").view(Array)

    def asnumpy(self, value: Any, out: np.ndarray | None = None) -> np.ndarray:
        """A copy in the memory of the machine."""
        self.copies[1] += 1
        if out is None:
            return np.array(value)
        out[...] = value.view(np.ndarray)
        return out

    def empty(self, shape: Any, dtype: Any = np.float64) -> Array:
        """An array of NaN, or of -1."""
        found = np.empty(shape, dtype=dtype)
        found.reshape(-1).view(np.uint8)[:] = 255
        return found.view(Array)

    def empty_like(self, array: Array, dtype: Any = None) -> Array:
        """The same for the shape of another array."""
        return self.empty(array.shape, dtype or array.dtype)

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found

        def run(*given: Any, **options: Any) -> Any:
            named = {key: _plain(value) for key, value in options.items()}
            return _of_card(found(*map(_plain, given), **named))

        return run


def _at(address: int, shape: tuple[int, int], step: int) -> np.ndarray:
    """A matrix by columns, without the bits that a TF32 tensor core does not read."""
    assert step >= shape[0]
    flat = np.ctypeslib.as_array(
        ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (step * (shape[1] - 1) + shape[0],)
    )
    cut = (flat.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.lib.stride_tricks.as_strided(cut, shape, (4, 4 * step))


def _sgemm(
    _: int, left_turned: int, right_turned: int, m: int, n: int, k: int, alpha: int, left: int,
    lda: int, right: int, ldb: int, beta: int, out: int, ldc: int,
) -> None:  # fmt: skip
    one = _at(left, (k, m), lda).T if left_turned else _at(left, (m, k), lda)
    other = _at(right, (n, k), ldb).T if right_turned else _at(right, (k, n), ldb)
    assert ldc == m
    target = np.ctypeslib.as_array(ctypes.cast(out, ctypes.POINTER(ctypes.c_float)), (m * n,))
    target[:] = (one @ other).reshape(-1, order="F")


def _batched(kind: Any, modes: dict[int, int]) -> Any:
    """Products of stacks of matrices by columns, without the bits that `modes` does without."""

    def stack(
        address: int, shape: tuple[int, int, int], turned: int, lead: int, step: int, cut: bool
    ) -> Any:
        count, rows, columns = shape
        if turned:
            rows, columns = columns, rows
        assert lead >= rows
        size = (count - 1) * step + lead * (columns - 1) + rows
        flat = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), (size,))
        if cut and kind is ctypes.c_float:
            flat = (flat.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        item = flat.itemsize
        steps = (step * item, item, lead * item)
        found = np.lib.stride_tricks.as_strided(flat, (count, rows, columns), steps)
        return found.transpose(0, 2, 1) if turned else found

    def run(
        _: int, left_turned: int, right_turned: int, m: int, n: int, k: int, alpha: int, left: int,
        lda: int, step_a: int, right: int, ldb: int, step_b: int, beta: int, out: int, ldc: int,
        step_c: int, count: int,
    ) -> None:  # fmt: skip
        cut = bool(modes.get(0))
        one = stack(left, (count, m, k), left_turned, lda, step_a, cut)
        other = stack(right, (count, k, n), right_turned, ldb, step_b, cut)
        stack(out, (count, m, n), 0, ldc, step_c, False)[...] = one @ other

    return run


def engine(card: Card | None = None, **options: Any) -> GpuEngine:
    """The GPU engine on an emulated card, which is `engine(...).device.xp`."""
    os.environ.setdefault("CUPY_CACHE_DIR", str(_home()))
    found = GpuEngine()
    with patch.dict(sys.modules, {"cupy": card or Card(**options)}):
        _ = found.device.xp
    return found

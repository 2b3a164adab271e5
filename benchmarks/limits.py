"""What one core of this machine can do: multiply-adds a second, and bytes a second from its caches.

Kernels are written so that the compiler vectorises them; matrix products of the BLAS are tried as
well, and the best rate seen counts as the limit.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import numba
import numpy as np

_L1_BYTES: Final = 16 << 10
_DEGREE: Final = 16
_CONTRACTED: Final = {"contract"}
_REASSOCIATED: Final = {"contract", "reassoc", "nsz"}


@final
@dataclass(frozen=True)
class Limits:
    """Multiply-adds in 1e9/s (one counts once, though it is two operations), reading in GB/s."""

    fma_loop: float
    fma_blas: float
    l1_read: float
    l2_read: float

    @property
    def fma(self) -> float:
        return max(self.fma_loop, self.fma_blas)


@numba.njit(cache=True, fastmath=_CONTRACTED, error_model="numpy")
def _horner(x: Any, out: Any, passes: int) -> None:
    """A polynomial of degree 16 at every x: 16 dependent multiply-adds, many of them in flight."""
    for _ in range(passes):
        for i in range(x.size):
            p, q = x[i], x[i]
            p = p * q + 0.25
            p = p * q + 0.50
            p = p * q + 0.25
            p = p * q + 0.50
            p = p * q + 0.25
            p = p * q + 0.50
            p = p * q + 0.25
            p = p * q + 0.50
            p = p * q + 0.25
            p = p * q + 0.50
            p = p * q + 0.25
            p = p * q + 0.50
            p = p * q + 0.25
            p = p * q + 0.50
            p = p * q + 0.25
            out[i] = p * q + 0.50


@numba.njit(cache=True, fastmath=_REASSOCIATED, error_model="numpy")
def _read(x: Any, passes: int) -> float:
    """Sums of eight streams through the array, so that additions never wait for each other."""
    m = x.size // 8
    total = 0.0
    for _ in range(passes):
        a = b = c = d = e = f = g = h = 0.0
        for i in range(m):
            a += x[i]
            b += x[i + m]
            c += x[i + 2 * m]
            d += x[i + 3 * m]
            e += x[i + 4 * m]
            f += x[i + 5 * m]
            g += x[i + 6 * m]
            h += x[i + 7 * m]
        total += a + b + c + d + e + f + g + h
        x[0] += 1e-9
    return total


def _best_rate(work: float, call: Callable[[], object], enough_s: float) -> float:
    """Work per second of the fastest call."""
    call()
    best, until = np.inf, time.perf_counter() + enough_s
    while time.perf_counter() < until:
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return work / best / 1e9


def _l2_bytes() -> int:
    """The size of a core's second-level cache; a quarter of a MiB where the system does not say."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]]
    except (OSError, ValueError, KeyError):
        return 256 << 10


def _read_rate(size: int, enough_s: float) -> float:
    x = np.ones(size // 64 * 8)
    passes = max(1, (4 << 20) // x.nbytes)
    return _best_rate(passes * x.nbytes, lambda: _read(x, passes), enough_s)


def measure(enough_s: float) -> Limits:
    """The limits of one core; BLAS must have been told to use one thread."""
    x = np.linspace(0.1, 0.4, 512)
    out = np.empty_like(x)
    passes = 200
    loop = _best_rate(passes * x.size * _DEGREE, lambda: _horner(x, out, passes), enough_s)
    a = np.full((384, 384), 0.5)
    product = np.empty_like(a)
    blas = _best_rate(384.0**3, lambda: np.dot(a, a, out=product), enough_s)
    return Limits(
        loop, blas, _read_rate(_L1_BYTES, enough_s), _read_rate(_l2_bytes() // 2, enough_s)
    )


def one_thread_environment() -> dict[str, str]:
    """Variables that keep every numerical library to one thread."""
    names = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")
    given = {f"{name}_NUM_THREADS": "1" for name in names}
    return {
        **given,
        "NPROC": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_PLATFORMS": "cpu",
        "DSPN_NUM_THREADS": "1",
    }


def measure_apart(enough_s: float) -> Limits:
    """The limits, measured in a process of its own with one thread for the BLAS."""
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.limits", str(enough_s)],
        env={**os.environ, **one_thread_environment()},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return Limits(**json.loads(found.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))))

"""Passes of large chains slice by slice: a matrix product for all sequences, and the rest."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dspn.engine import base
from dspn.engine.gpu import layers
from dspn.engine.gpu.coefficients import exponents_of, vector_of
from dspn.engine.gpu.device import Array, Batch, real_option

if TYPE_CHECKING:
    from dspn.engine.gpu.passes import ChainRun, Upward

# Below the exponent of any number.
LEAST_EXPONENT: Final = -2000
# Loads of a thread in a slice.
_PACKS: Final = 4


def active_lanes(batch: Batch) -> list[int]:
    """How many lanes have a slice at each height."""
    found: list[int] = batch.keep(
        "active", lambda: np.cumsum(np.bincount(batch.lengths)[:0:-1])[::-1].tolist()
    )
    return found


def rise(run: "ChainRun", up: "Upward", under: float) -> None:
    """Slice after slice, each a matrix product for all lanes that have it.

    The product reads the vectors that are kept where they lie side by side.
    """
    xp, count, tables = run.device.xp, len(run.batch), run.tables
    powers = xp.zeros(count, dtype=np.int64)
    least = xp.ones(count, dtype=run.dtype)
    stride = 0 if up.vectors is None else _stride(run)
    now = xp.empty((1 if stride else count, run.width), dtype=run.dtype)
    mixed = xp.empty((count, run.width), dtype=run.dtype)
    if run.device.is_gpu:
        kernel, threads, lanes = _kernel(run, "rise")
    kept = (0, 0) if up.vectors is None else (up.vectors, up.exponents)
    last = (np.int32(run.width), np.int32(run.layout.num_nodes), run.dtype.type(under),
            np.int32(run.narrow), 0 if stride else now, *kept, powers, least)  # fmt: skip
    for height, active in enumerate(active_lanes(run.batch)):
        base.check_time()
        if height and stride:
            _multiply_rows(run, up.vectors, height - 1, height, mixed, turned=True)
        elif height:
            mixed = _multiply(run, now, mixed, height, active, turned=True)
        own = tables.rows if height else tables.bottom_rows
        if run.device.is_gpu:
            along = np.int32(int(run.direction) * height)
            given = (mixed if height else 0, own, run.chunks.slot, run.first, along)
            kernel((-(-active // lanes),), (threads,), (*given, np.int32(active), *last))
            continue
        rows = run.first[:active] + int(run.direction) * height
        found = own[run.chunks.slot[rows]]
        if height:
            found = found * mixed[:active]
        found = found + run.dtype.type(under)
        least[:active] = xp.minimum(least[:active], found.min(axis=1))
        e = exponents_of(found.max(axis=1))
        now[:active] = np.ldexp(found, -e[:, None])
        powers[:active] += e
        if up.vectors is not None:
            up.vectors[rows], up.exponents[rows] = now[:active], e
    if stride:
        now = up.vectors[run.first + int(run.direction) * (stride - 1)]
    up.results[0] = now.astype(np.float64) @ run.form.astype(np.float64)
    up.results[1], up.results[2] = powers, least


def fall(
    run: "ChainRun", up: "Upward", share: Array, posteriors: Array, uses: Array, highest: Array
) -> None:
    """The way down, slice after slice; see `backward` of the kernels."""
    xp, count, table = run.device.xp, len(run.batch), run.tables.rows
    factor = xp.where(share > 0, share / up.root, 0.0).astype(run.dtype)
    derivatives = factor[:, None] * run.form
    stride = _stride(run)
    handed = xp.empty((1 if stride else count, run.width), dtype=run.dtype)
    if run.device.is_gpu:
        kernel, threads, together = _kernel(run, "fall")
    last = (np.int32(run.narrow), up.vectors, up.exponents, share, highest, posteriors, uses,
            0 if stride else handed)  # fmt: skip
    active = active_lanes(run.batch)
    for height in reversed(range(len(active))):
        base.check_time()
        lanes = active[height]
        if run.device.is_gpu:
            along = np.int32(int(run.direction) * height)
            given = (derivatives, table, run.chunks.slot, run.first, along)
            sizes = (np.int32(lanes), np.int32(run.width), np.int32(height == 0))
            kernel((-(-lanes // together),), (threads,), (*given, *sizes, *last))
        else:
            rows = run.first[:lanes] + int(run.direction) * height
            above, counts = derivatives[:lanes], share[:lanes, None] > 0
            posteriors[rows] = np.where(counts, up.vectors[rows] * above, 0.0)
            found = table[run.chunks.slot[rows]] * above if height else 0.0 * above
            uses[rows] = np.where(counts, np.ldexp(found, -up.exponents[rows, None]), 0.0)
            handed[:lanes] = uses[rows]
            largest = above.max(axis=1)
            e = np.where(largest > 0, exponents_of(largest), LEAST_EXPONENT)
            e = np.where(np.isfinite(largest), e, -LEAST_EXPONENT)
            # Of the value before it was divided, to which `under` was added.
            highest[:lanes] = np.maximum(highest[:lanes], e - up.exponents[rows])
        if height and stride:
            _multiply_rows(run, uses, height, height, derivatives, turned=False)
        elif height:
            found = _multiply(run, handed, derivatives, height, lanes, turned=False)
            if len(found) < count:  # the other lanes begin below
                derivatives[:lanes] = found
            else:
                derivatives = found


def tables_of_heights(run: "ChainRun") -> list[int] | None:
    """Which matrix the weights at each height are; None where it is not one for all lanes."""
    if not run.layout.by:
        return [0] * run.batch.longest
    found = _lanes_by_table(run)
    if any(len(own) > 1 for own in found):
        return None
    return [own[0][0] for own in found]


def _lanes_by_table(run: "ChainRun") -> list[list[tuple[int, Array]]]:
    """For each height the matrices that are weights there and their lanes, None for all of them.

    The inputs of a slice choose its own weights, those of the vector of the slice below. The bottom
    has none, and counts as one of the first matrix.
    """

    def make() -> list[list[tuple[int, Array]]]:
        device, found = run.device, [[(0, None)]]
        which, first = device.here(run.which), device.here(run.first)
        for height, lanes in enumerate(active_lanes(run.batch)[1:], 1):
            own = which[first[:lanes] + int(run.direction) * height]
            order = np.argsort(own, kind="stable")
            tables, starts = np.unique(own[order], return_index=True)
            parts = np.split(order, starts[1:])
            found.append(
                [(int(tables[0]), None)]
                if len(tables) == 1
                else [(int(t), device.there(p)) for t, p in zip(tables, parts, strict=True)]
            )
        return found

    key = ("lanes by table", run.layout.by, int(run.direction))
    kept: list[list[tuple[int, Array]]] = run.batch.keep(key, make)
    return kept


def _kernel(run: "ChainRun", name: str) -> tuple[Any, int, int]:
    """A kernel that takes a slice, its threads and sequences of a block."""
    vector = vector_of(run.dtype, run.width)
    packs = run.width // vector
    threads = min(1024, max(32, 1 << (-(-packs // _PACKS) - 1).bit_length()))
    sizes = (f"-DTHREADS={threads}", f"-DVECTOR={vector}", f"-DMOST={-(-packs // threads)}")
    kernel = run.device.kernel("large", name, (real_option(run.dtype), *sizes))
    return kernel, *((128, 4) if threads == 32 else (threads, 1))


def _stride(run: "ChainRun") -> int:
    """Slices from one lane to the next, where products can read lanes so far apart; else 0."""
    if run.products is None or run.layout.layers or tables_of_heights(run) is None:
        return 0
    length = run.batch.longest
    same = bool((run.batch.lengths == length).all())
    return length if same and bool((np.diff(run.batch.offsets) == length).all()) else 0


def _multiply(
    run: "ChainRun", left: Array, out: Array, height: int, rows: int, *, turned: bool
) -> Array:
    """The first rows of left @ matrix of a height, or of its transpose; on tensor cores if narrow.

    Returns the array that has them: `out`, or a new one where the transition has layers.
    """
    if run.layout.layers:
        multiply = layers.rise if turned else layers.fall
        own = (run.device, run.layout.layers, run.matrix, left[:rows], run.narrow)
        return multiply(*own)[0]
    for table, lanes in _lanes_by_table(run)[height] if run.layout.by else [(0, None)]:
        given, count = (left, rows) if lanes is None else (left[lanes], len(lanes))
        found = out if lanes is None else run.device.xp.empty_like(given)
        matrix = run.matrix[table]
        if run.products is not None:
            run.products((turned, False), (run.width, count, run.width), matrix, given, found)
        else:
            multiplied = matrix.T if turned else matrix
            run.device.xp.matmul(given[:count], multiplied, out=found[:count])
        if lanes is not None:
            out[lanes] = found
    return out


def _multiply_rows(
    run: "ChainRun", left: Array, height: int, upper: int, out: Array, *, turned: bool
) -> None:
    """The same for slices at a height, which lie at equal distances, by the weights of `upper`."""
    assert run.products is not None
    table = _lanes_by_table(run)[upper][0][0] if run.layout.by else 0
    stride = run.batch.longest
    first = 0 if run.direction > 0 else stride - 1
    start = int(run.batch.offsets[0]) + first + int(run.direction) * height
    shape = (run.width, len(run.batch), run.width)
    own = (start * run.width, stride * run.width)
    run.products((turned, False), shape, run.matrix[table], left, out, right_at=own)

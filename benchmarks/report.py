"""The results as tables, on the terminal and in Markdown."""

from collections.abc import Callable
from typing import Final

from rich.console import Console

from benchmarks.alone import EmMemory
from benchmarks.compare import OURS, TWO_THREADS, Row
from benchmarks.environments import PEERS
from benchmarks.harness import Measurement
from benchmarks.jobs import TASK_NAMES
from benchmarks.results import Results
from benchmarks.section import DIFFERS, Section

_NOTHING: Final = "-"
# Below this share of processor time a run has waited for something else on the machine.
_BUSY: Final = 0.9


def _number(value: float | None, form: str = "{:.3g}") -> str:
    return _NOTHING if value is None else form.format(value)


def seconds_text(value: float | None) -> str:
    """A time with the unit that suits it."""
    if value is None:
        return _NOTHING
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def row_name(row: Row) -> str:
    """The job in a few words."""
    return f"({row.group}) {TASK_NAMES[row.task]}, k = {row.num_states}; {row.title}"


def _ratio_cell(row: Row, peer: str) -> str:
    ratio = row.ratio(peer)
    if ratio is None:
        found = row.measurements.get(peer)
        return _NOTHING if found is None or found.error is None else "failed"
    return f"{ratio:.1f}x"


def _threads_cell(row: Row) -> str:
    speedup = row.speedup
    return _NOTHING if speedup is None else f"{speedup:.2f}x"


def _share(row: Row, results: Results) -> str:
    share = row.share_of_peak(results.limits.fma)
    return _NOTHING if share is None else f"{100 * share:.0f} %"


def _compared(results: Results) -> list[Row]:
    return [row for row in results.rows if row.edges is None]


def _comparison(results: Results) -> Section:
    rows = [
        (
            row_name(row),
            seconds_text(row.ours_s),
            _number(row.ns_per_slice),
            _share(row, results),
            *(_ratio_cell(row, peer) for peer in PEERS),
            _threads_cell(row),
        )
        for row in _compared(results)
    ]
    return Section(
        "Time of the peers over ours",
        "One thread each, minimum of the repeats. Ours also in ns for each slice of each sequence, "
        "as the share that useful multiply-adds make up of the measured peak rate, and as the gain "
        "of two threads.",
        ("job", "ours", "ns/slice", "of peak", *PEERS, "two threads"),
        rows,
    )


def _times(results: Results) -> Section:
    labels = (OURS, TWO_THREADS, *PEERS)
    rows = []
    for row in _compared(results):
        cells = []
        for label in labels:
            found = row.measurements.get(label)
            cells.append(seconds_text(None if found is None else found.best_s))
        rows.append((row_name(row), *cells, f"{row.distinct_slices:,}"))
    return Section(
        "Times",
        "Minimum of the repeats, with the number of distinct slices among all.",
        ("job", *labels, "distinct slices"),
        rows,
    )


def _memory(results: Results) -> Section:
    def cell(row: Row, label: str) -> str:
        found = row.measurements.get(label)
        if found is None or found.peak_mib is None or found.working_mib is None:
            return _NOTHING
        return f"{found.peak_mib:.0f} / {found.working_mib:.0f}"

    labels = (OURS, *PEERS)
    rows = [(row_name(row), *(cell(row, label) for label in labels)) for row in _compared(results)]
    return Section(
        "Peak memory (MiB)",
        "Over the memory of the process with library and data loaded (this counts kernels that "
        "were loaded or compiled since), then over that just before the run.",
        ("job", *labels),
        rows,
    )


def _agreement(results: Results) -> Section:
    def cell(row: Row, label: str) -> str:
        found = row.measurements.get(label)
        if found is None or found.difference is None:
            return _NOTHING
        return f"{found.difference:.0e}" + ("" if found.agrees else f" {DIFFERS}")

    labels = (OURS, TWO_THREADS, *PEERS)
    rows = [(row_name(row), *(cell(row, label) for label in labels)) for row in _compared(results)]
    return Section(
        "Agreement",
        "Greatest relative difference from the first result of the row: log-likelihood, "
        "log-probability of each best path, or parameters after the step (below 0.001 the absolute "
        "difference / 0.001). At most 1e-6 agrees.",
        ("job", *labels),
        rows,
    )


def _first_calls(results: Results) -> Section:
    labels = (OURS, *PEERS)
    rows = []
    for row in _compared(results):
        cells = []
        for label in labels:
            found = row.measurements.get(label)
            cells.append(seconds_text(None if found is None else found.first_s))
        rows.append((row_name(row), *cells))
    return Section(
        "First calls",
        "The first call of a process, compilation included; not part of any time above. dynamax "
        "compiles once for every length of sequence.",
        ("job", *labels),
        rows,
    )


def _irregular(results: Results) -> Section:
    rows = []
    for row in results.rows:
        if row.edges is None or row.ours_s is None:
            continue
        rate = row.edges * row.total_slices / row.ours_s
        two = None if row.speedup is None else rate * row.speedup
        rows.append(
            (
                f"{TASK_NAMES[row.task]}; {row.title}",
                f"{row.edges:,}",
                seconds_text(row.ours_s),
                f"{rate / 1e9:.2f}e9",
                _NOTHING if two is None else f"{two / 1e9:.2f}e9",
                _number(row.ns_per_slice),
                _threads_cell(row),
            )
        )
    return Section(
        "Irregular templates",
        "Edges times slices times sequences in a second, with one thread and with two.",
        ("job", "edges", "ours", "edges/s", "edges/s, two", "ns/slice", "two threads"),
        rows,
    )


def _streams(results: Results) -> Section:
    rows = [
        (
            f"k = {s.num_states}, {s.updates:,} updates",
            *map(_number, (s.least_us, s.median_us, s.p99_us)),
        )
        for s in results.streams
    ]
    return Section(
        "One stream",
        "Microseconds for one `filter.update`, 13 binary variables.",
        ("stream", "least", "median", "99 %"),
        rows,
    )


def _growth(results: Results) -> Section:
    rows = []
    for g in results.growth:
        intercept, slope = g.line
        steps = [b / a for a, b in zip(g.seconds[:-1], g.seconds[1:], strict=True)]
        rows.append(
            (
                f"{TASK_NAMES[g.task]} against {g.size}; {g.setting}",
                f"{g.sizes[0]:,} to {g.sizes[-1]:,}",
                f"{seconds_text(g.seconds[0])} to {seconds_text(g.seconds[-1])}",
                seconds_text(slope),
                f"{intercept * 1e3:.2g} ms",
                f"{g.r_squared:.5f}",
                ", ".join(f"{step:.2f}" for step in steps),
            )
        )
    return Section(
        "Growth of the cost",
        "Sizes doubled five times; the straight line through the times, and the factor of each "
        "doubling.",
        ("job", "sizes", "times", "each costs", "at zero", "R²", "factors"),
        rows,
    )


def _starts(results: Results) -> Section:
    rows = [
        (
            f"new process, {start.cache} kernel cache",
            seconds_text(start.best_s),
        )
        for start in results.starts
    ]
    memory = results.em_memory
    if isinstance(memory, EmMemory):
        name = (
            f"peak memory of an EM iteration over process and data; {memory.setting}; data "
            f"{memory.data_mib:.0f} MiB; {memory.kernels_mib:.0f} MiB of it are loaded kernels"
        )
        rows.append((name, f"{memory.peak_mib:.0f} MiB"))
    elif memory is not None:
        rows.append(("peak memory of an EM iteration", memory))
    return Section(
        "Start and memory",
        "From the start of the interpreter to the log-likelihoods of a small batch.",
        ("what", "measured"),
        rows,
    )


def _limits(results: Results) -> Section:
    limits = results.limits
    rows = [
        ("multiply-adds, vector loop", f"{limits.fma_loop:.1f}e9/s"),
        ("multiply-adds, matrix product of the BLAS", f"{limits.fma_blas:.1f}e9/s"),
        ("reading from 16 KiB (L1)", f"{limits.l1_read:.0f} GB/s"),
        ("reading from half the second-level cache (L2)", f"{limits.l2_read:.0f} GB/s"),
    ]
    note = "One core, double precision; the greater rate of multiply-adds is the peak above."
    return Section("Limits of the machine", note, ("limit", "measured"), rows)


def _problems(results: Results) -> list[str]:
    found = [f"{e.name}: not measured, {e.problem}" for e in results.environments if e.problem]
    for row in results.rows:
        for label, m in row.measurements.items():
            if m.error is not None:
                found.append(f"{row_name(row)}: {label} failed: {m.error}")
            elif m.agrees is False:
                found.append(f"{row_name(row)}: {label} differs by {m.difference:.1e}")
    busy = [m for row in results.rows for m in row.measurements.values() if _was_busy(m)]
    if busy:
        found.append(
            f"{len(busy)} of the fastest runs had less than {_BUSY:.0%} of a processor: the "
            "machine was busy with other work, measure again when it is quiet"
        )
    if results.quick:
        found.append("a quick run: smaller data, few repeats")
    return found


def _was_busy(measurement: Measurement) -> bool:
    seconds, processor = measurement.seconds, measurement.processor
    if not seconds:
        return False
    best = min(range(len(seconds)), key=seconds.__getitem__)
    return bool(processor[best] < _BUSY * seconds[best] and seconds[best] > 1e-3)


def sections(results: Results) -> list[Section]:
    """Every table that has rows."""
    makers: list[Callable[[Results], Section]] = [
        _comparison,
        _times,
        _memory,
        _agreement,
        _first_calls,
        _irregular,
        _streams,
        _growth,
        _starts,
        _limits,
    ]
    return [section for section in (make(results) for make in makers) if section.rows]


def show(results: Results, console: Console) -> None:
    """The tables on the terminal."""
    for section in sections(results):
        console.print(section.to_rich())
    for problem in _problems(results):
        console.print(f"! {problem}", style="yellow", markup=False)


def to_markdown(results: Results, plot: str | None) -> str:
    """The report as a page."""
    where = ", ".join(f"{key} {value}" for key, value in results.machine.items())
    peers = ", ".join(f"{e.name} {e.version}" for e in results.environments if e.version)
    parts = [
        "# Benchmark results\n",
        f"{results.begun}; {where}. Peers: {peers or 'none'}.\n",
        *([f"![Time of the peers over ours]({plot})\n"] if plot else []),
        *(section.to_markdown() for section in sections(results)),
    ]
    problems = _problems(results)
    if problems:
        parts.append("## To be noted\n\n" + "\n".join(f"- {one}" for one in problems) + "\n")
    return "\n".join(parts)

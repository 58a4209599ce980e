r"""Time and memory against the size of the data: ``make bench-scaling``.

Every point is a process of its own: it warms up on a thousand rows, so that compiling does not count, makes or opens
its rows, and fits. **Memory** is the largest resident set during the fit, which the kernel counts; it includes Python,
its libraries and, where the rows are in memory, the rows. Streamed rows are a Parquet file of a million rows that is
read over and over, as a list of files.

The **exponent** is the slope of a straight line through (log size, log seconds), over the larger sizes only, where the
fixed cost of a fit no longer counts; 1 is linear, and the goal. Tables are printed and written into
``docs/peers.md`` with a picture beside it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PART = 1_000_000  # rows of the file that is read over and over
JOBS = {"default": "`PrivateRidge`", "descent": "`clipped_gd`, 10 steps"}
IN_MEMORY = (10**3, 10**4, 10**5, 10**6, 10**7)
STREAMED = (10**6, 10**7, 10**8)
WIDTHS = (5, 10, 20, 50, 100, 200, 500, 1000)
NARROW, ROWS = 5, 20_000  # columns of the tables over n, rows of the table over d
EPSILON = 12.0  # with less, the default would not look for a thousand slopes in so few rows
# Exponents are fitted from here on.
LARGE_N, LARGE_D = 10**5, 50


@dataclass(frozen=True)
class Point:
    """A fit to be measured."""

    job: str
    n: int
    d: int
    streamed: bool


# ------------------------------------------------------------------------------------------------------ in a process


def rows(n: int, d: int) -> tuple[Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + rng.standard_t(3.0, n)


def write(path: Path, n: int, d: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y = rows(n, d)
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(d)} | {"cost": y}), path)


def fit(job: str, X: Any, y: Any) -> None:
    import tailguard as tg

    if job == "default":
        tg.PrivateRidge(EPSILON).fit(X, y)
    else:
        tg.algorithms.clipped_gd(tg.losses.Squared(), X, y, epsilon=EPSILON, clip=10.0, steps=10)


def forget_the_peak() -> None:
    """Begin the count of the largest resident set anew, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        print("the peak includes what came before the fit", file=sys.stderr)


def memory(name: str) -> float:
    """A line of the kernel's account of this process, in MiB; elsewhere than on Linux the peak."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(point: Point, path: str) -> None:
    import tailguard as tg

    fit(point.job, *rows(1000, point.d))
    if point.streamed:
        with tempfile.TemporaryDirectory() as folder:
            few = Path(folder) / "few.parquet"
            write(few, 10_000, point.d)
            fit(point.job, tg.Source([str(few)] * 2, memory=0), "cost")
        X, y = tg.Source([path] * (point.n // PART), memory=0), "cost"
    else:
        X, y = rows(point.n, point.d)
        fit(point.job, X[: min(point.n, 10_000)], y[: min(point.n, 10_000)])
    before = memory("VmRSS")
    forget_the_peak()
    times, began = [], time.perf_counter()
    # Small fits are repeated for a second, large ones measured once.
    while not times or (time.perf_counter() - began < 1.0 and len(times) < 21):
        start = time.perf_counter()
        fit(point.job, X, y)
        times.append(time.perf_counter() - start)
    seconds = sorted(times)[len(times) // 2]
    print(json.dumps({"seconds": seconds, "peak": memory("VmHWM"), "before": before}))


# -------------------------------------------------------------------------------------------------------- the report


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of the least-squares line through the logarithms."""
    import numpy as np

    if len(sizes) < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def measure(points: Sequence[Point], folder: Path) -> dict[Point, dict[str, float]]:
    found = {}
    path = folder / "rows.parquet"
    for point in points:
        if point.streamed and not path.exists():
            write(path, PART, NARROW)
        where = [point.job, str(point.n), str(point.d), str(int(point.streamed)), str(path)]
        done = subprocess.run([sys.executable, __file__, "--child", *where], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{point} failed:\n{done.stderr}")
        found[point] = json.loads(done.stdout)
        print(f"{point}: {found[point]['seconds']:.3g} s, {found[point]['peak']:.0f} MiB", flush=True)
    return found


def number(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def table(found: dict[Point, dict[str, float]], size: Callable[[Point], int], large: int, title: str) -> list[str]:
    """One row a size; one pair of columns a job and place of the rows, and its exponent."""
    groups: dict[tuple[str, bool], dict[int, dict[str, float]]] = {}
    for point, result in found.items():
        groups.setdefault((point.job, point.streamed), {})[size(point)] = result
    names = [JOBS[job] + (", streamed" if streamed else "") for job, streamed in groups]
    lines = [f"**{title}**", "", "| | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for value in sorted({size(point) for point in found}):
        cells = []
        for group in groups.values():
            result = group.get(value)
            text = "" if result is None else f"{number(result['seconds'])} s, {result['peak']:.0f} MiB"
            cells.append(text)
        lines.append(f"| {value:,} | " + " | ".join(cells) + " |")
    slopes = []
    for group in groups.values():
        chosen = [value for value in sorted(group) if value >= large]
        slopes.append(f"{exponent(chosen, [group[value]['seconds'] for value in chosen]):.2f}")
    return [*lines, f"| exponent from {large:,} on | " + " | ".join(slopes) + " |", ""]


def picture(over_n: dict[Point, dict[str, float]], over_d: dict[Point, dict[str, float]], path: Path) -> None:
    import figures

    panels = []
    sides: tuple[tuple[Any, Callable[[Point], int], str, str], ...] = (
        (over_n, lambda p: p.n, "rows", f"{NARROW} columns"),
        (over_d, lambda p: p.d, "columns", f"{ROWS:,} rows"),
    )
    for what, unit in (("seconds", "seconds of a fit"), ("peak", "peak memory, MiB")):
        for found, size, label, title in sides:
            curves = {}
            for job, name in JOBS.items():
                for streamed in (False, True):
                    points = sorted((p for p in found if p.job == job and p.streamed == streamed), key=size)
                    if points:
                        name_of = name.replace("`", "") + (", streamed" if streamed else "")
                        curves[name_of] = figures.Curve([size(p) for p in points], [found[p][what] for p in points])
            limits = (100.0, 4000.0) if what == "peak" else None
            panels.append(figures.Panel(title, label, unit, curves, limits))
    figures.draw(panels, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=1e8, help="rows of the longest stream")
    parser.add_argument("--widest", type=int, default=max(WIDTHS), help="columns of the widest table")
    parser.add_argument("--only", choices=list(JOBS), action="append")
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parent.parent / "docs")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        job, n, d, streamed, path = given.child
        child(Point(job, int(n), int(d), streamed == "1"), path)
        return

    import machine
    import page

    where = machine.description("numpy", "numba", "pyarrow")
    jobs = given.only or list(JOBS)
    sizes = [(n, False) for n in IN_MEMORY] + [(n, True) for n in STREAMED]
    by_n = [Point(job, n, NARROW, streamed) for job in jobs for n, streamed in sizes if n <= given.largest]
    by_d = [Point(job, ROWS, d, False) for job in jobs for d in WIDTHS if d <= given.widest]
    with tempfile.TemporaryDirectory() as folder:
        over_n, over_d = measure(by_n, Path(folder)), measure(by_d, Path(folder))
    lines = [f"On {where}.", ""]
    lines += table(over_n, lambda p: p.n, LARGE_N, f"rows, {NARROW} columns: seconds of a fit and peak memory")
    lines += table(over_d, lambda p: p.d, LARGE_D, f"columns, {ROWS:,} rows: seconds of a fit and peak memory")
    print("\n".join(lines))
    page.put(given.folder / "peers.md", "scaling", "\n".join(lines))
    picture(over_n, over_d, given.folder / "scaling.svg")


if __name__ == "__main__":
    main()

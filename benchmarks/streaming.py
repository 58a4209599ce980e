"""Fits larger than memory: ``make bench-streaming``.

Writes one Parquet file to a temporary folder and reads it over and over, as a list of files, until the rows are worth
``--gigabytes``. Every line is a process of its own, so that its peak memory is its own; speeds are of decoded rows,
eight bytes a value, and "of reading" is the speed over that of reading alone, the faster of Arrow's own scanner and of
this library's reader, which throw the rows away, in the same run. "CPU" counts all cores and does not depend on what
else the machine does. The file is in the system's cache after the first pass, so this is what decoding and computing
cost; a disk that is slower than that makes reading slower and the ratio better.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS, COLUMNS = 2**21, 10
LIMIT = 1024  # MiB


def write(path: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.lognormal(size=ROWS) for j in range(COLUMNS)}
    columns["cost"] = columns["x0"] + rng.standard_t(2.5, ROWS)
    pq.write_table(pa.table(columns), path)


def scanner(paths: list[str]) -> int:
    """Arrow alone."""
    import pyarrow.dataset as ds

    for _ in ds.dataset(paths).to_batches():
        pass
    return 1


def reader(paths: list[str]) -> int:
    """Arrow and this library's reader thread."""
    rows = engine(paths)
    for _ in rows._parts():
        pass
    return 1


def clipped(paths: list[str]) -> int:
    return gradient(paths, "L2Clip")


def smoothed(paths: list[str]) -> int:
    return gradient(paths, "Smoothed")


def gradient(paths: list[str], name: str) -> int:
    """One step of DP-GD, or of Algorithm 4."""
    import numpy as np

    import tailguard as tg
    from tailguard.engines.vectors import Gradients
    from tailguard.truncation import Grid, L2Clip, Smoothed

    rows = engine(paths)
    truncation = L2Clip(20.0) if name == "L2Clip" else Smoothed(20.0, float(np.log(100.0)))
    vectors = Gradients(tg.losses.Squared(), np.full((1, COLUMNS + 1), 0.1), True)
    rows.truncated_sum(vectors, Grid.of(truncation, rows.n))
    return 1


def default(paths: list[str]) -> int:
    """A whole fit that is told nothing but epsilon; returns the number of passes."""
    import tailguard as tg
    from tailguard.engines.streamed import Streamed

    rows, passes = engine(paths), []
    plain = Streamed._parts

    def counted(self):
        passes.append(1)
        return plain(self)

    Streamed._parts = counted
    tg.PrivateRidge(epsilon=1.0).fit(rows)
    return len(passes)


def engine(paths: list[str]):
    import tailguard as tg
    from tailguard.engines import engine_for

    return engine_for(tg.Source(paths, memory=0), "cost")


JOBS = {
    "scanner": "reading alone, Arrow",
    "reader": "reading alone, this library",
    "clipped": "one step, L2 clipping",
    "smoothed": "one step, Algorithm 4",
    "default": "default fit, per pass",
}


def child(job: str, path: str, repeats: int) -> None:
    """Warm up on one file, so that compiling is not timed, then run."""
    run = globals()[job]
    run([path])
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    passes = run([path] * repeats)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "passes": passes, "cpu": cpu, "peak": after.ru_maxrss / 2**10}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=50.0, help="decoded rows of the single passes")
    parser.add_argument("--fit-gigabytes", type=float, default=1.0, help="decoded rows of the default fit")
    parser.add_argument("--only", choices=list(JOBS), action="append")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        job, path, repeats = arguments.child
        child(job, path, int(repeats))
        return

    from rich.console import Console
    from rich.table import Table

    file_bytes = ROWS * (COLUMNS + 1) * 8
    table = Table(title=f"{COLUMNS} columns and a target, float64, {os.cpu_count()} cores")
    for column in ("what", "GB of rows", "passes", "GB/s", "of reading", "CPU s/GB", "peak MiB"):
        table.add_column(column, justify="left" if column == "what" else "right")
    results, rows = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path)
        for job in JOBS:
            if arguments.only and job not in {*arguments.only, "reader"}:
                continue
            wanted = arguments.fit_gigabytes if job == "default" else arguments.gigabytes
            repeats = max(1, round(wanted * 1e9 / file_bytes))
            command = [sys.executable, __file__, "--child", job, str(path), str(repeats)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            results[job], rows[job] = json.loads(done.stdout), repeats * file_bytes / 1e9
    speeds = {job: rows[job] * found["passes"] / found["seconds"] for job, found in results.items()}
    alone = max(speeds[job] for job in ("scanner", "reader") if job in speeds)
    for job, found in results.items():
        table.add_row(
            JOBS[job],
            f"{rows[job]:.3g}",
            str(found["passes"]),
            f"{speeds[job]:.2f}",
            f"{speeds[job] / alone:.0%}",
            f"{found['cpu'] / (rows[job] * found['passes']):.2f}",
            f"{found['peak']:.0f}" + ("" if found["peak"] <= LIMIT else " (over)"),
        )
    Console().print(table)


if __name__ == "__main__":
    main()

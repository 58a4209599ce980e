r"""How accurate the default is, against its targets, non-private fits and peers: ``python benchmarks/accuracy.py``.

Sections, each runnable alone with ``--only``: ``clean``, ``oracle``, ``random``, ``small``, ``tables``, ``logistic``,
``rare``, ``counts``, ``mean``, ``safety``, ``equivariance``, ``collinear``, ``time``. Figures are medians and 90 %
quantiles over seeds 5000 and up, on which next to no choice in the package was made (``docs/benchmarks.md`` names those
that were). Fits are seeded so that a run can be repeated; the noise has the same distribution without a seed. delta is
the default, ``min(1e-6, n**-1.5)``. Tables are printed and written as Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sections import SECTIONS
from sections.run import Run
from threadpoolctl import threadpool_limits


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"sections, separated by commas: {', '.join(SECTIONS)}")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", type=int, default=1000, help="random tables of the safety section")
    parser.add_argument("--worst", type=int, default=20, help="seeds for the worst case of the tables section")
    parser.add_argument("--workers", type=int, default=1, help="processes of sections with many cells")
    parser.add_argument("--quick", action="store_true", help="at most two seeds and few rows: does it run?")
    parser.add_argument("--data", default=os.environ.get("TAILGUARD_DATA"), help="folder with the real tables")
    parser.add_argument("--output", type=Path, default=Path("build/accuracy.md"), help="Markdown file")
    given = parser.parse_args(arguments)
    chosen = given.only.split(",") if given.only else list(SECTIONS)
    for name in chosen:
        if name not in SECTIONS:
            parser.error(f"--only {name}: choose from {', '.join(SECTIONS)}")
    run = Run(given.seeds, tables=given.tables, worst=given.worst, data=given.data, workers=given.workers)
    if given.quick:
        run.seeds, run.rows, run.tables, run.worst, run.quick = min(run.seeds, 2), 4000, 10, 2, True
    warnings.filterwarnings("ignore", module="sklearn")
    warnings.filterwarnings("ignore", message=".*are too few for .* columns")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        start = time.perf_counter()
        run.lines += [f"### {name}", "", str(SECTIONS[name].__doc__), ""]
        with np.errstate(all="ignore"), threadpool_limits(None if name == "time" else 1):
            SECTIONS[name](run)
        run.console.print(f"[dim]{name}: {time.perf_counter() - start:.0f} s[/dim]\n")
        given.output.write_text("\n".join(run.lines), encoding="utf-8")


if __name__ == "__main__":
    main()

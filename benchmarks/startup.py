"""What a user waits for before anything is computed: part of ``make bench``.

Every figure is from processes that do nothing else; medians, and the least, which other work disturbs less. Wall-clock
seconds. "beyond scikit-learn" is after ``import sklearn.linear_model``, which the estimators need. Byte code is kept,
as Python does unless it is told not to, and as it is in a package that pip installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median

CLOCK = "import json, time\nclock = time.perf_counter\n"

IMPORT = (
    CLOCK
    + """
import sklearn.linear_model
start = clock()
import tailguard
tailguard.PrivateRidge
print(json.dumps([clock() - start]))
"""
)

# The first fit of a process, and later ones; what the rows are does not matter, nor does the noise.
FITS = (
    CLOCK
    + """
import sys
import numpy as np
import tailguard as tg
X = np.random.default_rng(0).standard_normal((1000, 5))
noise = np.random.default_rng(1).standard_t(3, 1000)
model = {
    "PrivateRidge": lambda: tg.PrivateRidge(1.0).fit(X, X[:, 0] + noise),
    "PrivateHuberRegressor": lambda: tg.PrivateHuberRegressor(1.0).fit(X, X[:, 0] + noise),
    "PrivateLogisticRegression": lambda: tg.PrivateLogisticRegression(1.0, classes=[-1, 1]).fit(X, np.sign(X[:, 0])),
    "PrivatePoissonRegressor": lambda: tg.PrivatePoissonRegressor(1.0).fit(X, np.rint(np.exp(X[:, 0]))),
}[sys.argv[1]]
tg.PrivateRidge
times = []
for _ in range(int(sys.argv[2])):
    start = clock()
    model()
    times.append(clock() - start)
print(json.dumps(times))
"""
)

PLAN = (
    CLOCK
    + """
import sys
import tailguard as tg
from tailguard.privacy import poisson_noise_multiplier
tg.PrivateRidge
rate, steps, epsilon = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
times = []
for _ in range(2):
    start = clock()
    poisson_noise_multiplier(tg.Budget(epsilon, 1e-6), rate, steps)
    times.append(clock() - start)
print(json.dumps(times))
"""
)
PLANS = (
    *((0.05, 200, 1.0), (0.01, 1000, 1.0), (0.01, 1000, 0.1), (0.001, 10_000, 1.0), (0.0001, 100_000, 1.0)),
    *((0.0001, 10_000, 0.1), (0.0001, 1_000_000, 1.0), (0.01, 1_000_000, 0.1), (0.1, 1_000_000, 8.0)),
)
ESTIMATORS = ("PrivateRidge", "PrivateHuberRegressor", "PrivateLogisticRegression", "PrivatePoissonRegressor")


def run(code: str, *arguments: object, cache: str | None = None) -> tuple[list[float], str]:
    """Seconds that a program prints, and what it says on standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {} if cache is None else {"NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout), done.stderr.strip()


def measure(repeats: int) -> list[tuple[str, list[float], float | None, str]]:
    """What, seconds, how many are allowed, a remark."""
    found: list[tuple[str, list[float], float | None, str]] = []
    run(IMPORT)
    seconds = [run(IMPORT)[0][0] for _ in range(repeats)]
    found.append(("import tailguard, beyond scikit-learn's own", seconds, 0.5, ""))
    for name in ESTIMATORS:
        with tempfile.TemporaryDirectory() as cache:
            times, said = run(FITS, name, 1, cache=cache)
            found.append((f"first {name}, nothing compiled yet", times, 15.0, f"says: {said}" if said else "silent"))
            again = [run(FITS, name, 1, cache=cache)[0][0] for _ in range(3)]
            found.append((f"first {name} of a process, kernels on disk", again, None, ""))
            # A fit that releases something unusual may need one more kernel, once.
            found.append((f"{name}, 1,000 x 5, warm", run(FITS, name, 51, cache=cache)[0][1:], 0.03, ""))
    for rate, steps, epsilon in PLANS:
        what = f"calibration, {steps:,} batches of {rate:.2%}, ε = {epsilon:g}"
        both = [run(PLAN, rate, steps, epsilon)[0] for _ in range(max(1, repeats // 2))]
        found.append((what, [times[0] for times in both], 1.0, ""))
        found.append((what + ", again", [times[1] for times in both], 0.01, ""))
    return found


def number(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9, help="processes of the quick figures")
    given = parser.parse_args()

    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"start-up, {os.cpu_count()} cores")
    for column in ("what", "median", "least", "at most", "met", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for what, seconds, limit, remark in measure(given.repeats):
        met = "" if limit is None else "yes" if median(seconds) <= limit else "**no**"
        shown = "" if limit is None else number(limit)
        table.add_row(what, number(median(seconds)), number(min(seconds)), shown, met, remark)
    Console(width=170).print(table)


if __name__ == "__main__":
    main()

"""The full audit: everything that is shipped against its claim, and every planted defect. ``make audit`` runs it.

Writes docs/audit.md, docs/audit.json and docs/audit.svg, and fails if a mechanism is refuted or a defect is missed.
The noise comes from a seed, so that a run can be repeated; one line takes it from the operating system.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # the worker processes inherit it

from defects import DEFECTS, with_noise  # noqa: E402
from tailguard.auditing import CASES, AuditResult, Runner, audit, audit_one_run, draw  # noqa: E402

CANARIES = 2000
# One run sees little: the claim is one that users make, and the defect a gross one.
ONE_RUN = (1.0, 1e-6)
ONE_RUN_SUBJECTS = ("gaussian-l2-add-remove", "clipped_gd")


PAGE = """# Audits

Written by `make audit`; do not edit. An audit tries to refute a claim of (ε, δ)-differential privacy: it runs a
mechanism many times on two tables that differ in one row and bounds ε from below by how well the outputs tell them
apart. It can refute a claim, never establish one; the proofs are in [guarantees.md](guarantees.md).

**{below} of {good} shipped subjects stay below their claim; {caught} of {bad} planted defects are caught**, each at
99 % confidence, with the auditor's seed {seed}.

![Claimed against observed](audit.svg)

## What is shipped

The bound comes closest to its claim for {closest}.

{shipped}

## Planted defects

Real parts of the package with one mistake each (`tests/defects.py`), audited by the same tool.

{defects}

## How to read it

- *Neighbours* is the pair that a first look with a fifth as many runs chose among all: far outlier, opposite outliers,
  infinite, not a number, duplicate, label flip, sparse canary, and pairs made for the subject.
- Half of the runs choose an event, the other half count it. With exact binomial bounds p on the one table (from below)
  and q on the other (from above), ε is at least log((p - δ)/q). A bound of 0 says nothing.
- δ is 0.05 because there is something to see there: no event rarer than about ten times in all runs can be used, so at
  δ = 10⁻⁶ even half the noise would pass. What is shipped is built for whatever claim is asked, by the same code.
- Mechanisms run 100,000 times on each table; whole algorithms and the estimators with `method="auto"`, which are
  compositions of them and cost more, fewer times, as the table says.
- *One run* is the audit of Steinke, Nasr and Jagielski (2023) with {canaries:,} canaries: much weaker, for what can be
  fitted only once.
- The trimmed mean and the centre hide behind a scale that is far larger than what one row changes, and compositions of
  many queries show little of each: bounds near 0 are expected there, and say little.

## Audit your own

```sh
tailguard audit --list                              # what is shipped, by name
tailguard audit PrivateRidge --runs 2000
tailguard audit mine.py:make --epsilon 1 --delta 0.05 --kind regression
tailguard audit mine.py:make --epsilon 1 --delta 0.05 --pair with.csv without.csv --target y
tailguard audit gaussian-l2 --epsilon 1 --delta 1e-6 --canaries 2000
```

`make` may take `epsilon` and `delta` and returns an estimator with `fit`, or a function of `(X, rng)` or `(X, y, rng)`
with a NumPy generator. The command prints the bound, writes `audit.json` and a plot, and exits with 3 if the claim is
refuted. In Python:

```python
import tailguard as tg

result = tg.audit(tg.PrivateRidge(1.0, 0.05, allow_large_delta=True), 1.0, 0.05, runs=2000)
print(result)
result.plot("audit.png")
```
"""


def shipped(runner: Runner, scale: float, seed: int, only: str) -> list[AuditResult]:
    results = []
    for case in CASES.values():
        results += run(case, runner, scale, seed, only)
    system = replace(CASES["gaussian-l2"], name="gaussian-l2, noise of the system")
    results += run(system, runner, scale, None, only)
    for name in ONE_RUN_SUBJECTS:
        if only in name:
            result = audit_one_run(name, *ONE_RUN, canaries=CANARIES, seed=seed)
            results.append(told(replace(result, subject=f"{name}, one run")))
    return results


def planted(runner: Runner, scale: float, seed: int, only: str) -> list[AuditResult]:
    results = []
    for defect in DEFECTS.values():
        results += run(defect, runner, scale, seed, only)
    loud = with_noise(ONE_RUN_SUBJECTS[0], 0.15)
    if only in loud.name:
        result = audit_one_run(loud, *ONE_RUN, canaries=CANARIES, seed=seed)
        results.append(told(replace(result, subject="noise x 0.15, one run")))
    return results


def run(case, runner: Runner, scale: float, seed: int | None, only: str) -> list[AuditResult]:
    if only not in case.name:
        return []
    start = time.perf_counter()
    result = audit(case, runs=max(200, int(scale * case.runs)), seed=seed, workers=runner)
    return [told(result, time.perf_counter() - start)]


def told(result: AuditResult, seconds: float = 0.0) -> AuditResult:
    verdict = "refuted" if result.refuted else "-"
    print(
        f"{result.subject:40} claim {result.epsilon:g}, {result.delta:<7g} at least {result.lower:6.3f} {verdict:8} "
        f"{result.runs:>7} runs {seconds:6.1f} s  {result.pair}",
        flush=True,
    )
    return result


def table(results: list[AuditResult], verdicts: tuple[str, str]) -> list[str]:
    lines = [
        "| subject | claimed ε | δ | ε is at least | | runs per table | neighbours | event: on one, on the other |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        seen = f"{r.hits} of {r.trials} guesses" if r.method == "one run" else f"{r.hits}, {r.others} of {r.trials}"
        lines.append(
            f"| {r.subject} | {r.epsilon:g} | {r.delta:g} | **{r.lower:.2f}** | {verdicts[r.refuted]} "
            f"| {r.runs:,} | {r.pair} | {seen} |"
        )
    return lines


def write(data: dict, folder: Path) -> tuple[list[AuditResult], list[AuditResult]]:
    """Write the page, the data and the picture."""
    good, bad = ([AuditResult.from_dict(result) for result in data[key]] for key in ("shipped", "defects"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (folder / "audit.md").write_text(page(good, bad, data["seed"]), encoding="utf-8")
    draw([*good, *bad], folder / "audit.svg", "Claimed against observed: what is shipped, then planted defects")
    return good, bad


def page(good: list[AuditResult], bad: list[AuditResult], seed: int) -> str:
    two_tables = [r for r in good if r.method == "two tables"]
    closest = max(two_tables, key=lambda r: r.lower / max(r.epsilon, 1e-9), default=None)
    slack = f"`{closest.subject}`, {closest.lower:.2f} of {closest.epsilon:g}" if closest else "none"
    return PAGE.format(
        below=sum(not r.refuted for r in good),
        good=len(good),
        caught=sum(r.refuted for r in bad),
        bad=len(bad),
        seed=seed,
        closest=slack,
        shipped="\n".join(table(good, ("below", "**REFUTED**"))),
        defects="\n".join(table(bad, ("**MISSED**", "caught"))),
        canaries=CANARIES,
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the runs")
    parser.add_argument("--only", default="", help="subjects whose name contains this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--output", type=Path, default=ROOT / "docs")
    parser.add_argument("--again", action="store_true", help="write page and picture again from audit.json")
    options = parser.parse_args(arguments)
    if options.again:
        data = json.loads((options.output / "audit.json").read_text(encoding="utf-8"))
    else:
        with Runner(options.workers) as runner:
            parts = {
                "shipped": shipped(runner, options.scale, options.seed, options.only),
                "defects": planted(runner, options.scale, options.seed, options.only),
            }
        data = {"seed": options.seed}
        data |= {key: [result.to_dict() for result in results] for key, results in parts.items()}
    good, bad = write(data, options.output)
    wrong = [r.subject for r in good if r.refuted] + [r.subject for r in bad if not r.refuted]
    print("as it must be" if not wrong else f"WRONG: {', '.join(wrong)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

r"""The audit in one run (Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023).

m canaries, each in the table or not by a fair coin of its own; one run; then a guess about some of the coins, the rest
left open. If changing one canary is protected by (epsilon, delta)-differential privacy, the number W of right guesses
among r is hardly larger than a binomial (Theorem 5.2):

    P(W >= v) <= P(B >= v) + 2 m delta max_i P(v > B >= v - i)/i,    B ~ Binomial(r, e^epsilon/(1 + e^epsilon)),

so a v that is improbable for an epsilon refutes it. It is far weaker than two tables with many runs, and costs one run:
the way to audit what takes a night to fit.

Canary i is 1e9 in column i (and in the target) and 0 elsewhere, or a row of zeros, which leaves a trace in no
sum; its score is the i-th output. The r/2 highest scores are guessed "in", the r/2 lowest "out". Several r are tried,
at a confidence that pays for all of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from tailguard._checks import count, probability, within
from tailguard.auditing.neighbours import FAR, Table
from tailguard.auditing.result import AuditResult
from tailguard.auditing.runs import Runner
from tailguard.auditing.shipped import find

FRACTIONS = (0.02, 0.05, 0.2, 1.0)
# Names the streams of this audit, apart from those of two tables.
_STREAM = 7


def one_run_p_value(m: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of so many right guesses under (epsilon, delta)-differential privacy.

    Parameters
    ----------
    m : int
        Canaries.
    guesses : int
        Canaries that were guessed.
    correct : int
        Right guesses.
    epsilon, delta : float
        The claim to test.
    """
    binomial = stats.binom(guesses, 1.0 / (1.0 + math.exp(-epsilon)))
    steps = np.arange(1, correct + 1)
    below = np.cumsum(binomial.pmf(correct - steps))
    most = float(np.max(below / steps, initial=0.0))
    return min(1.0, float(binomial.sf(correct - 1)) + 2.0 * m * delta * most)


def one_run_epsilon(m: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """Return the largest epsilon that so many right guesses refute, 0 if none.

    Parameters
    ----------
    m, guesses, correct, delta
        As in `one_run_p_value`.
    confidence : float
        In (0, 1).
    """
    error = 1.0 - confidence
    if one_run_p_value(m, guesses, correct, 0.0, delta) > error:
        return 0.0
    low, high = 0.0, 1.0
    while one_run_p_value(m, guesses, correct, high, delta) <= error:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        if one_run_p_value(m, guesses, correct, middle, delta) <= error:
            low = middle
        else:
            high = middle
    return low


def audit_one_run(
    subject: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    canaries: int = 1000,
    confidence: float = 0.99,
    seed: int | None = 0,
) -> AuditResult:
    """Audit with many canaries in one run.

    Parameters
    ----------
    subject : str, estimator, function or Subject
        As in `audit`. Its first outputs must belong to the columns of X, as a mean or coefficients do, one for each.
    epsilon, delta : float, optional
        The claim; for what this package ships there is a default. A delta above 1e-4 or so leaves nothing to see: it
        counts ``2 m`` times.
    canaries : int, default=1000
        m, also the number of columns; half as many rows again are ordinary.
    confidence : float, default=0.99
        Of the bound.
    seed : int or None, default=0
        Of the auditor's coins and of the noise; None takes both from the operating system.

    Returns
    -------
    AuditResult
    """
    confidence = probability("confidence", confidence)
    m = count("canaries", canaries, least=10)
    case = find(subject, epsilon, delta)
    epsilon, delta = within("epsilon", case.epsilon, 0.0, 1e6), probability("delta", case.delta, zero=True)
    rng = np.random.default_rng(None if seed is None else [seed, _STREAM])
    inside = rng.random(m) < 0.5
    X = np.zeros((m + m // 2, m))
    X[np.arange(m)[inside], np.arange(m)[inside]] = FAR
    kind = case.kind
    y = None if kind == "mean" else np.where(X.any(axis=1), 1.0 if kind == "classification" else FAR, 0.0)
    with Runner(1) as runner:
        scores = runner.outputs(case.make(epsilon, delta), Table(X, y, kind), 1, (_STREAM,), seed=seed)[0]
    if len(scores) < m:
        raise ValueError(f"the subject has {len(scores)} outputs for {m} columns: it must have one for each.")
    order = np.argsort(scores[:m])
    best = (-1.0, 0, 0)
    for fraction in FRACTIONS:
        half = max(1, int(fraction * m) // 2)
        correct = int(np.sum(inside[order[-half:]]) + np.sum(~inside[order[:half]]))
        # Each fraction at a share of the error, so that the largest bound may be taken.
        bound = one_run_epsilon(m, 2 * half, correct, delta, 1.0 - (1.0 - confidence) / len(FRACTIONS))
        best = max(best, (bound, 2 * half, correct))
    lower, guesses, correct = best
    return AuditResult(
        subject=case.name,
        epsilon=epsilon,
        delta=delta,
        lower=lower,
        confidence=confidence,
        method="one run",
        pair=f"{m} canaries, each in or out",
        event=f"{correct} of {guesses} guesses right",
        hits=correct,
        others=guesses - correct,
        trials=guesses,
        runs=1,
        seed=seed,
    )

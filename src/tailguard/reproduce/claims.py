r"""What the paper claims, and what was measured.

Every row is computed from results; none is written by hand. Thresholds are the constants below. A claim is checked in
each panel it speaks of: it "holds" if it does in all, "does not hold" if in none, and otherwise "holds only with" the
panels where it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from tailguard.reproduce.specs import Figure, Method, Panel
from tailguard.reproduce.store import Results

Array = NDArray[np.float64]

# "Comparable": excess risk at most twice that without privacy; on Adult, where the risk is not in excess of
# anything, at most a tenth more. "Sensitive to kappa": medians over the kappas differ by a factor of more than two. A
# slope is compared with a bound only if two standard errors are at most 0.75.
COMPARABLE, COMPARABLE_TEST, SENSITIVE, CERTAIN = 2.0, 1.1, 2.0, 0.75


@dataclass(frozen=True)
class Claim:
    """One row of the table.

    Attributes
    ----------
    claim : str
        What the paper says.
    where : str
        Figure, theorem or section.
    measured : tuple of str
        Our figures, one for each place it was looked for.
    verdict : str
        "holds", "does not hold", "holds only with ..." or "not measured: ...".
    """

    claim: str
    where: str
    measured: tuple[str, ...]
    verdict: str


@dataclass(frozen=True)
class Slope:
    """A straight line through log error against log x.

    Attributes
    ----------
    value, error : float
        Slope and its standard error, from all seeds.
    """

    value: float
    error: float

    @staticmethod
    def of(x: Array, errors: Array) -> Slope:
        """Fit; ``errors`` has shape (places, seeds)."""
        u = np.repeat(np.log(x), errors.shape[1])
        v = np.log(np.maximum(errors, 1e-300)).ravel()
        u, v = u - u.mean(), v - v.mean()
        value = float(u @ v / (u @ u))
        spread = float(np.sum((v - value * u) ** 2)) / max(1, len(v) - 2)
        return Slope(value, math.sqrt(spread / float(u @ u)))

    def __str__(self) -> str:
        return f"{self.value:+.2f} ± {2.0 * self.error:.2f}"


class Evidence:
    """Specs with their results.

    Parameters
    ----------
    figures : iterable of Figure
        Those that were run.
    results : mapping
        Their results by key.
    """

    def __init__(self, figures: Iterable[Figure], results: Mapping[str, Results]) -> None:
        self.figures = {figure.key: figure for figure in figures if figure.key in results}
        self.results = results

    def panels(self, *keys: str) -> list[Panel]:
        """Panels of the figures that were run."""
        return [panel for key in keys if key in self.figures for panel in self.figures[key].panels]

    def final(self, panel: Panel, method: str, x: float | None = None) -> Array:
        """Last error of every seed."""
        return self.results[panel.key[0]].final(panel.key, method, panel.points[0].x if x is None else x)

    def median(self, panel: Panel, method: str, x: float | None = None) -> float:
        """Median over the seeds."""
        return float(np.median(self.final(panel, method, x)))

    def range(self, panel: Panel, method: str) -> float:
        """Worst minus best over the seeds."""
        return float(np.ptp(self.final(panel, method)))

    def slope(self, panel: Panel, method: str) -> Slope:
        """Fit over the points of a panel."""
        x = np.array([point.x for point in panel.points])
        return Slope.of(x, np.array([self.final(panel, method, point.x) for point in panel.points]))


def claims(evidence: Evidence) -> list[Claim]:
    """Fill the table.

    Parameters
    ----------
    evidence : Evidence
        Results of the figures that were run; rows whose figures were not are "not measured".
    """
    return [
        *_variation(evidence),
        *_kappa(evidence),
        _poor(evidence),
        *_comparable(evidence),
        *_monotone(evidence),
        _epsilon(evidence),
        *_rates(evidence),
        _printed_privacy(),
    ]


@dataclass(frozen=True)
class Part:
    """A claim in one place.

    Attributes
    ----------
    place : str
        Name of the place, short.
    figure : str
        What was measured there.
    holds : bool or None
        None if the measurement is too uncertain to say.
    traits : frozenset of str
        What the place has in common with others, for a short verdict.
    """

    place: str
    figure: str
    holds: bool | None
    traits: frozenset[str] = frozenset()


def _part(panel: Panel, figure: str, holds: bool | None) -> Part:
    return Part(f"{panel.key} ({panel.title})", figure, holds, _traits(panel))


def _traits(panel: Panel) -> frozenset[str]:
    source = panel.points[0].source
    data = "Adult" if source.data == "adult" else "synthetic data"
    loss = "the squared loss" if source.model == "ridge" else "the logistic loss"
    return frozenset({loss, data, f"ε = {panel.epsilon:g}"})


def verdict(parts: list[Part]) -> str:
    """Put the answers for the parts of a claim into words.

    Parameters
    ----------
    parts : list of Part
        "holds only with" names a trait that all places have where it holds, and no other, if there is one.
    """
    if not parts:
        return "not measured: its figure was not run"
    if all(part.holds is None for part in parts):
        return "not measured: too uncertain with so few seeds"
    good = [part for part in parts if part.holds]
    if len(good) == len(parts):
        return "holds"
    if not good:
        return "does not hold"
    places = ", ".join(part.place.split(" (")[0] for part in good)
    traits = sorted(frozenset.union(*(part.traits for part in parts)))
    for number in (1, 2):
        for chosen in combinations(traits, number):
            if [part for part in parts if part.traits >= set(chosen)] == good:
                return f"holds only with {' and '.join(chosen)} ({places})"
    bad = [part.place.split(" (")[0] for part in parts if not part.holds]
    if len(bad) < len(good):
        return f"holds only with all but {', '.join(bad)}"
    return f"holds only with some settings ({places})"


def _row(claim: str, where: str, parts: list[Part]) -> Claim:
    """One row of the table."""
    measured = tuple(f"{part.place}: {part.figure}" for part in parts) or ("–",)
    return Claim(claim, where, measured, verdict(parts))


def _kappas(panel: Panel, setting: str) -> list[Method]:
    return [method for method in panel.methods if method.key.startswith(f"alg3-{setting}-")]


_FORMS = (("printed", "as printed, not private"), ("improved", "sound form"))


def _variation(evidence: Evidence) -> list[Claim]:
    rows = []
    for setting, words in _FORMS:
        parts = []
        for panel in evidence.panels("1", "2"):
            ranges = [evidence.range(panel, method.key) for method in _kappas(panel, setting)]
            other = evidence.range(panel, "alg4")
            text = f"{_span(ranges)} against {short(other)}"
            parts.append(_part(panel, text, min(ranges) > other))
        claim = f"Algorithm 3 varies more than Algorithm 4 (worst minus best final error over the seeds); {words}"
        rows.append(_row(claim, "figures 1, 2 and their versions with bands", parts))
    return rows


def _kappa(evidence: Evidence) -> list[Claim]:
    rows = []
    for setting, words in _FORMS:
        parts = []
        for panel in evidence.panels("1", "2"):
            medians = [evidence.median(panel, method.key) for method in _kappas(panel, setting)]
            ratio = max(medians) / min(medians)
            parts.append(_part(panel, f"× {short(ratio, 3)}", ratio > SENSITIVE))
        claim = f"Algorithm 3 is sensitive to κ = b − a (largest over smallest median final error); {words}"
        rows.append(_row(claim, "figures 1 and 2", parts))
    return rows


def _poor(evidence: Evidence) -> Claim:
    parts = []
    for panel in evidence.panels("1", "2"):
        own = [evidence.median(panel, method.key) for setting, _ in _FORMS for method in _kappas(panel, setting)]
        other = evidence.median(panel, "alg4")
        parts.append(
            _part(panel, f"best of all κ and both forms {short(min(own))} against {short(other)}", min(own) > other)
        )
    return _row("Algorithm 3 performs worse than Algorithm 4 (median final error)", "figures 1 and 2", parts)


def _comparable(evidence: Evidence) -> list[Claim]:
    rows = []
    for private, plain, words in (
        ("alg4", "rgd", "Algorithm 4 is comparable to RGD without privacy"),
        ("alg4-stochastic", "rgd-stochastic", "Stochastic Algorithm 4 is comparable to stochastic RGD"),
    ):
        for key, limit, what in (
            ("1", COMPARABLE, f"at most × {COMPARABLE:g} in excess risk"),
            ("2", COMPARABLE_TEST, f"at most × {COMPARABLE_TEST:g} in test risk"),
        ):
            parts = []
            for panel in evidence.panels(key):
                ratio = evidence.median(panel, private) / evidence.median(panel, plain)
                parts.append(_part(panel, f"× {short(ratio, 3)}", ratio <= limit))
            rows.append(_row(f"{words} ({what})", f"figure {key}", parts))
    return rows


def _monotone(evidence: Evidence) -> list[Claim]:
    rows = []
    for key, claim, falls in (
        ("4", "Error falls as n grows (stochastic Algorithm 4; slope of log error against log n)", -1.0),
        ("3", "Error falls with smaller d (stochastic Algorithm 4; slope of log error against log d)", 1.0),
    ):
        parts = []
        for panel in evidence.panels(key):
            slope = evidence.slope(panel, "alg4-stochastic")
            ends = [evidence.median(panel, "alg4-stochastic", panel.points[i].x) for i in (0, -1)]
            text = f"slope {slope}, median {short(ends[0])} to {short(ends[1])}"
            parts.append(_part(panel, text, falls * slope.value > 2.0 * slope.error))
        rows.append(_row(claim, f"figure {key}", parts))
    return rows


def _epsilon(evidence: Evidence) -> Claim:
    """Medians at the larger and the smaller epsilon, at every place that has both."""
    parts = []
    for key in ("1", "2", "3", "4"):
        panels = evidence.panels(key)
        pairs_of_panels = [
            (a, b) for a in panels for b in panels if a.epsilon > b.epsilon and a.points[0].source == b.points[0].source
        ]
        for large, small in pairs_of_panels:
            for method in ("alg4", "alg4-stochastic"):
                if method not in {line.key for line in large.methods}:
                    continue
                pairs = [
                    (evidence.median(large, method, point.x), evidence.median(small, method, point.x))
                    for point in large.points
                ]
                ratio = float(np.exp(np.mean([math.log(b / a) for a, b in pairs])))
                better = sum(a < b for a, b in pairs)
                words = "Algorithm 4" if method == "alg4" else "stochastic Algorithm 4"
                place = f"{large.key}/{small.key[1:]} {'stochastic ' * (method != 'alg4')}({large.title.split(',')[0]})"
                text = f"error × {ratio:.2f} at ε = {small.epsilon:g}, larger at {better} of {len(pairs)} places"
                parts.append(Part(place, text, better == len(pairs), _traits(large) | {words}))
    return _row("Error falls with larger ε (median final error)", "figures 1 to 4", parts)


@dataclass(frozen=True)
class Rate:
    """The bound of a theorem up to a constant, and where it is measured."""

    theorem: int
    method: str
    panels: tuple[str, str]
    bound: Callable[[float, float], float]
    words: str


# delta = 1/n, so log(1/delta) = log n; epsilon is fixed.
RATES = (
    Rate(5, "theorem5", ("5a", "5b"), lambda n, d: d**2 * math.log(n) ** 3 / n, "d² log² n log(1/δ) / n"),
    Rate(7, "theorem7", ("5a", "5b"), lambda n, d: d**2 * math.log(n) ** 3 / n, "d² log² n log(1/δ) / n"),
    Rate(
        8,
        "theorem8",
        ("5c", "5d"),
        lambda n, d: d ** (2 / 3) * math.log(n) ** (1 / 3) / n ** (1 / 3),
        "d^(2/3) log^(1/3)(1/δ) / n^(1/3)",
    ),
)


def bound_slope(rate: Rate, panel: Panel) -> float:
    """Slope of the bound over the points of a panel, its logarithms included."""
    bounds = np.array([[rate.bound(point.source.n, point.source.d)] for point in panel.points])
    return Slope.of(np.array([point.x for point in panel.points]), bounds).value


def _rates(evidence: Evidence) -> list[Claim]:
    rows = []
    panels = {panel.key: panel for panel in evidence.panels("5")}
    for rate in RATES:
        for key in rate.panels:
            parts = []
            axis = "n" if key in ("5a", "5c") else "d"
            if key in panels:
                panel = panels[key]
                slope, promised = evidence.slope(panel, rate.method), bound_slope(rate, panel)
                # A bound is kept by any error that grows no faster; two standard errors are allowed, if they are few.
                kept = slope.value - 2.0 * slope.error <= promised if 2.0 * slope.error <= CERTAIN else None
                text = f"slope {slope}, bound {promised:+.2f}"
                parts.append(_part(panel, text, kept))
            claim = f"Theorem {rate.theorem}: error grows no faster in {axis} than {rate.words} (log-log slope)"
            rows.append(_row(claim, f"theorem {rate.theorem}, figure 5", parts))
    return rows


def _printed_privacy() -> Claim:
    """Two neighbouring columns that the printed Algorithm 2 tells apart; exact, from the normal distribution.

    n = 1000 zeros against 999 zeros and 1e9, m = 50, [a, b] = [-1, 1], epsilon = 0.1. The trimmed means are 0, so the
    output is ``S Z / s`` with the printed ``S = max((x_(n) - x_(1)) / (n - 2m), e^(-mt) (b - a))``.
    """
    n, m, epsilon, width, level = 1000, 50, 0.1, 2.0, 91.12
    t, s = epsilon**2 / 16.0, epsilon / 4.0
    chances = []
    for largest in (0.0, 1e9):
        scale = max(largest / (n - 2 * m), math.exp(-m * t) * width) / s
        chances.append(float(2.0 * norm.cdf(math.asinh(level / scale)) - 1.0))
    # zCDP of epsilon^2/2 implies (e, d)-DP with e = rho + 2 sqrt(rho log(1/d)); at d = 1e-5 the chances may differ by
    rho, delta = epsilon**2 / 2.0, 1e-5
    allowed = math.exp(rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))) * chances[1] + delta
    text = (
        f"P(|output| ≤ {level:g}) is {chances[0]:.3f} for 1000 zeros and {short(chances[1])} with one replaced by 10⁹; "
        f"the promise at ε = {epsilon:g} allows {short(allowed)} (computed exactly)"
    )
    claim = "Theorem 4: Algorithm 3 as printed is differentially private"
    return Claim(claim, "theorem 4, algorithm 2", (text,), "holds" if chances[0] <= allowed else "does not hold")


def short(value: float, digits: int = 2) -> str:
    """Write a number with few digits, and powers of ten as people do: 1.7·10⁵.

    Parameters
    ----------
    value : float
    digits : int
    """
    text = f"{value:.{digits}g}"
    mantissa, mark, exponent = text.partition("e")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")) if mark else ""
    return f"{mantissa}·10{power}" if mark else text


def _span(values: list[float]) -> str:
    low, high = short(min(values)), short(max(values))
    return low if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Choice:
    """How much one choice matters: final error against that of the choice made.

    Attributes
    ----------
    panel : str
    label : str
        The alternative.
    factors : tuple of (method label, factor)
        Median error with the alternative over that without.
    """

    panel: str
    label: str
    factors: tuple[tuple[str, float], ...]


def choices(evidence: Evidence) -> list[Choice]:
    """Compare every alternative of figure 6 with the choice that was made.

    Parameters
    ----------
    evidence : Evidence
    """
    rows = []
    for panel in evidence.panels("6"):
        for point in panel.points[1:]:
            factors = tuple(
                (method.label, evidence.median(panel, method.key, point.x) / evidence.median(panel, method.key, 0.0))
                for method in panel.methods
            )
            rows.append(Choice(panel.title, " ".join(point.label.split()), factors))
    return rows

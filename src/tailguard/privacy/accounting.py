r"""The accountant: the price of a list of events.

==============================================  ============================================
events                                          priced by
==============================================  ============================================
Gaussian                                        one mu² = Σ count mu², the exact GDP curve
Gaussian and zCDP (and pure ε-DP, as ε²/2)      Σ rho, the tight zCDP conversion
Poisson-sampled, with add-remove Gaussians      one privacy loss distribution
Selections, with Gaussian and zCDP              the curve of all together, shifted (:mod:`.selection`)
anything else                                   the groups above by basic composition, δ shared
NotPrivate                                      inf
unknown                                         :class:`UnknownEventError`
==============================================  ============================================

Groups may be interleaved adaptively: within a group each guarantee composes adaptively,
and the groups, as interactive mechanisms, compose concurrently (Vadhan and Zhang 2023,
arXiv:2207.08335).

**Noise on a grid.**  Releases carry discrete Gaussian noise, priced as continuous.  Let s
be the standard deviation in grid units, s ≥ 2^20.  The rounded normal and the discrete normal have
masses within e^{±η}, η = 7e-11, up to 40 standard deviations (log ratio (z² − 1)/(24 s²)
to leading order) and both put less than 2 e^{-800} beyond.  For m draws, on both of two
neighbours: from (ε, δ) for the rounded normals, which are post-processing of the
continuous ones, follows

    (ε + 2 m η,  e^{mη} δ + 2 m (1 + e^ε) 2 e^{-800})

for the discrete ones.  Where the last term is not negligible (ε of several hundreds) the
discrete Gaussian is priced by its own exact theorem instead: it is mu²/2-zCDP (Canonne,
Kamath and Steinke 2020, Theorem 14).

**From add-remove to replace-one.**  Two steps: mu → 2 mu, rho → 4 rho, (ε, δ) → (2ε, (1 + e^ε) δ).
There is no way back: replace-one says nothing about neighbours of another size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tailguard import _checks
from tailguard.privacy.concentrated import zcdp_delta, zcdp_epsilon, zcdp_rho
from tailguard.privacy.events import (
    ApproximateDP,
    Event,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    Relation,
    Selection,
    UnknownEventError,
    ZeroConcentrated,
    check_relation,
    common_relation,
    common_unit,
)
from tailguard.privacy.gaussian import gdp_delta, gdp_epsilon, gdp_mu
from tailguard.privacy.selection import Chosen, selected_epsilon
from tailguard.privacy.subsampled import (
    Sampled,
    inverse_square,
    poisson_gaussian_epsilon,
    sampled_epsilon,
    sampled_replace_epsilon,
)

__all__ = [
    "GRID_PRICE",
    "epsilon_of",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "poisson_gaussian_epsilon",
    "total_rho",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]

# η: largest log ratio between rounded and discrete normal up to 40 sd, for sd >= 2^20 grid units.
GRID_PRICE = 7e-11
# log of the mass of either beyond 40 sd; the true value is below -803.
_LOG_GRID_TAIL = -800.0
# Part of delta kept for that mass.
_TAIL_SHARE = 1e-9

_KNOWN = (Gaussian, PoissonGaussian, ZeroConcentrated, ApproximateDP, Selection, NotPrivate)


def epsilon_of(events: Iterable[Event], delta: float, relation: Relation | None = None) -> float:
    """Return an ε such that all the events together are (ε, δ)-differentially private.

    Parameters
    ----------
    events : iterable of Event
        The releases, in any order; parameters fixed before the first of them.
    delta : float
        In (0, 1).
    relation : {"replace-one", "add-remove"}, optional
        The neighbours asked about; by default the common relation of the events, and
        replace-one where they differ.

    Returns
    -------
    float
        ε ≥ 0, rounded up; 0 for no events; inf where no finite ε is known.

    Raises
    ------
    UnknownEventError
        For an event that is not one of :mod:`tailguard.privacy.events`.
    ValueError
        If add-remove is asked of events that only speak of replace-one, or if some speak of rows and some of persons.

    Notes
    -----
    **Formal guarantee.**  See the table and the two reductions in the module's story: every
    row is an upper bound, and where several apply the smallest is returned.

    Examples
    --------
    >>> from tailguard.privacy import Gaussian, epsilon_of
    >>> round(epsilon_of([Gaussian(mu=0.1, count=4)], delta=1e-6), 3)
    0.834
    """
    known = known_events(events)
    delta = _checks.probability("delta", delta)
    relation = common_relation(known) if relation is None else check_relation(relation)
    if any(isinstance(event, NotPrivate) for event in known):
        return math.inf
    _check_answerable(known, relation)

    draws = sum(event.draws for event in known)
    if draws == 0:
        return _price(known, delta, relation)
    exact = _price([_as_discrete(event) for event in known], delta, relation)
    inflation = draws * GRID_PRICE
    shrunk = delta * math.exp(-inflation) * (1.0 - _TAIL_SHARE)
    if shrunk <= 0.0:
        return exact
    continuous = _price(known, shrunk, relation)
    log_tail = math.log(4.0 * draws) + max(0.0, continuous) + math.log1p(math.exp(-abs(continuous))) + _LOG_GRID_TAIL
    log_tail += math.fsum(math.log(event.runs) for event in known if isinstance(event, Selection))
    if log_tail > math.log(_TAIL_SHARE) + math.log(delta):
        return exact
    return min(exact, continuous + 2.0 * inflation)


def total_rho(events: Iterable[Event], relation: Relation | None = None) -> float:
    """Return a rho such that all the events together are rho-zCDP.

    Gaussian releases are mu²/2-zCDP (their discrete form exactly so), unamplified
    Poisson ones 1/(2 z²), pure ε-DP ones ε²/2.

    Parameters
    ----------
    events : iterable of Event
        The releases, in any order.
    relation : {"replace-one", "add-remove"}, optional
        As in :func:`epsilon_of`.

    Raises
    ------
    ValueError
        For (ε, δ)-DP events with δ > 0 and for selections, which imply no zCDP.
    """
    known = known_events(events)
    relation = common_relation(known) if relation is None else check_relation(relation)
    if any(isinstance(event, NotPrivate) for event in known):
        return math.inf
    _check_answerable(known, relation)
    parts = []
    for event in map(_as_discrete, known):
        if isinstance(event, Selection):
            raise ValueError(f"a selection implies no rho-zCDP; give a budget in epsilon and delta; got {event!r}")
        if isinstance(event, ApproximateDP):
            if event.delta > 0.0:
                raise ValueError(f"an (epsilon, delta)-DP event with delta > 0 implies no rho-zCDP; got {event!r}")
            event = ZeroConcentrated(0.5 * event.epsilon * event.epsilon, event.count, event.relation)
        assert isinstance(event, ZeroConcentrated)
        parts.append(event.count * event.rho * _steps(event, relation) ** 2)
    return math.fsum(parts)


def known_events(events: Iterable[Event]) -> list[Event]:
    """Return the events as a list; raise for a stranger (:class:`UnknownEventError`) and for two units."""
    if isinstance(events, Event):
        raise TypeError(f"events must be a list of events; got the single event {events!r}")
    known = list(events)
    for event in known:
        if type(event) not in _KNOWN:
            names = sorted(kind.__name__ for kind in _KNOWN)
            raise UnknownEventError(f"events must be among {names}; got {event!r}")
    common_unit(known)
    return known


def _check_answerable(events: list[Event], relation: Relation) -> None:
    for event in events:
        if relation == "add-remove" and getattr(event, "relation", relation) != relation:
            raise ValueError(
                f'relation must be "replace-one" for events that only speak of it; got "add-remove" and {event!r}'
            )


def _steps(event: Event, relation: Relation) -> int:
    """Return how many neighbours of the event lie between neighbours of ``relation``."""
    return 1 if getattr(event, "relation", relation) == relation else 2


def _as_discrete(event: Event) -> Event:
    """Return what exact theorems say of discrete Gaussian noise: zCDP, no amplification."""
    if isinstance(event, Gaussian):
        return ZeroConcentrated(0.5 * event.mu * event.mu, event.count, event.relation)
    if isinstance(event, PoissonGaussian):
        return ZeroConcentrated(0.5 * inverse_square(event.noise_multiplier), event.count, event.relation)
    if isinstance(event, Selection):
        return Selection(event.mu, event.stop, event.heads, concentrated=True, relation=event.relation)
    return event


@dataclass(frozen=True)
class _Groups:
    """A list of events sorted by what can be composed tightly."""

    mu: float
    rho: float
    sampled: tuple[Sampled, ...]
    chosen: tuple[Chosen, ...]
    epsilon: float
    delta: float


def _price(events: list[Event], delta: float, relation: Relation) -> float:
    """Price events with continuous noise: the best of two ways to treat pure ε-DP."""
    basic = _price_groups(_group(events, relation, pure_as_zcdp=False), delta, relation)
    if not any(isinstance(event, ApproximateDP) and event.delta == 0.0 for event in events):
        return basic
    return min(basic, _price_groups(_group(events, relation, pure_as_zcdp=True), delta, relation))


def _group(events: list[Event], relation: Relation, *, pure_as_zcdp: bool) -> _Groups:
    mu_squares, rhos, epsilons, deltas = [], [], [], []
    sampled: dict[tuple[float, float], int] = {}
    chosen: list[Chosen] = []
    any_sampled = any(isinstance(event, PoissonGaussian) for event in events)
    for event in events:
        steps = _steps(event, relation)
        if isinstance(event, Gaussian) and any_sampled and event.relation == "add-remove" and event.mu > 0.0:
            key = (1.0, 1.0 / event.mu)
            sampled[key] = sampled.get(key, 0) + event.count
        elif isinstance(event, Gaussian):
            mu_squares.append(event.count * (steps * event.mu) * (steps * event.mu))
        elif isinstance(event, PoissonGaussian):
            if math.isinf(event.noise_multiplier):
                continue
            key = (event.rate, event.noise_multiplier)
            sampled[key] = sampled.get(key, 0) + event.count
        elif isinstance(event, ZeroConcentrated):
            rhos.append(event.count * steps**2 * event.rho)
        elif isinstance(event, Selection):
            chosen.append(Chosen(steps * event.mu, event.stop, event.heads, event.runs, event.concentrated))
        elif isinstance(event, ApproximateDP) and pure_as_zcdp and event.delta == 0.0:
            rhos.append(event.count * 0.5 * steps**2 * event.epsilon * event.epsilon)
        elif isinstance(event, ApproximateDP):
            growth = 1.0 if steps == 1 else 1.0 + math.exp(min(event.epsilon, 700.0))
            epsilons.append(event.count * steps * event.epsilon)
            deltas.append(event.count * growth * event.delta)
    return _Groups(
        math.sqrt(math.fsum(mu_squares)),
        math.fsum(rhos),
        tuple(Sampled(*key, count) for key, count in sorted(sampled.items())),
        tuple(chosen),
        math.fsum(epsilons),
        math.fsum(deltas),
    )


def _price_groups(groups: _Groups, delta: float, relation: Relation) -> float:
    prices: list[Callable[[float], float]] = []
    if groups.chosen:
        prices.append(lambda d: selected_epsilon(groups.chosen, groups.mu, groups.rho, d))
    elif groups.rho > 0.0:
        rho = groups.rho + 0.5 * groups.mu * groups.mu
        prices.append(lambda d: zcdp_epsilon(rho, d))
    elif groups.mu > 0.0:
        prices.append(lambda d: gdp_epsilon(groups.mu, d))
    if groups.sampled:
        curve = sampled_epsilon if relation == "add-remove" else sampled_replace_epsilon
        prices.append(lambda d: curve(groups.sampled, d))
    left = delta - groups.delta
    if left < 0.0 or (prices and left <= 0.0):
        return math.inf
    return math.fsum([groups.epsilon, *(price(left / len(prices)) for price in prices)])

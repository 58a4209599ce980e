"""Events are data: what was released, never how it is priced.

A mechanism that touches data leaves an :class:`Event`, a small frozen record of the
parameters that decide its privacy.  Accountants price lists of events
(:func:`tailguard.privacy.epsilon_of`) and refuse those that they do not know, so a new
mechanism can never be counted as free by accident.

=========================  ========================================  ==========
event                      one release of it                         relation
=========================  ========================================  ==========
:class:`Gaussian`          value + N(0, sd²), mu = sensitivity / sd  either
:class:`PoissonGaussian`   the same on a Poisson sample of the rows  add-remove
:class:`ZeroConcentrated`  anything that is rho-zCDP                 either
:class:`ApproximateDP`     anything that is (epsilon, delta)-DP      either
:class:`Selection`         the best of a secret number of runs       either
:class:`NotPrivate`        data left without protection              none
=========================  ========================================  ==========

Relations: two data sets are neighbours under *replace-one* if they have the same public
number of rows and differ in one of them, and under *add-remove* if one is the other with
one row more.  Units: what "one" is, a row, or a person with all rows that are theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from tailguard import _checks

Relation = Literal["replace-one", "add-remove"]
Unit = Literal["row", "person"]
_RELATIONS: tuple[Relation, ...] = get_args(Relation)


class UnknownEventError(TypeError):
    """An event that no accountant of this package can price."""


def check_relation(relation: object) -> Relation:
    """Return ``relation`` if it is one of the two neighbouring relations."""
    for known in _RELATIONS:
        if relation == known:
            return known
    raise ValueError(f"relation must be one of {list(_RELATIONS)}; got {relation!r}")


def check_unit(unit: object) -> Unit:
    """Return ``unit`` if it is a row or a person."""
    for known in get_args(Unit):
        if unit == known:
            return known
    raise ValueError(f"unit must be one of {list(get_args(Unit))}; got {unit!r}")


@dataclass(frozen=True)
class Event:
    """One entry of a privacy ledger; see the subclasses.

    Attributes
    ----------
    label : str
        What the release was spent on, for people.
    unit : {"row", "person"}
        What neighbours differ in one of; see :func:`in_units`.
    """

    label: str = ""
    unit: Unit = field(default="row", repr=False)

    @property
    def releases(self) -> int:
        """Number of releases that the event stands for."""
        return int(getattr(self, "count", 1))

    @property
    def draws(self) -> int:
        """Number of discrete-Gaussian draws that are priced as continuous ones."""
        return int(getattr(self, "samples", 0))

    def describe(self) -> str:
        """Return one plain line about the mechanism."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain, JSON-ready data; infinities become ``"inf"``, and a unit of rows is left out."""
        fields = {key: "inf" if value == math.inf else value for key, value in asdict(self).items()}
        if self.unit == "row":
            del fields["unit"]
        return {"event": type(self).__name__, **fields}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Event:
        """Rebuild an event from :meth:`to_dict`.

        Raises
        ------
        UnknownEventError
            If ``data["event"]`` names no event of this module.
        """
        if not isinstance(data, Mapping):
            raise TypeError(f"an event must be a mapping with its name and fields; got {type(data).__name__}")
        fields = dict(data)
        name = fields.pop("event", None)
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise UnknownEventError(f"event must be one of {sorted(_KINDS)}; got {name!r}")
        unit = check_unit(fields.pop("unit", "row"))
        numbers = {k: math.inf if v == "inf" and k != "label" else v for k, v in fields.items()}
        return in_units([kind(**numbers)], unit)[0]


def _times(count: int) -> str:
    return "" if count == 1 else f" x {count}"


@dataclass(frozen=True, init=False)
class Gaussian(Event):
    """Adaptive Gaussian releases on all rows.

    ``count`` releases, each ``value + N(0, sd² I)`` with ``mu`` = (L2 sensitivity under
    ``relation``) / sd.  Together they are ``sqrt(count) mu``-GDP.

    Parameters
    ----------
    mu : float
        Sensitivity over standard deviation of one release, in [0, inf].
    count : int
        Number of releases.
    samples : int
        Total number of discrete-Gaussian draws over all the releases (coordinates times
        releases); 0 where the noise is exactly continuous or the price is paid elsewhere.
    relation : {"replace-one", "add-remove"}
        The neighbours that the sensitivity speaks of.
    label : str
        What it was spent on.
    """

    mu: float = 0.0
    count: int = 1
    samples: int = 0
    relation: Relation = "replace-one"

    def __init__(
        self,
        mu: float,
        count: int = 1,
        samples: int = 0,
        relation: Relation = "replace-one",
        label: str = "",
    ) -> None:
        _set(
            self,
            label=str(label),
            mu=_checks.nonnegative("mu", mu),
            count=_checks.count("count", count),
            samples=_checks.count("samples", samples, least=0),
            relation=check_relation(relation),
        )

    def describe(self) -> str:
        """Return one plain line about the mechanism."""
        return f"Gaussian, mu = {self.mu:.6g}{_times(self.count)}"


@dataclass(frozen=True, init=False)
class PoissonGaussian(Event):
    """Gaussian releases on Poisson samples of the rows, under add-remove.

    Each of ``count`` releases includes every row independently with probability ``rate``
    and adds N(0, sd² I), ``noise_multiplier`` = sd / (L2 sensitivity under add-remove of
    the *sum*; the divisor must be public, never the realised size of the sample).

    Parameters
    ----------
    rate : float
        Sampling probability in (0, 1].
    noise_multiplier : float
        Standard deviation over add-remove sensitivity, in [0, inf].
    count : int
        Number of releases.
    samples : int
        Total number of discrete-Gaussian draws over all the releases.
    label : str
        What it was spent on.
    """

    rate: float = 1.0
    noise_multiplier: float = 0.0
    count: int = 1
    samples: int = 0

    def __init__(self, rate: float, noise_multiplier: float, count: int = 1, samples: int = 0, label: str = "") -> None:
        _set(
            self,
            label=str(label),
            rate=_checks.probability("rate", rate, one=True),
            noise_multiplier=_checks.nonnegative("noise_multiplier", noise_multiplier),
            count=_checks.count("count", count),
            samples=_checks.count("samples", samples, least=0),
        )

    @property
    def relation(self) -> Relation:
        """Poisson sampling hides whether a row is there: add-remove, always."""
        return "add-remove"

    def describe(self) -> str:
        """Return one plain line about the mechanism."""
        return (
            f"Gaussian on a Poisson sample, rate = {self.rate:.6g}, "
            f"noise multiplier = {self.noise_multiplier:.6g}{_times(self.count)}"
        )


@dataclass(frozen=True, init=False)
class ZeroConcentrated(Event):
    """``count`` adaptive releases, each rho-zCDP (Bun and Steinke 2016, Definition 1.1).

    Parameters
    ----------
    rho : float
        For all alpha > 1, the Rényi divergence of order alpha is at most ``alpha rho``.
    count : int
        Number of releases.
    relation : {"replace-one", "add-remove"}
        The neighbours that the guarantee speaks of.
    label : str
        What it was spent on.
    """

    rho: float = 0.0
    count: int = 1
    relation: Relation = "replace-one"

    def __init__(self, rho: float, count: int = 1, relation: Relation = "replace-one", label: str = "") -> None:
        _set(
            self,
            label=str(label),
            rho=_checks.nonnegative("rho", rho),
            count=_checks.count("count", count),
            relation=check_relation(relation),
        )

    def describe(self) -> str:
        """Return one plain line about the mechanism."""
        return f"zero-concentrated, rho = {self.rho:.6g}{_times(self.count)}"


@dataclass(frozen=True, init=False)
class ApproximateDP(Event):
    """``count`` adaptive releases, each (epsilon, delta)-differentially private.

    Parameters
    ----------
    epsilon : float
        In [0, inf].
    delta : float
        In [0, 1); 0 for pure differential privacy.
    count : int
        Number of releases.
    relation : {"replace-one", "add-remove"}
        The neighbours that the guarantee speaks of.
    label : str
        What it was spent on.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    count: int = 1
    relation: Relation = "replace-one"

    def __init__(
        self,
        epsilon: float,
        delta: float,
        count: int = 1,
        relation: Relation = "replace-one",
        label: str = "",
    ) -> None:
        _set(
            self,
            label=str(label),
            epsilon=_checks.nonnegative("epsilon", epsilon),
            delta=_checks.probability("delta", delta, zero=True),
            count=_checks.count("count", count),
            relation=check_relation(relation),
        )

    def describe(self) -> str:
        """Return one plain line about the mechanism."""
        return f"({self.epsilon:.6g}, {self.delta:.6g})-DP{_times(self.count)}"


@dataclass(frozen=True, init=False)
class Selection(Event):
    """The best of a secret number of runs, and nothing about the others.

    A coin shows heads with probability ``stop`` and is tossed until the ``heads``-th of them; there are as many runs as
    tails, and if there are none all is tossed again.  The number of runs does not depend on the data and must not
    be released.  Runs are independent and identically distributed: each draws its candidate anew.  See
    :mod:`tailguard.privacy.selection` for the price.

    Parameters
    ----------
    mu : float
        One run, the score that it is judged by included, is ``mu``-GDP.
    stop : float
        Probability of heads, in (0, 1).
    heads : int
        How many of them end the series; 1 makes the number of runs geometric, more make it less spread.
    samples : int
        Number of discrete-Gaussian draws of one run.
    concentrated : bool
        One run is mu²/2-zCDP, and not known to be mu-GDP.
    relation : {"replace-one", "add-remove"}
        The neighbours that ``mu`` speaks of.
    label : str
        What it was spent on.
    """

    mu: float = 0.0
    stop: float = 0.5
    heads: int = 1
    samples: int = 0
    concentrated: bool = False
    relation: Relation = "replace-one"

    def __init__(
        self,
        mu: float,
        stop: float,
        heads: int = 1,
        samples: int = 0,
        concentrated: bool = False,
        relation: Relation = "replace-one",
        label: str = "",
    ) -> None:
        _set(
            self,
            label=str(label),
            mu=_checks.nonnegative("mu", mu),
            stop=_checks.probability("stop", stop),
            heads=_checks.count("heads", heads),
            samples=_checks.count("samples", samples, least=0),
            concentrated=_checks.yes_or_no("concentrated", concentrated),
            relation=check_relation(relation),
        )

    @property
    def draws(self) -> int:
        """Those of a run that are priced: once for the run that is released, ``heads + 1`` times for the others."""
        return (self.heads + 2) * self.samples

    @property
    def runs(self) -> float:
        """The expected number of runs."""
        return self.heads * (1.0 / self.stop - 1.0) / -math.expm1(self.heads * math.log(self.stop))

    def describe(self) -> str:
        """Return one plain line about the mechanism."""
        kind = f"rho = {0.5 * self.mu * self.mu:.6g}" if self.concentrated else f"mu = {self.mu:.6g}"
        return f"best of a secret number of runs, {self.runs:.4g} expected, {kind} each"


@dataclass(frozen=True, init=False)
class NotPrivate(Event):
    """Data left without protection: priced at epsilon = inf under any relation.

    Parameters
    ----------
    reason : str
        Why, in words that the report prints.
    label : str
        What it was spent on.
    """

    reason: str = ""

    def __init__(self, reason: str, label: str = "") -> None:
        _set(self, label=str(label), reason=str(reason))

    def describe(self) -> str:
        """Return one plain line about the mechanism."""
        return f"not private: {self.reason}"


def _set(event: Event, **values: object) -> None:
    """Fill the fields of a frozen event, once, from its ``__init__``."""
    for name, value in values.items():
        object.__setattr__(event, name, value)


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Gaussian, PoissonGaussian, ZeroConcentrated, ApproximateDP, Selection, NotPrivate)
}


def common_relation(events: Iterable[Event]) -> Relation:
    """Return the relation under which a list of events is priced by default.

    The common relation of the events where they agree.  Where they do not, replace-one:
    an add-remove guarantee implies one for replace-one (at a price), never the reverse.
    """
    relations = {event.relation for event in events if hasattr(event, "relation")}
    return "add-remove" if relations == {"add-remove"} else "replace-one"


def in_units(events: Iterable[Event], unit: Unit) -> tuple[Event, ...]:
    """Return the same releases with neighbours that differ in a row, or in a person with all their rows.

    Parameters
    ----------
    events : iterable of Event
        Releases whose sensitivities hold for the unit.
    unit : {"row", "person"}
        What neighbours differ in one of.
    """
    unit = check_unit(unit)
    return tuple(event if event.unit == unit else _marked(event, unit) for event in events)


def _marked(event: Event, unit: Unit) -> Event:
    marked = copy(event)
    _set(marked, unit=unit)
    return marked


def common_unit(events: Iterable[Event]) -> Unit:
    """Return the unit that all the events speak of; what is not private at all speaks of any.

    Raises
    ------
    ValueError
        If they differ: what holds for each row says nothing about a person with many.
    """
    known = tuple(events)
    units = {event.unit for event in known if not isinstance(event, NotPrivate)}
    if len(units) > 1:
        raise ValueError(
            "events must all speak of rows or all of persons; got both: what holds for each row says nothing about "
            "a person with many rows. Give groups= to every run."
        )
    units = units or {event.unit for event in known}
    return units.pop() if len(units) == 1 else "row"

r"""Public hints: what is known about a table without looking at it.

A codebook says that an age is between 0 and 120, a form that a column is 0 or 1, a protocol that ten columns are the
same measurement at ten sites. None of it is a secret, and a private fit that is told need not pay to find out. With few
rows that decides whether slopes can be fitted at all (docs/hints.md).

A hint is a *guess that is acted upon*, never a fact that is relied on: rows are clipped inside every query whatever was
said, so a wrong hint costs accuracy and no privacy. It is public, so it must not come from the rows: a range read off
the table is a release that nobody paid for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import exactly, real, within

Array = NDArray[np.float64]
Key = str | int
Range = tuple[float, float]

LARGEST = 1e100  # of an end of a range, and of the root of a moment
_FIELDS = {"ranges", "categories", "target_range", "moment", "exchangeable"}


@dataclass(frozen=True)
class Hints:
    """Public knowledge about the columns of a table and its target; for accuracy only.

    Parameters
    ----------
    ranges : mapping of column to (low, high), or sequence of such pairs, optional
        Where the values of a column lie. A column is a name or a position; a sequence has a pair, or None, for every
        column. Values beyond are moved to the nearer end.
    categories : mapping of column to values, optional
        The few numbers that a column takes, ``{"smoker": (0, 1)}``; at least two.
    target_range : (float, float), optional
        Where the targets lie. Predictions stay inside.
    moment : float, or mapping of column to float, optional
        Bound on the mean of ``x**2``, for all columns or for some: the paper's v. Within a factor of four of the truth
        it is as good as the truth.
    exchangeable : bool or sequence of groups of columns, default=False
        Groups of columns that have about the same distribution: they are located together, at the price of one. True
        is one group of all columns.

    Raises
    ------
    TypeError, ValueError
        If a hint cannot be one. Whether it is true is not checked, and cannot be: that would take the rows.

    Examples
    --------
    >>> import tailguard as tg
    >>> hints = tg.Hints(ranges={"age": (0, 120)}, categories={"smoker": (0, 1)}, target_range=(0, 1e5))
    >>> print(hints)
    age in [0, 120]; smoker one of 0, 1; target in [0, 100000]
    >>> tg.Hints.from_dict(hints.to_dict()) == hints
    True
    """

    ranges: Mapping[Key, Range] | Sequence[Range | None] | None = field(default=None, hash=False)
    categories: Mapping[Key, Sequence[float]] | None = field(default=None, hash=False)
    target_range: Range | None = None
    moment: float | Mapping[Key, float] | None = field(default=None, hash=False)
    exchangeable: bool | Sequence[Sequence[Key]] = field(default=False, hash=False)

    def __post_init__(self) -> None:
        checked = {
            "ranges": _ranges(self.ranges),
            "categories": _categories(self.categories),
            "target_range": None if self.target_range is None else _range("target_range", self.target_range),
            "moment": _moment(self.moment),
            "exchangeable": _groups(self.exchangeable),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def known(self, columns: int, names: Sequence[str] | None = None) -> Known:
        """Return what the hints say about every column of a table.

        Parameters
        ----------
        columns : int
            Their number.
        names : sequence of str, optional
            Their names, if they have any.

        Raises
        ------
        ValueError
            If a hint is about a column that the table does not have.
        """
        place = _Places(columns, names)
        lower, upper = np.full(columns, -np.inf), np.full(columns, np.inf)
        few, root, group = np.zeros(columns, bool), np.full(columns, np.inf), np.full(columns, -1)
        ranges: Any = self.ranges or {}
        if isinstance(ranges, tuple):
            if len(ranges) != columns:
                raise ValueError(f"ranges has {len(ranges)} pairs, but there are {columns} columns: give one for each")
            ranges = {j: pair for j, pair in enumerate(ranges) if pair is not None}
        for key, (low, high) in ranges.items():
            lower[place("ranges", key)], upper[place("ranges", key)] = low, high
        for key, values in (self.categories or {}).items():
            j = place("categories", key)
            lower[j], upper[j], few[j] = min(values), max(values), True
        if isinstance(self.moment, Mapping):
            for key, v in self.moment.items():
                root[place("moment", key)] = np.sqrt(v)
        elif self.moment is not None:
            root[:] = np.sqrt(self.moment)
        groups = [range(columns)] if self.exchangeable is True else self.exchangeable or []
        for k, members in enumerate(groups):
            for key in members:
                j = place("exchangeable", key)
                if group[j] >= 0:
                    raise ValueError(f"exchangeable names the column {key!r} twice: a column is in one group")
                group[j] = k
        return Known(lower, upper, few, root, group, self.target_range)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        ranges = self.ranges
        return {
            "ranges": [[key, list(pair)] for key, pair in ranges.items()] if isinstance(ranges, Mapping) else ranges,
            "categories": _pairs(self.categories),
            "target_range": self.target_range,
            "moment": _pairs(self.moment) if isinstance(self.moment, Mapping) else self.moment,
            "exchangeable": self.exchangeable,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Hints:
        """Return the hints that `to_dict` wrote.

        Parameters
        ----------
        data : mapping
            Plain data; it may come from a stranger.
        """
        found = exactly("hints", data, _FIELDS)
        ranges, moment = found["ranges"], found["moment"]
        # A sequence has a pair of numbers or None for each column, a mapping pairs of a column and such a pair.
        if isinstance(ranges, (list, tuple)) and all(_is_item(item) for item in ranges):
            found["ranges"] = _mapping("ranges", ranges)
        found["categories"] = _mapping("categories", found["categories"])
        found["moment"] = _mapping("moment", moment) if isinstance(moment, (list, tuple)) else moment
        return Hints(**found)

    def __str__(self) -> str:
        """Every hint, in words."""
        parts = []
        ranges = self.ranges or {}
        items = ranges.items() if isinstance(ranges, Mapping) else enumerate(ranges)
        parts += [f"{_name(key)} in {_interval(pair)}" for key, pair in items if pair is not None]
        for key, values in (self.categories or {}).items():
            parts.append(f"{_name(key)} one of {', '.join(f'{value:.15g}' for value in values)}")
        if self.target_range is not None:
            parts.append(f"target in {_interval(self.target_range)}")
        if isinstance(self.moment, Mapping):
            parts += [f"mean of {_name(key)}^2 at most {v:.15g}" for key, v in self.moment.items()]
        elif self.moment is not None:
            parts.append(f"mean of x^2 at most {self.moment:.15g}")
        if self.exchangeable is True:
            parts.append("all columns exchangeable")
        elif self.exchangeable:
            parts += [", ".join(_name(key) for key in group) + " exchangeable" for group in self.exchangeable]
        return "; ".join(parts) or "none"


@dataclass(frozen=True, eq=False)
class Known:
    """What is said about every column of one table, in arrays of one entry a column; public.

    Attributes
    ----------
    lower, upper : ndarray of shape (d,)
        Range; infinite where none was given.
    few : ndarray of bool
        Whether the column takes a few values only.
    root : ndarray of shape (d,)
        Root of the bound on the second moment; infinite where none was given.
    group : ndarray of int
        Number of the exchangeable group, -1 for none.
    target_range : (float, float) or None
        Of the targets.
    """

    lower: Array
    upper: Array
    few: NDArray[np.bool_]
    root: Array
    group: NDArray[np.int64]
    target_range: Range | None = None

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """Which columns have a range."""
        return np.isfinite(self.lower)

    @property
    def complete(self) -> bool:
        """Whether something is said about the scale of every column."""
        return bool(np.all(self.bounded | np.isfinite(self.root) | (self.group >= 0)))


class _Places:
    """Positions of columns by name or number."""

    def __init__(self, columns: int, names: Sequence[str] | None) -> None:
        self._columns = columns
        self._names = {} if names is None else {str(name): j for j, name in enumerate(names)}

    def __call__(self, hint: str, key: Key) -> int:
        if isinstance(key, str):
            if key in self._names:
                return self._names[key]
            known = f"they are {', '.join(map(repr, list(self._names)[:20]))}" if self._names else "they have no names"
            raise ValueError(f"{hint} is about a column {key!r} that the table does not have: {known}")
        if not 0 <= key < self._columns:
            raise ValueError(f"{hint} is about column {key}, but columns are numbered from 0 to {self._columns - 1}")
        return key


# ---------------------------------------------------------------- checks


def _key(hint: str, key: Any) -> Key:
    if isinstance(key, str):
        return key
    if isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_)):
        return int(key)
    raise TypeError(f"{hint} must name columns by text or by position; got {key!r}")


def _range(hint: str, pair: Any) -> Range:
    accepted = "a pair (low, high) of numbers, low < high"
    if not isinstance(pair, (tuple, list, np.ndarray)) or len(pair) != 2:
        raise TypeError(f"{hint} must be {accepted}; got {pair!r}")
    low, high = (within(hint, end, -LARGEST, LARGEST) for end in pair)
    if not low < high:
        raise ValueError(f"{hint} must be {accepted}; got {pair!r}")
    return low, high


def _ranges(value: Any) -> Any:
    if value is None or (isinstance(value, (Mapping, Sequence)) and not value):
        return None
    if isinstance(value, Mapping):
        return {_key("ranges", key): _range(f"ranges[{key!r}]", pair) for key, pair in value.items()}
    if not isinstance(value, (list, tuple, np.ndarray)) or any(isinstance(item, (int, float)) for item in value):
        raise TypeError(
            "ranges must be a mapping of columns to pairs (low, high), or a sequence with a pair or None for every "
            f"column; got {value!r}"
        )
    return tuple(None if pair is None else _range(f"ranges[{j}]", pair) for j, pair in enumerate(value))


def _categories(value: Any) -> Any:
    if value is None:
        return None
    accepted = "a mapping of columns to the numbers that they take, at least two, such as {'smoker': (0, 1)}"
    if not isinstance(value, Mapping):
        raise TypeError(f"categories must be {accepted}; got {value!r}")
    found = {}
    for key, values in value.items():
        hint = f"categories[{key!r}]"
        if not isinstance(values, (list, tuple, np.ndarray)):
            raise TypeError(f"{hint} must be a list of numbers, at least two; got {values!r}")
        numbers = tuple(within(hint, number, -LARGEST, LARGEST) for number in values)
        if len(set(numbers)) < 2:
            raise ValueError(f"{hint} must have at least two different numbers; got {values!r}")
        found[_key("categories", key)] = numbers
    return found


def _moment(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {_key("moment", key): _second(f"moment[{key!r}]", v) for key, v in value.items()}
    return _second("moment", value)


def _second(hint: str, value: Any) -> float:
    real(hint, value, "a number above 0, or a mapping of columns to such numbers")
    return within(hint, value, LARGEST**-2, LARGEST**2)


def _groups(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    accepted = "True, False or a list of groups of columns, such as [['t1', 't2'], ['x', 'y']]"
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"exchangeable must be {accepted}; got {value!r}")
    groups = []
    for group in value:
        if not isinstance(group, (list, tuple)) or not group:
            raise TypeError(f"exchangeable must be {accepted}; got the group {group!r}")
        groups.append(tuple(_key("exchangeable", key) for key in group))
    return tuple(groups)


# ---------------------------------------------------------------- words and plain data


def _name(key: Key) -> str:
    return key if isinstance(key, str) else f"column {key}"


def _interval(pair: Range) -> str:
    return f"[{pair[0]:.15g}, {pair[1]:.15g}]"


def _pairs(value: Mapping[Key, Any] | None) -> list[Any] | None:
    return None if value is None else [[key, item] for key, item in value.items()]


def _is_item(item: Any) -> bool:
    """Whether it is a column with its range, and not a range."""
    return isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[1], (list, tuple))


def _mapping(hint: str, items: Any) -> dict[Any, Any] | None:
    if items is None:
        return None
    if not isinstance(items, (list, tuple)) or not all(
        isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], (str, int)) for item in items
    ):
        raise TypeError(f"{hint} must be a list of pairs of a column and its hint")
    return dict(items)

r"""The schema of a table: what an analyst declares about its columns, so that nothing has to be learnt from its rows.

Which categories a column has, which labels a target has and whether a column holds numbers are inputs of a fit. Were
they read off the rows, one patient with a rare diagnosis would show in the shape of the model. So they are declared,
in a small TOML or JSON file::

    tailguard_schema = 1

    [csv]                          # how a CSV file is written; not needed for Parquet
    delimiter = ","
    decimal = "."

    [columns]
    age = "number"
    visits = "count"               # a number; as a target it asks for a Poisson model
    sex = ["female", "male"]       # categories, all of them
    patient_id = "ignore"

    [ranges]                       # optional: where numbers lie, as a codebook says; for accuracy (docs/hints.md)
    age = [0, 120]

A `Recipe` is the part of a schema that one model uses, and the map from cells to numbers. It is total: every cell has
a defined meaning, so no cell can raise.

=====================================================  =========================================
cell                                                   becomes
=====================================================  =========================================
a number, of a number or count column                  itself; infinite ones are truncated by the fit
empty, missing or not a number                         NaN: the released mean of the column
one of the listed categories                           1 in its indicator, 0 in the others
empty, missing or another category                     NaN in all indicators: their released means
target: missing, not a number or another label         NaN: the row contributes nothing to the steps
a line with too many or too few cells, or open quotes  missing: one line is one row (`tailguard.engines.csv`)
=====================================================  =========================================

Two categories become one indicator, of the second against the first. Three or more become an indicator each: no
reference is left out, because a private fit shrinks what it cannot tell from noise, and shrinking towards the average
row loses less than shrinking towards whichever category was listed first. ``tailguard fit`` then shifts them so
that the coefficients of one column add up to zero.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailguard._checks import one_of
from tailguard.engines.csv import check_delimiter
from tailguard.hints import Hints

VERSION = 1
NUMBER, COUNT, CATEGORY, IGNORE = "number", "count", "category", "ignore"
MAX_COLUMNS, MAX_CATEGORIES, MAX_TEXT = 100_000, 10_000, 1_000
_MAX_BYTES = 64 * 2**20

Category = str | bool | float


@dataclass(frozen=True)
class CsvFormat:
    """How numbers and cells of a CSV file are written; declared, never guessed from cells.

    Attributes
    ----------
    delimiter : str
        Between cells: one character.
    decimal : str
        Decimal mark of numbers, ``"."`` or ``","``.
    """

    delimiter: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        check_delimiter(self.delimiter)
        one_of("decimal", self.decimal, (".", ","))
        if self.decimal == self.delimiter:
            raise ValueError("decimal must differ from delimiter; got ',' for both")


COMMAS = CsvFormat()


@dataclass(frozen=True)
class Column:
    """One declared column.

    Attributes
    ----------
    name : str
        As in the file.
    kind : {"number", "count", "category", "ignore"}
        What its cells mean.
    categories : tuple
        Of a category column: texts, numbers or booleans, at least two.
    against_first : bool
        Whether the first of three categories or more has no indicator, as the first of two never has.
    """

    name: str
    kind: str = NUMBER
    categories: tuple[Category, ...] = ()
    against_first: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_TEXT:
            raise ValueError(f"the name of a column must be a text of 1 to {MAX_TEXT} characters")
        one_of(f"column {self.name!r}", self.kind, (NUMBER, COUNT, CATEGORY, IGNORE))
        if self.kind == CATEGORY:
            object.__setattr__(self, "categories", _categories(self.name, self.categories))

    @property
    def indicators(self) -> range:
        """Places of the categories that have an indicator."""
        return range(0 if self.reference is None else 1, len(self.categories))

    @property
    def reference(self) -> Category | None:
        """The category that the indicators are compared with."""
        return self.categories[0] if len(self.categories) == 2 or (self.against_first and self.categories) else None

    @property
    def width(self) -> int:
        """Number of features that the column becomes."""
        return {CATEGORY: len(self.indicators), IGNORE: 0}.get(self.kind, 1)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of those features: of indicators ``column=category``."""
        if self.kind != CATEGORY:
            return (self.name,) * self.width
        return tuple(f"{self.name}={shown(self.categories[k])}" for k in self.indicators)

    def declaration(self) -> Any:
        """What stands for the column in a schema file."""
        return list(self.categories) if self.kind == CATEGORY else self.kind

    @staticmethod
    def declared(name: str, value: Any) -> Column:
        """Return the column that an entry of a schema file declares."""
        if isinstance(value, list):
            return Column(name, CATEGORY, tuple(value))
        if value not in (NUMBER, COUNT, IGNORE):
            got = f"; got {value!r}" if isinstance(value, (str, bool, int, float)) else ""
            raise ValueError(
                f'column {name!r} must be "number", "count", "ignore" or the list of its public categories, such as '
                f'["no", "yes"]{got}'
            )
        return Column(name, value)


def _ranges(schema: TableSchema, data: Any) -> dict[str, tuple[float, float]]:
    """Check the declared ranges: of numbers and counts, each a pair."""
    if not isinstance(data, dict):
        raise ValueError("ranges must be a table of columns and pairs, such as  age = [0, 120]")
    for name in data:
        if name not in schema.columns or schema.columns[name].kind not in (NUMBER, COUNT):
            raise ValueError(f"ranges is about {name!r}, which is not declared as a number or a count")
    return dict(Hints(ranges=data).ranges or {})  # type: ignore[arg-type]


def _categories(name: str, values: Sequence[Any]) -> tuple[Category, ...]:
    """Check the categories of a column: one type, all different."""
    if len(values) < 2:
        raise ValueError(
            f"column {name!r} lists {len(values)} categories: list all that the public may know of, at least two, or "
            'write "ignore"'
        )
    if len(values) > MAX_CATEGORIES:
        raise ValueError(f"column {name!r} lists {len(values)} categories: at most {MAX_CATEGORIES} are accepted")
    if all(isinstance(value, bool) for value in values):
        found: tuple[Category, ...] = tuple(values)
    elif all(isinstance(value, str) for value in values):
        texts = [value.strip() for value in values]
        found = tuple(texts)
        if not all(0 < len(text) <= MAX_TEXT for text in texts):
            raise ValueError(f"column {name!r}: a category must be a text of 1 to {MAX_TEXT} characters")
    elif all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        if not all(abs(value) < 2**53 for value in values):  # refuses NaN too
            raise ValueError(f"column {name!r}: a number among its categories must be below 2**53 in size")
        found = tuple(float(value) for value in values)
    else:
        raise ValueError(f"column {name!r}: its categories must be all texts, all numbers or all true and false")
    if len(set(found)) < len(found):
        raise ValueError(f"column {name!r} lists a category twice")
    return found


def shown(category: Category) -> str:
    """A category as people write it: ``2``, not ``2.0``."""
    if isinstance(category, bool):
        return "true" if category else "false"
    return f"{category:.15g}" if isinstance(category, float) else category


def label_names(classes: Any) -> list[str]:
    """The labels of a fitted classifier as people write them."""
    return [shown(label) if isinstance(label, (bool, float)) else str(label) for label in classes.tolist()]


@dataclass(frozen=True)
class TableSchema:
    """All that is declared about a table.

    Attributes
    ----------
    columns : dict of str to Column
        By name, in the order of the file.
    csv : CsvFormat
        How the file is written, if it is CSV.
    ranges : dict of str to (float, float)
        Where the numbers of some columns lie: public hints.
    """

    columns: dict[str, Column] = field(default_factory=dict, hash=False)
    csv: CsvFormat = COMMAS
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict, hash=False)

    def hints(self, recipe: Recipe) -> Hints | None:
        """Return the hints for a model of some of the columns, if ranges are declared; indicators are 0 or 1."""
        if not self.ranges:
            return None
        indicators = [name for column in recipe.features if column.kind == CATEGORY for name in column.feature_names]
        return Hints(
            ranges={column.name: self.ranges[column.name] for column in recipe.features if column.name in self.ranges},
            categories=dict.fromkeys(indicators, (0.0, 1.0)),
            target_range=None if recipe.target.kind == CATEGORY else self.ranges.get(recipe.target.name),
        )

    @staticmethod
    def of(columns: Iterable[Column], csv: CsvFormat | None = None) -> TableSchema:
        """Return the schema of some columns."""
        return TableSchema({column.name: column for column in columns}, csv or COMMAS)

    @staticmethod
    def read(path: Path) -> TableSchema:
        """Read a schema file, TOML or JSON by its suffix.

        Raises
        ------
        ValueError
            In one sentence, if the file is not a schema of this version.
        """
        if path.suffix.lower() not in (".toml", ".json"):
            raise ValueError(f"{path.name}: a schema file must end in .toml or .json")
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"{path.name} is larger than a schema can be")
        content = path.read_bytes()
        try:
            text = content.decode("utf-8-sig")
            data = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
        except UnicodeDecodeError:
            raise ValueError(f"{path.name} is not UTF-8: save it again as UTF-8") from None
        except RecursionError:
            raise ValueError(f"{path.name} is not a schema: it is nested too deeply") from None
        except ValueError as error:  # both parsers say line and column
            raise ValueError(f"{path.name} is not valid {path.suffix[1:].upper()}: {error}") from None
        try:
            return TableSchema.from_dict(data)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path.name}: {error}") from None

    @staticmethod
    def from_dict(data: Any) -> TableSchema:
        """Check a schema that was read from JSON or TOML."""
        if not isinstance(data, dict) or "tailguard_schema" not in data:
            raise ValueError("not a schema: it has no line  tailguard_schema = 1  (tailguard schema writes one)")
        version = data["tailguard_schema"]
        if version != VERSION or isinstance(version, bool):
            raise ValueError(f"tailguard_schema must be {VERSION}; got {version!r} (from a newer tailguard?)")
        for name in data.keys() - {"tailguard_schema", "csv", "columns", "ranges"}:
            raise ValueError(f"{name!r} is not a part of a schema: it has tailguard_schema, csv, columns and ranges")
        csv, columns = data.get("csv", {}), data.get("columns", {})
        if not isinstance(csv, dict) or csv.keys() - {"delimiter", "decimal"}:
            raise ValueError("csv must hold delimiter and decimal only")
        if not isinstance(columns, dict) or len(columns) > MAX_COLUMNS:
            raise ValueError(f"columns must be a table of at most {MAX_COLUMNS} names")
        found = TableSchema.of((Column.declared(name, value) for name, value in columns.items()), CsvFormat(**csv))
        return replace(found, ranges=_ranges(found, data.get("ranges", {})))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "tailguard_schema": VERSION,
            "csv": {"delimiter": self.csv.delimiter, "decimal": self.csv.decimal},
            "columns": {name: column.declaration() for name, column in self.columns.items()},
            **({"ranges": {name: list(pair) for name, pair in self.ranges.items()}} if self.ranges else {}),
        }


WHY = """\
Written by `tailguard schema` from the column names{types} alone. It does not look at values: which categories occur,
which cells are missing and how large numbers are would be facts about the people in the table, and would leave it
without any privacy. So you declare what is public:

  "number"       a number; a cell that is no number counts as missing
  "count"        the same; as a target it asks for a Poisson model
  ["no", "yes"]  the public categories, all of them; others count as missing
  "ignore"       not used: identifiers, dates, free text

List the categories that a codebook or a form names, not those that you see in the table.
A column that is not listed is not used."""


def template(proposals: Mapping[str, str], csv: CsvFormat | None, *, types: bool, as_json: bool = False) -> str:
    """Return the text of a schema to be edited.

    Parameters
    ----------
    proposals : mapping of str to str
        A kind for every column; ``"category"`` becomes an empty list to fill in.
    csv : CsvFormat, optional
        For CSV files.
    types : bool
        Whether the file declares types, as Parquet does.
    as_json : bool
        JSON, which has no comments, in place of TOML.
    """
    blank = {name: [] if kind == CATEGORY else kind for name, kind in proposals.items()}
    if as_json:
        document: dict[str, Any] = {"tailguard_schema": VERSION}
        if csv is not None:
            document["csv"] = {"delimiter": csv.delimiter, "decimal": csv.decimal}
        return json.dumps(document | {"columns": blank}, indent=2, ensure_ascii=False) + "\n"
    why = WHY.format(types=" and types" if types else "")
    lines = [f"# {line}".rstrip() for line in why.splitlines()]
    lines += ["", f"tailguard_schema = {VERSION}", ""]
    if csv is not None:
        lines += ["[csv]", f"delimiter = {_quoted(csv.delimiter)}", f"decimal = {_quoted(csv.decimal)}", ""]
    lines += ["[columns]"]
    for name, kind in blank.items():
        lines.append(
            f"{_quoted(name)} = {_quoted(kind)}"
            if kind
            else f'{_quoted(name)} = []  # text: list its public categories, or write "ignore"'
        )
    return "\n".join(lines) + "\n"


def _quoted(text: Any) -> str:
    """A TOML basic string; its escapes are those of JSON, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True)
class Recipe:
    """The columns that a model uses and how their cells become numbers; public, and part of its file.

    Attributes
    ----------
    features : tuple of Column
        In the order of the file.
    target : Column
        What is predicted.
    csv : CsvFormat
        Decimal mark and delimiter of CSV files.
    persons : str or None
        The column that said whose row it is, where the unit of the fit was a person.
    """

    features: tuple[Column, ...]
    target: Column
    csv: CsvFormat = COMMAS
    persons: str | None = None

    def __post_init__(self) -> None:
        names = [column.name for column in (*self.features, self.target)]
        if len(set(names)) < len(names):
            raise ValueError("the features and the target must be different columns, each named once")
        made = (*self.feature_names, self.target.name)
        if len(set(made)) < len(made):
            raise ValueError("two features would have one name, such as sex=male: rename a column")
        if self.width < 1:
            raise ValueError("a model needs at least one feature: declare or name some columns beside the target")
        if self.width > MAX_COLUMNS:
            raise ValueError(f"the columns become {self.width} features: at most {MAX_COLUMNS} are accepted")
        if self.target.kind == IGNORE:
            raise ValueError(f"the target {self.target.name!r} is declared as ignored")

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(column.width for column in self.features)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(name for column in self.features for name in column.feature_names)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read for the features."""
        return tuple(column.name for column in self.features)

    @property
    def classes(self) -> tuple[Category, ...]:
        """The labels of a category target, sorted as scikit-learn sorts them."""
        return tuple(sorted(self.target.categories))

    def compared(self) -> Recipe:
        """Return the recipe with every category compared with the first of its column.

        With an indicator for each of three categories and an intercept one coefficient could move and the others with
        it: predictions do not mind, intervals are infinite.
        """
        features = (replace(column, against_first=column.kind == CATEGORY) for column in self.features)
        return replace(self, features=tuple(features))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        found: dict[str, Any] = {
            "csv": {"delimiter": self.csv.delimiter, "decimal": self.csv.decimal},
            "features": [[column.name, column.declaration()] for column in self.features],
            "target": [self.target.name, self.target.declaration()],
        }
        if self.persons is not None:
            found["persons"] = self.persons
        if any(column.against_first for column in self.features):
            found["against_first"] = True
        return found

    @staticmethod
    def from_dict(data: Any) -> Recipe:
        """Rebuild a recipe from :meth:`to_dict`, checking everything."""
        needed = {"csv", "features", "target"}
        if not isinstance(data, dict) or data.keys() - {"persons", "against_first"} != needed:
            raise ValueError("the table must hold csv, features and target")
        pairs = [data["target"], *(data["features"] if isinstance(data["features"], list) else [None])]
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs) or len(pairs) > MAX_COLUMNS + 1:
            raise ValueError("features and target must be pairs of a name and its declaration")
        target, *features = (Column.declared(name, value) for name, value in pairs)
        csv = data["csv"]
        if not isinstance(csv, dict) or csv.keys() != {"delimiter", "decimal"}:
            raise ValueError("csv must hold delimiter and decimal")
        persons = Column(data["persons"]).name if "persons" in data else None
        recipe = Recipe(tuple(features), target, CsvFormat(**csv), persons)
        if "against_first" in data and data["against_first"] is not True:
            raise ValueError("against_first must be true, or left out")
        return recipe.compared() if "against_first" in data else recipe


def choose(
    schema: TableSchema,
    target: str,
    features: Sequence[str] | None = None,
    without: Sequence[str] = (),
) -> Recipe:
    """Choose the columns of a model by name.

    Parameters
    ----------
    schema : TableSchema
        What is declared.
    target : str
        Column to predict.
    features : sequence of str, optional
        Columns to predict from; default all declared ones that are not ignored.
    without : sequence of str
        Columns to leave out of them.

    Raises
    ------
    ValueError
        With the nearest names, if one is not declared.
    """
    for name in (target, *(features or ()), *without):
        if name not in schema.columns:
            raise ValueError(f"there is no column {name!r}{nearest(name, schema.columns)}")
    if features is None:
        chosen = [column for column in schema.columns.values() if column.kind != IGNORE and column.name != target]
    else:
        chosen = [schema.columns[name] for name in dict.fromkeys(features)]
        for column in chosen:
            if column.kind == IGNORE:
                raise ValueError(f'column {column.name!r} is declared as "ignore": declare it, or leave it out')
    kept = tuple(column for column in chosen if column.name not in set(without))
    return Recipe(kept, schema.columns[target], schema.csv)


def nearest(name: str, names: Iterable[str]) -> str:
    """``; did you mean ...?`` and the first names."""
    from difflib import get_close_matches

    known = list(names)
    close = get_close_matches(name, known, 1) or [other for other in known if other.lower() == name.lower()][:1]
    if close:
        return f"; did you mean {close[0]!r}?"
    listed = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    return f": the columns are {listed}" if known else ": no columns are declared"

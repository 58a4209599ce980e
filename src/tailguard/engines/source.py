"""Rows in files, for data that is larger than memory."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._checks import count, one_of
from tailguard.engines import arrow, files
from tailguard.engines.csv import check_delimiter
from tailguard.engines.labels import places

MEMORY = 2**29


class Source:
    """Rows in Parquet, Arrow or CSV files, or in a table of Arrow, to fit from without loading them.

    Wherever the library takes rows ``X``, it takes a source, a path or an Arrow table; the target is then the name
    of a column: ``model.fit("claims.parquet", y="cost")``. A source says more: which columns, and how much memory.

    Rows are read in blocks, ahead of the computation, once for every pass over the data; a fit makes tens of them.
    Rows that fit into ``memory`` are read once and kept. The fitted model is the same to the last bit either way.

    Parameters
    ----------
    data : path, list of paths, pyarrow.dataset.Dataset or pyarrow.Table
        A file, a folder of files or a pattern such as ``"claims/*.parquet"``. CSV may be compressed (``.csv.gz``).
    columns : str or list of str, optional
        Features, in this order; default all columns but the target. A single name makes rows of one dimension, so that
        `private_mean` returns a number.
    target : str, optional
        Name of the target; the ``y`` of a fit may name it instead.
    format : {"parquet", "arrow", "csv"}, optional
        Default by the ending of the file; Parquet for a folder.
    types : dict of str to {"number", "text"}, optional
        For CSV, whose columns are numbers unless declared text. Text can only be a classifier's target.
    delimiter : str, optional
        What is between the cells of a CSV; default a tab if the file ends in ``.tsv``, else what its first line
        shows: a comma or, where that has none, a semicolon, a tab or a bar.
    memory : int, default=2**29
        Bytes up to which the rows are kept in memory; 0 always reads them anew.

    Notes
    -----
    Types are public: a column that does not hold numbers is refused from the schema. Values are not: a null is missing,
    and so is a cell of CSV that is not a number. The number of rows is public and comes from metadata; a CSV has none
    and is read once to count its lines, each of which is a row, whatever it says.

    Examples
    --------
    >>> import tailguard as tg
    >>> rows = tg.Source("claims/*.parquet", columns=["age", "conditions"], target="cost")  # doctest: +SKIP
    >>> tg.PrivateRidge(epsilon=1.0).fit(rows)  # doctest: +SKIP
    """

    def __init__(
        self,
        data: Any,
        columns: str | Sequence[str] | None = None,
        *,
        target: str | None = None,
        format: str | None = None,
        types: Mapping[str, str] | None = None,
        delimiter: str | None = None,
        memory: int = MEMORY,
    ) -> None:
        if format is not None:
            one_of("format", format, files.FORMATS)
        for name, kind in (types or {}).items():
            one_of(f"types[{name!r}]", kind, ("number", "text"))
        self.memory = count("memory", memory, least=0)
        if delimiter is not None:
            check_delimiter(delimiter)
        self._batches = files.open_batches(data, format, types, delimiter)
        self._choose(columns, target)

    def _choose(self, columns: str | Sequence[str] | None, target: str | None) -> None:
        if target is not None:
            self._check_name("target", target)
        self.ndim = 1 if isinstance(columns, str) else 2
        self.target = target
        self._columns = columns
        if columns is None:
            names = [name for name in self.all_names if name != target]
        else:
            names = [columns] if isinstance(columns, str) else list(columns)
        absent = [name for name in names if isinstance(name, str) and name not in self._batches.types]
        if len(absent) > 1:
            raise ValueError(f"columns names {files.listed(absent)}: there is {files.listed(self.all_names)}.")
        for name in names:
            self._check_name("columns", name)
            if name == target:
                raise ValueError(f"columns names the target {target!r}: leave it out, it is what is to be predicted.")
        if not names or len(set(names)) < len(names):
            raise ValueError("columns must name at least one column, each once; give a list of names.")
        self.names = tuple(names)

    def _check_name(self, argument: str, name: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{argument} must be the name of a column, a str; got {name!r}")
        if name not in self._batches.types:
            raise ValueError(f"{argument} names the column {name!r}: there is {files.listed(self.all_names)}.")

    def select(self, columns: str | Sequence[str] | None = None, target: str | None = None) -> Source:
        """Return the same rows with other columns.

        Parameters
        ----------
        columns : str or list of str, optional
            Features; default all but the target.
        target : str, optional
            Name of the target.

        Returns
        -------
        Source
            Files are not opened or counted again.
        """
        chosen = object.__new__(Source)
        chosen.memory, chosen._batches = self.memory, self._batches
        chosen._choose(columns, target)
        return chosen

    def with_target(self, target: str) -> Source:
        """Return the same rows with a target; it is no feature unless the columns name it.

        Parameters
        ----------
        target : str
            Name of the target.

        Returns
        -------
        Source
            Of the same files.
        """
        return self.select(self._columns, target)

    def without(self, *names: str) -> Source:
        """Return the same rows with these columns no longer among the features.

        Parameters
        ----------
        *names : str
            Columns that are something else, such as whose row it is.

        Returns
        -------
        Source
            Of the same files.
        """
        columns = self._columns if self.ndim == 1 else [name for name in self.names if name not in names]
        return self.select(columns, self.target)

    def ids(self, name: str) -> NDArray[Any]:
        """Return a column in memory as it is, numbers as numbers and text as text, None for a null.

        Parameters
        ----------
        name : str
            The column; cells of a CSV are text.

        Returns
        -------
        ndarray of object
            One value for each row.
        """
        self._check_name("groups", name)
        return cells_of(self._batches, name)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of all columns of the files."""
        return tuple(self._batches.types)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self._batches.rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the number of features unless a single column was named."""
        return (self.n,) if self.ndim == 1 else (self.n, len(self.names))

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 if all features are, else float64."""
        kinds = [self._batches.types[name] for name in self.names]
        return np.dtype(np.float32 if all(map(arrow.is_float32, kinds)) else np.float64)

    def check_features(self) -> None:
        """Refuse features that are not numbers, from their types."""
        for name in self.names:
            kind = self._batches.types[name]
            if not arrow.is_number(kind):
                raise TypeError(
                    f"column {name!r} has type {kind}: features must be numbers; encode it first, or leave it out with "
                    "columns=[...]."
                )

    def check_target(self, labels: bool = False) -> None:
        """Refuse a target that is not a number or, for labels, text."""
        kind = self._batches.types[str(self.target)]
        if not (arrow.is_number(kind) or (labels and arrow.is_text(kind))):
            raise TypeError(
                f"target {self.target!r} has type {kind}: give a column of numbers"
                + (" or text." if labels else "; only a classifier takes text.")
            )

    def read(self, size: int, target: bool, classes: Sequence[Any] | None = None) -> Generator[Part]:
        """Yield the columns of the next rows, and their target: a number, a label, or its place among the classes."""
        names = [*self.names, str(self.target)] if target else list(self.names)
        for batch in self._batches.read(names, size):
            columns = [arrow.numbers(batch.column(j)) for j in range(len(self.names))]
            yield columns, self._target_of(batch.column(len(columns)), classes) if target else None

    def read_labels(self, most: int = 10_000) -> set[Any]:
        """Return the distinct values of the target, None for a null; after ``most`` of them it looks no further."""
        found: set[Any] = set()
        for batch in self._batches.read([str(self.target)], 2**16):
            found |= set(self._target_of(batch.column(0).unique(), None).tolist())
            if len(found) > most:
                break
        return found

    def _target_of(self, column: Any, classes: Sequence[Any] | None) -> NDArray[Any]:
        if classes is not None:
            # A column of CSV that was declared a number comes as text, and is compared as a number.
            text = arrow.is_text(self._batches.types[str(self.target)])
            return arrow.label_places(column, classes) if text else places(arrow.numbers(column), classes)
        if arrow.is_text(self._batches.types[str(self.target)]):
            return np.array(arrow.texts(column), dtype=object)
        return arrow.numbers(column)

    def __repr__(self) -> str:
        target = "" if self.target is None else f", target={self.target!r}"
        return f"Source({len(self.names)} columns{target})"


def cells_of(batches: files.Batches, name: str) -> NDArray[Any]:
    """Return one column in memory, as objects; bytes that are no text are replaced, None is a null."""
    found: list[Any] = []
    for batch in batches.read([name], 2**16):
        column = batch.column(0)
        found += arrow.texts(column) if arrow.is_text(column.type) else column.to_pylist()
    cells = np.empty(len(found), dtype=object)
    cells[:] = found
    return cells


# Features of some rows, a list of columns or a matrix, and their targets.
Part = tuple[list[NDArray[Any]] | NDArray[Any], NDArray[Any] | None]

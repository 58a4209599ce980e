"""Tables in files, CSV and Parquet: names and types at once, rows block by block.

A file is opened without a look at its rows: the names of a CSV are its first line, a Parquet file has its own list of
names and types. Blocks hold a bounded number of rows, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from tailguard._optional import import_optional
from tailguard.tables.csv_files import CsvFile, shown_format
from tailguard.tables.schema import CATEGORY, IGNORE, NUMBER, CsvFormat

BLOCK_ROWS = 2**16  # of Parquet


class TableFile(Protocol):
    """A table in a file."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""

    @property
    def proposals(self) -> dict[str, str]:
        """A kind for every column, from names and types."""

    @property
    def typed(self) -> bool:
        """Whether the file declares types."""

    @property
    def rows(self) -> int:
        """Number of rows, which is public."""

    def blocks(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of these columns, in the order of the rows."""


def open_table(path: Path, csv_format: CsvFormat | None = None) -> TableFile:
    """Open a table by the end of its name.

    Parameters
    ----------
    path : Path
        ``.csv``, ``.csv.gz``, ``.tsv``, ``.txt`` or ``.parquet``.
    csv_format : CsvFormat, optional
        How a CSV file is written; by default commas, or what its first line shows where that has none.

    Raises
    ------
    ValueError
        If the name says nothing, or the file is not what its name says.
    """
    name = path.name.lower()
    plain = name.removesuffix(".gz")
    if plain.endswith((".csv", ".tsv", ".txt")):
        return CsvFile(path, csv_format or shown_format(path))
    if name.endswith((".parquet", ".pq")):
        return ParquetFile(path)
    raise ValueError(f"{path.name}: give a table whose name ends in .csv, .csv.gz, .tsv, .txt or .parquet")


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file; its metadata say names, types and the number of rows. Its statistics are not read."""

    path: Path

    def __post_init__(self) -> None:
        import_optional("pyarrow.parquet", "arrow")
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"{self.path.name} has two columns of one name: rename one")

    @cached_property
    def _types(self) -> dict[str, Any]:
        schema = self._file.schema_arrow
        return dict(zip(schema.names, schema.types, strict=True))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._file.schema_arrow.names)

    @property
    def proposals(self) -> dict[str, str]:
        """By type: numbers are numbers, texts and booleans categories, the rest is ignored."""
        return {name: _proposal(kind) for name, kind in self._types.items()}

    @property
    def typed(self) -> bool:
        """Types are in the metadata."""
        return True

    @property
    def rows(self) -> int:
        """Number of rows, from the metadata."""
        return int(self._file.metadata.num_rows)

    @cached_property
    def _file(self) -> Any:
        from pyarrow import ArrowException, parquet

        with self.path.open("rb"):  # a missing or forbidden file is said in the system's words
            pass
        try:
            # Through a small buffer: a file may be a single row group that is larger than memory.
            return parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=2**20)
        except ArrowException:
            raise ValueError(f"{self.path.name} is not a complete Parquet file: copy it again") from None

    def blocks(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of these columns."""
        from pyarrow import ArrowException

        for name in columns:
            if _proposal(self._types[name]) == IGNORE:
                raise ValueError(
                    f"{self.path.name}: column {name!r} has type {self._types[name]}: give numbers, texts or booleans"
                )
        try:
            yield from self._file.iter_batches(BLOCK_ROWS, columns=list(columns), use_threads=False)
        except ArrowException:  # whose words may repeat values
            raise ValueError(f"{self.path.name} is damaged: copy it again") from None


def _proposal(kind: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(kind) or types.is_decimal(kind) or types.is_integer(kind):
        return NUMBER
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_boolean)
    return CATEGORY if any(is_text(kind) for is_text in texts) else IGNORE

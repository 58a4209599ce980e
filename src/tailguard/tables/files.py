"""Tables in files, CSV and Parquet: names and types at once, rows block by block.

A file is opened without a look at its rows: the names of a CSV are its first line, a Parquet file has its own list of
names and types. Blocks hold a bounded number of rows, whatever the size of the file. `tailguard.engines.csv` and
`tailguard.engines.files` do the reading, here and for `tailguard.Source`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tailguard._optional import import_optional
from tailguard.engines.csv import CsvBatches
from tailguard.engines.files import ArrowBatches, Batches, is_csv, quietly
from tailguard.tables.schema import CATEGORY, IGNORE, NUMBER, CsvFormat

BLOCK_ROWS = 2**16


@dataclass(frozen=True)
class TableFile:
    """A table in a file.

    Attributes
    ----------
    path : Path
        Where it is.
    batches : Batches
        Its rows, again and again.
    csv : CsvFormat or None
        How a CSV file is written; None for Parquet.
    """

    path: Path
    batches: Batches
    csv: CsvFormat | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self.batches.types)

    @property
    def typed(self) -> bool:
        """Whether the file declares types, as Parquet does."""
        return self.csv is None

    @cached_property
    def proposals(self) -> dict[str, str]:
        """A kind for every column: by its type, or number where there is none and cells are not looked at."""
        return {name: _proposal(kind) if self.typed else NUMBER for name, kind in self.batches.types.items()}

    @property
    def rows(self) -> int:
        """Number of rows, which is public."""
        return self.batches.rows

    def blocks(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of these columns, in the order of the rows; cells of a CSV are text."""
        for name in columns:
            if self.proposals[name] == IGNORE:
                kind = self.batches.types[name]
                raise ValueError(f"{self.path.name}: column {name!r} has type {kind}: give numbers, texts or booleans")
        return self.batches.read(columns, BLOCK_ROWS)


def open_table(path: Path, csv_format: CsvFormat | None = None) -> TableFile:
    """Open a table by the end of its name.

    Parameters
    ----------
    path : Path
        ``.csv``, ``.tsv`` or ``.txt``, each also compressed as in ``.csv.gz``, or ``.parquet``.
    csv_format : CsvFormat, optional
        How a CSV file is written; by default commas, or what its first line shows where that has none.

    Raises
    ------
    ValueError
        If the name says nothing, or the file is not what its name says.
    """
    name = path.name.lower()
    if is_csv(name):
        batches = CsvBatches([str(path)], {}, None if csv_format is None else csv_format.delimiter)
        return TableFile(path, batches, csv_format or CsvFormat(batches.delimiter))
    if name.endswith((".parquet", ".pq")):
        with path.open("rb"):  # a missing or forbidden file is said in the system's words
            pass
        datasets = import_optional("pyarrow.dataset", "arrow")
        dataset = quietly(repr(str(path)), lambda: datasets.dataset(path, format="parquet"))
        return TableFile(path, ArrowBatches(dataset, repr(str(path))))
    raise ValueError(f"{path.name}: give a table whose name ends in .csv, .csv.gz, .tsv, .txt or .parquet")


def _proposal(kind: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_floating(kind) or types.is_decimal(kind) or types.is_integer(kind):
        return NUMBER
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_boolean)
    return CATEGORY if any(is_text(kind) for is_text in texts) else IGNORE

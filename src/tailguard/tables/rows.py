"""Rows for a fit: numbers that are made from a table block by block, as a `Source`.

The fit decides how often it reads them. Rows that fit into the memory of the source are made once, others on every
pass, so a table may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard.engines.source import MEMORY, Source, cells_of
from tailguard.tables.cells import encode_rows
from tailguard.tables.files import TableFile
from tailguard.tables.schema import Recipe
from tailguard.tables.scratch import Scratch

Array = NDArray[np.float64]
Progress = Callable[[int], None]

_BLOCK_VALUES = 2**21  # made at a time: 16 MiB


class DerivedRows:
    """Numbers made from the rows of a table, block by block, for `Source`.

    They are made anew on every pass, or kept in a scratch file by the first one.

    Parameters
    ----------
    table : TableFile
        Where the rows are.
    columns : sequence of str
        Columns to read.
    names : sequence of str
        Names of the numbers.
    function : callable
        Of a block: a matrix with a row for every row and a column for every name. It must not raise on values.
    progress : callable, optional
        Called with the rows of every block, and with 0 where a pass begins.
    scratch : bool
        Whether to keep them, for tables that are slow to read.
    """

    def __init__(
        self,
        table: TableFile,
        columns: Sequence[str],
        names: Sequence[str],
        function: Callable[[Any], Array],
        progress: Progress | None = None,
        scratch: bool = False,
    ) -> None:
        import pyarrow as pa

        self.types = dict.fromkeys(names, pa.float64())
        self._table, self._columns, self._function = table, tuple(columns), function
        self._progress = progress or (lambda rows: None)
        self._scratch = scratch
        self._kept: Scratch | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._table.rows

    def read(self, names: Sequence[str], size: int) -> Generator[Any]:
        """Record batches of these numbers, of at most ``size`` rows."""
        import pyarrow as pa

        order = list(self.types)
        chosen = [order.index(name) for name in names]
        self._progress(0)
        for columns in self._made(chosen, size) if self._kept is None else self._kept.blocks(chosen):
            for start in range(0, len(columns[0]), size):
                part = [column[start : start + size] for column in columns]
                yield pa.record_batch(part, names=list(names))
                self._progress(len(part[0]))

    def _made(self, chosen: list[int], size: int) -> Iterator[list[Array]]:
        """Make the numbers; a pass that comes to its end may leave them in the scratch file."""
        size = min(size, max(1024, _BLOCK_VALUES // len(self.types)))
        scratch = Scratch() if self._scratch else None
        for block in self._table.blocks(self._columns):
            for start in range(0, block.num_rows, size):
                values = self._function(block.slice(start, size))
                if scratch is not None:
                    scratch.append(values)
                yield [values[:, j] for j in chosen]
        self._kept = scratch


class _DerivedSource(Source):
    """A source over rows that are made from others."""

    def __init__(self, rows: DerivedRows, columns: Sequence[str], target: str | None, memory: int) -> None:
        self.memory = memory
        self._batches = rows
        self._choose(list(columns), target)


def derived_source(
    rows: DerivedRows, columns: Sequence[str], target: str | None = None, memory: int = MEMORY
) -> Source:
    """Return a source of made rows, for a fit or a mean; up to ``memory`` bytes of them are kept."""
    return _DerivedSource(rows, columns, target, memory)


def read_ids(table: TableFile, column: str) -> NDArray[Any]:
    """Return a column of a table as it is, for `groups`: cells of a CSV as text, None for an empty one."""
    return cells_of(table.batches, column)


def training_rows(table: TableFile, recipe: Recipe, memory: int = MEMORY, progress: Progress | None = None) -> Source:
    """Return features and target of a table, as a recipe says; the target has the name of its column."""
    names = [*recipe.feature_names, recipe.target.name]
    columns = [*recipe.columns, recipe.target.name]
    # What is not kept in memory is read many times: a CSV, slow to read, is written to a scratch file once.
    scratch = not table.typed and 8 * table.rows * len(names) > memory
    rows = DerivedRows(table, columns, names, lambda block: encode_rows(recipe, block), progress, scratch)
    return derived_source(rows, recipe.feature_names, recipe.target.name, memory)

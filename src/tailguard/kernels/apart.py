"""Columns that lie apart in memory, as Arrow has them: kernels read them where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Apart(NamedTuple):
    """A table whose column j begins ``offsets[j]`` entries after its first one; entries of a column are neighbours.

    Whoever makes it keeps the columns until the kernel is done: only the first is held by it.
    """

    first: NDArray[Any]
    offsets: NDArray[np.int64]

    @staticmethod
    def of(columns: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> Apart | None:
        """Return these columns as a table, or None if they are not all plain arrays of that type."""
        starts = np.array([column.ctypes.data for column in columns])
        if any(column.dtype != dtype or not column.flags.c_contiguous for column in columns):
            return None
        if np.any(starts % dtype.itemsize):
            return None
        first = columns[0].view()
        first.flags.writeable = False  # one compiled kernel serves all
        return Apart(first, (starts - starts[0]) // dtype.itemsize)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.first), len(self.offsets)

    def rows(self, some: slice) -> Apart:
        """Return some of the rows."""
        return Apart(self.first[some], self.offsets)

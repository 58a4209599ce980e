"""A scratch file for rows that are slow to make: written on the first pass, read on all others.

To read a CSV is to parse it, which takes longer than all the rest of a pass. The file has no name: the system drops it
when the process ends, however it ends, and nobody can open it in between. It needs as much disk, in the folder that
TMPDIR names, as the numbers take: 8 bytes each.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Scratch:
    """Blocks of rows in a nameless file, column by column; it can be read in several threads at once."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tailguard-")  # noqa: SIM115 (open as long as the object lives)
        weakref.finalize(self, self._file.close)
        self._lengths: list[int] = []
        self._width = 0

    def append(self, block: Array) -> None:
        """Write a block, (rows, columns)."""
        self._file.write(np.asfortranarray(block).tobytes(order="F"))
        self._lengths.append(len(block))
        self._width = block.shape[1]

    def blocks(self, columns: list[int]) -> Iterator[list[Array]]:
        """Yield these columns of every block."""
        self._file.flush()
        start = 0
        for length in self._lengths:
            yield [self._read(start + 8 * length * j, length) for j in columns]
            start += 8 * length * self._width

    def _read(self, start: int, length: int) -> Array:
        content = os.pread(self._file.fileno(), 8 * length, start)
        if len(content) < 8 * length:
            raise OSError("the scratch file is cut off: is the disk of the temporary folder full?")
        return np.frombuffer(content)

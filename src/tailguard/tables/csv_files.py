r"""CSV files with a header line, also gzipped: one line is one row, whatever is in it.

A line that cannot be a row (too many or too few cells, quotes that do not close) becomes a row of missing values, so
the number of rows is the number of lines and nothing in a row can change it, end the reading or move another row. For
the same reason a quoted cell cannot hold a line break; it may hold the delimiter.

Cells are bytes, as written; `tailguard.tables.cells` makes them numbers.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tailguard._optional import import_optional
from tailguard.tables.schema import COMMAS, NUMBER, CsvFormat

BLOCK_BYTES = 2**22
_HEADER_BYTES = 2**24


def shown_format(path: Path) -> CsvFormat:
    """The delimiter that the header shows: names are public."""
    header = _header(path)
    counts = {mark: header.count(mark) for mark in (",", ";", "\t", "|")}
    delimiter = "," if counts[","] or not any(counts.values()) else max(counts, key=lambda mark: counts[mark])
    return CsvFormat(delimiter)


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def _header(path: Path) -> str:
    """The first line."""
    try:
        with _open(path) as file:
            line = file.readline(_HEADER_BYTES)
    except (gzip.BadGzipFile, EOFError):
        raise ValueError(f"{path.name} is not a complete gzip file: copy it again") from None
    try:
        return line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name}: its first line is not UTF-8; save it as CSV in UTF-8") from None


@dataclass(frozen=True)
class CsvFile:
    """A CSV file with a header line."""

    path: Path
    format: CsvFormat = COMMAS

    def __post_init__(self) -> None:
        import_optional("pyarrow.csv", "arrow")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns: the first line."""
        (cells,) = list(csv.reader([_header(self.path)], delimiter=self.format.delimiter)) or [[]]
        names = [cell.strip() for cell in cells]
        if not names or "" in names or "\0" in "".join(names):
            raise ValueError(
                f"{self.path.name}: its first line must name every column, separated by {self.format.delimiter!r}"
            )
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ValueError(f"{self.path.name} has two columns named {twice!r}: rename one")
        return tuple(names)

    @property
    def proposals(self) -> dict[str, str]:
        """Numbers: a CSV declares no types, and its cells are not looked at."""
        return dict.fromkeys(self.names, NUMBER)

    @property
    def typed(self) -> bool:
        """A CSV declares no types."""
        return False

    @cached_property
    def rows(self) -> int:
        """Number of lines after the header."""
        return sum(lines for _, lines in self._pieces())

    def blocks(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of the bytes of these columns."""
        read = _CsvBlock(self.names, tuple(columns), self.format.delimiter)
        for piece, lines in self._pieces():
            yield read(piece, lines)

    def _pieces(self) -> Iterator[tuple[bytes, int]]:
        """Whole lines, without their header, and how many."""
        try:
            with _open(self.path) as file:
                file.readline(_HEADER_BYTES)
                rest = b""
                while chunk := file.read(BLOCK_BYTES):
                    whole, newline, rest_of_line = chunk.rpartition(b"\n")
                    if newline:
                        piece, rest = rest + whole + newline, rest_of_line
                        yield piece, piece.count(b"\n")
                    else:
                        rest += chunk
                if rest:
                    yield rest + b"\n", 1
        except (gzip.BadGzipFile, EOFError):
            raise ValueError(f"{self.path.name} is not a complete gzip file: copy it again") from None


class _CsvBlock:
    """Parse lines so that line i is row i, whatever is in it.

    Lines that are no rows are replaced before Arrow sees them: its own complaints would repeat them.
    """

    def __init__(self, names: tuple[str, ...], columns: tuple[str, ...], delimiter: str) -> None:
        self.names, self.columns, self.delimiter, self.mark = names, columns, delimiter, ord(delimiter)
        mark = re.escape(delimiter)
        cell = rf'(?:"(?:[^"]|"")*"|[^"{mark}]*)'
        self.closed = re.compile(rf"{cell}(?:{mark}{cell})*\Z".encode())
        self.quoted = re.compile(rb'"[^"]*"')
        self.missing = (delimiter * (len(names) - 1)).encode() or b'""'

    def __call__(self, text: bytes, lines: int) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        text = self._rows_only(text)
        return (
            arrow_csv.read_csv(
                pa.BufferReader(text),
                read_options=arrow_csv.ReadOptions(
                    use_threads=False, block_size=len(text) + 1, column_names=list(self.names)
                ),
                parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, ignore_empty_lines=False),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=list(self.columns),
                    column_types={name: pa.binary() for name in self.columns},
                    null_values=[],
                    strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
            .combine_chunks()
            .to_batches()[0]
        )

    def _rows_only(self, text: bytes) -> bytes:
        """The same lines, those with a wrong number of cells, open quotes or stray carriage returns made harmless."""
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b" ")
        right = self._right_lines(text)
        lines = text[:-1].split(b"\n") if right is None or not right.all() else []
        if right is None:
            kept = [line if self._is_row(line) else self.missing for line in lines]
        elif lines:
            kept = [line if good else self.missing for line, good in zip(lines, right, strict=True)]
        else:
            return text
        return b"\n".join(kept) + b"\n"

    def _right_lines(self, text: bytes) -> NDArray[np.bool_] | None:
        """Whether each line has a cell for every column; None if quotes are not simply around whole cells."""
        characters = np.frombuffer(text, dtype=np.uint8)
        ends, marks = np.flatnonzero(characters == ord("\n")), np.flatnonzero(characters == self.mark)
        if b'"' in text:
            quotes = np.flatnonzero(characters == ord('"'))
            if not self._around_cells(characters, quotes, ends):
                return None
            marks = marks[np.searchsorted(quotes, marks) % 2 == 0]  # not between quotes
        return np.asarray(np.diff(np.searchsorted(marks, ends), prepend=0) == len(self.names) - 1)

    def _around_cells(self, characters: Any, quotes: Any, ends: Any) -> bool:
        """Whether quotes come in pairs, each around one whole cell of one line."""
        if len(quotes) % 2:
            return False
        first, last = quotes[::2], quotes[1::2]
        before = np.where(first > 0, characters[first - 1], ord("\n"))
        edges = (self.mark, ord("\n"))
        outside = np.isin(before, edges) & np.isin(characters[last + 1], edges)
        return bool(np.all(outside & (np.searchsorted(ends, first) == np.searchsorted(ends, last))))

    def _is_row(self, line: bytes) -> bool:
        if b'"' in line:
            if not self.closed.match(line):
                return False
            line = self.quoted.sub(b"", line)
        return line.count(self.delimiter.encode()) == len(self.names) - 1

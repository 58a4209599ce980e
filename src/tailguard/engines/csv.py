r"""Comma-separated values, read so that no cell can raise and no line can hide another.

A CSV file has no types, no row count and no protection: one stray quote can swallow every line after it. Here **line i
is row i**, whatever is in it, so that the number of rows, which is public, does not depend on what a row says, and no
row moves another.

==============================================  ============================================================
line                                            row
==============================================  ============================================================
a cell for every column                         its cells; one that is not a number is missing among numbers
too few or too many cells, or none              every cell missing
quotes that do not close, or inside a cell      every cell missing; a quoted cell may hold the delimiter
longer than 16 MiB                              every cell missing
a carriage return inside                        taken for a blank
==============================================  ============================================================

Lines that are no rows are replaced before Arrow sees them: its own complaints would repeat them. A quoted cell cannot
hold a line break, for then one row could swallow the next.
"""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._optional import import_optional
from tailguard.engines.files import PACKED, each_quietly, listed, quietly, shown, unique, unpacked

BLOCK_BYTES = 2**22  # read at a time
LONGEST = 2**24  # bytes of a line; what comes after them is dropped, so that one line cannot fill the memory
_MARKS = (",", ";", "\t", "|")


def check_delimiter(delimiter: Any) -> str:
    """Return a delimiter that can be one."""
    good = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
    if not good or delimiter in '"\r\n\0' or delimiter.isalnum():
        raise ValueError(f'delimiter must be one character such as ",", ";" or a tab; got {delimiter!r}')
    return str(delimiter)


class CsvBatches:
    """Files of CSV with a header, compressed or not, as text that becomes numbers later; an empty cell is null."""

    def __init__(self, paths: Sequence[str], declared: Mapping[str, str], delimiter: str | None) -> None:
        self._arrow = import_optional("pyarrow", "arrow")
        self._files = [CsvFile(path, delimiter or shown_delimiter(path)) for path in paths]
        names = self._files[0].names
        kinds = [self._arrow.string() if declared.get(name) == "text" else self._arrow.float64() for name in names]
        self._types = unique(names, kinds, shown(paths[:1]))
        for name in declared:
            if name not in self._types:
                raise ValueError(f"types names the column {name!r}: {shown(paths)} has {listed(names)}.")
        for file in self._files[1:]:
            for name in names:
                if name not in file.names:
                    raise ValueError(f"{shown([file.path])} has no column {name!r}, as {shown(paths[:1])} has: add it.")

    @property
    def delimiter(self) -> str:
        """What is between the cells of the first file."""
        return self._files[0].delimiter

    @property
    def types(self) -> Mapping[str, Any]:
        """Names from the header, and what was declared of them: float64, or text."""
        return self._types

    @cached_property
    def rows(self) -> int:
        """Number of lines after the headers: the files are read once to count them."""
        return sum(file.rows for file in self._files)

    def read(self, names: Sequence[str], size: int) -> Generator[Any]:
        """Yield record batches of text, which need not be UTF-8, in the order of the lines."""
        text = self._arrow.string()
        for file in self._files:
            for block in file.blocks(names):
                cells = [column.view(text) for column in block.columns]
                batch = self._arrow.record_batch(cells, names=list(names))
                yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))


@dataclass(frozen=True)
class CsvFile:
    """One file, as blocks of bytes."""

    path: str
    delimiter: str = ","

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns: the first line."""
        header = _header(self.path)
        try:
            names = [cell.strip() for cell in next(csv.reader([header], delimiter=self.delimiter), [])]
        except csv.Error:  # a name of 100 kB
            names = []
        if not names or "" in names or "\0" in "".join(names):
            index = " Leave out row numbers without a name: index=False in pandas, row.names=FALSE in R."
            raise ValueError(
                f"{shown([self.path])}: its first line must name every column, separated by {self.delimiter!r}."
                + (index if len(names) > 1 and names[0] == "" else "")
            )
        return tuple(unique(names, names, shown([self.path])))

    @cached_property
    def rows(self) -> int:
        """Number of lines after the header."""
        return sum(each_quietly(shown([self.path]), (piece.count(b"\n") for piece in self._pieces())))

    def blocks(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of the bytes of these columns; an empty cell is null."""
        lines = Lines(len(self.names), self.delimiter)
        blocks = (self._parsed(lines.rows_only(piece), list(columns)) for piece in self._pieces())
        return each_quietly(shown([self.path]), blocks)

    def _pieces(self) -> Iterator[bytes]:
        """Whole lines, without the header, of a few megabytes; a line that is too long stays too long."""
        stream, header, rest = _open(self.path), True, b""
        for chunk in iter(lambda: stream.read(BLOCK_BYTES), b""):
            whole, newline, after = chunk.rpartition(b"\n")
            if not newline:
                rest = (rest + chunk)[: LONGEST + 1]
                continue
            piece, rest = rest + whole + newline, after[: LONGEST + 1]
            if header:
                header, piece = False, piece.partition(b"\n")[2]
            if piece:
                yield piece
        if rest and not header:
            yield rest + b"\n"

    def _parsed(self, text: bytes, columns: list[str]) -> Any:
        """Arrow's view of lines that are all rows."""
        arrow, arrow_csv = import_optional("pyarrow", "arrow"), import_optional("pyarrow.csv", "arrow")
        if text.startswith(BOM_UTF8):  # Arrow drops one, and a cell would depend on where its block begins
            text = BOM_UTF8 + text
        table = arrow_csv.read_csv(
            arrow.BufferReader(text),
            arrow_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(self.names)),
            arrow_csv.ParseOptions(delimiter=self.delimiter, ignore_empty_lines=False),
            arrow_csv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, arrow.binary()),
                null_values=[""],
                strings_can_be_null=True,
                check_utf8=False,
            ),
        )
        return table.combine_chunks().to_batches()[0]


class Lines:
    """Lines of text, with those that are no rows of so many cells made rows of empty ones."""

    def __init__(self, columns: int, delimiter: str) -> None:
        self._marks, self._mark, self._code = columns - 1, delimiter.encode(), ord(delimiter)
        mark = re.escape(delimiter)
        cell = rf'(?:"(?:[^"]|"")*"|[^"{mark}]*)'
        self._closed = re.compile(rf"{cell}(?:{mark}{cell})*\Z".encode())
        self._quoted = re.compile(rb'"[^"]*"')
        self._missing = self._mark * self._marks or b'""'

    def rows_only(self, text: bytes) -> bytes:
        """Return as many lines, each a row; the text must end with a line."""
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b" ")
        right = self._right(text)
        if right is not None and right.all():
            return text
        lines = text[:-1].split(b"\n")
        kept = map(self.is_row, lines) if right is None else right
        return b"\n".join([line if good else self._missing for line, good in zip(lines, kept, strict=True)]) + b"\n"

    def is_row(self, line: bytes) -> bool:
        """Whether a line is a row: what `rows_only` finds for all lines at once where it can."""
        if len(line) > LONGEST:
            return False
        if b'"' in line:
            if not self._closed.match(line):
                return False
            line = self._quoted.sub(b"", line)
        return line.count(self._mark) == self._marks

    def _right(self, text: bytes) -> NDArray[np.bool_] | None:
        """Whether each line is a row; None if quotes are not simply around whole cells."""
        characters = np.frombuffer(text, dtype=np.uint8)
        ends, marks = np.flatnonzero(characters == ord("\n")), np.flatnonzero(characters == self._code)
        if b'"' in text:
            quotes = np.flatnonzero(characters == ord('"'))
            if not self._around_cells(characters, quotes, ends):
                return None
            marks = marks[np.searchsorted(quotes, marks) % 2 == 0]  # not between quotes
        short = np.diff(ends, prepend=-1) - 1 <= LONGEST
        return np.asarray(short & (np.diff(np.searchsorted(marks, ends), prepend=0) == self._marks))

    def _around_cells(self, characters: Any, quotes: Any, ends: Any) -> bool:
        """Whether quotes come in pairs, each around one whole cell of one line."""
        if len(quotes) % 2:
            return False
        first, last = quotes[::2], quotes[1::2]
        before = np.where(first > 0, characters[first - 1], ord("\n"))
        edges = (self._code, ord("\n"))
        outside = np.isin(before, edges) & np.isin(characters[last + 1], edges)
        return bool(np.all(outside & (np.searchsorted(ends, first) == np.searchsorted(ends, last))))


def shown_delimiter(path: str) -> str:
    """The delimiter that the end of the name or the header shows: both are public."""
    if unpacked(path).lower().endswith(".tsv"):
        return "\t"
    header = re.sub('"[^"]*"', "", _header(path))
    counts = {mark: header.count(mark) for mark in _MARKS}
    return "," if counts[","] or not any(counts.values()) else max(counts, key=lambda mark: counts[mark])


def _header(path: str) -> str:
    """The first line."""
    line, stream = b"", _open(path)
    while b"\n" not in line and len(line) <= LONGEST:
        chunk = quietly(shown([path]), lambda: stream.read(2**16))
        if not chunk:
            break
        line += chunk
    line = line.partition(b"\n")[0]
    if len(line) > LONGEST:
        raise ValueError(f"{shown([path])}: its first line is longer than {LONGEST} bytes: is it CSV?")
    try:
        return line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        raise ValueError(f"{shown([path])}: its first line is not UTF-8; save it as CSV in UTF-8.") from None


def _open(path: str) -> Any:
    """The bytes of a file, unpacked; one that is missing or forbidden is said in the system's words."""
    arrow = import_optional("pyarrow", "arrow")
    with open(path, "rb"):
        pass
    packed = next((PACKED[end] for end in PACKED if path.lower().endswith(end)), None)
    return quietly(shown([path]), lambda: arrow.input_stream(path, compression=packed))

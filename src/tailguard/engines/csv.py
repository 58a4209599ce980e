"""Comma-separated values, read so that no cell can raise and no line can hide another.

A CSV file has no types, no row count and no protection: one stray quote can swallow every line after it. Here **a line
is a row**, whatever is in it, so that the number of rows, which is public, does not depend on what a row says:

==============================================  ============================================================
line                                            row
==============================================  ============================================================
a cell that is not a number                     missing, in a column of numbers
too few or too many cells                       every cell missing; such rows come last
an odd number of quotes                         its quotes are taken for blanks
a carriage return inside                        taken for a blank
longer than a mebibyte                          its beginning is taken for one character
empty                                           none; in a file of one column, a missing cell
==============================================  ============================================================
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tailguard._optional import import_optional
from tailguard.engines.files import each_quietly, listed, quietly, shown, unique, unpacked

_BLOCK = 2**22
_LONGEST = 2**20


class CsvBatches:
    """Files of CSV with a header, compressed or not, read as text that becomes numbers later."""

    def __init__(self, paths: Sequence[str], declared: Mapping[str, str], delimiter: str | None) -> None:
        self._paths, self._what = paths, shown(paths)
        self._delimiter = delimiter or ("\t" if unpacked(paths[0]).endswith(".tsv") else ",")
        self._arrow, self._csv = import_optional("pyarrow", "arrow"), import_optional("pyarrow.csv", "arrow")
        names = quietly(self._what, lambda: self._open(paths[0], None, []).schema.names)
        kinds = [self._arrow.string() if declared.get(name) == "text" else self._arrow.float64() for name in names]
        self._types = unique(names, kinds, self._what)
        for name in declared:
            if name not in self._types:
                raise ValueError(f"types names the column {name!r}: {self._what} has {listed(self._types)}.")

    @property
    def types(self) -> Mapping[str, Any]:
        """Names from the header, and what was declared of them: float64, or text."""
        return self._types

    @cached_property
    def rows(self) -> int:
        """Number of rows: the files are read once to count them."""
        return sum(batch.num_rows for batch in self.read(list(self._types)[:1], 2**16))

    def read(self, names: Sequence[str], size: int) -> Iterator[Any]:
        """Yield record batches of text; lines that are not rows of the table come last, as nulls."""
        return each_quietly(self._what, self._read(names, size))

    def _read(self, names: Sequence[str], size: int) -> Iterator[Any]:
        bad: list[Any] = []
        for path in self._paths:
            for batch in self._open(path, list(names), bad):
                yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))
        for start in range(0, len(bad), size):
            nothing = self._arrow.nulls(min(size, len(bad) - start), self._arrow.string())
            yield self._arrow.record_batch([nothing] * len(names), names=list(names))

    def _open(self, path: str, names: list[str] | None, bad: list[Any]) -> Any:
        """Open one file to read columns as text or, without names, to see its header."""

        def skip(row: Any) -> str:
            bad.append(None)
            return "skip"

        csv, text = self._csv, self._arrow.string()
        parse = csv.ParseOptions(
            delimiter=self._delimiter,
            invalid_row_handler=skip,
            ignore_empty_lines=names is None or len(self._types) > 1,
        )
        types = None if names is None else dict.fromkeys(self._types, text)
        convert = csv.ConvertOptions(
            check_utf8=False, include_columns=names, column_types=types, null_values=[""], strings_can_be_null=True
        )
        lines = Lines(self._arrow.input_stream(path, compression="detect"))
        return csv.open_csv(lines, csv.ReadOptions(block_size=_BLOCK), parse_options=parse, convert_options=convert)


class Lines(io.RawIOBase):
    """A stream in which no line can change how another is read."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream, self._rest, self._ready = stream, b"", b""

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, whole lines where they fit."""
        while not self._ready:
            chunk = self._stream.read(_BLOCK)
            text = self._rest + chunk
            end = text.rfind(b"\n") + 1 if chunk else len(text)
            self._rest = text[end:] if len(text) - end <= _LONGEST else b"?"
            self._ready = one_line_each(text[:end])
            if not chunk:
                break
        found = self._ready if size < 0 else self._ready[:size]
        self._ready = self._ready[len(found) :]
        return found


def one_line_each(text: bytes) -> bytes:
    """Blank the quotes of lines with an odd number of them, and carriage returns inside lines."""
    if b'"' not in text and b"\r" not in text:
        return text
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    quotes = np.flatnonzero(data == ord('"'))
    line = np.searchsorted(ends, quotes)
    odd = np.bincount(line, minlength=1) % 2 == 1
    returns = np.flatnonzero(data == ord("\r"))
    inside = returns[np.append(data, ord("\n"))[returns + 1] != ord("\n")]
    if not odd.any() and not len(inside):
        return text
    data = data.copy()
    data[quotes[odd[line]]] = ord(" ")
    data[inside] = ord(" ")
    return data.tobytes()

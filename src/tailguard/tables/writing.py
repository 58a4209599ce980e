"""Rows to a file: predictions, block by block."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

from tailguard.engines import arrow


class RowWriter:
    """Write named columns block by block: Parquet or CSV by the end of the name, CSV where there is no path.

    A file appears under its name when it is complete.
    """

    def __init__(self, path: Path | None, out: Any = None) -> None:
        self.path, self.out = path, out
        self.rows = 0
        self._writer: Any = None
        self._file: Any = None
        if path is not None and not path.name.lower().endswith((".csv", ".csv.gz", ".parquet")):
            raise ValueError(f"{path.name}: give a name that ends in .csv, .csv.gz or .parquet")

    def __enter__(self) -> RowWriter:
        if self.path is not None:
            self._part = self.path.with_name(f".{self.path.name}.part")
            packed = self.path.name.lower().endswith(".gz")
            self._file = gzip.open(self._part, "wb") if packed else self._part.open("wb")
        return self

    def write(self, columns: dict[str, Any]) -> None:
        """Append a block."""
        import pyarrow as pa

        table = pa.table(columns)
        self.rows += table.num_rows
        if self.path is not None and self.path.name.lower().endswith(".parquet"):
            if self._writer is None:
                from pyarrow import parquet

                self._writer = parquet.ParquetWriter(self._file, table.schema)
            self._writer.write_table(table)
            return
        from pyarrow import csv as arrow_csv

        first = self._writer is None
        self._writer = self._writer or True
        buffer = io.BytesIO()
        try:
            arrow_csv.write_csv(table, buffer, _options(arrow_csv, first, "none"))
        except pa.ArrowInvalid:  # some text holds a comma, a quote or a line break: quote all of this block
            buffer = io.BytesIO()
            arrow_csv.write_csv(table, buffer, _options(arrow_csv, first, "needed"))
        if self._file is not None:
            self._file.write(buffer.getvalue())
        else:
            self.out.write(buffer.getvalue().decode("utf-8", "replace"))

    def __exit__(self, kind: Any, *_: Any) -> None:
        if hasattr(self._writer, "close"):
            self._writer.close()
        if self._file is not None:
            self._file.close()
            if kind is None:
                self._part.replace(self.path)  # type: ignore[arg-type]
            else:
                self._part.unlink(missing_ok=True)


def _options(arrow_csv: Any, header: bool, quotes: str) -> Any:
    return arrow_csv.WriteOptions(include_header=header, quoting_style=quotes, quoting_header=quotes)


def kept_cells(block: Any, name: str) -> Any:
    """A column as it is, for the user's own output; bytes that are no text are replaced."""
    import pyarrow as pa

    cells = block.column(name)
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(arrow.texts(cells), pa.string())
    return cells

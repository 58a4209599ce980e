"""Where batches of rows come from: Arrow datasets, Parquet above all, and CSV (`tailguard.engines.csv`).

Each can be read any number of times, in the same order, and knows its columns, their types and how many rows there
are. A file that cannot be read raises an error that names the file and repeats nothing of what is in it.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from tailguard._optional import import_optional
from tailguard.engines.ahead import read_ahead
from tailguard.engines.arrow import is_number, is_text
from tailguard.engines.threads import thread_count

_BUFFER = 2**20  # bytes read at a time, so that a large row group need not be in memory
_AHEAD = 2  # batches of some columns that may wait for those of others
_READERS = 8  # at most, of one file
_CSV_ENDINGS = (".csv", ".tsv", ".txt")
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
_ARROW_ENDINGS = (".arrow", ".feather", ".ipc")
FORMATS = ("parquet", "arrow", "csv")


class Batches(Protocol):
    """A table that can be read in batches, again and again."""

    @property
    def types(self) -> Mapping[str, Any]:
        """Names of the columns and their types."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    def read(self, names: Sequence[str], size: int) -> Generator[Any]:
        """Yield record batches of these columns, in this order, of at most about ``size`` rows each."""


def open_batches(
    data: Any, format: str | None = None, declared: Mapping[str, str] | None = None, delimiter: str | None = None
) -> Batches:
    """Open a path, a folder, a pattern, a list of paths, or a table or dataset of Arrow.

    ``declared`` says which columns of a CSV are ``"text"``, and ``delimiter`` what is between its cells.
    """
    datasets = import_optional("pyarrow.dataset", "arrow")
    arrow = import_optional("pyarrow", "arrow")
    if isinstance(data, (datasets.Dataset, arrow.Table, arrow.RecordBatch)) and (format or declared or delimiter):
        raise ValueError("format, types and delimiter are for files only: leave them out.")
    if isinstance(data, datasets.Dataset):
        return ArrowBatches(data, "the dataset")
    if isinstance(data, arrow.RecordBatch):
        data = arrow.Table.from_batches([data])
    if isinstance(data, arrow.Table):
        return ArrowBatches(datasets.dataset(data), "the table")
    paths = _paths(data)
    kind = _format(paths[0]) if format is None else format
    if kind == "csv":
        from tailguard.engines.csv import CsvBatches

        return CsvBatches(_inside(paths), declared or {}, delimiter)
    if declared or delimiter is not None:
        raise ValueError("types and delimiter are for CSV only: other files say what their columns are.")
    # A single folder is scanned by Arrow, which also finds columns in folder names such as year=2024.
    place, kind = paths[0] if len(paths) == 1 else paths, "ipc" if kind == "arrow" else kind
    found = quietly(shown(paths), lambda: datasets.dataset(place, format=kind, partitioning="hive"))
    return ArrowBatches(found, shown(paths))


class ArrowBatches:
    """A dataset of Arrow; Parquet files are read row group by row group, a buffer at a time."""

    def __init__(self, dataset: Any, what: str) -> None:
        self._dataset, self._what = dataset, what
        self._parquet = import_optional("pyarrow.parquet", "arrow")

    @cached_property
    def types(self) -> dict[str, Any]:
        """Names and types, from the schema."""
        return unique(self._dataset.schema.names, self._dataset.schema.types, self._what)

    @cached_property
    def rows(self) -> int:
        """Number of rows, from metadata where the format has it."""
        return int(quietly(self._what, self._dataset.count_rows))

    def read(self, names: Sequence[str], size: int) -> Generator[Any]:
        """Yield record batches, file by file."""
        return each_quietly(self._what, self._read(list(names), size))

    def _read(self, names: list[str], size: int) -> Generator[Any]:
        try:
            files = list(self._dataset.get_fragments()) if hasattr(self._dataset, "files") else None
        except ValueError:  # a dataset with a filter
            files = None
        if files is None:
            yield from self._dataset.to_batches(columns=names, batch_size=size, fragment_readahead=1)
            return
        ahead = {"batch_readahead": 2, "fragment_readahead": 1}
        for plain, some in itertools.groupby(files, lambda fragment: self._plain(fragment, names)):
            if plain:
                yield from self._read_parquet(list(some), names, size)
            else:
                for fragment in some:
                    yield from fragment.to_batches(self._schema(fragment), columns=names, batch_size=size, **ahead)

    def _schema(self, fragment: Any) -> Any:
        """Types to read a file with: its own for numbers. Arrow would convert them, and refuse what a value loses."""
        arrow = import_optional("pyarrow", "arrow")
        own = dict(zip(fragment.physical_schema.names, fragment.physical_schema.types, strict=True))
        kinds = []
        for name, kind in self.types.items():
            found = own.get(name, kind)
            kinds.append((name, found if is_number(kind) and (is_number(found) or is_text(found)) else kind))
        return arrow.schema(kinds)

    def _plain(self, fragment: Any, names: list[str]) -> bool:
        """Whether it is a Parquet file which itself has all these columns, with the types of the dataset."""
        schema = fragment.physical_schema
        own = dict(zip(schema.names, schema.types, strict=True))
        parquet = fragment.format.default_extname == "parquet"
        return parquet and all(own.get(name) == self.types[name] for name in names)

    def _read_parquet(self, files: list[Any], names: list[str], size: int) -> Generator[Any]:
        """Columns are dealt out to threads that decode them, so that none waits for another before it is far ahead.

        All readers cut numbers into the same batches; of text, which may take any room, nobody says so.
        """
        arrow = import_optional("pyarrow", "arrow")
        threads = min(thread_count(), len(names), _READERS)
        if not all(is_number(self.types[name]) for name in names):
            threads = 1
        shares = [names[k::threads] for k in range(threads)]
        with ExitStack() as readers:
            parts = [
                readers.enter_context(closing(read_ahead(self._read_columns(files, share, size, threads == 1), _AHEAD)))
                for share in shares
            ]
            for batches in zip(*parts, strict=True):
                columns = {name: batch.column(name) for batch in batches for name in batch.schema.names}
                yield arrow.RecordBatch.from_arrays([columns[name] for name in names], names)

    def _read_columns(self, files: list[Any], names: list[str], size: int, alone: bool) -> Generator[Any]:
        for fragment in files:
            groups = [group.id for group in fragment.row_groups]
            options = {"filesystem": fragment.filesystem, "buffer_size": _BUFFER, "pre_buffer": False}
            with self._parquet.ParquetFile(fragment.path, **options) as file:
                if any(file.schema_arrow.field(name).type != self.types[name] for name in names):
                    raise OSError("another file than was opened")
                yield from file.iter_batches(size, row_groups=groups, columns=names, use_threads=alone)


def _paths(data: Any) -> list[str]:
    """Existing paths; a pattern becomes the files it matches, sorted."""
    given = [data] if isinstance(data, (str, os.PathLike)) else list(data) if isinstance(data, (list, tuple)) else []
    if not given or not all(isinstance(path, (str, os.PathLike)) for path in given):
        raise TypeError(
            f"data of type {type(data).__name__} is not accepted: give a path, a list of paths, or a pyarrow Dataset "
            "or Table (something that can be read more than once)."
        )
    found: list[str] = []
    for path in [str(os.fspath(path)) for path in given]:
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        if not matches and len(given) > 1:  # which may be data, and data is not repeated
            raise FileNotFoundError(
                "data is a list of texts that are not all names of files: give numbers, or paths of files that exist."
            )
        if not matches:
            raise FileNotFoundError(
                f"data={path!r} does not exist: give a file, a folder or a pattern such as 'd/*.csv'."
            )
        found += matches
    return found


def _inside(paths: list[str]) -> list[str]:
    """Paths of files: a folder becomes the files in it, sorted."""
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            found += [str(file) for file in sorted(Path(path).rglob("*")) if file.is_file() and is_csv(str(file))]
        else:
            found.append(path)
    if not found:
        raise FileNotFoundError(f"{shown(paths)} holds no CSV file: give files that end in {', '.join(_CSV_ENDINGS)}.")
    return found


def _format(path: str) -> str:
    return "csv" if is_csv(path) else "arrow" if path.lower().endswith(_ARROW_ENDINGS) else "parquet"


def is_csv(path: str) -> bool:
    """Whether a path ends as a CSV file does, compressed or not."""
    return unpacked(path).lower().endswith(_CSV_ENDINGS)


def unpacked(path: str) -> str:
    """Return a path without the ending of its compression."""
    return next((path[: -len(end)] for end in PACKED if path.lower().endswith(end)), path)


def shown(paths: Sequence[str]) -> str:
    """Return the name of one or many files for a message."""
    return repr(paths[0]) if len(paths) == 1 else f"{len(paths)} files, {paths[0]!r} first"


def listed(names: Any) -> str:
    """Return names of columns for a message, at most twenty."""
    names = [repr(name) for name in names]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def unique(names: Sequence[str], types: Sequence[Any], what: str) -> dict[str, Any]:
    """Return types by name; two columns of one name are refused."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what} has two columns named {name!r}: give every column its own name.")
    return dict(zip(names, types, strict=True))


def quietly(what: str, read: Callable[[], Any]) -> Any:
    """Call a reader; an error, which may repeat what was read, is replaced and not even kept as a context."""

    def once() -> Generator[Any]:
        yield read()

    return next(each_quietly(what, once()))


def each_quietly(what: str, items: Iterator[Any]) -> Generator[Any]:
    """Yield what a reader yields, with the same care."""
    arrow = import_optional("pyarrow", "arrow")
    try:
        yield from items
        return
    except (arrow.ArrowException, OSError, LookupError, ValueError) as error:  # the last two: files that do not match
        kind = type(error).__name__
    raise OSError(f"{what} could not be read ({kind}): check its format, that it is whole and that it did not change.")

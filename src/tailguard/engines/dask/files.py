"""Files that the workers read: each a few row groups, which a reader can begin at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tailguard.engines.files import ArrowBatches
from tailguard.engines.stored import SourceRows

_PART_VALUES = 2**23  # values of a partition: 64 MiB of float64


def pieces(rows: SourceRows) -> Iterator[SourceRows]:
    """Cut files into pieces of whole row groups; none if these are not files."""
    batches = rows.source._batches
    dataset: Any = getattr(batches, "_dataset", None)
    if not isinstance(batches, ArrowBatches) or not hasattr(dataset, "files"):
        return
    at, most = 0, max(1, _PART_VALUES // (rows.columns + 1))
    some: list[Any] = []
    held = 0
    for fragment, length in [*_row_groups(dataset), (None, 0)]:
        if some and (fragment is None or held + length > most):
            source = rows.source.select(rows.source._columns, rows.source.target)
            files = type(dataset)(some, dataset.schema, dataset.format, dataset.filesystem)
            source._batches = _Counted(files, batches._what, held)
            yield replace(rows, source=source, given=None if rows.given is None else rows.given[at : at + held])
            some, at, held = [], at + held, 0
        some.append(fragment)
        held += length


class _Counted(ArrowBatches):
    """Some row groups, whose rows were counted; Arrow would count those of the whole file."""

    rows: int

    def __init__(self, dataset: Any, what: str, rows: int) -> None:
        super().__init__(dataset, what)
        self.rows = rows


def _row_groups(dataset: Any) -> Iterator[tuple[Any, int]]:
    """Yield the smallest pieces that a reader can begin at, and their numbers of rows."""
    for fragment in dataset.get_fragments():
        if fragment.format.default_extname != "parquet":
            yield fragment, fragment.count_rows()
            continue
        for group in fragment.row_groups:
            yield fragment.subset(row_group_ids=[group.id]), group.num_rows

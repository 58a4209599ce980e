"""Ways to stream rows, for the contract of engines: every format, in parts of every size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tailguard import Source
from tailguard.engines.engine import engine_for
from tailguard.engines.stored import MappedRows
from tailguard.engines.streamed import Streamed


def table(X, y) -> pa.Table:
    return pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])} | {"target": y})


def parquet(group):
    def build(X, y, threads, folder):
        pq.write_table(table(X, y), folder / "rows.parquet", row_group_size=group)
        return engine_for(Source(folder / "rows.parquet", memory=0), "target", threads)

    return build


def folder_of_files(X, y, threads, folder):
    """Files of unequal length, one of them empty."""
    (folder / "rows").mkdir()
    edges = [0, 1, 1, len(X) // 3, len(X)]
    for k in range(4):
        part = slice(edges[k], edges[k + 1])
        pq.write_table(table(X[part], y[part]), folder / "rows" / f"{k}.parquet")
    return engine_for(Source(folder / "rows", memory=0), "target", threads)


def feather(X, y, threads, folder):
    pyarrow.feather.write_feather(table(X, y), folder / "rows.feather", chunksize=13)
    return engine_for(Source(folder / "rows.feather", target="target", memory=0), None, threads)


def arrow_table(X, y, threads, folder):
    """Chunks of other sizes in memory; a null is NaN."""
    rows = table(X, y)
    names = [f"x{j}" for j in range(X.shape[1])]
    nulls = [pa.array(column.to_numpy(), from_pandas=True) for column in rows.select(names).columns]
    rows = pa.table(dict(zip(names, nulls, strict=True)) | {"target": y})
    chunks = [rows.slice(start, 11) for start in range(0, len(rows), 11)]
    return engine_for(Source(ds.dataset(pa.concat_tables(chunks)), memory=0), "target", threads)


def targets_apart(X, y, threads, folder):
    pq.write_table(table(X, y).drop_columns("target"), folder / "rows.parquet", row_group_size=17)
    return engine_for(Source(folder / "rows.parquet", memory=0), y, threads)


def kept(X, y, threads, folder):
    return engine_for(table(X, y), "target", threads)


def csv(X, y, threads, folder):
    if X.dtype == np.float32:
        pytest.skip("text has no float32")
    lines = [",".join([*map(repr, row), repr(target)]) for row, target in zip(X.tolist(), y.tolist(), strict=True)]
    header = ",".join([f"x{j}" for j in range(X.shape[1])] + ["target"])
    (folder / "rows.csv").write_text("\n".join([header, *lines]) + "\n")
    return engine_for(Source(folder / "rows.csv", memory=0), "target", threads)


def mapped(order):
    def build(X, y, threads, folder):
        np.save(folder / "X.npy", np.asarray(X, order=order))
        return Streamed(MappedRows(np.load(folder / "X.npy", mmap_mode="r"), y), threads)

    return build


BUILDERS = {
    "Parquet, one row group": parquet(2**20),
    "Parquet, groups of 7": parquet(7),
    "Parquet, many files": folder_of_files,
    "Feather": feather,
    "Arrow, chunks": arrow_table,
    "Parquet, targets apart": targets_apart,
    "Arrow, kept": kept,
    "CSV": csv,
    "mapped": mapped("C"),
    "mapped, column by column": mapped("F"),
}

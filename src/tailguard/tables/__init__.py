"""Tables in files: what is declared about them, how their cells become numbers, and how a fit reads them.

Read in this order: :mod:`.schema` (what an analyst declares), :mod:`.files` (blocks of rows), :mod:`.cells` (cells to
numbers), :mod:`.rows` and :mod:`.scratch` (what a fit is given), :mod:`.writing` (predictions). Files are read by
`tailguard.engines`, as for `tailguard.Source`.
"""

from tailguard.tables.cells import encode_features, encode_target
from tailguard.tables.files import TableFile, open_table
from tailguard.tables.rows import DerivedRows, derived_source, read_ids, training_rows
from tailguard.tables.schema import CATEGORY, COUNT, IGNORE, NUMBER, Column, CsvFormat, Recipe, TableSchema, choose
from tailguard.tables.writing import RowWriter, kept_cells

__all__ = [
    "CATEGORY",
    "COUNT",
    "IGNORE",
    "NUMBER",
    "Column",
    "CsvFormat",
    "DerivedRows",
    "Recipe",
    "RowWriter",
    "TableFile",
    "TableSchema",
    "choose",
    "derived_source",
    "encode_features",
    "encode_target",
    "kept_cells",
    "open_table",
    "read_ids",
    "training_rows",
]

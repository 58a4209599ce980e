"""Engines: where the rows live and how sums over them are computed. Same result, to the last bit, in each."""

from tailguard.engines.engine import BlockFunction, Data, Engine, RowsStayError, elsewhere, engine_for

__all__ = ["BlockFunction", "Data", "Engine", "RowsStayError", "elsewhere", "engine_for"]

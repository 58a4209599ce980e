"""Engines: where the rows live and how sums over them are computed. Same result, to the last bit, in each."""

"""The sections of `accuracy.py`, by name."""

from collections.abc import Callable

from sections.counts import counts
from sections.lines import clean, collinear, equivariance, oracle, random, safety, small
from sections.means import mean
from sections.odds import logistic, rare
from sections.real import tables
from sections.run import Run
from sections.speed import speed

SECTIONS: dict[str, Callable[[Run], None]] = {
    "clean": clean,
    "oracle": oracle,
    "random": random,
    "small": small,
    "tables": tables,
    "logistic": logistic,
    "rare": rare,
    "counts": counts,
    "mean": mean,
    "safety": safety,
    "equivariance": equivariance,
    "collinear": collinear,
    "time": speed,
}
